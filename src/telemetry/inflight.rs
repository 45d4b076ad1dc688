//! What is in flight on one queue: a ring of the posted work requests, oldest first.
//!
//! Each entry holds running totals, so that one completion retires every WR before it in one step, signaled or not, and
//! a WR that finds the ring full is carried by the next one's totals. The posting thread writes at the tail, the polling thread reads from the head;
//! each side is serialised by its own lock (the queue's and the CQ's).

use super::datagrams::Datagrams;
use crate::aside::aside;
use core::cell::UnsafeCell;
use core::ops::Range;
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

impl Entry {
    /// What a completion of it retires.
    #[inline(always)]
    fn retired(&self) -> Retired {
        Retired { end: Totals { wr: self.wr_end, bytes: self.bytes_end }, stamp: self.stamp << 1 }
    }
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
        Totals { wr: self.wr.wrapping_sub(earlier.wr), bytes: self.bytes.wrapping_sub(earlier.bytes) }
    }
}

/// What the posting side remembers between posts; behind the queue's lock.
#[derive(Default)]
pub struct Tail {
    /// Entries up to which the ring has room, as far as is known.
    room_to: u64,
    /// Entry from which on the next signaled WR is timed.
    time_from: u64,
    /// The smaller of the two, or less where the queue's limit comes first: below it, a WR needs no look at the ring or at
    /// the clock.
    everyday_to: u64,
}

impl Tail {
    /// Whether a signaled WR at the cursor is to be timed. If so, the next one is `every` entries later; 0 = never.
    #[inline(always)]
    pub fn is_due(&mut self, c: &Cursor, every: u32) -> bool {
        if c.next < self.time_from {
            return false;
        }
        self.time_from = if every == 0 { u64::MAX } else { c.next + u64::from(every) };
        every != 0
    }
}

/// The tail while a chain is noted: small enough for registers, and dropped if the provider refuses everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// Totals posted, those of the chain included.
    pub posted: Totals,
    /// Number of the last WR of the chain that asks for a completion, counted as `posted.wr`; 0: none.
    pub asked: u64,
    /// Entries made.
    next: u64,
}

impl Cursor {
    /// Number of the next entry.
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.next
    }
}

/// What one completion retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// The queue's totals up to and including the completion's WR.
    pub end: Totals,
    /// When the completion's WR was posted, clock ticks shifted left by one; 0 = not timed.
    stamp: u64,
}

impl Retired {
    /// Whether the WR was timed.
    #[inline(always)]
    pub fn is_timed(&self) -> bool {
        self.stamp != 0
    }

    /// When the completion's WR was posted, clock ticks; 0 = not timed.
    #[inline(always)]
    pub fn stamp(&self) -> u64 {
        self.stamp >> 1
    }
}

/// The ring.
pub struct Inflight {
    entries: Box<[UnsafeCell<Entry>]>,
    mask: u64,
    /// WRs that may be outstanding where the provider would take more; 0: it is the provider's to say.
    limit: AtomicU64,
    /// Where each WR goes, if that is not always the same. Here, since this line is at hand whenever a WR comes or goes.
    pub(super) datagrams: Option<Box<Datagrams>>,
    /// Entries visible to the polling side.
    published: Line<AtomicU64>,
    /// Entries retired by the polling side; the posting side reads it.
    head: Line<AtomicU64>,
}

#[repr(align(64))]
struct Line<T>(T);

// SAFETY: places in head..published are only read by the polling side, those outside only written by the posting side;
// each side is serialised by the caller's lock, and the two indices order them.
unsafe impl Sync for Inflight {}

impl Inflight {
    /// A ring for a queue of `depth` WRs. There is room for twice as many: what a poll has just taken from the provider
    /// may be posted anew by another thread before that poll has retired it here. `None`: no memory.
    pub fn new(depth: u32) -> Option<Inflight> {
        let capacity = (2 * depth.clamp(8, 1 << 20)).next_power_of_two() as usize;
        let mut entries = Vec::new();
        entries.try_reserve_exact(capacity).ok()?;
        entries.resize_with(capacity, || UnsafeCell::new(Entry::default()));
        Some(Inflight {
            entries: entries.into_boxed_slice(),
            mask: capacity as u64 - 1,
            limit: AtomicU64::new(0),
            datagrams: None,
            published: Line(AtomicU64::new(0)),
            head: Line(AtomicU64::new(0)),
        })
    }

    #[inline(always)]
    fn place(&self, number: u64) -> *mut Entry {
        debug_assert!(self.mask + 1 == self.entries.len() as u64);
        // SAFETY: the mask is one less than the length.
        unsafe { self.entries.get_unchecked((number & self.mask) as usize) }.get()
    }

    /// Starts a chain on a queue to which `posted` was posted so far. The caller holds the queue's lock.
    #[inline(always)]
    pub fn start(&self, posted: Totals) -> Cursor {
        Cursor { posted, asked: 0, next: self.published.0.load(Relaxed) }
    }

    /// Adds a WR at the cursor; not visible to the polling side before [`Inflight::publish`]. `stamp`: when, and
    /// [`SIGNALED`] if it asks for a completion.
    ///
    /// # Safety
    /// `tail` is this ring's, under its lock, and the cursor comes from [`Inflight::start`] under the same lock.
    #[inline(always)]
    pub unsafe fn push(&self, tail: &mut Tail, mut c: Cursor, wr_id: u64, bytes: u64, stamp: u64) -> Cursor {
        c.posted.wr += 1;
        c.posted.bytes = c.posted.bytes.wrapping_add(bytes);
        c.asked = if (stamp as i64) < 0 { c.posted.wr } else { c.asked };
        if c.next >= tail.room_to && self.is_full(tail, c.next) {
            return c;
        }
        let entry = Entry { wr_id, wr_end: c.posted.wr, bytes_end: c.posted.bytes, stamp };
        // SAFETY: the place is at or after `published` and less than a lap ahead of `head`: not the polling side's.
        unsafe { *self.place(c.next) = entry };
        c.next += 1;
        c
    }

    #[inline(always)]
    fn is_full(&self, tail: &mut Tail, next: u64) -> bool {
        let (head, mask, room_to) = (&self.head.0, self.mask, &mut tail.room_to);
        aside(move || {
            // SYNC POINT: pairs with the Release in `retire`.
            *room_to = head.load(Acquire) + mask + 1;
            next >= *room_to
        })
    }

    /// Makes what was pushed visible to the polling side.
    #[inline(always)]
    pub fn publish(&self, c: Cursor) {
        // SYNC POINT: pairs with the Acquire in `find`.
        self.published.0.store(c.next, Release);
    }

    /// Takes back the last WRs that were pushed since the last publish, `refused` in all. The rest is to be published.
    ///
    /// # Safety
    /// Under the lock under which the cursor was made.
    pub unsafe fn take_back(&self, mut c: Cursor, refused: Totals) -> Cursor {
        c.posted = c.posted.since(refused);
        let start = self.published.0.load(Relaxed);
        // SAFETY: unpublished entries are the posting side's.
        while c.next > start && unsafe { (*self.place(c.next - 1)).wr_end } > c.posted.wr {
            c.next -= 1;
        }
        if c.asked > c.posted.wr {
            // SAFETY: as above.
            let left = (start..c.next).rev().map(|n| unsafe { *self.place(n) });
            c.asked = left.filter(|e| (e.stamp as i64) < 0).map(|e| e.wr_end).next().unwrap_or(0);
        }
        c
    }

    /// First entry from the head on that `wanted` accepts.
    ///
    /// # Safety
    /// Under the CQ's lock.
    #[inline(always)]
    unsafe fn find(&self, wanted: impl Fn(&Entry) -> bool) -> Option<(u64, &Entry)> {
        let head = self.head.0.load(Relaxed);
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
            let (number, e) = self.find(|e| e.wr_id == wr_id && (e.stamp as i64) < 0)?;
            Some(self.retire(number, e))
        }
    }

    /// A chain was noted by [`Inflight::push`].
    #[inline(always)]
    pub fn noted(&self, tail: &mut Tail) {
        tail.everyday_to = tail.room_to.min(tail.time_from);
        let limit = self.limit.load(Relaxed);
        if limit != 0 {
            tail.everyday_to = tail.everyday_to.min(self.head.0.load(Relaxed) + limit);
        }
    }

    /// Every WR needs a look from now on.
    pub fn never_everyday(&self, tail: &mut Tail) {
        tail.everyday_to = 0;
    }

    /// Number of the entry that is published next. Under the queue's lock.
    #[inline(always)]
    pub fn next(&self) -> u64 {
        self.published.0.load(Relaxed)
    }

    /// The WRs that a good completion of `wr_id` covers, as [`Inflight::complete`] finds them, by their numbers. They stay until
    /// [`Inflight::retire_to`].
    ///
    /// # Safety
    /// Under the CQ's lock.
    #[inline(always)]
    pub unsafe fn covered(&self, wr_id: u64) -> Option<(Range<u64>, Retired)> {
        // SAFETY: the caller's promise.
        let (number, e) = unsafe { self.find(|e| e.wr_id == wr_id && (e.stamp as i64) < 0)? };
        Some((self.head.0.load(Relaxed)..number + 1, e.retired()))
    }

    /// As [`Inflight::covered`], of a completion in error, as [`Inflight::fail`] finds them.
    ///
    /// # Safety
    /// Under the CQ's lock.
    pub unsafe fn covered_by_failure(&self, wr_id: u64, before: Totals) -> Option<(Range<u64>, Retired, Totals)> {
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let (number, e) = self.find(|e| e.wr_id == wr_id)?;
            let head = self.head.0.load(Relaxed);
            // Any before it that found no room were good, their bytes go with it.
            let good = if number == head { before.bytes } else { (*self.place(number.wrapping_sub(1))).bytes_end };
            Some((head..number + 1, e.retired(), Totals { wr: 1, bytes: e.bytes_end.wrapping_sub(good) }))
        }
    }

    /// Retires the entries below `end`.
    ///
    /// # Safety
    /// Under the CQ's lock; it is the end of numbers that [`Inflight::covered`] or [`Inflight::covered_by_failure`] has
    /// returned under this lock.
    #[inline(always)]
    pub unsafe fn retire_to(&self, end: u64) {
        // SYNC POINT: as in `retire`.
        self.head.0.store(end, Release);
    }

    /// Numbers of the entries in flight.
    ///
    /// # Safety
    /// Under both locks.
    pub unsafe fn open_numbers(&self) -> Range<u64> {
        self.head.0.load(Relaxed)..self.published.0.load(Acquire)
    }

    /// Entries that it holds.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Number of the entry that was retired last. A WR that is posted meanwhile is less than a lap ahead of it: no more are
    /// outstanding than half the ring, and no more were polled at once.
    pub fn last_retired(&self) -> u64 {
        self.head.0.load(Relaxed).wrapping_sub(1)
    }

    /// No more than `limit` WRs, at least 1, may be outstanding, though the provider would take more. Nothing was posted yet.
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(u64::from(limit.max(1)), Relaxed);
    }

    /// WRs that may still be posted, of a queue with a limit. Under the queue's lock.
    pub fn room(&self) -> u64 {
        // SYNC POINT: pairs with the Release in `retire`.
        let open = self.published.0.load(Relaxed).saturating_sub(self.head.0.load(Acquire));
        self.limit.load(Relaxed).saturating_sub(open)
    }

    /// The entries in flight, oldest first: WRs posted to the queue up to and including it, and whether it asks for a
    /// completion.
    ///
    /// # Safety
    /// Under both locks.
    pub unsafe fn open(&self) -> impl Iterator<Item = (u64, bool)> {
        (self.head.0.load(Relaxed)..self.published.0.load(Acquire)).map(|number| {
            // SAFETY: published and not retired, and nothing moves while both sides are locked.
            let e = unsafe { &*self.place(number) };
            (e.wr_end, (e.stamp as i64) < 0)
        })
    }

    /// Whether the next WR needs no look at the room left or at the clock. Under the queue's lock.
    #[inline(always)]
    pub fn is_everyday(&self, tail: &Tail) -> bool {
        self.published.0.load(Relaxed) < tail.everyday_to
    }

    /// Adds one WR that is alone in its chain; visible after [`Inflight::publish_one`].
    ///
    /// # Safety
    /// As [`Inflight::push`], and the WR is an everyday one.
    #[inline(always)]
    pub unsafe fn push_one(&self, posted: Totals, wr_id: u64, stamp: u64) {
        let entry = Entry { wr_id, wr_end: posted.wr, bytes_end: posted.bytes, stamp };
        // SAFETY: as in `push`.
        unsafe { *self.place(self.published.0.load(Relaxed)) = entry };
    }

    /// Makes what [`Inflight::push_one`] added visible to the polling side.
    #[inline(always)]
    pub fn publish_one(&self) {
        let c = Cursor { next: self.published.0.load(Relaxed) + 1, ..Cursor::default() };
        self.publish(c);
    }

    /// As [`Inflight::complete`], if the oldest WR is it, as it nearly always is.
    ///
    /// # Safety
    /// Under the CQ's lock.
    #[inline(always)]
    pub unsafe fn complete_oldest(&self, wr_id: u64) -> Option<Retired> {
        let head = self.head.0.load(Relaxed);
        // SYNC POINT: as in `find`.
        if head == self.published.0.load(Acquire) {
            return None;
        }
        // SAFETY: as in `find`; the caller's promise.
        unsafe {
            let e = &*self.place(head);
            (e.wr_id == wr_id && (e.stamp as i64) < 0).then(|| self.retire(head, e))
        }
    }

    /// A completion of `wr_id` in error: the oldest WR of that id, signaled or not, fails; those before it were good.
    /// `before`: totals retired so far. Returns also the failed WR itself: one, and its bytes.
    ///
    /// # Safety
    /// Under the CQ's lock.
    pub unsafe fn fail(&self, wr_id: u64, before: Totals) -> Option<(Retired, Totals)> {
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let (numbers, retired, failed) = self.covered_by_failure(wr_id, before)?;
            self.retire_to(numbers.end);
            Some((retired, failed))
        }
    }

    /// # Safety
    /// Under the CQ's lock; `e` is entry `number`, published and not retired.
    #[inline(always)]
    unsafe fn retire(&self, number: u64, e: &Entry) -> Retired {
        let retired = e.retired();
        // SYNC POINT: pairs with the Acquire in `is_full`.
        self.head.0.store(number.wrapping_add(1), Release);
        retired
    }

    /// Empties the ring without completions (RESET, destroy).
    ///
    /// # Safety
    /// Under both locks.
    pub unsafe fn clear(&self) {
        self.head.0.store(self.published.0.load(Relaxed), Release);
    }
}

#[cfg(test)]
#[path = "inflight_tests.rs"]
mod tests;
