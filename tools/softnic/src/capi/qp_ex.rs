//! The extended interface of sends: a WR is put together call by call, between start and complete.

use super::qp::CQp;
use super::send::{Order, bind_2, check_state, datagram, flag, opcode, post_order};
use crate::nic::qp::kind;
use crate::nic::sender::Local;
use crate::shared::layout::Element;
use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};

/// What was put together so far. Its lock is held from start to complete or abort.
pub struct Builder {
    lock: RawMutex,
    state: UnsafeCell<State>,
}

// SAFETY: the lock guards the state.
unsafe impl Sync for Builder {}

#[derive(Default)]
struct State {
    wrs: Vec<Built>,
    elements: Vec<Element>,
    inline: Vec<u8>,
    /// The first mistake; nothing is posted then.
    error: c_int,
}

struct Built {
    order: Order,
    /// Where its elements, or its inline data, begin.
    from: usize,
    n: usize,
    inline: bool,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder { lock: RawMutex::INIT, state: UnsafeCell::default() }
    }
}

const RDMA: u64 = 1 | 1 << 1;
const SENDS: u64 = 1 << 2 | 1 << 3;
const ONE_SIDED: u64 = 1 << 4 | 1 << 5 | 1 << 6;
const MEMORY: u64 = 1 << 7 | 1 << 8 | 1 << 9;

impl Builder {
    /// Whether a QP of this type can have these operations.
    pub fn can(kind: u32, ops: u64) -> bool {
        let all = match kind {
            kind::RC | kind::XRC_SEND => RDMA | SENDS | ONE_SIDED | MEMORY,
            kind::UC => RDMA | SENDS | MEMORY,
            kind::UD => SENDS,
            _ => 0,
        };
        ops & !all == 0
    }
}

/// Sets the pointers for the operations that were asked for.
pub fn set_pointers(ex: &mut ibv_qp_ex, ops: u64) {
    let has = |bit: u32| ops & 1 << bit != 0;
    ex.wr_rdma_write = has(opcode::WRITE).then_some(wr_rdma_write);
    ex.wr_rdma_write_imm = has(opcode::WRITE_IMM).then_some(wr_rdma_write_imm);
    ex.wr_send = has(opcode::SEND).then_some(wr_send);
    ex.wr_send_imm = has(opcode::SEND_IMM).then_some(wr_send_imm);
    ex.wr_rdma_read = has(opcode::READ).then_some(wr_rdma_read);
    ex.wr_atomic_cmp_swp = has(opcode::COMPARE_SWAP).then_some(wr_atomic_cmp_swp);
    ex.wr_atomic_fetch_add = has(opcode::FETCH_ADD).then_some(wr_atomic_fetch_add);
    ex.wr_local_inv = has(opcode::LOCAL_INV).then_some(wr_local_inv);
    ex.wr_bind_mw = has(opcode::BIND_MW).then_some(wr_bind_mw);
    ex.wr_send_inv = has(opcode::SEND_INV).then_some(wr_send_inv);
    ex.wr_set_ud_addr = Some(wr_set_ud_addr);
    ex.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    ex.wr_set_inline_data = Some(wr_set_inline_data);
    ex.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    ex.wr_set_sge = Some(wr_set_sge);
    ex.wr_set_sge_list = Some(wr_set_sge_list);
    ex.wr_start = Some(wr_start);
    ex.wr_complete = Some(wr_complete);
    ex.wr_abort = Some(wr_abort);
}

/// Sets the pointer that NICs set anew with some states: layers above must not rely on theirs to stay.
pub unsafe fn rearm(ex: *mut ibv_qp_ex) {
    // SAFETY: the caller's.
    unsafe { (*ex).wr_complete = Some(wr_complete) }
}

unsafe fn of<'a>(ex: *mut ibv_qp_ex) -> (&'a CQp, &'a mut State) {
    // SAFETY: the caller's: a QP with this interface, between start and complete, so its lock is held.
    unsafe {
        let q: &CQp = &*ex.cast();
        let b = q.builder.as_ref().expect("only such QPs have these pointers");
        (q, &mut *b.state.get())
    }
}

unsafe extern "C" fn wr_start(ex: *mut ibv_qp_ex) {
    // SAFETY: the caller's.
    unsafe {
        let q: &CQp = &*ex.cast();
        if let Some(b) = &q.builder {
            b.lock.lock();
        }
        let (_, s) = of(ex);
        s.wrs.clear();
        s.elements.clear();
        s.inline.clear();
        s.error = 0;
    }
}

unsafe extern "C" fn wr_complete(ex: *mut ibv_qp_ex) -> c_int {
    super::errno(|| {
        // SAFETY: the caller's.
        let (q, s) = unsafe { of(ex) };
        let done = finish(q, s);
        // SAFETY: the lock is held since start.
        unsafe { q.builder.as_ref().expect("it has one").lock.unlock() };
        done
    })
}

fn finish(q: &CQp, s: &State) -> Result<(), c_int> {
    if s.error != 0 {
        return Err(s.error);
    }
    check_state(q)?;
    let mut sender = q.core.sender.lock();
    sender.catch_up(&q.core, q.host);
    if sender.used() + s.wrs.len() as u64 > u64::from(q.core.plan.wrs[0]) {
        return Err(libc::ENOMEM);
    }
    let mut result = Ok(());
    for w in &s.wrs {
        result = if w.inline {
            let data = &s.inline[w.from..][..w.n];
            post_order(q, &mut sender, &w.order, &[], Some(&[(data.as_ptr(), data.len())]))
        } else {
            post_order(q, &mut sender, &w.order, &s.elements[w.from..][..w.n], None)
        };
        if result.is_err() {
            break;
        }
    }
    sender.run(&q.core, q.host);
    result
}

unsafe extern "C" fn wr_abort(ex: *mut ibv_qp_ex) {
    // SAFETY: the caller's: the lock is held since start.
    unsafe { of(ex).0.builder.as_ref().expect("it has one").lock.unlock() }
}

unsafe fn begin(ex: *mut ibv_qp_ex, order: Order) {
    // SAFETY: the caller's.
    unsafe {
        let (_, s) = of(ex);
        let order = Order { id: (*ex).wr_id, flags: (*ex).wr_flags, ..order };
        s.wrs.push(Built { order, from: s.elements.len(), n: 0, inline: false });
    }
}

macro_rules! begins {
    ($($name:ident($($arg:ident: $type:ty),*) = $order:expr;)*) => { $(
        unsafe extern "C" fn $name(ex: *mut ibv_qp_ex $(, $arg: $type)*) {
            // SAFETY: the caller's.
            unsafe { begin(ex, $order) }
        }
    )* };
}

begins! {
    wr_rdma_write(rkey: u32, addr: u64) = Order { opcode: opcode::WRITE, rkey, addr, ..Order::default() };
    wr_rdma_write_imm(rkey: u32, addr: u64, extra: u32) =
        Order { opcode: opcode::WRITE_IMM, rkey, addr, extra, ..Order::default() };
    wr_send() = Order { opcode: opcode::SEND, ..Order::default() };
    wr_send_imm(extra: u32) = Order { opcode: opcode::SEND_IMM, extra, ..Order::default() };
    wr_send_inv(extra: u32) = Order { opcode: opcode::SEND_INV, extra, ..Order::default() };
    wr_rdma_read(rkey: u32, addr: u64) = Order { opcode: opcode::READ, rkey, addr, ..Order::default() };
    wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) =
        Order { opcode: opcode::COMPARE_SWAP, rkey, addr, operands: [compare, swap], ..Order::default() };
    wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) =
        Order { opcode: opcode::FETCH_ADD, rkey, addr, operands: [add, 0], ..Order::default() };
    wr_local_inv(key: u32) =
        Order { opcode: opcode::LOCAL_INV, local: Local::Invalidate(key), ..Order::default() };
}

unsafe extern "C" fn wr_bind_mw(ex: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) {
    // SAFETY: the caller's.
    unsafe {
        match bind_2(mw, rkey, &*info) {
            Ok(local) => begin(ex, Order { opcode: opcode::BIND_MW, local, ..Order::default() }),
            Err(e) => of(ex).1.error = e,
        }
    }
}

/// The newest WR.
unsafe fn newest<'a>(ex: *mut ibv_qp_ex) -> Option<(&'a CQp, &'a mut Vec<Element>, &'a mut Vec<u8>, &'a mut Built)> {
    // SAFETY: the caller's.
    let (q, s) = unsafe { of(ex) };
    let State { wrs, elements, inline, error } = s;
    let newest = wrs.last_mut();
    if newest.is_none() {
        *error = libc::EINVAL;
    }
    newest.map(|w| (q, elements, inline, w))
}

unsafe extern "C" fn wr_set_ud_addr(ex: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: the caller's.
    unsafe {
        if let Some((q, _, _, w)) = newest(ex) {
            w.order.to.datagram = datagram(q, ah, qpn, qkey);
        }
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(ex: *mut ibv_qp_ex, srqn: u32) {
    // SAFETY: the caller's.
    unsafe {
        if let Some((.., w)) = newest(ex) {
            w.order.to.srq = srqn;
        }
    }
}

unsafe extern "C" fn wr_set_sge(ex: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let one = ibv_sge { addr, length, lkey };
    // SAFETY: the caller's.
    unsafe { wr_set_sge_list(ex, 1, &raw const one) }
}

unsafe extern "C" fn wr_set_sge_list(ex: *mut ibv_qp_ex, n: usize, list: *const ibv_sge) {
    // SAFETY: the caller's.
    unsafe {
        let Some((_, elements, _, w)) = newest(ex) else { return };
        let list = super::send::elements(list, n.min(1 << 16) as c_int);
        (w.from, w.n, w.inline) = (elements.len(), list.len(), false);
        elements.extend_from_slice(list);
    }
}

unsafe extern "C" fn wr_set_inline_data(ex: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let one = ibv_data_buf { addr, length };
    // SAFETY: the caller's.
    unsafe { wr_set_inline_data_list(ex, 1, &raw const one) }
}

unsafe extern "C" fn wr_set_inline_data_list(ex: *mut ibv_qp_ex, n: usize, list: *const ibv_data_buf) {
    // SAFETY: the caller's.
    unsafe {
        let Some((q, _, inline, w)) = newest(ex) else { return };
        let list = if n == 0 { &[] } else { core::slice::from_raw_parts(list, n) };
        let bytes: usize = list.iter().map(|b| b.length).sum();
        if bytes > q.core.plan.inline as usize {
            of(ex).1.error = libc::EINVAL;
            return;
        }
        (w.from, w.n, w.inline) = (inline.len(), bytes, true);
        w.order.flags |= flag::INLINE;
        for b in list.iter().filter(|b| b.length > 0) {
            inline.extend_from_slice(core::slice::from_raw_parts(b.addr.cast(), b.length));
        }
    }
}
