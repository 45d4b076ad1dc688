//! The watch for stalls, and the flight recorder: what a file says and when there is one; SIGUSR2; nothing without settings.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use telereduce::shm::snapshot::{QpJson, Snapshot};
use telereduce::shm::stall::Stalls;
use telereduce_tests::run::{LIMIT, names, read_snapshot};
use telereduce_tests::{Dir, Live, Outcome, Run};

const STALL_MS: u64 = 80;

struct Watched {
    dir: Dir,
    live: Live,
    qp_num: u32,
}

/// Under the watch, with a flight recorder.
fn start(args: &str) -> Watched {
    with(args, |run, dir| run.env("TELEREDUCE_DUMP_DIR", dir.path().join("dumps").to_str().expect("UTF-8")))
}

fn with(args: &str, more: impl Fn(Run, &Dir) -> Run) -> Watched {
    let dir = Dir::new();
    std::fs::create_dir(dir.path().join("dumps")).expect("a new directory");
    let run = Run::program(&format!("stalls {args}")).counted(&dir).env("TELEREDUCE_MIN_BYTES", "0");
    let mut live = more(run.env("TELEREDUCE_STALL_MS", &STALL_MS.to_string()), &dir).live();
    live.wait_for("ready");
    let qp_num = live.said().lines().find_map(|l| l.strip_prefix("qp ")?.parse().ok()).expect("its QP");
    Watched { dir, live, qp_num }
}

impl Watched {
    fn tell(&mut self, orders: &str) {
        for order in orders.chars() {
            self.live.tell(&order.to_string());
            self.live.wait_for(&format!("done {order}"));
        }
    }

    fn qp(&self) -> QpJson {
        let s = self.dir.read(self.live.pid());
        s.qps.into_iter().find(|q| q.qp_num == self.qp_num).expect("its QP")
    }

    fn stalls(&self) -> Stalls {
        self.qp().stall.expect("a watch")
    }

    fn until(&self, what: &str, holds: impl Fn(&Watched) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < LIMIT / 2, "{what}: {:?}", self.stalls());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        let dir = self.dir.path().join("dumps");
        names(&dir).iter().filter(|n| n.ends_with(".json")).map(|n| dir.join(n)).collect()
    }

    fn file(&self) -> Snapshot {
        self.until("a file", |w| w.files().len() == 1);
        read_snapshot(&self.files()[0])
    }

    /// Long enough for a stall to be seen.
    fn wait(&self) {
        std::thread::sleep(Duration::from_millis(6 * STALL_MS));
    }

    fn kinds(&self) -> Vec<String> {
        let events = self.dir.read(self.live.pid()).events;
        events.into_iter().map(|e| e.kind).filter(|k| k != "completion").collect()
    }

    fn finish(self) -> (Outcome, Dir) {
        (self.live.finish().ok(), self.dir)
    }
}

#[test]
fn a_stall_is_seen_recorded_and_over() {
    let mut w = start("");
    assert_eq!(w.stalls(), Stalls::default());
    w.tell("h");
    w.until("a stall", |w| w.stalls().stalled_ns.is_some());
    let s = w.stalls();
    assert_eq!((s.stalls, s.qps_stalled, s.cq_polls), (1, 1, Some(0)));
    assert!(s.longest_ns >= STALL_MS * 1_000_000 && s.oldest_ns.is_some());
    let file = w.file();
    let cause = file.cause.expect("a cause");
    assert_eq!((cause.reason.as_str(), cause.qp_nums), ("stall", vec![w.qp_num]));
    let (segment, host) = (&file.segments[0], std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap());
    let event = segment.events.iter().find(|e| e.kind == "stall").expect("an event");
    assert_eq!((event.qp_num, event.wr_outstanding, event.bytes_outstanding), (w.qp_num, 5, 5000));
    assert!(event.waited_ns.is_some_and(|ns| ns >= STALL_MS * 1_000_000) && event.latency_ns.is_none());
    assert!(segment.alive && segment.pid == w.live.pid());
    let sums = [segment.ports[0].stall, segment.peers[0].stall].map(|s| s.map(|s| (s.stalls, s.qps_stalled)));
    assert_eq!(sums, [Some((1, 1)); 2]);
    let name = format!("telereduce.{}.{}.1-stall.json", host.trim_end(), w.live.pid());
    assert!(w.files()[0].ends_with(name));
    w.tell("r");
    w.until("its end", |w| w.stalls().stalled_ns.is_none());
    assert_eq!((w.stalls().oldest_ns, w.kinds()), (None, vec!["stall".into(), "stall_end".into()]));
    let (o, dir) = w.finish();
    o.silent();
    assert_eq!((names(&dir.path().join("dumps")).len(), dir.snapshot().ports[0].stall.map(|s| s.stalls)), (1, Some(1)));
}

#[test]
fn what_only_looks_like_one() {
    // Idle; receives that wait; sends that ask for no completion.
    let mut w = start("");
    w.wait();
    w.tell("vu");
    w.wait();
    assert_eq!((w.qp().line.send.wr_outstanding, w.qp().line.recv.wr_outstanding), (3, 4));
    assert_eq!((w.stalls(), w.files().len()), (Stalls::default(), 0));
    w.finish().0.silent();
}

/// A completion that nobody polled is seen by nobody.
#[test]
fn a_completion_that_is_not_polled_is_waited_for() {
    let mut w = start("");
    w.tell("l");
    w.until("a stall", |w| w.stalls().stalled_ns.is_some());
    assert_eq!(w.stalls().cq_polls, Some(0), "the program did not ask");
    w.tell("p");
    w.until("its end", |w| w.stalls().stalled_ns.is_none());
    w.finish().0.silent();
}

#[test]
fn a_failed_completion_is_recorded_with_what_was_outstanding() {
    let mut w = start("");
    w.tell("e");
    let file = w.file();
    let cause = file.cause.expect("a cause");
    assert_eq!((cause.reason.as_str(), cause.qp_nums), ("error", vec![w.qp_num]));
    let segment = &file.segments[0];
    let qp = segment.qps.iter().find(|q| q.qp_num == w.qp_num).expect("its QP");
    let e = qp.last_error.as_ref().expect("the error");
    assert_eq!(
        (e.status.as_str(), e.vendor_err, e.qp_num, e.direction.as_str()),
        ("REM_OP_ERR", 0x77, w.qp_num, "send")
    );
    assert_eq!((e.wr_outstanding, e.bytes_outstanding, e.oldest_opcode.as_deref()), (3, 3000, Some("RDMA_WRITE")));
    assert_eq!((&e.peer, e.peer.is_some()), (&qp.peer, true));
    let event = segment.events.iter().find(|e| e.status == "REM_OP_ERR").expect("its event");
    assert_eq!((event.vendor_err, event.latency_ns, event.kind.as_str()), (Some(0x77), None, "completion"));
    w.finish().0.silent();
}

/// A program that ends at its first error, as most do, leaves a file.
#[test]
fn an_error_just_before_the_end_is_recorded() {
    let w = start("");
    let Watched { mut live, dir, .. } = w;
    live.tell("e");
    live.finish().silent();
    assert_eq!(names(&dir.path().join("dumps")).len(), 1);
}

#[test]
fn sigusr2_asks_for_a_file() {
    let w = start("--fork");
    w.live.signal(libc::SIGUSR2);
    let cause = w.file().cause.expect("a cause");
    assert_eq!((cause.reason.as_str(), cause.qp_nums.len()), ("signal", 0));
    w.live.signal(libc::SIGUSR2);
    w.until("another", |w| w.files().len() == 2);
    w.finish().0.silent();
}

#[test]
fn a_program_that_uses_sigusr2_keeps_it() {
    for (args, later) in [("--handler", ""), ("--ignore", ""), ("", "i")] {
        let mut w = start(args);
        w.tell(later);
        w.live.signal(libc::SIGUSR2);
        if args != "--ignore" {
            w.live.wait_for("usr2");
        }
        w.wait();
        assert_eq!(w.files().len(), 0, "{args} {later}");
        w.finish().0.silent();
    }
}

#[test]
fn without_a_recorder_sigusr2_is_as_it_was() {
    let w = with("", |run, _| run);
    w.live.signal(libc::SIGUSR2);
    assert_eq!(w.live.finish().signal, Some(libc::SIGUSR2));
}

#[test]
fn a_place_that_cannot_be_written_is_one_line() {
    let mut w = with("", |run, _| run.env("TELEREDUCE_DUMP_DIR", "/proc/self"));
    w.tell("h");
    w.until("a stall", |w| w.stalls().stalls == 1);
    w.live.signal(libc::SIGUSR2);
    w.wait();
    w.live.signal(libc::SIGUSR2);
    w.wait();
    w.tell("r");
    let (o, _dir) = w.finish();
    assert!(o.one_line().contains("flight recorder: cannot write /proc/self/telereduce."), "{}", o.stderr);
}

/// Stalls are counted without a recorder, and nothing is looked for without either.
#[test]
fn the_watch_alone_and_none() {
    let mut w = with("", |run, _| run);
    w.tell("h");
    w.until("a stall", |w| w.stalls().stalls == 1);
    assert_eq!(w.files().len(), 0);
    w.tell("r");
    w.finish().0.silent();
    let mut w = with("", |run, _| run.env("TELEREDUCE_STALL_MS", "off"));
    w.tell("h");
    assert_eq!((w.qp().stall, w.qp().line.send.wr_outstanding), (None, 5));
    let threads = std::fs::read_dir(format!("/proc/{}/task", w.live.pid())).expect("its threads").count();
    assert_eq!(threads, 1);
    w.tell("r");
    w.finish().0.silent();
}

/// The watch does not keep a process alive whose own threads have ended.
#[test]
fn a_process_ends_with_the_last_of_its_own_threads() {
    let dir = Dir::new();
    let o = Run::program("main_leaves").counted(&dir).env("TELEREDUCE_STALL_MS", "1000").run().silent();
    assert_eq!((o.code, dir.names()), (Some(0), vec![]));
}
