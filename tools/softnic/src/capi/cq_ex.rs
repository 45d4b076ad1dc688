//! The extended interface of CQs: one completion at a time, looked at by readers.

use super::cq::{Cq, create, in_vain};
use super::device::Context;
use super::object;
use crate::nic::cq as queue;
use core::sync::atomic::Ordering::Relaxed;
use parking_lot::lock_api::RawMutex as _;
use rdma_sys::*;
use std::ffi::{c_int, c_uint};

const BYTE_LEN: u64 = 1;
const IMM: u64 = 1 << 1;
const QP_NUM: u64 = 1 << 2;
const SRC_QP: u64 = 1 << 3;
const SLID: u64 = 1 << 4;
const SL: u64 = 1 << 5;
const DLID_PATH_BITS: u64 = 1 << 6;
const COMPLETION_TIMESTAMP: u64 = 1 << 7;
const WALLCLOCK: u64 = 1 << 11;
const GRANTED: u64 = BYTE_LEN | IMM | QP_NUM | SRC_QP | SLID | SL | DLID_PATH_BITS | COMPLETION_TIMESTAMP | WALLCLOCK;

/// Makes an extended CQ. Readers that were not asked for stay null.
pub unsafe extern "C" fn create_cq_ex(ctx: *mut ibv_context, init: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
    object(|| {
        // SAFETY: the caller's.
        unsafe {
            let i = &*init;
            if i.wc_flags & !GRANTED != 0 || i.comp_mask & !3 != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            let cq = create(ctx, i.cqe, i.cq_context, i.channel, i.comp_vector)?;
            set_readers(&mut (*cq).ex, i.wc_flags);
            Ok(&raw mut (*cq).ex)
        }
    })
}

fn set_readers(ex: &mut ibv_cq_ex, want: u64) {
    ex.start_poll = Some(start_poll);
    ex.next_poll = Some(next_poll);
    ex.end_poll = Some(end_poll);
    ex.read_opcode = Some(read_opcode);
    ex.read_vendor_err = Some(read_vendor_err);
    ex.read_wc_flags = Some(read_wc_flags);
    ex.read_byte_len = (want & BYTE_LEN != 0).then_some(read_byte_len);
    ex.read_imm_data = (want & IMM != 0).then_some(read_imm_data);
    ex.read_qp_num = (want & QP_NUM != 0).then_some(read_qp_num);
    ex.read_src_qp = (want & SRC_QP != 0).then_some(read_src_qp);
    ex.read_slid = (want & SLID != 0).then_some(read_slid);
    ex.read_sl = (want & SL != 0).then_some(read_sl);
    ex.read_dlid_path_bits = (want & DLID_PATH_BITS != 0).then_some(read_dlid_path_bits);
    ex.read_completion_ts = (want & COMPLETION_TIMESTAMP != 0).then_some(read_completion_ts);
    ex.read_completion_wallclock_ns = (want & WALLCLOCK != 0).then_some(read_wallclock_ns);
}

unsafe fn take(ex: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller's: a CQ, of which it holds the lock.
    unsafe {
        let host = Context::of((*ex).context).host;
        let cq = ex.cast::<Cq>();
        let Some(c) = queue::poll(&host.me, (*cq).shared) else { return libc::ENOENT };
        ((*ex).wr_id, (*ex).status) = (c.id, c.status);
        (*cq).current = c;
        0
    }
}

unsafe extern "C" fn start_poll(ex: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if (*attr).comp_mask != 0 {
            return libc::EINVAL;
        }
        let cq = ex.cast::<Cq>();
        let host = Context::of((*ex).context).host;
        let done = super::errno(|| {
            host.engine.poll(host);
            host.attend_if_asked();
            Ok(())
        });
        if done != 0 || queue::is_empty((*cq).shared) {
            in_vain(&*cq, host);
            return libc::ENOENT;
        }
        (*cq).vain.store(0, Relaxed);
        (*cq).polling.lock();
        let e = take(ex);
        if e != 0 {
            (*cq).polling.unlock();
        }
        e
    }
}

unsafe extern "C" fn next_poll(ex: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller's: between start and end.
    unsafe { take(ex) }
}

unsafe extern "C" fn end_poll(ex: *mut ibv_cq_ex) {
    // SAFETY: the caller's: after a start that succeeded.
    unsafe { (*ex.cast::<Cq>()).polling.unlock() }
}

macro_rules! readers {
    ($($name:ident -> $type:ty, $c:ident => $value:expr;)*) => { $(
        unsafe extern "C" fn $name(ex: *mut ibv_cq_ex) -> $type {
            // SAFETY: the caller's: between start and end.
            let $c = unsafe { &(*ex.cast::<Cq>()).current };
            $value
        }
    )* };
}

readers! {
    read_opcode -> ibv_wc_opcode::Type, c => c.opcode;
    read_vendor_err -> u32, c => c.vendor_err;
    read_wc_flags -> c_uint, c => c.flags;
    read_byte_len -> u32, c => c.bytes;
    read_imm_data -> u32, c => c.extra;
    read_qp_num -> u32, c => c.qp;
    read_src_qp -> u32, c => c.source;
    read_slid -> u32, _c => 0;
    read_sl -> u8, _c => 0;
    read_dlid_path_bits -> u8, _c => 0;
    read_completion_ts -> u64, c => c.time;
    read_wallclock_ns -> u64, c => wallclock(c.time);
}

/// A time of the monotonic clock by the wall clock.
fn wallclock(time: u64) -> u64 {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (wall.as_nanos() as u64).saturating_sub(crate::nic::clock::now().saturating_sub(time))
}
