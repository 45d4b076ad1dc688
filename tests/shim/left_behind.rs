//! After a crash the segment is still there, its numbers are right, and it is told from a live one; its name may be used
//! again.

use std::path::PathBuf;
use telereduce::shm::discover;
use telereduce_tests::compare::{assert_exact, assert_nothing_missed};
use telereduce_tests::{Dir, Run, Truth};

fn only_segment(dir: &Dir) -> PathBuf {
    let mut found = dir.segments();
    assert_eq!(found.len(), 1);
    found.remove(0).path
}

#[test]
fn killed() {
    let dir = Dir::new();
    let o = Run::program("unpolled --kill").counted(&dir).run();
    assert_eq!((o.code, o.signal, o.stderr.as_str()), (None, Some(9), ""));
    assert!(!discover::is_locked(&only_segment(&dir)));
    let s = dir.read(o.pid);
    assert!(!s.alive);
    assert_exact(&Truth::parse(o.stdout.lines()), &s);
    assert_nothing_missed(&s);
}

#[test]
fn alive_until_it_is_killed() {
    let dir = Dir::new();
    let mut live = Run::program("hold_live").counted(&dir).live();
    live.wait_for("ready");
    let path = only_segment(&dir);
    assert!(discover::is_locked(&path) && dir.read(live.pid()).alive);
    live.signal(libc::SIGKILL);
    let o = live.finish();
    assert_eq!(o.signal, Some(9));
    assert!(!discover::is_locked(&path) && !dir.read(o.pid).alive);
}

/// A shell takes the name that the program's segment will have, then becomes the program.
fn with_name_taken(how: &str) -> (Dir, telereduce_tests::Outcome) {
    let dir = Dir::new();
    let script = format!("name=\"$TELEREDUCE_DIR/telereduce.$(id -u).$$\"; {how}; exec \"$@\"");
    let o = Run::program("no_close").in_shell(&script).counted(&dir).run().ok();
    assert_eq!(o.stdout, Run::program("no_close").run().silent().stdout);
    (dir, o)
}

fn counted_all_the_same(how: &str) {
    let (dir, o) = with_name_taken(how);
    assert_eq!(o.stderr, "");
    assert_eq!(dir.names(), [""; 0]);
    assert_exact(&Truth::parse(o.stdout.lines()), &dir.snapshot());
}

#[test]
fn a_left_over_of_the_same_pid_is_replaced() {
    counted_all_the_same("head -c 300000 /dev/urandom >\"$name\"");
    counted_all_the_same(": >\"$name\"");
}

#[test]
fn a_link_in_its_place_is_replaced_and_not_followed() {
    let (dir, o) = with_name_taken("echo precious >\"$TELEREDUCE_DIR/../kept\"; ln -s ../kept \"$name\"");
    assert_eq!(o.stderr, "");
    assert_eq!(std::fs::read_to_string(dir.path().join("kept")).expect("the link's target"), "precious\n");
}

#[test]
fn a_name_that_cannot_be_had_turns_telemetry_off() {
    // Held by somebody alive (the descriptor's lock outlives exec), and a directory.
    for how in ["exec 9>\"$name\"; flock 9", "mkdir \"$name\""] {
        let (dir, o) = with_name_taken(how);
        assert!(o.one_line().starts_with("telereduce: telemetry is off: "), "{}", o.stderr);
        assert_eq!(dir.names().len(), 1, "it is not ours to remove");
        assert_eq!(dir.snapshots().len(), 0);
    }
}
