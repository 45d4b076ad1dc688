//! A QP of the application that may be split: its engine, and the hands that the engine works with.

use super::cq::{CqState, Told, UNNAMED};
use super::group::Group;
use super::lengths::Receives;
use super::telling::Telling;
use super::verbs::Verbs;
use super::{helper, wr};
use crate::extended_send::Hooked;
use crate::state::OBJECTS;
use crate::{context, data_path, guard};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence,
};
use rdma_sys::{ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state, ibv_send_wr, ibv_wc};
use std::sync::Mutex;
use telereduce::control::wire::{LengthRing, Psns, QpPair, WantRing};
use telereduce::multipath::batch::WrBatch;
use telereduce::multipath::driver::{Driver, Errno, LanePosting, NO_ROOM, Posting, State, Verdict};
use telereduce::multipath::engine::{EXTRA_SEND_WRS, Engine, Missed, QpFacts};
use telereduce::multipath::lengths::Ring;
use telereduce::multipath::plan::Settings;
use telereduce::multipath::single::Single;
use telereduce::multipath::wr::WrRef;
use telereduce::sync::{Entry, Gate, Guard, SpinLock};
use telereduce::table::PtrMap;
use telereduce::table::gone::{self, Gone};
use telereduce::telemetry::attention::Sent;
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
    /// The QP has left RTS, or is about to: it is paired with nobody any more.
    pub left: bool,
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
    /// WRs that its send queue was made for beyond what the application asked for, and what it takes natively.
    surplus: u32,
    natively: u32,
    /// Where its sends complete.
    pub cq: &'static CqState,
    /// Its receives.
    pub receives: Receives,
    ahead: u32,
    inner: SpinLock<Inner>,
    extended: Option<Extended>,
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
    telling: Telling,
    /// Who has this lock holds the gate, too.
    is_through: bool,
    /// Something was not posted, since the gate was not to be had.
    owes_posts: bool,
    /// Likewise, the QP was not broken.
    owes_break: bool,
    /// Pieces wait for lanes, and none is in flight.
    starves: bool,
    /// The application is moving it out of RTS, or destroys it: nothing starts again before that is done.
    leaves: bool,
    /// It is being destroyed, or was: nothing touches it.
    gone: bool,
    /// The engine sleeps since so much was sent. Changed under the CQ's lock, too.
    asleep: Option<Sent>,
}

impl Inner {
    /// Tells viewers how it stands: not for every small WR.
    fn tell(&mut self) {
        self.telling.tell(&self.engine);
    }

    /// The peer's ring of lengths is not to be used any more.
    fn forget_ring(&mut self) {
        self.ring_asked = 0;
        self.engine.set_ring(None);
    }
}

/// What a QP has besides that posts by `ibv_wr_*`.
pub struct Extended {
    hooked: &'static Hooked,
    /// That of who holds the gate.
    batch: UnsafeCell<WrBatch>,
    /// The engine's, as it was when its lock was given back.
    threshold_bytes: AtomicU64,
    /// What its provider answers when it has no room.
    refusal: c_int,
}

impl Extended {
    /// Of a QP with these hooks and limits, whose provider answers `refusal` when it has no room.
    pub fn new(hooked: &'static Hooked, facts: &QpFacts, refusal: c_int) -> Extended {
        let batch = UnsafeCell::new(WrBatch::new(facts.max_send_sge, facts.max_inline_bytes));
        Extended { hooked, batch, threshold_bytes: AtomicU64::new(u64::MAX), refusal }
    }
}

// SAFETY: the pointer is to a QP, which any thread may use; `extended` says who uses what; all else is `Sync` by itself.
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
struct Hands {
    flow: &'static Flow,
    group: Option<&'static Group>,
    /// The QP is to be broken.
    breaks: bool,
    /// Lanes to be revoked, a bit each.
    revokes: u32,
    /// To be passed before each post.
    gate: Option<&'static Gate>,
    /// It was not to be had.
    owes_posts: bool,
    /// The QP is not to be touched.
    gone: bool,
}

/// Does `work` behind the gate, if nobody is there.
fn if_free<T>(gate: Option<&Gate>, work: impl FnOnce() -> T) -> Option<T> {
    let Some(gate) = gate else { return Some(work()) };
    gate.try_enter().then(|| {
        let result = work();
        gate.leave();
        result
    })
}

impl Driver for Hands {
    fn post_primary(&mut self, p: &Posting<'_>) -> Result<(), Errno> {
        if self.gone {
            return Err(NO_ROOM);
        }
        let mut bad = null_mut();
        // SAFETY: the application's QP, and a chain of one WR of its own.
        let post = || wr::with_c(&p.wr, |c| unsafe { (self.flow.post)(self.flow.qp, c, &raw mut bad) });
        let Some(rc) = if_free(self.gate, post) else {
            self.owes_posts = true;
            return Err(NO_ROOM);
        };
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
        (modify, surplus): (unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int, u32),
        cq: &'static CqState,
        (receives, extended): (Receives, Option<Extended>),
        facts: QpFacts,
        settings: Settings,
    ) -> Option<&'static Flow> {
        let inner = Inner {
            engine: Engine::new(facts, settings)?,
            group: None,
            ring_asked: 0,
            data: Vec::new(),
            telling: Telling::new(counted),
            is_through: false,
            owes_posts: false,
            owes_break: false,
            starves: false,
            leaves: false,
            gone: false,
            asleep: None,
        };
        let flow = gone::live(Flow {
            qp,
            counted,
            post: counted.spec.real.post_send,
            modify,
            surplus,
            natively: facts.max_send_wr,
            cq,
            receives,
            ahead: settings.ahead,
            inner: SpinLock::new(inner),
            extended,
            quiet: AtomicBool::new(false),
            wants: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            connection: Mutex::default(),
        });
        counted.engine.all();
        counted.limit_sends(facts.max_send_wr);
        flow.cqs().for_each(|cq| cq.add(counted.spec.qp_num, flow));
        FLOWS.insert(qp as usize, flow);
        if let Some(x) = &flow.extended {
            // SAFETY: the QP was just created.
            unsafe { x.hooked.serve(qp, flow) };
        }
        Some(flow)
    }

    /// It is about to be destroyed. Its completions still pass.
    pub fn hide(&'static self) {
        FLOWS.remove(self.qp as usize);
        self.inner.lock().gone = true;
    }

    /// It was not destroyed.
    pub fn show(&'static self) {
        self.inner.lock().gone = false;
        FLOWS.insert(self.qp as usize, self);
    }

    /// It was destroyed, with nothing of it in flight; if something is, its state stays for good.
    pub fn forget(&'static self) {
        self.cqs().for_each(|cq| cq.remove(self.qp_num(), self));
        self.receives.forget();
        let mut inner = self.inner.lock();
        inner.telling.end();
        let quiet = inner.engine.is_quiet();
        drop(inner);
        if quiet {
            // SAFETY: made live in `create`, in no table, and destroyed once.
            unsafe { GONE.add(self) };
        }
    }

    /// Where its completions come.
    fn cqs(&self) -> impl Iterator<Item = &'static CqState> {
        let other = self.receives.cq.filter(|cq| !core::ptr::eq(*cq, self.cq));
        [Some(self.cq), other].into_iter().flatten()
    }

    /// What a query says natively, where it says `max_send_wr`.
    pub fn told_max_send_wr(&self, max_send_wr: u32) -> u32 {
        // A provider that rounds says what it takes.
        if self.surplus == EXTRA_SEND_WRS { max_send_wr.saturating_sub(EXTRA_SEND_WRS) } else { self.natively }
    }

    /// Its number.
    pub fn qp_num(&self) -> u32 {
        self.counted.spec.qp_num
    }

    /// The QP.
    pub fn qp(&self) -> *mut ibv_qp {
        self.qp
    }

    /// Lets `work` use the engine, does what it asks for beside posts, and tells how it stands.
    fn with<T>(&'static self, work: impl FnOnce(&mut Engine, &mut Hands) -> T) -> T {
        let mut inner = self.inner.lock();
        let result = self.with_locked(&mut inner, work);
        inner.tell();
        result
    }

    fn with_locked<T>(&'static self, inner: &mut Inner, work: impl FnOnce(&mut Engine, &mut Hands) -> T) -> T {
        let gate = self.gate().filter(|_| !inner.is_through);
        let (group, gone) = (inner.group, inner.gone);
        let mut hands = Hands { flow: self, group, breaks: false, revokes: 0, gate, owes_posts: false, gone };
        let result = work(&mut inner.engine, &mut hands);
        if let Some(group) = inner.group
            && inner.engine.wants_lanes()
        {
            // Before the look at what lanes have: who gives some back after it looks here then, in `feed`.
            self.wants.store(true, Relaxed);
            fence(SeqCst);
            inner.engine.feed(&mut group.offers(), &mut hands);
        }
        if (hands.breaks || inner.owes_break) && !gone {
            let mut error = Given::default().0;
            error.qp_state = ibv_qp_state::IBV_QPS_ERR;
            // SAFETY: the application's QP.
            let modify =
                || unsafe { (self.modify)(self.qp, &raw mut error, ibv_qp_attr_mask::IBV_QP_STATE.0 as c_int) };
            inner.owes_break = if_free(gate, modify).is_none();
            hands.breaks = false;
            if !inner.owes_break {
                inner.engine.state_changed(State::Error, &mut hands);
            }
        }
        inner.owes_posts |= hands.owes_posts;
        if let Some(x) = &self.extended {
            x.threshold_bytes.store(inner.engine.threshold_bytes(), Relaxed);
        }
        if hands.revokes != 0
            && let Some(group) = inner.group
        {
            helper::revoke(group, hands.revokes);
        }
        if inner.engine.take_wish() {
            helper::want_ring(self);
        }
        let wants = inner.engine.wants_lanes();
        self.wants.store(wants, Relaxed);
        // Nothing that completes would lead back here.
        let starves = wants && inner.engine.is_quiet();
        if !core::mem::replace(&mut inner.starves, starves) && starves {
            helper::wake();
        }
        let waits = inner.engine.waits_for_primary() || inner.owes_break;
        if !self.waits.swap(waits, Relaxed) && waits {
            helper::wake();
        }
        result
    }

    fn gate(&self) -> Option<&'static Gate> {
        self.extended.as_ref().map(|x| &x.hooked.gate)
    }

    /// Waits for the engine, behind the gate, which the caller holds: it is left when the result goes.
    pub fn hold<'a>(&'static self, gate: &'a Gate) -> Held<'a> {
        self.go_through(Some(gate))
    }

    /// As [`hold`](Flow::hold), and waits for the gate first, if there is one.
    fn enter(&'static self) -> Held<'static> {
        self.go_through(self.gate().filter(|gate| gate.enter_patiently() == Entry::Entered))
    }

    #[inline(always)]
    fn go_through<'a>(&'static self, leaves: Option<&'a Gate>) -> Held<'a> {
        let mut inner = self.inner.lock();
        inner.is_through = true;
        Held { flow: self, leaves, inner }
    }

    /// Tries again what could not be posted.
    pub fn retry(&'static self) {
        self.with(|engine, hands| engine.retry(hands));
    }

    /// The batch that is built.
    ///
    /// # Safety
    /// The caller holds the gate, and one result at a time.
    #[allow(clippy::mut_from_ref, reason = "the gate's holder alone has it")]
    #[inline(always)]
    pub unsafe fn batch(&self) -> Option<&mut WrBatch> {
        // SAFETY: the caller's promise.
        self.extended.as_ref().map(|x| unsafe { &mut *x.batch.get() })
    }

    /// How many WRs of a batch may pass.
    #[cold]
    #[inline(never)]
    pub fn look_for_room(&self, b: &mut WrBatch) {
        let inner = self.inner.lock();
        let room = inner.engine.room().min(self.counted.spec.max_send_wr);
        b.set_quota(if inner.engine.is_idle() { room.saturating_sub(b.passed() as u32) } else { 0 });
    }

    /// Shorter messages pass, if nothing is held.
    #[inline(always)]
    pub fn threshold_bytes(&self) -> u64 {
        self.extended.as_ref().map_or(u64::MAX, |x| x.threshold_bytes.load(Relaxed))
    }

    /// Whether any WR would be split.
    #[inline(always)]
    pub fn splits(&self) -> bool {
        self.threshold_bytes() != u64::MAX
    }

    /// What the provider answers when it has no room for a batch.
    pub fn refusal(&self) -> c_int {
        self.extended.as_ref().map_or(libc::ENOMEM, |x| x.refusal)
    }

    /// Its telemetry.
    #[inline(always)]
    pub fn counted(&self) -> &'static Qp {
        self.counted
    }

    /// A send completion of it was polled. `None`: it is the engine's own. Else it is changed to what the application is to
    /// see; `now`, or when [`Flow::delivered`] is told the number.
    #[inline]
    pub fn completed(&'static self, wc: &mut ibv_wc, now: bool) -> Option<Told> {
        if self.counted.engine.sleeps() {
            if wc.status == 0 {
                return Some((!now).then_some((self, UNNAMED)));
            }
            self.wake(&mut self.inner.lock(), true);
        }
        let mut inner = self.inner.lock();
        if let Some(upto) = inner.engine.completed_at_once(wc.status) {
            if !now {
                return Some(Some((self, upto)));
            }
            inner.engine.delivered(upto);
            self.rest(&mut inner);
            return Some(None);
        }
        drop(inner);
        let upto = self.completed_by_engine(wc)?;
        if !now {
            return Some(Some((self, upto)));
        }
        self.delivered(upto);
        Some(None)
    }

    #[inline(never)]
    fn completed_by_engine(&'static self, wc: &mut ibv_wc) -> Option<u64> {
        let mut inner = self.inner.lock();
        let busy = !inner.engine.is_idle();
        let verdict =
            self.with_locked(&mut inner, |engine, hands| engine.primary_completed(wc.wr_id, wc.status, hands));
        if busy {
            inner.tell();
        }
        drop(inner);
        match verdict {
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

    /// The application gets a completion. The CQ's lock is held, if the engine may sleep.
    pub fn delivered(&self, upto: u64) {
        let mut inner = self.inner.lock();
        inner.engine.delivered(upto);
        self.rest(&mut inner);
    }

    /// Whether its engine may ever sleep: who wakes it takes the CQ's lock, which a poll in progress would hold; and a post
    /// by `ibv_wr_*` looks at it itself.
    fn may_ever_sleep(&self) -> bool {
        self.extended.is_none() && self.cq.extended.is_none()
    }

    /// Lets the engine sleep, if there is nothing to do. The CQ's lock is held.
    #[inline]
    fn rest(&self, inner: &mut Inner) {
        let is_free = !(inner.leaves || inner.gone || inner.owes_posts || inner.owes_break);
        if is_free && inner.asleep.is_none() && inner.engine.may_sleep() && self.may_ever_sleep() {
            inner.asleep = Some(self.counted.sent());
            self.counted.engine.only_from(inner.engine.threshold_bytes());
            self.cq.sift_less(1);
        }
    }

    /// Tells a sleeping engine what it has missed. The CQ's lock is held. `failed`: a completion in error was polled, and so
    /// none without error will come.
    fn wake(&'static self, inner: &mut Inner, failed: bool) {
        let Some(then) = inner.asleep.take() else { return };
        let q = self.counted;
        let _tail = q.sends.tail.lock();
        q.engine.all();
        self.cq.sift_more();
        let now = q.sent();
        let last = inner.engine.wake(Missed {
            wrs: now.wrs.wrapping_sub(then.wrs),
            consumed: now.consumed.wrapping_sub(then.consumed),
            open: q.open_sends(),
        });
        if failed {
            return;
        }
        // SAFETY: both locks are held.
        for behind in unsafe { q.open_signaled_sends() } {
            let seq = last.saturating_sub(behind);
            if self.cq.name_kept(self, seq) { inner.engine.is_polled(seq) } else { inner.engine.is_open(seq) }
        }
    }

    /// As [`enter`](Flow::enter), and its engine is awake.
    fn enter_awake(&'static self) -> Held<'static> {
        let held = self.enter();
        if held.inner.asleep.is_none() {
            return held;
        }
        drop(held);
        self.cq.counted.lock.in_passing(|_| {
            let mut held = self.enter();
            self.wake(&mut held.inner, false);
            held
        })
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
            engine.limit_list(group.max_sge());
            group.up().for_each(|lane| engine.lane_up(lane, hands));
        });
        inner.tell();
    }

    /// For another reason than before it has no lanes, if it has none.
    pub fn because(&self, why: Single) {
        let mut inner = self.inner.lock();
        inner.telling.because(why);
        inner.tell();
    }

    /// The peer's shim is being looked for; what is known of it already still counts, unless the connection is `new`.
    pub fn looking(&self, new: bool) {
        let mut inner = self.inner.lock();
        if new || inner.telling.why() == Single::Unconnected {
            inner.telling.because(Single::Pending);
            inner.tell();
        }
    }

    /// So many lanes could not be made, here or at the peer.
    pub fn lanes_failed(&self, lanes: u32, here: bool) {
        let mut inner = self.inner.lock();
        inner.telling.lanes_failed(lanes, here);
        inner.tell();
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

    /// Looks whether pieces can go, now that lanes have room. Whether some must wait still.
    pub fn feed(&'static self) -> bool {
        if self.wants.load(Relaxed) {
            self.with(|_, _| ());
        }
        self.wants.load(Relaxed)
    }

    /// Whether somebody must poll its CQ, and try again, even if the application does not.
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
        self.inner.lock().forget_ring();
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

    /// Nothing new starts: the peer wants it so, for its QP leaves.
    pub fn stop(&'static self) {
        self.quiet.store(false, Release);
        self.with(|engine, hands| engine.stop(hands));
    }

    /// Nothing new starts: the application makes it leave. Until [`Flow::resume`] or a new state.
    pub fn leave(&'static self) {
        let leaves = |inner: &mut Inner| {
            self.wake(inner, false);
            inner.leaves = true;
        };
        if self.may_ever_sleep() {
            self.cq.counted.lock.in_passing(|_| leaves(&mut self.inner.lock()));
        } else {
            leaves(&mut self.inner.lock());
        }
        self.quiet.store(false, Release);
        self.with(|engine, hands| engine.depart(hands));
    }

    /// Whether the connection to the peer's shim that its lanes were agreed on is lost.
    pub fn lost_its_link(&self) -> bool {
        self.inner.lock().group.is_some_and(Group::is_lost)
    }

    /// Whether all its lanes have ended, at this side.
    pub fn lanes_ended(&self) -> bool {
        self.inner.lock().group.is_some_and(Group::has_ended)
    }

    /// Whether, since then, nothing of it is in flight any more.
    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Acquire)
    }

    /// The application's call failed: it goes on, without lanes.
    pub fn resume(&'static self) {
        self.inner.lock().leaves = false;
        self.part();
    }

    /// It has no lanes any more, and goes on if the application does not make it leave.
    pub fn part(&'static self) {
        let mut inner = self.inner.lock();
        inner.forget_ring();
        let (group, leaves) = (inner.group, inner.leaves);
        self.with_locked(&mut inner, |engine, hands| {
            if let Some(group) = group {
                group.lanes().for_each(|lane| engine.lane_down(lane.number, hands));
            }
            if !leaves {
                engine.resume(hands);
            }
        });
        if group.is_some() {
            inner.group = None;
            inner.telling.because(Single::PeerLeft);
        }
        inner.tell();
    }

    /// Its lanes have ended on both sides, and others take their place.
    pub fn lanes_replaced(&'static self) {
        let mut inner = self.inner.lock();
        let Some(group) = inner.group.take() else { return };
        self.with_locked(&mut inner, |engine, hands| {
            group.lanes().for_each(|lane| engine.lane_revoked(lane.number, hands));
        });
        inner.telling.because(Single::LanesPending);
        inner.tell();
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
        inner.leaves = false;
        if to == State::Reset {
            (inner.group, inner.ring_asked) = (None, 0);
            // Not told here: the record keeps what the connection came to until telemetry puts it aside.
            inner.telling.because(Single::Unconnected);
        }
        self.with_locked(&mut inner, |engine, hands| engine.state_changed(to, hands));
    }

    /// Whether every WR of the chain goes as it is, and there is room for all; and whether one of them is large.
    ///
    /// # Safety
    /// A chain of the application's.
    #[inline(always)]
    unsafe fn passes(&self, inner: &Inner, mut wr: *const ibv_send_wr) -> Option<bool> {
        let (mut room, most, mut large) = (inner.engine.room(), self.counted.spec.max_send_sge, false);
        // SAFETY: the caller's promise.
        while let Some(w) = unsafe { wr.as_ref() } {
            // SAFETY: as above.
            let bytes = unsafe { sge_bytes(w.sg_list, w.num_sge, most) };
            if room == 0 || !inner.engine.passes(w.opcode, bytes) {
                return None;
            }
            large |= inner.engine.is_large(bytes);
            room -= 1;
            wr = w.next;
        }
        Some(large)
    }

    /// Counts the large WRs from `wr` up to `end` that the fast path took.
    ///
    /// # Safety
    /// A chain of the application's.
    #[cold]
    unsafe fn note_large(&self, inner: &mut Inner, mut wr: *const ibv_send_wr, end: *const ibv_send_wr) {
        // SAFETY: the caller's promise.
        while let Some(w) = unsafe { wr.as_ref() }.filter(|_| !core::ptr::eq(wr, end)) {
            // SAFETY: as above.
            if inner.engine.is_large(unsafe { sge_bytes(w.sg_list, w.num_sge, self.counted.spec.max_send_sge) }) {
                inner.engine.note_large(w.opcode);
            }
            wr = w.next;
        }
        inner.tell();
    }

    /// # Safety
    /// As ibv_post_send demands.
    unsafe fn post(&'static self, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
        let mut held = self.enter_awake();
        // SAFETY: the gate is held.
        if let Some(b) = unsafe { self.batch() } {
            b.set_quota(0);
        }
        let inner = &mut *held.inner;
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(large) = self.passes(inner, wr) {
                let answer = data_path::post_send(self.qp, wr, bad);
                let mut w = wr.cast_const();
                while !w.is_null() && (answer == 0 || !core::ptr::eq(w, *bad)) {
                    inner.engine.note_passed((*w).opcode, asks_for_completion((*w).send_flags) != 0);
                    w = (*w).next;
                }
                if large {
                    self.note_large(inner, wr, w);
                }
                return answer;
            }
            let mut w = wr;
            while !w.is_null() {
                if let Err(Errno(e)) = self.post_one(inner, &*w) {
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
            Some(wr) => {
                let answer = self.with_locked(inner, |engine, hands| engine.post(wr, hands));
                inner.telling.tell(&inner.engine);
                answer
            }
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

/// The engine of a QP, and its gate if it has one.
pub struct Held<'a> {
    flow: &'static Flow,
    leaves: Option<&'a Gate>,
    inner: Guard<'static, Inner>,
}

impl Held<'_> {
    /// The engine, to be told what needs no hands.
    #[inline(always)]
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.inner.engine
    }

    /// The engine gets a WR of a batch that it has room for.
    pub fn take(&mut self, wr: &WrRef<'_>) {
        self.flow.with_locked(&mut self.inner, |engine, hands| {
            // Only for want of memory: it cannot be posted, and nothing that follows may be.
            if engine.take(wr, hands).is_err() {
                hands.break_primary();
            }
        });
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.inner.owes_posts || self.inner.owes_break {
            self.inner.owes_posts = false;
            self.flow.with_locked(&mut self.inner, |engine, hands| engine.retry(hands));
        }
        self.inner.is_through = false;
        // Before the engine's lock: who has it and cannot enter is one whose debts were paid above.
        if let Some(gate) = self.leaves {
            gate.leave();
        }
    }
}

/// Hook of `ibv_post_send` where multi-path is on.
pub unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the application's promise, as ibv_post_send demands.
    unsafe {
        if !wr.is_null()
            && let Some(q) = OBJECTS.qps.get_first(qp as usize)
            && let Some(tail) = q.sends.tail.try_own()
            && let Some(one) = q.note_send_below(&tail, &*wr, q.engine.from())
        {
            let answer = (q.spec.real.post_send)(qp, wr, bad);
            if answer == 0 {
                q.send_accepted(one);
            }
            return answer;
        }
        post_by_engine(qp, wr, bad)
    }
}

/// As `post_send`, of what an engine may have to see.
#[inline(never)]
unsafe extern "C" fn post_by_engine(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(flow) = find(qp).filter(|_| !wr.is_null()) else { return data_path::post_send(qp, wr, bad) };
        let q = flow.counted;
        if q.engine.sleeps() {
            let tail = q.sends.tail.lock();
            if q.sleeps_through(wr) {
                return data_path::send_on(tail, q, qp, wr, bad);
            }
        }
        guard::hot(|| flow.post(wr, bad)).unwrap_or_else(|| {
            // What of the chain is posted is not known.
            *bad = wr;
            libc::EIO
        })
    }
}
