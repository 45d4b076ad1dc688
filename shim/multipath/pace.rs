//! How fast a lane is: an average of what its pieces took, the larger ones counting for more.

use crate::state::CLOCK;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Bytes after which half of the average is new.
const HALF: u64 = 256 << 10;
/// What was measured longer ago says nothing, ns.
const STALE_NS: u64 = 1_000_000_000;

/// Of one lane. Written by who polls it.
#[derive(Default)]
pub struct Pace {
    /// Kilobytes per second; 0: never measured.
    speed: AtomicU32,
    /// When the last piece was done.
    last: AtomicU64,
}

impl Pace {
    /// A piece was done `now`, posted at `posted`; its turn began when the one before it was done.
    pub fn done(&self, bytes: u32, posted: u64, now: u64) {
        let start = posted.max(self.last.load(Relaxed));
        let ns = CLOCK.ticks_to_ns(now.saturating_sub(start)).max(1);
        self.speed.store(average(self.speed.load(Relaxed), u64::from(bytes), ns), Relaxed);
        self.last.store(now, Relaxed);
    }

    /// Kilobytes per second; 0: not known.
    pub fn speed(&self, now: u64) -> u32 {
        let age = now.saturating_sub(self.last.load(Relaxed));
        if CLOCK.ticks_to_ns(age) > STALE_NS { 0 } else { self.speed.load(Relaxed) }
    }
}

/// The average, after `bytes` took `ns`.
fn average(old: u32, bytes: u64, ns: u64) -> u32 {
    let speed = (bytes * 1_000_000 / ns).clamp(1, u64::from(u32::MAX));
    if old == 0 {
        return speed as u32;
    }
    let new = (u128::from(old) * u128::from(HALF) + u128::from(speed) * u128::from(bytes)) / u128::from(HALF + bytes);
    (new as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::average;

    #[test]
    fn large_pieces_count_for_more() {
        assert_eq!(average(0, 1 << 20, 1_000_000), 1 << 20, "a MiB per ms, in kB/s");
        assert_eq!(average(1000, 256 << 10, 1 << 18), (1000 + 1_000_000) / 2, "half is new");
        assert!((1000..1100).contains(&average(1000, 1, 1)));
        assert_eq!(average(1, 1, u64::MAX), 1);
        assert_eq!(average(u32::MAX, u64::from(u32::MAX), 1), u32::MAX);
    }
}
