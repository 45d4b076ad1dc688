//! The application's CQs: completions of split QPs pass their engines, and what the helper polled for the application waits
//! here for it.

use super::flow::Flow;
use crate::data_path;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use rdma_sys::{ibv_cq, ibv_wc};
use std::collections::VecDeque;
use telereduce::sync::SpinLock;
use telereduce::table::gone::{self, Gone};
use telereduce::table::{PtrMap, QpnTable};
use telereduce::telemetry::cq::Cq;

/// Completions beyond what the application asked for that its CQs have room for: the engines' own.
pub const EXTRA: u32 = 64;
/// `IBV_WC_RECV`.
const RECV: u32 = 1 << 7;
/// Polled at once.
const BATCH: usize = 16;

/// Whose engine is to be told, and what, when the application gets a completion.
type Told = Option<(&'static Flow, u64)>;

/// A CQ of the application.
pub struct CqState {
    cq: *mut ibv_cq,
    counted: &'static Cq,
    /// Engines' completions that it has room for.
    room: AtomicU32,
    flows: QpnTable<Flow>,
    count: AtomicU32,
    /// Polled by the helper; with what the engine is to be told when the application gets it. Under the CQ's lock.
    kept: SpinLock<VecDeque<(ibv_wc, Told)>>,
}

// SAFETY: the pointer is to a CQ, which any thread may use; all else is `Sync` by itself.
unsafe impl Sync for CqState {}
// SAFETY: as above.
unsafe impl Send for CqState {}

static CQS: PtrMap<CqState> = PtrMap::new();
static GONE: Gone<CqState> = Gone::new();

/// The CQ at this address, if it has room for engines.
pub fn find(cq: *mut ibv_cq) -> Option<&'static CqState> {
    CQS.find(cq)
}

/// A counted CQ was created with [`EXTRA`] entries more than the application asked for.
pub fn created(cq: *mut ibv_cq, counted: &'static Cq) {
    let state = CqState {
        cq,
        counted,
        room: AtomicU32::new(EXTRA),
        flows: QpnTable::default(),
        count: AtomicU32::new(0),
        kept: SpinLock::default(),
    };
    CQS.insert(cq as usize, gone::live(state));
}

/// It is about to be destroyed: nobody finds it any more.
pub fn hide(cq: *mut ibv_cq) -> Option<&'static CqState> {
    CQS.remove(cq as usize)
}

/// It was not destroyed.
pub fn show(cq: *mut ibv_cq, state: &'static CqState) {
    CQS.insert(cq as usize, state);
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
    /// Takes room for a QP's engine. False: there is none.
    pub fn reserve(&self, entries: u32) -> bool {
        self.room.fetch_update(Relaxed, Relaxed, |room| room.checked_sub(entries)).is_ok()
    }

    /// Gives it back.
    pub fn give_back(&self, entries: u32) {
        self.room.fetch_add(entries, Relaxed);
    }

    /// Completions of this QP pass its engine, and its receives, from now on.
    pub fn add(&self, qp_num: u32, flow: &'static Flow) {
        let _lock = self.counted.lock.lock();
        self.flows.set(qp_num, Some(flow));
        self.count.fetch_add(1, Relaxed);
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
        for (_, told) in self.kept.lock().iter_mut() {
            *told = told.take().filter(|(f, _)| !core::ptr::eq(*f, flow));
        }
    }

    /// Whether there is nothing to do here.
    fn is_plain(&self) -> bool {
        self.count.load(Relaxed) == 0 && self.kept.lock().is_empty()
    }

    /// Lets engines see `all`; what is the application's moves to the front. Calls `keep` with each of these. Returns their
    /// number. The CQ's lock is held.
    fn sift(&self, all: &mut [ibv_wc], mut keep: impl FnMut(&ibv_wc, Told)) -> usize {
        let mut kept = 0;
        for i in 0..all.len() {
            let wc = &mut all[i];
            let flow = self.flows.get(wc.qp_num);
            let received = || if wc.status == 0 { wc.opcode & RECV != 0 } else { self.counted.is_failed_receive(wc) };
            let told = match flow {
                None => None,
                Some(flow) if received() => {
                    if flow.receives.cq.is_some_and(|cq| core::ptr::eq(cq, self)) {
                        flow.receives.completed(wc);
                    }
                    None
                }
                // A left-over of the number's last QP.
                Some(flow) if !core::ptr::eq(flow.cq, self) => None,
                Some(flow) => match flow.completed(wc) {
                    Some(upto) => Some((flow, upto)),
                    None => continue,
                },
            };
            keep(wc, told);
            all.swap(kept, i);
            kept += 1;
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
        for (_, told) in self.kept.lock().iter_mut() {
            *told = told.take().filter(|(flow, _)| flow.qp_num() != qp_num);
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

    /// The CQ's lock is held.
    fn draw_some(&self) -> c_int {
        // SAFETY: numbers, for which zero is valid.
        let mut wc: [ibv_wc; BATCH] = unsafe { core::mem::zeroed() };
        // SAFETY: a CQ that exists: who destroys it hides it first, and then waits for this thread.
        let n = unsafe { (self.counted.spec.real)(self.cq, BATCH as c_int, wc.as_mut_ptr()) };
        if n > 0 {
            let mut kept = self.kept.lock();
            self.sift(&mut wc[..n as usize], |wc, told| {
                // SAFETY: plain numbers.
                kept.push_back((unsafe { core::ptr::read(wc) }, told));
            });
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
        {
            let mut kept = self.kept.lock();
            while got < most
                && let Some((wc, told)) = kept.pop_front()
            {
                // SAFETY: the caller's promise.
                unsafe { to.add(got).write(wc) };
                if let Some((flow, upto)) = told {
                    flow.delivered(upto);
                }
                got += 1;
            }
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
            got += self.sift(new, |_, told| {
                if let Some((flow, upto)) = told {
                    flow.delivered(upto);
                }
            });
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
        match find(cq).filter(|c| num_entries > 0 && !c.is_plain()) {
            Some(state) => state.poll(num_entries as usize, wc),
            None => data_path::poll_cq(cq, num_entries, wc),
        }
    }
}
