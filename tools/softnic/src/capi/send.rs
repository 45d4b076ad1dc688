//! Posting.

use super::ah::Ah;
use super::errno;
use super::memory::binding;
use super::qp::CQp;
use super::query::MAX_MESSAGE;
use crate::core::packet::{Extra, Op};
use crate::core::requester::Request;
use crate::net::gid::Gid;
use crate::nic::qp::{kind, state};
use crate::nic::sender::{Local, Post, To};
use crate::shared::layout::Element;
use rdma_sys::*;
use std::ffi::{c_int, c_uint};

/// `IBV_WR_*`.
pub mod opcode {
    #![allow(missing_docs, reason = "named as in the verbs")]
    pub const WRITE: u32 = 0;
    pub const WRITE_IMM: u32 = 1;
    pub const SEND: u32 = 2;
    pub const SEND_IMM: u32 = 3;
    pub const READ: u32 = 4;
    pub const COMPARE_SWAP: u32 = 5;
    pub const FETCH_ADD: u32 = 6;
    pub const LOCAL_INV: u32 = 7;
    pub const BIND_MW: u32 = 8;
    pub const SEND_INV: u32 = 9;
}

/// `IBV_SEND_*`.
pub mod flag {
    #![allow(missing_docs, reason = "named as in the verbs")]
    pub const FENCE: u32 = 1;
    pub const SIGNALED: u32 = 2;
    pub const SOLICITED: u32 = 4;
    pub const INLINE: u32 = 8;
}

/// A WR, whichever way it was posted.
#[derive(Clone, Copy, Default)]
pub struct Order {
    /// The program's.
    pub id: u64,
    /// `IBV_WR_*`.
    pub opcode: u32,
    /// `IBV_SEND_*`.
    pub flags: u32,
    /// Immediate, or key.
    pub extra: u32,
    /// Remote address.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Of atomics.
    pub operands: [u64; 2],
    /// To whom.
    pub to: To,
    /// What the NIC itself does.
    pub local: Local,
}

/// A list of elements, which the verbs lay out as shared memory does.
pub unsafe fn elements<'a>(list: *const ibv_sge, n: c_int) -> &'a [Element] {
    const { assert!(size_of::<ibv_sge>() == size_of::<Element>()) };
    if n <= 0 || list.is_null() {
        return &[];
    }
    // SAFETY: the caller's: so many, of the same layout.
    unsafe { core::slice::from_raw_parts(list.cast(), n as usize) }
}

/// What travels, and the completion's `IBV_WC_*`.
fn request(o: &Order, bytes: u64, kind: u32) -> Result<(Request, u32), c_int> {
    let one_sided = matches!(kind, kind::RC | kind::XRC_SEND);
    let written = one_sided || kind == kind::UC;
    let (op, wc, allowed) = match o.opcode {
        opcode::WRITE | opcode::WRITE_IMM => (Op::Write, 1, written),
        opcode::SEND | opcode::SEND_IMM => (Op::Send, 0, true),
        opcode::SEND_INV => (Op::Send, 0, written),
        opcode::READ => (Op::Read, 2, one_sided),
        opcode::COMPARE_SWAP => (Op::CompareSwap, 3, one_sided),
        opcode::FETCH_ADD => (Op::FetchAdd, 4, one_sided),
        opcode::BIND_MW => (Op::Local, 5, written),
        opcode::LOCAL_INV => (Op::Local, 6, written),
        _ => (Op::Local, 0, false),
    };
    let atomic = op.is_atomic();
    let longest = if kind == kind::UD { 4096 } else { u64::from(MAX_MESSAGE) };
    if !allowed || kind == kind::XRC_RECV || bytes > longest || (op.is_answered() && o.flags & flag::INLINE != 0) {
        return Err(libc::EINVAL);
    }
    let extra = match o.opcode {
        opcode::WRITE_IMM | opcode::SEND_IMM => Extra::Immediate(o.extra),
        opcode::SEND_INV => Extra::Invalidate(o.extra),
        _ => Extra::None,
    };
    let request = Request {
        op,
        bytes: if atomic { 8 } else { bytes as u32 },
        extra,
        solicited: o.flags & flag::SOLICITED != 0,
        fence: o.flags & flag::FENCE != 0,
        addr: o.addr,
        rkey: o.rkey,
        operands: o.operands,
    };
    Ok((request, wc))
}

/// Queues a WR, whose lock is held; `inline`: its data.
pub fn post_order(
    q: &CQp,
    sender: &mut crate::nic::sender::Sender,
    o: &Order,
    elements: &[Element],
    inline: Option<&[(*const u8, usize)]>,
) -> Result<(), c_int> {
    let bytes = match inline {
        Some(pieces) => pieces.iter().map(|p| p.1 as u64).sum(),
        None => elements.iter().map(|e| u64::from(e.bytes)).sum(),
    };
    let (request, opcode) = request(o, bytes, q.core.plan.kind)?;
    if q.core.plan.kind == kind::UD && o.to.datagram.is_none() {
        return Err(libc::EINVAL);
    }
    let signaled = o.flags & flag::SIGNALED != 0;
    sender.post(&Post { id: o.id, opcode, signaled, request, elements, inline, to: o.to, local: o.local })
}

/// Whether the QP takes sends now.
pub fn check_state(q: &CQp) -> Result<(), c_int> {
    if q.host.is_inherited() || matches!(q.core.state(), state::RESET | state::INIT | state::RTR) {
        return Err(libc::EINVAL);
    }
    Ok(())
}

/// To whom a datagram goes.
pub unsafe fn datagram(q: &CQp, ah: *mut ibv_ah, qp: u32, qkey: u32) -> Option<(Gid, Gid, u32, u32)> {
    // SAFETY: the caller's.
    let ah: &Ah = unsafe { ah.cast::<Ah>().as_ref()? };
    // With its highest bit set, the QP's own is meant.
    let qkey = if qkey & 1 << 31 != 0 { q.attr.lock().qkey } else { qkey };
    Some((ah.from, ah.to, qp, qkey))
}

unsafe fn order(q: &CQp, w: &ibv_send_wr) -> Result<Order, c_int> {
    let mut o = Order { id: w.wr_id, opcode: w.opcode, flags: w.send_flags, ..Order::default() };
    // SAFETY: each opcode has its own members of the unions.
    unsafe {
        o.extra = w.imm_data_invalidated_rkey_union.imm_data;
        match w.opcode {
            opcode::COMPARE_SWAP | opcode::FETCH_ADD => {
                let a = w.wr.atomic;
                (o.addr, o.rkey, o.operands) = (a.remote_addr, a.rkey, [a.compare_add, a.swap]);
            }
            opcode::BIND_MW => {
                let b = &w.bind_mw_tso_union.bind_mw;
                if b.mw.is_null() || (*b.mw).type_ != 2 || (*b.mw).pd != q.ex.qp_base.pd {
                    return Err(libc::EINVAL);
                }
                o.local = bind_2(b.mw, b.rkey, &b.bind_info)?;
            }
            opcode::LOCAL_INV => o.local = Local::Invalidate(o.extra),
            _ if q.core.plan.kind == kind::UD => {
                let u = w.wr.ud;
                o.to.datagram = datagram(q, u.ah, u.remote_qpn, u.remote_qkey);
            }
            _ => (o.addr, o.rkey) = (w.wr.rdma.remote_addr, w.wr.rdma.rkey),
        }
        if q.core.plan.kind == kind::XRC_SEND {
            o.to.srq = w.qp_type.xrc.remote_srqn;
        }
    }
    Ok(o)
}

/// Binds a window of type 2: the program chooses the key's low byte.
pub unsafe fn bind_2(mw: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) -> Result<Local, c_int> {
    // SAFETY: the caller's.
    unsafe {
        if ((*mw).rkey ^ rkey) & !0xff != 0 {
            return Err(libc::EINVAL);
        }
        let local = binding(mw, rkey, info)?;
        (*mw).rkey = rkey;
        Ok(local)
    }
}

/// Posts sends.
pub unsafe extern "C" fn post_send(qp: *mut ibv_qp, mut wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    errno(|| {
        // SAFETY: the caller's.
        let q = unsafe { CQp::of(qp) };
        let mut result = check_state(q);
        let mut sender = q.core.sender.lock();
        sender.catch_up(&q.core, q.host);
        // SAFETY: the caller's: a list of WRs.
        while let (Ok(()), Some(w)) = (result, unsafe { wr.as_ref() }) {
            // SAFETY: as above.
            let list = unsafe { elements(w.sg_list, w.num_sge) };
            // SAFETY: as above.
            result = unsafe { order(q, w) }.and_then(|o| {
                if o.flags & flag::INLINE == 0 {
                    return post_order(q, &mut sender, &o, list, None);
                }
                let mut pieces = [(core::ptr::null(), 0); 32];
                let n = list.len().min(32);
                for (p, e) in pieces.iter_mut().zip(list) {
                    *p = (e.addr as *const u8, e.bytes as usize);
                }
                post_order(q, &mut sender, &o, &[], Some(&pieces[..n]))
            });
            if result.is_ok() {
                wr = w.next;
            }
        }
        if result.is_err() {
            // SAFETY: the caller's.
            unsafe { *bad = wr };
        }
        sender.run(&q.core, q.host);
        result
    })
}

/// Posts one WR that is done by the NIC itself.
pub unsafe fn post_one(qp: *mut ibv_qp, id: u64, wc: u32, flags: c_uint, local: Local) -> Result<(), c_int> {
    // SAFETY: the caller's.
    let q = unsafe { CQp::of(qp) };
    check_state(q)?;
    let opcode = if wc == 5 { opcode::BIND_MW } else { opcode::LOCAL_INV };
    let o = Order { id, opcode, flags, local, ..Order::default() };
    let mut sender = q.core.sender.lock();
    post_order(q, &mut sender, &o, &[], None)?;
    sender.run(&q.core, q.host);
    Ok(())
}

/// Posts receives.
pub unsafe extern "C" fn post_recv(qp: *mut ibv_qp, mut wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    errno(|| {
        // SAFETY: the caller's.
        let q = unsafe { CQp::of(qp) };
        // SAFETY: the caller's: a list of WRs.
        while let Some(w) = unsafe { wr.as_ref() } {
            // SAFETY: as above.
            let list = unsafe { elements(w.sg_list, w.num_sge) };
            if let Err(e) = q.core.post_receive(q.host, w.wr_id, list) {
                // SAFETY: the caller's.
                unsafe { *bad = wr };
                return Err(e);
            }
            wr = w.next;
        }
        Ok(())
    })
}
