//! What travels: runs of packets of one message one way, replies the other.

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Takes a receive.
    Send,
    /// Into remote memory.
    Write,
    /// From remote memory.
    Read,
    /// Atomic.
    CompareSwap,
    /// Atomic.
    FetchAdd,
    /// Nothing travels: done by the NIC itself, in the queue's order.
    Local,
}

impl Op {
    /// Whether its answer brings data, so that no other reply can stand for it.
    pub fn is_answered(self) -> bool {
        matches!(self, Op::Read | Op::CompareSwap | Op::FetchAdd)
    }

    /// Whether it is an atomic.
    pub fn is_atomic(self) -> bool {
        matches!(self, Op::CompareSwap | Op::FetchAdd)
    }
}

/// What the last packet of a message brings besides data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Extra {
    /// Nothing.
    #[default]
    None,
    /// An immediate, as it lies in memory.
    Immediate(u32),
    /// A key to invalidate.
    Invalidate(u32),
}

/// A run of packets of one message, as long as a segment at most. They share one fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// What for.
    pub op: Op,
    /// The first PSN.
    pub psn: u32,
    /// How many PSNs.
    pub psns: u32,
    /// Number of the WR in its queue.
    pub wr: u64,
    /// Where in the message it begins.
    pub offset: u32,
    /// Bytes that it brings, or asks for.
    pub bytes: u32,
    /// Bytes of the message.
    pub total: u32,
    /// With the last packet only.
    pub extra: Extra,
    /// Raise the receiver's event.
    pub solicited: bool,
    /// Remote address of the message.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Of atomics: compare and swap, or what to add.
    pub operands: [u64; 2],
}

impl Packet {
    /// Whether it begins the message.
    pub fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Whether it ends the message.
    pub fn is_last(&self) -> bool {
        self.offset + self.bytes == self.total
    }
}

/// Why a request is refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// NAK, invalid request.
    InvalidRequest,
    /// NAK, remote access error.
    Access,
    /// NAK, remote operational error.
    Operation,
}

/// What comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// All up to this PSN has been executed.
    Ack {
        /// The last one.
        psn: u32,
    },
    /// The answer to a read or an atomic.
    Data {
        /// The first PSN of the request.
        psn: u32,
        /// How many PSNs.
        psns: u32,
        /// Bytes on the way back.
        bytes: u32,
        /// Of an atomic: what was there before.
        value: u64,
    },
    /// This PSN was expected.
    OutOfOrder {
        /// Which.
        psn: u32,
    },
    /// No receive for this PSN.
    NotReady {
        /// Which.
        psn: u32,
        /// Code of the wait.
        timer: u8,
    },
    /// This PSN was refused.
    Refused {
        /// Which.
        psn: u32,
        /// Why.
        why: Refusal,
    },
}
