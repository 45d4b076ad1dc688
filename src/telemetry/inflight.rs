//! What is in flight on one queue: a ring of the posted work requests, oldest first.
//!
//! Each entry holds running totals, so one completion retires every WR before it in one step, signaled or not, and an
//! entry that found no room is merged into the next. The posting thread writes at the tail, the polling thread reads
//! from the head; each side is serialised by its own lock (the queue's and the CQ's).

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Highest bit of [`Entry::stamp`].
const SIGNALED: u64 = 1 << 63;

#[derive(Clone, Copy, Default)]
struct Entry {
    wr_id: u64,
    /// WRs posted to the queue up to and including this one.
    wr_end: u64,
    /// Bytes likewise.
    bytes_end: u64,
    /// When it was posted in clock ticks (0 = not timed), and whether it asks for a completion.
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

/// The posting side's state; behind the queue's lock.
#[derive(Default)]
pub struct Tail {
    next: u64,
    head_seen: u64,
    /// Posted, those of the chain that is being posted included.
    pub posted: Totals,
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
    /// When the completion's WR was posted, clock ticks; 0 = not timed.
    pub stamp: u64,
}

/// The ring.
pub struct Inflight {
    entries: Box<[UnsafeCell<Entry>]>,
    mask: u64,
    /// Entries visible to the polling side.
    published: Line<AtomicU64>,
    /// Entries retired.
    head: Line<AtomicU64>,
    /// Totals retired; polling side only.
    retired: Line<UnsafeCell<Totals>>,
}

#[repr(align(64))]
struct Line<T>(T);

// SAFETY: entries in head..published are only read by the polling side, those outside only written by the posting side;
// each side is serialised by the caller's lock, and the two indices order them. `retired` belongs to the polling side.
unsafe impl Sync for Inflight {}

impl Inflight {
    /// A ring for a queue of `depth` WRs.
    pub fn new(depth: u32) -> Inflight {
        let capacity = depth.clamp(16, 1 << 20).next_power_of_two() as usize;
        Inflight {
            entries: (0..capacity).map(|_| UnsafeCell::new(Entry::default())).collect(),
            mask: capacity as u64 - 1,
            published: Line(AtomicU64::new(0)),
            head: Line(AtomicU64::new(0)),
            retired: Line(UnsafeCell::new(Totals::default())),
        }
    }

    /// Adds a WR at the tail; not visible to the polling side before [`Inflight::publish`].
    ///
    /// # Safety
    /// `tail` is this ring's, under its lock.
    #[inline(always)]
    pub unsafe fn push(&self, tail: &mut Tail, wr_id: u64, bytes: u64, signaled: bool, stamp: u64) {
        tail.posted.wr += 1;
        tail.posted.bytes = tail.posted.bytes.wrapping_add(bytes);
        if tail.next - tail.head_seen > self.mask {
            // SYNC POINT: pairs with the Release in `retire_to`.
            tail.head_seen = self.head.0.load(Acquire);
            if tail.next - tail.head_seen > self.mask {
                // The queue holds more than it said it would. The totals go on with the next entry.
                return;
            }
        }
        let entry = Entry {
            wr_id,
            wr_end: tail.posted.wr,
            bytes_end: tail.posted.bytes,
            stamp: (stamp & !SIGNALED) | if signaled { SIGNALED } else { 0 },
        };
        // SAFETY: the slot is at or after `published` and less than a lap ahead of `head`: not the polling side's.
        unsafe { *self.entries[(tail.next & self.mask) as usize].get() = entry };
        tail.next += 1;
    }

    /// Makes what was pushed visible to the polling side.
    #[inline(always)]
    pub fn publish(&self, tail: &Tail) {
        // SYNC POINT: pairs with the Acquire in `find`.
        self.published.0.store(tail.next, Release);
    }

    /// Takes back what was pushed since the last publish, but for the first `keep` WRs, which are published. Returns the
    /// totals of what was taken back.
    ///
    /// # Safety
    /// `tail` is this ring's, under its lock.
    pub unsafe fn publish_only(&self, tail: &mut Tail, before: Totals, keep: u64) -> Totals {
        let pushed = tail.posted;
        let start = self.published.0.load(Relaxed);
        let (mut end, mut kept) = (start, before);
        while end < tail.next {
            // SAFETY: as in `push`: unpublished entries are the posting side's.
            let e = unsafe { *self.entries[(end & self.mask) as usize].get() };
            if e.wr_end > before.wr + keep {
                break;
            }
            kept = Totals { wr: e.wr_end, bytes: e.bytes_end };
            end += 1;
        }
        tail.next = end;
        // Entries that found no room know no totals of their own: the count is exact, their bytes go with the rest.
        kept.wr = before.wr + keep;
        tail.posted = kept;
        self.publish(tail);
        Totals { wr: pushed.wr - kept.wr, bytes: pushed.bytes.wrapping_sub(kept.bytes) }
    }

    /// First entry from the head on that `wanted` accepts.
    ///
    /// # Safety
    /// Under the CQ's lock.
    #[inline(always)]
    unsafe fn find(&self, wanted: impl Fn(&Entry) -> bool) -> Option<(u64, Entry)> {
        let head = self.head.0.load(Relaxed);
        // SYNC POINT: pairs with the Release in `publish`.
        let end = self.published.0.load(Acquire);
        for i in head..end {
            // SAFETY: published and not retired: the polling side's, which the caller serialises.
            let e = unsafe { *self.entries[(i & self.mask) as usize].get() };
            if wanted(&e) {
                return Some((i, e));
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
            let (i, e) = self.find(|e| e.stamp & SIGNALED != 0 && e.wr_id == wr_id)?;
            let before = self.retire_to(i, &e);
            let done = Totals { wr: e.wr_end - before.wr, bytes: e.bytes_end.wrapping_sub(before.bytes) };
            Some(Retired { done, failed: Totals::default(), stamp: e.stamp & !SIGNALED })
        }
    }

    /// A completion of `wr_id` in error: the oldest WR of that id, signaled or not, fails; those before it were good.
    ///
    /// # Safety
    /// Under the CQ's lock.
    pub unsafe fn fail(&self, wr_id: u64) -> Option<Retired> {
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let (i, e) = self.find(|e| e.wr_id == wr_id)?;
            let retired = *self.retired.0.get();
            let good = if i > self.head.0.load(Relaxed) {
                let p = *self.entries[((i - 1) & self.mask) as usize].get();
                Totals { wr: p.wr_end, bytes: p.bytes_end }
            } else {
                retired
            };
            self.retire_to(i, &e);
            Some(Retired {
                // The failed WR is one; any that found no room before it are good.
                done: Totals { wr: e.wr_end - 1 - retired.wr, bytes: good.bytes.wrapping_sub(retired.bytes) },
                failed: Totals { wr: 1, bytes: e.bytes_end.wrapping_sub(good.bytes) },
                stamp: e.stamp & !SIGNALED,
            })
        }
    }

    /// Returns the totals retired before.
    unsafe fn retire_to(&self, i: u64, e: &Entry) -> Totals {
        // SAFETY: the polling side's cell, which the caller serialises.
        let before = unsafe { self.retired.0.get().replace(Totals { wr: e.wr_end, bytes: e.bytes_end }) };
        // SYNC POINT: pairs with the Acquire in `push`.
        self.head.0.store(i + 1, Release);
        before
    }

    /// Empties the ring without completions (RESET, destroy) and returns what was in flight.
    ///
    /// # Safety
    /// Under both locks.
    pub unsafe fn clear(&self, tail: &mut Tail) -> Totals {
        self.publish(tail);
        self.head.0.store(tail.next, Release);
        // SAFETY: the caller holds the CQ's lock.
        let before = unsafe { self.retired.0.get().replace(tail.posted) };
        Totals { wr: tail.posted.wr - before.wr, bytes: tail.posted.bytes.wrapping_sub(before.bytes) }
    }

    /// WRs and bytes retired.
    ///
    /// # Safety
    /// Under the CQ's lock.
    #[inline(always)]
    pub unsafe fn retired(&self) -> Totals {
        // SAFETY: the caller's promise.
        unsafe { *self.retired.0.get() }
    }
}

#[cfg(test)]
#[path = "inflight_tests.rs"]
mod tests;
