//! Where a process can be reached by other processes' side channels, in the segment.

use super::Shared;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// A GID of this process at whose address its side channel listens.
#[repr(C, align(64))]
pub struct AddressRecord {
    /// 0 = unused, 1 = in use. SYNC POINT: Release store after the rest, which never changes.
    pub used: AtomicU32,
    /// Index of the port record of the GID's port: QPs of that port have this address.
    pub port: AtomicU32,
    /// TCP port at the GID's address where this process listens alone.
    pub own_port: AtomicU32,
    /// Reserved, zero.
    pub reserved: AtomicU32,
    /// The GID, 16 bytes in network order, as two words of memory.
    pub gid: [AtomicU64; 2],
    /// Reserved, zero.
    pub reserved2: [AtomicU64; 4],
}

// SAFETY: repr(C), made of atomics only, and all-zero is a valid value.
unsafe impl Shared for AddressRecord {}
