//! Device contexts: their operation tables are patched at open and put back before close.

use crate::library::Library;
use crate::memory_window::{self, BindMw};
use crate::{control_path, data_path, log, multipath, state, unseen};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use rdma_sys::{
    ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_qp, ibv_qp_init_attr_ex, ibv_srq, ibv_srq_init_attr_ex,
    verbs_context,
};
use std::ffi::CStr;
use telereduce::shm::layout::Hooked;
use telereduce::table::PtrMap;
use telereduce::telemetry::registry::Device;
use telereduce::verbs::{DataPath, PostSend, PostSrqRecv};

/// `verbs_context.create_qp_ex`.
pub type CreateQpEx = unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;
/// `verbs_context.create_cq_ex`.
pub type CreateCqEx = unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex;
/// `verbs_context.create_srq_ex`.
pub type CreateSrqEx = unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq;

/// The real operations of a context.
#[derive(Clone, Copy)]
pub struct Ops {
    /// Posts and polls.
    pub data: DataPath,
    /// Real bind_mw, if the provider has memory windows.
    pub bind_mw: Option<BindMw>,
    /// Real slots of the extended context.
    pub create_qp_ex: Option<CreateQpEx>,
    /// As above.
    pub create_cq_ex: Option<CreateCqEx>,
    /// As above.
    pub create_srq_ex: Option<CreateSrqEx>,
}

/// A patched context.
pub struct Context {
    /// The real operations.
    pub ops: Ops,
    /// Whose it is.
    pub library: &'static Library,
    /// Whether the control calls about it are seen. Where they are not, nothing can be counted.
    pub seen: bool,
    /// What counts as unseen.
    unseen: DataPath,
    device: AtomicPtr<Device>,
}

static CONTEXTS: PtrMap<Context> = PtrMap::new();
/// Set by a panic: nothing is counted any more.
static STOPPED: AtomicBool = AtomicBool::new(false);

impl Context {
    /// Its telemetry, unless counting has stopped or the process was forked.
    #[inline(always)]
    pub fn device(&self) -> Option<&'static Device> {
        // SAFETY: devices are leaked.
        unsafe { self.device.load(Acquire).as_ref() }
    }

    /// What stands in for its operations: for each that it has, the hook.
    fn hooks(&self) -> Ops {
        let real = &self.ops;
        // Objects that are made there could be destroyed without our knowing, if nothing else is seen.
        fn if_seen<T>(seen: bool, real: Option<T>, hook: T) -> Option<T> {
            real.filter(|_| seen).map(|_| hook)
        }
        Ops {
            data: DataPath {
                post_send: if multipath::is_on() { multipath::flow::post_send } else { data_path::post_send },
                post_recv: data_path::post_recv,
                post_srq_recv: real.data.post_srq_recv.map(|_| data_path::post_srq_recv as PostSrqRecv),
                poll_cq: if multipath::is_on() { multipath::cq::poll_cq } else { data_path::poll_cq },
            },
            bind_mw: real.bind_mw.map(|_| memory_window::bind_mw as BindMw),
            create_qp_ex: if_seen(self.seen, real.create_qp_ex, control_path::create_qp_ex as CreateQpEx),
            create_cq_ex: if_seen(self.seen, real.create_cq_ex, control_path::create_cq_ex as CreateCqEx),
            create_srq_ex: if_seen(self.seen, real.create_srq_ex, control_path::create_srq_ex as CreateSrqEx),
        }
    }

    /// The operations for an object that is not known.
    pub fn for_unseen(&self) -> &DataPath {
        if self.device().is_some() { &self.unseen } else { &self.ops.data }
    }
}

/// The patched context at `ctx`.
#[inline(always)]
pub fn find(ctx: *mut ibv_context) -> Option<&'static Context> {
    CONTEXTS.find(ctx)
}

/// Patches a context that was just opened, unless that was done on the way here.
///
/// # Safety
/// `ctx` is null or a context that libibverbs returned and nobody else knows yet.
pub unsafe fn attach(ctx: *mut ibv_context, library: &'static Library, hooked: Hooked) {
    // SAFETY: the caller's promise.
    let Some(c) = (unsafe { ctx.as_mut() }) else { return };
    let ours = [data_path::post_send as PostSend, multipath::flow::post_send as PostSend];
    if c.ops.post_send.is_some_and(|f| ours.iter().any(|o| core::ptr::fn_addr_eq(f, *o))) {
        return;
    }
    if STOPPED.load(Relaxed) {
        return;
    }
    let Some(state) = state::get_or_init() else { return };
    // SAFETY: the caller's promise.
    let extended = unsafe { extended(ctx) };
    let (Some(post_send), Some(post_recv), Some(poll_cq)) = (c.ops.post_send, c.ops.post_recv, c.ops.poll_cq) else {
        log::line(format_args!("a device context without operations: unknown libibverbs ABI, it is not counted"));
        return;
    };
    // SAFETY: `extended` and its slots are checked against the size that the context states.
    let ops = unsafe {
        Ops {
            data: DataPath { post_send, post_recv, post_srq_recv: c.ops.post_srq_recv, poll_cq },
            bind_mw: c.ops.bind_mw,
            create_qp_ex: extended
                .filter(|v| has(*v, offset_of!(verbs_context, create_qp_ex)))
                .and_then(|v| (*v).create_qp_ex),
            create_cq_ex: extended
                .filter(|v| has(*v, offset_of!(verbs_context, create_cq_ex)))
                .and_then(|v| (*v).create_cq_ex),
            create_srq_ex: extended
                .filter(|v| has(*v, offset_of!(verbs_context, create_srq_ex)))
                .and_then(|v| (*v).create_srq_ex),
        }
    };
    // SAFETY: an open context has a device, whose name is NUL-terminated.
    let name = unsafe { CStr::from_ptr((*c.device).name.as_ptr()) }.to_string_lossy().into_owned();
    let device = state.telemetry.open_device(&name, hooked);
    let seen = hooked != Hooked::Unseen;
    let unseen = unseen::path(&ops.data);
    let context =
        Context { ops, library, seen, unseen, device: AtomicPtr::new(core::ptr::from_ref(device).cast_mut()) };
    // SAFETY: the caller's promise.
    unsafe { patch(ctx, Box::leak(Box::new(context))) };
}

/// Puts the real operations back and forgets the context. Returns what [`patch`] needs.
///
/// # Safety
/// `ctx` is null or an open context that its owner is about to close.
pub unsafe fn detach(ctx: *mut ibv_context) -> Option<&'static Context> {
    let context = CONTEXTS.remove(ctx as usize)?;
    // SAFETY: the caller's promise: it was patched by us, and it is open.
    unsafe { put(ctx, &context.ops) };
    Some(context)
}

/// Patches a context, for the first time or again, since its close failed.
///
/// # Safety
/// `ctx` is the open context of which `context` has the real operations.
pub unsafe fn patch(ctx: *mut ibv_context, context: &'static Context) {
    // Known before it is patched: a hook always finds the real operation.
    CONTEXTS.insert(ctx as usize, context);
    // SAFETY: the caller's promise.
    unsafe { put(ctx, &context.hooks()) };
}

unsafe fn put(ctx: *mut ibv_context, ops: &Ops) {
    // SAFETY: the caller's promise: an open context that `attach` has looked at.
    unsafe {
        (*ctx).ops.post_send = Some(ops.data.post_send);
        (*ctx).ops.post_recv = Some(ops.data.post_recv);
        (*ctx).ops.post_srq_recv = ops.data.post_srq_recv;
        (*ctx).ops.poll_cq = Some(ops.data.poll_cq);
        (*ctx).ops.bind_mw = ops.bind_mw;
        if let Some(v) = extended(ctx) {
            if ops.create_qp_ex.is_some() {
                (*v).create_qp_ex = ops.create_qp_ex;
            }
            if ops.create_cq_ex.is_some() {
                (*v).create_cq_ex = ops.create_cq_ex;
            }
            if ops.create_srq_ex.is_some() {
                (*v).create_srq_ex = ops.create_srq_ex;
            }
        }
    }
}

/// The extended context around a context, if it has one: `abi_compat` is all ones then.
unsafe fn extended(ctx: *mut ibv_context) -> Option<*mut verbs_context> {
    // SAFETY: the caller's promise: a valid context; an extended one is the last field of a verbs_context.
    unsafe {
        ((*ctx).abi_compat as usize == usize::MAX)
            .then(|| ctx.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>())
    }
}

/// Whether the extended context is large enough to have the field at `offset`; new fields are added in front.
unsafe fn has(v: *mut verbs_context, offset: usize) -> bool {
    // SAFETY: `sz` stands directly in front of the context in every version.
    unsafe { (*v).sz >= size_of::<verbs_context>() - offset }
}

/// Stops counting everywhere, in devices that are opened later, too.
pub fn detach_all() {
    STOPPED.store(true, Relaxed);
    CONTEXTS.for_each(|c| c.device.store(core::ptr::null_mut(), Release));
    state::OBJECTS.forget_all();
}

/// In a forked child: inherited contexts pass through.
///
/// # Safety
/// The process has one thread.
pub unsafe fn after_fork() {
    // SAFETY: the caller's promise.
    unsafe {
        CONTEXTS.reset_after_fork();
        state::OBJECTS.reset_after_fork();
        crate::extended_send::after_fork();
        crate::extended_poll::after_fork();
        multipath::after_fork();
    }
    CONTEXTS.for_each(|c| c.device.store(core::ptr::null_mut(), Release));
}
