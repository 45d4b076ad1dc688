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
    #[inline(always)]
    pub fn peer<H>(&self, handle: *const H, port: u32) -> Option<&'static Peer> {
        self.handles.get_near(handle as usize).filter(|p| p.port == port)
    }

    #[inline(always)]
    fn place(&self, number: u64) -> Option<&Datagram> {
        self.ring.get(number as usize & (self.ring.len() - 1))
    }

    /// The WR of this number goes to `peer`. The ring is published afterwards.
    #[inline(always)]
    pub fn note(&self, number: u64, peer: Option<&'static Peer>, bytes: u64, opcode: u32) {
        if let Some(p) = self.place(number) {
            p.peer.store(peer.map_or(null_mut(), |p| core::ptr::from_ref(p).cast_mut()), Relaxed);
            p.bytes.store(bytes, Relaxed);
            p.opcode.store(opcode, Relaxed);
        }
    }

    #[inline(always)]
    fn at(&self, number: u64) -> Option<Run> {
        let p = self.place(number)?;
        let (bytes, opcode) = (p.bytes.load(Relaxed), p.opcode.load(Relaxed));
        // SAFETY: only `note` stores here, `'static` references.
        let peer: Option<&'static Peer> = unsafe { p.peer.load(Relaxed).as_ref() };
        Some(Run { peer, opcode, wrs: Totals { wr: 1, bytes }, last_bytes: bytes, last: number })
    }

    /// Calls `each` with the runs of these WRs, in order; `apart`: of one opcode each.
    #[inline(always)]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::model::Counters;
    use crate::telemetry::peer::Completion;
    use crate::telemetry::testing::peer;

    static HANDLES: Handles = PtrMap::new();

    fn sends(p: &Peer) -> Counters {
        Counters::sends(&p.record.retired.send_post, &p.record.retired.send_done)
    }

    #[test]
    fn each_run_is_its_peers_round_the_end_of_the_ring() {
        let (a, b) = (peer(1), peer(2));
        let d = Datagrams::new(8, &HANDLES).unwrap();
        let to = [Some(a), Some(a), None, Some(b), Some(a), Some(a)];
        (6..).zip(to).for_each(|(n, p)| d.note(n, p, n * 10, if n < 11 { 2 } else { 3 }));
        let runs = |apart| {
            let mut all = Vec::new();
            d.runs(6..12, apart, |r| all.push((r.peer.map(|p| p.index), r.wrs.wr, r.wrs.bytes, r.last, r.last_bytes)));
            all
        };
        let first = [(Some(1), 2, 130, 7, 70), (None, 1, 80, 8, 80), (Some(2), 1, 90, 9, 90)];
        assert_eq!(runs(false), [&first[..], &[(Some(1), 2, 210, 11, 110)]].concat());
        assert_eq!(runs(true), [&first[..], &[(Some(1), 1, 100, 10, 100), (Some(1), 1, 110, 11, 110)]].concat());
        d.accepted(6..12);
        d.dropped(9..11);
        let of = |p| (sends(p).wr_posted, sends(p).bytes_posted, sends(p).wr_dropped, sends(p).bytes_outstanding);
        assert_eq!((of(a), of(b)), ((4, 340, 1, 240), (1, 90, 1, 0)));
        let by_opcode = |i: usize| a.record.retired.detail.opcodes[i].wr.load(Relaxed);
        assert_eq!((by_opcode(2), by_opcode(3)), (3, 1));
        d.accepted(12..12);
        assert_eq!(of(b), (1, 90, 1, 0));
    }

    #[test]
    fn a_peer_counts_what_several_threads_send() {
        const EACH: u64 = 20_000;
        let p = peer(1);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let d = Datagrams::new(8, &HANDLES).unwrap();
                    for n in 0..EACH {
                        d.note(n, Some(p), 3, 2);
                        d.accepted(n..n + 1);
                        let failed = u32::from(n % 10 == 0);
                        let completion = Completion { status: failed * 5, failed: u64::from(failed) * 3 };
                        p.ended(Totals { wr: 1, bytes: 3 }, Some(completion));
                    }
                });
            }
        });
        let c = sends(p);
        assert_eq!((c.wr_posted, c.wr_completed, c.wr_failed), (4 * EACH, 4 * EACH * 9 / 10, 4 * EACH / 10));
        assert_eq!((c.bytes_posted, c.bytes_failed, c.cqes), (12 * EACH, 12 * EACH / 10, 4 * EACH));
        assert!((1..=4).contains(&c.wr_high_water), "{}", c.wr_high_water);
        assert_eq!(p.record.retired.detail.send_errors.by_status[5].load(Relaxed), 4 * EACH / 10);
    }
}
