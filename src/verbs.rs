//! Safe views of what verbs programs pass: names of enumerations, and the few facts about a work request that are
//! counted. The C structs themselves are rdma-sys's; only types are used, so nothing here needs libibverbs.

use crate::aside::aside;
use core::ffi::c_int;
use rdma_sys::{ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq, ibv_wc, ibv_wr_opcode};

/// `ibv_context_ops.post_send`.
pub type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
/// `ibv_context_ops.post_recv`.
pub type PostRecv = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
/// `ibv_context_ops.post_srq_recv`.
pub type PostSrqRecv = unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
/// `ibv_context_ops.poll_cq`.
pub type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;

/// The provider's data path, behind the hooks.
#[derive(Clone, Copy)]
pub struct DataPath {
    /// Real post_send.
    pub post_send: PostSend,
    /// Real post_recv.
    pub post_recv: PostRecv,
    /// Real post_srq_recv, if the provider has SRQs.
    pub post_srq_recv: Option<PostSrqRecv>,
    /// Real poll_cq.
    pub poll_cq: PollCq,
}

const OPCODE_NAMES: [&str; 16] = [
    "RDMA_WRITE",
    "RDMA_WRITE_WITH_IMM",
    "SEND",
    "SEND_WITH_IMM",
    "RDMA_READ",
    "ATOMIC_CMP_AND_SWP",
    "ATOMIC_FETCH_AND_ADD",
    "LOCAL_INV",
    "BIND_MW",
    "SEND_WITH_INV",
    "TSO",
    "DRIVER1",
    "12",
    "13",
    "FLUSH",
    "ATOMIC_WRITE",
];

const STATUS_NAMES: [&str; 24] = [
    "SUCCESS",
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "MW_BIND_ERR",
    "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
    "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR",
    "LOC_RDD_VIOL_ERR",
    "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR",
    "INV_EECN_ERR",
    "INV_EEC_STATE_ERR",
    "FATAL_ERR",
    "RESP_TIMEOUT_ERR",
    "GENERAL_ERR",
    "TM_ERR",
    "TM_RNDV_INCOMPLETE",
];

fn name(names: &[&str], n: u32) -> String {
    names.get(n as usize).map_or_else(|| n.to_string(), |s| (*s).to_string())
}

/// `enum ibv_wr_opcode` without its prefix, or the number.
pub fn opcode_name(n: u32) -> String {
    name(&OPCODE_NAMES, n)
}

/// `enum ibv_wc_status` without its prefix, or the number.
pub fn status_name(n: u32) -> String {
    name(&STATUS_NAMES, n)
}

/// `enum ibv_qp_state` without its prefix, or the number.
pub fn qp_state_name(n: u32) -> String {
    name(&["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "UNKNOWN"], n)
}

/// `enum ibv_qp_type` without its prefix, or the number.
pub fn qp_type_name(n: u32) -> String {
    match n {
        2 => "RC".into(),
        3 => "UC".into(),
        4 => "UD".into(),
        8 => "RAW_PACKET".into(),
        9 => "XRC_SEND".into(),
        10 => "XRC_RECV".into(),
        0xff => "DRIVER".into(),
        n => n.to_string(),
    }
}

/// What is counted of a send work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFacts {
    /// Application's id.
    pub wr_id: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// `enum ibv_wr_opcode`.
    pub opcode: u32,
    /// Highest bit: it asks for a completion of its own. Nothing else.
    pub signaled: u64,
}

/// Sum of the lengths of a scatter/gather list; 0 if `num_sge` is not in `0..=max_sge`, since the provider will refuse
/// such a WR and the list may be anything.
///
/// # Safety
/// If `num_sge` is in range and `list` is not null, `list` points to `num_sge` elements.
#[inline(always)]
pub unsafe fn sge_bytes(list: *const ibv_sge, num_sge: i32, max_sge: u32) -> u64 {
    if num_sge == 1 && !list.is_null() {
        // SAFETY: the caller's promise.
        return u64::from(unsafe { (*list).length });
    }
    // SAFETY: the caller's promise.
    aside(move || unsafe { long_sge_bytes(list, num_sge, max_sge) })
}

unsafe fn long_sge_bytes(list: *const ibv_sge, num_sge: i32, max_sge: u32) -> u64 {
    if num_sge <= 0 || num_sge as u32 > max_sge || list.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let list = unsafe { core::slice::from_raw_parts(list, num_sge as usize) };
    list.iter().map(|s| u64::from(s.length)).sum()
}

/// `IBV_SEND_SIGNALED`.
const SEND_SIGNALED: u32 = 2;

/// As [`send_facts`], for a WR that ends its chain, has one scatter/gather element and an everyday opcode, below
/// `IBV_WR_LOCAL_INV`, as nearly all have: straight code. `None` for any other.
///
/// # Safety
/// As [`send_facts`].
#[inline(always)]
pub unsafe fn single_send_facts(wr: &ibv_send_wr) -> Option<SendFacts> {
    if !wr.next.is_null() || wr.num_sge != 1 || wr.sg_list.is_null() || wr.opcode >= ibv_wr_opcode::IBV_WR_LOCAL_INV {
        return None;
    }
    // SAFETY: the caller's promise.
    let bytes = u64::from(unsafe { (*wr.sg_list).length });
    Some(SendFacts { wr_id: wr.wr_id, bytes, opcode: wr.opcode, signaled: signaled(wr) })
}

#[inline(always)]
fn signaled(wr: &ibv_send_wr) -> u64 {
    asks_for_completion(wr.send_flags)
}

/// [`SendFacts::signaled`] of a WR with these flags.
#[inline(always)]
pub fn asks_for_completion(send_flags: u32) -> u64 {
    u64::from(send_flags & SEND_SIGNALED) << 62
}

/// Reads what is counted of one send WR.
///
/// # Safety
/// `wr` is what an application passes to `ibv_post_send`, on a QP with at most `max_sge` elements per WR.
#[inline(always)]
pub unsafe fn send_facts(wr: &ibv_send_wr, max_sge: u32) -> SendFacts {
    let bytes = match wr.opcode {
        // These use no scatter/gather list, and applications leave the fields unset.
        ibv_wr_opcode::IBV_WR_LOCAL_INV | ibv_wr_opcode::IBV_WR_BIND_MW => 0,
        // A TSO's header is not in the list.
        // SAFETY: the caller's promise; the opcode says which member of the union was set.
        ibv_wr_opcode::IBV_WR_TSO => unsafe {
            u64::from(wr.bind_mw_tso_union.tso.hdr_sz) + sge_bytes(wr.sg_list, wr.num_sge, max_sge)
        },
        // SAFETY: the caller's promise.
        _ => unsafe { sge_bytes(wr.sg_list, wr.num_sge, max_sge) },
    };
    SendFacts { wr_id: wr.wr_id, bytes, opcode: wr.opcode, signaled: signaled(wr) }
}

/// Buffer bytes of one receive WR.
///
/// # Safety
/// `wr` is what an application passes to `ibv_post_recv`, on a queue with at most `max_sge` elements per WR.
#[inline(always)]
pub unsafe fn recv_bytes(wr: &ibv_recv_wr, max_sge: u32) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { sge_bytes(wr.sg_list, wr.num_sge, max_sge) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_header() {
        assert_eq!(opcode_name(rdma_sys::ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD), "ATOMIC_FETCH_AND_ADD");
        assert_eq!(status_name(rdma_sys::ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR), "RNR_RETRY_EXC_ERR");
        assert_eq!(status_name(rdma_sys::ibv_wc_status::IBV_WC_TM_RNDV_INCOMPLETE), "TM_RNDV_INCOMPLETE");
        assert_eq!(qp_state_name(rdma_sys::ibv_qp_state::IBV_QPS_ERR), "ERR");
        assert_eq!(qp_type_name(rdma_sys::ibv_qp_type::IBV_QPT_UD), "UD");
        assert_eq!(status_name(99), "99");
    }

    #[test]
    fn lengths_add_up_and_nonsense_counts_nothing() {
        let mut list = [rdma_sys::ibv_sge { addr: 0, length: 5, lkey: 0 }; 3];
        // SAFETY: an all-zero WR is a valid value.
        let mut wr: ibv_send_wr = unsafe { core::mem::zeroed() };
        wr.sg_list = list.as_mut_ptr();
        for (num_sge, want) in [(3, 15), (1, 5), (0, 0), (-1, 0), (4, 0)] {
            wr.num_sge = num_sge;
            // SAFETY: the list has three elements, the limit.
            assert_eq!(unsafe { send_facts(&wr, 3) }.bytes, want, "{num_sge}");
        }
        wr.num_sge = 3;
        wr.opcode = ibv_wr_opcode::IBV_WR_LOCAL_INV;
        // SAFETY: as above.
        assert_eq!(unsafe { send_facts(&wr, 3) }.bytes, 0);
    }
}
