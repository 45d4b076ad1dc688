//! Devices and contexts.

use super::{cq, cq_ex, memory, modify, object, qp, query, send, set_errno, srq, xrc};
use crate::nic::events::Queue;
use crate::nic::host::{self, Host};
use core::mem::offset_of;
use rdma_sys::*;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// A device: what the program sees of it, and its place in the settings.
#[repr(C)]
pub struct Device {
    base: ibv_device,
    /// Place in the settings.
    pub index: usize,
}

// SAFETY: never changed once it is made.
unsafe impl Sync for Device {}
// SAFETY: as above.
unsafe impl Send for Device {}

/// An open device.
#[repr(C)]
pub struct Context {
    v: verbs_context,
    /// The process.
    pub host: &'static Host,
    /// Place of the device in the settings.
    pub device: usize,
    /// Its events.
    pub queue: Queue,
}

impl Context {
    /// Of the context that the program has.
    pub unsafe fn of<'a>(ctx: *mut ibv_context) -> &'a Context {
        // SAFETY: the caller's promise: it lies where `verbs_open_device` made it.
        unsafe { &*ctx.byte_sub(offset_of!(verbs_context, context)).cast() }
    }

    /// Its settings.
    pub fn config(&self) -> &'static crate::config::Device {
        &self.host.config.devices[self.device]
    }
}

fn name(into: &mut [c_char], text: &str) {
    for (to, from) in into.iter_mut().zip(text.bytes().chain([0])) {
        *to = from.cast_signed();
    }
}

fn devices() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    let make = |host: &'static Host| {
        DEVICES.get_or_init(|| {
            let all = host.config.devices.iter().enumerate();
            all.map(|(index, d)| {
                // SAFETY: a plain C struct, of which zeros are a value.
                let mut base: ibv_device = unsafe { core::mem::zeroed() };
                base.node_type = ibv_node_type::IBV_NODE_CA;
                base.transport_type = ibv_transport_type::IBV_TRANSPORT_IB;
                name(&mut base.name, &d.name);
                name(&mut base.dev_name, &format!("uverbs{index}"));
                name(&mut base.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{index}"));
                name(&mut base.ibdev_path, &format!("/sys/class/infiniband/{}", d.name));
                Device { base, index }
            })
            .collect()
        })
    };
    host::get().map_or(&[], |h| make(h))
}

/// The devices, and a null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(n: *mut c_int) -> *mut *mut ibv_device {
    object(|| {
        let devices = devices();
        // SAFETY: memory for the list; `n` is null or the caller's.
        unsafe {
            let list: *mut *mut ibv_device = libc::calloc(devices.len() + 1, size_of::<usize>()).cast();
            if list.is_null() {
                return Err(libc::ENOMEM);
            }
            for (i, d) in devices.iter().enumerate() {
                *list.add(i) = (&raw const d.base).cast_mut();
            }
            if !n.is_null() {
                *n = devices.len() as c_int;
            }
            Ok(list)
        }
    })
}

/// Frees the list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the caller's: it came from `ibv_get_device_list`.
    unsafe { libc::free(list.cast()) }
}

/// Its name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller's.
    unsafe { (&raw const (*device).name).cast() }
}

/// Its place in the list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: the caller's.
    unsafe { (*device.cast::<Device>()).index as c_int }
}

/// Its GUID, in network order: made of its place here and the process's user, as a NIC's is of its address.
pub fn guid(index: usize) -> u64 {
    (0x0200_00ff_fe00_0000 | (index as u64 + 1)).to_be()
}

/// Its GUID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the caller's.
    guid(unsafe { (*device.cast::<Device>()).index })
}

mod asked {
    use super::*;
    unsafe extern "C" {
        /// By way of the dynamic linker, as in the system's library: a preload may answer.
        pub fn verbs_open_device(device: *mut ibv_device, private: *mut c_void) -> *mut ibv_context;
    }
}

/// Opens a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the caller's.
    unsafe { asked::verbs_open_device(device, core::ptr::null_mut()) }
}

/// Opens a device, for libraries.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn verbs_open_device(device: *mut ibv_device, _private: *mut c_void) -> *mut ibv_context {
    object(|| {
        let host = host::get().ok_or(libc::ENODEV)?;
        // SAFETY: the caller's.
        let index = unsafe { (*device.cast::<Device>()).index };
        let queue = host.queue().map_err(super::code)?;
        // SAFETY: a plain C struct, of which zeros are a value.
        let mut v: verbs_context = unsafe { core::mem::zeroed() };
        let ctx = &mut v.context;
        ctx.device = device;
        ctx.cmd_fd = -1;
        ctx.async_fd = queue.file.as_raw_fd();
        ctx.num_comp_vectors = 4;
        ctx.abi_compat = usize::MAX as *mut c_void;
        fill_ops(&mut ctx.ops);
        fill_slots(&mut v);
        host.contexts.lock().push((index, queue.id));
        let c = Box::leak(Box::new(Context { v, host, device: index, queue }));
        // SAFETY: part of a context that nobody else knows.
        unsafe { libc::pthread_mutex_init((&raw mut c.v.context.mutex).cast(), core::ptr::null()) };
        Ok(&raw mut c.v.context)
    })
}

/// Programs go through these without any call of this library's.
fn fill_ops(ops: &mut ibv_context_ops) {
    ops.alloc_mw = Some(memory::alloc_mw);
    ops.bind_mw = Some(memory::bind_mw);
    ops.dealloc_mw = Some(memory::dealloc_mw);
    ops.poll_cq = Some(cq::poll_cq);
    ops.req_notify_cq = Some(cq::req_notify_cq);
    ops.post_srq_recv = Some(srq::post_srq_recv);
    ops.post_send = Some(send::post_send);
    ops.post_recv = Some(send::post_recv);
    type Slot = Option<unsafe extern "C" fn() -> *mut c_void>;
    let slot = |f: *const ()| -> Slot {
        // SAFETY: a function; nobody calls it by this type, as its name says. Layers above look for its address.
        Some(unsafe { core::mem::transmute::<*const (), unsafe extern "C" fn() -> *mut c_void>(f) })
    };
    ops._compat_create_qp = slot(qp::ibv_create_qp as *const ());
    ops._compat_modify_qp = slot(modify::ibv_modify_qp as *const ());
    ops._compat_query_qp = slot(qp::ibv_query_qp as *const ());
    ops._compat_destroy_qp = slot(qp::ibv_destroy_qp as *const ());
}

fn fill_slots(v: &mut verbs_context) {
    v.sz = size_of::<verbs_context>();
    v.query_port = Some(query::query_port);
    v.query_device_ex = Some(query::query_device_ex);
    v.create_cq_ex = Some(cq_ex::create_cq_ex);
    v.modify_cq = Some(cq::modify_cq);
    v.create_qp_ex = Some(qp::create_qp_ex);
    v.create_srq_ex = Some(srq::create_srq_ex);
    v.get_srq_num = Some(srq::get_srq_num);
    v.open_xrcd = Some(xrc::open_xrcd);
    v.close_xrcd = Some(xrc::close_xrcd);
    v.open_qp = Some(xrc::open_qp);
    v.alloc_td = Some(xrc::alloc_td);
    v.dealloc_td = Some(xrc::dealloc_td);
    v.alloc_parent_domain = Some(xrc::alloc_parent_domain);
    v.query_rt_values = Some(query::query_rt_values);
}

/// Closes a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(ctx: *mut ibv_context) -> c_int {
    super::errno(|| {
        // SAFETY: the caller's: nobody uses it any more.
        unsafe {
            let c: Box<Context> = Box::from_raw(ctx.byte_sub(offset_of!(verbs_context, context)).cast());
            c.host.contexts.lock().retain(|(_, queue)| *queue != c.queue.id);
        }
        Ok(())
    })
}

/// Needs a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_device(_fd: c_int) -> *mut ibv_context {
    set_errno(libc::EOPNOTSUPP);
    core::ptr::null_mut()
}
