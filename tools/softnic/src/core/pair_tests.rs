//! A requester and a responder over a wire that loses what it likes: whatever happens, each message is executed once, in
//! order, and completes in order.

use super::packet::{Extra, Op, Packet, Refusal, Reply};
use super::requester::{Done, Outcome, Request, Requester, Settings, Step};
use super::responder::{Memory, Responder, Trouble};
use crate::net::draws::Draws;
use proptest::prelude::*;
use std::collections::VecDeque;

/// What was executed: (what, message bytes, offset), and a counter that atomics add to.
#[derive(Default)]
struct Log {
    parts: Vec<(Op, u32, u32)>,
    receives: VecDeque<u64>,
    /// Receives that come only after somebody asked in vain.
    late: VecDeque<u64>,
    received: Vec<(u64, Extra)>,
    current: Option<u64>,
    counter: u64,
    answers: Vec<u64>,
    refuse: Option<u32>,
}

impl Log {
    fn part(&mut self, p: &Packet) -> Result<(), Trouble> {
        if self.refuse == Some(p.rkey) {
            return Err(Trouble::Refused(Refusal::Access));
        }
        self.parts.push((p.op, p.total, p.offset));
        Ok(())
    }
}

impl Memory for Log {
    fn take_receive(&mut self) -> Result<(), Trouble> {
        let Some(receive) = self.receives.pop_front() else {
            self.receives.extend(self.late.pop_front());
            return Err(Trouble::NotReady);
        };
        self.current = Some(receive);
        Ok(())
    }

    fn fill_receive(&mut self, p: &Packet) -> Result<(), Trouble> {
        self.part(p)
    }

    fn write(&mut self, p: &Packet) -> Result<(), Trouble> {
        self.part(p)
    }

    // May be repeated, so it is not in the log.
    fn read(&mut self, _p: &Packet) -> Result<(), Trouble> {
        Ok(())
    }

    fn atomic(&mut self, p: &Packet) -> Result<u64, Trouble> {
        self.counter += p.operands[0];
        Ok(self.counter - p.operands[0])
    }

    fn answer_atomic(&mut self, p: &Packet, value: u64) -> Result<(), Trouble> {
        let at = p.wr as usize;
        self.answers.resize(self.answers.len().max(at + 1), u64::MAX);
        self.answers[at] = value;
        Ok(())
    }

    fn invalidate(&mut self, _key: u32) -> Result<(), Trouble> {
        Ok(())
    }

    fn complete_receive(&mut self, p: &Packet) {
        self.received.push((self.current.take().expect("one was taken"), p.extra));
    }
}

fn request(op: Op, bytes: u32) -> Request {
    let bytes = if op.is_atomic() { 8 } else { bytes };
    Request { op, bytes, extra: Extra::None, solicited: false, fence: false, addr: 0, rkey: 0, operands: [3, 0] }
}

const SETTINGS: Settings = Settings {
    mtu: 1024,
    segment: 4096,
    window: 64,
    max_answers: 4,
    timeout_ns: Some(1_000_000),
    retries: 255,
    rnr_retries: 7,
};

struct Wire {
    a: Requester,
    b: Responder,
    log: Log,
    now: u64,
    there: VecDeque<(u64, Packet)>,
    back: VecDeque<(u64, Reply)>,
    done: Vec<Done>,
    dice: Draws,
    loss: f64,
}

impl Wire {
    fn new(settings: Settings, psn: u32, seed: u64, loss: f64) -> Wire {
        Wire {
            a: Requester::new(settings, psn),
            b: Responder::new(psn, 1),
            log: Log::default(),
            now: 0,
            there: VecDeque::new(),
            back: VecDeque::new(),
            done: vec![],
            dice: Draws::new(seed, 1),
            loss,
        }
    }

    /// Until nothing is left to do, or for so many steps.
    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            while let Some(step) = self.a.next(self.now) {
                match step {
                    Step::Local(wr) => self.a.local_done(wr, Outcome::Success, &mut self.done),
                    Step::Transmit(p) => {
                        self.a.departed(self.now);
                        let at = self.now + 100 + self.dice.below(1000);
                        let order = self.there.back().map_or(0, |t| t.0);
                        if !self.dice.happens(self.loss) {
                            self.there.push_back((at.max(order), p));
                        }
                    }
                }
            }
            let next = [self.there.front().map(|t| t.0), self.back.front().map(|t| t.0), self.a.deadline()];
            let Some(next) = next.into_iter().flatten().min() else { return };
            self.now = self.now.max(next);
            if self.there.front().is_some_and(|t| t.0 <= self.now) {
                let (_, p) = self.there.pop_front().expect("there is one");
                if p.wr >= self.a.front()
                    && let Some(reply) = self.b.on_packet(&p, &mut self.log)
                    && !self.dice.happens(self.loss)
                {
                    let at = self.now + 100 + self.dice.below(1000);
                    let order = self.back.back().map_or(0, |t| t.0);
                    self.back.push_back((at.max(order), reply));
                }
            }
            if self.back.front().is_some_and(|t| t.0 <= self.now) {
                let (_, reply) = self.back.pop_front().expect("there is one");
                self.a.on_reply(self.now, reply, &mut self.done);
            }
            self.a.on_time(self.now, &mut self.done);
        }
        panic!("no end: {:?}", self.a);
    }
}

fn op() -> impl Strategy<Value = (Op, u32, bool)> {
    let ops = prop_oneof![
        3 => Just(Op::Write), 3 => Just(Op::Send), 2 => Just(Op::Read), 1 => Just(Op::FetchAdd), 1 => Just(Op::Local)
    ];
    (ops, 0u32..20_000, any::<bool>())
}

proptest! {
    #[test]
    fn all_is_executed_once_and_in_order(
        ops in proptest::collection::vec(op(), 1..40), psn: u32, seed: u64, loss in 0.0..0.3f64, few in 0usize..4,
    ) {
        let mut w = Wire::new(SETTINGS, psn & 0xff_ffff, seed, loss);
        let sends = ops.iter().filter(|o| o.0 == Op::Send).count();
        w.log.receives = (0..sends.saturating_sub(few) as u64).collect();
        for (op, bytes, fence) in &ops {
            w.a.post(Request { fence: *fence, ..request(*op, *bytes) });
        }
        w.log.late = (sends.saturating_sub(few) as u64..sends as u64).collect();
        w.run(1_000_000);
        let numbers: Vec<_> = w.done.iter().map(|d| d.wr).collect();
        prop_assert_eq!(numbers, (0..ops.len() as u64).collect::<Vec<_>>());
        prop_assert!(w.done.iter().all(|d| d.outcome == Outcome::Success));
        let mut expected = vec![];
        for (op, bytes, _) in ops.iter().filter(|o| matches!(o.0, Op::Write | Op::Send)) {
            expected.extend((0..bytes.div_ceil(4096).max(1)).map(|i| (*op, *bytes, i * 4096)));
        }
        prop_assert_eq!(&w.log.parts, &expected);
        prop_assert_eq!(w.log.received.len(), sends);
        let adds: Vec<_> = ops.iter().enumerate().filter(|o| o.1.0 == Op::FetchAdd).map(|o| o.0).collect();
        prop_assert_eq!(w.log.counter, adds.len() as u64 * 3);
        for (n, at) in adds.iter().enumerate() {
            prop_assert_eq!(w.log.answers[*at], n as u64 * 3);
        }
    }
}

#[test]
fn a_wire_that_carries_nothing_ends_in_retry_exceeded() {
    let mut w = Wire::new(Settings { retries: 3, ..SETTINGS }, 5, 1, 1.0);
    w.a.post(request(Op::Write, 10));
    w.a.post(request(Op::Write, 10));
    w.run(1000);
    let outcomes: Vec<_> = w.done.iter().map(|d| d.outcome).collect();
    assert_eq!(outcomes, [Outcome::RetryExceeded, Outcome::Flushed]);
    // Four times in all, a timeout after each.
    assert_eq!(w.now, 4_000_000);
}

#[test]
fn a_receive_that_never_comes_ends_in_rnr_exceeded() {
    let mut w = Wire::new(Settings { rnr_retries: 2, ..SETTINGS }, 5, 1, 0.0);
    w.a.post(request(Op::Write, 10));
    w.a.post(request(Op::Send, 10));
    w.run(1000);
    let outcomes: Vec<_> = w.done.iter().map(|d| d.outcome).collect();
    assert_eq!(outcomes, [Outcome::Success, Outcome::RnrExceeded]);
    assert_eq!(w.log.parts.len(), 1);
}

#[test]
fn a_receive_that_comes_late_is_waited_for() {
    let mut w = Wire::new(SETTINGS, 5, 1, 0.0);
    w.a.post(request(Op::Send, 10));
    w.a.post(request(Op::Write, 10));
    // The requester would wait for ever.
    let waits = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| w.run(200)));
    assert!(waits.is_err() && w.done.is_empty() && w.log.parts.is_empty());
    w.log.receives.push_back(7);
    w.run(1000);
    assert_eq!(w.log.received, [(7, Extra::None)]);
    assert_eq!(w.done.len(), 2);
}

#[test]
fn losses_while_it_waits_for_a_receive_do_not_add_up() {
    let mut a = Requester::new(Settings { retries: 1, ..SETTINGS }, 0);
    a.post(request(Op::Send, 8));
    let (mut now, mut done) = (0, vec![]);
    for _ in 0..5 {
        // Lost, and sent again after the timeout; that is answered.
        assert!(matches!(a.next(now), Some(Step::Transmit(_))));
        a.departed(now);
        now = a.deadline().expect("a timeout");
        a.on_time(now, &mut done);
        assert!(matches!(a.next(now), Some(Step::Transmit(_))));
        a.departed(now);
        a.on_reply(now, Reply::NotReady { psn: 0, timer: 1 }, &mut done);
        now = a.deadline().expect("a wait");
        a.on_time(now, &mut done);
    }
    assert_eq!(done, []);
}

#[test]
fn a_refusal_ends_all_that_follows() {
    let mut w = Wire::new(SETTINGS, 5, 1, 0.0);
    w.log.refuse = Some(9);
    w.a.post(request(Op::Write, 10));
    w.a.post(Request { rkey: 9, ..request(Op::Write, 10) });
    w.a.post(request(Op::Write, 10));
    w.run(1000);
    let outcomes: Vec<_> = w.done.iter().map(|d| d.outcome).collect();
    assert_eq!(outcomes, [Outcome::Success, Outcome::Refused(Refusal::Access), Outcome::Flushed]);
    assert!(w.a.has_failed());
}

#[test]
fn no_more_reads_are_under_way_than_allowed() {
    let mut a = Requester::new(Settings { max_answers: 2, ..SETTINGS }, 0);
    for _ in 0..3 {
        a.post(request(Op::Read, 10_000));
    }
    let sent: Vec<_> = core::iter::from_fn(|| a.next(0)).collect();
    // Three segments each, of two messages.
    assert_eq!(sent.len(), 6);
}

#[test]
fn a_lost_answer_costs_one_retry_however_many_later_ones_come() {
    let mut a = Requester::new(Settings { max_answers: 8, retries: 1, ..SETTINGS }, 0);
    for _ in 0..8 {
        a.post(request(Op::FetchAdd, 8));
    }
    let mut done = vec![];
    let sent: Vec<_> = core::iter::from_fn(|| a.next(0)).collect();
    assert_eq!(sent.len(), 8);
    for psn in 1..8 {
        a.on_reply(0, Reply::Data { psn, psns: 1, bytes: 8, value: 0 }, &mut done);
    }
    assert_eq!(done, []);
    assert!(matches!(a.next(0), Some(Step::Transmit(p)) if p.psn == 0));
    for psn in 0..8 {
        a.on_reply(0, Reply::Data { psn, psns: 1, bytes: 8, value: 0 }, &mut done);
    }
    assert!(done.len() == 8 && done.iter().all(|d| d.outcome == Outcome::Success));
}

#[test]
fn a_fence_waits_for_reads() {
    let mut a = Requester::new(SETTINGS, 0);
    a.post(request(Op::Read, 1000));
    a.post(Request { fence: true, ..request(Op::Write, 10) });
    assert!(a.next(0).is_some());
    assert_eq!(a.next(0), None);
    a.on_reply(0, Reply::Data { psn: 0, psns: 1, bytes: 1000, value: 0 }, &mut vec![]);
    assert!(matches!(a.next(0), Some(Step::Transmit(p)) if p.op == Op::Write));
}

#[test]
fn draining_stops_between_messages() {
    let mut a = Requester::new(Settings { window: 4, ..SETTINGS }, 0);
    a.post(request(Op::Write, 8192));
    a.post(request(Op::Write, 10));
    assert!(a.next(0).is_some());
    a.drain(true);
    a.on_reply(0, Reply::Ack { psn: 3 }, &mut vec![]);
    // The rest of the message goes on.
    assert!(a.next(0).is_some());
    assert!(!a.is_drained());
    a.on_reply(0, Reply::Ack { psn: 7 }, &mut vec![]);
    assert!(a.next(0).is_none());
    assert!(a.is_drained());
    a.drain(false);
    assert!(a.next(0).is_some());
}
