//! The helper thread: polls lanes, and the application's CQs where an engine waits for a completion that nobody polls. It
//! sleeps while nothing moves.

use super::flow::Flow;
use super::group::Group;
use super::world::World;
use crate::alone::Watch;
use crate::guard;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use telereduce::control::api::Event;
use telereduce::control::rendezvous::{Rendezvous, without_signals};

/// Between looks at the application's CQs.
const DRAW_EVERY: Duration = Duration::from_micros(50);
/// Between looks whether lanes take what waits for them: completions lead there much sooner, unless a provider refused
/// what it has room for.
const FEED_EVERY: Duration = Duration::from_millis(10);
/// Between looks whether the program's threads have all ended.
const ALONE_EVERY: Duration = Duration::from_secs(2);
/// Stack of the thread.
const STACK_BYTES: usize = 256 << 10;

/// What others leave for the thread.
#[derive(Default)]
struct Inbox {
    events: VecDeque<Event>,
    revokes: Vec<(&'static Group, u32)>,
    /// QPs of lanes that broke, by their addresses.
    broken: Vec<usize>,
    /// QPs that want the peer's ring.
    wishes: Vec<&'static Flow>,
}

/// What the thread and the hooks share.
pub struct Helper {
    world: Mutex<World>,
    inbox: Mutex<Inbox>,
    wake: AtomicI32,
    /// Whether it was woken and has not looked yet.
    woken: AtomicBool,
    rendezvous: AtomicPtr<Rendezvous>,
}

static HELPER: AtomicPtr<Helper> = AtomicPtr::new(core::ptr::null_mut());

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The helper, if it runs.
pub fn get() -> Option<&'static Helper> {
    // SAFETY: helpers are leaked.
    unsafe { HELPER.load(Acquire).as_ref() }
}

/// Wakes the thread.
pub fn wake() {
    if let Some(h) = get() {
        h.wake();
    }
}

/// Engines want these lanes of a group revoked, a bit each.
pub fn revoke(group: &'static Group, lanes: u32) {
    if let Some(h) = get() {
        lock(&h.inbox).revokes.push((group, lanes));
        h.wake();
    }
}

/// The QP of a lane broke, the device says. It may be gone by now.
pub fn broke(qp: usize) {
    if let Some(h) = get() {
        lock(&h.inbox).broken.push(qp);
        h.wake();
    }
}

/// The engine of a QP wants the peer's ring of lengths.
pub fn want_ring(flow: &'static Flow) {
    if let Some(h) = get() {
        lock(&h.inbox).wishes.push(flow);
        h.wake();
    }
}

/// In a forked child: there is no such thread.
pub fn after_fork() {
    if let Some(h) = get() {
        if let Some(r) = h.rendezvous() {
            r.forget_in_child();
        }
        // SAFETY: the child's copy of our descriptor.
        unsafe { libc::close(h.wake.load(Relaxed)) };
    }
    HELPER.store(core::ptr::null_mut(), Release);
}

impl Helper {
    /// A helper whose thread is not started.
    pub fn create() -> io::Result<&'static Helper> {
        // SAFETY: no preconditions.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Box::leak(Box::new(Helper {
            world: Mutex::default(),
            inbox: Mutex::default(),
            wake: AtomicI32::new(wake),
            woken: AtomicBool::new(false),
            rendezvous: AtomicPtr::new(core::ptr::null_mut()),
        })))
    }

    /// Starts its thread, with all signals blocked.
    pub fn start(&'static self, rendezvous: Rendezvous) -> io::Result<()> {
        self.rendezvous.store(Box::into_raw(Box::new(rendezvous)), Release);
        without_signals(|| {
            let thread = std::thread::Builder::new().name("telereduce-lane".into()).stack_size(STACK_BYTES);
            thread.spawn(move || guard::hot(|| self.live()))
        })?;
        HELPER.store(core::ptr::from_ref(self).cast_mut(), Release);
        Ok(())
    }

    /// The side channel.
    pub fn rendezvous(&self) -> Option<&'static Rendezvous> {
        // SAFETY: leaked.
        unsafe { self.rendezvous.load(Acquire).as_ref() }
    }

    /// What exists.
    pub fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// The side channel's event.
    pub fn event(&self, event: Event) {
        lock(&self.inbox).events.push_back(event);
        self.wake();
    }

    fn wake(&self) {
        if !self.woken.swap(true, Release) {
            let one = 1u64;
            // Not by the library's function, which is a cancellation point.
            // SAFETY: eight bytes.
            unsafe { libc::syscall(libc::SYS_write, self.wake.load(Relaxed), &raw const one, 8usize) };
        }
    }

    fn live(&self) {
        let mut fds = Vec::new();
        let (mut draws, mut feeds, mut look_again) = (false, false, None::<Instant>);
        let mut watch = Watch::every(ALONE_EVERY);
        loop {
            fds.clear();
            fds.push(libc::pollfd { fd: self.wake.load(Relaxed), events: libc::POLLIN, revents: 0 });
            self.world().descriptors(&mut fds);
            let wait = [
                draws.then_some(DRAW_EVERY),
                feeds.then_some(FEED_EVERY),
                look_again.map(|end| end.saturating_duration_since(Instant::now())),
                Some(ALONE_EVERY),
            ];
            let wait = wait.into_iter().flatten().min();
            let wait =
                wait.map(|w| libc::timespec { tv_sec: w.as_secs() as i64, tv_nsec: i64::from(w.subsec_nanos()) });
            let timeout = wait.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
            // SAFETY: descriptors and a time that are only read.
            unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout, core::ptr::null()) };
            let mut count = 0u64;
            // SAFETY: eight bytes.
            unsafe { libc::read(self.wake.load(Relaxed), (&raw mut count).cast(), 8) };
            self.woken.store(false, Release);
            watch.look();
            let Some(r) = self.rendezvous() else { continue };
            let inbox = core::mem::take(&mut *lock(&self.inbox));
            // Each by itself, so that the application's calls need not wait for all.
            inbox.events.into_iter().for_each(|e| self.world().event(r, e));
            let mut world = self.world();
            inbox.revokes.into_iter().for_each(|(g, lanes)| world.revoke(r, g, lanes));
            inbox.broken.into_iter().for_each(|qp| world.broke(qp));
            inbox.wishes.into_iter().for_each(|flow| world.want_ring(r, flow));
            feeds = world.poll_lanes(r);
            let now = Instant::now();
            let ends = [world.give_up_expecting(now), world.retire_unused(r, now)];
            look_again = ends.into_iter().flatten().min();
            draws = world.draw();
        }
    }
}
