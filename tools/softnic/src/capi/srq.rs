//! Shared receive queues, those of XRC among them.

use super::cq::Cq;
use super::device::Context;
use super::memory::root;
use super::send::elements;
use super::{acks, code, errno, object};
use crate::nic::receives;
use crate::shared::layout;
use crate::shared::lock::Locked;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use parking_lot::Mutex;
use parking_lot::lock_api::RawMutex as _;
use rdma_sys::*;
use std::ffi::c_int;

/// An SRQ.
#[repr(C)]
pub struct Srq {
    base: ibv_srq,
    /// Where it is in the segment.
    pub offset: u64,
    shared: &'static layout::Srq,
    posting: Mutex<()>,
    /// QPs that use it.
    pub users: AtomicU32,
    /// Events.
    pub reported: AtomicU32,
    cq: *mut ibv_cq,
}

impl Srq {
    /// Of the SRQ that the program has.
    pub unsafe fn of<'a>(srq: *mut ibv_srq) -> &'a Srq {
        // SAFETY: the caller's: made by `create`.
        unsafe { &*srq.cast() }
    }
}

unsafe fn create(pd: *mut ibv_pd, context: *mut core::ffi::c_void, attr: &mut ibv_srq_attr) -> Result<*mut Srq, c_int> {
    // SAFETY: the caller's.
    let c = unsafe { Context::of((*pd).context) };
    let limits = &c.config().limits;
    if attr.max_wr == 0 || attr.max_wr > limits.wrs || attr.max_sge > limits.sges {
        return Err(libc::EINVAL);
    }
    attr.max_sge = attr.max_sge.max(1);
    let host = c.host;
    let offset = host.arena.take(&host.me.mapping, size_of::<layout::Srq>()).map_err(code)?;
    let shared: &'static layout::Srq = host.me.mapping.at(offset).expect("it was just taken");
    // SAFETY: nobody knows of it yet.
    unsafe { Locked::init((&raw const shared.taking).cast_mut(), ()) };
    receives::create(&host.me, &host.arena, &shared.receives, attr.max_wr, attr.max_sge).map_err(code)?;
    // SAFETY: the caller's; and a plain C struct, of which zeros are a value.
    let (pd_, mut base) = unsafe { (root(pd), core::mem::zeroed::<ibv_srq>()) };
    pd_.users.fetch_add(1, Relaxed);
    // SAFETY: the caller's.
    (base.context, base.srq_context, base.pd) = (unsafe { (*pd).context }, context, pd);
    let srq = Box::into_raw(Box::new(Srq {
        base,
        offset,
        shared,
        posting: Mutex::new(()),
        users: AtomicU32::new(0),
        reported: AtomicU32::new(0),
        cq: core::ptr::null_mut(),
    }));
    // SAFETY: nobody uses it yet.
    unsafe { acks::init(&raw mut (*srq).base.mutex, &raw mut (*srq).base.cond) };
    shared.pd.store(pd_.number(), Relaxed);
    shared.events.store(c.queue.id, Relaxed);
    shared.name.store(srq as u64, Relaxed);
    host.live.lock().insert(srq as u64);
    Ok(srq)
}

/// Makes an SRQ.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the caller's.
    object(|| unsafe { create(pd, (*init).srq_context, &mut (*init).attr).map(<*mut Srq>::cast) })
}

/// Makes an SRQ, perhaps one of XRC, whose number says where it is.
pub unsafe extern "C" fn create_srq_ex(_ctx: *mut ibv_context, init: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq {
    const TYPE: u32 = 1;
    const PD: u32 = 2;
    const CQ: u32 = 8;
    const XRC: u32 = 1;
    object(|| {
        // SAFETY: the caller's.
        unsafe {
            let i = &mut *init;
            let kind = if i.comp_mask & TYPE != 0 { i.srq_type } else { 0 };
            if i.comp_mask & PD == 0 || kind > XRC || (kind == XRC && i.comp_mask & CQ == 0) {
                return Err(libc::EOPNOTSUPP);
            }
            let srq = create(i.pd, i.srq_context, &mut i.attr)?;
            if kind == XRC {
                let cq = Cq::of(i.cq);
                cq.users.fetch_add(1, Relaxed);
                (*srq).cq = i.cq;
                (*srq).shared.cq.store(cq.offset, Relaxed);
                (*srq).shared.number.store(((*srq).offset >> 6) as u32, core::sync::atomic::Ordering::Release);
            }
            Ok(srq.cast())
        }
    })
}

/// The number of an SRQ of XRC.
pub unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        *number = Srq::of(srq).shared.number.load(Relaxed);
        if *number == 0 { libc::EINVAL } else { 0 }
    }
}

/// Sets the limit below which an event is raised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    const MAX_WR: c_int = 1;
    const LIMIT: c_int = 2;
    errno(|| {
        if mask & MAX_WR != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        // SAFETY: the caller's.
        let (s, a) = unsafe { (Srq::of(srq), &*attr) };
        if mask & LIMIT != 0 {
            if a.srq_limit > s.shared.receives.slots.load(Relaxed) {
                return Err(libc::EINVAL);
            }
            s.shared.limit.store(a.srq_limit, Relaxed);
        }
        Ok(())
    })
}

/// What it is made of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let s = Srq::of(srq).shared;
        (*attr).max_wr = s.receives.slots.load(Relaxed);
        (*attr).max_sge = s.receives.elements.load(Relaxed);
        (*attr).srq_limit = s.limit.load(Relaxed);
    }
    0
}

/// Removes it. Waits until its events were acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    errno(|| {
        // SAFETY: the caller's: made above, and not used any more.
        unsafe {
            let s = Srq::of(srq);
            if s.users.load(Relaxed) != 0 {
                return Err(libc::EBUSY);
            }
            let host = Context::of((*srq).context).host;
            if host.is_inherited() {
                return Ok(());
            }
            host.live.lock().remove(&(srq as u64));
            let (m, v) = (&raw mut (*srq).mutex, &raw mut (*srq).cond);
            acks::wait(m, v, &raw const (*srq).events_completed, || s.reported.load(Relaxed));
            s.shared.number.store(0, Relaxed);
            if let Some(c) = s.cq.cast::<Cq>().as_ref() {
                let receives = s.offset + core::mem::offset_of!(layout::Srq, receives) as u64;
                c.polling.lock();
                crate::nic::cq::purge(&host.me, c.shared, 0, receives);
                c.polling.unlock();
            }
            {
                let _taking = s.shared.taking.lock();
                receives::destroy(&host.arena, &s.shared.receives);
            }
            host.arena.give_back(s.offset, size_of::<layout::Srq>());
            root((*srq).pd).users.fetch_sub(1, Relaxed);
            if !s.cq.is_null() {
                Cq::of(s.cq).users.fetch_sub(1, Relaxed);
            }
            drop(Box::from_raw(srq.cast::<Srq>()));
        }
        Ok(())
    })
}

/// Appends receives.
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    errno(|| {
        // SAFETY: the caller's.
        let (s, host) = unsafe { (Srq::of(srq), Context::of((*srq).context).host) };
        let _posting = s.posting.lock();
        // SAFETY: the caller's: a list of WRs.
        while let Some(w) = unsafe { wr.as_ref() } {
            // SAFETY: as above.
            let list = unsafe { elements(w.sg_list, w.num_sge) };
            let most = s.shared.receives.elements.load(Relaxed) as usize;
            let e = if list.len() > most {
                libc::EINVAL
            } else if receives::post(&host.me, &s.shared.receives, w.wr_id, list) {
                wr = w.next;
                continue;
            } else {
                libc::ENOMEM
            };
            // SAFETY: the caller's.
            unsafe { *bad = wr };
            return Err(e);
        }
        Ok(())
    })
}
