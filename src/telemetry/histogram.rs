//! Latency buckets: two per power of two, from 64 ns to 206 s, so a bucket's bounds are at most 50 % apart.
//!
//! Bucket 0 holds everything below 64 ns, bucket 63 everything from its lower bound up.

use crate::shm::layout::{BUCKETS, LatencyCounters};
use crate::shm::segment::{bump, raise};
use core::sync::atomic::Ordering::Relaxed;
use serde::{Deserialize, Serialize};

const FIRST_POWER: u32 = 6;

/// The bucket that a latency of `ns` falls into.
#[inline]
pub fn bucket(ns: u64) -> usize {
    if ns < 1 << FIRST_POWER {
        return 0;
    }
    let power = 63 - ns.leading_zeros();
    let half = (ns >> (power - 1)) & 1;
    (1 + (power - FIRST_POWER) as usize * 2 + half as usize).min(BUCKETS - 1)
}

/// The smallest latency of a bucket, ns.
pub fn lower_bound(bucket: usize) -> u64 {
    match bucket {
        0 => 0,
        b => {
            let (power, half) = (FIRST_POWER + (b as u32 - 1) / 2, (b as u64 - 1) % 2);
            (2 + half) << (power - 1)
        }
    }
}

/// Adds one sample. One writer at a time.
#[inline]
pub fn record(h: &LatencyCounters, ns: u64) {
    bump(&h.count, 1);
    bump(&h.sum_ns, ns);
    raise(&h.max_ns, ns);
    bump(&h.buckets[bucket(ns)], 1);
}

/// A histogram copied out of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Samples.
    pub count: u64,
    /// Sum of the samples, ns.
    pub sum_ns: u64,
    /// Largest sample, ns.
    pub max_ns: u64,
    /// Samples per bucket.
    pub buckets: Vec<u64>,
}

impl Default for Latency {
    fn default() -> Self {
        Latency { count: 0, sum_ns: 0, max_ns: 0, buckets: vec![0; BUCKETS] }
    }
}

impl Latency {
    /// Adds the samples of `h`.
    pub fn add(&mut self, h: &LatencyCounters) {
        self.count += h.count.load(Relaxed);
        self.sum_ns = self.sum_ns.wrapping_add(h.sum_ns.load(Relaxed));
        self.max_ns = self.max_ns.max(h.max_ns.load(Relaxed));
        for (sum, b) in self.buckets.iter_mut().zip(&h.buckets) {
            *sum = sum.wrapping_add(b.load(Relaxed));
        }
    }

    /// The latency that a share `q` (0 to 1) of the samples does not exceed, ns: linear inside its bucket, at most the
    /// largest sample. `None` without samples.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let total: u64 = self.buckets.iter().sum();
        if total == 0 {
            return None;
        }
        let rank = (q.clamp(0.0, 1.0) * total as f64).ceil().max(1.0);
        let mut below = 0;
        for (i, &n) in self.buckets.iter().enumerate() {
            if n > 0 && (below + n) as f64 >= rank {
                let low = lower_bound(i);
                let high = if i + 1 < self.buckets.len() { lower_bound(i + 1) } else { self.max_ns.max(low) };
                let inside = (rank - below as f64) / n as f64;
                return Some((low + ((high - low) as f64 * inside) as u64).min(self.max_ns.max(low)));
            }
            below += n;
        }
        Some(self.max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_sample_lies_within_its_buckets_bounds(ns in any::<u64>()) {
            let b = bucket(ns);
            prop_assert!(lower_bound(b) <= ns);
            prop_assert!(b == BUCKETS - 1 || ns < lower_bound(b + 1));
        }

        #[test]
        fn a_quantile_is_at_most_one_bucket_off(mut ns in proptest::collection::vec(64u64..1 << 36, 1..300), q in 0.01f64..1.0) {
            let mut l = Latency::default();
            for &n in &ns {
                l.count += 1;
                l.max_ns = l.max_ns.max(n);
                l.buckets[bucket(n)] += 1;
            }
            ns.sort_unstable();
            let exact = ns[((q * ns.len() as f64).ceil() as usize).clamp(1, ns.len()) - 1];
            let got = l.quantile(q).unwrap();
            prop_assert!(bucket(got).abs_diff(bucket(exact)) <= 1, "{} for {}", got, exact);
        }
    }

    #[test]
    fn no_samples_have_no_quantile() {
        assert_eq!(Latency::default().quantile(0.5), None);
    }
}
