//! The data path of objects that nobody saw being made: it counts what passes, so that the segment says how much is
//! missing.
//!
//! Such objects come from calls that reach no hook: made by a program whose look-ups are left alone, by extensions of
//! providers, or when the segment was full.

use crate::{context, guard, state};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rdma_sys::{ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc};
use telereduce::shm::layout::Header;
use telereduce::verbs::{DataPath, PostSrqRecv};

/// What stands in for these operations.
pub fn path(real: &DataPath) -> DataPath {
    DataPath { post_send, post_recv, post_srq_recv: real.post_srq_recv.map(|_| post_srq_recv as PostSrqRecv), poll_cq }
}

unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the application passes a valid QP, chain and place for the refused WR.
    unsafe {
        let Some(c) = context::find((*qp).context) else { return libc::ENODEV };
        let rc = (c.ops.data.post_send)(qp, wr, bad);
        posted(rc, wr, bad, |wr| (*wr).next);
        rc
    }
}

unsafe extern "C" fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: as above.
    unsafe {
        let Some(c) = context::find((*qp).context) else { return libc::ENODEV };
        let rc = (c.ops.data.post_recv)(qp, wr, bad);
        posted(rc, wr, bad, |wr| (*wr).next);
        rc
    }
}

unsafe extern "C" fn post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: as above.
    unsafe {
        let real = context::find((*srq).context).and_then(|c| c.ops.data.post_srq_recv);
        let Some(real) = real else { return libc::ENODEV };
        let rc = real(srq, wr, bad);
        posted(rc, wr, bad, |wr| (*wr).next);
        rc
    }
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the application passes a valid CQ and room for `num_entries` completions.
    unsafe {
        let Some(c) = context::find((*cq).context) else { return -libc::ENODEV };
        let n = (c.ops.data.poll_cq)(cq, num_entries, wc);
        if n > 0 {
            add(|h| &h.completions_unmatched, n as u64);
        }
        n
    }
}

/// Adds the WRs of a chain that were accepted: all, or those before the refused one.
///
/// # Safety
/// The arguments and the answer of a post.
unsafe fn posted<T>(rc: c_int, mut wr: *mut T, bad: *mut *mut T, next: impl Fn(*mut T) -> *mut T) {
    // SAFETY: a post that is refused says which WR was.
    let end = if rc == 0 || bad.is_null() { core::ptr::null_mut() } else { unsafe { *bad } };
    let mut wrs = 0;
    while !wr.is_null() && wr != end {
        wrs += 1;
        wr = next(wr);
    }
    add(|h| &h.wrs_unseen, wrs);
}

/// Adds to a counter of what is missing.
pub fn add(counter: impl FnOnce(&Header) -> &AtomicU64, n: u64) {
    guard::run(|| {
        if let Some(s) = state::get() {
            counter(s.telemetry.hot().header).fetch_add(n, Relaxed);
        }
    });
}
