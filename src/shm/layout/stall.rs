//! How long sends wait, in the segment; and what an error found outstanding.

use super::Shared;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Stalls of one QP, or of all that a port or a peer had. Changed under the registry's lock.
#[repr(C)]
pub struct StallCounters {
    /// Stalls.
    pub stalls: AtomicU64,
    /// The longest, one that lasts included, ns.
    pub longest_ns: AtomicU64,
}

/// What the watch saw of a QP's sends; same index as its [`super::QpRecord`]. There is one where stalls are watched for.
#[repr(C, align(64))]
pub struct StallRecord {
    /// CLOCK_REALTIME, ns: the oldest outstanding send was posted then, or up to one look of the watch before; 0: no send is
    /// outstanding that a completion is asked for.
    pub oldest_ns: AtomicU64,
    /// CLOCK_REALTIME, ns, since when nothing completes; 0: it does not stall.
    pub stalled_ns: AtomicU64,
    /// How often its send CQ was polled since.
    pub cq_polls: AtomicU64,
    /// Stalls so far.
    pub counters: StallCounters,
    /// Index of the record of its send CQ, or [`super::NONE`].
    pub send_cq: AtomicU32,
    /// Reserved, zero.
    pub reserved: AtomicU32,
    /// Reserved, zero.
    pub reserved2: [AtomicU64; 2],
}

/// What was outstanding when a completion in error was polled, the failed WR included.
#[repr(C)]
pub struct Outstood {
    /// WRs.
    pub wr: AtomicU64,
    /// Bytes.
    pub bytes: AtomicU64,
    /// Opcode of the oldest send and 1; 0: not known.
    pub opcode: AtomicU64,
}

const _: () = assert!(size_of::<StallRecord>() == 64);

// SAFETY: repr(C), made of atomics only, and all-zero is a valid value.
unsafe impl Shared for StallRecord {}
