//! A peer of datagrams: what is sent to it counts in its own record, since the QPs that send it have many.
//!
//! The counters stand among what retired connected QPs left there. Several QPs, and so several threads, may send to one peer:
//! each half of the counters has a lock, which is free of charge while one thread uses it.

use super::histogram;
use super::inflight::Totals;
use super::registry::Device;
use crate::shm::layout::{OPCODES, PeerRecord, STATUSES};
use crate::shm::segment::{bump, raise};
use crate::sync::OwnedLock;
use core::sync::atomic::Ordering::Relaxed;

/// Whoever changes the counters of a peer's record holds these. Nothing else is locked meanwhile.
#[derive(Default)]
pub(super) struct Locks {
    /// What is posted.
    posts: OwnedLock<()>,
    /// What becomes of it.
    ends: OwnedLock<()>,
}

impl Locks {
    /// Does `work` while nobody else changes the counters.
    pub fn hold<T>(&self, work: impl FnOnce() -> T) -> T {
        let _both = (self.posts.lock(), self.ends.lock());
        work()
    }
}

/// A peer that address handles of a context lead to.
pub struct Peer {
    /// Index of its record.
    pub(super) index: u32,
    /// Index of its port's record.
    pub(super) port: u32,
    /// Whose address handles.
    pub(super) device: &'static Device,
    pub(super) record: &'static PeerRecord,
    /// The record's, whichever context it is.
    pub(super) locks: &'static Locks,
}

/// The completion of a WR.
#[derive(Clone, Copy)]
pub(super) struct Completion {
    /// 0: a good one.
    pub status: u32,
    /// Bytes of the WR if it failed.
    pub failed: u64,
}

impl Peer {
    /// The provider took WRs of one opcode.
    pub(super) fn posted(&self, opcode: u32, wrs: Totals) {
        let to = &self.record.retired;
        let by_opcode = &to.detail.opcodes[opcode as usize % OPCODES];
        let _mine = self.locks.posts.lock();
        bump(&by_opcode.wr, wrs.wr);
        bump(&by_opcode.bytes, wrs.bytes);
        bump(&to.send_post.wr_posted, wrs.wr);
        bump(&to.send_post.bytes_posted, wrs.bytes);
    }

    /// WRs left their queue by a completion, which may be that of one of them.
    pub(super) fn ended(&self, wrs: Totals, completion: Option<Completion>) {
        let (post, done) = (&self.record.retired.send_post, &self.record.retired.send_done);
        let _mine = self.locks.ends.lock();
        let (wr, bytes) = (done.wr_retired.load(Relaxed), done.bytes_retired.load(Relaxed));
        raise(&done.wr_high_water, post.wr_posted.load(Relaxed).saturating_sub(wr));
        raise(&done.bytes_high_water, post.bytes_posted.load(Relaxed).saturating_sub(bytes));
        done.wr_retired.store(wr.wrapping_add(wrs.wr), Relaxed);
        done.bytes_retired.store(bytes.wrapping_add(wrs.bytes), Relaxed);
        let Some(Completion { status, failed }) = completion else { return };
        bump(&done.cqes, 1);
        if status != 0 {
            bump(&self.record.retired.detail.send_errors.by_status[(status as usize).min(STATUSES - 1)], 1);
            bump(&done.wr_failed, 1);
            bump(&done.bytes_failed, failed);
        }
    }

    /// WRs left their queue without completions.
    pub(super) fn dropped(&self, wrs: Totals) {
        let done = &self.record.retired.send_done;
        let _mine = self.locks.ends.lock();
        bump(&done.wr_dropped, wrs.wr);
        bump(&done.bytes_dropped, wrs.bytes);
        bump(&done.wr_retired, wrs.wr);
        bump(&done.bytes_retired, wrs.bytes);
    }

    /// A completion had its time noted; `latency_ns`: if it was timed.
    pub(super) fn noted(&self, end_ns: u64, latency_ns: Option<u64>) {
        let to = &self.record.retired;
        let _mine = self.locks.ends.lock();
        raise(&to.send_done.last_ns, end_ns);
        if let Some(ns) = latency_ns {
            histogram::record(&to.detail.latency, ns);
        }
    }
}
