//! A queue pair: posts enter its rings here. Completions are in [`super::cq`].

use super::Hot;
use super::cq::Cq;
use super::inflight::{Inflight, Tail, Totals};
use super::srq::Srq;
use crate::shm::layout::{OPCODES, PostCounters, QpDetail, QpRecord};
use crate::shm::segment::bump;
use crate::sync::{Guard, SpinLock};
use crate::verbs::{recv_bytes, send_facts};
use core::sync::atomic::AtomicU32;
use rdma_sys::{ibv_recv_wr, ibv_send_wr};

/// What a QP is created with.
#[derive(Clone, Copy, Default)]
pub struct QpSpec {
    /// Number.
    pub qp_num: u32,
    /// `enum ibv_qp_type`.
    pub qp_type: u32,
    /// Every send makes a completion.
    pub sig_all: bool,
    /// Granted depths and list lengths.
    pub max_send_wr: u32,
    /// As above.
    pub max_recv_wr: u32,
    /// As above.
    pub max_send_sge: u32,
    /// As above.
    pub max_recv_sge: u32,
    /// The QP has `ibv_wr_*` operations, which are not counted.
    pub extended_sends: bool,
    /// CQ of sends.
    pub send_cq: Option<&'static Cq>,
    /// CQ of receives.
    pub recv_cq: Option<&'static Cq>,
    /// Shared receive queue.
    pub srq: Option<&'static Srq>,
}

/// One direction's queue.
pub struct Queue {
    pub(super) tail: SpinLock<Tail>,
    pub(super) ring: Inflight,
}

impl Queue {
    fn new(depth: u32) -> Queue {
        Queue { tail: SpinLock::default(), ring: Inflight::new(depth) }
    }
}

/// State of a queue pair.
pub struct Qp {
    /// What it was created with.
    pub spec: QpSpec,
    /// Index of its records.
    pub index: u32,
    /// Its record.
    pub record: &'static QpRecord,
    /// Its details.
    pub detail: &'static QpDetail,
    /// `peer << 32 | port << 16`, as events carry it.
    pub(super) place: core::sync::atomic::AtomicU64,
    /// Address of the `ibv_qp`.
    pub address: usize,
    /// Port record, or `NONE`.
    pub(super) port: AtomicU32,
    /// Peer record, or `NONE`.
    pub(super) peer: AtomicU32,
    pub(super) hot: &'static Hot,
    pub(super) sends: Queue,
    pub(super) recvs: Queue,
}

impl Qp {
    pub(super) fn new(
        spec: QpSpec,
        address: usize,
        index: u32,
        record: &'static QpRecord,
        detail: &'static QpDetail,
        hot: &'static Hot,
    ) -> Qp {
        use crate::shm::layout::NONE;
        Qp {
            index,
            record,
            detail,
            address,
            place: core::sync::atomic::AtomicU64::new(u64::from(NONE) << 32 | 0xffff << 16),
            port: AtomicU32::new(NONE),
            peer: AtomicU32::new(NONE),
            hot,
            sends: Queue::new(spec.max_send_wr),
            recvs: Queue::new(spec.max_recv_wr),
            spec,
        }
    }

    /// Locks the send queue and notes the chain, before the provider gets it.
    ///
    /// # Safety
    /// `wr` is the chain passed to `ibv_post_send` on this QP.
    #[inline(always)]
    pub unsafe fn start_send(&self, mut wr: *const ibv_send_wr) -> Posting<'_> {
        let mut tail = self.sends.tail.lock();
        let before = tail.posted;
        let every = self.hot.latency_every;
        let mut now = 0;
        // SAFETY: the chain is the application's, valid until the call returns.
        while let Some(w) = unsafe { wr.as_ref() } {
            // SAFETY: the caller's promise.
            let f = unsafe { send_facts(w, self.spec.max_send_sge) };
            let signaled = f.signaled | self.spec.sig_all;
            let mut stamp = 0;
            if signaled && every != 0 {
                if tail.until_timed == 0 {
                    if now == 0 {
                        now = self.hot.clock.stamp();
                    }
                    stamp = now;
                    tail.until_timed = every;
                }
                tail.until_timed -= 1;
            }
            let o = &self.detail.opcodes[(f.opcode as usize).min(OPCODES - 1)];
            bump(&o.wr, 1);
            bump(&o.bytes, f.bytes);
            // SAFETY: our ring's tail, locked.
            unsafe { self.sends.ring.push(&mut tail, f.wr_id, f.bytes, signaled, stamp) };
            wr = w.next;
        }
        Posting { queue: &self.sends, post: &self.record.send_post, tail, before }
    }

    /// As [`Qp::start_send`], for `ibv_post_recv`.
    ///
    /// # Safety
    /// `wr` is the chain passed to `ibv_post_recv` on this QP.
    #[inline(always)]
    pub unsafe fn start_recv(&self, mut wr: *const ibv_recv_wr) -> Posting<'_> {
        let mut tail = self.recvs.tail.lock();
        let before = tail.posted;
        // SAFETY: the chain is the application's, valid until the call returns.
        while let Some(w) = unsafe { wr.as_ref() } {
            // SAFETY: the caller's promise; then our ring's tail, locked.
            unsafe {
                let bytes = recv_bytes(w, self.spec.max_recv_sge);
                self.recvs.ring.push(&mut tail, w.wr_id, bytes, true, 0);
            }
            wr = w.next;
        }
        Posting { queue: &self.recvs, post: &self.record.recv_post, tail, before }
    }

    /// Takes back the opcode counts of the WRs from `bad` on, which the provider refused.
    ///
    /// # Safety
    /// `bad` is the rest of a chain that [`Qp::start_send`] has noted; the [`Posting`] still holds the lock.
    #[cold]
    pub unsafe fn refuse_opcodes(&self, mut bad: *const ibv_send_wr) {
        // SAFETY: as in `start_send`.
        while let Some(w) = unsafe { bad.as_ref() } {
            // SAFETY: the caller's promise.
            let f = unsafe { send_facts(w, self.spec.max_send_sge) };
            let o = &self.detail.opcodes[(f.opcode as usize).min(OPCODES - 1)];
            bump(&o.wr, 1u64.wrapping_neg());
            bump(&o.bytes, f.bytes.wrapping_neg());
            bad = w.next;
        }
    }
}

/// A chain between our note and the provider's answer. Holds the queue's lock.
pub struct Posting<'a> {
    queue: &'a Queue,
    post: &'static PostCounters,
    tail: Guard<'a, Tail>,
    before: Totals,
}

impl Posting<'_> {
    /// The provider took the whole chain.
    #[inline(always)]
    pub fn accepted(self) {
        // Counted first: who sees the WR's completion has seen it posted.
        self.count();
        self.queue.ring.publish(&self.tail);
    }

    /// The provider took only the first `n` WRs.
    #[cold]
    pub fn accepted_only(mut self, n: u64) {
        // SAFETY: the ring's tail, locked by this posting.
        unsafe { self.queue.ring.publish_only(&mut self.tail, self.before, n) };
        self.count();
    }

    #[inline(always)]
    fn count(&self) {
        // Added, not stored: the record may have been emptied by a RESET since.
        bump(&self.post.wr_posted, self.tail.posted.wr - self.before.wr);
        bump(&self.post.bytes_posted, self.tail.posted.bytes.wrapping_sub(self.before.bytes));
    }
}

/// How many WRs of the chain `wr` stand before `bad`; all of them refused if `bad` is not in the chain.
///
/// # Safety
/// `wr` is a chain passed to a post call that failed and set `bad`.
pub unsafe fn before_bad_send(mut wr: *const ibv_send_wr, bad: *const ibv_send_wr) -> u64 {
    let mut n = 0;
    // SAFETY: the chain is the application's, valid until the call returns.
    while let Some(w) = unsafe { wr.as_ref() } {
        if core::ptr::eq(wr, bad) {
            return n;
        }
        n += 1;
        wr = w.next;
    }
    0
}

/// As [`before_bad_send`], for receives.
///
/// # Safety
/// As there.
pub unsafe fn before_bad_recv(mut wr: *const ibv_recv_wr, bad: *const ibv_recv_wr) -> u64 {
    let mut n = 0;
    // SAFETY: the chain is the application's, valid until the call returns.
    while let Some(w) = unsafe { wr.as_ref() } {
        if core::ptr::eq(wr, bad) {
            return n;
        }
        n += 1;
        wr = w.next;
    }
    0
}
