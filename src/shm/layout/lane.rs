//! Lanes of multi-path in the segment: what they carry is besides the application's own QPs, and in no port's or peer's sum.

use super::{DoneCounters, LatencyCounters, PostCounters, Shared};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// A QP of the library's own, over one path to one process. Its WRs are chunks of the application's.
#[repr(C, align(64))]
pub struct LaneRecord {
    /// Odd while the identity changes.
    pub seq: AtomicU32,
    /// A [`super::Life`].
    pub life: AtomicU32,
    /// Which path of its port it takes, from 0.
    pub path: AtomicU32,
    /// Index of the port record, or [`super::NONE`].
    pub port: AtomicU32,
    /// The QP's number.
    pub qp_num: AtomicU32,
    /// The peer's QP number.
    pub dest_qp_num: AtomicU32,
    /// The application's QPs that it serves now.
    pub qps: AtomicU32,
    /// Reserved, zero.
    pub reserved: AtomicU32,
    /// The path's own GID, 16 bytes in network order, as two words of memory.
    pub local_gid: [AtomicU64; 2],
    /// The peer's GID, likewise.
    pub remote_gid: [AtomicU64; 2],
    /// CLOCK_REALTIME at creation, ns.
    pub created_ns: AtomicU64,
    /// Chunks posted. Written under the lane's lock, as all counters are.
    pub post: PostCounters,
    /// Chunks done.
    pub done: DoneCounters,
    /// From post to poll of each chunk.
    pub latency: LatencyCounters,
}

// SAFETY: repr(C), made of atomics only, and all-zero is a valid value.
unsafe impl Shared for LaneRecord {}
