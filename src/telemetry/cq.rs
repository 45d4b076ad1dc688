//! A completion queue: polled completions retire what the QPs' rings hold.
//!
//! Our lock is held around the provider's poll, so completions are counted in the order in which they were handed out,
//! and around nothing else that could block. Of a completion in error only `wr_id`, `status`, `qp_num` and `vendor_err`
//! are looked at.

use super::Hot;
use super::datagrams::Datagrams;
use super::event::{Event, Sink};
use super::histogram;
use super::inflight::{Retired, Totals};
use super::peer::{Completion, Peer};
use super::qp::{Qp, Queue};
use super::users::Users;
use super::xrc::Srqs;
use crate::aside::aside;
use crate::shm::layout::{CqRecord, DoneCounters, ErrorCounters, NONE, Outstood, PostCounters, STATUSES};
use crate::shm::segment::{bump, raise};
use crate::sync::OwnedLock;
use crate::table::QpnTable;
use crate::verbs::PollCq;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use rdma_sys::{ibv_wc, ibv_wc_status};

/// `IBV_WC_RECV`: set in the opcode of every receive completion.
pub(super) const RECV: u32 = 1 << 7;

/// A CQ notes the time once in so many completions, though nothing is timed: it shows that it lives.
const BEAT: u64 = 1024;

/// What a CQ is created with.
#[derive(Clone, Copy)]
pub struct CqSpec {
    /// The provider's poll.
    pub real: PollCq,
    /// Entries as granted.
    pub cqe: u32,
    /// It has `ibv_start_poll` and so on, whose hooks are in place.
    pub extended: bool,
    /// Its completions say of which QP they are.
    pub tells_qp: bool,
    /// Some of what it does is not seen.
    pub opaque: bool,
}

/// State of a completion queue.
pub struct Cq {
    /// Index of its record.
    pub index: u32,
    /// Address of the `ibv_cq`.
    pub address: usize,
    /// Its record.
    pub record: &'static CqRecord,
    /// What it was created with.
    pub spec: CqSpec,
    /// Number of the only QP that it serves, [`NONE`] if there are none or several; only kept where completions do not tell.
    pub(super) only_qp: AtomicU32,
    pub(super) xrc_srqs: Srqs,
    /// QPs that it serves.
    pub(super) users: Users,
    /// QPs of its context.
    pub(super) qps: &'static QpnTable<Qp>,
    pub(super) hot: &'static Hot,
    pub(super) sink: Sink,
    /// Completions of more bytes make an event.
    pub(super) event_over: u64,
    /// For so many reasons multi-path must see completions before the application does. Changed under the lock.
    pub sifts: AtomicU32,
    /// Held around the provider's poll.
    pub lock: OwnedLock<LastQp>,
}

/// The QP of the newest completion: the next one is often the same QP's.
#[derive(Default)]
pub struct LastQp {
    qp: Option<&'static Qp>,
}

impl LastQp {
    /// The QP is about to go.
    pub(super) fn forget(&mut self, qp: &Qp) {
        if self.qp.is_some_and(|q| core::ptr::eq(q, qp)) {
            self.qp = None;
        }
    }
}

impl Cq {
    /// Number of the only QP that it serves, or [`NONE`].
    pub fn only_qp(&self) -> u32 {
        self.only_qp.load(Relaxed)
    }

    /// The QPs of its context have changed.
    pub(super) fn look_for_only_qp(&self) {
        let mut served = self.qps.entries().into_iter().filter(|(_, qp)| qp.is_served_by(self));
        let only = served.next().filter(|_| served.next().is_none());
        self.only_qp.store(only.map_or(NONE, |(number, _)| number), Relaxed);
    }

    /// It has room for so many completions now.
    pub fn resized(&self, cqe: u32) {
        self.record.cqe.store(cqe, Relaxed);
    }

    /// The provider returned nothing.
    #[inline(always)]
    pub fn empty(&self) {
        bump(&self.record.polls_empty, 1);
    }

    /// The provider returned these. `last`: this CQ's, locked since before the provider was polled.
    #[inline(always)]
    pub fn completed(&self, last: &mut LastQp, completions: &[ibv_wc]) {
        let before = self.record.cqes.load(Relaxed);
        let now = before + completions.len() as u64;
        self.record.cqes.store(now, Relaxed);
        // One time for all completions of a poll, read when first needed.
        let mut stamp = 0;
        for wc in completions {
            stamp = self.one(last, wc, stamp);
        }
        // A CQ whose completions are all too small for events still shows that it lives.
        if now / BEAT != before / BEAT {
            aside(move || self.record.last_ns.store(self.real_ns(self.time(stamp)), Relaxed));
        }
    }

    /// As [`Cq::completed`], of an everyday completion: of the last completion's QP, a good one, of the oldest send. False,
    /// and nothing has changed, if it is not such a one.
    #[inline(always)]
    pub fn completed_send(&self, last: &LastQp, wc: &ibv_wc) -> bool {
        let Some(qp) = last.qp else { return false };
        let record = self.record;
        let cqes = record.cqes.load(Relaxed) + 1;
        if qp.spec.qp_num != wc.qp_num
            || wc.status != ibv_wc_status::IBV_WC_SUCCESS
            || wc.opcode & RECV != 0
            || cqes.is_multiple_of(BEAT)
        {
            return false;
        }
        // SAFETY: this CQ serves the QP's sends, and its lock is held.
        let Some(r) = (unsafe { qp.sends.ring.complete_oldest(wc.wr_id) }) else { return false };
        record.cqes.store(cqes, Relaxed);
        self.sent(qp, r, 0);
        true
    }

    /// The poll's time in clock ticks: `stamp`, if it was read already.
    fn time(&self, stamp: u64) -> u64 {
        if stamp == 0 { self.hot.clock.stamp() } else { stamp }
    }

    fn real_ns(&self, stamp: u64) -> u64 {
        self.hot.clock.real_ns(stamp)
    }

    /// Counts one completion. Takes and returns the poll's time, 0 = not read yet.
    #[inline(always)]
    fn one(&self, last: &mut LastQp, wc: &ibv_wc, stamp: u64) -> u64 {
        let qp = match last.qp {
            Some(qp) if qp.spec.qp_num == wc.qp_num => qp,
            _ => match self.qps.get(wc.qp_num) {
                // Another CQ's (a left-over of the number's last QP): its rings are not under our lock, and `last` would
                // not be told when it goes.
                Some(qp) if qp.is_served_by(self) => {
                    // Of datagrams, no completion is an everyday one.
                    if let Some(d) = &qp.sends.ring.datagrams {
                        return aside(move || self.of_datagrams(qp, d, wc, stamp));
                    }
                    last.qp = Some(qp);
                    qp
                }
                _ => return aside(move || self.not_its_qps(wc, stamp)),
            },
        };
        self.ended(qp, wc, stamp)
    }

    /// As [`Cq::one`], of this QP.
    #[inline(always)]
    fn ended(&self, qp: &'static Qp, wc: &ibv_wc, stamp: u64) -> u64 {
        if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
            return aside(move || self.failed(qp, wc, stamp));
        }
        if wc.opcode & RECV == 0 {
            // SAFETY: this CQ serves the QP's sends, and its lock is held.
            match unsafe { qp.sends.ring.complete(wc.wr_id) } {
                Some(r) => self.sent(qp, r, stamp),
                None => aside(move || self.sent_late(qp, wc, stamp)),
            }
        } else if qp.spec.srq.is_some() {
            aside(move || self.received_from_srq(qp, wc, stamp))
        } else {
            // SAFETY: this CQ serves the QP's receives, and its lock is held.
            match unsafe { qp.recvs.ring.complete(wc.wr_id) } {
                Some(r) => {
                    received(qp, r, wc);
                    stamp
                }
                None => aside(move || self.received_late(qp, wc, stamp)),
            }
        }
    }

    fn not_its_qps(&self, wc: &ibv_wc, stamp: u64) -> u64 {
        if self.received_by_xrc(wc) { stamp } else { self.unmatched(stamp) }
    }

    #[cold]
    fn unmatched(&self, stamp: u64) -> u64 {
        self.hot.header.completions_unmatched.fetch_add(1, Relaxed);
        stamp
    }

    #[inline(always)]
    fn sent(&self, qp: &'static Qp, r: Retired, stamp: u64) -> u64 {
        let done = retire(&qp.record.send_post, &qp.record.send_done, r.end);
        if r.is_timed() || done.bytes > self.event_over {
            return self.note(qp, done.bytes, r.stamp(), 0, stamp);
        }
        stamp
    }

    /// The completion is not the oldest WR's.
    fn sent_late(&self, qp: &'static Qp, wc: &ibv_wc, stamp: u64) -> u64 {
        // SAFETY: as in `one`.
        match find_late(&qp.sends, || unsafe { qp.sends.ring.complete(wc.wr_id) }) {
            Some(r) => self.sent(qp, r, stamp),
            None => self.unmatched(stamp),
        }
    }

    /// As [`Cq::sent_late`].
    fn received_late(&self, qp: &'static Qp, wc: &ibv_wc, stamp: u64) -> u64 {
        // SAFETY: as in `one`.
        match find_late(&qp.recvs, || unsafe { qp.recvs.ring.complete(wc.wr_id) }) {
            Some(r) => received(qp, r, wc),
            None => return self.unmatched(stamp),
        }
        stamp
    }

    fn received_from_srq(&self, qp: &'static Qp, wc: &ibv_wc, stamp: u64) -> u64 {
        let arrived = u64::from(wc.byte_len);
        let Some(capacity) = qp.spec.srq.and_then(|srq| srq.take(wc.wr_id, arrived, false)) else {
            return self.unmatched(stamp);
        };
        take_from_srq(qp, capacity);
        srq_receive_ended(qp, wc, capacity, self.hot);
        stamp
    }

    /// As [`Cq::ended`], of a QP whose WRs have peers of their own.
    fn of_datagrams(&self, qp: &'static Qp, d: &'static Datagrams, wc: &ibv_wc, stamp: u64) -> u64 {
        if wc.status != ibv_wc_status::IBV_WC_SUCCESS || wc.opcode & RECV != 0 {
            return self.ended(qp, wc, stamp);
        }
        // SAFETY: as in `one`.
        match find_late(&qp.sends, || unsafe { qp.sends.ring.covered(wc.wr_id) }) {
            Some((numbers, r)) => {
                retire(&qp.record.send_post, &qp.record.send_done, r.end);
                self.datagrams_sent(qp, d, numbers, r.stamp(), 0, stamp)
            }
            None => self.unmatched(stamp),
        }
    }

    /// The WRs of these numbers are done, and the QP has counted them: each counts at its peer, and each run of WRs to one peer
    /// has an event, if it is worth one. `posted` and `fault` are the last WR's, as [`Cq::note`] has them.
    fn datagrams_sent(
        &self,
        qp: &'static Qp,
        d: &Datagrams,
        numbers: Range<u64>,
        posted: u64,
        fault: u64,
        mut stamp: u64,
    ) -> u64 {
        let end = numbers.end;
        d.runs(numbers, false, |run| {
            let (is_last, status) = (run.last + 1 == end, fault as u32);
            let failed = if is_last && status != 0 { run.last_bytes } else { 0 };
            if let Some(peer) = run.peer {
                peer.ended(run.wrs, is_last.then_some(Completion { status, failed }));
            }
            let (bytes, posted, fault) =
                (run.wrs.bytes.wrapping_sub(failed), if is_last { posted } else { 0 }, if is_last { fault } else { 0 });
            if bytes > self.event_over || posted != 0 || fault != 0 {
                let whose = Whose { peer: run.peer, number: run.last };
                stamp = self.note_as(qp, bytes, posted, fault, stamp, Some(whose));
            }
        });
        // SAFETY: as in `one`; the numbers were found under the same lock.
        unsafe { qp.sends.ring.retire_to(end) };
        stamp
    }

    /// Measures the latency of a WR posted at `posted` (0: not timed), and writes the event of a completion that retired
    /// `bytes`. `fault`: `vendor_err << 32 | status`. Returns the poll's time.
    // Not `aside`, since it is not seldom: extern "C" for its promise not to unwind, and nothing in it could.
    #[inline(never)]
    extern "C" fn note(&self, qp: &Qp, bytes: u64, posted: u64, fault: u64, stamp: u64) -> u64 {
        self.note_as(qp, bytes, posted, fault, stamp, None)
    }

    /// As [`Cq::note`]. `whose`: of a datagram.
    #[inline(always)]
    fn note_as(&self, qp: &Qp, bytes: u64, posted: u64, fault: u64, stamp: u64, whose: Option<Whose>) -> u64 {
        let (status, vendor_err) = (fault as u32, fault >> 32);
        let now = self.time(stamp);
        let end_ns = self.real_ns(now);
        qp.record.send_done.last_ns.store(end_ns, Relaxed);
        self.record.last_ns.store(end_ns, Relaxed);
        let mut latency_ns = vendor_err;
        if posted != 0 {
            latency_ns = self.hot.clock.ticks_to_ns(now.saturating_sub(posted)).max(1);
            histogram::record(&qp.detail.latency, latency_ns);
        }
        if let Some(peer) = whose.and_then(|w| w.peer) {
            peer.noted(end_ns, (posted != 0).then_some(latency_ns));
        }
        if bytes > self.event_over || (status != 0 && self.hot.events) {
            let (post, done) = (&qp.record.send_post, &qp.record.send_done);
            let left = |posted: &AtomicU64, gone: &AtomicU64| posted.load(Relaxed).saturating_sub(gone.load(Relaxed));
            self.sink.write(&Event {
                end_ns,
                bytes,
                wr_outstanding: left(&post.wr_posted, &done.wr_retired),
                bytes_outstanding: left(&post.bytes_posted, &done.bytes_retired),
                latency_ns,
                qp: u64::from(qp.index) << 32 | u64::from(qp.spec.qp_num),
                place: whose.map_or(qp.place.load(Relaxed), |w| w.place(qp)) | u64::from(status & 0xff) << 8,
                label: whose.map_or_else(|| qp.last_label(), |w| qp.label_of(w.number)),
            });
        }
        now
    }

    fn failed(&self, qp: &'static Qp, wc: &ibv_wc, stamp: u64) -> u64 {
        let now = self.time(stamp);
        if self.failed_is_receive(qp, wc) {
            self.receive_failed(qp, wc, now);
            return now;
        }
        let done = &qp.record.send_done;
        let new = note_error(&qp.detail.send_errors, wc, self.real_ns(now));
        if new {
            let outstood = &qp.detail.send_errors.last_outstood;
            note_outstood(outstood, &qp.record.send_post, done);
            outstood.opcode.store(qp.only_opcode().map_or(0, |o| u64::from(o) + 1), Relaxed);
        }
        let now = self.send_failed(qp, wc, now);
        // Last: whoever is woken sees all of it.
        if new {
            self.hot.alarm.raise(qp.index, qp.spec.qp_num);
        }
        now
    }

    fn send_failed(&self, qp: &'static Qp, wc: &ibv_wc, now: u64) -> u64 {
        let done = &qp.record.send_done;
        // How long a WR took to fail is not its latency.
        let fault = u64::from(wc.vendor_err) << 32 | u64::from(wc.status);
        if let Some(d) = &qp.sends.ring.datagrams {
            // SAFETY: as in `one`.
            let find = || unsafe { qp.sends.ring.covered_by_failure(wc.wr_id, retired(done)) };
            let Some((numbers, r, lost)) = find_late(&qp.sends, find) else { return self.unmatched(now) };
            retire(&qp.record.send_post, done, r.end);
            add_failed(done, lost);
            return self.datagrams_sent(qp, d, numbers, 0, fault, now);
        }
        let Some((r, lost)) = find_failed(&qp.sends, done, wc.wr_id) else {
            return self.unmatched(now);
        };
        let gone = retire(&qp.record.send_post, done, r.end);
        add_failed(done, lost);
        self.note(qp, gone.since(lost).bytes, 0, fault, now)
    }

    fn receive_failed(&self, qp: &'static Qp, wc: &ibv_wc, now: u64) {
        if let Some(srq) = qp.spec.srq {
            match srq.take(wc.wr_id, 0, true) {
                Some(capacity) => {
                    take_from_srq(qp, capacity);
                    srq_receive_ended(qp, wc, capacity, self.hot);
                }
                None => _ = self.unmatched(now),
            }
            return;
        }
        self.note_receive_error(qp, wc, self.real_ns(now));
        let done = &qp.record.recv_done;
        match find_failed(&qp.recvs, done, wc.wr_id) {
            Some((r, lost)) => {
                retire(&qp.record.recv_post, done, r.end);
                add_failed(done, lost);
            }
            None => _ = self.unmatched(now),
        }
    }

    fn note_receive_error(&self, qp: &Qp, wc: &ibv_wc, now_ns: u64) {
        if note_error(&qp.detail.recv_errors, wc, now_ns) {
            note_outstood(&qp.detail.recv_errors.last_outstood, &qp.record.recv_post, &qp.record.recv_done);
            self.hot.alarm.raise(qp.index, qp.spec.qp_num);
        }
    }

    /// Whether a completion in error of one of its QPs is that of a receive.
    pub fn is_failed_receive(&self, wc: &ibv_wc) -> bool {
        self.qps.get(wc.qp_num).is_some_and(|qp| self.failed_is_receive(qp, wc))
    }

    /// An error says not whether it was a send or a receive: the CQ tells, or the id, or the status, or, last, the field
    /// that should not be looked at.
    fn failed_is_receive(&self, qp: &Qp, wc: &ibv_wc) -> bool {
        use ibv_wc_status::*;
        let is = |cq: Option<&'static Cq>| cq.is_some_and(|c| core::ptr::eq(c, self));
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
        let look = || {
            // SAFETY: `self` holds the lock of the CQ that serves both queues.
            let (send, recv) = unsafe { (qp.sends.ring.contains(wc.wr_id), qp.recvs.ring.contains(wc.wr_id)) };
            (send, recv || qp.spec.srq.is_some_and(|srq| srq.contains(wc.wr_id)))
        };
        let (send, recv) = match look() {
            // As in `find_late`.
            (false, false) => {
                drop(qp.sends.tail.lock());
                drop(qp.recvs.tail.lock());
                look()
            }
            found => found,
        };
        match (send, recv) {
            (true, false) => false,
            (false, true) => true,
            _ => wc.opcode & RECV != 0,
        }
    }
}

/// Of which datagram an event is.
#[derive(Clone, Copy)]
struct Whose {
    peer: Option<&'static Peer>,
    /// Its number in the ring.
    number: u64,
}

impl Whose {
    fn place(&self, qp: &Qp) -> u64 {
        let peer = self.peer.map_or(NONE, |p| p.index);
        u64::from(peer) << 32 | qp.place.load(Relaxed) & 0xffff_ffff
    }
}

/// Takes a failed WR out of the ring. The caller holds the lock of the CQ that serves the queue.
fn find_failed(queue: &Queue, done: &DoneCounters, wr_id: u64) -> Option<(Retired, Totals)> {
    // SAFETY: the caller's promise.
    find_late(queue, || unsafe { queue.ring.fail(wr_id, retired(done)) })
}

/// Looks for a WR that may not be in the ring yet: its post may be between the provider's acceptance and our publishing,
/// and holds the queue's lock until then.
fn find_late<R>(queue: &Queue, look: impl Fn() -> Option<R>) -> Option<R> {
    look().or_else(|| {
        drop(queue.tail.lock());
        look()
    })
}

/// Totals that left the queue so far.
#[inline(always)]
fn retired(done: &DoneCounters) -> Totals {
    Totals { wr: done.wr_retired.load(Relaxed), bytes: done.bytes_retired.load(Relaxed) }
}

/// A completion was polled, and the queue's WRs up to `end` are retired. Returns how much that is.
#[inline(always)]
fn retire(post: &PostCounters, done: &DoneCounters, end: Totals) -> Totals {
    let before = retired(done);
    raise(&done.wr_high_water, post.wr_posted.load(Relaxed).wrapping_sub(before.wr));
    raise(&done.bytes_high_water, post.bytes_posted.load(Relaxed).wrapping_sub(before.bytes));
    done.wr_retired.store(end.wr, Relaxed);
    done.bytes_retired.store(end.bytes, Relaxed);
    bump(&done.cqes, 1);
    end.since(before)
}

#[inline(always)]
fn received(qp: &Qp, r: Retired, wc: &ibv_wc) {
    retire(&qp.record.recv_post, &qp.record.recv_done, r.end);
    bump(&qp.record.recv_done.bytes_arrived, u64::from(wc.byte_len));
}

fn add_failed(done: &DoneCounters, lost: Totals) {
    bump(&done.wr_failed, lost.wr);
    bump(&done.bytes_failed, lost.bytes);
}

/// A QP takes from its SRQ what it needs: posted and retired at once. Its own receive queue is never posted to, so the
/// CQ's lock serialises these counters, too.
pub(super) fn take_from_srq(qp: &Qp, capacity: u64) {
    let post = &qp.record.recv_post;
    bump(&post.wr_posted, 1);
    bump(&post.bytes_posted, capacity);
    retire(
        post,
        &qp.record.recv_done,
        Totals { wr: post.wr_posted.load(Relaxed), bytes: post.bytes_posted.load(Relaxed) },
    );
}

/// What became of a receive that a QP took from an SRQ.
pub(super) fn srq_receive_ended(qp: &Qp, wc: &ibv_wc, capacity: u64, hot: &Hot) {
    if wc.status == ibv_wc_status::IBV_WC_SUCCESS {
        bump(&qp.record.recv_done.bytes_arrived, u64::from(wc.byte_len));
    } else {
        if note_error(&qp.detail.recv_errors, wc, hot.clock.real_ns(hot.clock.stamp())) {
            hot.alarm.raise(qp.index, qp.spec.qp_num);
        }
        add_failed(&qp.record.recv_done, Totals { wr: 1, bytes: capacity });
    }
}

/// Whether it is one to remember.
fn note_error(e: &ErrorCounters, wc: &ibv_wc, now_ns: u64) -> bool {
    bump(&e.by_status[(wc.status as usize).min(STATUSES - 1)], 1);
    let new = wc.status != ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
    if new {
        e.last.store(u64::from(wc.status) << 32 | u64::from(wc.vendor_err), Relaxed);
        e.last_wr_id.store(wc.wr_id, Relaxed);
        e.last_ns.store(now_ns, Relaxed);
    }
    new
}

fn note_outstood(to: &Outstood, post: &PostCounters, done: &DoneCounters) {
    let gone = retired(done);
    to.wr.store(post.wr_posted.load(Relaxed).saturating_sub(gone.wr), Relaxed);
    to.bytes.store(post.bytes_posted.load(Relaxed).saturating_sub(gone.bytes), Relaxed);
}
