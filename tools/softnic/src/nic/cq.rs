//! Completion queues: whoever completes something appends, the owner polls.

use super::events::{COMPLETION, Event};
use super::host::Host;
use super::peer::Peer;
use crate::shared::arena::Arena;
use crate::shared::layout::{Completion, Cq, Receives};
use crate::shared::lock::Locked;
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use std::io;

/// `IBV_EVENT_CQ_ERR`.
const CQ_ERR: u32 = 0;

fn bytes(slots: u32) -> usize {
    slots as usize * size_of::<Completion>()
}

/// Makes a CQ and returns where.
pub fn create(me: &Peer, arena: &Arena, slots: u32) -> io::Result<u64> {
    let offset = arena.take(&me.mapping, size_of::<Cq>())?;
    let ring = arena.take(&me.mapping, bytes(slots))?;
    let cq: &Cq = me.mapping.at(offset).expect("it was just taken");
    // SAFETY: nobody knows of it yet.
    unsafe { Locked::init((&raw const cq.appending).cast_mut(), ()) };
    for counter in [&cq.head, &cq.tail, &cq.name] {
        counter.store(0, Relaxed);
    }
    for field in [&cq.armed, &cq.channel, &cq.events, &cq.overrun] {
        field.store(0, Relaxed);
    }
    cq.ring.store(ring, Relaxed);
    cq.slots.store(slots, Release);
    Ok(offset)
}

/// Takes its memory back.
pub fn destroy(me: &Peer, arena: &Arena, offset: u64) {
    let cq: &Cq = me.mapping.at(offset).expect("it exists");
    {
        let _appending = cq.appending.lock();
        arena.give_back(cq.ring.load(Relaxed), bytes(cq.slots.swap(0, Relaxed)));
    }
    arena.give_back(offset, size_of::<Cq>());
}

/// Changes its size; nobody polls meanwhile. False: more completions wait than would fit.
pub fn resize(me: &Peer, arena: &Arena, cq: &Cq, slots: u32) -> io::Result<bool> {
    let ring = arena.take(&me.mapping, bytes(slots))?;
    let _appending = cq.appending.lock();
    let (head, tail) = (cq.head.load(Relaxed), cq.tail.load(Relaxed));
    if tail - head > u64::from(slots) {
        arena.give_back(ring, bytes(slots));
        return Ok(false);
    }
    for at in head..tail {
        let (Some(from), Some(to)) = (slot(me, cq, at), at_ring(me, ring, slots, at)) else { continue };
        // SAFETY: both lie inside the mapping, and the lock keeps all others out.
        unsafe { to.write(from.read()) };
    }
    let old = (cq.ring.swap(ring, Relaxed), cq.slots.swap(slots, Release));
    arena.give_back(old.0, bytes(old.1));
    Ok(true)
}

fn at_ring(peer: &Peer, ring: u64, slots: u32, at: u64) -> Option<*mut Completion> {
    let index = at % u64::from(slots.max(1));
    let place = peer.mapping.raw(ring + index * size_of::<Completion>() as u64, size_of::<Completion>())?;
    Some(place.cast())
}

fn slot(peer: &Peer, cq: &Cq, at: u64) -> Option<*mut Completion> {
    at_ring(peer, cq.ring.load(Relaxed), cq.slots.load(Relaxed), at)
}

/// Appends a completion to a CQ of whomever. False: there is no room, and its owner is told.
pub fn append(host: &Host, peer: &Peer, offset: u64, completion: Completion, solicited: bool) -> bool {
    let Some(cq) = peer.mapping.at::<Cq>(offset) else { return false };
    let armed = {
        let _appending = cq.appending.lock();
        let (head, tail) = (cq.head.load(Acquire), cq.tail.load(Relaxed));
        let full = tail.wrapping_sub(head) >= u64::from(cq.slots.load(Relaxed));
        let place = slot(peer, cq, tail).filter(|_| !full && cq.overrun.load(Relaxed) == 0);
        let Some(place) = place else {
            if cq.overrun.swap(1, Relaxed) == 0 {
                let event = Event { kind: CQ_ERR, name: cq.name.load(Relaxed) };
                peer.notify(&host.registry, cq.events.load(Relaxed), event);
            }
            return false;
        };
        // SAFETY: the slot is inside the mapping, and the owner does not read it before the tail says so.
        unsafe { place.write(completion) };
        // SYNC POINT: pairs with the load in `poll`; and with `arm`: either it sees the completion, or this the request.
        cq.tail.store(tail + 1, SeqCst);
        match cq.armed.load(SeqCst) {
            1 => cq.armed.swap(0, SeqCst) != 0,
            2 if solicited || completion.status != 0 => cq.armed.swap(0, SeqCst) != 0,
            _ => false,
        }
    };
    if armed {
        peer.notify(&host.registry, cq.channel.load(Relaxed), Event { kind: COMPLETION, name: cq.name.load(Relaxed) });
    }
    true
}

/// Asks for an event.
pub fn arm(cq: &Cq, solicited_only: bool) {
    // A request for any completion is not weakened by one for a solicited one.
    if !solicited_only || cq.armed.load(SeqCst) != 1 {
        cq.armed.store(if solicited_only { 2 } else { 1 }, SeqCst);
    }
}

/// Whether there is nothing to poll.
#[inline]
pub fn is_empty(cq: &Cq) -> bool {
    cq.tail.load(SeqCst) == cq.head.load(Relaxed)
}

/// Takes the oldest completion, for the owner, one thread at a time.
pub fn poll(me: &Peer, cq: &Cq) -> Option<Completion> {
    let head = cq.head.load(Relaxed);
    // SYNC POINT: pairs with the store in `append`.
    if cq.tail.load(Acquire) == head {
        return None;
    }
    // SAFETY: the slot is inside the mapping, and was filled before the tail passed it.
    let completion = unsafe { slot(me, cq, head)?.read() };
    cq.head.store(head + 1, Release);
    if completion.receives != 0 {
        if let Some(q) = me.mapping.at::<Receives>(completion.receives) {
            q.polled.fetch_add(1, Release);
        }
    } else if let Some(qp) = me.qp(completion.qp) {
        qp.sends_polled.fetch_max(completion.sends, Release);
    }
    Some(completion)
}

/// Takes out what a QP, or an SRQ that has its receives at some offset, left there; nobody polls meanwhile.
pub fn purge(me: &Peer, cq: &Cq, qp: u32, receives: u64) {
    let _appending = cq.appending.lock();
    let (head, tail) = (cq.head.load(Relaxed), cq.tail.load(Relaxed));
    let mut kept = tail;
    // From the newest to the oldest, so that what stays moves towards the tail.
    for at in (head..tail).rev() {
        let (Some(from), Some(to)) = (slot(me, cq, at), slot(me, cq, kept.wrapping_sub(1))) else { continue };
        // SAFETY: both lie inside the mapping; the lock keeps those out who append, the caller those who poll.
        unsafe {
            let c = from.read();
            let goes = c.qp == qp || (receives != 0 && c.receives == receives);
            if !goes {
                to.write(c);
                kept -= 1;
            }
        }
    }
    cq.head.store(kept, Release);
}
