//! Where the WRs go that a UD QP has in flight: each has an address handle, and so a peer, of its own.
//!
//! A ring beside the queue's in-flight ring, with the same numbers. Written by the posting side under the queue's lock, read by
//! the polling side under the CQ's. What a peer counts, posted or gone, is what stands here, so it adds up.

use super::inflight::Totals;
use super::peer::Peer;
use crate::table::PtrMap;
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Peers by the addresses of their address handles.
pub type Handles = PtrMap<Peer>;

#[derive(Default)]
struct Datagram {
    /// Null: not known.
    peer: AtomicPtr<Peer>,
    bytes: AtomicU64,
    opcode: AtomicU32,
}

/// The datagrams of a queue.
pub struct Datagrams {
    ring: Box<[Datagram]>,
    handles: &'static Handles,
}

/// WRs to one peer that follow each other.
#[derive(Clone, Copy)]
pub struct Run {
    /// To whom; `None`: not known.
    pub peer: Option<&'static Peer>,
    /// Of what opcode, where runs are of one.
    pub opcode: u32,
    /// How many, and their bytes.
    pub wrs: Totals,
    /// Bytes of the last one.
    pub last_bytes: u64,
    /// Number of the last one.
    pub last: u64,
}

impl Datagrams {
    /// For a ring of so many entries, a power of two. `None`: no memory.
    pub fn new(capacity: usize, handles: &'static Handles) -> Option<Datagrams> {
        let mut ring = Vec::new();
        ring.try_reserve_exact(capacity).ok()?;
        ring.resize_with(capacity, Datagram::default);
        Some(Datagrams { ring: ring.into_boxed_slice(), handles })
    }

    /// The peer behind an address handle, if it is one of this port; records by index.
    pub fn peer<H>(&self, handle: *const H, port: u32) -> Option<&'static Peer> {
        self.handles.get_near(handle as usize).filter(|p| p.port == port)
    }

    fn place(&self, number: u64) -> Option<&Datagram> {
        self.ring.get(number as usize & (self.ring.len() - 1))
    }

    /// The WR of this number goes to `peer`. The ring is published afterwards.
    pub fn note(&self, number: u64, peer: Option<&'static Peer>, bytes: u64, opcode: u32) {
        if let Some(p) = self.place(number) {
            p.peer.store(peer.map_or(null_mut(), |p| core::ptr::from_ref(p).cast_mut()), Relaxed);
            p.bytes.store(bytes, Relaxed);
            p.opcode.store(opcode, Relaxed);
        }
    }

    fn at(&self, number: u64) -> Option<Run> {
        let p = self.place(number)?;
        let (bytes, opcode) = (p.bytes.load(Relaxed), p.opcode.load(Relaxed));
        // SAFETY: only `note` stores here, `'static` references.
        let peer: Option<&'static Peer> = unsafe { p.peer.load(Relaxed).as_ref() };
        Some(Run { peer, opcode, wrs: Totals { wr: 1, bytes }, last_bytes: bytes, last: number })
    }

    /// Calls `each` with the runs of these WRs, in order; `apart`: of one opcode each.
    pub fn runs(&self, numbers: Range<u64>, apart: bool, mut each: impl FnMut(Run)) {
        let mut all = numbers.filter_map(|n| self.at(n));
        let Some(mut run) = all.next() else { return };
        for next in all {
            if is_same(run.peer, next.peer) && (!apart || run.opcode == next.opcode) {
                run.wrs.wr += 1;
                run.wrs.bytes = run.wrs.bytes.wrapping_add(next.wrs.bytes);
                (run.last, run.last_bytes) = (next.last, next.last_bytes);
            } else {
                each(run);
                run = next;
            }
        }
        each(run);
    }

    /// The provider took the WRs of these numbers.
    pub fn accepted(&self, numbers: Range<u64>) {
        self.runs(numbers, true, |run| {
            run.peer.inspect(|p| p.posted(run.opcode, run.wrs));
        });
    }

    /// They left the queue without completions.
    pub fn dropped(&self, numbers: Range<u64>) {
        self.runs(numbers, false, |run| {
            run.peer.inspect(|p| p.dropped(run.wrs));
        });
    }
}

fn is_same(a: Option<&Peer>, b: Option<&Peer>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => core::ptr::eq(a, b),
        (None, None) => true,
        _ => false,
    }
}
