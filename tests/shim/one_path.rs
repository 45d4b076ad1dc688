//! Multi-path is on and comes to nothing: every QP says why, and all else is as without.

use crate::exact::{alike, exact};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use telereduce::shm::snapshot::{QpJson, QpMultipathJson, SegmentJson};
use telereduce_tests::run::{LIMIT, built};
use telereduce_tests::{Dir, Live, Run};

const FOUR: (&str, &str) = ("TELEREDUCE_PATHS", "4");
/// Ports that no other test uses.
const PORT: (&str, &str) = ("TELEREDUCE_PORT", "61210");
const LOOPBACK: [(&str, &str); 4] = [FOUR, PORT, ("NULLVERBS_GIDS", "6"), ("NULLVERBS_NET", "127.0.0")];

fn multipath(q: &QpJson) -> &QpMultipathJson {
    q.multipath.as_ref().expect("a QP of a process with multi-path on")
}

fn why(q: &QpJson) -> &str {
    multipath(q).single_path.as_deref().expect("a reason")
}

/// The reasons of all QPs, each once.
fn reasons(s: &SegmentJson) -> Vec<&str> {
    let mut all: Vec<&str> = s.qps.iter().map(why).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What one sees of a program that runs, once the reason of QP `at` is known.
fn when_known(dir: &Dir, live: &Live, at: usize) -> SegmentJson {
    when_it_is(dir, live, at, |why| why != "pending")
}

/// Likewise, once it is as wanted.
fn when_it_is(dir: &Dir, live: &Live, at: usize, wanted: impl Fn(&str) -> bool) -> SegmentJson {
    let until = Instant::now() + LIMIT;
    loop {
        let s = dir.read(live.pid());
        if wanted(why(&s.qps[at])) || Instant::now() > until {
            return s;
        }
        sleep(Duration::from_millis(5));
    }
}

fn started(program: &str, env: &[(&str, &str)], dir: &Dir) -> Live {
    let mut live = env.iter().fold(Run::program(program), |r, (k, v)| r.env(k, v)).counted(dir).live();
    live.wait_for("ready");
    live
}

#[test]
fn where_it_is_off_nothing_is_said_of_it() {
    let (_, s) = exact("basic", &[]);
    assert!(s.qps.iter().all(|q| q.multipath.is_none()) && s.ports.iter().all(|p| p.multipath.is_none()));
}

#[test]
fn a_port_with_one_address_has_one_path() {
    for program in ["basic", "reset", "qpn_reuse", "basic --size 1048576"] {
        let (_, s) = exact(program, &[FOUR]);
        let said = reasons(&s);
        let known = ["too_few_addresses", "unconnected"];
        assert!(said.contains(&known[0]) && said.iter().all(|r| known.contains(r)), "{program}: {said:?}");
        for p in s.ports.iter().filter_map(|p| Some((p, p.multipath.as_ref()?))) {
            assert_eq!((p.1.wr_split, p.1.bytes_carried), (0, p.0.line.send.bytes_posted), "{program}");
        }
    }
    let (_, s) = exact("ud", &[FOUR]);
    assert_eq!(reasons(&s), ["qp_type"]);
}

#[test]
fn an_address_that_is_not_this_host_s_cannot_be_listened_at() {
    let (_, s) = alike("no_close", &[FOUR, PORT, ("NULLVERBS_GIDS", "6")]);
    assert_eq!(reasons(&s), ["no_sockets"]);
}

/// A CQ has room for some engines at least; one that is resized for more QPs, for theirs. A QP that gets none is as natively.
#[test]
fn a_cq_that_is_resized_has_room_for_more_engines() {
    let (_, s) = exact("cq_room", &[FOUR]);
    // The device counts on from one QP to the next.
    let mut all: Vec<(u32, &str)> = s.qps.iter().map(|q| (q.qp_num, why(q))).collect();
    all.sort_unstable();
    let without: Vec<usize> = (0..40).filter(|i| all[*i].1 == "cq").collect();
    assert_eq!((all.len(), without), (40, vec![16, 17, 18, 19]), "{all:?}");
}

/// What the device refuses is refused, with its errno and without a change of what was asked for.
#[test]
fn what_the_device_refuses_is_refused() {
    for env in [&[][..], &[FOUR], &[FOUR, ("NULLVERBS_GIDS", "6")]] {
        exact("refused", env);
    }
}

#[test]
fn a_side_channel_that_cannot_start_is_said_once() {
    let dir = Dir::new();
    let run = Run::program("no_close").env(FOUR.0, FOUR.1).env("TELEREDUCE_SECRET_FILE", "/does/not/exist");
    let o = run.counted(&dir).run().ok();
    assert!(o.one_line().contains("multi-path is off: "), "{}", o.stderr);
    assert_eq!(reasons(&dir.snapshot()), ["off"]);
}

#[test]
fn the_process_itself_is_no_peer() {
    let dir = Dir::new();
    let live = started("hold_live", &LOOPBACK, &dir);
    let s = when_it_is(&dir, &live, 0, |why| why == "loopback");
    assert_eq!(why(&s.qps[0]), "loopback");
    live.finish().silent();
}

#[test]
fn without_a_shim_at_the_peer_each_qp_says_so_and_large_wrs_are_counted() {
    let dir = Dir::new();
    let live = started("far", &LOOPBACK, &dir);
    let numbers = live.said().lines().find_map(|l| l.strip_prefix("qps ")).expect("numbers").to_string();
    let numbers: Vec<&str> = numbers.split_whitespace().collect();
    let of = |s: &SegmentJson, i: usize| s.qps.iter().find(|q| q.qp_num.to_string() == numbers[i]).unwrap().clone();
    let place = |s: &SegmentJson, i: usize| s.qps.iter().position(|q| q.qp_num.to_string() == numbers[i]).unwrap();
    when_known(&dir, &live, place(&dir.read(live.pid()), 3));
    let s = when_known(&dir, &live, place(&dir.read(live.pid()), 0));
    assert_eq!(why(&of(&s, 0)), "no_shim_at_peer");
    assert_eq!((why(&of(&s, 2)), why(&of(&s, 3))), ("qp_type", "no_shim_at_peer"), "extended verbs are like others");
    let m = multipath(&of(&s, 0)).clone();
    assert_eq!((m.lanes, m.lanes_failed_here, m.lanes_failed_there), (0, 0, 0));
    let w = &m.work;
    assert_eq!((w.wr_split, w.chunks, w.moved.bytes_split, w.bytes_carried), (0, 0, 0, 10 << 20));
    let large: Vec<(&str, u64)> = w.large_passed.iter().map(|(k, n)| (k.as_str(), *n)).collect();
    assert_eq!(large, [("no_lane", 10)]);

    let o = Command::new(built("release/trtop"))
        .args(["doctor", "--seconds", "0.01", "--pid", &live.pid().to_string()])
        .env("TELEREDUCE_DIR", dir.segment_dir())
        .output()
        .expect("trtop, which `make build` makes");
    let report = String::from_utf8_lossy(&o.stdout);
    assert_eq!(o.status.code(), Some(0), "one path is no fault: {report}");
    assert!(report.contains("of one path, no_shim_at_peer: ") && report.contains(numbers[0]), "{report}");

    let o = live.finish().silent();
    let s = dir.snapshot();
    telereduce_tests::compare::assert_exact(&telereduce_tests::Truth::parse(o.stdout.lines()), &s);
    assert_eq!(why(&of(&s, 0)), "no_shim_at_peer", "after its end, too");
}
