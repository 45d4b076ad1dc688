//! The log of transfers: a line per completed signaled send, in the file of its process, whatever way the process ends.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use telereduce_tests::run::names;
use telereduce_tests::{Dir, Run};

/// 3000 signaled READs of 4 KiB and one signaled WRITE of 16 bytes, which is a control message.
const READS: &str = "basic --writes 0 --sends 0 --imms 0 --atomics 0 --reads 3000 --signal-every 1";

fn logged(program: &str, dir: &Dir) -> Run {
    let place = dir.path().join("log");
    std::fs::create_dir_all(&place).expect("a new directory");
    Run::program(program).counted(dir).env("TELEREDUCE_LOG", place.to_str().expect("UTF-8"))
}

fn files(dir: &Dir) -> Vec<PathBuf> {
    let place = dir.path().join("log");
    names(&place).iter().map(|n| place.join(n)).collect()
}

fn text(file: &Path) -> String {
    std::fs::read_to_string(file).expect("a log")
}

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect()
}

#[test]
fn every_transfer_has_its_line_in_the_seeds_format() {
    let dir = Dir::new();
    let o = logged(READS, &dir).env("PMI_RANK", "3").run().silent();
    let files = files(&dir);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let name = files[0].file_name().unwrap().to_str().unwrap();
    assert_eq!((files.len(), name), (1, format!("telereduce.{}.{}.log", host.trim_end(), o.pid).as_str()));
    let text = text(&files[0]);
    assert_eq!(text.lines().count(), 3000);
    for line in text.lines() {
        let rest = line.strip_prefix(
            "null0: Group:0, from rank 3 to rank -1, devIndex: 0, channel_id:-1, func:0,FuncTimes:0, \
             192.0.2.1->192.0.2.1, bandWidths: ",
        );
        let rest = rest.unwrap_or_else(|| panic!("{line}"));
        let (gbps, rest) = rest.split_once(" Gbps, sendWrcounter: ").expect("the bandwidth");
        let (wr, rest) = rest.split_once(", remainWrDataSize: ").expect("the counter");
        let (bytes, rest) = rest.split_once(" Bytes, timestamp: ").expect("the bytes");
        let ns = rest.strip_suffix(" nsec").expect("the time");
        assert!([gbps, wr, bytes, ns].iter().all(|n| n.parse::<u64>().is_ok()), "{line}");
    }
    assert_eq!(dir.snapshot().missed.log_dropped, 0);
}

#[test]
fn json_and_csv_say_what_the_events_say() {
    let dir = Dir::new();
    logged("no_close", &dir).env("TELEREDUCE_LOG_FORMAT", "json").env("TELEREDUCE_LATENCY", "1").run().silent();
    let snapshot = dir.snapshot();
    let lines = json(&text(&files(&dir)[0]));
    assert_eq!((lines.len(), snapshot.events.len()), (10, 10));
    for (line, e) in lines.iter().zip(&snapshot.events) {
        assert_eq!(line["end_ns"], e.end_ns);
        assert_eq!((&line["device"], &line["port"]), (&"null0".into(), &1.into()));
        assert_eq!((&line["bytes"], &line["qp_num"], &line["status"]), (&e.bytes.into(), &e.qp_num.into(), &0.into()));
        assert_eq!(line["latency_ns"].as_u64(), e.latency_ns);
        assert_eq!((&line["destination"], &line["peer_rank"]), (&"192.0.2.1".into(), &Value::Null));
    }
    let csv = Dir::new();
    logged("no_close", &csv).env("TELEREDUCE_LOG_FORMAT", "csv").run().silent();
    let text = text(&files(&csv)[0]);
    let columns = |l: &str| l.split(',').count();
    let mut rows = text.lines();
    assert!(rows.next().is_some_and(|head| head.starts_with("end_ns,device,port,qp_num,") && columns(head) == 19));
    assert_eq!((rows.clone().count(), rows.all(|l| columns(l) == 19)), (10, true));
}

/// The bandwidth is that of the last 50 transfers, worked out here from the lines themselves.
#[test]
fn the_windows_are_those_of_the_lines_before() {
    for (window, most) in [(None, 50), (Some("7"), 7)] {
        let dir = Dir::new();
        let run = logged(READS, &dir).env("TELEREDUCE_LOG_FORMAT", "json");
        let run = if let Some(w) = window { run.env("TELEREDUCE_WINDOW", w) } else { run };
        run.run().silent();
        let lines = json(&text(&files(&dir)[0]));
        let number = |l: &Value, field: &str| l[field].as_u64().expect("a number");
        for at in 0..lines.len() {
            let part = &lines[(at + 1).saturating_sub(most)..=at];
            let bytes: u64 = part[1..].iter().map(|l| number(l, "bytes")).sum();
            let ns = number(&part[part.len() - 1], "end_ns") - number(&part[0], "end_ns");
            let expected = if ns == 0 { 0 } else { u128::from(bytes) * 8_000_000_000 / u128::from(ns) };
            assert_eq!(u128::from(number(&lines[at], "peer_bits_per_s")), expected);
        }
    }
}

#[test]
fn a_log_goes_on_in_new_files() {
    let dir = Dir::new();
    logged(READS, &dir).env("TELEREDUCE_LOG_BYTES", "65536").run().silent();
    let files = files(&dir);
    let all: usize = files.iter().map(|f| text(f).lines().count()).sum();
    assert_eq!(all, 3000);
    assert!(files.len() > 1);
    assert!(files.iter().all(|f| text(f).ends_with(" nsec\n")), "no file ends within a line");
}

#[test]
fn the_last_lines_are_there_however_a_process_leaves() {
    for how in ["exit", "Exit", "quick", "signal", "malloc", "together", "cancelled"] {
        let dir = Dir::new();
        let o = logged(&format!("leave {how}"), &dir).env("TELEREDUCE_MIN_BYTES", "0").run();
        let s = dir.snapshot();
        let lines: usize = files(&dir).iter().map(|f| text(f).lines().count()).sum();
        assert_eq!((o.code, lines), (Some(7), s.events.len()), "{how}: {}", o.stderr);
        assert!(lines > 0, "{how}");
    }
}

#[test]
fn a_forked_child_with_a_device_has_a_file_of_its_own() {
    let dir = Dir::new();
    let o = logged("fork_noexec", &dir).env("TELEREDUCE_MIN_BYTES", "0").run().silent();
    let snapshots = dir.snapshots();
    assert_eq!((snapshots.len(), files(&dir).len()), (2, 2));
    for s in &snapshots {
        let file = files(&dir).into_iter().find(|f| f.to_str().unwrap().ends_with(&format!(".{}.log", s.pid)));
        let lines = text(&file.expect("its file")).lines().count();
        assert_eq!(lines, s.events.len(), "{} of {}", s.pid, o.pid);
    }
}

#[test]
fn a_place_that_cannot_be_written_is_one_line_and_counted() {
    let dir = Dir::new();
    let run = Run::program(READS).counted(&dir).env("TELEREDUCE_LOG", "/proc/self");
    let o = run.run().ok();
    assert!(o.one_line().contains("cannot write the log /proc/self/telereduce."), "{}", o.stderr);
    assert_eq!(dir.snapshot().missed.log_dropped, 3000);
}

#[test]
fn a_log_without_events_in_the_segment() {
    let dir = Dir::new();
    logged(READS, &dir).env("TELEREDUCE_EVENTS", "off").run().silent();
    assert_eq!(text(&files(&dir)[0]).lines().count(), 3000);
    assert_eq!(dir.snapshot().events.len(), 0);
}

/// The library's own threads do not keep a process alive whose main thread has ended: natively it ends with its last thread.
#[test]
fn a_process_ends_with_the_last_of_its_own_threads() {
    let native = Run::program("main_leaves").run().silent();
    for paths in ["1", "4"] {
        let dir = Dir::new();
        let o = logged("main_leaves", &dir).env("TELEREDUCE_PATHS", paths).env("NULLVERBS_GIDS", "6").run().silent();
        assert_eq!((o.code, o.stdout), (native.code, native.stdout.clone()));
        let lines: usize = files(&dir).iter().map(|f| text(f).lines().count()).sum();
        assert_eq!((lines, dir.snapshot().ports[0].line.send.cqes), (20, 20));
        assert_eq!(dir.names(), [""; 0]);
    }
    let dir = Dir::new();
    Run::program("main_leaves").counted(&dir).env("TELEREDUCE_PATHS", "4").env("NULLVERBS_GIDS", "6").run().silent();
    assert_eq!(dir.names(), [""; 0]);
}

#[test]
fn without_a_log_there_is_no_thread_and_no_file() {
    for log in [false, true] {
        let dir = Dir::new();
        let run = if log { logged("hold_live", &dir) } else { Run::program("hold_live").counted(&dir) };
        let mut live = run.live();
        live.wait_for("ready");
        let threads = || -> Vec<String> {
            std::fs::read_dir(format!("/proc/{}/task", live.pid()))
                .expect("its threads")
                .map(|t| std::fs::read_to_string(t.expect("a thread").path().join("comm")).expect("its name"))
                .collect()
        };
        // A thread that has just begun names itself.
        let begun = Instant::now();
        while log && !threads().iter().any(|n| n == "telereduce-log\n") && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let names = threads();
        assert_eq!(names.iter().any(|n| n == "telereduce-log\n"), log, "{names:?}");
        assert_eq!(names.len(), 1 + usize::from(log));
        live.finish().silent();
        assert_eq!(dir.path().join("log").exists(), log);
    }
}
