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
    fn retire(&mut self, id: u64, failing: bool) -> Option<Retired> {
        let at = self.0.iter().position(|w| w.id == id && (failing || w.signaled))?;
        let (mut done, mut failed) = (Totals::default(), Totals::default());
        for (i, w) in self.0.drain(..=at).enumerate() {
            let t = if failing && i == at { &mut failed } else { &mut done };
            t.wr += 1;
            t.bytes += w.bytes;
        }
        let before = self.1;
        self.1 = Totals { wr: before.wr + done.wr + failed.wr, bytes: before.bytes + done.bytes + failed.bytes };
        Some(Retired { done, failed, before, stamp: 0 })
    }
}

fn push(ring: &Inflight, tail: &mut Tail, wr: Wr) {
    // SAFETY: one thread.
    unsafe { ring.push(tail, wr.id, wr.bytes, if wr.signaled { SIGNALED } else { 0 }) };
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
        let (ring, mut tail, mut model) = (Inflight::new(1024), Tail::default(), Model::default());
        for op in ops {
            match op {
                Op::Post(chain, accepted) => {
                    let n = accepted.min(chain.len());
                    for w in &chain {
                        push(&ring, &mut tail, *w);
                    }
                    let refused = &chain[n..];
                    let bytes = refused.iter().map(|w| w.bytes).sum();
                    // SAFETY: one thread.
                    unsafe { ring.take_back(&mut tail, Totals { wr: refused.len() as u64, bytes }) };
                    ring.publish(&tail);
                    model.0.extend(&chain[..n]);
                }
                // SAFETY: one thread.
                Op::Complete(id) => prop_assert_eq!(unsafe { ring.complete(id) }, model.retire(id, false)),
                // SAFETY: one thread.
                Op::Fail(id) => prop_assert_eq!(unsafe { ring.fail(id) }, model.retire(id, true)),
                Op::Clear => {
                    let left = Totals {
                        wr: model.0.len() as u64,
                        bytes: model.0.drain(..).map(|w| w.bytes).sum(),
                    };
                    // SAFETY: one thread.
                    prop_assert_eq!(unsafe { ring.clear(&mut tail) }, left);
                    model.1 = tail.posted;
                }
            }
            // SAFETY: one thread.
            let outstanding = tail.posted.wr - unsafe { ring.retired() }.wr;
            prop_assert_eq!(outstanding, model.0.len() as u64);
        }
    }
}

#[test]
fn a_queue_deeper_than_it_said_loses_no_count() {
    let (ring, mut tail) = (Inflight::new(8), Tail::default());
    for i in 0..40 {
        push(&ring, &mut tail, Wr { id: i, bytes: 10, signaled: true });
    }
    ring.publish(&tail);
    let mut done = Totals::default();
    for i in 0..16 {
        // SAFETY: one thread.
        let r = unsafe { ring.complete(i) }.unwrap();
        done.wr += r.done.wr;
        done.bytes += r.done.bytes;
    }
    assert_eq!(done, Totals { wr: 16, bytes: 160 });
    // Entries 16 to 39 found no room; the next one carries them.
    push(&ring, &mut tail, Wr { id: 99, bytes: 10, signaled: true });
    ring.publish(&tail);
    // SAFETY: one thread.
    let last = unsafe { ring.complete(99) }.unwrap();
    assert_eq!(last.done, Totals { wr: 25, bytes: 250 });
}

/// A full queue is polled empty, and filled again before the completions of that poll are retired.
#[test]
fn a_queue_refilled_during_a_poll_keeps_every_entry() {
    let (ring, mut tail) = (Inflight::new(64), Tail::default());
    for i in 0..128 {
        push(&ring, &mut tail, Wr { id: i, bytes: 1, signaled: true });
        ring.publish(&tail);
    }
    for i in 0..128 {
        // SAFETY: one thread.
        assert_eq!(unsafe { ring.complete(i) }.map(|r| r.done), Some(Totals { wr: 1, bytes: 1 }), "{i}");
    }
}

#[test]
fn poster_and_poller_on_two_threads_agree() {
    let ring = Inflight::new(64);
    const N: u64 = 200_000;
    let credits = AtomicU64::new(0);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut tail = Tail::default();
            for i in 0..N {
                while i - credits.load(Acquire) >= 64 {
                    std::thread::yield_now();
                }
                push(&ring, &mut tail, Wr { id: i, bytes: i, signaled: i % 4 == 3 });
                ring.publish(&tail);
            }
        });
        let (mut wr, mut bytes) = (0, 0);
        for i in (3..N).step_by(4) {
            let r = loop {
                // SAFETY: the only poller.
                match unsafe { ring.complete(i) } {
                    Some(r) => break r,
                    None => std::thread::yield_now(),
                }
            };
            wr += r.done.wr;
            bytes += r.done.bytes;
            assert_eq!(wr, i + 1);
            credits.store(wr, Release);
        }
        assert_eq!(bytes, N * (N - 1) / 2);
    });
}
