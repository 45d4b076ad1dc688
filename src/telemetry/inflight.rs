//! What is in flight on one queue: a ring of the posted work requests, oldest first.
//!
//! Each entry holds running totals, so that one completion retires every WR before it in one step, signaled or not, and
//! a WR that finds the ring full is carried by the next one's totals. The posting thread writes at the tail, the polling thread reads from the head;
//! each side is serialised by its own lock (the queue's and the CQ's).

use crate::aside::aside;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Bit of a stamp that says "asks for a completion".
pub const SIGNALED: u64 = 1 << 63;

#[derive(Clone, Copy, Default)]
struct Entry {
    wr_id: u64,
    /// WRs posted to the queue up to and including this one.
    wr_end: u64,
    /// Bytes likewise.
    bytes_end: u64,
    /// When it was posted in clock ticks (0 = not timed), and [`SIGNALED`].
    stamp: u64,
}

/// Running totals of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Work requests.
    pub wr: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Totals {
    /// What is in `self` beyond `earlier`.
    #[inline(always)]
    pub fn since(self, earlier: Totals) -> Totals {
        Totals { wr: self.wr - earlier.wr, bytes: self.bytes.wrapping_sub(earlier.bytes) }
    }
}

/// The posting side's state; behind the queue's lock.
#[derive(Default)]
pub struct Tail {
    /// Posted, those of the chain that is being posted included.
    pub posted: Totals,
    /// Entries made.
    next: u64,
    head_seen: u64,
    /// Signaled WRs until the next one is timed.
    pub until_timed: u32,
}

/// What one completion retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// WRs that completed well, the completion's own included unless it failed.
    pub done: Totals,
    /// The WR that failed: nothing, or one WR and its bytes.
    pub failed: Totals,
    /// Totals retired before.
    pub before: Totals,
    /// When the completion's WR was posted, clock ticks; 0 = not timed.
    pub stamp: u64,
}

/// The ring.
pub struct Inflight {
    entries: Box<[UnsafeCell<Entry>]>,
    mask: u64,
    /// Entries visible to the polling side.
    published: Line<AtomicU64>,
    poller: Line<Poller>,
}

/// The polling side's state.
struct Poller {
    /// Entries retired; the posting side reads it.
    head: AtomicU64,
    /// Totals retired.
    retired: UnsafeCell<Totals>,
}

#[repr(align(64))]
struct Line<T>(T);

// SAFETY: places in head..published are only read by the polling side, those outside only written by the posting side;
// each side is serialised by the caller's lock, and the two indices order them. `retired` belongs to the polling side.
unsafe impl Sync for Inflight {}

impl Inflight {
    /// A ring for a queue of `depth` WRs. There is room for twice as many: what a poll has just taken from the provider
    /// may be posted anew by another thread before that poll has retired it here.
    pub fn new(depth: u32) -> Inflight {
        let capacity = (2 * depth.clamp(8, 1 << 20)).next_power_of_two() as usize;
        Inflight {
            entries: (0..capacity).map(|_| UnsafeCell::new(Entry::default())).collect(),
            mask: capacity as u64 - 1,
            published: Line(AtomicU64::new(0)),
            poller: Line(Poller { head: AtomicU64::new(0), retired: UnsafeCell::new(Totals::default()) }),
        }
    }

    #[inline(always)]
    fn place(&self, number: u64) -> *mut Entry {
        debug_assert!(self.mask + 1 == self.entries.len() as u64);
        // SAFETY: the mask is one less than the length.
        unsafe { self.entries.get_unchecked((number & self.mask) as usize) }.get()
    }

    /// Adds a WR at the tail; not visible to the polling side before [`Inflight::publish`]. `stamp`: when, and
    /// [`SIGNALED`] if it asks for a completion.
    ///
    /// # Safety
    /// `tail` is this ring's, under its lock.
    #[inline(always)]
    pub unsafe fn push(&self, tail: &mut Tail, wr_id: u64, bytes: u64, stamp: u64) {
        tail.posted.wr += 1;
        tail.posted.bytes = tail.posted.bytes.wrapping_add(bytes);
        if tail.next - tail.head_seen > self.mask && self.is_full(tail) {
            return;
        }
        let entry = Entry { wr_id, wr_end: tail.posted.wr, bytes_end: tail.posted.bytes, stamp };
        // SAFETY: the place is at or after `published` and less than a lap ahead of `head`: not the polling side's.
        unsafe { *self.place(tail.next) = entry };
        tail.next += 1;
    }

    #[inline(always)]
    fn is_full(&self, tail: &mut Tail) -> bool {
        let (head, mask, next, seen) = (&self.poller.0.head, self.mask, tail.next, &mut tail.head_seen);
        aside(move || {
            // SYNC POINT: pairs with the Release in `retire_to`.
            *seen = head.load(Acquire);
            next - *seen > mask
        })
    }

    /// Makes what was pushed visible to the polling side.
    #[inline(always)]
    pub fn publish(&self, tail: &Tail) {
        // SYNC POINT: pairs with the Acquire in `find`.
        self.published.0.store(tail.next, Release);
    }

    /// Takes back the last WRs that were pushed since the last publish, `refused` in all. The rest is to be published.
    ///
    /// # Safety
    /// `tail` is this ring's, under its lock.
    pub unsafe fn take_back(&self, tail: &mut Tail, refused: Totals) {
        let end = tail.posted.since(refused);
        let start = self.published.0.load(Relaxed);
        // SAFETY: unpublished entries are the posting side's.
        while tail.next > start && unsafe { (*self.place(tail.next - 1)).wr_end } > end.wr {
            tail.next -= 1;
        }
        tail.posted = end;
    }

    /// First entry from the head on that `wanted` accepts.
    ///
    /// # Safety
    /// Under the CQ's lock.
    #[inline(always)]
    unsafe fn find(&self, wanted: impl Fn(&Entry) -> bool) -> Option<(u64, &Entry)> {
        let head = self.poller.0.head.load(Relaxed);
        // SYNC POINT: pairs with the Release in `publish`.
        let end = self.published.0.load(Acquire);
        for number in head..end {
            // SAFETY: published and not retired: the polling side's, which the caller serialises.
            let e = unsafe { &*self.place(number) };
            if wanted(e) {
                return Some((number, e));
            }
        }
        None
    }

    /// Whether a WR with this id is in flight.
    ///
    /// # Safety
    /// Under the CQ's lock.
    pub unsafe fn contains(&self, wr_id: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.find(|e| e.wr_id == wr_id) }.is_some()
    }

    /// A good completion of `wr_id`: the oldest signaled WR of that id, and all before it. `None` if there is none.
    ///
    /// # Safety
    /// Under the CQ's lock.
    #[inline(always)]
    pub unsafe fn complete(&self, wr_id: u64) -> Option<Retired> {
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let (number, e) = self.find(|e| e.wr_id == wr_id && e.stamp & SIGNALED != 0)?;
            let end = Totals { wr: e.wr_end, bytes: e.bytes_end };
            let stamp = e.stamp & !SIGNALED;
            let before = self.retire_to(number, end);
            Some(Retired { done: end.since(before), failed: Totals::default(), before, stamp })
        }
    }

    /// A completion of `wr_id` in error: the oldest WR of that id, signaled or not, fails; those before it were good.
    ///
    /// # Safety
    /// Under the CQ's lock.
    pub unsafe fn fail(&self, wr_id: u64) -> Option<Retired> {
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let (number, &e) = self.find(|e| e.wr_id == wr_id)?;
            let before = self.retired();
            let mut good = before;
            if number > self.poller.0.head.load(Relaxed) {
                good.bytes = (*self.place(number - 1)).bytes_end;
            }
            // The WR that failed is one. Any before it that found no room were good, their bytes go with it.
            good.wr = e.wr_end - 1;
            let end = Totals { wr: e.wr_end, bytes: e.bytes_end };
            self.retire_to(number, end);
            Some(Retired { done: good.since(before), failed: end.since(good), before, stamp: e.stamp & !SIGNALED })
        }
    }

    /// Returns the totals retired before.
    #[inline(always)]
    unsafe fn retire_to(&self, number: u64, end: Totals) -> Totals {
        // SAFETY: the polling side's cell, which the caller serialises.
        let before = unsafe { self.poller.0.retired.get().replace(end) };
        // SYNC POINT: pairs with the Acquire in `is_full`.
        self.poller.0.head.store(number.wrapping_add(1), Release);
        before
    }

    /// Empties the ring without completions (RESET, destroy) and returns what was in flight. The totals go on.
    ///
    /// # Safety
    /// Under both locks.
    pub unsafe fn clear(&self, tail: &mut Tail) -> Totals {
        self.publish(tail);
        // SAFETY: the caller holds the CQ's lock.
        let before = unsafe { self.retire_to(tail.next.wrapping_sub(1), tail.posted) };
        tail.posted.since(before)
    }

    /// Totals start at zero again, of an empty ring.
    ///
    /// # Safety
    /// Under both locks.
    pub unsafe fn restart(&self, tail: &mut Tail) {
        tail.posted = Totals::default();
        // SAFETY: the caller holds the CQ's lock.
        unsafe { self.retire_to(tail.next.wrapping_sub(1), Totals::default()) };
    }

    /// WRs and bytes retired.
    ///
    /// # Safety
    /// Under the CQ's lock.
    #[inline(always)]
    pub unsafe fn retired(&self) -> Totals {
        // SAFETY: the caller's promise.
        unsafe { *self.poller.0.retired.get() }
    }
}

#[cfg(test)]
#[path = "inflight_tests.rs"]
mod tests;
