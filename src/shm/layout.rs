//! The segment's layout: the ABI between the shim (writer) and every reader.
//!
//! A segment is one file, `telereduce.UID.PID`. It starts with a [`Header`]; the rest is a list of *regions*, each an
//! array of records of one kind, appended as the process needs more of them:
//!
//! ```text
//! 0        Header        identity, heartbeat, drop counters, region directory
//! 8 KiB    Port  region  one record per (device, port), with what retired QPs left behind
//!          Peer  region  one record per (port, remote GID or LID), likewise
//!          Cq    region  empty polls, completions
//!          Srq   region  receives posted to and taken from shared receive queues
//!          Qp    region  identity and hot counters (one refresh of a viewer reads only these)
//!          QpDetail      per opcode, per status, latency; same index as Qp
//!          Context       one record per opened device context: how its calls are reached
//!          Lane  region  multi-path: identity and counters of the library's own QPs
//!          Address       multi-path: where the process listens for other processes' side channels
//!          Multipath     what multi-path did to each QP, and why it did not; same index as Qp
//!          Label         whom each QP works for: its address, and NCCL's communicator, ranks, channel; same index as Qp
//!          Stall region  how long sends wait, where that is watched; same index as Qp
//!          Ring  region  completion events and stalls, the newest overwrite the oldest
//!          ...           more regions of any kind
//! ```
//!
//! Rules: every word is written with a single aligned store, so a reader never sees half of one; counters only grow
//! while a record keeps its identity; a record's identity is guarded by its `seq` (odd while it changes). Readers copy
//! the file with `pread` and never map it, so that a truncated file cannot kill them. [`Header::magic`] is stored last,
//! and a reader refuses any [`ABI_VERSION`] but its own. All integers are little-endian, as the machine writes them.

mod address;
mod context;
mod label;
mod lane;
mod multipath;
mod stall;

pub use address::AddressRecord;
pub use context::{ContextRecord, Hooked};
use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64};
pub use label::{LabelRecord, label_flags};
pub use lane::LaneRecord;
pub use multipath::{MovedCounters, MultipathCounters, MultipathRecord, PASS_REASONS};
pub use stall::{Outstood, StallCounters, StallRecord};

/// First eight bytes of a complete segment, `TELERED` and a NUL.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TELERED\0");
/// Version of everything in this file. Any change of layout or meaning raises it.
pub const ABI_VERSION: u32 = 8;
/// Number of entries in the region directory.
pub const MAX_REGIONS: usize = 200;
/// Bytes of the header, a whole number of pages.
pub const HEADER_BYTES: usize = 8192;
/// "No such index": a QP before INIT has no port, a UD QP no peer.
pub const NONE: u32 = u32::MAX;
/// Work-request opcodes that are counted apart (`enum ibv_wr_opcode` ends at 15).
pub const OPCODES: usize = 16;
/// Completion statuses that are counted apart (`enum ibv_wc_status` ends at 23; others go to the last).
pub const STATUSES: usize = 24;
/// Buckets of a latency histogram, see [`crate::telemetry::histogram`].
pub const BUCKETS: usize = 64;
/// Events a ring holds.
pub const RING_EVENTS: usize = 1024;

/// Marker for types that may live in a segment.
///
/// # Safety
/// The type is `repr(C)`, holds only atomics or arrays of such types, no pointers, and is valid when all bytes are zero.
pub unsafe trait Shared: Sync + 'static {}

/// What the records of a region are.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`PortRecord`]
    Port = 1,
    /// [`PeerRecord`]
    Peer = 2,
    /// [`CqRecord`]
    Cq = 3,
    /// [`SrqRecord`]
    Srq = 4,
    /// [`QpRecord`]
    Qp = 5,
    /// [`QpDetail`], parallel to `Qp`
    QpDetail = 6,
    /// [`RingRecord`]
    Ring = 7,
    /// [`ContextRecord`]
    Context = 8,
    /// [`LaneRecord`]
    Lane = 9,
    /// [`AddressRecord`]
    Address = 10,
    /// [`MultipathRecord`], parallel to `Qp`
    Multipath = 11,
    /// [`LabelRecord`], parallel to `Qp`
    Label = 12,
    /// [`StallRecord`], parallel to `Qp`
    Stall = 13,
}

impl Kind {
    /// Every kind with its record's size in bytes.
    pub const ALL: [(Kind, usize); 13] = [
        (Kind::Port, size_of::<PortRecord>()),
        (Kind::Peer, size_of::<PeerRecord>()),
        (Kind::Cq, size_of::<CqRecord>()),
        (Kind::Srq, size_of::<SrqRecord>()),
        (Kind::Qp, size_of::<QpRecord>()),
        (Kind::QpDetail, size_of::<QpDetail>()),
        (Kind::Ring, size_of::<RingRecord>()),
        (Kind::Context, size_of::<ContextRecord>()),
        (Kind::Lane, size_of::<LaneRecord>()),
        (Kind::Address, size_of::<AddressRecord>()),
        (Kind::Multipath, size_of::<MultipathRecord>()),
        (Kind::Label, size_of::<LabelRecord>()),
        (Kind::Stall, size_of::<StallRecord>()),
    ];

    /// The kind a region's number stands for, if this version knows it.
    pub fn from_u32(n: u32) -> Option<(Kind, usize)> {
        Self::ALL.into_iter().find(|(k, _)| *k as u32 == n)
    }
}

/// One entry of the region directory. Entries below `Header::region_count` are complete and never change.
#[repr(C)]
pub struct Region {
    /// A [`Kind`].
    pub kind: AtomicU32,
    /// Size of one record; must equal the size this version knows for the kind.
    pub record_bytes: AtomicU32,
    /// Number of records.
    pub count: AtomicU32,
    /// Index of the first record among all records of its kind.
    pub first_index: AtomicU32,
    /// Where the first record stands in the file, a multiple of 4096.
    pub offset: AtomicU64,
    /// Reserved, zero.
    pub reserved: AtomicU64,
}

/// The start of a segment.
#[repr(C, align(64))]
pub struct Header {
    /// [`MAGIC`], stored last.
    pub magic: AtomicU64,
    /// [`ABI_VERSION`].
    pub version: AtomicU32,
    /// [`HEADER_BYTES`].
    pub header_bytes: AtomicU32,
    /// Process id, in the process's own pid namespace.
    pub pid: AtomicU32,
    /// Effective user id.
    pub uid: AtomicU32,
    /// Start time of the process in clock ticks since boot (field 22 of `/proc/PID/stat`); tells a reused pid apart.
    pub start_time_ticks: AtomicU64,
    /// CLOCK_REALTIME at creation, ns.
    pub created_ns: AtomicU64,
    /// Bytes of the file that regions may use.
    pub file_bytes: AtomicU64,
    /// Complete entries of `regions`. SYNC POINT: Release store by the writer, after the entry and its records.
    pub region_count: AtomicU32,
    /// In how many sends one has its latency measured, the next signaled one; 0 = none.
    pub latency_every: AtomicU32,
    /// Odd while a retired QP's counters move to its port and peer; a reader that saw a change sums again.
    pub fold_seq: AtomicU64,
    /// CLOCK_REALTIME of the last control call, ns. The process's heartbeat is the latest of this and the CQs' `last_ns`.
    pub heartbeat_ns: AtomicU64,
    /// Rank from the launcher's environment, or -1 as two's complement.
    pub rank: AtomicU64,
    /// World size from the launcher's environment, or 0.
    pub world_size: AtomicU64,
    /// QPs, CQs and SRQs that got no record (no memory in the segment): their traffic is not counted. Address handles for which
    /// there was no room: their traffic has no peer.
    pub objects_untracked: AtomicU64,
    /// Completions whose work request was never seen.
    pub completions_unmatched: AtomicU64,
    /// Panics inside the shim; after the first, counting stops.
    pub panics: AtomicU64,
    /// Messages of at most this many bytes make no event.
    pub min_event_bytes: AtomicU64,
    /// WRs posted to QPs and SRQs that are not counted: made by calls that were not seen, or without a record.
    pub wrs_unseen: AtomicU64,
    /// QPs and CQs ever created of whose traffic some may not be seen; each is marked, see [`flags::OPAQUE`].
    pub objects_opaque: AtomicU64,
    /// The network namespace in which multi-path's side channel lives, by its number in /proc; 0: there is none, or its number
    /// is not known.
    pub network: AtomicU64,
    /// Transfers that are not in the log: it was too slow for them, or could not be written.
    pub log_dropped: AtomicU64,
    /// Reserved, zero.
    pub reserved: [AtomicU64; 3],
    /// Job id from the launcher's environment, UTF-8, NUL-padded; empty: none.
    pub job: Text<64>,
    /// Host name, UTF-8, NUL-padded.
    pub host: Text<64>,
    /// Command line, arguments joined by spaces, UTF-8, NUL-padded.
    pub command: Text<256>,
    /// The region directory.
    pub regions: [Region; MAX_REGIONS],
}

/// NUL-padded UTF-8 of at most N bytes, stored in words so that no byte is half written.
#[repr(C)]
pub struct Text<const N: usize>(pub [core::sync::atomic::AtomicU8; N]);

/// Work requests and bytes of one direction that left the queue, and high-water marks.
///
/// `posted = retired + outstanding` and `retired = completed + failed + dropped`, for WRs and for bytes: what completed
/// is not stored, but the difference.
#[repr(C)]
pub struct DoneCounters {
    /// WRs that left the queue: by a completion, their own or a later one's, or dropped.
    pub wr_retired: AtomicU64,
    /// Bytes of `wr_retired`. Receive: buffer bytes.
    pub bytes_retired: AtomicU64,
    /// WRs that completed in error, flushes included.
    pub wr_failed: AtomicU64,
    /// Bytes of `wr_failed`.
    pub bytes_failed: AtomicU64,
    /// WRs that vanished without a completion (RESET, destroy).
    pub wr_dropped: AtomicU64,
    /// Bytes of `wr_dropped`.
    pub bytes_dropped: AtomicU64,
    /// Receive only: bytes that arrived, at most the buffer bytes that completed.
    pub bytes_arrived: AtomicU64,
    /// Completions polled.
    pub cqes: AtomicU64,
    /// Highest number of WRs outstanding, seen at completions.
    pub wr_high_water: AtomicU64,
    /// Highest number of bytes outstanding, seen at completions.
    pub bytes_high_water: AtomicU64,
    /// CLOCK_REALTIME of the last event or sampled completion, ns; 0 = none.
    pub last_ns: AtomicU64,
    /// Reserved, zero.
    pub reserved: [AtomicU64; 5],
}

/// Work requests and bytes of one direction that entered the queue.
#[repr(C, align(64))]
pub struct PostCounters {
    /// WRs that the provider accepted.
    pub wr_posted: AtomicU64,
    /// Send: payload bytes. Receive: buffer bytes.
    pub bytes_posted: AtomicU64,
    /// Number of the last of them, from 1, that asks for a completion; 0: none.
    pub wr_asked: AtomicU64,
    /// Reserved, zero.
    pub reserved: [AtomicU64; 5],
}

/// Life of a record.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Unused.
    Free = 0,
    /// The object exists.
    Live = 1,
    /// The object is gone, its counters stay until the record is needed again.
    Retired = 2,
}

/// A queue pair: identity and hot counters.
#[repr(C, align(64))]
pub struct QpRecord {
    /// Odd while the identity changes.
    pub seq: AtomicU32,
    /// A [`Life`].
    pub life: AtomicU32,
    /// The QP's number.
    pub qp_num: AtomicU32,
    /// The peer's QP number, 0 before RTR.
    pub dest_qp_num: AtomicU32,
    /// Index of the device's name among the ports: any port record of the device, or [`NONE`].
    pub port: AtomicU32,
    /// Index of the peer record, or [`NONE`].
    pub peer: AtomicU32,
    /// `enum ibv_qp_type`.
    pub qp_type: AtomicU32,
    /// `enum ibv_qp_state`, as last set by ibv_modify_qp.
    pub qp_state: AtomicU32,
    /// Index of the SRQ record, or [`NONE`].
    pub srq: AtomicU32,
    /// `max_send_wr` as granted.
    pub max_send_wr: AtomicU32,
    /// `max_recv_wr` as granted.
    pub max_recv_wr: AtomicU32,
    /// Bits of [`flags`].
    pub flags: AtomicU32,
    /// CLOCK_REALTIME at creation, ns.
    pub created_ns: AtomicU64,
    /// CLOCK_REALTIME at retirement, ns, or 0.
    pub retired_ns: AtomicU64,
    /// Sends posted. Written by the posting thread.
    pub send_post: PostCounters,
    /// Receives posted. Written by the posting thread.
    pub recv_post: PostCounters,
    /// Sends done. Written by the thread that polls the send CQ.
    pub send_done: DoneCounters,
    /// Receives done. Written by the thread that polls the receive CQ.
    pub recv_done: DoneCounters,
}

/// Bits of [`QpRecord::flags`].
pub mod flags {
    /// `sq_sig_all` was set: every send makes a completion.
    pub const SIG_ALL: u32 = 1;
    /// Some of what the QP does may not be seen: it was created or opened up by a vendor's call, or has operations that
    /// could not be hooked. What was seen is counted.
    pub const OPAQUE: u32 = 2;
}

/// WRs and bytes posted with one opcode.
#[repr(C)]
pub struct OpcodeCounters {
    /// WRs posted.
    pub wr: AtomicU64,
    /// Bytes posted.
    pub bytes: AtomicU64,
}

/// A latency histogram; buckets as in [`crate::telemetry::histogram`].
#[repr(C)]
pub struct LatencyCounters {
    /// Samples.
    pub count: AtomicU64,
    /// Sum of the samples, ns.
    pub sum_ns: AtomicU64,
    /// Largest sample, ns.
    pub max_ns: AtomicU64,
    /// Reserved, zero.
    pub reserved: [AtomicU64; 5],
    /// Samples per bucket.
    pub buckets: [AtomicU64; BUCKETS],
}

/// Completions in error.
#[repr(C)]
pub struct ErrorCounters {
    /// By `enum ibv_wc_status`; index 0 (success) stays 0.
    pub by_status: [AtomicU64; STATUSES],
    /// The last error that was not a flush: `status << 32 | vendor_err`; 0 = none.
    pub last: AtomicU64,
    /// Its wr_id.
    pub last_wr_id: AtomicU64,
    /// Its CLOCK_REALTIME, ns.
    pub last_ns: AtomicU64,
    /// What it found outstanding.
    pub last_outstood: Outstood,
    /// Reserved, zero.
    pub reserved: [AtomicU64; 2],
}

/// The rest of a queue pair's counters.
#[repr(C, align(64))]
pub struct QpDetail {
    /// Sends posted, by `enum ibv_wr_opcode`. Written by the posting thread.
    pub opcodes: [OpcodeCounters; OPCODES],
    /// Send completions in error. Written by the thread that polls the send CQ.
    pub send_errors: ErrorCounters,
    /// Receive completions in error. Written by the thread that polls the receive CQ.
    pub recv_errors: ErrorCounters,
    /// From ibv_post_send to the poll that returned the completion. Written by the thread that polls the send CQ.
    pub latency: LatencyCounters,
}

/// Everything a retired QP leaves to its port and its peer. Of a peer, several threads may add to it.
#[repr(C, align(64))]
pub struct Totals {
    /// Sends posted.
    pub send_post: PostCounters,
    /// Receives posted.
    pub recv_post: PostCounters,
    /// Sends done.
    pub send_done: DoneCounters,
    /// Receives done.
    pub recv_done: DoneCounters,
    /// By opcode, by status, latency.
    pub detail: QpDetail,
}

/// A port of a device.
#[repr(C, align(64))]
pub struct PortRecord {
    /// 0 = unused, 1 = in use. SYNC POINT: Release store after the identity.
    pub used: AtomicU32,
    /// Port number, from 1; 0 = QPs of the device that never reached INIT.
    pub port_num: AtomicU32,
    /// Reserved, zero.
    pub reserved: [AtomicU64; 7],
    /// Device name, as `ibv_get_device_name` says it.
    pub device: Text<64>,
    /// What retired QPs left.
    pub retired: Totals,
    /// What multi-path did for them.
    pub retired_multipath: MultipathCounters,
    /// Their stalls.
    pub retired_stalls: StallCounters,
}

/// The far end of connected QPs and of datagrams: one address seen from one port.
#[repr(C, align(64))]
pub struct PeerRecord {
    /// 0 = unused, 1 = in use. SYNC POINT: Release store after the identity.
    pub used: AtomicU32,
    /// Index of the port record.
    pub port: AtomicU32,
    /// LID where there is no GID, else 0.
    pub lid: AtomicU32,
    /// 1 if `gid` is valid.
    pub is_global: AtomicU32,
    /// The remote GID, 16 bytes in network order, as two words of memory.
    pub gid: [AtomicU64; 2],
    /// Reserved, zero.
    pub reserved: [AtomicU64; 4],
    /// What retired QPs left, and all datagrams that were sent to it: UD QPs have no peer of their own.
    pub retired: Totals,
    /// Their stalls.
    pub retired_stalls: StallCounters,
}

/// A completion queue.
#[repr(C, align(64))]
pub struct CqRecord {
    /// A [`Life`].
    pub life: AtomicU32,
    /// Entries as granted.
    pub cqe: AtomicU32,
    /// Index of any port record of the device.
    pub port: AtomicU32,
    /// Bits of [`cq_flags`].
    pub flags: AtomicU32,
    /// Calls of ibv_poll_cq that returned nothing.
    pub polls_empty: AtomicU64,
    /// Completions returned.
    pub cqes: AtomicU64,
    /// CLOCK_REALTIME of the last completion that was timed, ns.
    pub last_ns: AtomicU64,
    /// Reserved, zero.
    pub reserved: [AtomicU64; 3],
}

/// Bits of [`CqRecord::flags`].
pub mod cq_flags {
    /// Some completions may not be seen, as [`super::flags::OPAQUE`] says of a QP.
    pub const OPAQUE: u32 = 1;
}

/// A shared receive queue.
#[repr(C, align(64))]
pub struct SrqRecord {
    /// A [`Life`].
    pub life: AtomicU32,
    /// `max_wr` as granted.
    pub max_wr: AtomicU32,
    /// Index of any port record of the device.
    pub port: AtomicU32,
    /// Reserved, zero.
    pub reserved: AtomicU32,
    /// Reserved, zero.
    pub reserved2: [AtomicU64; 6],
    /// Receives posted.
    pub post: PostCounters,
    /// Receives taken.
    pub done: DoneCounters,
}

/// What an event of the ring is.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A signaled send completed, or one failed.
    Completion = 0,
    /// A QP's sends stall.
    Stall = 1,
    /// They go on, or are no more.
    StallEnd = 2,
}

impl EventKind {
    /// By its number.
    pub fn of(n: u8) -> Option<EventKind> {
        [EventKind::Completion, EventKind::Stall, EventKind::StallEnd].into_iter().find(|k| *k as u8 == n)
    }

    /// One word, as the snapshot has it.
    pub fn word(self) -> &'static str {
        match self {
            EventKind::Completion => "completion",
            EventKind::Stall => "stall",
            EventKind::StallEnd => "stall_end",
        }
    }
}

/// One completion of a signaled send, or a stall, 64 bytes.
#[repr(C, align(64))]
pub struct EventRecord {
    /// 2 * (number of the event + 1) once complete, odd while it is written. SYNC POINT: Release store, last.
    pub seq: AtomicU64,
    /// CLOCK_REALTIME at the poll, or when the watch looked, ns.
    pub end_ns: AtomicU64,
    /// Bytes that this completion retired, unsignaled WRs before it included. Of datagrams: of one run of WRs to one peer, each of
    /// which has an event.
    pub bytes: AtomicU64,
    /// WRs still outstanding on the QP after it.
    pub wr_outstanding: AtomicU64,
    /// Bytes still outstanding on the QP after it.
    pub bytes_outstanding: AtomicU64,
    /// Post to poll, ns; 0 = not sampled. Of a failure: its vendor_err. Of a stall: for how long nothing completed, ns.
    pub latency_ns: AtomicU64,
    /// `qp record index << 32 | qp_num`.
    pub qp: AtomicU64,
    /// `peer record index << 32 | port record index << 16 | status << 8 | kind`, an [`EventKind`].
    pub place: AtomicU64,
}

/// A ring of events. One writer at a time.
#[repr(C, align(64))]
pub struct RingRecord {
    /// Events ever written. SYNC POINT: Release store after the event.
    pub head: AtomicU64,
    /// Reserved, zero.
    pub reserved: [AtomicU64; 7],
    /// Event number i stands at i modulo [`RING_EVENTS`].
    pub events: [EventRecord; RING_EVENTS],
}

const _: () = {
    assert!(size_of::<Header>() <= HEADER_BYTES);
    assert!(size_of::<QpRecord>() == 64 + 2 * 64 + 2 * 128);
    assert!(size_of::<EventRecord>() == 64);
    assert!(size_of::<CqRecord>() == 64);
    assert!(size_of::<AddressRecord>() == 64);
};

// SAFETY: each is repr(C), made of atomics only (Text is an array of them), and all-zero is a valid value.
unsafe impl Shared for Header {}
// SAFETY: as above.
unsafe impl Shared for PortRecord {}
// SAFETY: as above.
unsafe impl Shared for PeerRecord {}
// SAFETY: as above.
unsafe impl Shared for CqRecord {}
// SAFETY: as above.
unsafe impl Shared for SrqRecord {}
// SAFETY: as above.
unsafe impl Shared for QpRecord {}
// SAFETY: as above.
unsafe impl Shared for QpDetail {}
// SAFETY: as above.
unsafe impl Shared for RingRecord {}
