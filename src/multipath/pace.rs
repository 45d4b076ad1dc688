//! How fast a lane is, and how small its pieces may be, from what its pieces took.
//!
//! Speed is an average, for which the larger ones count for more. Where a piece takes long because the path is long, and not
//! because it is slow, smaller ones would only make it slower: so a piece that takes longer than pieces should makes the next
//! one twice as large, and as long as that pays it goes on so.

use super::schedule::PIECE_MS;

/// Bytes after which half of the average is new.
const HALF: u64 = 256 << 10;
/// Largest piece that is asked for, bytes.
const MOST: u32 = 1 << 20;
/// A piece that takes no longer than this needs not be larger, ns: the next one is twice as large by itself.
const LONG_NS: u64 = 500_000 * PIECE_MS as u64;
/// After a try that did not pay, so many pairs of pieces until the next one.
const REST: u32 = 32;

/// The size of the first pieces is a guess, and says nothing.
const FIRST: u32 = 2;

/// What is known of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Kilobytes per second; 0: never measured.
    pub speed: u32,
    /// Smaller pieces do not pay, or larger ones are tried, bytes; 0: any do.
    pub least_bytes: u32,
    /// The size that has paid, bytes, and its speed, kilobytes per second.
    base_bytes: u32,
    paid: u32,
    /// Pairs of pieces until larger ones are tried.
    rest: u32,
    /// The first piece of a pair, bytes and ns: of two in flight, one often comes soon after the other.
    first: Option<(u32, u64)>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { speed: 0, least_bytes: 0, base_bytes: 0, paid: 0, rest: FIRST, first: None }
    }
}

impl Pace {
    /// A piece took so long, from its post or the end of the piece before it.
    pub fn took(&mut self, bytes: u32, ns: u64) {
        let now = speed(u64::from(bytes), ns.max(1));
        self.speed = average(self.speed, u64::from(bytes), now);
        if bytes < self.least_bytes {
            return;
        }
        let Some(first) = self.first.take() else {
            self.first = Some((bytes, ns));
            return;
        };
        let (bytes, ns) = (first.0.midpoint(bytes), first.1.midpoint(ns));
        let now = speed(u64::from(bytes), ns.max(1));
        let (new, old) = (u64::from(now), u64::from(self.paid));
        if ns <= LONG_NS {
            self.settle(self.base_bytes / 2, now);
        } else if self.least_bytes > self.base_bytes {
            if 2 * new > 3 * old {
                self.settle(bytes, now);
                self.least_bytes = bytes.saturating_mul(2).min(MOST);
            } else {
                self.least_bytes = self.base_bytes;
                self.rest = REST;
            }
        } else if self.base_bytes > 0 && 3 * new < 2 * old {
            // It has become slow instead.
            self.settle(self.base_bytes / 2, now);
        } else if self.rest > 0 {
            self.rest -= 1;
        } else {
            self.paid = now;
            self.least_bytes = bytes.saturating_mul(2).clamp(self.base_bytes, MOST);
        }
    }

    fn settle(&mut self, bytes: u32, speed: u32) {
        (self.base_bytes, self.least_bytes, self.paid) = (bytes, bytes, speed);
    }
}

/// Kilobytes per second.
fn speed(bytes: u64, ns: u64) -> u32 {
    (bytes * 1_000_000 / ns).clamp(1, u64::from(u32::MAX)) as u32
}

/// The average, after so many bytes at the speed `now`.
fn average(old: u32, bytes: u64, now: u32) -> u32 {
    if old == 0 {
        return now;
    }
    let new = (u128::from(old) * u128::from(HALF) + u128::from(now) * u128::from(bytes)) / u128::from(HALF + bytes);
    (new as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::schedule::{Lane, Load, Offer, Turns};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn large_pieces_count_for_more() {
        assert_eq!(average(0, 1 << 20, speed(1 << 20, 1_000_000)), 1 << 20, "a MiB per ms, in kB/s");
        assert_eq!(average(1000, 256 << 10, speed(256 << 10, 1 << 18)), (1000 + 1_000_000) / 2, "half is new");
        assert!((1000..1100).contains(&average(1000, 1, speed(1, 1))));
        assert_eq!(average(1, 1, speed(1, u64::MAX)), 1);
        assert_eq!(average(u32::MAX, u64::from(u32::MAX), speed(u64::from(u32::MAX), 1)), u32::MAX);
    }

    /// Sends one message over one lane, piece by piece, two in flight. Returns ns, and the largest piece.
    fn send(message: u32, unit: u32, latency_ns: u64, kbps: u64) -> (u64, u32) {
        let (mut pace, mut turns) = (Pace::default(), Turns::default());
        let (mut left, mut now, mut free, mut last, mut largest) = (message / unit, 0u64, 0u64, 0u64, 0);
        let mut flight = std::collections::VecDeque::new();
        loop {
            let lane = Lane { up: true, live: flight.len() as u32, live_bytes: 0 };
            let load = Load { units: left, unit_bytes: unit, bytes: 1, max_bytes: 1 << 20, depth: 2 };
            let offer = Offer { room: 4, speed: pace.speed, least_bytes: pace.least_bytes };
            if left > 0
                && let Some((_, units)) = turns.pick([lane].into_iter(), &[offer], &load)
            {
                let bytes = units * unit;
                largest = largest.max(bytes);
                free = free.max(now) + u64::from(bytes) * 1_000_000 / kbps;
                flight.push_back((now, free + latency_ns, bytes));
                left -= units;
                continue;
            }
            let Some((posted, done, bytes)) = flight.pop_front() else { return (now, largest) };
            now = done;
            pace.took(bytes, now - last.max(posted));
            last = now;
        }
    }

    #[test]
    fn a_long_path_gets_large_pieces_and_a_slow_one_does_not() {
        // 8 MiB, 40 Mb/s, 50 ms: 1.7 s at best; 16,384 pieces of a unit would take 400 s.
        let (ns, _) = send(8 << 20, 512, 50_000_000, 5000);
        assert!(ns < 4_500_000_000, "{ns}");
        // 10 Mb/s: a piece of 32 KiB takes 26 ms.
        let (ns, largest) = send(8 << 20, 32 << 10, 0, 1250);
        assert!(ns < 6_800_000_000 && largest <= 128 << 10, "{ns} {largest}");
        // 100 Gb/s over 50 ms.
        let (ns, _) = send(64 << 20, 32 << 10, 50_000_000, 12_500_000);
        assert!(ns < 4_000_000_000, "{ns}");
    }

    proptest! {
        /// Whatever a lane is like, a message does not take much longer than it must.
        #[test]
        fn no_lane_is_kept_small(
            log_message in 16u32..24, log_unit in 9u32..15, latency_us in 0u64..60_000, log_kbps in 10u32..24
        ) {
            let (message, unit, kbps) = (1u32 << log_message, 1u32 << log_unit.min(log_message - 1), 1u64 << log_kbps);
            let (ns, largest) = send(message, unit, latency_us * 1000, kbps);
            let best = u64::from(message) * 1_000_000 / kbps + latency_us * 1000;
            let rounds = u64::from(message >> 20) + 100;
            prop_assert!(ns <= best * 2 + rounds * latency_us * 1000, "{} of {}, {}", ns, best, largest);
        }
    }
}
