//! A QP of the application that may be split: its engine, and the hands that the engine works with.

use super::cq::CqState;
use super::group::Group;
use super::lengths::Receives;
use super::verbs::Verbs;
use super::{helper, wr};
use crate::{context, data_path, guard};
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use rdma_sys::{ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state, ibv_send_wr, ibv_wc};
use std::sync::Mutex;
use telereduce::control::wire::{LengthRing, Psns, QpPair, WantRing};
use telereduce::multipath::driver::{Driver, Errno, LanePosting, NO_ROOM, Posting, State, Verdict};
use telereduce::multipath::engine::{Engine, QpFacts};
use telereduce::multipath::lengths::Ring;
use telereduce::multipath::plan::Settings;
use telereduce::sync::SpinLock;
use telereduce::table::PtrMap;
use telereduce::table::gone::{self, Gone};
use telereduce::telemetry::qp::Qp;
use telereduce::verbs::{PostSend, asks_for_completion, sge_bytes};

/// What is known of the QP's connection.
#[derive(Default)]
pub struct Connection {
    /// Both ends, from RTR on.
    pub pair: Option<QpPair>,
    /// Its PSNs.
    pub psns: Option<Psns>,
    /// Number of the pool that its lanes come from.
    pub pool: Option<u32>,
    /// What it was given on its way to RTS.
    pub given: Given,
}

/// What a QP was given on its way to RTS, as far as a lane is to have the same.
pub struct Given(pub ibv_qp_attr);

impl Given {
    /// The same.
    pub fn copy(&self) -> Given {
        // SAFETY: plain numbers.
        Given(unsafe { core::ptr::read(&raw const self.0) })
    }
}

// SAFETY: numbers.
unsafe impl Send for Given {}

impl Default for Given {
    fn default() -> Self {
        // SAFETY: numbers, for which zero is valid.
        let mut given: ibv_qp_attr = unsafe { core::mem::zeroed() };
        // For a QP that never comes to RTS, and so says nothing of these.
        (given.timeout, given.retry_cnt, given.rnr_retry, given.max_rd_atomic) = (14, 7, 7, 1);
        Given(given)
    }
}

/// A QP that may be split.
pub struct Flow {
    qp: *mut ibv_qp,
    counted: &'static Qp,
    post: PostSend,
    modify: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
    /// Where its sends complete.
    pub cq: &'static CqState,
    /// Its receives.
    pub receives: Receives,
    ahead: u32,
    inner: SpinLock<Inner>,
    quiet: AtomicBool,
    /// What the engine said when it was last asked: it has pieces for lanes; it waits for a completion.
    wants: AtomicBool,
    waits: AtomicBool,
    /// The departure that the peer has answered.
    pub answered: AtomicU64,
    /// As above.
    pub connection: Mutex<Connection>,
}

struct Inner {
    engine: Engine,
    group: Option<&'static Group>,
    /// The number of the question for the peer's ring that has no answer yet; 0: none.
    ring_asked: u64,
    /// Inline data on its way.
    data: Vec<u8>,
}

// SAFETY: the pointer is to a QP, which any thread may use; all else is `Sync` by itself.
unsafe impl Sync for Flow {}
// SAFETY: as above.
unsafe impl Send for Flow {}

static FLOWS: PtrMap<Flow> = PtrMap::new();
static GONE: Gone<Flow> = Gone::new();

/// The QP at this address, if it may be split.
#[inline(always)]
pub fn find(qp: *mut ibv_qp) -> Option<&'static Flow> {
    FLOWS.find(qp)
}

/// In a forked child.
///
/// # Safety
/// The process has one thread.
pub unsafe fn after_fork() {
    // SAFETY: the caller's promise.
    unsafe {
        FLOWS.reset_after_fork();
        GONE.reset_after_fork();
    }
    FLOWS.clear();
}

/// What the engine works with during one call.
struct Hands<'a> {
    flow: &'static Flow,
    group: Option<&'a Group>,
    /// The QP is to be broken.
    breaks: bool,
    /// Lanes to be revoked, a bit each.
    revokes: u32,
}

impl Driver for Hands<'_> {
    fn post_primary(&mut self, p: &Posting<'_>) -> Result<(), Errno> {
        let mut bad = null_mut();
        // SAFETY: the application's QP, and a chain of one WR of its own.
        let rc = wr::with_c(&p.wr, |c| unsafe { (self.flow.post)(self.flow.qp, c, &raw mut bad) });
        match rc {
            0 => Ok(()),
            libc::ENOMEM | libc::ENOSPC | libc::EAGAIN => Err(NO_ROOM),
            other => Err(Errno(other)),
        }
    }

    fn post_lane(&mut self, p: &LanePosting<'_>) -> bool {
        self.group.is_some_and(|g| g.post(self.flow, p))
    }

    fn break_primary(&mut self) {
        self.breaks = true;
    }

    fn revoke_lane(&mut self, lane: usize) {
        self.revokes |= 1 << lane;
    }

    fn quiet(&mut self) {
        self.flow.quiet.store(true, Release);
    }
}

impl Flow {
    /// A QP was created that may be split. `facts` are the application's own limits.
    pub fn create(
        qp: *mut ibv_qp,
        counted: &'static Qp,
        modify: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
        cq: &'static CqState,
        receives: Receives,
        facts: QpFacts,
        settings: Settings,
    ) -> Option<&'static Flow> {
        let inner = Inner { engine: Engine::new(facts, settings)?, group: None, ring_asked: 0, data: Vec::new() };
        let flow = gone::live(Flow {
            qp,
            counted,
            post: counted.spec.real.post_send,
            modify,
            cq,
            receives,
            ahead: settings.ahead,
            inner: SpinLock::new(inner),
            quiet: AtomicBool::new(false),
            wants: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            connection: Mutex::default(),
        });
        flow.cqs().for_each(|cq| cq.add(counted.spec.qp_num, flow));
        FLOWS.insert(qp as usize, flow);
        Some(flow)
    }

    /// It is about to be destroyed. Its completions still pass.
    pub fn hide(&'static self) {
        FLOWS.remove(self.qp as usize);
    }

    /// It was not destroyed.
    pub fn show(&'static self) {
        FLOWS.insert(self.qp as usize, self);
    }

    /// It was destroyed, with nothing of it in flight; if something is, its state stays for good.
    pub fn forget(&'static self) {
        self.cqs().for_each(|cq| cq.remove(self.qp_num(), self));
        self.receives.forget();
        if self.inner.lock().engine.is_quiet() {
            // SAFETY: made live in `create`, in no table, and destroyed once.
            unsafe { GONE.add(self) };
        }
    }

    /// Where its completions come.
    fn cqs(&self) -> impl Iterator<Item = &'static CqState> {
        let other = self.receives.cq.filter(|cq| !core::ptr::eq(*cq, self.cq));
        [Some(self.cq), other].into_iter().flatten()
    }

    /// Its number.
    pub fn qp_num(&self) -> u32 {
        self.counted.spec.qp_num
    }

    /// The QP.
    pub fn qp(&self) -> *mut ibv_qp {
        self.qp
    }

    /// Lets `work` use the engine, and does what it asks for beside posts.
    fn with<T>(&'static self, work: impl FnOnce(&mut Engine, &mut Hands<'_>) -> T) -> T {
        let mut inner = self.inner.lock();
        self.with_locked(&mut inner, work)
    }

    fn with_locked<T>(&'static self, inner: &mut Inner, work: impl FnOnce(&mut Engine, &mut Hands<'_>) -> T) -> T {
        let mut hands = Hands { flow: self, group: inner.group, breaks: false, revokes: 0 };
        let result = work(&mut inner.engine, &mut hands);
        if let Some(group) = inner.group
            && inner.engine.wants_lanes()
        {
            inner.engine.feed(&mut group.offers(), &mut hands);
        }
        if hands.breaks {
            let mut error = Given::default().0;
            error.qp_state = ibv_qp_state::IBV_QPS_ERR;
            // SAFETY: the application's QP.
            unsafe { (self.modify)(self.qp, &raw mut error, ibv_qp_attr_mask::IBV_QP_STATE.0 as c_int) };
            hands.breaks = false;
            inner.engine.state_changed(State::Error, &mut hands);
        }
        if hands.revokes != 0
            && let Some(group) = inner.group
        {
            helper::revoke(group, hands.revokes);
        }
        if inner.engine.take_wish() {
            helper::want_ring(self);
        }
        self.wants.store(inner.engine.wants_lanes(), Relaxed);
        let waits = inner.engine.waits_for_primary();
        if !self.waits.swap(waits, Relaxed) && waits {
            helper::wake();
        }
        result
    }

    /// A send completion of it was polled. `None`: it is the engine's own. Else it is changed to what the application is to
    /// see, and [`Flow::delivered`] is to be told the number when it does.
    pub fn completed(&'static self, wc: &mut ibv_wc) -> Option<u64> {
        match self.with(|engine, hands| engine.primary_completed(wc.wr_id, wc.status, hands)) {
            Verdict::Swallow => None,
            Verdict::Deliver(fix) => {
                if let Some(bytes) = fix.byte_len {
                    wc.byte_len = bytes;
                }
                if let Some((status, vendor_err)) = fix.status {
                    (wc.status, wc.vendor_err) = (status, vendor_err);
                }
                Some(fix.upto)
            }
        }
    }

    /// The application gets a completion.
    pub fn delivered(&self, upto: u64) {
        self.inner.lock().engine.delivered(upto);
    }

    /// A piece completed on a lane.
    pub fn chunk_completed(&'static self, token: u64, status: u32, vendor_err: u32) {
        self.with(|engine, hands| engine.chunk_completed(token, status, vendor_err, hands));
    }

    /// Its lanes, those that are up.
    pub fn join(&'static self, group: &'static Group) {
        let mut inner = self.inner.lock();
        inner.group = Some(group);
        self.with_locked(&mut inner, |engine, hands| {
            group.up().for_each(|lane| engine.lane_up(lane, hands));
        });
    }

    /// Whether its lanes are these.
    pub fn is_of(&self, group: &Group) -> bool {
        self.inner.lock().group.is_some_and(|g| core::ptr::eq(g, group))
    }

    /// A lane of its group takes no more. `lost`: and the peer's end cannot be reset.
    pub fn lane_down(&'static self, lane: usize, lost: bool) {
        self.with(|engine, hands| {
            engine.lane_down(lane, hands);
            if lost {
                engine.lane_lost(lane, hands);
            }
        });
    }

    /// The peer's end of a lane is reset.
    pub fn lane_revoked(&'static self, lane: usize) {
        self.with(|engine, hands| engine.lane_revoked(lane, hands));
    }

    /// There may be lanes soon, or not any more.
    pub fn expect_lanes(&'static self, expected: bool) {
        self.with(|engine, hands| engine.expect_lanes(expected, hands));
    }

    /// Looks whether pieces can go, now that lanes have room.
    pub fn feed(&'static self) {
        if self.wants.load(Relaxed) {
            self.with(|_, _| ());
        }
    }

    /// Whether somebody must poll its CQ even if the application does not.
    pub fn waits(&self) -> bool {
        self.waits.load(Relaxed)
    }

    /// The peer is asked for its ring; the question's number.
    pub fn ring_asked(&self, id: u64) {
        self.inner.lock().ring_asked = id;
    }

    /// The peer's answer.
    pub fn ring_is(&self, r: &LengthRing) {
        let mut inner = self.inner.lock();
        if inner.ring_asked == r.id && r.id != 0 {
            inner.ring_asked = 0;
            inner.engine.set_ring(Some(Ring { addr: r.addr, rkey: r.rkey, slots: 1 << r.slots_log2, tag: r.tag }));
        }
    }

    /// The peer's ring is not to be used any more.
    pub fn forget_ring(&self) {
        let mut inner = self.inner.lock();
        inner.ring_asked = 0;
        inner.engine.set_ring(None);
    }

    /// The peer asks for this side's ring.
    pub fn offer_ring(&self, asked: &WantRing) -> Option<LengthRing> {
        // SAFETY: the application's QP, which exists while the world knows it.
        let (qp, spec) = (unsafe { &*self.qp }, &self.counted.spec);
        let receives = if qp.srq.is_null() { spec.max_recv_wr } else { spec.srq?.record.max_wr.load(Relaxed) };
        let unpolled = receives.min(self.receives.cq?.cqe());
        let verbs = Verbs::of(context::find(qp.context)?.library)?;
        self.receives.offer(asked, (unpolled, self.ahead), (&verbs, qp.pd))
    }

    /// Nothing new starts.
    pub fn stop(&'static self) {
        self.quiet.store(false, Release);
        self.with(|engine, hands| engine.stop(hands));
    }

    /// Whether, since then, nothing of it is in flight any more.
    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Acquire)
    }

    /// Goes on; without lanes if they are not wanted any more.
    pub fn resume(&'static self, without_lanes: bool) {
        let mut inner = self.inner.lock();
        if without_lanes {
            inner.ring_asked = 0;
            inner.engine.set_ring(None);
        }
        if without_lanes && let Some(group) = inner.group {
            self.with_locked(&mut inner, |engine, hands| {
                group.all().for_each(|lane| engine.lane_down(lane, hands));
                engine.resume(hands);
            });
            inner.group = None;
        } else {
            self.with_locked(&mut inner, |engine, hands| engine.resume(hands));
        }
    }

    /// The provider knows of RESET.
    pub fn reset(&'static self) {
        let failed = self.cqs().filter(|cq| !cq.settle(self.qp_num())).count();
        self.state_changed(State::Reset);
        self.receives.restart(failed == 0);
    }

    /// The provider knows of a new state.
    pub fn state_changed(&'static self, to: State) {
        let mut inner = self.inner.lock();
        if to == State::Reset {
            (inner.group, inner.ring_asked) = (None, 0);
        }
        self.with_locked(&mut inner, |engine, hands| engine.state_changed(to, hands));
    }

    /// Whether every WR of the chain goes as it is, and there is room for all. The number of them.
    ///
    /// # Safety
    /// A chain of the application's.
    #[inline(always)]
    unsafe fn passes(&self, inner: &Inner, mut wr: *const ibv_send_wr) -> bool {
        let (mut room, most) = (inner.engine.room(), self.counted.spec.max_send_sge);
        // SAFETY: the caller's promise.
        while let Some(w) = unsafe { wr.as_ref() } {
            // SAFETY: as above.
            let bytes = unsafe { sge_bytes(w.sg_list, w.num_sge, most) };
            if room == 0 || !inner.engine.passes(w.opcode, bytes) {
                return false;
            }
            room -= 1;
            wr = w.next;
        }
        true
    }

    /// # Safety
    /// As ibv_post_send demands.
    unsafe fn post(&'static self, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
        let mut inner = self.inner.lock();
        // SAFETY: the caller's promise.
        unsafe {
            if self.passes(&inner, wr) {
                let answer = data_path::post_send(self.qp, wr, bad);
                let mut w = wr.cast_const();
                while !w.is_null() && (answer == 0 || !core::ptr::eq(w, *bad)) {
                    inner.engine.note_passed((*w).opcode, asks_for_completion((*w).send_flags) != 0);
                    w = (*w).next;
                }
                return answer;
            }
            let mut w = wr;
            while !w.is_null() {
                if let Err(Errno(e)) = self.post_one(&mut inner, &*w) {
                    *bad = w;
                    return e;
                }
                w = (*w).next;
            }
        }
        0
    }

    /// # Safety
    /// As ibv_post_send demands.
    unsafe fn post_one(&'static self, inner: &mut Inner, wr: &ibv_send_wr) -> Result<(), Errno> {
        // SAFETY: a copy of plain data, which is not used to free anything.
        let mut one = unsafe { core::ptr::read(wr) };
        one.next = null_mut();
        let (q, mut data) = (self.counted, core::mem::take(&mut inner.data));
        let mut tail = q.sends.tail.lock();
        // SAFETY: a chain of one; the tail is locked until the answer is counted.
        let noted = unsafe { q.note_sends(&mut tail, &raw const one) };
        // SAFETY: the caller's promise.
        let read = unsafe { wr::read(wr, q.spec.max_send_sge, &mut data) };
        let answer = match &read {
            Some(wr) => self.with_locked(inner, |engine, hands| engine.post(wr, hands)),
            None => Err(Errno(libc::EINVAL)),
        };
        match answer {
            Ok(()) => q.sends_accepted(noted),
            // SAFETY: as above.
            Err(_) => unsafe { q.sends_refused(noted, &raw const one, &raw const one) },
        }
        inner.data = data;
        answer
    }
}

/// Hook of `ibv_post_send` where multi-path is on.
pub unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the application's promise, as ibv_post_send demands.
    unsafe {
        let Some(flow) = find(qp).filter(|_| !wr.is_null()) else { return data_path::post_send(qp, wr, bad) };
        guard::hot(|| flow.post(wr, bad)).unwrap_or_else(|| {
            // What of the chain is posted is not known.
            *bad = wr;
            libc::EIO
        })
    }
}
