//! A program that leaves without finalisers leaves as it does natively, with its last snapshot written and its segment
//! removed.

use telereduce_tests::compare::{assert_exact, assert_nothing_missed};
use telereduce_tests::run::{built, shim};
use telereduce_tests::{Dir, Outcome, Run, Truth};

fn left_well(how: &str) {
    let dir = Dir::new();
    let run = Run::program(&format!("leave {how}"));
    let native = run.run();
    let o = run.counted(&dir).run();
    assert_eq!((native.code, native.signal, native.stderr.as_str()), (Some(7), None, ""), "{how}");
    same(&native, &o);
    assert_eq!(dir.names(), [""; 0], "{how}");
    let s = dir.snapshot();
    assert!(s.pid == o.pid && !s.alive, "{how}");
    assert_exact(&Truth::parse(o.stdout.lines()), &s);
    assert_nothing_missed(&s);
}

fn same(native: &Outcome, o: &Outcome) {
    let of = |o: &Outcome| (o.code, o.signal, o.stdout.clone(), o.stderr.clone());
    assert_eq!(of(native), of(o));
}

#[test]
fn by_each_of_the_functions() {
    ["exit", "Exit", "quick"].iter().for_each(|how| left_well(how));
}

#[test]
fn in_a_signal_handler() {
    left_well("signal");
    (0..20).for_each(|_| left_well("malloc"));
}

#[test]
fn by_several_threads_and_a_cancelled_one() {
    (0..10).for_each(|_| left_well("together"));
    left_well("cancelled");
}

#[test]
fn children_leave_their_parents_alone() {
    left_well("vfork");
}

#[test]
fn with_nothing_left_to_read_or_remove() {
    let dir = Dir::new();
    let run = Run::program("leave closed");
    let native = run.run();
    let o = run.counted(&dir).run();
    assert_eq!((o.code, o.signal, &o.stdout), (native.code, native.signal, &native.stdout));
    assert!(o.one_line().contains("cannot write the snapshot"), "{}", o.stderr);
    assert_eq!((dir.names(), dir.snapshots().len()), (vec![], 0));
}

#[test]
fn switched_off() {
    for how in ["exit", "quick"] {
        let dir = Dir::new();
        let run = Run::program(&format!("leave {how}"));
        same(&run.run(), &run.counted(&dir).env("TELEREDUCE", "off").run());
        assert_eq!(dir.snapshots().len(), 0);
    }
}

/// A snapshot that cannot be written is one line, and the program ends as it would.
#[test]
fn nowhere_to_write() {
    let dir = Dir::new();
    let o = Run::program("leave exit").counted(&dir).env("TELEREDUCE_SNAPSHOT", "/nonexistent/%p").run();
    assert_eq!((o.code, dir.names()), (Some(7), vec![]));
    assert!(o.one_line().contains("cannot write the snapshot /nonexistent/"), "{}", o.stderr);
}

/// A library behind ours that wraps the call is called.
#[test]
fn the_next_in_the_programs_order_is_called() {
    let dir = Dir::new();
    let both = format!("{}:{}", shim().display(), built("programs/lib/exits.so").display());
    let o = Run::program("leave exit").counted(&dir).env("LD_PRELOAD", &both).run();
    assert_eq!((o.code, o.stdout.lines().last()), (Some(8), Some("wrapped")));
    assert_eq!(dir.names(), [""; 0]);
    assert_eq!(dir.snapshots().len(), 1);
}
