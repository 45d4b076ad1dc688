//! Asynchronous events.

use super::cq::Cq;
use super::device::Context;
use super::qp::CQp;
use super::srq::Srq;
use super::{acks, code, minus_one};
use core::sync::atomic::Ordering::SeqCst;
use rdma_sys::*;
use std::ffi::c_int;

/// What an event is about.
enum About {
    Cq,
    Srq,
    Qp,
    Port,
}

fn about(kind: u32) -> About {
    match kind {
        0 => About::Cq,
        14 | 15 => About::Srq,
        1..=7 | 16 => About::Qp,
        _ => About::Port,
    }
}

/// Waits for an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(ctx: *mut ibv_context, out: *mut ibv_async_event) -> c_int {
    minus_one(|| {
        // SAFETY: the caller's.
        let c = unsafe { Context::of(ctx) };
        loop {
            let event = c.queue.next().map_err(code)?;
            let live = c.host.live.lock();
            let about = about(event.kind);
            if !matches!(about, About::Port) && !live.contains(&event.name) {
                continue;
            }
            // SAFETY: the object is live, and cannot go before the set is unlocked and its events are acknowledged; the
            // kind is one of the enumeration's, as this library appends no other.
            unsafe {
                match about {
                    About::Cq => _ = Cq::of(event.name as *mut ibv_cq).async_reported.fetch_add(1, SeqCst),
                    About::Srq => _ = Srq::of(event.name as *mut ibv_srq).reported.fetch_add(1, SeqCst),
                    About::Qp => _ = CQp::of(event.name as *mut ibv_qp).reported.fetch_add(1, SeqCst),
                    About::Port => {}
                }
                (&raw mut (*out).element).cast::<u64>().write(event.name);
                (&raw mut (*out).event_type).cast::<u32>().write(event.kind.min(19));
            }
            return Ok(());
        }
    })
}

/// Acknowledges an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller's: an event that it got, about a live object.
    unsafe {
        match about((*event).event_type as u32) {
            About::Cq => {
                let cq = (*event).element.cq;
                acks::add(&raw mut (*cq).mutex, &raw mut (*cq).cond, &raw mut (*cq).async_events_completed, 1);
            }
            About::Srq => {
                let srq = (*event).element.srq;
                acks::add(&raw mut (*srq).mutex, &raw mut (*srq).cond, &raw mut (*srq).events_completed, 1);
            }
            About::Qp => {
                let qp = (*event).element.qp;
                acks::add(&raw mut (*qp).mutex, &raw mut (*qp).cond, &raw mut (*qp).events_completed, 1);
            }
            About::Port => {}
        }
    }
}
