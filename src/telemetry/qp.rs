//! A queue pair: posts enter its rings here. Completions are in [`super::cq`].

use super::Hot;
use super::attention::Attention;
use super::cq::Cq;
use super::datagrams::{Datagrams, Handles};
use super::inflight::{Cursor, Inflight, SIGNALED, Tail, Totals};
use super::labels::Labels;
use super::peer::Peer;
use super::srq::Srq;
use super::users::Users;
use crate::attribution::Label;
use crate::shm::layout::{LabelRecord, MultipathRecord, OPCODES, PostCounters, QpDetail, QpRecord};
use crate::shm::segment::bump;
use crate::sync::OwnedLock;
use crate::verbs::{DataPath, SendFacts, recv_bytes, send_facts, single_send_facts};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use rdma_sys::{ibv_qp_type, ibv_recv_wr, ibv_send_wr};
use std::sync::OnceLock;

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
    /// The QP has `ibv_wr_*` operations, whose hooks are in place.
    pub extended: bool,
    /// Some of what it does is not seen.
    pub opaque: bool,
    /// CQ of sends.
    pub send_cq: Option<&'static Cq>,
    /// CQ of receives.
    pub recv_cq: Option<&'static Cq>,
    /// Shared receive queue.
    pub srq: Option<&'static Srq>,
}

impl QpSpec {
    /// Calls `f` with the users of each object whose state it refers to.
    pub(super) fn for_each_used(&self, f: impl Fn(&Users)) {
        let (cqs, srq) = ([self.send_cq, self.recv_cq], self.srq);
        cqs.iter().flatten().map(|cq| &cq.users).chain(srq.map(|s| &s.users)).for_each(f);
    }
}

/// One direction's queue. The totals posted and retired are the record's; the ring says what is in between.
pub struct Queue {
    /// Held from the note of a post to the provider's answer.
    pub tail: OwnedLock<Tail>,
    pub(super) ring: Inflight,
}

impl Queue {
    fn new(depth: u32) -> Option<Queue> {
        Some(Queue { tail: OwnedLock::default(), ring: Inflight::new(depth)? })
    }
}

/// What a QP has in the segment.
pub(super) struct QpRecords {
    pub index: u32,
    pub record: &'static QpRecord,
    pub detail: &'static QpDetail,
    pub multipath: Option<&'static MultipathRecord>,
    pub works_for: Option<&'static LabelRecord>,
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
    /// What multi-path does to it; where that is on, and the segment has room.
    pub multipath: Option<&'static MultipathRecord>,
    /// Whom it works for; where the segment has room.
    pub(super) works_for: Option<&'static LabelRecord>,
    /// Which WR is for what; where NCCL says so.
    labels: OnceLock<Labels>,
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
    /// Which sends multi-path's engine is to see.
    pub engine: Attention,
    /// Send queue.
    pub sends: Queue,
    /// Receive queue.
    pub recvs: Queue,
}

impl Qp {
    /// `None`: no memory for the queues.
    pub(super) fn new(
        spec: QpSpec,
        address: usize,
        records: QpRecords,
        hot: &'static Hot,
        handles: &'static Handles,
    ) -> Option<Qp> {
        use crate::shm::layout::NONE;
        let mut sends = Queue::new(spec.max_send_wr)?;
        if spec.qp_type == ibv_qp_type::IBV_QPT_UD {
            sends.ring.datagrams = Some(Box::new(Datagrams::new(sends.ring.capacity(), handles)?));
        }
        let QpRecords { index, record, detail, multipath, works_for } = records;
        Some(Qp {
            index,
            record,
            detail,
            multipath,
            works_for,
            labels: OnceLock::new(),
            address,
            place: core::sync::atomic::AtomicU64::new(u64::from(NONE) << 32 | 0xffff << 16),
            port: AtomicU32::new(NONE),
            peer: AtomicU32::new(NONE),
            hot,
            sends,
            recvs: Queue::new(spec.max_recv_wr)?,
            engine: Attention::none(),
            sig_all: if spec.sig_all { SIGNALED } else { 0 },
            spec,
        })
    }

    /// Keeps the label of each WR that is posted from now on.
    pub(super) fn keep_labels(&self) {
        if self.labels.get().is_none()
            && let Some(labels) = Labels::new(self.sends.ring.capacity(), self.works_for, self.multipath.is_some())
        {
            let mut tail = self.sends.tail.lock();
            let _ = self.labels.set(labels);
            self.sends.ring.never_everyday(&mut tail);
        }
    }

    /// The WRs from `from` up to the cursor were noted.
    #[inline(always)]
    fn noted(&self, tail: &mut Tail, from: u64, to: &Cursor) {
        self.sends.ring.noted(tail);
        if let Some(labels) = self.labels.get() {
            labels.note(from..to.number());
            self.sends.ring.never_everyday(tail);
        }
    }

    /// Its record is emptied: the next label is told anew.
    pub(super) fn labels_begin_anew(&self) {
        self.labels.get().inspect(|l| l.begin_anew());
    }

    /// The label of the send that was completed last. Under the CQ's lock.
    pub(super) fn last_label(&self) -> Label {
        self.label_of(self.sends.ring.last_retired())
    }

    /// The label of a send by its number in the ring. As above.
    pub(super) fn label_of(&self, number: u64) -> Label {
        self.labels.get().map_or(Label::NONE, |l| l.of(number))
    }

    /// Whether completions of its sends or receives come to this CQ.
    #[inline(always)]
    pub(super) fn is_served_by(&self, cq: &Cq) -> bool {
        [self.spec.send_cq, self.spec.recv_cq].iter().flatten().any(|c| core::ptr::eq(*c, cq))
    }

    /// Notes a chain of sends, before the provider gets it. `tail`: of the send queue, locked until the answer is counted.
    ///
    /// # Safety
    /// `wr` is the chain passed to `ibv_post_send` on this QP.
    #[inline(always)]
    pub unsafe fn note_sends(&self, tail: &mut Tail, mut wr: *const ibv_send_wr) -> Cursor {
        if let Some(d) = &self.sends.ring.datagrams {
            // SAFETY: the caller's promise.
            return unsafe { self.note_datagrams(d, tail, wr) };
        }
        let (mut c, mut now) = (self.sends.ring.start(posted(&self.record.send_post)), 0);
        let from = c.number();
        // SAFETY: the chain is the application's, valid until the call returns.
        while let Some(w) = unsafe { wr.as_ref() } {
            // SAFETY: the caller's promise.
            let f = unsafe { send_facts(w, self.spec.max_send_sge) };
            self.count_opcode(f.opcode, f.bytes);
            // SAFETY: our ring's tail, locked; the cursor is of this note.
            c = unsafe { self.note(tail, c, &f, &mut now) };
            wr = w.next;
        }
        self.noted(tail, from, &c);
        c
    }

    /// As [`Qp::note_sends`], of a UD QP: none of its WRs is an everyday one.
    ///
    /// # Safety
    /// As [`Qp::note_sends`].
    #[inline(never)]
    unsafe fn note_datagrams(&self, d: &Datagrams, tail: &mut Tail, mut wr: *const ibv_send_wr) -> Cursor {
        let (mut c, mut now) = (self.sends.ring.start(posted(&self.record.send_post)), 0);
        let (from, port) = (c.number(), self.port.load(Relaxed));
        // SAFETY: as in `note_sends`.
        while let Some(w) = unsafe { wr.as_ref() } {
            // SAFETY: as in `note_sends`; of a UD QP's WR, that member of the union is set.
            let (f, handle) = unsafe { (send_facts(w, self.spec.max_send_sge), w.wr.ud.ah) };
            self.count_opcode(f.opcode, f.bytes);
            // SAFETY: as in `note_sends`.
            c = unsafe { self.note_datagram(d, tail, c, &f, d.peer(handle, port), &mut now) };
            wr = w.next;
        }
        self.note_labels(from, &c);
        c
    }

    /// Notes one WR to `peer`, and that only if the ring has room.
    ///
    /// # Safety
    /// As [`Qp::note`].
    #[inline(always)]
    unsafe fn note_datagram(
        &self,
        d: &Datagrams,
        tail: &mut Tail,
        c: Cursor,
        f: &SendFacts,
        peer: Option<&'static Peer>,
        now: &mut u64,
    ) -> Cursor {
        let number = c.number();
        // SAFETY: the caller's promise.
        let c = unsafe { self.note(tail, c, f, now) };
        if c.number() != number {
            d.note(number, peer, f.bytes, f.opcode);
        }
        c
    }

    fn note_labels(&self, from: u64, to: &Cursor) {
        if let Some(labels) = self.labels.get() {
            labels.note(from..to.number());
        }
    }

    /// Notes one WR. `now`: clock ticks of its chain, 0 = not read yet.
    ///
    /// # Safety
    /// As [`Inflight::push`].
    #[inline(always)]
    unsafe fn note(&self, tail: &mut Tail, c: Cursor, f: &SendFacts, now: &mut u64) -> Cursor {
        let mut stamp = f.signaled | self.sig_all;
        if stamp != 0 && tail.is_due(&c, self.hot.latency_every) {
            // Read at most once per chain.
            *now = if *now == 0 { self.hot.clock.stamp() } else { *now };
            stamp |= *now;
        }
        // SAFETY: the caller's promise.
        unsafe { self.sends.ring.push(tail, c, f.wr_id, f.bytes, stamp) }
    }

    /// As [`Qp::note_sends`], of WRs that are in no chain and are posted all or none. If the provider refuses them, nothing is to be done.
    ///
    /// # Safety
    /// `tail` is this send queue's, locked.
    pub unsafe fn note_batch(&self, tail: &mut Tail, wrs: &[SendFacts]) -> Cursor {
        // SAFETY: the caller's promise.
        unsafe { self.note_batch_to(tail, wrs, &[]) }
    }

    /// As [`Qp::note_batch`]. `peers`: those of a UD QP's WRs, as far as they are known.
    ///
    /// # Safety
    /// As [`Qp::note_batch`].
    pub unsafe fn note_batch_to(&self, tail: &mut Tail, wrs: &[SendFacts], peers: &[Option<&'static Peer>]) -> Cursor {
        if let Some(d) = &self.sends.ring.datagrams {
            // SAFETY: the caller's promise.
            return unsafe { self.note_datagram_batch(d, tail, wrs, peers) };
        }
        let (mut c, mut now) = (self.sends.ring.start(posted(&self.record.send_post)), 0);
        let from = c.number();
        for f in wrs {
            // SAFETY: the caller's promise; the cursor is of this note.
            c = unsafe { self.note(tail, c, f, &mut now) };
        }
        self.noted(tail, from, &c);
        c
    }

    /// # Safety
    /// As [`Qp::note_batch`].
    #[inline(never)]
    unsafe fn note_datagram_batch(
        &self,
        d: &Datagrams,
        tail: &mut Tail,
        wrs: &[SendFacts],
        peers: &[Option<&'static Peer>],
    ) -> Cursor {
        let (mut c, mut now) = (self.sends.ring.start(posted(&self.record.send_post)), 0);
        let (from, port) = (c.number(), self.port.load(Relaxed));
        for (i, f) in wrs.iter().enumerate() {
            let peer = peers.get(i).copied().flatten().filter(|p| p.port == port);
            // SAFETY: the caller's promise; the cursor is of this note.
            c = unsafe { self.note_datagram(d, tail, c, f, peer, &mut now) };
        }
        self.note_labels(from, &c);
        c
    }

    /// The provider took the batch that was noted up to the cursor.
    pub fn batch_accepted(&self, c: Cursor, wrs: &[SendFacts]) {
        wrs.iter().for_each(|f| self.count_opcode(f.opcode, f.bytes));
        self.sends_accepted(c);
    }

    /// So many WRs were posted that could not be noted.
    #[cold]
    pub fn left_out(&self, wrs: u64) {
        self.hot.header.wrs_unseen.fetch_add(wrs, Relaxed);
    }

    /// The opcode of all its sends, if they have the same.
    pub fn only_opcode(&self) -> Option<u32> {
        let mut used = (0..OPCODES as u32).filter(|o| self.detail.opcodes[*o as usize].wr.load(Relaxed) > 0);
        used.next().filter(|_| used.next().is_none())
    }

    #[inline(always)]
    fn count_opcode(&self, opcode: u32, bytes: u64) {
        let o = &self.detail.opcodes[opcode as usize % OPCODES];
        bump(&o.wr, 1);
        bump(&o.bytes, bytes);
    }

    /// As [`Qp::note_sends`], of an everyday WR: alone, one scatter/gather element, not to be timed, and the ring has
    /// room. Returns what [`Qp::send_accepted`] counts; if the provider refuses, nothing is to be done. `None`, and nothing
    /// has changed, if it is not such a one.
    ///
    /// # Safety
    /// As [`Qp::note_sends`].
    #[inline(always)]
    pub unsafe fn note_send(&self, tail: &Tail, wr: &ibv_send_wr) -> Option<OneSend> {
        // SAFETY: the caller's promise.
        unsafe { self.note_send_below(tail, wr, u64::MAX) }
    }

    /// As [`Qp::note_send`], of a WR of fewer bytes than `limit`.
    ///
    /// # Safety
    /// As [`Qp::note_sends`].
    #[inline(always)]
    pub unsafe fn note_send_below(&self, tail: &Tail, wr: &ibv_send_wr, limit: u64) -> Option<OneSend> {
        // SAFETY: the caller's promise; our ring's tail, locked.
        unsafe {
            if !self.sends.ring.is_everyday(tail) {
                return None;
            }
            let f = single_send_facts(wr).filter(|f| f.bytes < limit)?;
            let before = posted(&self.record.send_post);
            let posted = Totals { wr: before.wr + 1, bytes: before.bytes.wrapping_add(f.bytes) };
            let signaled = f.signaled | self.sig_all;
            self.sends.ring.push_one(posted, f.wr_id, signaled);
            Some(OneSend { opcode: f.opcode, bytes: f.bytes, signaled })
        }
    }

    /// The provider took the WR of [`Qp::note_send`].
    #[inline(always)]
    pub fn send_accepted(&self, one: OneSend) {
        self.count_opcode(one.opcode, one.bytes);
        // Counted first: who sees the WR's completion has seen it posted.
        let post = &self.record.send_post;
        let number = post.wr_posted.load(Relaxed) + 1;
        post.wr_posted.store(number, Relaxed);
        bump(&post.bytes_posted, one.bytes);
        if one.signaled != 0 {
            post.wr_asked.store(number, Relaxed);
        }
        self.sends.ring.publish_one();
    }

    /// As [`Qp::note_sends`], for `ibv_post_recv`.
    ///
    /// # Safety
    /// `wr` is the chain passed to `ibv_post_recv` on this QP.
    #[inline(always)]
    pub unsafe fn note_recvs(&self, tail: &mut Tail, mut wr: *const ibv_recv_wr) -> Cursor {
        let mut c = self.recvs.ring.start(posted(&self.record.recv_post));
        // SAFETY: the chain is the application's, valid until the call returns.
        while let Some(w) = unsafe { wr.as_ref() } {
            // SAFETY: the caller's promise; then our ring's tail, locked.
            unsafe {
                let bytes = recv_bytes(w, self.spec.max_recv_sge);
                c = self.recvs.ring.push(tail, c, w.wr_id, bytes, SIGNALED);
            }
            wr = w.next;
        }
        c
    }

    /// The provider took the chain of sends that was noted up to the cursor.
    #[inline(always)]
    pub fn sends_accepted(&self, c: Cursor) {
        if let Some(labels) = self.labels.get() {
            labels.accepted(c.posted.since(posted(&self.record.send_post)).wr);
        }
        if let Some(d) = &self.sends.ring.datagrams {
            d.accepted(self.sends.ring.next()..c.number());
        }
        accepted(&self.record.send_post, &self.sends.ring, c);
    }

    /// As [`Qp::sends_accepted`], for receives.
    #[inline(always)]
    pub fn recvs_accepted(&self, c: Cursor) {
        accepted(&self.record.recv_post, &self.recvs.ring, c);
    }

    /// The provider failed with `bad`: that WR and all behind it are refused.
    ///
    /// # Safety
    /// `wr` is the chain that [`Qp::note_sends`] has noted up to the cursor, and the lock is still held.
    pub unsafe fn sends_refused(&self, c: Cursor, wr: *const ibv_send_wr, bad: *const ibv_send_wr) {
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
            self.sends_accepted(self.sends.ring.take_back(c, refused));
        }
    }

    /// As [`Qp::sends_refused`], for receives.
    ///
    /// # Safety
    /// As [`Qp::sends_refused`], after [`Qp::note_recvs`].
    pub unsafe fn recvs_refused(&self, c: Cursor, wr: *const ibv_recv_wr, bad: *const ibv_recv_wr) {
        let mut refused = Totals::default();
        // SAFETY: as in `sends_refused`.
        unsafe {
            let mut w = if is_in_chain(wr, bad, |w| w.next) { bad } else { wr };
            while let Some(rest) = w.as_ref() {
                refused.wr += 1;
                refused.bytes += recv_bytes(rest, self.spec.max_recv_sge);
                w = rest.next;
            }
            self.recvs_accepted(self.recvs.ring.take_back(c, refused));
        }
    }
}

/// A WR between [`Qp::note_send`] and the provider's answer.
pub struct OneSend {
    opcode: u32,
    bytes: u64,
    signaled: u64,
}

/// Totals posted so far.
#[inline(always)]
fn posted(post: &PostCounters) -> Totals {
    Totals { wr: post.wr_posted.load(Relaxed), bytes: post.bytes_posted.load(Relaxed) }
}

/// Counted before it is published: who sees the WR's completion has seen it posted.
#[inline(always)]
fn accepted(post: &PostCounters, ring: &Inflight, c: Cursor) {
    post.wr_posted.store(c.posted.wr, Relaxed);
    post.bytes_posted.store(c.posted.bytes, Relaxed);
    if c.asked != 0 {
        post.wr_asked.store(c.asked, Relaxed);
    }
    ring.publish(c);
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
