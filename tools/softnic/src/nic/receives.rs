//! Queues of receives: their owner fills them, whoever sends to it takes from them.

use super::peer::Peer;
use crate::shared::arena::Arena;
use crate::shared::layout::{Element, MAX_SGE, Receive, Receives};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::io;

/// Gives a queue its memory.
pub fn create(me: &Peer, arena: &Arena, q: &Receives, slots: u32, elements: u32) -> io::Result<()> {
    if slots > 0 {
        q.ring.store(arena.take(&me.mapping, slots as usize * Receive::bytes(elements as usize))?, Relaxed);
    }
    q.elements.store(elements, Relaxed);
    q.slots.store(slots, Release);
    Ok(())
}

/// Takes the memory back.
pub fn destroy(arena: &Arena, q: &Receives) {
    let slots = q.slots.swap(0, Relaxed) as usize;
    if slots > 0 {
        arena.give_back(q.ring.load(Relaxed), slots * Receive::bytes(q.elements.load(Relaxed) as usize));
    }
}

/// How many can be taken.
pub fn len(q: &Receives) -> u64 {
    q.tail.load(Acquire).wrapping_sub(q.head.load(Acquire))
}

fn slot(peer: &Peer, q: &Receives, at: u64) -> Option<*mut u8> {
    let bytes = Receive::bytes((q.elements.load(Relaxed) as usize).min(MAX_SGE));
    let slots = u64::from(q.slots.load(Acquire)).max(1);
    peer.mapping.raw(q.ring.load(Relaxed) + at % slots * bytes as u64, bytes)
}

/// Appends, for the owner, one thread at a time. False: full.
pub fn post(me: &Peer, q: &Receives, id: u64, elements: &[Element]) -> bool {
    let tail = q.tail.load(Relaxed);
    // A slot is free once its completion was polled, as behind a NIC: a full queue never overruns its CQ.
    if tail.wrapping_sub(q.polled.load(Acquire)) >= u64::from(q.slots.load(Relaxed)) {
        return false;
    }
    let Some(at) = slot(me, q, tail) else { return false };
    // SAFETY: the slot is inside the mapping, long enough for as many elements as the queue takes (the caller checked),
    // and nobody reads it before the tail says so.
    unsafe {
        at.cast::<u64>().write(id);
        at.add(8).cast::<u32>().write(elements.len() as u32);
        let list = at.add(core::mem::offset_of!(Receive, elements)).cast::<Element>();
        list.copy_from_nonoverlapping(elements.as_ptr(), elements.len());
    }
    // SYNC POINT: pairs with the Acquire in `take`.
    q.tail.store(tail + 1, Release);
    true
}

/// Forgets all, for the owner, who keeps others out.
pub fn clear(q: &Receives) {
    let tail = q.tail.load(Relaxed);
    q.head.store(tail, Relaxed);
    q.polled.store(tail, Release);
}

/// Takes the oldest, one process at a time.
pub fn take(peer: &Peer, q: &Receives, into: &mut Receive) -> bool {
    let head = q.head.load(Relaxed);
    // SYNC POINT: pairs with the Release in `post`.
    if q.tail.load(Acquire) == head {
        return false;
    }
    let Some(at) = slot(peer, q, head) else { return false };
    // SAFETY: the slot is inside the mapping and was filled; as many elements are read as the queue takes at most.
    unsafe {
        into.id = at.cast::<u64>().read();
        into.n = at.add(8).cast::<u32>().read().min(q.elements.load(Relaxed)).min(MAX_SGE as u32);
        let list = at.add(core::mem::offset_of!(Receive, elements)).cast::<Element>();
        into.elements.as_mut_ptr().copy_from_nonoverlapping(list, into.n as usize);
    }
    q.head.store(head + 1, Release);
    true
}
