//! When the segment exists: from the first opened device to the end of the process, for its owner only.

use crate::layouts::compile;
use std::os::unix::fs::MetadataExt;
use telereduce_tests::{Dir, Run};

#[test]
fn made_at_the_first_device_and_kept_to_the_end() {
    let dir = Dir::new();
    let program = compile("first_open", dir.path(), &["-libverbs"]);
    let segments = dir.segment_dir();
    let run = Run::new(program, &[segments.to_str().expect("UTF-8")]);
    let native = run.run().silent().stdout;
    let o = run.counted(&dir).run().silent();
    let seen = |text: &str, word: &str| -> Vec<i32> {
        let number = |l: &str| l.split(' ').skip_while(|w| *w != word).nth(1).and_then(|n| n.parse().ok());
        text.lines().map(|l| number(l).expect("a number")).collect()
    };
    assert_eq!(seen(&o.stdout, "segments"), [0, 0, 1, 1, 1]);
    assert_eq!(seen(&o.stdout, "threads"), [1; 5], "no thread is started");
    let more: Vec<i32> =
        seen(&o.stdout, "descriptors").iter().zip(seen(&native, "descriptors")).map(|(a, b)| a - b).collect();
    assert_eq!(more, [0, 0, 2, 2, 2], "the segment, once mapped and once locked, and nothing else");
    assert_eq!(dir.names(), [""; 0]);
}

#[test]
fn only_its_owner_may_read_it() {
    let dir = Dir::new();
    let mut live = Run::program("hold_live").in_shell("umask 0; exec \"$@\"").counted(&dir).live();
    live.wait_for("ready");
    let found = dir.segments();
    assert_eq!(found.len(), 1);
    let meta = std::fs::metadata(&found[0].path).expect("the segment");
    // SAFETY: no preconditions.
    let uid = unsafe { libc::geteuid() };
    assert_eq!((meta.mode() & 0o7777, meta.uid(), found[0].uid), (0o600, uid, uid));
    assert_eq!(found[0].pid, live.pid());
    live.finish().silent();
    assert_eq!(dir.names(), [""; 0]);
}

#[test]
fn removed_whatever_the_exit_code() {
    let dir = Dir::new();
    // Over a device that moves nothing, this program fails a check of its own.
    let o = Run::program("basic").env("NULLVERBS_MODE", "null").counted(&dir).run();
    assert_eq!(o.code, Some(1));
    assert_eq!((dir.names(), dir.snapshots().len()), (vec![], 1));
}

#[test]
fn removed_when_ended_politely() {
    let dir = Dir::new();
    let mut live = Run::program("hold_live").counted(&dir).live();
    live.wait_for("ready");
    assert_eq!(dir.segments().len(), 1);
    live.signal(libc::SIGTERM);
    live.finish().silent();
    assert_eq!((dir.names(), dir.snapshots().len()), (vec![], 1));
}
