//! libtelereduce.so: the LD_PRELOAD library, the only code that lives inside the application.
//!
//! This is the one list of what it exports. Each hook does its own work guarded ([`guard`]) and always ends in the real
//! call. Control calls come by symbol interposition, or by hooks that programs get which look libibverbs's functions up
//! ([`lookup`]); both end in [`control_path`]. Posts and polls are inline functions that jump through the context's table,
//! so the table is patched when the context is opened ([`context`], [`data_path`]); those of the extended interface jump
//! through the QP and the CQ ([`extended_send`], [`extended_poll`]). Which libibverbs is behind a hook,
//! [`library`] and [`linked`] know. With more than one path, [`multipath`] has hooks of its own in front of these. Nothing at all happens before a program opens an RDMA device.

mod address_handle;
mod alone;
mod arena;
mod context;
mod control_path;
mod data_path;
mod elf;
mod exit;
mod extended_poll;
mod extended_send;
mod flight;
mod guard;
mod hooks;
mod library;
mod linked;
mod log;
mod lookup;
mod memory_window;
mod multipath;
mod nested;
mod next;
mod objects;
mod own_stack;
mod own_thread;
mod profiler;
mod send_ops;
mod state;
mod sudden;
mod transfers;
mod unseen;
mod usr2;
mod vendor;

use core::ffi::{CStr, c_int, c_void};
use hooks::export;
use rdma_sys::{
    ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex,
    ibv_device, ibv_grh, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq,
    ibv_srq_init_attr, ibv_wc,
};

// Besides these, [`lookup`] exports `dlsym` and `dlvsym`, [`sudden`] `_exit` and `_Exit`, and [`profiler`] `ncclProfiler_v5` and
// `ncclProfiler_v4`.
export! {
    ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    verbs_open_device(device: *mut ibv_device, private_data: *mut c_void) -> *mut ibv_context;
    ibv_import_device(cmd_fd: c_int) -> *mut ibv_context;
    ibv_close_device(context: *mut ibv_context) -> c_int;
    ibv_create_cq(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, comp_vector: c_int) -> *mut ibv_cq;
    ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int;
    ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int;
    ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int, init_attr: *mut ibv_qp_init_attr) -> c_int;
    ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port_num: u8) -> *mut ibv_ah;
    ibv_destroy_ah(handle: *mut ibv_ah) -> c_int;
    ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    mlx5dv_init_obj(obj: *mut c_void, obj_type: u64) -> c_int;
    mlx5dv_create_qp(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex, own: *mut c_void) -> *mut ibv_qp;
    mlx5dv_devx_obj_create(context: *mut ibv_context, command: *const c_void, bytes: usize, answer: *mut c_void, answer_bytes: usize) -> *mut c_void;
    efadv_create_qp_ex(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex, own: *mut c_void, own_bytes: u32) -> *mut ibv_qp;
    efadv_create_driver_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr, driver_qp_type: u32) -> *mut ibv_qp;
    efadv_create_cq(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex, own: *mut c_void, own_bytes: u32) -> *mut ibv_cq_ex;
}
