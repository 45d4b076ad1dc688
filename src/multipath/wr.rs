//! A send work request in the engine's terms: borrowed where it only passes by, owned where it is held back.

use rdma_sys::{ibv_send_flags, ibv_wr_opcode};

/// `IBV_SEND_FENCE`.
pub const FENCE: u32 = ibv_send_flags::IBV_SEND_FENCE.0;
/// `IBV_SEND_SIGNALED`.
pub const SIGNALED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;
/// `IBV_SEND_SOLICITED`.
pub const SOLICITED: u32 = ibv_send_flags::IBV_SEND_SOLICITED.0;
/// `IBV_SEND_INLINE`.
pub const INLINE: u32 = ibv_send_flags::IBV_SEND_INLINE.0;

/// `IBV_WR_RDMA_WRITE`.
pub const WRITE: u32 = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
/// `IBV_WR_RDMA_WRITE_WITH_IMM`.
pub const WRITE_WITH_IMM: u32 = ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
/// `IBV_WR_RDMA_READ`.
pub const READ: u32 = ibv_wr_opcode::IBV_WR_RDMA_READ;

/// One scatter/gather element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// Virtual address, in the application's process.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// The fields of a WR that have one size. Those that its opcode does not use may hold anything; they travel unread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Application's id; any value, and not unique.
    pub wr_id: u64,
    /// `enum ibv_wr_opcode`.
    pub opcode: u32,
    /// `enum ibv_send_flags`, or-ed.
    pub flags: u32,
    /// First byte at the target; of an atomic, its operand there.
    pub remote_addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Immediate data as it travels (big endian), or the key to invalidate.
    pub imm: u32,
    /// `wr.atomic.compare_add`.
    pub compare_add: u64,
    /// `wr.atomic.swap`.
    pub swap: u64,
    /// Whatever else the driver needs to build the WR anew: the window, key and range of a BIND_MW.
    pub extra: [u64; 6],
}

/// A WR that lies in somebody else's memory.
#[derive(Clone, Copy, Debug)]
pub struct WrRef<'a> {
    /// Fixed part.
    pub fields: Fields,
    /// Scatter/gather list; empty for an inline WR whose data is in `inline`.
    pub sges: &'a [Sge],
    /// Data of a WR with [`INLINE`], gathered: after the post the application may reuse its buffers.
    pub inline: &'a [u8],
}

impl WrRef<'_> {
    /// Payload, bytes.
    pub fn bytes(&self) -> u64 {
        self.sges.iter().map(|s| u64::from(s.length)).sum::<u64>() + self.inline.len() as u64
    }

    /// Whether all these flags are set.
    pub fn has(&self, flags: u32) -> bool {
        self.fields.flags & flags == flags
    }
}

/// A WR of our own, a deep copy. Its buffers are meant to be filled again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wr {
    /// Fixed part.
    pub fields: Fields,
    /// Scatter/gather list.
    pub sges: Vec<Sge>,
    /// Inline data.
    pub inline: Vec<u8>,
}

impl Wr {
    /// Becomes a copy of `other`; allocates only what its buffers lack. False: no memory.
    pub fn copy_from(&mut self, other: &WrRef<'_>) -> bool {
        self.fields = other.fields;
        self.sges.clear();
        self.inline.clear();
        if self.sges.try_reserve(other.sges.len()).is_err() || self.inline.try_reserve(other.inline.len()).is_err() {
            return false;
        }
        self.sges.extend_from_slice(other.sges);
        self.inline.extend_from_slice(other.inline);
        true
    }

    /// Borrows it.
    pub fn view(&self) -> WrRef<'_> {
        WrRef { fields: self.fields, sges: &self.sges, inline: &self.inline }
    }
}

/// Appends to `out` the elements that describe bytes `offset..offset + length` of the message that `sges` describes.
/// Elements of no length are left out.
pub fn sublist(sges: &[Sge], offset: u32, length: u32, out: &mut Vec<Sge>) {
    let (mut skip, mut left) = (offset, length);
    for s in sges {
        if left == 0 {
            break;
        }
        if skip >= s.length {
            skip -= s.length;
            continue;
        }
        let take = left.min(s.length - skip);
        out.push(Sge { addr: s.addr.wrapping_add(u64::from(skip)), length: take, lkey: s.lkey });
        skip = 0;
        left -= take;
    }
}
