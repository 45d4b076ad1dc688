//! `ibv_wr_*`: sends that are built by one call per WR, through pointers in the QP itself ([`send_ops`]).
//!
//! The pointers are replaced when the QP is created, and again after each ibv_modify_qp, since providers set some anew
//! then. The WRs are kept in a [`Batch`] and noted at `wr_complete`, around the real one, as a chain is around the real
//! post. The provider holds its lock from `wr_start` to `wr_complete` or `wr_abort`, so whoever posts to such a QP
//! passes the [`Gate`] first, for the reason that is given there. A QP that is not counted goes straight to the provider.

use crate::library::Library;
use crate::multipath::flow::Flow;
use crate::send_ops::{self, Real};
use crate::state::OBJECTS;
use crate::{data_path, guard, linked, unseen};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use rdma_sys::{ibv_ah, ibv_qp, ibv_qp_ex, ibv_qp_type};
use telereduce::sync::{Entry, Gate};
use telereduce::table::PtrMap;
use telereduce::table::gone::{self, Gone};
use telereduce::telemetry::batch::Batch;
use telereduce::telemetry::qp::Qp;
use telereduce::verbs::{SendFacts, asks_for_completion};

/// A QP whose pointers are ours.
pub struct Hooked {
    /// The provider's functions.
    pub real: Real,
    /// Held from `wr_start` to `wr_complete` or `wr_abort`, and around plain posts.
    pub gate: Gate,
    /// `send_ops_flags` of its creation.
    granted: u64,
    /// What becomes of the WRs that are built: [`SHUT`], [`KEPT`] or [`LATE`]. The provider serialises those who build.
    state: AtomicU8,
    /// That of who holds the gate.
    batch: UnsafeCell<Batch>,
    /// Its engine, if it may be split; its pointers are then those of [`crate::multipath::extended_send`].
    flow: AtomicPtr<Flow>,
}

/// None are built, or they are not counted.
const SHUT: u8 = 0;
/// They are kept in the batch, and the gate is held.
const KEPT: u8 = 1;
/// The gate was not to be had: their number is all that is counted.
const LATE: u8 = 2;

// SAFETY: `batch` is used by one thread at a time, as it says.
unsafe impl Sync for Hooked {}
// SAFETY: nothing in it is a thread's own.
unsafe impl Send for Hooked {}

static HOOKED: PtrMap<Hooked> = PtrMap::new();
/// Those of destroyed QPs, not freed yet, so that even a program which posts to one does no harm.
static GONE: Gone<Hooked> = Gone::new();

/// The hooked QP at this address.
#[inline(always)]
pub fn find<T>(qp: *const T) -> Option<&'static Hooked> {
    HOOKED.find(qp)
}

impl Hooked {
    /// The program begins a WR, with so many bytes that are in no list.
    #[inline(always)]
    pub fn begin(&self, qp: *mut ibv_qp_ex, opcode: u32, bytes: u64) {
        match self.state.load(Relaxed) {
            // SAFETY: the program's QP, on which it builds; who began that holds the gate.
            KEPT => unsafe {
                let (wr_id, signaled) = ((*qp).wr_id, asks_for_completion((*qp).wr_flags));
                (*self.batch.get()).add(SendFacts { wr_id, bytes, opcode, signaled });
            },
            LATE => unseen::add(|h| &h.wrs_unseen, 1),
            _ => {}
        }
    }

    /// It says how many bytes the newest WR has.
    #[inline(always)]
    pub fn set_bytes(&self, bytes: u64) {
        if self.state.load(Relaxed) == KEPT {
            // SAFETY: as in `begin`.
            unsafe { (*self.batch.get()).set_bytes(bytes) };
        }
    }

    /// It says through which address handle the newest WR goes.
    pub fn set_handle(&self, handle: *const ibv_ah) {
        if self.state.load(Relaxed) == KEPT {
            // SAFETY: as in `begin`.
            unsafe { (*self.batch.get()).set_peer(OBJECTS.handles.get_near(handle as usize)) };
        }
    }

    /// Its engine, if it may be split.
    #[inline(always)]
    pub fn flow(&self) -> Option<&'static Flow> {
        // SAFETY: flows live as long as their QPs, and somewhat longer.
        unsafe { self.flow.load(Acquire).as_ref() }
    }

    /// Whether the WRs that are built are kept in the batch.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.state.load(Relaxed) == KEPT
    }

    /// A batch begins.
    ///
    /// # Safety
    /// The caller holds the gate, and the provider's lock.
    #[inline(always)]
    pub unsafe fn open(&self) {
        // SAFETY: the caller's promise.
        unsafe { (*self.batch.get()).clear() };
        self.state.store(KEPT, Relaxed);
    }

    /// The batch.
    ///
    /// # Safety
    /// The caller holds the gate.
    pub unsafe fn batch(&self) -> &Batch {
        // SAFETY: the caller's promise.
        unsafe { &*self.batch.get() }
    }

    /// Nothing more is built. True if the batch was.
    #[inline(always)]
    pub fn shut(&self) -> bool {
        let kept = self.state.load(Relaxed) == KEPT;
        self.state.store(SHUT, Relaxed);
        kept
    }
}

/// Hook of `ibv_wr_start`.
pub unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    let Some(h) = find(qp) else { return };
    let entry = OBJECTS.qps.find(qp).map(|q| {
        q.sends.tail.share();
        h.gate.enter()
    });
    if let Some(real) = h.real.wr_start() {
        // SAFETY: the program's QP, as ibv_wr_start demands.
        unsafe { real(qp) };
    }
    // Only now: who was there before us is out of the provider.
    let state = match entry {
        None => SHUT,
        Some(Entry::Late) => LATE,
        Some(Entry::Entered | Entry::Inside) => {
            // SAFETY: the gate is ours.
            return unsafe { h.open() };
        }
    };
    h.state.store(state, Relaxed);
}

/// Hook of `ibv_wr_abort`.
pub unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    let Some(h) = find(qp) else { return };
    let kept = h.shut();
    if let Some(real) = h.real.wr_abort() {
        // SAFETY: as in `wr_start`.
        unsafe { real(qp) };
    }
    if kept {
        h.gate.leave();
    }
}

/// Hook of `ibv_wr_complete`.
pub unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let Some((h, real)) = find(qp).and_then(|h| Some((h, h.real.wr_complete()?))) else { return libc::ENODEV };
    if !h.shut() {
        // SAFETY: as in `wr_start`.
        return unsafe { real(qp) };
    }
    let answer = match OBJECTS.qps.find(qp) {
        // SAFETY: as in `wr_start`.
        Some(q) => unsafe { complete(h, q, || real(qp)) },
        // SAFETY: as above.
        None => unsafe { real(qp) },
    };
    h.gate.leave();
    answer
}

/// # Safety
/// The gate is ours, and `real` completes the batch.
unsafe fn complete(h: &'static Hooked, q: &'static Qp, real: impl Fn() -> c_int) -> c_int {
    let mut tail = q.sends.tail.lock();
    data_path::guarded!(rc = real(), {
        guard::fault_point("wr_complete");
        // SAFETY: the caller's promise; the tail is locked.
        unsafe {
            let batch = &*h.batch.get();
            let noted = q.note_batch_to(&mut tail, batch.wrs(), batch.peers());
            let answer = real();
            rc = Some(answer);
            // All or none: a provider that fails has posted nothing.
            if answer == 0 {
                q.batch_accepted(noted, batch.wrs());
                if batch.left_out() != 0 {
                    q.left_out(batch.left_out());
                }
            }
        }
    })
}

/// Replaces the pointers of a QP that was created with `send_ops_flags`. False: they are not as expected, and stay as
/// they are.
///
/// # Safety
/// `qp` is such a QP of `library`, and nobody else knows it yet.
pub unsafe fn attach(qp: *mut ibv_qp, library: &'static Library, granted: u64, max_send_wr: u32) -> bool {
    let Some(address) = linked::unhooked(library, c"ibv_qp_to_qp_ex") else { return false };
    // SAFETY: libibverbs's function of this name, whose type this is; the caller's promise.
    let x = unsafe {
        let to_qp_ex: unsafe extern "C" fn(*mut ibv_qp) -> *mut ibv_qp_ex = core::mem::transmute(address);
        to_qp_ex(qp)
    };
    // SAFETY: null or an extended QP. It is looked up by its own address, so that must be the QP's, as it always was.
    let Some(ops) = (unsafe { x.as_ref() }).filter(|_| core::ptr::addr_eq(x, qp)) else { return false };
    if ops.wr_start.is_none() || ops.wr_complete.is_none() || ops.wr_abort.is_none() {
        return false;
    }
    let of_datagrams = ops.qp_base.qp_type == ibv_qp_type::IBV_QPT_UD;
    let h = gone::live(Hooked {
        real: Real::default(),
        gate: Gate::default(),
        granted,
        state: AtomicU8::new(SHUT),
        batch: UnsafeCell::new(if of_datagrams { Batch::of_datagrams(max_send_wr) } else { Batch::new(max_send_wr) }),
        flow: AtomicPtr::default(),
    });
    HOOKED.insert(qp as usize, h);
    // SAFETY: the caller's promise.
    unsafe { send_ops::replace(x, &h.real, granted, false) };
    true
}

impl Hooked {
    /// The QP may be split from now on.
    ///
    /// # Safety
    /// `qp` is the QP that this was attached to, and nobody else knows it yet.
    pub unsafe fn serve(&'static self, qp: *mut ibv_qp, flow: &'static Flow) {
        self.flow.store(core::ptr::from_ref(flow).cast_mut(), Release);
        // SAFETY: the caller's promise.
        unsafe { attach_again(qp) };
    }
}

/// The QP was modified: pointers that the provider has set anew are replaced anew.
///
/// # Safety
/// `qp` is a QP.
pub unsafe fn attach_again(qp: *mut ibv_qp) {
    if let Some(h) = find(qp) {
        // SAFETY: an extended QP, which starts as a plain one does.
        unsafe { send_ops::replace(qp.cast(), &h.real, h.granted, h.flow().is_some()) };
    }
}

/// The QP is about to be destroyed: puts the provider's pointers back. Returns what [`reattach`] or [`forget`] needs.
///
/// # Safety
/// `qp` is a QP.
pub unsafe fn detach(qp: *mut ibv_qp) -> Option<&'static Hooked> {
    let h = HOOKED.remove(qp as usize)?;
    // SAFETY: as in `attach_again`.
    unsafe { send_ops::put_back(qp.cast(), &h.real, h.granted) };
    Some(h)
}

/// It was not destroyed.
///
/// # Safety
/// `qp` is the QP that `h` was detached from.
pub unsafe fn reattach(qp: *mut ibv_qp, h: &'static Hooked) {
    HOOKED.insert(qp as usize, h);
    // SAFETY: the caller's promise.
    unsafe { attach_again(qp) };
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
    HOOKED.for_each(|h| h.flow.store(core::ptr::null_mut(), Release));
}
