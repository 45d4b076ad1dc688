//! The pointers of an extended QP: which there are, what each says of a WR, and replacing them.

use crate::extended_send::{self, find};
use crate::multipath::extended_send as paths;
use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use rdma_sys::{ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_qp_type, ibv_sge, ibv_wr_opcode};
use telereduce::verbs::sge_bytes;

/// Declares the pointers. `begin`: they begin a WR of an opcode, with so many bytes that are in no list. `later`: likewise,
/// of newer libraries only, at the end of the struct, and there if this bit of `send_ops_flags` was granted. `set`: they
/// say how many bytes the newest WR has. `address`: they say where it goes, of UD QPs alone. `around`: [`extended_send`] has their hooks.
macro_rules! operations {
    (
        begin { $($begin:ident($($b_arg:ident: $b_type:ty),*) = $opcode:expr, $besides:expr;)* }
        later { $($later:ident at $offset:expr, if $bit:expr, ($($l_arg:ident: $l_type:ty),*) = $l_opcode:expr, $l_besides:expr;)* }
        set { $($set:ident($($s_arg:ident: $s_type:ty),*) = $bytes:expr;)* }
        address { $($address:ident($handle:ident: $h_type:ty $(, $a_arg:ident: $a_type:ty)*);)* }
        around { $($around:ident -> $ret:ty;)* }
    ) => {
        /// The provider's functions, 0 where there is none.
        #[derive(Default)]
        pub struct Real {
            $($begin: AtomicUsize,)* $($later: AtomicUsize,)* $($set: AtomicUsize,)*
            $($address: AtomicUsize,)* $($around: AtomicUsize,)*
        }

        impl Real { $(
            #[doc = concat!("The provider's `", stringify!($around), "`.")]
            #[inline(always)]
            pub fn $around(&self) -> Option<unsafe extern "C" fn(*mut ibv_qp_ex) -> $ret> {
                let address = self.$around.load(Acquire);
                // SAFETY: the provider's pointer of this name, whose type this is.
                (address != 0).then(|| unsafe { core::mem::transmute(address) })
            }
        )* $(
            /// Calls the provider's function of this name, if it has one.
            ///
            /// # Safety
            /// As libibverbs's function of this name demands.
            #[inline(always)]
            pub unsafe fn $begin(&self, qp: *mut ibv_qp_ex $(, $b_arg: $b_type)*) {
                // SAFETY: the caller's promise.
                unsafe { call!(self.$begin, qp $(, $b_arg: $b_type)*) }
            }
        )* $(
            /// As above.
            ///
            /// # Safety
            /// As above.
            #[inline(always)]
            pub unsafe fn $set(&self, qp: *mut ibv_qp_ex $(, $s_arg: $s_type)*) {
                // SAFETY: the caller's promise.
                unsafe { call!(self.$set, qp $(, $s_arg: $s_type)*) }
            }
        )* }

        $(hook!($begin($($b_arg: $b_type),*), |h, qp| h.begin(qp, $opcode, $besides));)*
        $(hook!($later($($l_arg: $l_type),*), |h, qp| h.begin(qp, $l_opcode, $l_besides));)*
        $(hook!($set($($s_arg: $s_type),*), |h, _qp| h.set_bytes($bytes));)*

        $(hook!($address($handle: $h_type $(, $a_arg: $a_type)*), |h, _qp| h.set_handle($handle));)*

        /// Calls `f` with each pointer of the QP, its cell and our functions: of any QP, and of one that may be split.
        ///
        /// # Safety
        /// `qp` is an extended QP with the operations that were `granted`.
        unsafe fn each(qp: *mut ibv_qp_ex, real: &Real, granted: u64, f: impl Fn(&AtomicUsize, &AtomicUsize, [usize; 2])) {
            // SAFETY: the caller's promise.
            unsafe {
                $(f(slot(qp, offset_of!(ibv_qp_ex, $begin)), &real.$begin, [$begin as *const () as usize, paths::$begin as *const () as usize]);)*
                $(if granted & $bit != 0 {
                    f(slot(qp, $offset), &real.$later, [$later as *const () as usize; 2]);
                })*
                $(f(slot(qp, offset_of!(ibv_qp_ex, $set)), &real.$set, [$set as *const () as usize, paths::$set as *const () as usize]);)*
                $(if (*qp).qp_base.qp_type == ibv_qp_type::IBV_QPT_UD {
                    f(slot(qp, offset_of!(ibv_qp_ex, $address)), &real.$address, [$address as *const () as usize; 2]);
                })*
                $(f(slot(qp, offset_of!(ibv_qp_ex, $around)), &real.$around, [
                    extended_send::$around as *const () as usize,
                    paths::$around as *const () as usize,
                ]);)*
            }
        }
    };
}

/// Calls a provider's pointer, if it is there.
macro_rules! call {
    ($real:expr, $qp:expr $(, $arg:ident: $type:ty)*) => {{
        let real = $real.load(Acquire);
        if real != 0 {
            let real: unsafe extern "C" fn(*mut ibv_qp_ex $(, $type)*) = core::mem::transmute(real);
            real($qp $(, $arg)*);
        }
    }};
}

/// The hook of one pointer: says what it is to do with the WR, and goes on to the provider's.
macro_rules! hook {
    ($name:ident($($arg:ident: $type:ty),*), |$h:ident, $qp:ident| $note:expr) => {
        pub unsafe extern "C" fn $name($qp: *mut ibv_qp_ex $(, $arg: $type)*) {
            let Some($h) = find($qp) else { return };
            $note;
            // SAFETY: the provider's pointer of this name, whose type this is, with the program's arguments.
            unsafe { call!($h.real.$name, $qp $(, $arg: $type)*) }
        }
    };
}

const AFTER_ABORT: usize = offset_of!(ibv_qp_ex, wr_abort) + size_of::<usize>();

operations! {
    begin {
        wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) = ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP, 0;
        wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, 0;
        wr_bind_mw(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) = ibv_wr_opcode::IBV_WR_BIND_MW, 0;
        wr_local_inv(rkey: u32) = ibv_wr_opcode::IBV_WR_LOCAL_INV, 0;
        wr_rdma_read(rkey: u32, addr: u64) = ibv_wr_opcode::IBV_WR_RDMA_READ, 0;
        wr_rdma_write(rkey: u32, addr: u64) = ibv_wr_opcode::IBV_WR_RDMA_WRITE, 0;
        wr_rdma_write_imm(rkey: u32, addr: u64, imm: u32) = ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, 0;
        wr_send() = ibv_wr_opcode::IBV_WR_SEND, 0;
        wr_send_imm(imm: u32) = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, 0;
        wr_send_inv(rkey: u32) = ibv_wr_opcode::IBV_WR_SEND_WITH_INV, 0;
        wr_send_tso(header: *mut c_void, bytes: u16, mss: u16) = ibv_wr_opcode::IBV_WR_TSO, u64::from(bytes);
    }
    later {
        wr_atomic_write at AFTER_ABORT, if 1 << 12, (rkey: u32, addr: u64, value: *const c_void) = 15, 8;
        wr_flush at AFTER_ABORT + size_of::<usize>(), if 1 << 11,
            (rkey: u32, addr: u64, bytes: usize, kind: u8, level: u8) = 14, 0;
    }
    set {
        wr_set_sge(lkey: u32, addr: u64, bytes: u32) = u64::from(bytes);
        wr_set_sge_list(n: usize, list: *const ibv_sge) = list_bytes(n, list);
        wr_set_inline_data(data: *mut c_void, bytes: usize) = bytes as u64;
        wr_set_inline_data_list(n: usize, list: *const ibv_data_buf) = inline_bytes(n, list);
    }
    address {
        wr_set_ud_addr(handle: *mut ibv_ah, qp_num: u32, qkey: u32);
    }
    around {
        wr_start -> ();
        wr_complete -> c_int;
        wr_abort -> ();
    }
}

/// A longer list is not looked at: the provider will refuse it.
const LONGEST: u32 = 1 << 16;

/// Bytes of a list.
pub fn list_bytes(n: usize, list: *const ibv_sge) -> u64 {
    // SAFETY: the program passes so many elements.
    unsafe { sge_bytes(list, i32::try_from(n).unwrap_or(0), LONGEST) }
}

/// Bytes of data in pieces.
pub fn inline_bytes(n: usize, list: *const ibv_data_buf) -> u64 {
    if list.is_null() || n > LONGEST as usize {
        return 0;
    }
    // SAFETY: the program passes so many elements.
    unsafe { core::slice::from_raw_parts(list, n) }.iter().map(|b| b.length as u64).sum()
}

/// # Safety
/// `qp` is an extended QP that has a pointer there.
unsafe fn slot<'a>(qp: *mut ibv_qp_ex, offset: usize) -> &'a AtomicUsize {
    // SAFETY: the caller's promise: aligned, and as large as a pointer.
    unsafe { AtomicUsize::from_ptr(qp.byte_add(offset).cast()) }
}

/// Puts our functions where there are the provider's. `split`: the QP may be.
///
/// # Safety
/// `qp` is an extended QP with the operations that were `granted`.
pub unsafe fn replace(qp: *mut ibv_qp_ex, real: &Real, granted: u64, split: bool) {
    let one = |slot: &AtomicUsize, real: &AtomicUsize, ours: [usize; 2]| {
        let there = slot.load(Relaxed);
        if there == 0 {
            return;
        }
        if !ours.contains(&there) {
            // Known before it is needed.
            real.store(there, Release);
        }
        slot.store(ours[usize::from(split)], Release);
    };
    // SAFETY: the caller's promise.
    unsafe { each(qp, real, granted, one) };
}

/// Puts the provider's functions back.
///
/// # Safety
/// As [`replace`].
pub unsafe fn put_back(qp: *mut ibv_qp_ex, real: &Real, granted: u64) {
    let one = |slot: &AtomicUsize, real: &AtomicUsize, ours: [usize; 2]| {
        if ours.contains(&slot.load(Relaxed)) {
            slot.store(real.load(Relaxed), Release);
        }
    };
    // SAFETY: the caller's promise.
    unsafe { each(qp, real, granted, one) };
}
