//! A peer of datagrams: what is sent to it counts in its own record, since the QPs that send it have many.
//!
//! Several QPs, and so several threads, send to one peer: its counters are changed by atomic additions, among what retired
//! connected QPs left there.

use super::histogram;
use super::inflight::Totals;
use super::registry::Device;
use crate::shm::layout::{OPCODES, PeerRecord, STATUSES};
use crate::shm::segment::{bump_shared, raise_shared};
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed};

/// A peer that address handles of a context lead to.
pub struct Peer {
    /// Index of its record.
    pub(super) index: u32,
    /// Index of its port's record.
    pub(super) port: u32,
    /// Whose address handles.
    pub(super) device: &'static Device,
    pub(super) record: &'static PeerRecord,
}

impl Peer {
    /// The provider took WRs of one opcode.
    pub(super) fn posted(&self, opcode: u32, wrs: Totals) {
        let to = &self.record.retired;
        let by_opcode = &to.detail.opcodes[opcode as usize % OPCODES];
        bump_shared(&by_opcode.wr, wrs.wr);
        bump_shared(&by_opcode.bytes, wrs.bytes);
        bump_shared(&to.send_post.wr_posted, wrs.wr);
        bump_shared(&to.send_post.bytes_posted, wrs.bytes);
    }

    /// WRs left their queue by a completion.
    pub(super) fn retired(&self, wrs: Totals) {
        let (post, done) = (&self.record.retired.send_post, &self.record.retired.send_done);
        // What was posted is read first, so with other threads at work this is rather too little than too much.
        let out = |posted: &AtomicU64, gone: &AtomicU64| posted.load(Acquire).saturating_sub(gone.load(Relaxed));
        raise_shared(&done.wr_high_water, out(&post.wr_posted, &done.wr_retired));
        raise_shared(&done.bytes_high_water, out(&post.bytes_posted, &done.bytes_retired));
        bump_shared(&done.wr_retired, wrs.wr);
        bump_shared(&done.bytes_retired, wrs.bytes);
    }

    /// One of them had that completion, a good one where `status` is 0.
    pub(super) fn completed(&self, status: u32, bytes: u64) {
        let (done, errors) = (&self.record.retired.send_done, &self.record.retired.detail.send_errors);
        bump_shared(&done.cqes, 1);
        if status != 0 {
            bump_shared(&errors.by_status[(status as usize).min(STATUSES - 1)], 1);
            bump_shared(&done.wr_failed, 1);
            bump_shared(&done.bytes_failed, bytes);
        }
    }

    /// WRs left their queue without completions.
    pub(super) fn dropped(&self, wrs: Totals) {
        let done = &self.record.retired.send_done;
        bump_shared(&done.wr_dropped, wrs.wr);
        bump_shared(&done.bytes_dropped, wrs.bytes);
        bump_shared(&done.wr_retired, wrs.wr);
        bump_shared(&done.bytes_retired, wrs.bytes);
    }

    /// A completion had its time noted; `latency_ns`: if it was timed.
    pub(super) fn noted(&self, end_ns: u64, latency_ns: Option<u64>) {
        let to = &self.record.retired;
        raise_shared(&to.send_done.last_ns, end_ns);
        if let Some(ns) = latency_ns {
            histogram::record_shared(&to.detail.latency, ns);
        }
    }
}
