//! XRC: a message names its SRQ itself, so its completion comes to the SRQ's CQ, and names a QP which that CQ does not
//! serve, or which another process has created.
//!
//! The receive counts at the SRQ; and at the QP, if it is ours. Several CQs may bring completions of one such QP, so its
//! receive queue's own lock serialises them.

use super::cq::{self, Cq};
use super::qp::Qp;
use super::srq::Srq;
use crate::sync::SpinLock;
use rdma_sys::{ibv_qp_type, ibv_wc, ibv_wc_status};

/// The XRC SRQs whose completions come to a CQ.
#[derive(Default)]
pub struct Srqs(SpinLock<Vec<&'static Srq>>);

impl Srqs {
    /// The receive that a completion used: its buffer bytes.
    fn take(&self, wc: &ibv_wc) -> Option<u64> {
        let failed = wc.status != ibv_wc_status::IBV_WC_SUCCESS;
        let arrived = if failed { 0 } else { u64::from(wc.byte_len) };
        // Each SRQ numbers its receives as it likes: with several that use the same ids, the oldest SRQ's goes.
        self.0.lock().iter().find_map(|srq| srq.take(wc.wr_id, arrived, failed))
    }

    fn remove(&self, which: impl Fn(&'static Srq) -> bool) {
        self.0.lock().retain(|srq| {
            let remove = which(srq);
            if remove {
                srq.users.one_less();
            }
            !remove
        });
    }
}

impl Cq {
    /// Completions of this XRC SRQ come here.
    pub fn add_xrc_srq(&self, srq: &'static Srq) {
        srq.users.one_more();
        self.xrc_srqs.0.lock().push(srq);
    }

    /// Whether there are any.
    pub(super) fn has_xrc_srqs(&self) -> bool {
        !self.xrc_srqs.0.lock().is_empty()
    }

    /// The SRQ is gone.
    pub(super) fn remove_xrc_srq(&self, srq: &'static Srq) {
        self.xrc_srqs.remove(|s| core::ptr::eq(s, srq));
    }

    /// The CQ is gone.
    pub(super) fn forget_xrc_srqs(&self) {
        self.xrc_srqs.remove(|_| true);
    }

    /// Counts a completion of a QP that this CQ does not serve. False: it is nobody's.
    pub(super) fn received_by_xrc(&self, wc: &ibv_wc) -> bool {
        let good = wc.status == ibv_wc_status::IBV_WC_SUCCESS;
        if good && wc.opcode & cq::RECV == 0 {
            return false;
        }
        let Some(capacity) = self.xrc_srqs.take(wc) else { return false };
        if let Some(qp) = self.qps.get(wc.qp_num).filter(|q| q.spec.qp_type == ibv_qp_type::IBV_QPT_XRC_RECV) {
            let _one = qp.recvs.tail.lock();
            // Still there: who retires it hides it first, and then waits for this lock.
            if self.qps.get(wc.qp_num).is_some_and(|q: &'static Qp| core::ptr::eq(q, qp)) {
                cq::take_from_srq(qp, capacity);
                cq::srq_receive_ended(qp, wc, capacity, self.hot);
            }
        }
        true
    }
}
