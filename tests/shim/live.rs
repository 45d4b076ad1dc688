//! What a reader sees of a program that runs.

use telereduce_tests::compare::{assert_balanced, assert_exact, assert_nothing_missed};
use telereduce_tests::{Counts, Dir, Run, Truth};

#[test]
fn outstanding_work_is_seen_while_it_is_outstanding() {
    let dir = Dir::new();
    let mut live = Run::program("hold_live --outstanding 24 --size 4096").counted(&dir).live();
    live.wait_for("ready");
    let s = dir.read(live.pid());
    let first = live.said().lines().find(|l| l.starts_with("qp 0 ")).expect("the held QP").to_string();
    let words: Vec<&str> = first.split_whitespace().collect();
    let q = s.qps.iter().find(|q| q.qp_num.to_string() == words[7]).expect("the held QP");
    Counts::of_words(&words[12..]).assert_same(&Counts::of_line(&q.line), "held");
    assert_eq!((q.line.send.wr_outstanding, q.line.send.bytes_outstanding), (24, 24 * 4096));
    assert_eq!((q.live, q.state.as_deref(), q.port), (true, Some("RTS"), Some(1)));
    let o = live.finish().silent();

    let s = dir.snapshot();
    // It says `qp` lines at the start as well; the truth is in those at the end.
    let end = o.stdout.split_once("ready\n").expect("ready").1;
    assert_exact(&Truth::parse(end.lines()), &s);
    assert_nothing_missed(&s);
    let held = s.qps.iter().find(|q| q.qp_num.to_string() == words[7]).expect("the held QP");
    assert_eq!((held.line.send.wr_high_water, held.line.send.bytes_high_water), (24, 24 * 4096));
    assert_eq!((held.live, held.state.as_deref()), (false, None));
}

/// Each copy of a program at work balances, and no counter ever goes back.
#[test]
fn counters_only_grow() {
    let dir = Dir::new();
    let mut live = Run::program("hold_live --per-second 100000").counted(&dir).live();
    live.wait_for("ready");
    let (mut before, mut moved) = (0, 0);
    for _ in 0..2000 {
        let s = dir.read(live.pid());
        let posted: u64 = s.ports.iter().map(|p| p.line.send.wr_posted).sum();
        assert!(posted >= before, "{before} then {posted}");
        moved += u32::from(posted > before);
        before = posted;
        if moved > 20 {
            break;
        }
    }
    assert!(moved > 1, "the program was at work");
    live.finish().silent();
    assert_balanced(&dir.snapshot());
}

/// A reader that comes and goes, whatever it does, is not noticed.
#[test]
fn segment_removed_under_a_running_program() {
    let dir = Dir::new();
    let mut live = Run::program("hold_live").counted(&dir).live();
    live.wait_for("ready");
    std::fs::remove_file(&dir.segments()[0].path).expect("the segment");
    let o = live.finish().ok();
    // The final snapshot is read back through the name: without it one line says so.
    assert!(o.stdout.lines().any(|l| l.starts_with("total ")));
    if !o.stderr.is_empty() {
        assert!(o.one_line().contains("cannot write the snapshot"));
    }
}
