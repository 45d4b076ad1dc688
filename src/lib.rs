//! telereduce: telemetry and multi-path for RDMA verbs programs, without rebuilding them.
//!
//! The data's way, from the application's call to the viewer's screen:
//!
//! ```text
//! app call -> hook          shim/            finds the object, calls in here, and always ends in the real call
//!          -> account       telemetry/qp     notes the WRs in the queue's in-flight ring
//!          -> real post     (provider)
//!          -> real poll     (provider)
//!          -> complete      telemetry/cq     retires what the completion covers, adds to the counters
//!          -> event         telemetry/event  the completion's record, into the segment's ring
//!          -> line          log/             where there is a log: the same record, written by a thread of its own
//!          -> segment       shm/             /dev/shm/telereduce.UID.PID, the ABI between processes
//!          -> snapshot      shm/snapshot     the documented JSON
//!          -> trtop         tools/trtop      what people look at
//! ```
//!
//! [`telemetry::datagrams`] says where each WR of a UD QP goes, by the address handles that the control path saw. [`flight`] keeps a snapshot with the last events when sends stall or fail. [`flows`] knows each flow's bandwidth from those records. With more than one path, [`multipath`] stands between account and
//! real post, and between real poll and complete: it cuts large WRs into pieces for lanes. [`control`] is how the shims of two
//! processes find each other and agree on lanes. [`attribution`] says which collective of NCCL's a WR belongs to.
//!
//! This crate holds everything that needs neither hooks nor RDMA, and is tested without either.

pub mod aside;
#[cfg(not(loom))]
pub mod attribution;
pub mod clock;
#[cfg(not(loom))]
pub mod config;
#[cfg(not(loom))]
pub mod control;
#[cfg(not(loom))]
pub mod flight;
#[cfg(not(loom))]
pub mod flows;
#[cfg(not(loom))]
pub mod log;
#[cfg(not(loom))]
pub mod multipath;
#[cfg(not(loom))]
pub mod own_file;
#[cfg(all(test, not(loom)))]
mod seeded;
#[cfg(not(loom))]
pub mod shm;
pub mod sync;
pub mod table;
#[cfg(not(loom))]
pub mod telemetry;
pub mod verbs;
