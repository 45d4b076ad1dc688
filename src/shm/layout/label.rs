//! Whom a QP works for, in the segment: its own address, and what NCCL said of its last WR.

use super::Shared;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Same index as the QP's [`super::QpRecord`], whose identity it shares.
#[repr(C, align(64))]
pub struct LabelRecord {
    /// Odd while the label changes.
    pub seq: AtomicU32,
    /// Bits of [`label_flags`]; what is not known is not set.
    pub known: AtomicU32,
    /// The address that the QP sends from, 16 bytes in network order, as two words of memory; zero: not known.
    pub local_gid: [AtomicU64; 2],
    /// Communicator.
    pub group: AtomicU64,
    /// Own rank within it.
    pub rank: AtomicU32,
    /// The peer's.
    pub peer_rank: AtomicU32,
    /// Channel.
    pub channel: AtomicU32,
    /// A number of `ncclFunc_t`.
    pub func: AtomicU32,
    /// How many times it ran.
    pub func_times: AtomicU64,
    /// WRs with a label.
    pub wr_labelled: AtomicU64,
    /// Changes of communicator, peer, channel or direction, the first not counted: how often the QP was another's.
    pub changes: AtomicU64,
    /// Reserved, zero.
    pub reserved: [AtomicU64; 7],
}

/// Bits of [`LabelRecord::known`].
pub mod label_flags {
    /// There was a WR with a label: the channel and the direction are known.
    pub const LABELLED: u32 = 1;
    /// The QP sends the data; else it posts what the sender waits for.
    pub const SENDS: u32 = 2;
    /// The communicator and the own rank.
    pub const GROUP: u32 = 4;
    /// The peer's rank.
    pub const PEER: u32 = 8;
    /// The function.
    pub const FUNC: u32 = 16;
}

const _: () = assert!(size_of::<LabelRecord>() == 128);

// SAFETY: repr(C), made of atomics only, and all-zero is a valid value.
unsafe impl Shared for LabelRecord {}
