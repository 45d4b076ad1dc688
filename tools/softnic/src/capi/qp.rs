//! Queue pairs: making, asking, removing.

use super::cq::Cq;
use super::device::Context;
use super::memory::root;
use super::qp_ex::{Builder, set_pointers};
use super::srq::Srq;
use super::{acks, code, errno, object};
use crate::nic::host::Host;
use crate::nic::qp::{Plan, Qp, kind, state};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use parking_lot::Mutex;
use parking_lot::lock_api::RawMutex as _;
use rdma_sys::*;
use std::ffi::c_int;
use std::sync::Arc;

/// A QP, as the program has it.
#[repr(C)]
pub struct CQp {
    /// As the program sees it. A QP that was made by the plain call is the beginning of this one.
    pub ex: ibv_qp_ex,
    /// The QP.
    pub core: Arc<Qp>,
    /// The process.
    pub host: &'static Host,
    /// What was set last.
    pub attr: Mutex<ibv_qp_attr>,
    /// What it was made of.
    pub init: ibv_qp_init_attr,
    /// The extended interface, if it was asked for.
    pub builder: Option<Builder>,
    /// Events.
    pub reported: AtomicU32,
}

impl CQp {
    /// Of the QP that the program has.
    pub unsafe fn of<'a>(qp: *mut ibv_qp) -> &'a CQp {
        // SAFETY: the caller's: made by `create`.
        unsafe { &*qp.cast() }
    }

    /// A copy of what was set last.
    pub fn attributes(&self) -> ibv_qp_attr {
        let attr = self.attr.lock();
        // SAFETY: a plain C struct without ownership, which the bindings leave without `Copy`.
        unsafe { core::ptr::from_ref(&*attr).read() }
    }
}

const PD: u32 = 1;
const XRCD: u32 = 2;
const CREATE_FLAGS: u32 = 4;
const SEND_OPS: u32 = 64;

unsafe fn create(ctx: *mut ibv_context, a: &mut ibv_qp_init_attr_ex) -> Result<*mut CQp, c_int> {
    // SAFETY: the caller's.
    let c = unsafe { Context::of(ctx) };
    let (host, limits) = (c.host, &c.config().limits);
    let is_target = a.qp_type == kind::XRC_RECV;
    // What such a QP has no use for is not looked at.
    if matches!(a.qp_type, kind::XRC_SEND | kind::XRC_RECV) {
        (a.recv_cq, a.srq) = (core::ptr::null_mut(), core::ptr::null_mut());
    }
    if is_target {
        a.send_cq = core::ptr::null_mut();
        // SAFETY: a plain C struct, of which zeros are a value.
        a.cap = unsafe { core::mem::zeroed() };
    }
    if !matches!(a.qp_type, kind::RC | kind::UC | kind::UD | kind::XRC_SEND | kind::XRC_RECV) {
        return Err(libc::EOPNOTSUPP);
    }
    let lacks_cq = !is_target && (a.send_cq.is_null() || (a.recv_cq.is_null() && a.qp_type != kind::XRC_SEND));
    if lacks_cq || (is_target && a.comp_mask & XRCD == 0) || (!is_target && a.comp_mask & PD == 0) {
        return Err(libc::EINVAL);
    }
    let cap = a.cap;
    let wide = cap.max_send_sge > limits.sges || cap.max_recv_sge > limits.sges;
    let deep = cap.max_send_wr > limits.wrs || cap.max_recv_wr > limits.wrs;
    if wide || deep || cap.max_inline_data > limits.inline {
        return Err(libc::EINVAL);
    }
    let with_ops = a.comp_mask & SEND_OPS != 0;
    if with_ops && !Builder::can(a.qp_type, a.send_ops_flags) {
        return Err(libc::EOPNOTSUPP);
    }
    a.cap.max_send_sge = cap.max_send_sge.max(1);
    a.cap.max_recv_sge = cap.max_recv_sge.max(1);
    let receives = a.srq.is_null() && !matches!(a.qp_type, kind::XRC_SEND | kind::XRC_RECV);
    if !receives {
        a.cap.max_recv_wr = 0;
    }
    // SAFETY: the caller's: each is null or live.
    let (send_cq, recv_cq, srq) = unsafe {
        let of = |cq: *mut ibv_cq| cq.cast::<Cq>().as_ref();
        (of(a.send_cq), of(a.recv_cq), a.srq.cast::<Srq>().as_ref())
    };
    let pd = if is_target { core::ptr::null_mut() } else { a.pd };
    // SAFETY: the caller's.
    let domain = (!pd.is_null()).then(|| unsafe { root(pd) });
    let mut place: Box<core::mem::MaybeUninit<CQp>> = Box::new_uninit();
    let name = place.as_mut_ptr() as u64;
    let plan = Plan {
        kind: a.qp_type,
        device: c.device,
        pd: domain.map_or(0, |d| d.number()),
        send_cq: send_cq.map_or(0, |q| q.offset),
        recv_cq: recv_cq.map_or(0, |q| q.offset),
        srq: srq.map_or(0, |s| s.offset),
        events: c.queue.id,
        name,
        wrs: [cap.max_send_wr, a.cap.max_recv_wr],
        elements: [a.cap.max_send_sge, a.cap.max_recv_sge],
        inline: cap.max_inline_data,
        all_signaled: a.sq_sig_all != 0,
    };
    let core = host.add_qp(limits.qps as usize, |number| Ok(Arc::new(Qp::new(host, number, plan)?))).map_err(code)?;
    host.engine.start(host);
    for q in [send_cq, recv_cq].into_iter().flatten() {
        q.users.fetch_add(1, Relaxed);
    }
    if let Some(s) = srq {
        s.users.fetch_add(1, Relaxed);
    }
    if let Some(d) = domain {
        d.users.fetch_add(1, Relaxed);
    }
    // SAFETY: a plain C struct, of which zeros are a value.
    let mut ex: ibv_qp_ex = unsafe { core::mem::zeroed() };
    let b = &mut ex.qp_base;
    (b.context, b.qp_context, b.pd) = (ctx, a.qp_context, pd);
    (b.send_cq, b.recv_cq, b.srq) = (a.send_cq, a.recv_cq, a.srq);
    (b.qp_num, b.handle, b.qp_type) = (core.number, core.number, a.qp_type);
    if with_ops {
        set_pointers(&mut ex, a.send_ops_flags);
    }
    let init = ibv_qp_init_attr {
        qp_context: a.qp_context,
        send_cq: a.send_cq,
        recv_cq: a.recv_cq,
        srq: a.srq,
        cap: a.cap,
        qp_type: a.qp_type,
        sq_sig_all: a.sq_sig_all,
    };
    place.write(CQp {
        ex,
        core,
        host,
        // SAFETY: as above.
        attr: Mutex::new(unsafe { core::mem::zeroed() }),
        init,
        builder: with_ops.then(Builder::default),
        reported: AtomicU32::new(0),
    });
    let qp: *mut CQp = Box::into_raw(place).cast();
    // SAFETY: nobody uses it yet.
    unsafe { acks::init(&raw mut (*qp).ex.qp_base.mutex, &raw mut (*qp).ex.qp_base.cond) };
    host.live.lock().insert(name);
    Ok(qp)
}

/// Makes a QP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    object(|| {
        // SAFETY: the caller's; a plain C struct, of which zeros are a value.
        unsafe {
            let i = &mut *init;
            let mut a: ibv_qp_init_attr_ex = core::mem::zeroed();
            (a.qp_context, a.send_cq, a.recv_cq, a.srq) = (i.qp_context, i.send_cq, i.recv_cq, i.srq);
            (a.cap, a.qp_type, a.sq_sig_all) = (i.cap, i.qp_type, i.sq_sig_all);
            (a.comp_mask, a.pd) = (PD, pd);
            let qp = create((*pd).context, &mut a)?;
            i.cap = a.cap;
            Ok(qp.cast())
        }
    })
}

/// Makes a QP, perhaps with the extended interface.
pub unsafe extern "C" fn create_qp_ex(ctx: *mut ibv_context, init: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    object(|| {
        // SAFETY: the caller's.
        unsafe {
            let a = &mut *init;
            let flags = a.comp_mask & CREATE_FLAGS != 0 && a.create_flags != 0;
            if a.comp_mask & !(PD | XRCD | CREATE_FLAGS | SEND_OPS) != 0 || flags {
                return Err(libc::EOPNOTSUPP);
            }
            create(ctx, a).map(<*mut CQp>::cast)
        }
    })
}

/// The extended interface of a QP, if it has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the caller's.
    if unsafe { CQp::of(qp) }.builder.is_some() { qp.cast() } else { core::ptr::null_mut() }
}

/// What was set, and what it is made of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    errno(|| {
        // SAFETY: the caller's.
        let q = unsafe { CQp::of(qp) };
        let mut a = q.attributes();
        let st = q.core.state();
        (a.qp_state, a.cur_qp_state) = (st, st);
        a.cap = q.init.cap;
        let sender = q.core.sender.lock();
        a.sq_psn = sender.next_psn();
        a.sq_draining = u8::from(st == state::SQD && sender.is_draining());
        drop(sender);
        // SAFETY: the caller's.
        unsafe {
            (*qp).state = st;
            *attr = a;
            *init = q.init;
        }
        Ok(())
    })
}

/// Removes a QP. Waits until its events were acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    errno(|| {
        // SAFETY: the caller's: made above, and not used any more.
        unsafe {
            let q = CQp::of(qp);
            if q.host.is_inherited() {
                return Ok(());
            }
            q.core.destroy(q.host);
            q.host.live.lock().remove(&(qp as u64));
            let (m, v) = (&raw mut (*qp).mutex, &raw mut (*qp).cond);
            acks::wait(m, v, &raw const (*qp).events_completed, || q.reported.load(Relaxed));
            for cq in [q.init.send_cq, q.init.recv_cq] {
                let Some(c) = cq.cast::<Cq>().as_ref() else { continue };
                c.polling.lock();
                crate::nic::cq::purge(&q.host.me, c.shared, q.core.number, 0);
                c.polling.unlock();
                c.users.fetch_sub(1, Relaxed);
            }
            if let Some(s) = q.init.srq.cast::<Srq>().as_ref() {
                s.users.fetch_sub(1, Relaxed);
            }
            if !(*qp).pd.is_null() {
                root((*qp).pd).users.fetch_sub(1, Relaxed);
            }
            drop(Box::from_raw(qp.cast::<CQp>()));
        }
        Ok(())
    })
}

/// Data is written in order, from its start to its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp_data_in_order(_qp: *mut ibv_qp, _op: u32, _flags: u32) -> c_int {
    0
}
