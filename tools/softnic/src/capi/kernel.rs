//! What only makes sense with a kernel behind it: exported, since provider libraries, librdmacm and tools are linked with
//! it and would not load otherwise.

use super::set_errno;
use core::ptr::null_mut;
use std::ffi::{c_char, c_int, c_uint, c_void};

macro_rules! without_kernel {
    ($($name:ident)*) => { $(
        /// Needs a kernel.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            set_errno(libc::EOPNOTSUPP);
            libc::EOPNOTSUPP
        }
    )* };
}

// Commands to the kernel, for provider libraries.
without_kernel! {
    execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast
    ibv_cmd_close_xrcd ibv_cmd_create_ah ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex
    ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2
    ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw
    ibv_cmd_dealloc_pd ibv_cmd_dereg_mr ibv_cmd_destroy_ah ibv_cmd_destroy_counters ibv_cmd_destroy_cq
    ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table
    ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm ibv_cmd_get_context ibv_cmd_modify_cq
    ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq ibv_cmd_modify_wq
    ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send ibv_cmd_post_srq_recv
    ibv_cmd_query_context ibv_cmd_query_device_any ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_qp
    ibv_cmd_query_srq ibv_cmd_read_counters ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr
    ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq
}

macro_rules! ignored {
    ($($name:ident)*) => { $(
        /// A provider library introduces itself, or sets up what is never made. Not listened to.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {}
    )* };
}

ignored! {
    ibv_register_driver verbs_register_driver_34 verbs_set_ops verbs_uninit_context verbs_init_cq __verbs_log
}

/// Needs a kernel.
#[unsafe(no_mangle)]
pub extern "C" fn _verbs_init_and_alloc_context() -> *mut c_void {
    set_errno(libc::EOPNOTSUPP);
    null_mut()
}

/// Attributes of a command that is never sent.
#[unsafe(no_mangle)]
pub extern "C" fn __ioctl_final_num_attrs(n: c_uint) -> c_uint {
    n
}

/// Whether objects may be destroyed after their device has gone: provider libraries read it.
#[unsafe(no_mangle)]
pub static verbs_allow_disassociate_destroy: bool = false;

/// Where sysfs is.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// These devices are not in sysfs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    _dir: *const c_char,
    _file: *const c_char,
    _buf: *mut c_char,
    _size: usize,
) -> c_int {
    set_errno(libc::ENOENT);
    -1
}

/// As above.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_read_ibdev_sysfs_file() -> c_int {
    set_errno(libc::ENOENT);
    -1
}

macro_rules! copies {
    ($($name:ident)*) => { $(
        /// Between the kernel's structures and the verbs': there are none of the kernel's.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(_to: *mut c_void, _from: *const c_void) {}
    )* };
}

copies! {
    ibv_copy_ah_attr_from_kern ibv_copy_qp_attr_from_kern ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern
}
