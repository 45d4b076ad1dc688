//! Domains: of XRC, of threads, and parents of both kinds.

use super::memory::{new_pd, root};
use super::{errno, object, set_errno};
use core::sync::atomic::Ordering::Relaxed;
use rdma_sys::*;
use std::ffi::c_int;

/// An XRC domain. A file that names it is accepted, but the domain stays this process's own: its QPs reach its SRQs only.
pub unsafe extern "C" fn open_xrcd(ctx: *mut ibv_context, init: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
    const FD: u32 = 1;
    const OFLAGS: u32 = 2;
    object(|| {
        // SAFETY: the caller's.
        if unsafe { (*init).comp_mask } & !(FD | OFLAGS) != 0 {
            return Err(libc::EINVAL);
        }
        Ok(Box::into_raw(Box::new(ibv_xrcd { context: ctx })))
    })
}

/// Closes it.
pub unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: the caller's: made above, and not used any more.
    drop(unsafe { Box::from_raw(xrcd) });
    0
}

/// Needs a kernel.
pub unsafe extern "C" fn open_qp(_ctx: *mut ibv_context, _attr: *mut ibv_qp_open_attr) -> *mut ibv_qp {
    set_errno(libc::EOPNOTSUPP);
    core::ptr::null_mut()
}

/// A thread domain. Locks stay as they are.
pub unsafe extern "C" fn alloc_td(ctx: *mut ibv_context, init: *mut ibv_td_init_attr) -> *mut ibv_td {
    object(|| {
        // SAFETY: the caller's.
        if unsafe { (*init).comp_mask } != 0 {
            return Err(libc::EINVAL);
        }
        Ok(Box::into_raw(Box::new(ibv_td { context: ctx })))
    })
}

/// Removes it.
pub unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: the caller's: made above, and not used any more.
    drop(unsafe { Box::from_raw(td) });
    0
}

/// Another name for a protection domain.
pub unsafe extern "C" fn alloc_parent_domain(
    ctx: *mut ibv_context,
    init: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    object(|| {
        // SAFETY: the caller's.
        unsafe {
            if (*init).pd.is_null() || (*init).comp_mask != 0 {
                return Err(libc::EINVAL);
            }
            let parent = root((*init).pd);
            parent.users.fetch_add(1, Relaxed);
            Ok(new_pd(ctx, core::ptr::from_ref(parent).cast_mut().cast()))
        }
    })
}

/// Extended Connection Establishment: nothing is to negotiate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    errno(|| {
        // SAFETY: the caller's.
        unsafe { ece.write_bytes(0, 1) };
        Ok(())
    })
}

/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    0
}
