//! Completion queues and their channels.

use super::device::Context;
use super::{acks, code, errno, minus_one, object};
use crate::nic::cq as queue;
use crate::nic::events::Queue;
use crate::nic::host::Host;
use crate::shared::layout::{self, Completion};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;
use rdma_sys::*;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;

/// A channel.
#[repr(C)]
pub struct Channel {
    base: ibv_comp_channel,
    queue: Queue,
    users: AtomicU32,
}

/// A CQ.
#[repr(C)]
pub struct Cq {
    /// As the program sees it. A CQ that was made by the plain call is the beginning of this one.
    pub ex: ibv_cq_ex,
    /// Where it is in the segment.
    pub offset: u64,
    /// As peers see it.
    pub shared: &'static layout::Cq,
    /// Held by whoever polls.
    pub polling: RawMutex,
    /// What the extended interface looks at.
    pub current: Completion,
    /// QPs and SRQs that use it.
    pub users: AtomicU32,
    /// Polls in vain, one after the other.
    pub vain: AtomicU32,
    reported: AtomicU32,
    /// Asynchronous events.
    pub async_reported: AtomicU32,
}

impl Cq {
    /// Of the CQ that the program has.
    pub unsafe fn of<'a>(cq: *mut ibv_cq) -> &'a Cq {
        // SAFETY: the caller's: made by `create`.
        unsafe { &*cq.cast() }
    }
}

/// Makes a CQ.
pub unsafe fn create(
    ctx: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
) -> Result<*mut Cq, c_int> {
    // SAFETY: the caller's.
    let c = unsafe { Context::of(ctx) };
    if cqe == 0 || cqe > c.config().limits.cqes || vector >= 4 {
        return Err(libc::EINVAL);
    }
    let host = c.host;
    // One more than asked for, as NICs give.
    let offset = queue::create(&host.me, &host.arena, cqe + 1).map_err(code)?;
    let shared: &'static layout::Cq = host.me.mapping.at(offset).expect("it was just made");
    // SAFETY: a plain C struct, of which zeros are a value.
    let mut ex: ibv_cq_ex = unsafe { core::mem::zeroed() };
    (ex.context, ex.channel, ex.cq_context, ex.cqe) = (ctx, channel, cq_context, cqe as c_int);
    let cq = Box::into_raw(Box::new(Cq {
        ex,
        offset,
        shared,
        polling: RawMutex::INIT,
        current: Completion::default(),
        users: AtomicU32::new(0),
        vain: AtomicU32::new(0),
        reported: AtomicU32::new(0),
        async_reported: AtomicU32::new(0),
    }));
    // SAFETY: nobody uses it yet; the channel is the caller's.
    unsafe {
        acks::init(&raw mut (*cq).ex.mutex, &raw mut (*cq).ex.cond);
        if let Some(ch) = channel.cast::<Channel>().as_ref() {
            ch.users.fetch_add(1, Relaxed);
            shared.channel.store(ch.queue.id, Relaxed);
        }
    }
    shared.events.store(c.queue.id, Relaxed);
    shared.name.store(cq as u64, Relaxed);
    host.live.lock().insert(cq as u64);
    Ok(cq)
}

/// Makes a CQ.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    ctx: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    let positive = |n: c_int| u32::try_from(n).map_err(|_| libc::EINVAL);
    // SAFETY: the caller's.
    object(|| unsafe { create(ctx, positive(cqe)?, cq_context, channel, positive(vector)?).map(<*mut Cq>::cast) })
}

/// Changes its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    errno(|| {
        // SAFETY: the caller's.
        let (c, ctx) = unsafe { (Cq::of(cq), Context::of((*cq).context)) };
        let slots = u32::try_from(cqe).ok().filter(|n| *n > 0 && *n <= ctx.config().limits.cqes).ok_or(libc::EINVAL)?;
        c.polling.lock();
        let done = queue::resize(&ctx.host.me, &ctx.host.arena, c.shared, slots + 1);
        // SAFETY: locked above; the field is the program's to read only.
        unsafe {
            if matches!(done, Ok(true)) {
                (*cq).cqe = cqe;
            }
            c.polling.unlock();
        }
        if done.map_err(code)? { Ok(()) } else { Err(libc::EINVAL) }
    })
}

/// Removes it. Waits until its events were acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    errno(|| {
        // SAFETY: the caller's.
        let (c, host) = unsafe { (Cq::of(cq), Context::of((*cq).context).host) };
        if c.users.load(Relaxed) != 0 {
            return Err(libc::EBUSY);
        }
        if host.is_inherited() {
            return Ok(());
        }
        host.live.lock().remove(&(cq as u64));
        // SAFETY: the caller's: made above, and not used any more.
        unsafe {
            let (m, v) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
            acks::wait(m, v, &raw const (*cq).comp_events_completed, || c.reported.load(Relaxed));
            acks::wait(m, v, &raw const (*cq).async_events_completed, || c.async_reported.load(Relaxed));
            if let Some(ch) = (*cq).channel.cast::<Channel>().as_ref() {
                ch.users.fetch_sub(1, Relaxed);
            }
            queue::destroy(&host.me, &host.arena, c.offset);
            drop(Box::from_raw(cq.cast::<Cq>()));
        }
        Ok(())
    })
}

/// As the verbs show a completion.
pub fn wc(c: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: c.id,
        status: c.status,
        opcode: c.opcode,
        vendor_err: c.vendor_err,
        byte_len: c.bytes,
        imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t { imm_data: c.extra },
        qp_num: c.qp,
        src_qp: c.source,
        wc_flags: c.flags,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// Nothing was there. Whoever waits like this for long may keep from running what he waits for.
pub fn in_vain(c: &Cq, host: &Host) {
    let n = c.vain.load(Relaxed) + 1;
    let enough = host.config.polls_before_yield;
    c.vain.store(if n >= enough { 0 } else { n }, Relaxed);
    if enough > 0 && n >= enough {
        // SAFETY: without demands.
        unsafe { libc::sched_yield() };
    }
}

/// Does what is due, and takes completions.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, n: c_int, out: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's.
    let (c, host) = unsafe { (Cq::of(cq), Context::of((*cq).context).host) };
    let mut got = 0;
    let e = errno(|| {
        if host.is_inherited() {
            return Ok(());
        }
        host.engine.poll(host);
        host.attend_if_asked();
        if queue::is_empty(c.shared) {
            in_vain(c, host);
            return Ok(());
        }
        c.vain.store(0, Relaxed);
        c.polling.lock();
        while got < n {
            let Some(completion) = queue::poll(&host.me, c.shared) else { break };
            // SAFETY: the caller's: room for `n`.
            unsafe { out.add(got as usize).write(wc(&completion)) };
            got += 1;
        }
        // SAFETY: locked above.
        unsafe { c.polling.unlock() };
        Ok(())
    });
    if e != 0 { -e } else { got }
}

/// Asks for an event.
pub unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's.
    let c = unsafe { Cq::of(cq) };
    if c.ex.channel.is_null() {
        return libc::EINVAL;
    }
    queue::arm(c.shared, solicited_only != 0);
    0
}

/// Moderation is accepted: each completion is its own moment here.
pub unsafe extern "C" fn modify_cq(_cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: the caller's.
    if unsafe { (*attr).attr_mask } & !1 != 0 { libc::EINVAL } else { 0 }
}

/// Makes a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(ctx: *mut ibv_context) -> *mut ibv_comp_channel {
    object(|| {
        // SAFETY: the caller's.
        let queue = unsafe { Context::of(ctx) }.host.queue().map_err(code)?;
        let base = ibv_comp_channel { context: ctx, fd: queue.file.as_raw_fd(), refcnt: 0 };
        Ok(Box::into_raw(Box::new(Channel { base, queue, users: AtomicU32::new(0) })).cast())
    })
}

/// Removes it, if no CQ uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    errno(|| {
        // SAFETY: the caller's: made above, and not used any more.
        unsafe {
            if (*channel.cast::<Channel>()).users.load(Relaxed) != 0 {
                return Err(libc::EBUSY);
            }
            drop(Box::from_raw(channel.cast::<Channel>()));
        }
        Ok(())
    })
}

/// Waits for an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    out: *mut *mut ibv_cq,
    out_context: *mut *mut c_void,
) -> c_int {
    minus_one(|| {
        // SAFETY: the caller's.
        let ch: &Channel = unsafe { &*channel.cast() };
        // SAFETY: as above.
        let host = unsafe { Context::of(ch.base.context) }.host;
        loop {
            let event = ch.queue.next().map_err(code)?;
            let live = host.live.lock();
            // A CQ may be destroyed while events about it wait.
            if live.contains(&event.name) {
                let cq = event.name as *mut ibv_cq;
                // SAFETY: it is live, and cannot go before the set is unlocked and its events are acknowledged.
                unsafe {
                    Cq::of(cq).reported.fetch_add(1, SeqCst);
                    *out = cq;
                    *out_context = (*cq).cq_context;
                }
                return Ok(());
            }
        }
    })
}

/// Acknowledges events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, n: u32) {
    // SAFETY: the caller's.
    unsafe { acks::add(&raw mut (*cq).mutex, &raw mut (*cq).cond, &raw mut (*cq).comp_events_completed, n) }
}
