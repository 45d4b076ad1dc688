//! A completion queue: polled completions retire what the QPs' rings hold.
//!
//! Our lock is held around the provider's poll, so completions are counted in the order in which they were handed out,
//! and around nothing else that could block. Of a completion in error only `wr_id`, `status`, `qp_num` and `vendor_err`
//! are looked at.

use super::Hot;
use super::event::{Event, Sink};
use super::histogram;
use super::inflight::{Retired, Totals};
use super::qp::{Qp, Queue};
use super::srq::Srq;
use crate::shm::layout::{CqRecord, DoneCounters, ErrorCounters, PostCounters, STATUSES};
use crate::shm::segment::{bump, raise};
use crate::sync::{OwnedGuard, OwnedLock};
use crate::table::QpnTable;
use crate::verbs::PollCq;
use core::sync::atomic::Ordering::Relaxed;
use rdma_sys::{ibv_wc, ibv_wc_status};

/// `IBV_WC_RECV`: set in the opcode of every receive completion.
const RECV: u32 = 1 << 7;

/// State of a completion queue.
pub struct Cq {
    /// Index of its record.
    pub index: u32,
    /// Address of the `ibv_cq`.
    pub address: usize,
    /// Its record.
    pub record: &'static CqRecord,
    /// The provider's poll.
    pub real: PollCq,
    /// QPs of its context.
    pub(super) qps: &'static QpnTable<Qp>,
    pub(super) hot: &'static Hot,
    pub(super) sink: Sink,
    pub(super) lock: OwnedLock<LastQp>,
}

/// The QP of the newest completion: the next one is often the same QP's.
#[derive(Default)]
pub struct LastQp {
    qp: Option<&'static Qp>,
    /// Polls with completions until the CQ's time is noted, though nothing was timed.
    until_beat: u32,
}

impl LastQp {
    /// The QP is about to go.
    pub(super) fn forget(&mut self, qp: &Qp) {
        if self.qp.is_some_and(|q| core::ptr::eq(q, qp)) {
            self.qp = None;
        }
    }
}

/// A poll between our lock and the provider's answer.
pub struct Polling<'a> {
    cq: &'a Cq,
    last: OwnedGuard<'a, LastQp>,
}

impl Cq {
    /// Locks the CQ, before the provider is polled.
    #[inline(always)]
    pub fn start_poll(&self) -> Polling<'_> {
        Polling { cq: self, last: self.lock.lock() }
    }
}

/// One time for all completions of a poll, read when first needed.
struct Now {
    stamp: u64,
    real_ns: u64,
}

impl Now {
    #[inline(always)]
    fn stamp(&mut self, hot: &Hot) -> u64 {
        if self.stamp == 0 {
            self.stamp = hot.clock.stamp();
        }
        self.stamp
    }

    #[inline(always)]
    fn real_ns(&mut self, hot: &Hot) -> u64 {
        if self.real_ns == 0 {
            self.real_ns = hot.clock.real_ns(self.stamp(hot));
        }
        self.real_ns
    }
}

impl Polling<'_> {
    /// The provider returned nothing.
    #[inline(always)]
    pub fn empty(self) {
        let r = self.cq.record;
        bump(&r.polls, 1);
        bump(&r.polls_empty, 1);
    }

    /// The provider returned these.
    #[inline(always)]
    pub fn completed(mut self, completions: &[ibv_wc]) {
        let r = self.cq.record;
        bump(&r.polls, 1);
        bump(&r.cqes, completions.len() as u64);
        let mut now = Now { stamp: 0, real_ns: 0 };
        for wc in completions {
            self.one(wc, &mut now);
        }
        // A CQ whose completions are all too small for events still shows that it lives.
        self.last.until_beat = self.last.until_beat.wrapping_sub(1);
        if now.real_ns != 0 || (self.last.until_beat as i32) < 0 {
            self.beat(&mut now);
        }
    }

    #[inline(never)]
    fn beat(&mut self, now: &mut Now) {
        self.last.until_beat = 1024;
        self.cq.record.last_ns.store(now.real_ns(self.cq.hot), Relaxed);
    }

    #[inline(always)]
    fn one(&mut self, wc: &ibv_wc, now: &mut Now) {
        let Some(qp) = self.qp(wc.qp_num) else {
            return self.unmatched();
        };
        let seen = if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
            self.failed(qp, wc, now)
        } else if wc.opcode & RECV == 0 {
            self.sent(qp, wc, now)
        } else {
            received(qp, wc)
        };
        if !seen {
            self.unmatched();
        }
    }

    #[inline(always)]
    fn qp(&mut self, number: u32) -> Option<&'static Qp> {
        match self.last.qp {
            Some(qp) if qp.spec.qp_num == number => Some(qp),
            _ => {
                let qp = self.cq.qps.get(number);
                self.last.qp = qp.or(self.last.qp);
                qp
            }
        }
    }

    #[cold]
    fn unmatched(&self) {
        self.cq.hot.header.completions_unmatched.fetch_add(1, Relaxed);
    }

    #[inline(always)]
    fn sent(&self, qp: &Qp, wc: &ibv_wc, now: &mut Now) -> bool {
        // SAFETY: `self` holds the lock of the CQ that serves this QP's sends.
        let Some(r) = find(&qp.sends, || unsafe { qp.sends.ring.complete(wc.wr_id) }) else {
            return false;
        };
        retire(&qp.record.send_post, &qp.record.send_done, &r, None);
        let latency_ns = if r.stamp == 0 { 0 } else { self.timed(qp, r.stamp, now) };
        if self.cq.hot.events && r.done.bytes > self.cq.hot.min_event_bytes {
            self.event(qp, &r, latency_ns, 0, now);
        }
        true
    }

    #[inline(never)]
    fn timed(&self, qp: &Qp, posted: u64, now: &mut Now) -> u64 {
        let hot = self.cq.hot;
        let ticks = now.stamp(hot).saturating_sub(posted);
        let ns = hot.clock.ticks_to_ns(ticks).max(1);
        histogram::record(&qp.detail.latency, ns);
        let real = now.real_ns(hot);
        qp.record.send_done.last_ns.store(real, Relaxed);
        ns
    }

    #[inline(never)]
    fn event(&self, qp: &Qp, r: &Retired, latency_ns: u64, status: u32, now: &mut Now) {
        let end_ns = now.real_ns(self.cq.hot);
        let post = &qp.record.send_post;
        qp.record.send_done.last_ns.store(end_ns, Relaxed);
        let gone = Totals {
            wr: r.before.wr + r.done.wr + r.failed.wr,
            bytes: r.before.bytes.wrapping_add(r.done.bytes).wrapping_add(r.failed.bytes),
        };
        self.cq.sink.write(&Event {
            end_ns,
            bytes: r.done.bytes,
            wr_outstanding: post.wr_posted.load(Relaxed).saturating_sub(gone.wr),
            bytes_outstanding: post.bytes_posted.load(Relaxed).saturating_sub(gone.bytes),
            latency_ns,
            qp: u64::from(qp.index) << 32 | u64::from(qp.spec.qp_num),
            place: qp.place.load(Relaxed) | u64::from(status & 0xff) << 8,
        });
    }

    #[cold]
    fn failed(&self, qp: &Qp, wc: &ibv_wc, now: &mut Now) -> bool {
        if self.failed_is_receive(qp, wc) {
            return self.receive_failed(qp, wc, now);
        }
        // SAFETY: as in `sent`.
        let Some(r) = find(&qp.sends, || unsafe { qp.sends.ring.fail(wc.wr_id) }) else {
            return false;
        };
        retire(&qp.record.send_post, &qp.record.send_done, &r, None);
        note_error(&qp.detail.send_errors, wc, now.real_ns(self.cq.hot));
        if self.cq.hot.events {
            self.event(qp, &r, 0, wc.status, now);
        }
        true
    }

    fn receive_failed(&self, qp: &Qp, wc: &ibv_wc, now: &mut Now) -> bool {
        note_error(&qp.detail.recv_errors, wc, now.real_ns(self.cq.hot));
        if let Some(srq) = qp.spec.srq {
            let Some(capacity) = srq.take(wc.wr_id, 0, true) else {
                return false;
            };
            let taken = Retired {
                done: Totals::default(),
                failed: Totals { wr: 1, bytes: capacity },
                before: posted_so_far(qp),
                stamp: 0,
            };
            take_from_srq(qp, &taken, 0);
            return true;
        }
        // SAFETY: `self` holds the lock of the CQ that serves this QP's receives.
        let Some(r) = find(&qp.recvs, || unsafe { qp.recvs.ring.fail(wc.wr_id) }) else {
            return false;
        };
        retire(&qp.record.recv_post, &qp.record.recv_done, &r, Some(0));
        true
    }

    /// An error says not whether it was a send or a receive: the CQ tells, or the id, or the status, or, last, the field
    /// that should not be looked at.
    fn failed_is_receive(&self, qp: &Qp, wc: &ibv_wc) -> bool {
        use ibv_wc_status::*;
        let is = |cq: Option<&'static Cq>| cq.is_some_and(|c| core::ptr::eq(c, self.cq));
        match (is(qp.spec.send_cq), is(qp.spec.recv_cq)) {
            (true, false) => return false,
            (false, true) => return true,
            _ => {}
        }
        if matches!(
            wc.status,
            IBV_WC_RETRY_EXC_ERR
                | IBV_WC_RNR_RETRY_EXC_ERR
                | IBV_WC_REM_ACCESS_ERR
                | IBV_WC_REM_INV_REQ_ERR
                | IBV_WC_REM_OP_ERR
                | IBV_WC_BAD_RESP_ERR
                | IBV_WC_MW_BIND_ERR
        ) {
            return false;
        }
        // SAFETY: `self` holds the lock of the CQ that serves both queues.
        let (send, recv) =
            unsafe { (qp.sends.ring.contains(wc.wr_id), qp.spec.srq.is_some() || qp.recvs.ring.contains(wc.wr_id)) };
        match (send, recv) {
            (true, false) => false,
            (false, true) => true,
            _ => wc.opcode & RECV != 0,
        }
    }
}

/// Looks for a completion's WR. If it is not there, a post may be between the provider's acceptance and our publishing:
/// its lock is held until then.
#[inline(always)]
fn find(queue: &Queue, look: impl Fn() -> Option<Retired>) -> Option<Retired> {
    match look() {
        Some(r) => Some(r),
        None => look_again(queue, look),
    }
}

#[cold]
#[inline(never)]
fn look_again(queue: &Queue, look: impl Fn() -> Option<Retired>) -> Option<Retired> {
    drop(queue.tail.lock());
    look()
}

/// Counts what a completion retired. `arrived`: bytes received; `None` for sends, whose bytes are those posted.
#[inline(always)]
fn retire(post: &PostCounters, done: &DoneCounters, r: &Retired, arrived: Option<u64>) {
    raise(&done.wr_high_water, post.wr_posted.load(Relaxed).saturating_sub(r.before.wr));
    raise(&done.bytes_high_water, post.bytes_posted.load(Relaxed).saturating_sub(r.before.bytes));
    let good = if arrived.is_some() { &done.capacity_completed } else { &done.bytes_completed };
    bump(&done.cqes, 1);
    bump(&done.wr_completed, r.done.wr);
    bump(good, r.done.bytes);
    if let Some(arrived) = arrived {
        bump(&done.bytes_completed, arrived);
    }
    if r.failed.wr != 0 {
        bump(&done.wr_failed, r.failed.wr);
        bump(&done.bytes_failed, r.failed.bytes);
    }
}

/// A good receive completion.
#[inline(always)]
fn received(qp: &Qp, wc: &ibv_wc) -> bool {
    let (post, done) = (&qp.record.recv_post, &qp.record.recv_done);
    let arrived = u64::from(wc.byte_len);
    if let Some(srq) = qp.spec.srq {
        return received_from_srq(qp, srq, wc);
    }
    // SAFETY: the caller holds the lock of the CQ that serves this QP's receives.
    let Some(r) = find(&qp.recvs, || unsafe { qp.recvs.ring.complete(wc.wr_id) }) else {
        return false;
    };
    retire(post, done, &r, Some(arrived));
    true
}

#[inline(never)]
fn received_from_srq(qp: &Qp, srq: &Srq, wc: &ibv_wc) -> bool {
    let arrived = u64::from(wc.byte_len);
    let Some(capacity) = srq.take(wc.wr_id, arrived, false) else {
        return false;
    };
    let done = Totals { wr: 1, bytes: capacity };
    let failed = Totals::default();
    take_from_srq(qp, &Retired { done, failed, before: posted_so_far(qp), stamp: 0 }, arrived);
    true
}

/// Receives that a QP with an SRQ has taken so far.
fn posted_so_far(qp: &Qp) -> Totals {
    let post = &qp.record.recv_post;
    Totals { wr: post.wr_posted.load(Relaxed), bytes: post.bytes_posted.load(Relaxed) }
}

/// A QP takes from its SRQ what it needs: posted and retired at once. Its own receive queue is never posted to, so the
/// CQ's lock serialises these counters, too.
fn take_from_srq(qp: &Qp, taken: &Retired, arrived: u64) {
    bump(&qp.record.recv_post.wr_posted, 1);
    bump(&qp.record.recv_post.bytes_posted, taken.done.bytes + taken.failed.bytes);
    retire(&qp.record.recv_post, &qp.record.recv_done, taken, Some(arrived));
}

fn note_error(e: &ErrorCounters, wc: &ibv_wc, now_ns: u64) {
    bump(&e.by_status[(wc.status as usize).min(STATUSES - 1)], 1);
    if wc.status != ibv_wc_status::IBV_WC_WR_FLUSH_ERR {
        e.last.store(u64::from(wc.status) << 32 | u64::from(wc.vendor_err), Relaxed);
        e.last_wr_id.store(wc.wr_id, Relaxed);
        e.last_ns.store(now_ns, Relaxed);
    }
}
