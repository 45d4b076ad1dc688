//! Fork without exec: the parent's numbers are the parent's alone; a child that uses verbs has a segment of its own.

use telereduce_tests::compare::{assert_exact, assert_nothing_missed};
use telereduce_tests::{Dir, Run, Truth};

#[test]
fn parent_and_child_are_counted_apart() {
    let dir = Dir::new();
    let o = Run::program("fork_noexec").counted(&dir).run().silent();
    let (parent, child, pid) = Truth::parent_and_child(&o.stdout);
    let pid = pid.expect("a child with a device of its own");
    let snapshots = dir.snapshots();
    assert_eq!(snapshots.len(), 2, "children that exit, _exit and exec without a device write none");
    for (lines, who) in [(parent, o.pid), (child, pid)] {
        let s = snapshots.iter().find(|s| s.pid == who).expect("its snapshot");
        assert_exact(&Truth::parse(lines), s);
        assert_nothing_missed(s);
    }
    assert_eq!(dir.names(), [""; 0]);
}

/// A child does not keep its parent's segment locked: when the parent is gone, the segment is a left-over.
#[test]
fn a_child_that_outlives_its_parent_does_not_keep_the_segment_alive() {
    let dir = Dir::new();
    // The shell is the program's child here only by name; the program forks it with verbs open.
    let program = crate::layouts::compile("fork_outlived", dir.path(), &["-libverbs"]);
    let mut live = Run::new(program, &[]).counted(&dir).live();
    live.wait_for("parent gone");
    let left = dir.segments();
    assert_eq!(left.len(), 1, "the parent was killed");
    assert!(!telereduce::shm::discover::is_locked(&left[0].path));
    live.finish();
}
