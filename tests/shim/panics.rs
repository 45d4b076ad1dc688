//! A panic inside a hook ends counting, not the program. The library under test is built with places to fail at.

use telereduce_tests::run::shim_with_faults;
use telereduce_tests::{Dir, Outcome, Run};

fn panicking(program: &str, place: &str) -> (Dir, Outcome) {
    let dir = Dir::new();
    let native = Run::program(program).run().silent();
    let run = Run::program(program).preload(&shim_with_faults(), &dir).env("TELEREDUCE_FAULT", place);
    let o = run.run().ok();
    assert_eq!(o.stdout, native.stdout, "{program} with a panic in {place}");
    (dir, o)
}

#[test]
fn the_program_goes_on_and_one_line_says_so() {
    let cases = [
        ("basic", "post_send"),
        ("basic", "post_recv"),
        ("basic", "poll_cq"),
        ("srq", "post_srq_recv"),
        ("srq", "poll_cq"),
        ("partial", "post_send"),
        ("partial", "post_recv"),
        ("errors", "poll_cq"),
        ("reset", "post_send"),
        ("shared_cq", "post_recv"),
        ("events", "poll_cq"),
        ("extended", "wr_complete"),
        ("datagrams", "create_ah"),
        ("datagrams", "post_send"),
        ("datagrams", "poll_cq"),
        ("datagrams --extended", "wr_complete"),
        ("extended", "start_poll"),
    ];
    for (program, place) in cases {
        let (dir, o) = panicking(program, place);
        let line = o.one_line();
        assert!(line.contains("internal error") && line.contains(&format!("fault {place}")), "{line}");
        assert_eq!(dir.snapshot().missed.panics, 1, "{program}, {place}");
        assert_eq!(dir.names(), [""; 0]);
    }
}

#[test]
fn nothing_is_counted_afterwards() {
    let (dir, _) = panicking("basic", "post_send");
    let s = dir.snapshot();
    assert_eq!((s.ports[0].line.send.wr_posted, s.missed.completions_unmatched), (0, 0));
    // Up to the first poll with completions, all is counted: three unsignaled WRITEs and a signaled one.
    let (dir, _) = panicking("basic", "poll_cq");
    let s = dir.snapshot();
    assert_eq!((s.ports[0].line.send.wr_posted, s.ports[0].line.send.wr_completed), (4, 0));
}

#[test]
fn devices_opened_afterwards_are_not_counted_either() {
    for place in ["post_send", "poll_cq"] {
        let (dir, o) = panicking("odd_close", place);
        o.one_line();
        assert_eq!(dir.snapshot().missed.panics, 1, "{place}");
    }
}

#[test]
fn panics_in_many_threads_at_once() {
    for place in ["post_send", "poll_cq"] {
        let dir = Dir::new();
        let run = Run::program("threads --threads 8 --count 500").preload(&shim_with_faults(), &dir);
        let o = run.env("TELEREDUCE_FAULT", place).run().ok();
        assert!(o.stdout.lines().any(|l| l.starts_with("total send_wr_posted 12001 ")), "{}", o.stdout);
        assert!(o.one_line().contains("internal error"));
        assert!((1..=8).contains(&dir.snapshot().missed.panics));
    }
}

#[test]
fn panics_between_start_and_end_in_many_threads() {
    for place in ["wr_complete", "start_poll"] {
        let (dir, o) = panicking("extended_threads", place);
        assert!(o.one_line().contains("internal error"));
        assert!((1..=7).contains(&dir.snapshot().missed.panics));
    }
}

#[test]
fn without_a_panic_the_same_build_counts() {
    let (dir, o) = panicking("basic", "nowhere");
    assert_eq!((o.stderr.as_str(), dir.snapshot().ports[0].line.send.wr_posted), ("", 241));
}
