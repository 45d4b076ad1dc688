//! A queue pair: posts enter its rings here. Completions are in [`super::cq`].

use super::Hot;
use super::cq::Cq;
use super::inflight::{Inflight, SIGNALED, Tail, Totals};
use super::srq::Srq;
use crate::shm::layout::{OPCODES, PostCounters, QpDetail, QpRecord};
use crate::shm::segment::bump;
use crate::sync::{OwnedGuard, OwnedLock};
use crate::verbs::{DataPath, recv_bytes, send_facts};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use rdma_sys::{ibv_recv_wr, ibv_send_wr};

/// What a QP is created with.
#[derive(Clone, Copy)]
pub struct QpSpec {
    /// The provider's operations.
    pub real: DataPath,
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
    pub(super) tail: OwnedLock<Tail>,
    pub(super) ring: Inflight,
}

impl Queue {
    fn new(depth: u32) -> Queue {
        Queue { tail: OwnedLock::default(), ring: Inflight::new(depth) }
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
    /// `SIGNALED` if every send makes a completion.
    sig_all: u64,
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
            sig_all: if spec.sig_all { SIGNALED } else { 0 },
            spec,
        }
    }

    /// Whether completions of its sends or receives come to this CQ.
    #[inline(always)]
    pub(super) fn is_served_by(&self, cq: &Cq) -> bool {
        [self.spec.send_cq, self.spec.recv_cq].iter().flatten().any(|c| core::ptr::eq(*c, cq))
    }

    /// Locks the send queue and notes the chain, before the provider gets it.
    ///
    /// # Safety
    /// `wr` is the chain passed to `ibv_post_send` on this QP.
    #[inline(always)]
    pub unsafe fn start_send(&self, mut wr: *const ibv_send_wr) -> Posting<'_> {
        let mut guard = self.sends.tail.lock();
        let tail = &mut *guard;
        let mut now = 0;
        // SAFETY: the chain is the application's, valid until the call returns.
        while let Some(w) = unsafe { wr.as_ref() } {
            // SAFETY: the caller's promise.
            let f = unsafe { send_facts(w, self.spec.max_send_sge) };
            let mut stamp = f.signaled | self.sig_all;
            if stamp != 0 {
                tail.until_timed = tail.until_timed.wrapping_sub(1);
                if (tail.until_timed as i32) < 0 {
                    now = self.timed(tail, now);
                    stamp |= if self.hot.latency_every == 0 { 0 } else { now };
                }
            }
            let o = &self.detail.opcodes[f.opcode as usize % OPCODES];
            bump(&o.wr, 1);
            bump(&o.bytes, f.bytes);
            // SAFETY: our ring's tail, locked.
            unsafe { self.sends.ring.push(tail, f.wr_id, f.bytes, stamp) };
            wr = w.next;
        }
        Posting { queue: &self.sends, post: &self.record.send_post, tail: guard }
    }

    /// The countdown to the next timed WR ran out: starts it again and returns the time, read at most once per chain.
    // extern "C" for its promise not to unwind: nothing in it could.
    #[inline(never)]
    extern "C" fn timed(&self, tail: &mut Tail, now: u64) -> u64 {
        let every = self.hot.latency_every;
        tail.until_timed = if every == 0 { i32::MAX as u32 } else { every - 1 };
        if now == 0 { self.hot.clock.stamp() } else { now }
    }

    /// As [`Qp::start_send`], for `ibv_post_recv`.
    ///
    /// # Safety
    /// `wr` is the chain passed to `ibv_post_recv` on this QP.
    #[inline(always)]
    pub unsafe fn start_recv(&self, mut wr: *const ibv_recv_wr) -> Posting<'_> {
        let mut guard = self.recvs.tail.lock();
        let tail = &mut *guard;
        // SAFETY: the chain is the application's, valid until the call returns.
        while let Some(w) = unsafe { wr.as_ref() } {
            // SAFETY: the caller's promise; then our ring's tail, locked.
            unsafe {
                let bytes = recv_bytes(w, self.spec.max_recv_sge);
                self.recvs.ring.push(tail, w.wr_id, bytes, SIGNALED);
            }
            wr = w.next;
        }
        Posting { queue: &self.recvs, post: &self.record.recv_post, tail: guard }
    }

    /// Takes back the opcode counts of the WRs that the provider refused, and adds them up.
    ///
    /// # Safety
    /// `wr` is a chain that [`Qp::start_send`] has noted and that failed with `bad`; the [`Posting`] holds the lock.
    #[cold]
    #[inline(never)]
    pub unsafe fn refused_sends(&self, wr: *const ibv_send_wr, bad: *const ibv_send_wr) -> Totals {
        let mut refused = Totals::default();
        // SAFETY: the caller's promise; the chain is the application's, valid until the call returns.
        unsafe {
            let mut w = if is_in_chain(wr, bad, |w| w.next) { bad } else { wr };
            while let Some(rest) = w.as_ref() {
                let f = send_facts(rest, self.spec.max_send_sge);
                let o = &self.detail.opcodes[f.opcode as usize % OPCODES];
                bump(&o.wr, 1u64.wrapping_neg());
                bump(&o.bytes, f.bytes.wrapping_neg());
                refused.wr += 1;
                refused.bytes += f.bytes;
                w = rest.next;
            }
        }
        refused
    }

    /// Adds up the receives that the provider refused.
    ///
    /// # Safety
    /// As [`Qp::refused_sends`], after [`Qp::start_recv`].
    #[cold]
    #[inline(never)]
    pub unsafe fn refused_recvs(&self, wr: *const ibv_recv_wr, bad: *const ibv_recv_wr) -> Totals {
        let mut refused = Totals::default();
        // SAFETY: as in `refused_sends`.
        unsafe {
            let mut w = if is_in_chain(wr, bad, |w| w.next) { bad } else { wr };
            while let Some(rest) = w.as_ref() {
                refused.wr += 1;
                refused.bytes += recv_bytes(rest, self.spec.max_recv_sge);
                w = rest.next;
            }
        }
        refused
    }
}

/// Whether `bad` is one of the chain `wr`. A provider that failed without saying where has refused everything.
///
/// # Safety
/// `wr` is a valid chain or null.
pub(super) unsafe fn is_in_chain<W>(mut wr: *const W, bad: *const W, next: impl Fn(&W) -> *mut W) -> bool {
    // SAFETY: the caller's promise.
    while let Some(w) = unsafe { wr.as_ref() } {
        if core::ptr::eq(wr, bad) {
            return true;
        }
        wr = next(w);
    }
    false
}

/// A chain between our note and the provider's answer. Holds the queue's lock.
pub struct Posting<'a> {
    queue: &'a Queue,
    post: &'static PostCounters,
    tail: OwnedGuard<'a, Tail>,
}

impl Posting<'_> {
    /// The provider took the whole chain.
    #[inline(always)]
    pub fn accepted(self) {
        // Counted first: who sees the WR's completion has seen it posted.
        self.count();
        self.queue.ring.publish(&self.tail);
    }

    /// The provider refused the end of the chain.
    #[cold]
    #[inline(never)]
    pub fn accepted_without(mut self, refused: Totals) {
        // SAFETY: the ring's tail, locked by this posting.
        unsafe { self.queue.ring.take_back(&mut self.tail, refused) };
        self.accepted();
    }

    #[inline(always)]
    fn count(&self) {
        self.post.wr_posted.store(self.tail.posted.wr, Relaxed);
        self.post.bytes_posted.store(self.tail.posted.bytes, Relaxed);
    }
}
