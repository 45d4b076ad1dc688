//! The application's CQs: completions of split QPs pass their engines, and what the helper polled for the application waits
//! here for it.

use super::extended_cq::{Extended, More};
use super::flow::Flow;
use crate::state::OBJECTS;
use crate::{data_path, extended_poll, guard};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use rdma_sys::{ibv_cq, ibv_wc};
use std::collections::VecDeque;
use telereduce::multipath::engine::EXTRA_CQES;
use telereduce::sync::{OwnerGuard, SpinLock};
use telereduce::table::gone::{self, Gone};
use telereduce::table::{PtrMap, QpnTable};
use telereduce::telemetry::cq::{Cq, LastQp};

/// Completions beyond what the application asked for that its CQs have room for, at least: the engines' own.
const EXTRA: u32 = 64;
/// And at most.
const MOST_EXTRA: u32 = 16 << 10;

/// The numbers of completions to add to a CQ of `cqe`, first one to be tried first: as many QPs as a CQ is made for may have
/// engines, else some.
pub fn extras(cqe: u32) -> [u32; 2] {
    [cqe.saturating_mul(EXTRA_CQES).clamp(EXTRA, MOST_EXTRA), EXTRA]
}
/// `IBV_WC_RECV`.
const RECV: u32 = 1 << 7;
/// Polled at once.
const BATCH: usize = 16;

/// Whose engine is to be told, and what, when the application gets a completion.
pub type Told = Option<(&'static Flow, u64)>;

/// The number of a completion that a sleeping engine is not told of.
pub const UNNAMED: u64 = 0;

/// A completion that waits for the application.
pub struct Kept {
    /// As the application is to see it.
    pub wc: ibv_wc,
    /// Likewise, what it also asked for.
    pub more: More,
    /// What its engine is to be told.
    pub told: Told,
}

impl Kept {
    /// The application gets it.
    pub fn deliver(&self) {
        if let Some((flow, upto)) = self.told {
            flow.delivered(upto);
        }
    }
}

/// A CQ of the application.
pub struct CqState {
    cq: *mut ibv_cq,
    /// Its telemetry, and its lock.
    pub counted: &'static Cq,
    /// It is polled by ibv_start_poll, too.
    pub extended: Option<Extended>,
    /// It serves engines, or did.
    served: AtomicBool,
    /// Engines' completions that it has room for.
    room: AtomicU32,
    /// All that there is.
    extra: AtomicU32,
    flows: QpnTable<Flow>,
    count: AtomicU32,
    /// Polled by the helper. Under the CQ's lock.
    kept: SpinLock<VecDeque<Kept>>,
    /// How many.
    keeps: AtomicU32,
}

// SAFETY: the pointer is to a CQ, which any thread may use; `extended` says who uses what; all else is `Sync` by itself.
unsafe impl Sync for CqState {}
// SAFETY: as above.
unsafe impl Send for CqState {}

static CQS: PtrMap<CqState> = PtrMap::new();
static GONE: Gone<CqState> = Gone::new();

/// The CQ at this address, if it has room for engines.
pub fn find(cq: *mut ibv_cq) -> Option<&'static CqState> {
    CQS.find(cq)
}

/// A counted CQ was created with `extra` entries more than the application asked for.
pub fn created(cq: *mut ibv_cq, counted: &'static Cq, extra: u32) {
    add(cq, counted, None, extra);
}

/// As [`created`], as [`extended_cq::enlarged`](super::extended_cq::enlarged) says; the application asked for these fields.
///
/// # Safety
/// `cq` was just created, and nobody else knows it yet.
pub unsafe fn created_extended(cq: *mut ibv_cq, counted: &'static Cq, asked: u64, extra: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        if let (true, Some(x)) = (counted.spec.extended, Extended::new(cq, asked)) {
            let state = add(cq, counted, Some(x), extra);
            state.show();
            if let Some(h) = extended_poll::find(cq) {
                h.serve(cq, state);
            }
        }
    }
}

fn add(cq: *mut ibv_cq, counted: &'static Cq, extended: Option<Extended>, extra: u32) -> &'static CqState {
    let state = CqState {
        cq,
        counted,
        extended,
        served: AtomicBool::new(false),
        room: AtomicU32::new(extra),
        extra: AtomicU32::new(extra),
        flows: QpnTable::default(),
        count: AtomicU32::new(0),
        kept: SpinLock::default(),
        keeps: AtomicU32::new(0),
    };
    let state = gone::live(state);
    CQS.insert(cq as usize, state);
    state
}

/// It is about to be destroyed: nobody finds it any more.
pub fn hide(cq: *mut ibv_cq) -> Option<&'static CqState> {
    let state = CQS.remove(cq as usize)?;
    if let Some(x) = &state.extended {
        // SAFETY: the CQ that it was made for.
        unsafe { x.hide(cq) };
    }
    Some(state)
}

/// It was not destroyed.
pub fn show(cq: *mut ibv_cq, state: &'static CqState) {
    CQS.insert(cq as usize, state);
    state.show();
}

/// It was destroyed.
pub fn forget(state: &'static CqState) {
    // SAFETY: made live in `created`, taken out of the table by `hide`, and destroyed once.
    unsafe { GONE.add(state) };
}

/// In a forked child.
///
/// # Safety
/// The process has one thread.
pub unsafe fn after_fork() {
    // SAFETY: the caller's promise.
    unsafe {
        CQS.reset_after_fork();
        GONE.reset_after_fork();
    }
    CQS.clear();
}

impl CqState {
    fn show(&self) {
        if let Some(x) = &self.extended {
            // SAFETY: the CQ that it was made for.
            unsafe { x.show(self.cq) };
        }
    }

    /// Whether it serves engines, or did.
    #[inline(always)]
    pub fn has_served(&self) -> bool {
        self.served.load(Acquire)
    }

    /// The oldest of what was polled by the helper. The CQ's lock is held.
    #[inline]
    pub fn next_kept(&self) -> Option<Kept> {
        if self.keeps.load(Relaxed) == 0 {
            return None;
        }
        let mut kept = self.kept.lock();
        let first = kept.pop_front();
        self.keeps.store(kept.len() as u32, Relaxed);
        self.sift_less(u32::from(first.is_some()));
        first
    }

    /// A reason more to look at each completion: an engine that is awake, a completion that waits. The CQ's lock is held.
    pub fn sift_more(&self) {
        let sifts = &self.counted.sifts;
        sifts.store(sifts.load(Relaxed) + 1, Relaxed);
    }

    /// So many reasons less. The CQ's lock is held.
    pub fn sift_less(&self, reasons: u32) {
        let sifts = &self.counted.sifts;
        sifts.store(sifts.load(Relaxed).saturating_sub(reasons), Relaxed);
    }

    /// Keeps a completion for the application. The CQ's lock is held.
    pub fn keep(&self, one: Kept) {
        let mut kept = self.kept.lock();
        kept.push_back(one);
        self.keeps.store(kept.len() as u32, Relaxed);
        self.sift_more();
    }

    /// The oldest send completion that waits, of which a sleeping engine was not told, is that of its WR `seq`. False: none
    /// waits. The CQ's lock is held.
    pub fn name_kept(&self, flow: &'static Flow, seq: u64) -> bool {
        let is_unnamed = |k: &&mut Kept| k.told.is_some_and(|(f, upto)| core::ptr::eq(f, flow) && upto == UNNAMED);
        let mut kept = self.kept.lock();
        let Some(first) = kept.iter_mut().find(is_unnamed) else { return false };
        first.told = Some((flow, seq));
        true
    }

    /// Takes room for a QP's engine. False: there is none.
    pub fn reserve(&self, entries: u32) -> bool {
        self.room.fetch_update(Relaxed, Relaxed, |room| room.checked_sub(entries)).is_ok()
    }

    /// Whether a QP's engine would find room.
    pub fn has_room(&self, entries: u32) -> bool {
        self.room.load(Relaxed) >= entries
    }

    /// Resizes it to so many entries and those of engines: as many as a CQ of that size is made with; or at least those that
    /// are taken. Where the device does not grant even that, the application has what it asked for, and no engine is added.
    pub fn resize(&self, cqe: u32, mut real: impl FnMut(u32) -> c_int) -> c_int {
        // Nobody takes any meanwhile.
        let free = self.room.swap(0, Relaxed);
        let taken = self.extra.load(Relaxed).saturating_sub(free);
        for extra in extras(cqe).map(|extra| extra.max(taken)).into_iter().chain([taken]) {
            if cqe.checked_add(extra).map(&mut real) == Some(0) {
                self.extra.store(extra, Relaxed);
                self.room.fetch_add(extra - taken, Relaxed);
                return 0;
            }
        }
        let rc = real(cqe);
        if rc == 0 {
            self.extra.store(taken, Relaxed);
        } else {
            self.room.fetch_add(free, Relaxed);
        }
        rc
    }

    /// Gives it back.
    pub fn give_back(&self, entries: u32) {
        self.room.fetch_add(entries, Relaxed);
    }

    /// Completions of this QP pass its engine, and its receives, from now on.
    pub fn add(&self, qp_num: u32, flow: &'static Flow) {
        self.served.store(true, Release);
        self.counted.lock.in_passing(|_| {
            self.flows.set(qp_num, Some(flow));
            self.count.fetch_add(1, Relaxed);
            if core::ptr::eq(flow.cq, self) {
                // Its engine is awake.
                self.sift_more();
            }
        });
    }

    /// The QP is destroyed: what it left passes for the last time, so that nothing of it is taken for a later QP's of this
    /// number. What was polled for it and not fetched stays, as it would in a CQ.
    pub fn remove(&self, qp_num: u32, flow: &'static Flow) {
        let _lock = self.counted.lock.lock();
        self.draw_all();
        if self.flows.get(qp_num).is_some_and(|f| core::ptr::eq(f, flow)) {
            self.flows.set(qp_num, None);
        }
        self.count.fetch_sub(1, Relaxed);
        if core::ptr::eq(flow.cq, self) && !flow.counted().engine.sleeps() {
            self.sift_less(1);
        }
        for kept in self.kept.lock().iter_mut() {
            kept.told = kept.told.take().filter(|(f, _)| !core::ptr::eq(*f, flow));
        }
    }

    /// Whether there is nothing to do here.
    fn is_plain(&self) -> bool {
        self.count.load(Relaxed) == 0 && self.keeps.load(Relaxed) == 0
    }

    /// Lets an engine see a completion, which may change it. `None`: it is the engine's own. Each completion passes here
    /// once, in its order, under the CQ's lock, however it is polled.
    ///
    /// `now`: the application gets it now; else its engine is to be told when it does.
    #[inline]
    pub fn judge(&self, wc: &mut ibv_wc, now: bool) -> Option<Told> {
        let received = || if wc.status == 0 { wc.opcode & RECV != 0 } else { self.counted.is_failed_receive(wc) };
        match self.flows.get(wc.qp_num) {
            None => Some(None),
            Some(flow) if received() => {
                if flow.receives.cq.is_some_and(|cq| core::ptr::eq(cq, self)) {
                    flow.receives.completed(wc);
                }
                Some(None)
            }
            // A left-over of the number's last QP.
            Some(flow) if !core::ptr::eq(flow.cq, self) => Some(None),
            Some(flow) => flow.completed(wc, now),
        }
    }

    /// Lets engines see `all`; what is the application's moves to the front, and it gets it now. Returns its number. The CQ's
    /// lock is held.
    fn sift(&self, all: &mut [ibv_wc]) -> usize {
        let mut kept = 0;
        for i in 0..all.len() {
            if self.judge(&mut all[i], true).is_some() {
                if kept < i {
                    all.swap(kept, i);
                }
                kept += 1;
            }
        }
        kept
    }

    /// Polls for the application, which may not: its completions wait for it here.
    pub fn draw(&self) {
        let _last = self.counted.lock.lock();
        self.draw_some();
    }

    /// The QP is in RESET: what its old connection left passes its engine and its receives now, and then is nothing to
    /// them. False: the provider failed.
    pub fn settle(&self, qp_num: u32) -> bool {
        let _lock = self.counted.lock.lock();
        let drawn = self.draw_all();
        for kept in self.kept.lock().iter_mut() {
            kept.told = kept.told.take().filter(|(flow, _)| flow.qp_num() != qp_num);
        }
        drawn
    }

    /// Polls all that is in the CQ now. False: the provider failed. The CQ's lock is held.
    fn draw_all(&self) -> bool {
        let mut left = i64::from(self.cqe());
        loop {
            let n = self.draw_some();
            left -= i64::from(n);
            // What has come since is newer than all that is meant.
            if n < BATCH as c_int || left <= 0 {
                return n >= 0;
            }
        }
    }

    /// Entries that it has room for.
    pub fn cqe(&self) -> u32 {
        self.counted.record.cqe.load(Relaxed)
    }

    /// The CQ's lock is held. How many; below 0: not now.
    fn draw_some(&self) -> c_int {
        if let Some(x) = &self.extended {
            return x.draw(self, self.cq);
        }
        // SAFETY: numbers, for which zero is valid.
        let mut wc: [ibv_wc; BATCH] = unsafe { core::mem::zeroed() };
        // SAFETY: a CQ that exists: who destroys it hides it first, and then waits for this thread.
        let n = unsafe { (self.counted.spec.real)(self.cq, BATCH as c_int, wc.as_mut_ptr()) };
        for mut wc in wc.into_iter().take(n.max(0) as usize) {
            if let Some(told) = self.judge(&mut wc, false) {
                self.keep(Kept { wc, more: More::default(), told });
            }
        }
        n
    }

    /// Polls as the application asks.
    ///
    /// # Safety
    /// There is room for `most` completions at `to`.
    unsafe fn poll(&self, most: usize, to: *mut ibv_wc) -> c_int {
        let last = self.counted.lock.lock();
        let mut got = 0;
        while got < most
            && let Some(k) = self.next_kept()
        {
            k.deliver();
            // SAFETY: the caller's promise.
            unsafe { to.add(got).write(k.wc) };
            got += 1;
        }
        let mut failed = 0;
        while got < most {
            let asked = most - got;
            // SAFETY: the caller's promise.
            let n = unsafe { (self.counted.spec.real)(self.cq, asked as c_int, to.add(got)) };
            if n <= 0 {
                failed = n;
                break;
            }
            // SAFETY: the provider wrote that many.
            let new = unsafe { core::slice::from_raw_parts_mut(to.add(got), n as usize) };
            got += self.sift(new);
            if (n as usize) < asked {
                break;
            }
        }
        let answer = if got > 0 { got as c_int } else { failed };
        // SAFETY: `got` completions are written, and the CQ has been locked since before the poll.
        unsafe { data_path::count_poll(last, self.counted, answer, to) }
    }
}

/// Hook of `ibv_poll_cq` where multi-path is on.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the application's promise, as ibv_poll_cq demands.
    unsafe {
        if let Some(c) = OBJECTS.cqs.get_first(cq as usize)
            && let Some(last) = c.lock.try_own()
            && c.sifts.load(Relaxed) == 0
        {
            let n = (c.spec.real)(cq, num_entries, wc);
            if n == 1 && c.completed_send(&last, &*wc) {
                return 1;
            }
            return count_unsifted(last, c, n, wc);
        }
        poll_by_turns(cq, num_entries, wc)
    }
}

/// Counts what was polled while engines slept, though errors wake them, and receives may say too little.
///
/// # Safety
/// As [`data_path::count_poll`].
#[inline(never)]
unsafe fn count_unsifted(last: OwnerGuard<'static, LastQp>, c: &'static Cq, n: c_int, wc: *mut ibv_wc) -> c_int {
    let sift = |n: usize| {
        // SAFETY: the provider wrote that many.
        let all = unsafe { core::slice::from_raw_parts_mut(wc, n) };
        find(c.address as *mut ibv_cq).map_or(n, |state| state.sift(all))
    };
    let left = if n > 0 { guard::hot(|| sift(n as usize)).unwrap_or(n as usize) as c_int } else { n };
    // SAFETY: the caller's promise; `left` completions are at `wc` still.
    unsafe { data_path::count_poll(last, c, left, wc) }
}

/// As `poll_cq`, of a CQ that several threads use, or whose completions engines are to see.
#[inline(never)]
unsafe extern "C" fn poll_by_turns(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match find(cq).filter(|c| num_entries > 0 && !c.is_plain()) {
            Some(state) => match &state.extended {
                Some(x) => x.alone(|| state.poll(num_entries as usize, wc)),
                None => state.poll(num_entries as usize, wc),
            },
            None => data_path::poll_cq(cq, num_entries, wc),
        }
    }
}
