//! `ibv_bind_mw`: binding a memory window is a WR of the send queue, though it is not posted by `ibv_post_send`.

use crate::state::OBJECTS;
use crate::{context, data_path, extended_send, guard};
use core::ffi::c_int;
use rdma_sys::{ibv_mw, ibv_mw_bind, ibv_qp, ibv_wr_opcode};
use telereduce::telemetry::qp::Qp;
use telereduce::verbs::{SendFacts, asks_for_completion};

/// `ibv_context_ops.bind_mw`.
pub type BindMw = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int;

/// Hook of `ibv_bind_mw`.
pub unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the application passes a valid window, QP and description, as ibv_bind_mw demands.
    unsafe {
        let Some(real) = context::find((*mw).context).and_then(|c| c.ops.bind_mw) else { return libc::ENODEV };
        let real = || real(qp, mw, bind);
        let Some(q) = OBJECTS.qps.find(qp) else { return real() };
        let signaled = asks_for_completion((*bind).send_flags);
        let wr = SendFacts { wr_id: (*bind).wr_id, bytes: 0, opcode: ibv_wr_opcode::IBV_WR_BIND_MW, signaled };
        let on_time = || post(q, wr, real);
        let late = |answer: c_int| {
            post(q, wr, || answer);
        };
        match extended_send::find(qp).filter(|_| q.spec.extended) {
            Some(h) => data_path::through(&h.gate, on_time, real, late),
            None => on_time(),
        }
    }
}

/// Notes the WR around `real`, which posts it.
fn post(q: &'static Qp, wr: SendFacts, real: impl Fn() -> c_int) -> c_int {
    let mut tail = q.sends.tail.lock();
    data_path::guarded!(rc = real(), {
        // SAFETY: the tail is locked.
        let noted = unsafe { q.note_batch(&mut tail, &[wr]) };
        let answer = real();
        rc = Some(answer);
        if answer == 0 {
            q.batch_accepted(noted, &[wr]);
        }
    })
}
