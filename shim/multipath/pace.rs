//! How fast a lane is: [`Core`], between the thread that polls lanes and all that post.

use crate::state::CLOCK;
use telereduce::multipath::pace::Pace as Core;
use telereduce::multipath::schedule::Offer;
use telereduce::sync::SpinLock;

/// What was measured longer ago says nothing, ns.
const STALE_NS: u64 = 1_000_000_000;

/// Of one lane.
#[derive(Default)]
pub struct Pace(SpinLock<Inner>);

#[derive(Default)]
struct Inner {
    core: Core,
    /// When the last piece was done, clock ticks.
    last: u64,
}

impl Pace {
    /// A piece was done `now`, posted at `posted`; its turn began when the one before it was done.
    pub fn done(&self, bytes: u32, posted: u64, now: u64) {
        let mut inner = self.0.lock();
        let start = posted.max(inner.last);
        inner.core.took(bytes, CLOCK.ticks_to_ns(now.saturating_sub(start)));
        inner.last = now;
    }

    /// What the lane offers, with so much room.
    pub fn offer(&self, room: u32, now: u64) -> Offer {
        let Inner { core, last } = &*self.0.lock();
        let is_stale = CLOCK.ticks_to_ns(now.saturating_sub(*last)) > STALE_NS;
        Offer { room, speed: if is_stale { 0 } else { core.speed }, least_bytes: core.least_bytes }
    }
}
