//! `ibv_start_poll` and so on: completions that are looked at one by one, through pointers in the CQ itself.
//!
//! One completion is counted at each `start_poll` and `next_poll` that finds one, when its fields are there to be read; the
//! engine is that of plain polls. Our lock of the CQ is held only inside the hooks, never over the application's code. The
//! provider holds its own from `start_poll` to `end_poll`, so whoever polls such a CQ passes the [`Gate`] first; thus
//! completions are counted in the order in which they were handed out, here too.

use crate::multipath::cq::CqState;
use crate::multipath::extended_cq;
use crate::state::OBJECTS;
use crate::{guard, unseen};
use core::ffi::c_int;
use core::mem::offset_of;
use core::ops::DerefMut;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use rdma_sys::{ibv_cq, ibv_cq_ex, ibv_poll_cq_attr, ibv_wc, ibv_wc_status};
use telereduce::sync::{Entry, Gate};
use telereduce::table::PtrMap;
use telereduce::table::gone::{self, Gone};
use telereduce::telemetry::cq::{Cq, LastQp};

type StartPoll = unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int;
type NextPoll = unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int;
type EndPoll = unsafe extern "C" fn(*mut ibv_cq_ex);

/// A CQ whose pointers are ours.
pub struct Hooked {
    /// The provider's functions.
    pub start_poll: StartPoll,
    /// As above.
    pub next_poll: NextPoll,
    /// As above.
    pub end_poll: EndPoll,
    /// Held from `start_poll` to `end_poll`, and around plain polls.
    pub gate: Gate,
    /// What becomes of the completions that are read: [`SHUT`], [`COUNTED`] or [`LATE`]. The provider serialises the readers.
    state: AtomicU8,
    /// Its state, if it may serve engines; its pointers are then those of [`crate::multipath::extended_cq`].
    split: AtomicPtr<CqState>,
    /// It is the parent's.
    inherited: AtomicBool,
}

impl Hooked {
    /// Its state, if it may serve engines.
    #[inline(always)]
    pub fn state(&self) -> Option<&'static CqState> {
        // SAFETY: they live as long as their CQs, and somewhat longer.
        unsafe { self.split.load(Acquire).as_ref() }
    }

    /// Whether it was made before this process was forked.
    #[inline(always)]
    pub fn is_inherited(&self) -> bool {
        self.inherited.load(Relaxed)
    }

    /// It may serve engines from now on.
    ///
    /// # Safety
    /// `cq` is the CQ that this was attached to, and nobody else knows it yet.
    pub unsafe fn serve(&'static self, cq: *mut ibv_cq, state: &'static CqState) {
        self.split.store(core::ptr::from_ref(state).cast_mut(), Release);
        // SAFETY: the caller's promise.
        unsafe { self.show(cq) };
    }

    /// # Safety
    /// `cq` is the CQ that this was attached to.
    unsafe fn show(&self, cq: *mut ibv_cq) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.state().is_some() {
                replace(cq.cast(), extended_cq::start_poll, extended_cq::next_poll, extended_cq::end_poll);
            } else {
                replace(cq.cast(), start_poll, next_poll, end_poll);
            }
        }
    }
}

/// None are read, or they are not counted.
const SHUT: u8 = 0;
/// They are counted, and the gate is held.
const COUNTED: u8 = 1;
/// The gate was not to be had: their number is all that is counted.
const LATE: u8 = 2;

static HOOKED: PtrMap<Hooked> = PtrMap::new();
/// Those of destroyed CQs, not freed yet, so that even a program which polls one does no harm.
static GONE: Gone<Hooked> = Gone::new();

/// The hooked CQ at this address.
#[inline(always)]
pub fn find<T>(cq: *const T) -> Option<&'static Hooked> {
    HOOKED.find(cq)
}

/// Hook of `ibv_start_poll`.
pub unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    let Some(h) = find(cq) else { return libc::ENODEV };
    // SAFETY: the program's CQ and attributes, as ibv_start_poll demands.
    let real = || unsafe { (h.start_poll)(cq, attr) };
    let Some(c) = OBJECTS.cqs.find(cq) else {
        let rc = real();
        if rc == 0 {
            h.state.store(SHUT, Relaxed);
        }
        return rc;
    };
    let entry = h.gate.enter();
    if entry == Entry::Late {
        let rc = real();
        if rc == 0 {
            h.state.store(LATE, Relaxed);
            unseen::add(|h| &h.completions_unmatched, 1);
        }
        return rc;
    }
    c.lock.share();
    let last = c.lock.lock();
    let rc = real();
    count(last, c, cq, rc, true);
    if rc == 0 {
        h.state.store(COUNTED, Relaxed);
    } else if entry == Entry::Entered || h.state.swap(SHUT, Relaxed) == COUNTED {
        // The provider holds nothing, whatever was before.
        h.gate.leave();
    }
    rc
}

/// Hook of `ibv_next_poll`.
pub unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    let Some(h) = find(cq) else { return libc::ENODEV };
    // SAFETY: as in `start_poll`.
    let real = || unsafe { (h.next_poll)(cq) };
    match (h.state.load(Relaxed), OBJECTS.cqs.find(cq)) {
        (COUNTED, Some(c)) => {
            let last = c.lock.lock();
            let rc = real();
            count(last, c, cq, rc, false);
            rc
        }
        (LATE, Some(_)) => {
            let rc = real();
            if rc == 0 {
                unseen::add(|h| &h.completions_unmatched, 1);
            }
            rc
        }
        _ => real(),
    }
}

/// Hook of `ibv_end_poll`.
pub unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    let Some(h) = find(cq) else { return };
    let counted = h.state.swap(SHUT, Relaxed) == COUNTED;
    // SAFETY: as in `start_poll`.
    unsafe { (h.end_poll)(cq) };
    if counted {
        h.gate.leave();
    }
}

/// Counts the completion that the CQ stands at, if `rc` says that there is one.
#[inline(never)]
fn count(mut last: impl DerefMut<Target = LastQp>, c: &'static Cq, cq: *mut ibv_cq_ex, rc: c_int, first: bool) {
    guard::hot(|| {
        guard::fault_point("start_poll");
        if rc == 0 {
            // SAFETY: the provider has just filled the CQ's fields.
            let wc = unsafe { completion(c, cq) };
            c.completed(&mut last, core::slice::from_ref(&wc));
        } else if rc == libc::ENOENT && first {
            c.empty();
        }
    });
}

/// What the CQ says of the completion at which it stands.
///
/// # Safety
/// It stands at one.
unsafe fn completion(c: &Cq, cq: *mut ibv_cq_ex) -> ibv_wc {
    // SAFETY: numbers, for which zero is a valid value.
    let mut wc: ibv_wc = unsafe { core::mem::zeroed() };
    // SAFETY: the caller's promise; a reader is there if it may be called.
    unsafe {
        let x = &*cq;
        (wc.wr_id, wc.status) = (x.wr_id, x.status);
        wc.qp_num = x.read_qp_num.map_or_else(|| c.only_qp(), |read| read(cq));
        if wc.status == ibv_wc_status::IBV_WC_SUCCESS {
            wc.opcode = x.read_opcode.map_or(0, |read| read(cq));
            wc.byte_len = x.read_byte_len.map_or(0, |read| read(cq));
        } else {
            wc.vendor_err = x.read_vendor_err.map_or(0, |read| read(cq));
        }
    }
    wc
}

/// Replaces the pointers. False: they are not as expected, and stay as they are.
///
/// # Safety
/// `cq` was just created by the context's create_cq_ex, and nobody else knows it yet.
pub unsafe fn attach(cq: *mut ibv_cq_ex) -> bool {
    // SAFETY: the caller's promise.
    let x = unsafe { &*cq };
    let (Some(start_poll), Some(next_poll), Some(end_poll)) = (x.start_poll, x.next_poll, x.end_poll) else {
        return false;
    };
    let (gate, state) = (Gate::default(), AtomicU8::new(SHUT));
    let (split, inherited) = (AtomicPtr::default(), AtomicBool::new(false));
    let h = gone::live(Hooked { start_poll, next_poll, end_poll, gate, state, split, inherited });
    HOOKED.insert(cq as usize, h);
    // SAFETY: the caller's promise.
    unsafe { h.show(cq.cast()) };
    true
}

unsafe fn replace(cq: *mut ibv_cq_ex, start: StartPoll, next: NextPoll, end: EndPoll) {
    let set = |offset: usize, address: usize| {
        // SAFETY: the caller's promise: a CQ that has these pointers.
        unsafe { AtomicUsize::from_ptr(cq.byte_add(offset).cast()) }.store(address, Release);
    };
    set(offset_of!(ibv_cq_ex, start_poll), start as *const () as usize);
    set(offset_of!(ibv_cq_ex, next_poll), next as *const () as usize);
    set(offset_of!(ibv_cq_ex, end_poll), end as *const () as usize);
}

/// The CQ is about to be destroyed: puts the provider's pointers back. Returns what [`reattach`] or [`forget`]
/// needs.
///
/// # Safety
/// `cq` is a CQ.
pub unsafe fn detach(cq: *mut ibv_cq) -> Option<&'static Hooked> {
    let h = HOOKED.remove(cq as usize)?;
    // SAFETY: the caller's promise; it was extended when it was attached to.
    unsafe { replace(cq.cast(), h.start_poll, h.next_poll, h.end_poll) };
    Some(h)
}

/// It was not destroyed.
///
/// # Safety
/// `cq` is the CQ that `h` was detached from.
pub unsafe fn reattach(cq: *mut ibv_cq, h: &'static Hooked) {
    HOOKED.insert(cq as usize, h);
    // SAFETY: the caller's promise.
    unsafe { h.show(cq) };
}

/// It was destroyed.
pub fn forget(h: &'static Hooked) {
    // SAFETY: made live in `attach`, taken out of the table by `detach`, and destroyed once.
    unsafe { GONE.add(h) };
}

/// In a forked child.
///
/// # Safety
/// The process has one thread.
pub unsafe fn after_fork() {
    // SAFETY: the caller's promise.
    unsafe {
        HOOKED.reset_after_fork();
        GONE.reset_after_fork();
    }
    HOOKED.for_each(|h| h.inherited.store(true, Relaxed));
}
