//! Objects come and go without end. `make soak` does it for ten minutes.

use telereduce_tests::compare::{assert_balanced, assert_details, assert_nothing_missed, assert_ports};
use telereduce_tests::{Dir, Outcome, Run, Truth};

#[test]
fn eight_threads_are_counted_to_the_last() {
    let dir = Dir::new();
    let o = Run::program("soak --millis 2000").counted(&dir).run().silent();
    let s = dir.snapshot();
    let truth = Truth::parse(o.stdout.lines());
    assert!(truth.total.get("send_wr_posted") > 1000, "it did something");
    assert_ports(&truth, &s);
    assert_balanced(&s);
    assert_details(&s);
    assert_nothing_missed(&s);
}

/// Natively the software device keeps a little for each number that it gave away, so the two are compared.
#[test]
fn destroyed_objects_leave_no_memory_behind() {
    let grown = |o: &Outcome| -> i64 {
        let line = o.stdout.lines().find_map(|l| l.strip_prefix("turnover grown_kb ")).expect("the last line");
        line.parse().expect("a number")
    };
    let native = grown(&Run::program("turnover").run().silent());
    let dir = Dir::new();
    let counted = grown(&Run::program("turnover").counted(&dir).run().silent());
    let s = dir.snapshot();
    assert_balanced(&s);
    assert_nothing_missed(&s);
    // 3,000 rounds of 4 QPs, 3 CQs and 2 SRQs: 1 KB of each round would be 3,000 KB.
    assert!(counted < native + 1500, "{counted} KB, natively {native} KB");
}
