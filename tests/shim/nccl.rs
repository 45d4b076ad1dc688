//! NCCL's profiler plugin: `nccl_driver` calls it as NCCL does, and every WR that it posts is labelled.

use serde_json::Value;
use std::collections::BTreeMap;
use telereduce::shm::snapshot::SegmentJson;
use telereduce_tests::run::names;
use telereduce_tests::{Dir, Run};

/// Lines of the log, by QP where the format tells it.
fn run(args: &str, format: &str) -> (Dir, Vec<String>, String) {
    let dir = Dir::new();
    let place = dir.path().join("log");
    std::fs::create_dir_all(&place).expect("a new directory");
    let run = Run::program(&format!("nccl_driver {args}")).counted(&dir);
    let run = run.env("TELEREDUCE_LOG", place.to_str().expect("UTF-8")).env("TELEREDUCE_LOG_FORMAT", format);
    let o = run.env("OMPI_COMM_WORLD_RANK", "77").run().silent();
    let files = names(&place);
    assert_eq!(files.len(), 1);
    let text = std::fs::read_to_string(place.join(&files[0])).expect("a log");
    (dir, text.lines().map(String::from).collect(), o.stdout)
}

/// `name value` pairs of the program's lines that begin with `kind`.
fn said(stdout: &str, kind: &str) -> Vec<BTreeMap<String, String>> {
    let lines = stdout.lines().filter_map(|l| l.strip_prefix(kind)?.strip_prefix(' '));
    lines
        .map(|l| {
            let words: Vec<&str> = l.split(' ').collect();
            words.chunks_exact(2).map(|w| (w[0].into(), w[1].into())).collect()
        })
        .collect()
}

/// What lines say of the WRs, in order.
fn told(lines: &[BTreeMap<String, String>], names: &[&str]) -> Vec<String> {
    lines.iter().map(|l| names.iter().map(|n| l[*n].clone()).collect::<Vec<_>>().join(",")).collect()
}

const SAID: [&str; 7] = ["qp", "group", "rank", "peer", "channel", "func", "times"];
const LOGGED: [&str; 7] = ["qp_num", "group", "rank", "peer_rank", "channel", "func", "func_times"];

fn json(lines: &[String]) -> Vec<BTreeMap<String, String>> {
    let object = |l: &String| -> BTreeMap<String, Value> { serde_json::from_str(l).expect("a line of JSON") };
    lines.iter().map(|l| object(l).into_iter().map(|(k, v)| (k, v.to_string())).collect()).collect()
}

fn check_segment(s: &SegmentJson, stdout: &str, before: u64) {
    let links = said(stdout, "link");
    let wrs = said(stdout, "wr");
    assert_eq!(links.len(), 8);
    for link in links {
        let qp = s.qps.iter().find(|q| q.qp_num.to_string() == link["qp"]).expect("the QP");
        let nccl = qp.nccl.as_ref().expect("its label");
        let last = wrs.iter().rev().find(|w| w["qp"] == link["qp"]).expect("a WR");
        assert_eq!(nccl.group.unwrap().to_string(), last["group"]);
        assert_eq!(
            (nccl.rank.unwrap().to_string(), nccl.channel.to_string()),
            (last["rank"].clone(), last["channel"].clone())
        );
        assert_eq!((nccl.peer_rank.unwrap().to_string(), &nccl.direction), (last["peer"].clone(), &link["direction"]));
        let names = [("2", "AllGather"), ("4", "AllReduce"), ("6", "Send"), ("7", "Recv")];
        let name = names.iter().find(|(n, _)| *n == last["func"]).expect("a function").1;
        assert_eq!((nccl.func.as_deref(), nccl.func_times.unwrap().to_string()), (Some(name), last["times"].clone()));
        assert_eq!(qp.line.send.wr_posted.to_string(), link["posted"]);
        assert_eq!(nccl.wr_labelled, qp.line.send.wr_posted - before, "none unlabelled");
        assert_eq!(qp.source.as_deref(), Some("192.0.2.1"));
    }
    assert!(s.qps.iter().filter(|q| q.nccl.is_some()).count() == 8, "peers post nothing");
}

#[test]
fn every_wr_has_its_label_in_the_log_and_its_qp_in_the_segment() {
    for args in ["", "--version 4", "--wrong", "--exhaust", "--rounds 200"] {
        let (dir, lines, stdout) = run(args, "json");
        let lines = json(&lines);
        assert!(lines.len() >= 240, "{args}");
        assert_eq!(told(&lines, &LOGGED), told(&said(&stdout, "wr"), &SAID), "{args}");
        let s = dir.snapshot();
        check_segment(&s, &stdout, 0);
        assert!(s.qps.iter().flat_map(|q| &q.nccl).all(|n| n.changes == 0));
        assert_eq!((s.missed.panics, s.missed.log_dropped), (0, 0));
    }
}

#[test]
fn the_seeds_line_and_csv_have_it_too() {
    let (_dir, lines, stdout) = run("", "seed");
    let wrs = said(&stdout, "wr");
    assert_eq!(lines.len(), wrs.len());
    for (line, w) in lines.iter().zip(&wrs) {
        let start = format!(
            "null0: Group:{}, from rank {} to rank {}, devIndex: 0, channel_id:{}, func:{},FuncTimes:{}, 192.0.2.1->",
            w["group"], w["rank"], w["peer"], w["channel"], w["func"], w["times"]
        );
        assert!(line.starts_with(&start), "{line}");
    }
    let (_dir, lines, stdout) = run("", "csv");
    let columns: Vec<&str> = lines[0].split(',').collect();
    let rows =
        lines[1..].iter().map(|l| columns.iter().map(|c| (*c).into()).zip(l.split(',').map(String::from)).collect());
    assert_eq!(told(&rows.collect::<Vec<_>>(), &LOGGED), told(&said(&stdout, "wr"), &SAID));
}

#[test]
fn a_communicator_may_end_and_another_begin() {
    let (dir, lines, stdout) = run("--again", "json");
    let wrs = said(&stdout, "wr");
    assert_eq!(told(&json(&lines), &LOGGED), told(&wrs, &SAID));
    let groups: std::collections::BTreeSet<_> = wrs.iter().map(|w| &w["group"]).collect();
    assert_eq!(groups.len(), 3);
    let s = dir.snapshot();
    check_segment(&s, &stdout, 0);
    let changed = s.qps.iter().flat_map(|q| &q.nccl).filter(|n| n.changes == 1).count();
    assert_eq!(changed, 4, "the QPs of the communicator that was made anew");
}

#[test]
fn qps_that_were_there_before_are_labelled_from_then_on() {
    let (dir, lines, stdout) = run("--late", "json");
    let lines = json(&lines);
    let (before, after) = lines.split_at(800);
    assert!(before.iter().all(|l| l["channel"] == "null" && l["group"] == "null" && l["rank"] == "77"));
    assert_eq!(told(after, &LOGGED), told(&said(&stdout, "wr"), &SAID));
    check_segment(&dir.snapshot(), &stdout, 100);
}

#[test]
fn without_the_plugin_nothing_is_labelled() {
    let (dir, lines, _) = run("--plain", "seed");
    assert_eq!(lines.len(), 800);
    let start = "null0: Group:0, from rank 77 to rank -1, devIndex: 0, channel_id:-1, func:0,FuncTimes:0, 192.0.2.1->";
    assert!(lines.iter().all(|l| l.starts_with(start)));
    assert!(dir.snapshot().qps.iter().all(|q| q.nccl.is_none()));
}

#[test]
fn a_library_that_is_off_asks_for_no_events() {
    let o = Run::program("nccl_driver").counted(&Dir::new()).env("TELEREDUCE", "off").run();
    assert!(o.stderr.contains("mask"), "the driver finds that nothing is asked for: {}", o.stderr);
}

#[test]
fn the_jobs_id_is_in_the_segment() {
    let dir = Dir::new();
    Run::program("no_close").counted(&dir).env("SLURM_JOB_ID", "4711").run().silent();
    assert_eq!(dir.snapshot().job.as_deref(), Some("4711"));
}
