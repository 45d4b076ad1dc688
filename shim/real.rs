//! The functions behind the hooks: libibverbs's own, found when they are first needed.
//!
//! In a program that is linked with libibverbs it comes after us in the search order. Where it was loaded later and
//! locally, its handle is asked for instead. The library is never loaded by us.

use core::ffi::{CStr, c_char, c_int, c_void};
use once_cell::race::OnceNonZeroUsize;
use rdma_sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq,
    ibv_srq_init_attr,
};

/// Address of a real function, or `None` if no libibverbs has it.
fn find(cell: &OnceNonZeroUsize, name: &CStr) -> Option<usize> {
    cell.get_or_try_init(|| {
        let found = look_up(name) as usize;
        core::num::NonZeroUsize::new(found).ok_or(())
    })
    .ok()
    .map(core::num::NonZeroUsize::get)
}

fn look_up(name: &CStr) -> *mut c_void {
    // SAFETY: valid C strings; a handle obtained with RTLD_NOLOAD stays valid, as it is never closed.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        if !next.is_null() {
            return next;
        }
        let library = c"libibverbs.so.1".as_ptr().cast::<c_char>();
        let handle = libc::dlopen(library, libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if handle.is_null() { core::ptr::null_mut() } else { libc::dlsym(handle, name.as_ptr()) }
    }
}

macro_rules! real {
    ($($name:ident: fn($($arg:ty),*) -> $ret:ty;)*) => { $(
        /// The real function of this name.
        pub fn $name() -> Option<unsafe extern "C" fn($($arg),*) -> $ret> {
            static CELL: OnceNonZeroUsize = OnceNonZeroUsize::new();
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(s) => s,
                Err(_) => panic!("a name without NUL"),
            };
            // SAFETY: the address is that of libibverbs's function of this name, whose prototype the type repeats.
            find(&CELL, NAME).map(|address| unsafe { core::mem::transmute(address) })
        }
    )* };
}

real! {
    ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context;
    verbs_open_device: fn(*mut ibv_device, *mut c_void) -> *mut ibv_context;
    ibv_import_device: fn(c_int) -> *mut ibv_context;
    ibv_close_device: fn(*mut ibv_context) -> c_int;
    ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
    ibv_create_srq: fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_destroy_srq: fn(*mut ibv_srq) -> c_int;
    ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_destroy_qp: fn(*mut ibv_qp) -> c_int;
}
