//! The control hooks: objects come and go.
//!
//! The real call comes first for what is created or modified. What is destroyed is hidden before the real call, since
//! its address and number may be in use again before that returns; if the call fails, it is shown again.

use crate::context::{self, Context};
use crate::library::Way;
use crate::nested::Inside;
use crate::{Function, extended_poll, extended_send, guard, linked, multipath, state};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use rdma_sys::{
    ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_device, ibv_pd, ibv_qp,
    ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask,
    ibv_qp_type, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex, ibv_srq_init_attr_mask, ibv_srq_type,
};
use telereduce::shm::layout::Hooked;
use telereduce::telemetry::cq::CqSpec;
use telereduce::telemetry::qp::{Qp, QpSpec};
use telereduce::telemetry::registry::{Address, Device, QpChange, Telemetry};

/// What a hook answers when there is no libibverbs behind it: as if the device were gone.
pub fn missing<T>(value: T) -> T {
    // SAFETY: errno is the calling thread's own.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    value
}

/// The real function, entered. Inside another hook, which counts, and where there is no such function, it returns from
/// the caller.
macro_rules! real {
    ($library:expr, $real:expr, ($($arg:expr),*), $missing:expr) => {{
        let Some(real) = $real else { return missing($missing) };
        let inside = Inside::enter($library);
        if !inside.is_outermost() {
            // SAFETY: the caller's promise, passed on.
            return unsafe { real($($arg),*) };
        }
        (real, inside)
    }};
}

pub(crate) use real;

pub use crate::address_handle::{ibv_create_ah, ibv_create_ah_from_wc, ibv_destroy_ah};
pub use crate::multipath::events::ibv_get_async_event;

// What belongs to providers' own libraries.
pub use crate::vendor::{
    efadv_create_cq, efadv_create_driver_qp, efadv_create_qp_ex, mlx5dv_create_qp, mlx5dv_devx_obj_create,
    mlx5dv_init_obj,
};

pub fn telemetry() -> Option<&'static Telemetry> {
    state::get().map(|s| &s.telemetry)
}

/// Telemetry and device of a context that is counted.
pub fn counted(ctx: *mut ibv_context) -> Option<(&'static Telemetry, &'static Device)> {
    Some((telemetry()?, context::find(ctx).filter(|c| c.seen)?.device()?))
}

fn hooked(way: Way) -> Hooked {
    if way.caller == 0 { Hooked::LookedUp } else { Hooked::Linked }
}

/// Creates what has more than the program asked for. If that fails, errno is as it was: the program's own call follows.
fn tried<T>(create: impl FnOnce() -> *mut T) -> *mut T {
    // SAFETY: errno is the calling thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let made = create();
    if made.is_null() {
        // SAFETY: as above.
        unsafe { *errno = before };
    }
    made
}

pub unsafe fn ibv_open_device(way: Way, device: *mut ibv_device) -> *mut ibv_context {
    let (real, _inside) = real!(way.library, way.library.ibv_open_device(), (device), null_mut());
    // SAFETY: the caller's promise, passed on; `attach` gets what libibverbs returned.
    unsafe {
        let ctx = real(device);
        guard::run(|| context::attach(ctx, way.library, hooked(way)));
        ctx
    }
}

pub unsafe fn verbs_open_device(way: Way, device: *mut ibv_device, private_data: *mut c_void) -> *mut ibv_context {
    let (real, _inside) = real!(way.library, way.library.verbs_open_device(), (device, private_data), null_mut());
    // SAFETY: as in `ibv_open_device`.
    unsafe {
        let ctx = real(device, private_data);
        // A provider calls this by itself. Otherwise an ibv_open_device did that was no hook; nor will the rest be.
        guard::run(|| {
            let seen = linked::calls(way.caller, Function::verbs_open_device);
            context::attach(ctx, way.library, if seen { Hooked::Provider } else { Hooked::Unseen });
        });
        ctx
    }
}

pub unsafe fn ibv_import_device(way: Way, cmd_fd: c_int) -> *mut ibv_context {
    let (real, _inside) = real!(way.library, way.library.ibv_import_device(), (cmd_fd), null_mut());
    // SAFETY: as in `ibv_open_device`.
    unsafe {
        let ctx = real(cmd_fd);
        guard::run(|| context::attach(ctx, way.library, hooked(way)));
        ctx
    }
}

pub unsafe fn ibv_close_device(way: Way, ctx: *mut ibv_context) -> c_int {
    let (real, _inside) = real!(way.library, way.library.ibv_close_device(), (ctx), -1);
    // SAFETY: the caller's promise: an open context.
    unsafe {
        guard::run(|| multipath::context_goes(ctx));
        let context: Option<&'static Context> = guard::run(|| context::detach(ctx)).flatten();
        let rc = real(ctx);
        if let Some(c) = context {
            guard::run(|| {
                if rc != 0 {
                    context::patch(ctx, c);
                } else if let (Some(t), Some(d)) = (telemetry(), c.device()) {
                    t.close_device(d);
                }
            });
        }
        rc
    }
}

pub unsafe fn ibv_create_cq(
    way: Way,
    ctx: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let (real, _inside) =
        real!(way.library, way.library.ibv_create_cq(), (ctx, cqe, cq_context, channel, comp_vector), null_mut());
    // SAFETY: the caller's promise, passed on.
    unsafe {
        let (mut cq, mut room) = (null_mut::<ibv_cq>(), None);
        // A size that no CQ has stays as wrong as it is.
        let extras = if multipath::is_on() && cqe > 0 { multipath::cq::extras(cqe as u32) } else { [0; 2] };
        for extra in extras.into_iter().filter(|e| *e > 0) {
            if cq.is_null()
                && let Some(more) = cqe.checked_add(extra as c_int)
            {
                (cq, room) = (tried(|| real(ctx, more, cq_context, channel, comp_vector)), Some(extra));
            }
        }
        if cq.is_null() {
            (cq, room) = (real(ctx, cqe, cq_context, channel, comp_vector), None);
        }
        guard::run(|| {
            cq_created(ctx, cq, false, false);
            if let (Some(extra), Some(c)) = (room, state::OBJECTS.cqs.find(cq)) {
                multipath::cq::created(cq, c, extra);
            }
        });
        cq
    }
}

/// Slot `verbs_context.create_cq_ex`.
pub unsafe extern "C" fn create_cq_ex(ctx: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
    let Some(c) = context::find(ctx) else { return missing(null_mut()) };
    let (real, _inside) = real!(c.library, c.ops.create_cq_ex, (ctx, attr), null_mut());
    // SAFETY: the caller's promise, passed on; an ibv_cq_ex starts as an ibv_cq does.
    unsafe {
        let (mut cq, mut room) = (null_mut::<ibv_cq_ex>(), None);
        for extra in multipath::cq::extras((*attr).cqe) {
            if cq.is_null()
                && let Some(mut more) = guard::run(|| multipath::extended_cq::enlarged(&*attr, extra)).flatten()
            {
                cq = tried(|| real(ctx, &raw mut more));
                room = (!cq.is_null()).then_some(extra);
            }
        }
        if cq.is_null()
            && let Some(mut more) = guard::run(|| with_what_we_read(counted(ctx)?, &*attr)).flatten()
        {
            cq = tried(|| real(ctx, &raw mut more));
        }
        if cq.is_null() {
            cq = real(ctx, attr);
        }
        guard::run(|| {
            cq_created(ctx, cq.cast(), true, false);
            if let (Some(extra), Some(c)) = (room, state::OBJECTS.cqs.find(cq)) {
                multipath::cq::created_extended(cq.cast(), c, (*attr).wc_flags, extra);
            }
        });
        cq
    }
}

/// The attributes of a CQ whose completions also tell what we need to know: their QP, and the bytes that arrived. `None` if
/// they do anyway, or if there are attributes that we do not know.
fn with_what_we_read(_: (&Telemetry, &Device), attr: &ibv_cq_init_attr_ex) -> Option<ibv_cq_init_attr_ex> {
    /// `IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD`.
    const KNOWN: u32 = 1 | 2;
    /// `IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM`.
    const READ: u64 = 1 | 4;
    (attr.comp_mask & !KNOWN == 0 && attr.wc_flags & READ != READ)
        .then_some(ibv_cq_init_attr_ex { wc_flags: attr.wc_flags | READ, ..*attr })
}

/// A CQ was created by a provider's own call.
///
/// # Safety
/// `cq` is null, or it was just created in the context and nobody else knows it yet.
pub unsafe fn cq_made_by_vendor(ctx: *mut ibv_context, cq: *mut ibv_cq_ex) {
    // SAFETY: the caller's promise.
    unsafe { cq_created(ctx, cq.cast(), true, true) };
}

unsafe fn cq_created(ctx: *mut ibv_context, cq: *mut ibv_cq, extended: bool, opaque: bool) {
    // SAFETY: null or a CQ that was just created.
    let Some(c) = (unsafe { cq.as_ref() }) else { return };
    let (Some((t, device)), Some(known)) = (counted(ctx), context::find(ctx)) else {
        // What was at this address before is gone.
        state::OBJECTS.cqs.remove(cq as usize);
        return;
    };
    let mut spec =
        CqSpec { real: known.ops.data.poll_cq, cqe: c.cqe.max(0) as u32, extended: false, tells_qp: true, opaque };
    if extended {
        let x = cq.cast::<ibv_cq_ex>();
        // SAFETY: created as an extended one.
        unsafe {
            spec.extended = extended_poll::attach(x);
            spec.opaque |= !spec.extended;
            spec.tells_qp = (*x).read_qp_num.is_some();
        }
    }
    t.create_cq(device, cq as usize, spec);
}

pub unsafe fn ibv_destroy_cq(way: Way, cq: *mut ibv_cq) -> c_int {
    let (real, _inside) = real!(way.library, way.library.ibv_destroy_cq(), (cq), libc::ENOSYS);
    // SAFETY: the caller's promise: a CQ that exists until the real call returns 0.
    unsafe {
        let hidden = guard::run(|| {
            let t = telemetry()?;
            Some((t, t.hide_cq(cq as usize)?))
        });
        let pointers = guard::run(|| extended_poll::detach(cq)).flatten();
        let roomy = guard::run(|| multipath::cq::hide(cq)).flatten();
        let rc = real(cq);
        if let Some(state) = roomy {
            guard::run(|| if rc == 0 { multipath::cq::forget(state) } else { multipath::cq::show(cq, state) });
        }
        if let Some(p) = pointers {
            guard::run(|| if rc == 0 { extended_poll::forget(p) } else { extended_poll::reattach(cq, p) });
        }
        if let Some((t, state)) = hidden.flatten() {
            guard::run(|| if rc == 0 { t.forget_cq(state) } else { t.show_cq(cq as usize, state) });
        }
        rc
    }
}

pub unsafe fn ibv_resize_cq(way: Way, cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let (real, _inside) = real!(way.library, way.library.ibv_resize_cq(), (cq, cqe), libc::ENOSYS);
    // SAFETY: the caller's promise, passed on.
    unsafe {
        let rc = match multipath::cq::find(cq) {
            Some(state) if cqe > 0 => state.resize(cqe as u32, |cqe| c_int::try_from(cqe).map_or(-1, |n| real(cq, n))),
            _ => real(cq, cqe),
        };
        if rc == 0 {
            guard::run(|| {
                if let Some(c) = state::OBJECTS.cqs.find(cq) {
                    c.resized((*cq).cqe.max(0) as u32);
                }
            });
        }
        rc
    }
}

pub unsafe fn ibv_create_srq(way: Way, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    let (real, _inside) = real!(way.library, way.library.ibv_create_srq(), (pd, attr), null_mut());
    // SAFETY: the caller's promise, passed on.
    unsafe {
        let srq = real(pd, attr);
        guard::run(|| srq_created(srq, &(*attr).attr));
        srq
    }
}

/// Slot `verbs_context.create_srq_ex`.
pub unsafe extern "C" fn create_srq_ex(ctx: *mut ibv_context, attr: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq {
    let Some(c) = context::find(ctx) else { return missing(null_mut()) };
    let (real, _inside) = real!(c.library, c.ops.create_srq_ex, (ctx, attr), null_mut());
    // SAFETY: the caller's promise, passed on.
    unsafe {
        let srq = real(ctx, attr);
        guard::run(|| {
            srq_created(srq, &(*attr).attr);
            let xrc = (*attr).comp_mask & ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_TYPE.0 != 0
                && (*attr).srq_type == ibv_srq_type::IBV_SRQT_XRC;
            if xrc && let (Some(cq), Some(s)) = (state::OBJECTS.cqs.find((*attr).cq), state::OBJECTS.srqs.find(srq)) {
                cq.add_xrc_srq(s);
            }
        });
        srq
    }
}

unsafe fn srq_created(srq: *mut ibv_srq, granted: &ibv_srq_attr) {
    // SAFETY: null or an SRQ that was just created.
    let Some(s) = (unsafe { srq.as_ref() }) else { return };
    let real = context::find(s.context).and_then(|c| c.ops.data.post_srq_recv);
    let (Some((t, device)), Some(real)) = (counted(s.context), real) else {
        // As in `cq_created`.
        state::OBJECTS.srqs.remove(srq as usize);
        return;
    };
    t.create_srq(device, srq as usize, real, granted.max_wr, granted.max_sge);
}

pub unsafe fn ibv_destroy_srq(way: Way, srq: *mut ibv_srq) -> c_int {
    let (real, _inside) = real!(way.library, way.library.ibv_destroy_srq(), (srq), libc::ENOSYS);
    // SAFETY: the caller's promise: an SRQ that exists until the real call returns 0.
    unsafe {
        let hidden = guard::run(|| {
            let t = telemetry()?;
            Some((t, t.hide_srq(srq as usize)?))
        });
        let rc = real(srq);
        if let Some((t, hidden)) = hidden.flatten() {
            guard::run(|| {
                if rc == 0 {
                    t.forget_srq(hidden);
                } else {
                    t.show_srq(srq as usize, hidden);
                }
            });
        }
        rc
    }
}

pub unsafe fn ibv_create_qp(way: Way, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let (real, _inside) = real!(way.library, way.library.ibv_create_qp(), (pd, attr), null_mut());
    // SAFETY: the caller's promise, passed on; the provider has written the granted capabilities.
    unsafe {
        let sig_all = (*attr).sq_sig_all != 0;
        let asked = (*attr).cap;
        let enlarged = guard::run(|| multipath::enlarged(&asked, (*attr).qp_type, (*attr).send_cq)).flatten();
        if let Some(cap) = enlarged {
            (*attr).cap = cap;
            let qp = tried(|| real(pd, attr));
            if !qp.is_null() {
                let surplus = cap.max_send_wr - asked.max_send_wr;
                (*attr).cap.max_send_wr -= surplus;
                guard::run(|| split_qp_created(qp, &(*attr).cap, (surplus, sig_all), How::default()));
                return qp;
            }
            (*attr).cap = asked;
            guard::run(|| multipath::refused((*attr).send_cq));
        }
        let qp = real(pd, attr);
        guard::run(|| not_split_qp_created(qp, &(*attr).cap, sig_all, How::default(), enlarged.is_some()));
        qp
    }
}

/// Slot `verbs_context.create_qp_ex`.
pub unsafe extern "C" fn create_qp_ex(ctx: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    let Some(c) = context::find(ctx) else { return missing(null_mut()) };
    let (real, _inside) = real!(c.library, c.ops.create_qp_ex, (ctx, attr), null_mut());
    // SAFETY: as in `ibv_create_qp`.
    unsafe {
        let sig_all = (*attr).sq_sig_all != 0;
        let asked = (*attr).cap;
        // It receives by work queues, whose posts are not seen.
        let by_work_queues = (*attr).comp_mask & ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_IND_TABLE.0 != 0;
        let how = How::asked(&*attr, by_work_queues);
        let enlarged = guard::run(|| multipath::enlarged_extended(ctx, &*attr)).flatten();
        if let Some(cap) = enlarged {
            (*attr).cap = cap;
            let qp = tried(|| real(ctx, attr));
            if !qp.is_null() {
                let surplus = cap.max_send_wr - asked.max_send_wr;
                (*attr).cap.max_send_wr -= surplus;
                guard::run(|| split_qp_created(qp, &(*attr).cap, (surplus, sig_all), how));
                return qp;
            }
            (*attr).cap = asked;
            guard::run(|| multipath::refused((*attr).send_cq));
        }
        let qp = real(ctx, attr);
        guard::run(|| not_split_qp_created(qp, &(*attr).cap, sig_all, how, enlarged.is_some()));
        qp
    }
}

/// How a QP was created.
#[derive(Default)]
pub struct How {
    /// The operations of `ibv_wr_*` that were asked for, if any were.
    pub send_ops: Option<u64>,
    /// Some of what it does is not seen.
    pub opaque: bool,
}

impl How {
    /// As these attributes ask.
    pub fn asked(attr: &ibv_qp_init_attr_ex, opaque: bool) -> How {
        let with_send_ops = attr.comp_mask & ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0 != 0;
        How { send_ops: with_send_ops.then_some(attr.send_ops_flags), opaque }
    }
}

/// As [`qp_created`], of a QP that may be split; `cap` is the application's share.
unsafe fn split_qp_created(qp: *mut ibv_qp, cap: &ibv_qp_cap, (surplus, sig_all): (u32, bool), how: How) {
    // SAFETY: the caller's promise.
    unsafe { qp_created(qp, cap, sig_all, how) };
    match state::OBJECTS.qps.get(qp as usize) {
        Some(q) => multipath::created(qp, q, cap, surplus, sig_all),
        // SAFETY: the caller's promise.
        None => multipath::refused(unsafe { (*qp).send_cq }),
    }
}

/// As [`qp_created`], of a QP that is not split; `tried`: since it could not be created as one that may be.
unsafe fn not_split_qp_created(qp: *mut ibv_qp, cap: &ibv_qp_cap, sig_all: bool, how: How, tried: bool) {
    // SAFETY: the caller's promise.
    unsafe { qp_created(qp, cap, sig_all, how) };
    if let Some(q) = state::OBJECTS.qps.find(qp).filter(|_| tried) {
        multipath::not_enlarged(q);
    }
}

/// A QP was created, and granted `cap`.
///
/// # Safety
/// `qp` is null, or it was just created and nobody else knows it yet.
pub unsafe fn qp_created(qp: *mut ibv_qp, cap: &ibv_qp_cap, sig_all: bool, how: How) {
    // SAFETY: null or a QP that was just created.
    let Some(q) = (unsafe { qp.as_ref() }) else { return };
    let objects = &state::OBJECTS;
    let (Some((t, device)), Some(known)) = (counted(q.context), context::find(q.context)) else {
        // As in `cq_created`.
        objects.qps.remove(qp as usize);
        return;
    };
    let extended =
        // SAFETY: just created with them; the context's library made it.
        how.send_ops.is_some_and(|granted| unsafe { extended_send::attach(qp, known.library, granted, cap.max_send_wr) });
    let xrc = matches!(q.qp_type, ibv_qp_type::IBV_QPT_XRC_SEND | ibv_qp_type::IBV_QPT_XRC_RECV);
    let spec = QpSpec {
        real: known.ops.data,
        qp_num: q.qp_num,
        qp_type: q.qp_type,
        sig_all,
        // Not set where a kind of QP has none.
        max_send_wr: if q.qp_type == ibv_qp_type::IBV_QPT_XRC_RECV { 0 } else { cap.max_send_wr },
        max_recv_wr: if xrc || q.recv_cq.is_null() { 0 } else { cap.max_recv_wr },
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        extended,
        opaque: how.opaque || (how.send_ops.is_some() && !extended),
        send_cq: objects.cqs.find(q.send_cq),
        recv_cq: objects.cqs.find(q.recv_cq),
        srq: objects.srqs.find(q.srq),
    };
    t.create_qp(device, qp as usize, spec);
    if let Some(counted) = objects.qps.get(qp as usize) {
        multipath::left_out(counted, q.send_cq);
    }
    t.look_for_only_qp(&spec);
}

/// A QP that is counted.
///
/// # Safety
/// `qp` is a valid QP.
unsafe fn known_qp(qp: *mut ibv_qp) -> Option<(&'static Telemetry, &'static Device, &'static Qp)> {
    // SAFETY: the caller's promise.
    let (t, device) = counted(unsafe { (*qp).context })?;
    Some((t, device, state::OBJECTS.qps.get(qp as usize)?))
}

pub unsafe fn ibv_dealloc_pd(way: Way, pd: *mut ibv_pd) -> c_int {
    let (real, _inside) = real!(way.library, way.library.ibv_dealloc_pd(), (pd), libc::ENOSYS);
    guard::run(|| multipath::pd_goes(pd));
    // SAFETY: the caller's promise, passed on.
    unsafe { real(pd) }
}

pub unsafe fn ibv_query_qp(
    way: Way,
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let (real, _inside) = real!(way.library, way.library.ibv_query_qp(), (qp, attr, attr_mask, init), libc::ENOSYS);
    // SAFETY: the caller's promise, passed on; a call that succeeded has filled both.
    unsafe {
        let rc = real(qp, attr, attr_mask, init);
        if rc == 0
            && let Some(flow) = multipath::flow::find(qp)
        {
            for cap in [&mut (*attr).cap, &mut (*init).cap] {
                cap.max_send_wr = flow.told_max_send_wr(cap.max_send_wr);
            }
        }
        rc
    }
}

pub unsafe fn ibv_modify_qp(way: Way, qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int {
    let (real, _inside) = real!(way.library, way.library.ibv_modify_qp(), (qp, attr, attr_mask), libc::ENOSYS);
    // SAFETY: the caller's promise, passed on.
    unsafe {
        guard::run(|| multipath::before_modify(qp, &*attr, attr_mask as u32));
        let rc = real(qp, attr, attr_mask);
        guard::run(|| extended_send::attach_again(qp));
        guard::run(|| multipath::after_modify(qp, &*attr, attr_mask as u32, rc == 0));
        if rc == 0 {
            guard::run(|| {
                if let Some((t, device, q)) = known_qp(qp) {
                    t.modify_qp(device, q, change(&*attr, attr_mask as u32));
                    if let Some(gid) = source(qp, &*attr, attr_mask as u32) {
                        t.sends_from(q, gid);
                    }
                }
            });
        }
        rc
    }
}

/// The address that a QP sends from, if the call set it.
///
/// # Safety
/// `qp` is a valid QP.
unsafe fn source(qp: *mut ibv_qp, attr: &ibv_qp_attr, mask: u32) -> Option<[u8; 16]> {
    let is_set = mask & ibv_qp_attr_mask::IBV_QP_AV.0 != 0 && attr.ah_attr.is_global != 0;
    // SAFETY: the caller's promise.
    is_set.then(|| multipath::gid_of(unsafe { (*qp).context }, attr.ah_attr.port_num, attr.ah_attr.grh.sgid_index))?
}

fn change(attr: &ibv_qp_attr, mask: u32) -> QpChange {
    let has = |bit: ibv_qp_attr_mask| mask & bit.0 != 0;
    let address = || address(&attr.ah_attr);
    QpChange {
        state: has(ibv_qp_attr_mask::IBV_QP_STATE).then_some(attr.qp_state),
        port_num: has(ibv_qp_attr_mask::IBV_QP_PORT).then_some(attr.port_num),
        dest_qp_num: has(ibv_qp_attr_mask::IBV_QP_DEST_QPN).then_some(attr.dest_qp_num),
        address: has(ibv_qp_attr_mask::IBV_QP_AV).then(address),
    }
}

/// Where packets go by these attributes.
pub fn address(attr: &ibv_ah_attr) -> Address {
    // SAFETY: every bit pattern of a GID is 16 bytes.
    let gid = (attr.is_global != 0).then_some(unsafe { attr.grh.dgid.raw });
    Address { gid, lid: if gid.is_some() { 0 } else { attr.dlid } }
}

pub unsafe fn ibv_destroy_qp(way: Way, qp: *mut ibv_qp) -> c_int {
    let (real, _inside) = real!(way.library, way.library.ibv_destroy_qp(), (qp), libc::ENOSYS);
    // SAFETY: the caller's promise: a QP that exists until the real call returns 0.
    unsafe {
        let flow = guard::run(|| multipath::before_destroy(qp)).flatten();
        let hidden = guard::run(|| {
            let (t, device, q) = known_qp(qp)?;
            t.hide_qp(device, q);
            t.look_for_only_qp(&q.spec);
            Some((t, device, q))
        });
        let pointers = guard::run(|| extended_send::detach(qp)).flatten();
        let rc = real(qp);
        if let Some(flow) = flow {
            guard::run(|| multipath::destroyed(flow, rc == 0));
        }
        if let Some(p) = pointers {
            guard::run(|| if rc == 0 { extended_send::forget(p) } else { extended_send::reattach(qp, p) });
        }
        if let Some((t, device, q)) = hidden.flatten() {
            guard::run(|| {
                if rc == 0 {
                    t.retire_qp(q);
                } else {
                    t.show_qp(device, q);
                    t.look_for_only_qp(&q.spec);
                }
            });
        }
        rc
    }
}
