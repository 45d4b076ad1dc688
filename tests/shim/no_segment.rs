//! No memory, no directory, no permission: the program runs on as it would natively, and one line says what is off.

use telereduce_tests::compare::{assert_balanced, assert_details};
use telereduce_tests::{Dir, Outcome, Run, Truth};

const PROGRAM: &str = "basic";

/// Runs the program under the library, after these commands in a private mount namespace.
fn after(mounts: &str, program: &str, dir: &Dir) -> Outcome {
    let o = Run::program(program).counted(dir).in_private_mounts(mounts).run().ok();
    assert_eq!(o.stdout, Run::program(program).run().silent().stdout);
    o
}

fn off(o: &Outcome) {
    assert!(o.one_line().starts_with("telereduce: telemetry is off: cannot create a segment in "), "{}", o.stderr);
}

/// Whatever the step at which memory ends, the program is unharmed and nothing half made is left. (The list of what is
/// left is written when the program is over, so it is not started by exec.)
#[test]
fn memory_full_from_the_start() {
    let mut said = [0, 0];
    for kib in [4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256] {
        let dir = Dir::new();
        let script = format!(
            "mount -t tmpfs -o size={kib}k tmpfs \"$TELEREDUCE_DIR\"; \"$@\"; ls -A \"$TELEREDUCE_DIR\" >\"$TELEREDUCE_DIR/../left\""
        );
        let o = after(&script, PROGRAM, &dir);
        assert_eq!(std::fs::read_to_string(dir.path().join("left")).expect("a list"), "", "left with {kib} KiB");
        if o.stderr.is_empty() {
            said[1] += 1;
            assert_eq!(dir.snapshots().len(), 1);
        } else {
            said[0] += 1;
            off(&o);
            assert_eq!(dir.snapshots().len(), 0);
        }
    }
    assert!(said[0] > 3 && said[1] > 0, "too little and enough memory were both tried: {said:?}");
}

#[test]
fn memory_full_of_other_files() {
    let dir = Dir::new();
    let fill = "mount -t tmpfs -o size=1m tmpfs \"$TELEREDUCE_DIR\"; \
                head -c 2000000 /dev/zero >\"$TELEREDUCE_DIR/filler\" 2>/dev/null || true; exec \"$@\"";
    off(&after(fill, PROGRAM, &dir));
}

/// The segment was made, but there is no memory for all QPs: those without a record are counted as such, their
/// completions as unmatched, and what is counted still balances.
#[test]
fn memory_full_later() {
    let dir = Dir::new();
    let mount = "mount -t tmpfs -o size=768k tmpfs \"$TELEREDUCE_DIR\"; exec \"$@\"";
    let o = after(mount, "many_qps --qps 3000 --lines", &dir);
    assert_eq!(o.stderr, "");
    let (truth, s) = (Truth::parse(o.stdout.lines()), dir.snapshot());
    assert!(s.missed.objects_untracked > 0 && !s.qps.is_empty(), "{:?}, {} QPs", s.missed, s.qps.len());
    assert_eq!(s.missed.objects_untracked as usize + s.qps.len(), 3000);
    let send = s.ports[0].line.send;
    assert_eq!(send.cqes + s.missed.completions_unmatched, truth.total.get("send_cqes"));
    assert!(send.wr_posted > 0 && send.wr_posted < truth.total.get("send_wr_posted"));
    assert_eq!((send.wr_outstanding, send.wr_dropped, send.wr_failed), (0, 0, 0));
    assert_balanced(&s);
    assert_details(&s);
}

#[test]
fn read_only_directory() {
    let dir = Dir::new();
    off(&after("mount -t tmpfs -o ro tmpfs \"$TELEREDUCE_DIR\"; exec \"$@\"", PROGRAM, &dir));
    off(&after("mount -t tmpfs -o ro tmpfs /dev/shm; unset TELEREDUCE_DIR; exec \"$@\"", PROGRAM, &dir));
}

#[test]
fn default_directory_missing() {
    let dir = Dir::new();
    let o = after("mount -t tmpfs tmpfs /dev; unset TELEREDUCE_DIR; exec \"$@\"", PROGRAM, &dir);
    off(&o);
}

#[test]
fn default_directory_full() {
    let dir = Dir::new();
    off(&after("mount -t tmpfs -o size=4k tmpfs /dev/shm; unset TELEREDUCE_DIR; exec \"$@\"", PROGRAM, &dir));
}

#[test]
fn no_descriptors_left() {
    // The program itself needs a few; the library's is one too many.
    let mut refused = 0;
    for limit in 3..12 {
        let dir = Dir::new();
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        let native = Run::program(PROGRAM).in_shell(&script).run();
        let o = Run::program(PROGRAM).counted(&dir).in_shell(&script).run();
        if native.code == Some(0) {
            assert_eq!((o.code, &o.stdout), (Some(0), &native.stdout), "{limit} descriptors: {}", o.stderr);
            if !o.stderr.is_empty() {
                o.one_line();
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "no limit was low enough");
}
