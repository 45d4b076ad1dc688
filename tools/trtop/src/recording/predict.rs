//! What each counter is expected to be, so that only what differs from it is recorded.
//!
//! Counters of QPs grow with the traffic, most of them in step: bytes with WRs, what retires with what is posted. A
//! prediction costs nothing where it is wrong but the difference that is then written.

use core::mem::offset_of;
use telereduce::shm::layout::{
    CqRecord, DoneCounters, Kind, LaneRecord, LatencyCounters, OPCODES, PostCounters, QpDetail, QpRecord,
};

/// How a column, a word of each record of a region, goes on. Differences are to the frame before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predict {
    /// As it was.
    Same,
    /// By what it grew lately, on average.
    Trend,
    /// So that it is as far behind this column, which is before it, as it was lately, on average: what is outstanding.
    Tracks(usize),
    /// By as much as this column, which is before it, times the ratio of their last growth.
    Follows(usize),
}

const fn word(bytes: usize) -> usize {
    bytes / 8
}

/// Of counters of one direction, which start at these bytes of a record.
fn direction(post: usize, done: usize, column: usize) -> Option<Predict> {
    let posted = word(post + offset_of!(PostCounters, wr_posted));
    let retired = word(done + offset_of!(DoneCounters, wr_retired));
    let is = |base: usize, field: usize| column == word(base + field);
    if column == posted {
        Some(Predict::Trend)
    } else if is(post, offset_of!(PostCounters, bytes_posted)) {
        Some(Predict::Follows(posted))
    } else if column == retired {
        Some(Predict::Tracks(posted))
    } else if is(done, offset_of!(DoneCounters, bytes_retired))
        || is(done, offset_of!(DoneCounters, bytes_arrived))
        || is(done, offset_of!(DoneCounters, cqes))
    {
        Some(Predict::Follows(retired))
    } else {
        None
    }
}

fn latency(at: usize, column: usize) -> Option<Predict> {
    let count = word(at + offset_of!(LatencyCounters, count));
    if column == count {
        Some(Predict::Trend)
    } else if column == word(at + offset_of!(LatencyCounters, sum_ns)) {
        Some(Predict::Follows(count))
    } else {
        None
    }
}

/// How this column of the records of this kind goes on.
pub fn predict(kind: Kind, column: usize) -> Predict {
    let known = match kind {
        Kind::Qp => direction(offset_of!(QpRecord, send_post), offset_of!(QpRecord, send_done), column)
            .or_else(|| direction(offset_of!(QpRecord, recv_post), offset_of!(QpRecord, recv_done), column)),
        Kind::Lane => direction(offset_of!(LaneRecord, post), offset_of!(LaneRecord, done), column)
            .or_else(|| latency(offset_of!(LaneRecord, latency), column)),
        Kind::QpDetail => {
            let first = word(offset_of!(QpDetail, opcodes));
            match column.checked_sub(first).filter(|c| *c < 2 * OPCODES) {
                Some(c) if c.is_multiple_of(2) => Some(Predict::Trend),
                Some(_) => Some(Predict::Follows(column - 1)),
                None => latency(offset_of!(QpDetail, latency), column),
            }
        }
        Kind::Cq if column >= word(offset_of!(CqRecord, polls_empty)) => Some(Predict::Trend),
        _ => None,
    };
    known.unwrap_or(Predict::Same)
}

/// Times of last completions: they change with every frame, at random, and are worth a look now and then only.
pub fn is_restless(kind: Kind, column: usize) -> bool {
    let last = offset_of!(DoneCounters, last_ns);
    match kind {
        Kind::Qp => [offset_of!(QpRecord, send_done), offset_of!(QpRecord, recv_done)]
            .into_iter()
            .any(|done| column == word(done + last)),
        Kind::Lane => column == word(offset_of!(LaneRecord, done) + last),
        _ => false,
    }
}

/// What a prediction remembers of one cell.
pub type Memory = (i64, i64);

/// Parts of a WR that an average is kept in.
const PARTS: i64 = 8;

impl Predict {
    /// By how much the cell grows, if the column that it follows grew by `base`.
    pub fn growth(self, memory: Memory, base: i64) -> i64 {
        match self {
            Predict::Same => 0,
            Predict::Trend => memory.0 / PARTS,
            Predict::Tracks(_) => base.wrapping_add(memory.1).wrapping_sub(memory.0 / PARTS),
            Predict::Follows(_) => match memory {
                (0, _) => 0,
                (b, grew) if b == base => grew,
                (b, grew) => match base.checked_mul(grew) {
                    Some(product) => product.wrapping_div(b),
                    None => (i128::from(base) * i128::from(grew) / i128::from(b)) as i64,
                },
            },
        }
    }

    /// What to remember, now that it grew by `grew`.
    pub fn remember(self, memory: &mut Memory, base: i64, grew: i64) {
        match self {
            Predict::Trend => memory.0 = memory.0.wrapping_sub(memory.0 / PARTS).wrapping_add(grew),
            Predict::Tracks(_) => {
                memory.1 = memory.1.wrapping_add(base).wrapping_sub(grew);
                memory.0 = memory.0.wrapping_sub(memory.0 / PARTS).wrapping_add(memory.1);
            }
            Predict::Follows(_) if base != 0 => *memory = (base, grew),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_column_follows_stands_before_it() {
        for (kind, bytes) in Kind::ALL {
            for column in 0..bytes / 8 {
                if let Predict::Follows(base) | Predict::Tracks(base) = predict(kind, column) {
                    assert!(base < column, "{kind:?} {column}");
                }
            }
        }
    }

    #[test]
    fn bytes_of_one_size_are_known_from_their_wrs() {
        let p = Predict::Follows(0);
        let mut m = (0, 0);
        p.remember(&mut m, 3, 3 * 65536);
        assert_eq!(p.growth(m, 7), 7 * 65536);
        p.remember(&mut m, 0, 0);
        assert_eq!(p.growth(m, 1), 65536, "a pause forgets nothing");
        assert_eq!(p.growth((i64::MAX, i64::MAX), i64::MAX), i64::MAX);
        assert_eq!(p.growth((-1, i64::MIN), 1), i64::MIN, "and nothing overflows");
    }

    #[test]
    fn what_retires_is_what_was_posted_and_leaves_as_much_outstanding_as_ever() {
        let p = Predict::Tracks(0);
        let mut m = (0, 0);
        p.remember(&mut m, 100, 84);
        for _ in 0..100 {
            p.remember(&mut m, 50, 50);
        }
        assert!((50..=58).contains(&p.growth(m, 50)), "{m:?}");
    }

    #[test]
    fn a_trend_is_met_after_a_while() {
        let mut m = (0, 0);
        for _ in 0..100 {
            Predict::Trend.remember(&mut m, 0, 76);
        }
        assert!((70..=76).contains(&Predict::Trend.growth(m, 0)), "{m:?}");
    }
}
