//! The hot hooks: posts and polls, reached through the context's operation table.
//!
//! Each finds the object, lets telemetry note the call, and makes the real call under the object's lock. An object that
//! is not known goes straight to the real call. If our part panics, the real call is made all the same, and only once.

use crate::state::OBJECTS;
use crate::{context, guard};
use core::ffi::c_int;
use rdma_sys::{ibv_context, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc};
use telereduce::aside::aside;
use telereduce::verbs::DataPath;

/// Makes the real call inside our work, or after it failed.
macro_rules! guarded {
    ($rc:ident = $real:expr, $ours:block) => {{
        let mut $rc: Option<c_int> = None;
        guard::run(|| $ours);
        match $rc {
            Some(rc) => rc,
            None => $real,
        }
    }};
}

/// The provider's operations, for an object that is not counted.
#[cold]
fn uncounted(ctx: *mut ibv_context) -> Option<&'static DataPath> {
    context::find(ctx).map(|c| &c.ops.data)
}

/// Hook of `ibv_post_send`.
pub unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the application passes a valid QP, chain and place for the refused WR, as ibv_post_send demands.
    unsafe {
        let Some(q) = OBJECTS.qps.get(qp as usize) else {
            return uncounted((*qp).context).map_or(libc::ENODEV, |real| (real.post_send)(qp, wr, bad));
        };
        let real = q.spec.real.post_send;
        guarded!(rc = real(qp, wr, bad), {
            guard::fault_point("post_send");
            let posting = q.start_send(wr);
            let answer = real(qp, wr, bad);
            rc = Some(answer);
            if answer == 0 {
                posting.accepted();
            } else {
                aside(move || posting.accepted_without(q.refused_sends(wr, *bad)));
            }
        })
    }
}

/// Hook of `ibv_post_recv`.
pub unsafe extern "C" fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: as in `post_send`.
    unsafe {
        let Some(q) = OBJECTS.qps.get(qp as usize) else {
            return uncounted((*qp).context).map_or(libc::ENODEV, |real| (real.post_recv)(qp, wr, bad));
        };
        let real = q.spec.real.post_recv;
        guarded!(rc = real(qp, wr, bad), {
            guard::fault_point("post_recv");
            let posting = q.start_recv(wr);
            let answer = real(qp, wr, bad);
            rc = Some(answer);
            if answer == 0 {
                posting.accepted();
            } else {
                aside(move || posting.accepted_without(q.refused_recvs(wr, *bad)));
            }
        })
    }
}

/// Hook of `ibv_post_srq_recv`.
pub unsafe extern "C" fn post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: as in `post_send`.
    unsafe {
        let Some(s) = OBJECTS.srqs.get(srq as usize) else {
            let real = uncounted((*srq).context).and_then(|real| real.post_srq_recv);
            return real.map_or(libc::ENODEV, |real| real(srq, wr, bad));
        };
        guarded!(rc = (s.real)(srq, wr, bad), {
            guard::fault_point("post_srq_recv");
            let posting = s.start(wr);
            let answer = (s.real)(srq, wr, bad);
            rc = Some(answer);
            if answer == 0 {
                posting.accepted();
            } else {
                aside(move || posting.refused_from(wr, *bad));
            }
        })
    }
}

/// Hook of `ibv_poll_cq`.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the application passes a valid CQ and room for `num_entries` completions, as ibv_poll_cq demands.
    unsafe {
        let Some(c) = OBJECTS.cqs.get(cq as usize) else {
            return uncounted((*cq).context).map_or(-libc::ENODEV, |real| (real.poll_cq)(cq, num_entries, wc));
        };
        guarded!(rc = (c.real)(cq, num_entries, wc), {
            let polling = c.start_poll();
            let n = (c.real)(cq, num_entries, wc);
            rc = Some(n);
            if n > 0 {
                guard::fault_point("poll_cq");
                polling.completed(core::slice::from_raw_parts(wc, n as usize));
            } else if n == 0 {
                polling.empty();
            }
        })
    }
}
