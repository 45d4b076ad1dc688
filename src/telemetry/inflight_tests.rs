//! The ring against a plain list of work requests.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Wr {
    id: u64,
    bytes: u64,
    signaled: bool,
}

/// What the ring must do, said simply.
#[derive(Default)]
struct Model(VecDeque<Wr>, Totals);

impl Model {
    /// What is retired now in all, and what failed.
    fn retire(&mut self, id: u64, failing: bool) -> Option<(Totals, Totals)> {
        let at = self.0.iter().position(|w| w.id == id && (failing || w.signaled))?;
        let mut failed = Totals::default();
        for (i, w) in self.0.drain(..=at).enumerate() {
            self.1 = Totals { wr: self.1.wr + 1, bytes: self.1.bytes + w.bytes };
            if failing && i == at {
                failed = Totals { wr: 1, bytes: w.bytes };
            }
        }
        Some((self.1, failed))
    }
}

/// The ring and what its users keep for it.
struct Queue {
    ring: Inflight,
    tail: Tail,
    posted: Totals,
    retired: Totals,
}

impl Queue {
    fn new(depth: u32) -> Queue {
        Queue {
            ring: Inflight::new(depth).unwrap(),
            tail: Tail::default(),
            posted: Totals::default(),
            retired: Totals::default(),
        }
    }

    fn post(&mut self, chain: &[Wr], refused: Totals) {
        let mut c = self.ring.start(self.posted);
        for wr in chain {
            c = push(&self.ring, &mut self.tail, c, *wr);
        }
        // SAFETY: one thread.
        c = unsafe { self.ring.take_back(c, refused) };
        self.ring.publish(c);
        self.posted = c.posted;
    }

    /// Returns what this completion retired.
    fn complete(&mut self, id: u64) -> Option<Totals> {
        // SAFETY: one thread.
        let end = unsafe { self.ring.complete(id) }?.end;
        let done = end.since(self.retired);
        self.retired = end;
        Some(done)
    }
}

fn push(ring: &Inflight, tail: &mut Tail, c: Cursor, wr: Wr) -> Cursor {
    // SAFETY: one thread.
    unsafe { ring.push(tail, c, wr.id, wr.bytes, if wr.signaled { SIGNALED } else { 0 }) }
}

fn wr() -> impl Strategy<Value = Wr> {
    (0u64..4, 0u64..1000, any::<bool>()).prop_map(|(id, bytes, signaled)| Wr { id, bytes, signaled })
}

#[derive(Clone, Debug)]
enum Op {
    /// Post a chain of which only the first `accepted` are taken (all if larger).
    Post(Vec<Wr>, usize),
    Complete(u64),
    Fail(u64),
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (proptest::collection::vec(wr(), 1..6), 0usize..12).prop_map(|(c, n)| Op::Post(c, n)),
        5 => (0u64..4).prop_map(Op::Complete),
        1 => (0u64..4).prop_map(Op::Fail),
        1 => Just(Op::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn every_completion_retires_what_it_covers(ops in proptest::collection::vec(op(), 0..80)) {
        // Deep enough that nothing is merged; merging has a test of its own.
        let (mut q, mut model) = (Queue::new(1024), Model::default());
        for op in ops {
            match op {
                Op::Post(chain, accepted) => {
                    let n = accepted.min(chain.len());
                    let refused = &chain[n..];
                    let bytes = refused.iter().map(|w| w.bytes).sum();
                    q.post(&chain, Totals { wr: refused.len() as u64, bytes });
                    model.0.extend(&chain[..n]);
                }
                Op::Complete(id) => {
                    let done = q.complete(id).map(|_| (q.retired, Totals::default()));
                    prop_assert_eq!(done, model.retire(id, false));
                }
                Op::Fail(id) => {
                    // SAFETY: one thread.
                    let got = unsafe { q.ring.fail(id, q.retired) }.map(|(r, failed)| (r.end, failed));
                    prop_assert_eq!(got, model.retire(id, true));
                    q.retired = got.map_or(q.retired, |(end, _)| end);
                }
                Op::Clear => {
                    // SAFETY: one thread.
                    unsafe { q.ring.clear() };
                    q.retired = q.posted;
                    model.0.clear();
                    model.1 = q.posted;
                }
            }
            prop_assert_eq!(q.posted.since(q.retired).wr, model.0.len() as u64);
            prop_assert_eq!(q.posted.since(q.retired).bytes, model.0.iter().map(|w| w.bytes).sum::<u64>());
        }
    }
}

#[test]
fn a_queue_deeper_than_it_said_loses_no_count() {
    let mut q = Queue::new(8);
    let chain: Vec<Wr> = (0..40).map(|id| Wr { id, bytes: 10, signaled: true }).collect();
    q.post(&chain, Totals::default());
    for i in 0..16 {
        assert_eq!(q.complete(i), Some(Totals { wr: 1, bytes: 10 }));
    }
    // Entries 16 to 39 found no room; the next one carries them.
    q.post(&[Wr { id: 99, bytes: 10, signaled: true }], Totals::default());
    assert_eq!(q.complete(99), Some(Totals { wr: 25, bytes: 250 }));
}

/// A full queue is polled empty, and filled again before the completions of that poll are retired.
#[test]
fn a_queue_refilled_during_a_poll_keeps_every_entry() {
    let mut q = Queue::new(64);
    for id in 0..128 {
        q.post(&[Wr { id, bytes: 1, signaled: true }], Totals::default());
    }
    for id in 0..128 {
        assert_eq!(q.complete(id), Some(Totals { wr: 1, bytes: 1 }), "{id}");
    }
}

#[test]
fn a_stamp_comes_back_without_its_flag() {
    let (ring, mut tail) = (Inflight::new(8).unwrap(), Tail::default());
    for (id, stamp) in [(1, 0), (2, 12345)] {
        let c = ring.start(Totals::default());
        // SAFETY: one thread.
        ring.publish(unsafe { ring.push(&mut tail, c, id, 1, SIGNALED | stamp) });
        // SAFETY: one thread.
        let r = unsafe { ring.complete(id) }.unwrap();
        assert_eq!((r.is_timed(), r.stamp()), (stamp != 0, stamp));
    }
}

#[test]
fn poster_and_poller_on_two_threads_agree() {
    let ring = Inflight::new(64).unwrap();
    const N: u64 = 200_000;
    let credits = AtomicU64::new(0);
    std::thread::scope(|s| {
        s.spawn(|| {
            let (mut tail, mut posted) = (Tail::default(), Totals::default());
            for i in 0..N {
                while i - credits.load(Acquire) >= 64 {
                    std::thread::yield_now();
                }
                let c = push(&ring, &mut tail, ring.start(posted), Wr { id: i, bytes: i, signaled: i % 4 == 3 });
                posted = c.posted;
                ring.publish(c);
            }
        });
        let mut end = Totals::default();
        for i in (3..N).step_by(4) {
            end = loop {
                // SAFETY: the only poller.
                match unsafe { ring.complete(i) } {
                    Some(r) => break r.end,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(end.wr, i + 1);
            credits.store(end.wr, Release);
        }
        assert_eq!(end.bytes, N * (N - 1) / 2);
    });
}

#[test]
fn a_queue_with_a_limit_says_how_much_room_is_left_and_what_is_open() {
    let mut q = Queue::new(64);
    q.ring.set_limit(3);
    q.tail.is_due(&q.ring.start(q.posted), 0);
    let wr = |id, signaled| Wr { id, bytes: 1, signaled };
    q.post(&[wr(1, true), wr(2, false)], Totals::default());
    q.ring.noted(&mut q.tail);
    assert_eq!((q.ring.room(), q.ring.is_everyday(&q.tail)), (1, true));
    q.post(&[wr(3, true)], Totals::default());
    assert_eq!((q.ring.room(), q.ring.is_everyday(&q.tail)), (0, false), "the limit needs a look");
    // SAFETY: one thread.
    let open = |q: &Queue| unsafe { q.ring.open() }.collect::<Vec<_>>();
    assert_eq!(open(&q), [(1, true), (2, false), (3, true)]);
    q.complete(1);
    assert_eq!((q.ring.room(), open(&q)), (1, vec![(2, false), (3, true)]));
    q.ring.noted(&mut q.tail);
    assert!(q.ring.is_everyday(&q.tail));
    q.complete(3);
    assert_eq!((q.ring.room(), open(&q).len()), (3, 0));
}

proptest! {
    /// The number of the last WR that asks for a completion, of those that the provider took.
    #[test]
    fn the_last_that_asks_is_known(chain in prop::collection::vec(any::<bool>(), 1..12), before in 0u64..5, refused in 0usize..12) {
        let (ring, mut tail) = (Inflight::new(16).unwrap(), Tail::default());
        let mut c = ring.start(Totals { wr: before, bytes: 0 });
        for signaled in &chain {
            c = push(&ring, &mut tail, c, Wr { id: 0, bytes: 1, signaled: *signaled });
        }
        let refused = refused.min(chain.len());
        // SAFETY: one thread.
        c = unsafe { ring.take_back(c, Totals { wr: refused as u64, bytes: refused as u64 }) };
        let last = chain[..chain.len() - refused].iter().rposition(|s| *s);
        prop_assert_eq!(c.asked, last.map_or(0, |at| before + at as u64 + 1));
    }
}
