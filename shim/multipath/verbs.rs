//! The real functions that lanes are made with, past all hooks.

use crate::library::Library;
use crate::linked;
use core::ffi::{CStr, c_int, c_uint, c_void};
use rdma_sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_gid_entry, ibv_mr, ibv_pd, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr,
};

/// Of one libibverbs.
#[derive(Clone, Copy)]
pub struct Verbs {
    pub create_qp: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
    pub modify_qp: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
    pub destroy_qp: unsafe extern "C" fn(*mut ibv_qp) -> c_int,
    pub create_cq:
        unsafe extern "C" fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq,
    pub destroy_cq: unsafe extern "C" fn(*mut ibv_cq) -> c_int,
    pub create_comp_channel: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_comp_channel,
    pub destroy_comp_channel: unsafe extern "C" fn(*mut ibv_comp_channel) -> c_int,
    pub get_cq_event: unsafe extern "C" fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int,
    pub ack_cq_events: unsafe extern "C" fn(*mut ibv_cq, c_uint),
    pub reg_mr: unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr,
    pub dereg_mr: unsafe extern "C" fn(*mut ibv_mr) -> c_int,
    pub query_gid: unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int,
    pub query_gid_table: unsafe extern "C" fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize,
}

impl Verbs {
    /// Those of this library; `None` if it lacks one: it is older than multi-path needs.
    pub fn of(library: &'static Library) -> Option<Verbs> {
        /// # Safety
        /// `F` is the type of the library's function of this name.
        unsafe fn get<F>(library: &'static Library, name: &CStr) -> Option<F> {
            const { assert!(size_of::<F>() == size_of::<usize>()) };
            let address = linked::unhooked(library, name)?;
            // SAFETY: the caller's promise.
            Some(unsafe { core::mem::transmute_copy(&address) })
        }
        // SAFETY: the types are the prototypes of verbs.h.
        unsafe {
            Some(Verbs {
                create_qp: get(library, c"ibv_create_qp")?,
                modify_qp: get(library, c"ibv_modify_qp")?,
                destroy_qp: get(library, c"ibv_destroy_qp")?,
                create_cq: get(library, c"ibv_create_cq")?,
                destroy_cq: get(library, c"ibv_destroy_cq")?,
                create_comp_channel: get(library, c"ibv_create_comp_channel")?,
                destroy_comp_channel: get(library, c"ibv_destroy_comp_channel")?,
                get_cq_event: get(library, c"ibv_get_cq_event")?,
                ack_cq_events: get(library, c"ibv_ack_cq_events")?,
                reg_mr: get(library, c"ibv_reg_mr")?,
                dereg_mr: get(library, c"ibv_dereg_mr")?,
                query_gid: get(library, c"ibv_query_gid")?,
                query_gid_table: get(library, c"_ibv_query_gid_table")?,
            })
        }
    }
}
