//! The hot hooks: posts and polls, reached through the context's operation table.
//!
//! Each finds the object, lets telemetry note the call, and makes the real call under the object's lock. An object that
//! is not known goes straight to the real call.

use crate::{context, guard};
use core::ffi::c_int;
use rdma_sys::{ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc};
use telereduce::telemetry::qp::{Qp, before_bad_recv, before_bad_send};

/// The QP's state, if it is the QP that the number stands for (a shared XRC QP has two addresses).
///
/// # Safety
/// `qp` is a valid QP.
#[inline(always)]
unsafe fn known(c: &context::Context, qp: *mut ibv_qp) -> Option<&'static Qp> {
    // SAFETY: the caller's promise.
    c.device()?.qps.get(unsafe { (*qp).qp_num }).filter(|q| q.address == qp as usize)
}

/// Hook of `ibv_post_send`.
pub unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the application passes a valid QP, chain and place for the refused WR, as ibv_post_send demands.
    unsafe {
        let Some(c) = context::find((*qp).context) else { return libc::ENODEV };
        let real = c.ops.post_send;
        let Some(q) = known(c, qp) else { return real(qp, wr, bad) };
        let Some(posting) = guard::run(|| {
            guard::fault_point("post_send");
            q.start_send(wr)
        }) else {
            return real(qp, wr, bad);
        };
        let rc = real(qp, wr, bad);
        guard::run(|| {
            if rc == 0 {
                posting.accepted();
            } else {
                let n = before_bad_send(wr, *bad);
                q.refuse_opcodes(if n == 0 { wr } else { *bad });
                posting.accepted_only(n);
            }
        });
        rc
    }
}

/// Hook of `ibv_post_recv`.
pub unsafe extern "C" fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: as in `post_send`.
    unsafe {
        let Some(c) = context::find((*qp).context) else { return libc::ENODEV };
        let real = c.ops.post_recv;
        let Some(q) = known(c, qp) else { return real(qp, wr, bad) };
        let Some(posting) = guard::run(|| q.start_recv(wr)) else { return real(qp, wr, bad) };
        let rc = real(qp, wr, bad);
        guard::run(|| {
            if rc == 0 {
                posting.accepted();
            } else {
                posting.accepted_only(before_bad_recv(wr, *bad));
            }
        });
        rc
    }
}

/// Hook of `ibv_post_srq_recv`.
pub unsafe extern "C" fn post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: as in `post_send`.
    unsafe {
        let Some(c) = context::find((*srq).context) else { return libc::ENODEV };
        let Some(real) = c.ops.post_srq_recv else { return libc::EOPNOTSUPP };
        let Some(s) = c.device().and_then(|d| d.srqs.get(srq as usize)) else { return real(srq, wr, bad) };
        let Some(posting) = guard::run(|| s.start(wr)) else { return real(srq, wr, bad) };
        let rc = real(srq, wr, bad);
        guard::run(|| posting.finish((rc != 0).then(|| before_bad_recv(wr, *bad))));
        rc
    }
}

/// Hook of `ibv_poll_cq`.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the application passes a valid CQ and room for `num_entries` completions, as ibv_poll_cq demands.
    unsafe {
        let Some(c) = context::find((*cq).context) else { return -libc::ENODEV };
        let real = c.ops.poll_cq;
        let Some(q) = c.device().and_then(|d| d.cqs.get(cq as usize)) else { return real(cq, num_entries, wc) };
        let polling = q.start_poll();
        let n = real(cq, num_entries, wc);
        if n > 0 {
            guard::run(|| {
                guard::fault_point("poll_cq");
                polling.completed(core::slice::from_raw_parts(wc, n as usize));
            });
        } else if n == 0 {
            polling.empty();
        }
        n
    }
}
