//! What tests of telemetry need that post nothing.

use super::peer::Peer;
use super::qp::QpSpec;
use crate::verbs::DataPath;
use core::ffi::c_int;
use rdma_sys::{ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_wc};

unsafe extern "C" fn no_send(_: *mut ibv_qp, _: *mut ibv_send_wr, _: *mut *mut ibv_send_wr) -> c_int {
    unreachable!("this test posts nothing")
}

unsafe extern "C" fn no_recv(_: *mut ibv_qp, _: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> c_int {
    unreachable!("as above")
}

unsafe extern "C" fn no_poll(_: *mut ibv_cq, _: c_int, _: *mut ibv_wc) -> c_int {
    unreachable!("as above")
}

/// A plain QP.
pub fn qp_spec(qp_num: u32, qp_type: u32) -> QpSpec {
    QpSpec {
        real: DataPath { post_send: no_send, post_recv: no_recv, post_srq_recv: None, poll_cq: no_poll },
        qp_num,
        qp_type,
        sig_all: false,
        max_send_wr: 4,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        extended: false,
        opaque: false,
        send_cq: None,
        recv_cq: None,
        srq: None,
    }
}

/// A peer of datagrams.
pub fn peer(index: u32) -> &'static Peer {
    // SAFETY: all-zero is a valid record.
    let record = Box::leak(Box::new(unsafe { core::mem::zeroed() }));
    Box::leak(Box::new(Peer {
        index,
        port: 0,
        device: Box::leak(Box::default()),
        record,
        locks: Box::leak(Box::default()),
    }))
}
