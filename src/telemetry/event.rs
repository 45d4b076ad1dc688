//! Completion events on their way into the segment's rings.
//!
//! Each CQ owns a ring, so its lock is the ring's writer lock, too. CQs beyond [`OWN_RINGS`] share one ring and its lock.

use crate::attribution::Label;
use crate::log::feed::Feed;
use crate::shm::layout::{RING_EVENTS, RingRecord};
use crate::sync::SpinLock;
use core::sync::atomic::{Ordering::Relaxed, Ordering::Release, fence};

/// CQs that get a ring of their own (64 KiB each).
pub const OWN_RINGS: usize = 64;

/// Where a CQ's events go.
pub enum Sink {
    /// Nowhere: nobody wants events, or there is no memory for any.
    None,
    /// An outlet that only this CQ uses.
    Own(Outlet),
    /// One shared with other CQs.
    Shared(&'static SpinLock<Outlet>),
}

/// A ring of the segment, and a queue to the log. One thread at a time writes.
#[derive(Default)]
pub struct Outlet {
    /// `None`: events are off, or the segment has no memory for a ring.
    pub ring: Option<&'static RingRecord>,
    /// `None`: there is no log.
    pub feed: Option<Feed>,
}

/// An event, as the ring holds it.
#[derive(Clone, Copy)]
pub struct Event {
    /// CLOCK_REALTIME, ns.
    pub end_ns: u64,
    /// Bytes retired; of datagrams, of a run of WRs to one peer.
    pub bytes: u64,
    /// WRs outstanding on the QP afterwards.
    pub wr_outstanding: u64,
    /// Bytes outstanding on the QP afterwards.
    pub bytes_outstanding: u64,
    /// Post to poll, ns; 0 = not timed. Of a failure and of a stall, as [`crate::shm::layout::EventRecord`] says.
    pub latency_ns: u64,
    /// `qp record index << 32 | qp_num`.
    pub qp: u64,
    /// `peer << 32 | port << 16 | status << 8 | kind`.
    pub place: u64,
    /// What it was for; for the log alone.
    pub label: Label,
}

impl Sink {
    /// Writes an event over the oldest one, and passes it to the log. The caller holds the CQ's lock.
    // Also where there are several callers.
    #[inline(always)]
    pub fn write(&self, e: &Event) {
        match self {
            Sink::None => {}
            Sink::Own(outlet) => outlet.write(e),
            Sink::Shared(lock) => lock.lock().write(e),
        }
    }
}

impl Outlet {
    #[inline(always)]
    fn write(&self, e: &Event) {
        if let Some(ring) = self.ring {
            write(ring, e);
        }
        if let Some(feed) = &self.feed {
            // SAFETY: one thread at a time: the outlet's only CQ, or whoever has its lock, is locked.
            unsafe { feed.put(*e) };
        }
    }
}

/// Writes an event over the oldest one. One writer at a time.
#[inline(always)]
pub(super) fn write(ring: &RingRecord, e: &Event) {
    let n = ring.head.load(Relaxed);
    let slot = &ring.events[(n % RING_EVENTS as u64) as usize];
    slot.seq.store(2 * n + 1, Relaxed);
    // SYNC POINT: a reader that sees one of the new fields also sees the odd number, or a head that moved on.
    fence(Release);
    slot.end_ns.store(e.end_ns, Relaxed);
    slot.bytes.store(e.bytes, Relaxed);
    slot.wr_outstanding.store(e.wr_outstanding, Relaxed);
    slot.bytes_outstanding.store(e.bytes_outstanding, Relaxed);
    slot.latency_ns.store(e.latency_ns, Relaxed);
    slot.qp.store(e.qp, Relaxed);
    slot.place.store(e.place, Relaxed);
    slot.seq.store(2 * (n + 1), Release);
    ring.head.store(n + 1, Release);
}
