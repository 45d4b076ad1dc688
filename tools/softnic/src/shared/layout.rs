//! What lies in a segment. Its version is part of the magic: processes of different builds do not share a network.

use super::lock::Locked;
use super::mapping::Shared;
use crate::core::responder::Responder;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Begins each segment and the registry; the last digits are the version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"softn001");

/// Elements of a receive.
pub const MAX_SGE: usize = 32;
/// QPs of a process.
pub const QPS: usize = 1 << 16;
/// Memory keys of a process.
pub const KEYS: usize = 1 << 20;
/// Entries of a page of QPs or keys.
pub const PAGE: usize = 256;
/// GIDs of a port.
pub const GIDS: usize = 64;

/// At the start of a segment.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`], stored last.
    pub magic: AtomicU64,
    /// Its owner.
    pub pid: AtomicU32,
    /// Counts what the owner shall look at: QPs that a peer put into error.
    pub attention: AtomicU32,
    /// Held while an atomic changes the owner's memory.
    pub atomics: Locked<()>,
    /// For peers that cannot reach the owner's memory.
    pub bounce: Bounce,
    /// Pages of offsets of [`Qp`]s.
    pub qps: [AtomicU64; QPS / PAGE],
    /// Pages of [`Key`]s.
    pub keys: [AtomicU64; KEYS / PAGE],
}

/// Bytes that are copied at a time where memory is not reached directly.
pub const BOUNCE: usize = 256 << 10;

/// Where the owner copies for peers.
#[repr(C)]
pub struct Bounce {
    /// Held by the peer that is served.
    pub turn: Locked<()>,
    /// What is asked for, or was done.
    pub state: AtomicU32,
    /// 1: the owner has a thread that serves.
    pub serves: AtomicU32,
    /// Pieces of the owner's memory.
    pub count: AtomicU32,
    /// Address and bytes of each.
    pub pieces: [[AtomicU64; 2]; MAX_SGE + 1],
    /// The bytes.
    pub data: UnsafeCell<[u64; BOUNCE / 8]>,
}

// SAFETY: the data is touched by the holder of the turn, and by the owner while the holder waits.
unsafe impl Sync for Bounce {}

/// A port's addresses, as peers see them.
#[repr(C)]
pub struct Port {
    /// How many.
    pub gids: AtomicU32,
    /// Whether it is up.
    pub up: AtomicU32,
    /// Each in two halves.
    pub gid: [[AtomicU64; 2]; GIDS],
}

/// A memory region or window.
#[repr(C)]
pub struct Key {
    /// The key, 0 if this entry is free; stored last.
    pub key: AtomicU32,
    /// Who is using it right now.
    pub users: AtomicU32,
    /// Its protection domain.
    pub pd: AtomicU32,
    /// `IBV_ACCESS_*`.
    pub access: AtomicU32,
    /// Where it is in the owner's memory.
    pub addr: AtomicU64,
    /// How long.
    pub len: AtomicU64,
    /// What WRs call the first byte.
    pub iova: AtomicU64,
    /// Windows of type 2: the QP that it is bound to.
    pub qp: AtomicU32,
    /// What it is: 0 a region, 1 or 2 a window.
    pub kind: AtomicU32,
}

/// A queue pair, as peers see it.
#[repr(C)]
pub struct Qp {
    /// Its number, 0 if it is gone.
    pub number: AtomicU32,
    /// `IBV_QPS_*`.
    pub state: AtomicU32,
    /// `IBV_QPT_*`.
    pub kind: AtomicU32,
    /// `IBV_ACCESS_REMOTE_*`.
    pub access: AtomicU32,
    /// Of datagrams.
    pub qkey: AtomicU32,
    /// Its protection domain.
    pub pd: AtomicU32,
    /// The number of the peer.
    pub peer: AtomicU32,
    /// 1: a peer put it into error, and the owner has not seen that yet.
    pub fault: AtomicU32,
    /// Answers that it gives at a time.
    pub max_answers: AtomicU32,
    /// Its context's queue of events.
    pub events: AtomicU32,
    /// Offset of its [`Port`].
    pub port: AtomicU64,
    /// Offset of the CQ of receives.
    pub recv_cq: AtomicU64,
    /// Offset of the SRQ; 0: its own queue.
    pub srq: AtomicU64,
    /// What the owner calls it.
    pub name: AtomicU64,
    /// Of how many sends the completions were polled: their slots are free again.
    pub sends_polled: AtomicU64,
    /// Its own receives.
    pub receives: Receives,
    /// What is guarded: the responder, and the receive of the message that comes in.
    pub inward: Locked<Inward>,
}

/// What whoever brings a packet changes.
#[repr(C)]
pub struct Inward {
    /// The state machine.
    pub responder: Responder,
    /// The receive that was taken.
    pub current: Receive,
}

/// A queue of receives: a ring that its owner fills. Those who take hold a lock of the QP or SRQ.
#[repr(C)]
pub struct Receives {
    /// Offset of the receives, each as long as its elements may be: see [`Receive::bytes`].
    pub ring: AtomicU64,
    /// How many there can be.
    pub slots: AtomicU32,
    /// Elements that each may have.
    pub elements: AtomicU32,
    /// How many were taken.
    pub head: AtomicU64,
    /// How many were posted.
    pub tail: AtomicU64,
    /// Of how many the completions were polled: their slots are free again.
    pub polled: AtomicU64,
}

/// A receive.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Receive {
    /// The program's.
    pub id: u64,
    /// Elements.
    pub n: u32,
    /// Elements.
    pub elements: [Element; MAX_SGE],
}

impl Receive {
    /// Nothing.
    pub const EMPTY: Receive = Receive { id: 0, n: 0, elements: [Element { addr: 0, bytes: 0, key: 0 }; MAX_SGE] };

    /// Bytes of a receive that may have so many elements.
    pub const fn bytes(elements: usize) -> usize {
        core::mem::offset_of!(Receive, elements) + elements * size_of::<Element>()
    }
}

/// A piece of the owner's memory.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Element {
    /// Where.
    pub addr: u64,
    /// Bytes.
    pub bytes: u32,
    /// Local key.
    pub key: u32,
}

/// A shared receive queue.
#[repr(C)]
pub struct Srq {
    /// Held by those who take.
    pub taking: Locked<()>,
    /// The receives.
    pub receives: Receives,
    /// An event is due when fewer are left; 0: none.
    pub limit: AtomicU32,
    /// Its protection domain.
    pub pd: AtomicU32,
    /// Its context's queue of events.
    pub events: AtomicU32,
    /// XRC: its number and its CQ.
    pub number: AtomicU32,
    /// Offset of the CQ, of XRC only.
    pub cq: AtomicU64,
    /// What the owner calls it.
    pub name: AtomicU64,
}

/// A completion queue: a ring that the owner empties.
#[repr(C)]
pub struct Cq {
    /// Held by those who append, and while it is resized.
    pub appending: Locked<()>,
    /// Offset of the [`Completion`]s.
    pub ring: AtomicU64,
    /// How many there can be.
    pub slots: AtomicU32,
    /// 0; 1: an event is asked for; 2: for a solicited one.
    pub armed: AtomicU32,
    /// How many were polled.
    pub head: AtomicU64,
    /// How many were appended.
    pub tail: AtomicU64,
    /// Its channel's queue of events, 0 if it has none.
    pub channel: AtomicU32,
    /// Its context's queue of events.
    pub events: AtomicU32,
    /// 1: one did not fit. It takes no more.
    pub overrun: AtomicU32,
    /// What the owner calls it.
    pub name: AtomicU64,
}

/// A completion.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Completion {
    /// The program's.
    pub id: u64,
    /// `IBV_WC_*`.
    pub status: u32,
    /// `IBV_WC_*`.
    pub opcode: u32,
    /// More about a failure.
    pub vendor_err: u32,
    /// Bytes.
    pub bytes: u32,
    /// Immediate, or invalidated key.
    pub extra: u32,
    /// Whose.
    pub qp: u32,
    /// Datagrams: who sent it.
    pub source: u32,
    /// `IBV_WC_*` flags.
    pub flags: u32,
    /// When, in ns of the monotonic clock.
    pub time: u64,
    /// Of a send: how many of its queue are over.
    pub sends: u64,
    /// Of a receive: offset of the [`Receives`] that it was taken from.
    pub receives: u64,
}

// SAFETY: as `Shared` demands, for each of these: integers, atomics, locks. A `Responder` holds bools: a peer that writes
// anything else into one breaks the network that it is part of; all processes of a network are of one user and one build.
unsafe impl Shared for Header {}
// SAFETY: as above.
unsafe impl Shared for Port {}
// SAFETY: as above.
unsafe impl Shared for Key {}
// SAFETY: as above.
unsafe impl Shared for Qp {}
// SAFETY: as above.
unsafe impl Shared for Receives {}
// SAFETY: as above.
unsafe impl Shared for Srq {}
// SAFETY: as above.
unsafe impl Shared for Cq {}
