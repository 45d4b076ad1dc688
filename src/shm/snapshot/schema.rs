//! The documented objects, field by field.

use crate::shm::layout::Header;
use crate::shm::model::{Counters, CqView, Line, SrqView};
use crate::shm::multipath::MovedBytes;
use crate::shm::stall::Stalls;
use crate::telemetry::histogram::Latency;
use core::sync::atomic::Ordering::Relaxed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Value of [`Snapshot::schema`].
pub const SCHEMA: &str = "telereduce/1";

/// A whole dump.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it was taken.
    pub time_ns: u64,
    /// Why the flight recorder wrote it; only of its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<CauseJson>,
    /// One per process.
    pub segments: Vec<SegmentJson>,
}

/// Why the flight recorder wrote a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseJson {
    /// `stall`, `error` or `signal`; the first of these where several came together.
    pub reason: String,
    /// Numbers of the QPs that began to stall, or of one that failed; some of them, if they are many.
    pub qp_nums: Vec<u32>,
    /// Files that this process's flight recorder may still write by itself.
    pub files_left: u32,
}

/// One process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SegmentJson {
    /// Process id.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Start time, clock ticks since boot.
    pub start_time_ticks: u64,
    /// Command line.
    pub command: String,
    /// Host name.
    pub host: String,
    /// Rank from the launcher, or null.
    pub rank: Option<u64>,
    /// World size from the launcher, or null.
    pub world_size: Option<u64>,
    /// Job id from the launcher, or null.
    #[serde(default)]
    pub job: Option<String>,
    /// Whether the process ran when the snapshot was taken. At exit the program itself writes `false`.
    pub alive: bool,
    /// When the segment was created.
    pub created_ns: u64,
    /// When the process last used verbs.
    pub heartbeat_ns: u64,
    /// In how many sends one has its latency measured, the next signaled one; 0 = none.
    pub latency_every: u32,
    /// What could not be counted.
    pub missed: Missed,
    /// Device contexts, closed ones too while their record lasts.
    pub contexts: Vec<ContextJson>,
    /// Ports.
    pub ports: Vec<PortJson>,
    /// Peers.
    pub peers: Vec<PeerJson>,
    /// QPs, destroyed ones too while their record lasts.
    pub qps: Vec<QpJson>,
    /// Shared receive queues.
    pub srqs: Vec<SrqView>,
    /// Completion queues.
    pub cqs: Vec<CqView>,
    /// Lanes of multi-path; their chunks are in none of the sums.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<LaneJson>,
    /// Newest completion events, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventJson>,
}

/// What could not be counted; all zero when everything was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// QPs, CQs and SRQs without a record (no memory left in the segment).
    pub objects_untracked: u64,
    /// WRs posted to QPs and SRQs that are not counted: made by calls that were not seen, or without a record.
    pub wrs_unseen: u64,
    /// QPs and CQs ever created that are marked `opaque`.
    pub objects_opaque: u64,
    /// Completions of WRs that were never seen posted.
    pub completions_unmatched: u64,
    /// Panics inside the library; after the first, counting stopped.
    pub panics: u64,
    /// Events overwritten before this snapshot.
    pub events_overwritten: u64,
    /// Transfers that are not in the log: it was too slow for them, or could not be written.
    #[serde(default)]
    pub log_dropped: u64,
}

/// But for events, which the header knows nothing of.
impl From<&Header> for Missed {
    fn from(h: &Header) -> Missed {
        Missed {
            objects_untracked: h.objects_untracked.load(Relaxed),
            wrs_unseen: h.wrs_unseen.load(Relaxed),
            objects_opaque: h.objects_opaque.load(Relaxed),
            completions_unmatched: h.completions_unmatched.load(Relaxed),
            panics: h.panics.load(Relaxed),
            events_overwritten: 0,
            log_dropped: h.log_dropped.load(Relaxed),
        }
    }
}

/// Per-opcode, per-status and latency details.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Details {
    /// Posted, by opcode (`RDMA_WRITE`, ...); opcodes never used are left out.
    pub opcodes: BTreeMap<String, Posted>,
    /// Send completions in error, by status (`WR_FLUSH_ERR`, ...).
    pub errors: BTreeMap<String, u64>,
    /// Receive completions in error, by status.
    pub recv_errors: BTreeMap<String, u64>,
    /// Post to poll of sampled signaled sends.
    pub latency_post_to_poll: LatencyJson,
}

/// WRs and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posted {
    /// Work requests.
    pub wr: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A latency histogram with the usual percentiles, all ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyJson {
    /// Samples.
    pub samples: u64,
    /// Their sum.
    #[serde(default)]
    pub sum_ns: u64,
    /// Mean.
    pub mean_ns: Option<u64>,
    /// Median.
    pub p50_ns: Option<u64>,
    /// 90 %.
    pub p90_ns: Option<u64>,
    /// 99 %.
    pub p99_ns: Option<u64>,
    /// 99.9 %.
    pub p999_ns: Option<u64>,
    /// Largest.
    pub max_ns: Option<u64>,
    /// `[lower bound, samples]` of each bucket in use.
    pub buckets: Vec<(u64, u64)>,
}

/// An opened device context.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContextJson {
    /// Device name.
    pub device: Option<String>,
    /// False once it was closed.
    pub live: bool,
    /// How calls about it are reached: `linked`, `looked_up` (by dlsym or dlvsym), `provider`, or `unseen`: past the hooks,
    /// nothing on it is counted.
    pub hooked: String,
    /// When it was opened.
    pub opened_ns: u64,
}

/// What multi-path did: beside the counters of a QP or port, which say what the application posted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MultipathJson {
    /// WRs that were split: pieces of them were posted.
    pub wr_split: u64,
    /// Of these, WRs that were posted whole after all.
    pub wr_whole: u64,
    /// WRs that had to wait for an earlier one.
    pub wr_held: u64,
    /// `bytes_split`, `bytes_on_lanes`, `bytes_on_qp`: of the WRs that were split.
    #[serde(flatten)]
    pub moved: MovedBytes,
    /// Bytes really posted: `bytes_posted` less `bytes_split`, and what was posted instead on lanes and on the QP.
    pub bytes_carried: u64,
    /// Of `moved`, READs.
    pub reads: MovedBytes,
    /// Pieces posted on lanes.
    pub chunks: u64,
    /// Of these, pieces posted anew after a lane broke.
    pub chunks_replayed: u64,
    /// WRs of at least `TELEREDUCE_SPLIT_MIN` bytes that passed whole, by why; reasons that never came are left out.
    pub large_passed: BTreeMap<String, u64>,
}

/// What multi-path does to a QP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpMultipathJson {
    /// Lanes that take its pieces; of a QP that is gone: that did at its end.
    pub lanes: u32,
    /// Lanes that this side could not make.
    pub lanes_failed_here: u32,
    /// Lanes that the peer could not make, or did not want.
    pub lanes_failed_there: u32,
    /// Why it has one path (a name of [`crate::multipath::single::Single`]), or null: it has several.
    pub single_path: Option<String>,
    /// What was done.
    #[serde(flatten)]
    pub work: MultipathJson,
}

/// A port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortJson {
    /// Device name.
    pub device: String,
    /// Port number; 0 = QPs of the device that never reached INIT.
    pub port: u32,
    /// QPs alive on it.
    pub qps_live: u32,
    /// Counters.
    #[serde(flatten)]
    pub line: Line,
    /// Details.
    #[serde(flatten)]
    pub details: Details,
    /// What multi-path did for its QPs; only where that is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multipath: Option<MultipathJson>,
    /// How long its sends wait; only where that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stalls>,
}

/// A peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerJson {
    /// Local device.
    pub device: String,
    /// Local port.
    pub port: u32,
    /// Remote GID as IPv6 text, or null.
    pub gid: Option<String>,
    /// IP address that the GID stands for, or null.
    pub ip: Option<String>,
    /// Remote LID, 0 if none.
    pub lid: u32,
    /// The rank that is there, if it is one alone, or null. Found by `trtop dump`: in the other processes' segments, or in
    /// the file of `--ranks`.
    #[serde(default)]
    pub peer_rank: Option<u64>,
    /// QPs alive with this peer.
    pub qps_live: u32,
    /// Counters.
    #[serde(flatten)]
    pub line: Line,
    /// Details.
    #[serde(flatten)]
    pub details: Details,
    /// How long sends to it wait; only where that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stalls>,
}

/// A lane of multi-path: a QP of the library's own, whose WRs are chunks of the application's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaneJson {
    /// Which path of its port it takes, from 0.
    pub path: u32,
    /// Device, or null.
    pub device: Option<String>,
    /// Port, or null.
    pub port: Option<u32>,
    /// The path's own IP address or GID.
    pub local: String,
    /// The peer's IP address or GID on this path.
    pub peer: String,
    /// Number.
    pub qp_num: u32,
    /// The peer's QP number.
    pub dest_qp_num: u32,
    /// Whether it still exists.
    pub live: bool,
    /// The application's QPs that it serves.
    pub qps: u32,
    /// Chunks, as the WRs of a QP.
    #[serde(flatten)]
    pub chunks: Counters,
    /// Post to poll of all chunks.
    pub latency_post_to_poll: LatencyJson,
}

/// A QP.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QpJson {
    /// Number.
    pub qp_num: u32,
    /// `RC`, `UC`, `UD`, ...
    pub r#type: String,
    /// `INIT`, `RTS`, ... as last set; null once destroyed.
    pub state: Option<String>,
    /// Whether it still exists.
    pub live: bool,
    /// Device, or null before INIT.
    pub device: Option<String>,
    /// Port, or null before INIT.
    pub port: Option<u32>,
    /// Peer's IP address or GID, or null.
    pub peer: Option<String>,
    /// Peer's QP number, or null.
    pub dest_qp_num: Option<u32>,
    /// The IP address or GID that it sends from, or null.
    #[serde(default)]
    pub source: Option<String>,
    /// The peer's rank, or null; as [`PeerJson::peer_rank`].
    #[serde(default)]
    pub peer_rank: Option<u64>,
    /// What NCCL said of its last WR; only where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl: Option<NcclJson>,
    /// Index in `srqs` by its `index`, or null.
    pub srq: Option<u32>,
    /// Granted send queue depth.
    pub max_send_wr: u32,
    /// Granted receive queue depth.
    pub max_recv_wr: u32,
    /// True if some of what it does may not be seen; what was seen is counted.
    pub opaque: bool,
    /// Creation.
    pub created_ns: u64,
    /// Counters.
    #[serde(flatten)]
    pub line: Line,
    /// Details.
    #[serde(flatten)]
    pub details: Details,
    /// The last error that was not a flush, or null.
    pub last_error: Option<ErrorJson>,
    /// How long its sends wait; only where that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stalls>,
    /// What multi-path does to it; only where that is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multipath: Option<QpMultipathJson>,
}

/// What a QP does for NCCL. Ranks are those within the communicator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclJson {
    /// Communicator, by the number that all its ranks know; null if another process posts through this one.
    pub group: Option<u64>,
    /// Own rank, or null.
    pub rank: Option<u32>,
    /// The peer's rank, or null.
    pub peer_rank: Option<u32>,
    /// Channel.
    pub channel: u32,
    /// `send`: this side sends the data; `recv`: it posts what the sender waits for.
    pub direction: String,
    /// Function of the last WR (`AllReduce`, ...), or null.
    pub func: Option<String>,
    /// How many times it ran on this communicator, or null.
    pub func_times: Option<u64>,
    /// WRs of which NCCL said so.
    pub wr_labelled: u64,
    /// How often communicator, peer, channel or direction changed.
    pub changes: u64,
}

/// An error completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorJson {
    /// Status (`RETRY_EXC_ERR`, ...).
    pub status: String,
    /// The vendor's number.
    pub vendor_err: u32,
    /// The WR's id.
    pub wr_id: u64,
    /// When it was polled.
    pub time_ns: u64,
    /// The QP.
    #[serde(default)]
    pub qp_num: u32,
    /// Peer's IP address or GID, or null.
    #[serde(default)]
    pub peer: Option<String>,
    /// `send` or `recv`.
    #[serde(default)]
    pub direction: String,
    /// WRs of that direction outstanding on the QP then, the failed one included.
    #[serde(default)]
    pub wr_outstanding: u64,
    /// Their bytes.
    #[serde(default)]
    pub bytes_outstanding: u64,
    /// Opcode of the oldest of them, or null if the QP has posted several.
    #[serde(default)]
    pub oldest_opcode: Option<String>,
}

/// A completion event, or a stall.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventJson {
    /// `completion`; `stall`, when nothing completed for `TELEREDUCE_STALL_MS`; `stall_end`, when something did, or the QP is gone.
    #[serde(default)]
    pub kind: String,
    /// When the completion was polled, or the stall seen.
    pub end_ns: u64,
    /// Device, or null.
    pub device: Option<String>,
    /// Port, or null.
    pub port: Option<u32>,
    /// QP number.
    pub qp_num: u32,
    /// Peer's IP address or GID, or null.
    pub peer: Option<String>,
    /// `SUCCESS` or the error; of a stall `SUCCESS`.
    pub status: String,
    /// Bytes retired.
    pub bytes: u64,
    /// WRs outstanding on the QP after it.
    pub wr_outstanding: u64,
    /// Bytes outstanding on the QP after it.
    pub bytes_outstanding: u64,
    /// Post to poll, or null if not sampled.
    pub latency_ns: Option<u64>,
    /// Of a stall: for how long nothing completed; else null.
    #[serde(default)]
    pub waited_ns: Option<u64>,
    /// Of an error: the vendor's number; else null.
    #[serde(default)]
    pub vendor_err: Option<u32>,
}

impl From<&Latency> for LatencyJson {
    fn from(l: &Latency) -> Self {
        LatencyJson {
            samples: l.count,
            sum_ns: l.sum_ns,
            mean_ns: l.sum_ns.checked_div(l.count),
            p50_ns: l.quantile(0.5),
            p90_ns: l.quantile(0.9),
            p99_ns: l.quantile(0.99),
            p999_ns: l.quantile(0.999),
            max_ns: (l.count > 0).then_some(l.max_ns),
            buckets: l
                .buckets
                .iter()
                .enumerate()
                .filter(|(_, n)| **n > 0)
                .map(|(i, n)| (crate::telemetry::histogram::lower_bound(i), *n))
                .collect(),
        }
    }
}
