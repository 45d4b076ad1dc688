//! How fast a lane is: [`Core`], where the thread that polls lanes writes it and all that post read it.

use crate::state::CLOCK;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use telereduce::multipath::pace::Pace as Core;
use telereduce::multipath::schedule::Offer;
use telereduce::sync::SpinLock;

/// What was measured longer ago says nothing, ns.
const STALE_NS: u64 = 1_000_000_000;

/// Of one lane. Written by who polls it.
#[derive(Default)]
pub struct Pace {
    core: SpinLock<Core>,
    speed: AtomicU32,
    least_bytes: AtomicU32,
    /// When the last piece was done.
    last: AtomicU64,
}

impl Pace {
    /// A piece was done `now`, posted at `posted`; its turn began when the one before it was done.
    pub fn done(&self, bytes: u32, posted: u64, now: u64) {
        let start = posted.max(self.last.load(Relaxed));
        let mut core = self.core.lock();
        core.took(bytes, CLOCK.ticks_to_ns(now.saturating_sub(start)));
        self.speed.store(core.speed, Relaxed);
        self.least_bytes.store(core.least_bytes, Relaxed);
        self.last.store(now, Relaxed);
    }

    /// What the lane offers, with so much room.
    pub fn offer(&self, room: u32, now: u64) -> Offer {
        let age = now.saturating_sub(self.last.load(Relaxed));
        let speed = if CLOCK.ticks_to_ns(age) > STALE_NS { 0 } else { self.speed.load(Relaxed) };
        Offer { room, speed, least_bytes: self.least_bytes.load(Relaxed) }
    }
}
