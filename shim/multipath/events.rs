//! Asynchronous events: those of lanes, and of their CQs, are the library's own, and the application does not see them.
//!
//! A thread often sleeps in ibv_get_async_event for good, and is cancelled there. So nothing on the way to the real call
//! is in need of being cleaned up, and all of it may be unwound.

use super::helper;
use crate::control_path::missing;
use crate::library::{Library, Way};
use crate::{guard, linked};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rdma_sys::ibv_event_type as Type;
use rdma_sys::{ibv_async_event, ibv_context};

type Get = unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
type Ack = unsafe extern "C" fn(*mut ibv_async_event);

/// Whether there were ever QPs or CQs of the library's own. Its address is their `qp_context` and `cq_context`.
static OWN: AtomicBool = AtomicBool::new(false);

/// The `qp_context` and `cq_context` of what is the library's own.
pub fn mark() -> *mut c_void {
    OWN.store(true, Relaxed);
    (&raw const OWN).cast_mut().cast()
}

/// What the events of a QP and of a CQ are about, by their types: those after which a QP takes nothing any more, and others.
const QP_BROKE: [u32; 3] =
    [Type::IBV_EVENT_QP_FATAL as u32, Type::IBV_EVENT_QP_REQ_ERR as u32, Type::IBV_EVENT_QP_ACCESS_ERR as u32];
const QP_OTHER: [u32; 5] = [
    Type::IBV_EVENT_COMM_EST as u32,
    Type::IBV_EVENT_SQ_DRAINED as u32,
    Type::IBV_EVENT_PATH_MIG as u32,
    Type::IBV_EVENT_PATH_MIG_ERR as u32,
    Type::IBV_EVENT_QP_LAST_WQE_REACHED as u32,
];
const CQ: u32 = Type::IBV_EVENT_CQ_ERR as u32;

/// The type of an event, of which a later libibverbs may have more.
///
/// # Safety
/// The real call returned it.
unsafe fn type_of(event: *const ibv_async_event) -> u32 {
    // SAFETY: the caller's promise; the field is as wide.
    unsafe { (&raw const (*event).event_type).cast::<u32>().read() }
}

/// Of an event that was not acknowledged yet: whether it is the library's own.
///
/// # Safety
/// The real call returned it.
unsafe fn is_own(event: *const ibv_async_event) -> bool {
    // SAFETY: the caller's promise; until the event is acknowledged, its QP or CQ is not destroyed.
    let context = unsafe {
        match type_of(event) {
            CQ => (*(*event).element.cq).cq_context,
            of_qp if QP_BROKE.contains(&of_qp) || QP_OTHER.contains(&of_qp) => (*(*event).element.qp).qp_context,
            _ => return false,
        }
    };
    core::ptr::eq(context, (&raw const OWN).cast())
}

/// Acknowledges an event of the library's own, and does what is to be done then. False: it cannot be.
#[cold]
#[inline(never)]
fn take(library: &'static Library, event: *mut ibv_async_event) -> bool {
    let work = || {
        let ack = linked::unhooked(library, c"ibv_ack_async_event")?;
        // SAFETY: the real function of this name; an event that the real call returned, of which nobody else knows.
        unsafe {
            let (broke, qp) = (QP_BROKE.contains(&type_of(event)), (*event).element.qp as usize);
            core::mem::transmute::<usize, Ack>(ack)(event);
            if broke {
                helper::broke(qp);
            }
        }
        Some(())
    };
    guard::run(work).flatten().is_some()
}

/// Hook of `ibv_get_async_event`. Where nothing is left but events of the library's own, it goes on as if they had not
/// come: it waits, or says EAGAIN if the descriptor does not block.
pub unsafe fn ibv_get_async_event(way: Way, ctx: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    let Some(real) = way.library.ibv_get_async_event() else { return missing(-1) };
    // SAFETY: the same type, of a function that is unwound if the thread is cancelled in it.
    let real = unsafe { core::mem::transmute::<unsafe extern "C" fn(_, _) -> _, Get>(real) };
    // SAFETY: the caller's promise, passed on.
    unsafe {
        loop {
            let rc = real(ctx, event);
            if rc != 0 || !OWN.load(Relaxed) || !is_own(event) || !take(way.library, event) {
                return rc;
            }
        }
    }
}
