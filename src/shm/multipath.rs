//! What multi-path does to QPs, as plain numbers.

use super::layout::{MovedCounters, MultipathCounters, MultipathRecord, PASS_REASONS};
use super::model::Counters;
use crate::multipath::single::Single;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use serde::{Deserialize, Serialize};

/// Bytes of WRs that were split, and where they went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedBytes {
    /// Bytes of these WRs, as the application posted them.
    pub bytes_split: u64,
    /// Bytes posted on lanes for them, those posted anew counted again.
    pub bytes_on_lanes: u64,
    /// Bytes posted for them on the QP itself: first and last pieces, and WRs that went whole after all.
    pub bytes_on_qp: u64,
}

impl MovedBytes {
    fn of(c: &MovedCounters) -> MovedBytes {
        let get = |a: &AtomicU64| a.load(Relaxed);
        MovedBytes {
            bytes_split: get(&c.bytes_split),
            bytes_on_lanes: get(&c.bytes_on_lanes),
            bytes_on_qp: get(&c.bytes_on_qp),
        }
    }

    fn add(&mut self, o: &MovedBytes) {
        self.bytes_split = self.bytes_split.wrapping_add(o.bytes_split);
        self.bytes_on_lanes = self.bytes_on_lanes.wrapping_add(o.bytes_on_lanes);
        self.bytes_on_qp = self.bytes_on_qp.wrapping_add(o.bytes_on_qp);
    }

    /// What was really posted, of `posted` bytes that the application posted. The copy is not one moment, so it saturates.
    pub fn carried(&self, posted: u64) -> u64 {
        posted.saturating_sub(self.bytes_split).saturating_add(self.bytes_on_lanes).saturating_add(self.bytes_on_qp)
    }
}

/// What engines did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MultipathCounts {
    /// WRs that were split: pieces of them were posted.
    pub wr_split: u64,
    /// Of these, WRs that were posted whole after all.
    pub wr_whole: u64,
    /// WRs that had to wait for an earlier one.
    pub wr_held: u64,
    /// Pieces posted on lanes.
    pub chunks: u64,
    /// Of these, pieces posted anew after a lane broke.
    pub chunks_replayed: u64,
    /// All WRs that were split.
    pub moved: MovedBytes,
    /// Of these, READs.
    pub reads: MovedBytes,
    /// Large WRs that passed whole, by [`crate::multipath::plan::Pass`] number.
    pub large_passed: [u64; PASS_REASONS],
}

impl MultipathCounts {
    /// From a segment.
    pub fn of(c: &MultipathCounters) -> MultipathCounts {
        let get = |a: &AtomicU64| a.load(Relaxed);
        MultipathCounts {
            wr_split: get(&c.wr_split),
            wr_whole: get(&c.wr_whole),
            wr_held: get(&c.wr_held),
            chunks: get(&c.chunks),
            chunks_replayed: get(&c.chunks_replayed),
            moved: MovedBytes::of(&c.moved),
            reads: MovedBytes::of(&c.moved_reads),
            large_passed: core::array::from_fn(|i| get(&c.large_passed[i])),
        }
    }

    /// Adds `o`.
    pub fn add(&mut self, o: &MultipathCounts) {
        macro_rules! sum { ($($f:ident)*) => { $(self.$f = self.$f.wrapping_add(o.$f);)* } }
        sum!(wr_split wr_whole wr_held chunks chunks_replayed);
        self.moved.add(&o.moved);
        self.reads.add(&o.reads);
        for (sum, one) in self.large_passed.iter_mut().zip(o.large_passed) {
            *sum = sum.wrapping_add(one);
        }
    }

    /// Bytes of sends that were really posted, pieces and repeated ones for what they are.
    pub fn bytes_carried(&self, sends: &Counters) -> u64 {
        self.moved.carried(sends.bytes_posted)
    }
}

/// What multi-path does to a QP.
#[derive(Clone, Copy, Debug)]
pub struct MultipathView {
    /// Index of the QP's record.
    pub index: u32,
    /// Why it has one path; `None` if it has several.
    pub single: Option<Single>,
    /// Lanes that take its pieces; of a QP that is gone: that did at its end.
    pub lanes: u32,
    /// Lanes that this side could not make.
    pub lanes_failed_here: u32,
    /// Lanes that the peer could not make, or did not want.
    pub lanes_failed_there: u32,
    /// What its engine did.
    pub counts: MultipathCounts,
}

/// From a segment.
pub(super) fn view(index: usize, r: &MultipathRecord) -> MultipathView {
    MultipathView {
        index: index as u32,
        single: Single::from_code(r.single.load(Relaxed)),
        lanes: r.lanes.load(Relaxed),
        lanes_failed_here: r.lanes_failed_here.load(Relaxed),
        lanes_failed_there: r.lanes_failed_there.load(Relaxed),
        counts: MultipathCounts::of(&r.counters),
    }
}
