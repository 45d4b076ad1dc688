//! What is due later, and who does it: whoever polls, or one thread, asleep until then.

use super::bounce;
use super::clock::now;
use super::host::Host;
use core::cmp::Reverse;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use parking_lot::Mutex;
use std::collections::BinaryHeap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// While somebody polled within so long, the thread leaves the work to him.
const POLLED_NS: u64 = 50_000;

/// What is due, and when.
pub struct Engine {
    due: Mutex<BinaryHeap<Reverse<(u64, u32)>>>,
    /// When the first is due.
    first: AtomicU64,
    /// When the thread wakes by itself.
    wakes: AtomicU64,
    /// When somebody last polled while something was due.
    polled: AtomicU64,
    started: AtomicBool,
    bell: OwnedFd,
}

impl Engine {
    /// Nothing is due. The thread starts with the first QP.
    pub fn new() -> std::io::Result<Engine> {
        // SAFETY: a plain system call; the descriptor is ours.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if bell < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Engine {
            due: Mutex::default(),
            first: AtomicU64::new(u64::MAX),
            wakes: AtomicU64::new(0),
            polled: AtomicU64::new(0),
            started: AtomicBool::new(false),
            // SAFETY: just opened.
            bell: unsafe { OwnedFd::from_raw_fd(bell) },
        })
    }

    /// A QP, by its index, has something to do at a time.
    pub fn schedule(&self, at: u64, qp: u32) {
        let mut due = self.due.lock();
        due.push(Reverse((at, qp)));
        if at < self.first.load(Relaxed) {
            self.first.store(at, Relaxed);
        }
        drop(due);
        if at < self.wakes.load(Relaxed) {
            self.ring();
        }
    }

    /// Wakes the thread.
    pub fn ring(&self) {
        let one = 1u64;
        // SAFETY: 8 bytes, as an eventfd wants. If it is full, the thread is awake anyway.
        unsafe { libc::write(self.bell.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Does what is due, for somebody who polls.
    #[inline]
    pub fn poll(&self, host: &'static Host) {
        let first = self.first.load(Relaxed);
        if first != u64::MAX {
            let now = now();
            self.polled.store(now, Relaxed);
            if first <= now {
                self.run(host, now);
            }
        }
    }

    fn run(&self, host: &'static Host, now: u64) {
        loop {
            let qp = {
                let mut due = self.due.lock();
                let next = due.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
                self.first.store(next, Relaxed);
                if next > now {
                    return;
                }
                due.pop().map(|Reverse((_, qp))| qp)
            };
            if let Some(qp) = qp.and_then(|qp| host.qp_at(qp)) {
                qp.run(host);
            }
        }
    }

    /// Starts the thread, once. It takes no signals.
    pub fn start(&self, host: &'static Host) {
        if self.started.swap(true, Relaxed) {
            return;
        }
        if bounce::is_needed(host.config.direct) {
            bounce::start(host);
        }
        let mut old = core::mem::MaybeUninit::uninit();
        // SAFETY: signal sets are filled before they are used.
        unsafe {
            let mut all = core::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, old.as_mut_ptr());
        }
        let thread = std::thread::Builder::new().name("softnic".into()).stack_size(256 << 10);
        if let Err(e) = thread.spawn(move || serve(host)) {
            crate::say(format_args!("no thread: {e}; what is due is done when the program polls"));
        }
        // SAFETY: the set was stored above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), core::ptr::null_mut()) };
    }
}

fn serve(host: &'static Host) {
    let engine = &host.engine;
    // SAFETY: a plain system call: this thread's sleeps may end on time.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    loop {
        let (watched, peers) = host.watched();
        let mut fds: Vec<libc::pollfd> = [engine.bell.as_raw_fd(), host.attention.file.as_raw_fd()]
            .into_iter()
            .chain(watched)
            .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
            .collect();
        let time = now();
        let mut wake = engine.first.load(Relaxed).min(host.next_port_fault(time));
        if time < engine.polled.load(Relaxed) + POLLED_NS {
            wake = wake.max(time + POLLED_NS);
        }
        engine.wakes.store(wake, Relaxed);
        // What was scheduled between the two is seen here, or rings.
        if engine.first.load(Relaxed) < wake && time >= engine.polled.load(Relaxed) + POLLED_NS {
            wake = engine.first.load(Relaxed);
        }
        sleep(&mut fds, wake);
        engine.wakes.store(0, Relaxed);
        let ready = |f: &libc::pollfd| f.revents != 0;
        if ready(&fds[0]) {
            let mut n = 0u64;
            // SAFETY: room for 8 bytes.
            unsafe { libc::read(engine.bell.as_raw_fd(), (&raw mut n).cast(), 8) };
        }
        if ready(&fds[1]) && host.attention.next().is_ok() {
            host.attend();
        }
        for (fd, peer) in fds[2..].iter().zip(&peers) {
            if ready(fd) {
                peer.gone.store(true, Relaxed);
                host.forget(peer);
            }
        }
        let time = now();
        host.port_faults(time);
        if time >= engine.polled.load(Relaxed) + POLLED_NS {
            engine.run(host, time);
        }
    }
}

fn sleep(fds: &mut [libc::pollfd], until: u64) {
    let left = until.saturating_sub(now());
    let time =
        libc::timespec { tv_sec: (left / 1_000_000_000).cast_signed(), tv_nsec: (left % 1_000_000_000).cast_signed() };
    let limit = if until == u64::MAX { core::ptr::null() } else { &raw const time };
    // SAFETY: a list of descriptors and a time.
    unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, limit, core::ptr::null()) };
}
