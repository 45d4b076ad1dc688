//! A thousand processes at once.

use std::fs::{File, OpenOptions};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use telereduce::shm::discover;
use telereduce_tests::Dir;
use telereduce_tests::run::{LIMIT, built, shim};

const PROCESSES: usize = 1000;

/// Ends what was started, whatever happens.
struct All(Vec<Child>);

impl Drop for All {
    fn drop(&mut self) {
        for c in &mut self.0 {
            let _ = c.kill();
            let _ = c.wait();
        }
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn each_has_its_segment_and_none_is_left() {
    let dir = Dir::new();
    let (input, output) = (dir.path().join("input"), dir.path().join("output"));
    let fifo = std::ffi::CString::new(input.to_str().expect("UTF-8")).expect("no NUL");
    // SAFETY: a valid string.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    // Open for both, so that neither end waits for the other. All share it: closing it is the end of all.
    let writer = OpenOptions::new().read(true).write(true).open(&input).expect("a fifo");
    let append = |p| OpenOptions::new().create(true).append(true).open(p).expect("a new file");
    let errors = dir.path().join("errors");
    let mut all = All(Vec::new());
    for _ in 0..PROCESSES {
        let child = Command::new(built("programs/hold_live"))
            .args(["--outstanding", "3", "--size", "10", "--per-second", "1"])
            .env("LD_LIBRARY_PATH", built("nullverbs"))
            .env("LD_PRELOAD", shim())
            .env("TELEREDUCE_DIR", dir.segment_dir())
            .stdin(File::open(&input).expect("a fifo"))
            .stdout(append(&output))
            .stderr(append(&errors))
            .spawn();
        all.0.push(child.expect("one more process"));
    }
    let said = || std::fs::read_to_string(&output).expect("what they said");
    let lines = |start: &str| said().lines().filter(|l| l.starts_with(start)).count();
    until("ready", || lines("ready") == PROCESSES);

    let found = dir.segments();
    assert_eq!(found.len(), PROCESSES);
    let mut pids: Vec<u32> = all.0.iter().map(Child::id).collect();
    pids.sort_unstable();
    assert_eq!(found.iter().map(|f| f.pid).collect::<Vec<_>>(), pids);
    assert!(found.iter().all(|f| discover::is_locked(&f.path)));
    for f in found.iter().step_by(97) {
        let s = dir.read(f.pid);
        assert!(s.alive && s.qps.iter().any(|q| q.line.send.wr_outstanding == 3), "process {}", f.pid);
    }

    drop(writer);
    for c in &mut all.0 {
        until("the end", || c.try_wait().expect("our own child").is_some());
        assert!(c.wait().expect("our own child").success());
    }
    assert_eq!(lines("total "), PROCESSES);
    assert_eq!(std::fs::read_to_string(&errors).expect("a file"), "");
    assert_eq!(dir.names(), [""; 0]);
}
