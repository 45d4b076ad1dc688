//! What multi-path did to a QP, in the segment: beside the QP's own counters, which say what the application posted.

use super::Shared;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Reasons of [`crate::multipath::plan::Pass`] that are counted apart, and some to come.
pub const PASS_REASONS: usize = 16;

/// Bytes of WRs that were split, and where they went.
#[repr(C)]
pub struct MovedCounters {
    /// Bytes of these WRs, as the application posted them.
    pub bytes_split: AtomicU64,
    /// Bytes posted on lanes for them, those posted anew counted again.
    pub bytes_on_lanes: AtomicU64,
    /// Bytes posted for them on the QP itself: first and last pieces, and WRs that went whole after all.
    pub bytes_on_qp: AtomicU64,
}

/// Work of a QP's engine. Written under the engine's lock.
#[repr(C)]
pub struct MultipathCounters {
    /// WRs that were split: pieces of them were posted.
    pub wr_split: AtomicU64,
    /// Of these, WRs that were posted whole after all.
    pub wr_whole: AtomicU64,
    /// WRs that had to wait for an earlier one.
    pub wr_held: AtomicU64,
    /// Pieces posted on lanes.
    pub chunks: AtomicU64,
    /// Of these, pieces posted anew after a lane broke.
    pub chunks_replayed: AtomicU64,
    /// Bytes of all WRs that were split.
    pub moved: MovedCounters,
    /// Of these, bytes of READs.
    pub moved_reads: MovedCounters,
    /// WRs of at least the size from which messages are split that passed whole, by
    /// [`crate::multipath::plan::Pass`] number.
    pub large_passed: [AtomicU64; PASS_REASONS],
}

/// A QP of a process with multi-path on; same index as its [`super::QpRecord`], whose `seq` and `life` are its own, too.
#[repr(C, align(64))]
pub struct MultipathRecord {
    /// Why it has one path: code of a [`crate::multipath::single::Single`], 0 = it has several.
    pub single: AtomicU32,
    /// Lanes that take its pieces now.
    pub lanes: AtomicU32,
    /// Lanes that this side could not make.
    pub lanes_failed_here: AtomicU32,
    /// Lanes that the peer could not make, or did not want.
    pub lanes_failed_there: AtomicU32,
    /// What its engine did.
    pub counters: MultipathCounters,
}

const _: () = assert!(size_of::<MultipathRecord>() == 256);

// SAFETY: repr(C), made of atomics only, and all-zero is a valid value.
unsafe impl Shared for MultipathRecord {}
