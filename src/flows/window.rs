//! Bandwidth over the last N completions of a flow.
//!
//! What the window carried is what was completed after its oldest record, and the time that took is the time from the oldest
//! record to the newest. Each record costs the same, however many the window holds.

/// Records of a window, if nothing else is asked for.
pub const DEFAULT_RECORDS: usize = 50;

/// A clock that goes back by more than this was set.
const SET_BACK_NS: u64 = 1_000_000_000;

/// A window over the last records of one flow.
#[derive(Clone, Debug)]
pub struct Window {
    /// At most `most`, the oldest at `oldest`.
    records: Vec<Record>,
    most: usize,
    oldest: usize,
    /// Of all records.
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    end_ns: u64,
    bytes: u64,
}

/// Bytes, and the time that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bytes.
    pub bytes: u64,
    /// Nanoseconds; 0 = not known.
    pub ns: u64,
}

impl Window {
    /// An empty window of `most` records, at least 2.
    pub fn new(most: usize) -> Window {
        Window { records: Vec::new(), most: most.max(2), oldest: 0, bytes: 0 }
    }

    /// A transfer of `bytes` ended at `end_ns`. One that seems to have ended before an earlier record (several CQs, or a clock
    /// that was set back a little) counts as having ended with it; if the clock was set back by more, the window begins anew.
    pub fn push(&mut self, end_ns: u64, bytes: u64) {
        if self.newest().is_some_and(|newest| newest.end_ns.saturating_sub(end_ns) > SET_BACK_NS) {
            self.records.clear();
            (self.oldest, self.bytes) = (0, 0);
        }
        let end_ns = self.newest().map_or(end_ns, |newest| newest.end_ns.max(end_ns));
        let record = Record { end_ns, bytes };
        self.bytes = self.bytes.wrapping_add(bytes);
        if self.records.len() < self.most {
            if self.records.try_reserve(1).is_ok() {
                self.records.push(record);
                return;
            }
            // No memory: it stays as small as it is.
            self.most = self.records.len();
        }
        if self.records.is_empty() {
            self.bytes = 0;
            return;
        }
        let gone = core::mem::replace(&mut self.records[self.oldest], record);
        self.bytes = self.bytes.wrapping_sub(gone.bytes);
        self.oldest = (self.oldest + 1) % self.most;
    }

    /// Bytes completed after the oldest record, and the time from it to the newest; zero with fewer than two records.
    pub fn bandwidth(&self) -> Bandwidth {
        match (self.records.get(self.oldest), self.newest()) {
            (Some(oldest), Some(newest)) if self.records.len() > 1 => {
                Bandwidth { bytes: self.bytes.wrapping_sub(oldest.bytes), ns: newest.end_ns - oldest.end_ns }
            }
            _ => Bandwidth::default(),
        }
    }

    fn newest(&self) -> Option<&Record> {
        // Until the window is full, the oldest is the first.
        let at = if self.oldest == 0 { self.records.len() } else { self.oldest };
        self.records.get(at.checked_sub(1)?)
    }
}

impl Bandwidth {
    /// Bits per second, rounded down; 0 where no time passed.
    pub fn bits_per_s(self) -> u64 {
        let bits = u128::from(self.bytes) * 8_000_000_000;
        bits.checked_div(u128::from(self.ns)).map_or(0, |b| u64::try_from(b).unwrap_or(u64::MAX))
    }

    /// Gb/s, that is 1e9 bits per second; 0 where no time passed.
    pub fn gb_per_s(self) -> f64 {
        if self.ns == 0 { 0.0 } else { self.bytes as f64 * 8.0 / self.ns as f64 }
    }

    /// What TeleReduce's own line calls Gbps: `bytes * 0.93 * 8 / ns`, a whole number. It is about Gibit/s, that is 2^30 bits.
    pub fn of_the_note(self) -> u64 {
        if self.ns == 0 { 0 } else { (self.bytes as f64 * 0.93 * 8.0 / self.ns as f64) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(most: usize, records: &[(u64, u64)]) -> Bandwidth {
        let mut w = Window::new(most);
        records.iter().for_each(|&(end_ns, bytes)| w.push(end_ns, bytes));
        w.bandwidth()
    }

    #[test]
    fn one_record_or_none_is_no_bandwidth() {
        assert_eq!(of(50, &[]), Bandwidth::default());
        assert_eq!(of(50, &[(5, 1000)]), Bandwidth::default());
        assert_eq!(Bandwidth::default().bits_per_s(), 0);
    }

    #[test]
    fn the_oldest_records_bytes_were_moved_before_it() {
        // 100 Gb/s: 125 bytes in 10 ns.
        let b = of(50, &[(1000, 77), (1005, 60), (1010, 65)]);
        assert_eq!(b, Bandwidth { bytes: 125, ns: 10 });
        assert_eq!((b.bits_per_s(), b.gb_per_s()), (100_000_000_000, 100.0));
        // A window of two: 65 bytes in 5 ns.
        assert_eq!(of(2, &[(1000, 77), (1005, 60), (1010, 65)]), Bandwidth { bytes: 65, ns: 5 });
    }

    #[test]
    fn the_notes_unit_is_smaller() {
        let gib = 1u64 << 30;
        let b = Bandwidth { bytes: 25 * gib, ns: 2_000_000_000 };
        assert_eq!((b.gb_per_s().round(), b.of_the_note()), (107.0, 99));
    }

    #[test]
    fn totals_of_any_size() {
        // 64 transfers of 8 GiB and one of 2^62, a millisecond each.
        let many: Vec<_> = (0..64).map(|i| (i * 1_000_000, 8 << 30)).chain([(64_000_000, 1 << 62)]).collect();
        assert_eq!(of(65, &many), Bandwidth { bytes: (63 << 33) + (1 << 62), ns: 64_000_000 });
        assert_eq!(Bandwidth { bytes: u64::MAX, ns: 1 }.bits_per_s(), u64::MAX);
    }

    #[test]
    fn a_clock_set_back_is_no_time() {
        assert_eq!(of(3, &[(100, 1), (90, 2), (110, 3)]), Bandwidth { bytes: 5, ns: 10 });
        assert_eq!(of(3, &[(100, 1), (90, 2)]), Bandwidth { bytes: 2, ns: 0 });
    }

    #[test]
    fn a_clock_set_far_back_begins_a_new_window() {
        let hour = 3_600_000_000_000;
        assert_eq!(of(3, &[(hour, 1), (hour + 1, 2), (5, 7), (15, 4)]), Bandwidth { bytes: 4, ns: 10 });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Against a sum over the records themselves: 64 cases of 2,000 records are 128,000.
        #[test]
        fn is_the_sum_of_its_records(
            most in 2usize..120,
            records in proptest::collection::vec((0u64..5_000, 0u64..1 << 40), 2_000),
        ) {
            let mut w = Window::new(most);
            let (mut now, mut all) = (1_700_000_000_000_000_000, Vec::new());
            for (step, bytes) in records {
                now += step;
                all.push((now, bytes));
                w.push(now, bytes);
                let last = &all[all.len().saturating_sub(most)..];
                let expected = match last {
                    [] | [_] => Bandwidth::default(),
                    [first, rest @ ..] => Bandwidth {
                        bytes: rest.iter().map(|r| r.1).sum(),
                        ns: rest[rest.len() - 1].0 - first.0,
                    },
                };
                prop_assert_eq!(w.bandwidth(), expected);
                let exact = (u128::from(expected.bytes) * 8_000_000_000 / u128::from(expected.ns.max(1))).min(u128::from(u64::MAX));
                prop_assert_eq!(u128::from(w.bandwidth().bits_per_s()), if expected.ns == 0 { 0 } else { exact });
            }
        }
    }
}
