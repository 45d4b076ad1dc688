//! The sending half of a QP: a queue of requests that become packets, are acknowledged, sent again, and complete in order.

use super::packet::{Extra, Op, Packet, Refusal, Reply};
use super::{psn, rnr};
use std::collections::VecDeque;

/// A request as the program posted it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What for.
    pub op: Op,
    /// Bytes of the message.
    pub bytes: u32,
    /// See [`Packet`].
    pub extra: Extra,
    /// See [`Packet`].
    pub solicited: bool,
    /// Waits until all reads and atomics before it have been answered.
    pub fence: bool,
    /// Remote address.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// See [`Packet`].
    pub operands: [u64; 2],
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Success,
    /// The QP was in error, or came to be.
    Flushed,
    /// Nobody answered.
    RetryExceeded,
    /// No receive, too often.
    RnrExceeded,
    /// The responder refused it.
    Refused(Refusal),
    /// A key or a range of the program's own is wrong.
    LocalProtection,
    /// The WR asks for what the QP cannot do.
    LocalOperation,
    /// Longer than what the path takes.
    LocalLength,
}

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Number of the WR in its queue.
    pub wr: u64,
    /// How.
    pub outcome: Outcome,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this; then say [`Requester::departed`].
    Transmit(Packet),
    /// Do this local request; then say [`Requester::local_done`].
    Local(u64),
}

/// What modify_qp sets.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of a packet.
    pub mtu: u32,
    /// Bytes of a segment: a multiple of the MTU.
    pub segment: u32,
    /// How many PSNs may be under way.
    pub window: u32,
    /// How many reads and atomics may be under way.
    pub max_answers: u32,
    /// Local ACK timeout; `None`: never.
    pub timeout_ns: Option<u64>,
    /// Retries without progress.
    pub retries: u8,
    /// RNR retries without progress; 7: for ever.
    pub rnr_retries: u8,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mtu: 1024,
            segment: 65_536,
            window: 1 << 20,
            max_answers: 1,
            timeout_ns: None,
            retries: 0,
            rnr_retries: 0,
        }
    }
}

/// So far from zero that no PSN that was sent lies below it.
const BASE: u64 = 1 << 32;

#[derive(Clone, Copy, Debug)]
struct Entry {
    request: Request,
    /// The first PSN.
    psn: u64,
    psns: u32,
    /// Local requests: done.
    done: bool,
}

impl Entry {
    fn behind(&self) -> u64 {
        self.psn + u64::from(self.psns)
    }
}

/// The state machine. Inside, PSNs do not wrap: only their low 24 bits travel.
#[derive(Debug)]
pub struct Requester {
    settings: Settings,
    queue: VecDeque<Entry>,
    /// Number of the WR at the front of the queue.
    front: u64,
    /// What is sent next: a WR, and an offset in it.
    cursor: (u64, u32),
    /// The PSN of the next WR that is posted.
    next_psn: u64,
    /// The oldest PSN that is not acknowledged.
    unacked: u64,
    /// The PSN behind all that was ever sent.
    sent: u64,
    retries_left: u8,
    rnr_left: u8,
    /// Nothing is sent before.
    wait_until: u64,
    timer: Option<u64>,
    /// The oldest PSN that is not acknowledged, when a later answer last showed that its own was lost.
    implied: Option<u64>,
    /// When the newest packet left, or will leave.
    departed: u64,
    drained: bool,
    failed: bool,
}

impl Requester {
    /// An idle queue whose first PSN this is.
    pub fn new(settings: Settings, first_psn: u32) -> Requester {
        let first_psn = BASE | u64::from(first_psn & psn::MASK);
        Requester {
            settings,
            queue: VecDeque::new(),
            front: 0,
            cursor: (0, 0),
            next_psn: first_psn,
            unacked: first_psn,
            sent: first_psn,
            retries_left: settings.retries,
            rnr_left: settings.rnr_retries,
            wait_until: 0,
            timer: None,
            implied: None,
            departed: 0,
            drained: false,
            failed: false,
        }
    }

    /// New settings; the first PSN too, while nothing is queued.
    pub fn set(&mut self, settings: Settings, first_psn: Option<u32>) {
        self.settings = settings;
        (self.retries_left, self.rnr_left) = (settings.retries, settings.rnr_retries);
        if let Some(psn) = first_psn.filter(|_| self.queue.is_empty()) {
            let psn = BASE | u64::from(psn & psn::MASK);
            (self.next_psn, self.unacked, self.sent) = (psn, psn, psn);
        }
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Requests that are not done.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// The number that the next request will get.
    pub fn behind(&self) -> u64 {
        self.front + self.queue.len() as u64
    }

    /// The number of the oldest that is not done.
    pub fn front(&self) -> u64 {
        self.front
    }

    /// Whether all are done.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether it failed: all is flushed from then on.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The next PSN that a new request would get.
    pub fn next_psn(&self) -> u32 {
        wire(self.next_psn)
    }

    /// The PSN that these 24 bits mean.
    fn meant(&self, psn: u32) -> u64 {
        self.unacked.saturating_add_signed(psn::distance(psn, wire(self.unacked)).into())
    }

    /// Appends a request and returns its number.
    pub fn post(&mut self, request: Request) -> u64 {
        let psns = if request.op == Op::Local { 0 } else { psn::count(request.bytes, self.settings.mtu) };
        self.queue.push_back(Entry { request, psn: self.next_psn, psns, done: false });
        self.next_psn += u64::from(psns);
        self.front + self.queue.len() as u64 - 1
    }

    /// Stops at the next message (SQD), or goes on.
    pub fn drain(&mut self, on: bool) {
        self.drained = on;
    }

    /// Whether it was asked to stop, and has.
    pub fn is_drained(&self) -> bool {
        self.drained && self.outstanding() == 0 && self.cursor.1 == 0
    }

    fn outstanding(&self) -> u64 {
        self.sent.saturating_sub(self.unacked)
    }

    fn entry(&self, wr: u64) -> Option<&Entry> {
        self.queue.get(usize::try_from(wr.checked_sub(self.front)?).ok()?)
    }

    /// Reads and atomics that were begun and are not answered. The front of the queue is the oldest that is not done.
    fn answers_awaited(&self) -> u32 {
        let begun = usize::try_from(self.cursor.0 - self.front).unwrap_or(0) + usize::from(self.cursor.1 > 0);
        self.queue.iter().take(begun).filter(|e| e.request.op.is_answered()).count() as u32
    }

    /// What there is to do now.
    pub fn next(&mut self, now: u64) -> Option<Step> {
        if self.failed || now < self.wait_until {
            return None;
        }
        let (wr, offset) = self.cursor;
        let entry = *self.entry(wr)?;
        let r = &entry.request;
        if offset == 0 {
            if self.drained {
                return None;
            }
            if r.fence && self.answers_awaited() > 0 {
                return None;
            }
            if r.op.is_answered() && self.answers_awaited() >= self.settings.max_answers.max(1) {
                return None;
            }
        }
        if r.op == Op::Local {
            self.cursor = (wr + 1, 0);
            return Some(Step::Local(wr));
        }
        let bytes = (r.bytes - offset).min(self.settings.segment);
        let psns = psn::count(bytes, self.settings.mtu);
        let first = entry.psn + u64::from(offset / self.settings.mtu);
        let behind = first + u64::from(psns);
        // A first packet always goes, however small the window.
        if first > self.unacked && behind - self.unacked > u64::from(self.settings.window.min(1 << 22)) {
            return None;
        }
        let last = offset + bytes == r.bytes;
        self.cursor = if last { (wr + 1, 0) } else { (wr, offset + bytes) };
        self.sent = self.sent.max(behind);
        Some(Step::Transmit(Packet {
            op: r.op,
            psn: wire(first),
            psns,
            wr,
            offset,
            bytes,
            total: r.bytes,
            extra: if last { r.extra } else { Extra::None },
            solicited: last && r.solicited,
            addr: r.addr,
            rkey: r.rkey,
            operands: r.operands,
        }))
    }

    /// A packet leaves, or will have left at `at`: its timeout runs from then.
    pub fn departed(&mut self, at: u64) {
        self.departed = self.departed.max(at);
        if self.timer.is_none() {
            self.start_timer(at);
        }
    }

    fn start_timer(&mut self, now: u64) {
        let from = now.max(self.departed);
        self.timer = self.settings.timeout_ns.filter(|_| self.outstanding() > 0).map(|t| from.saturating_add(t));
    }

    /// When something is due without any reply.
    pub fn deadline(&self) -> Option<u64> {
        if self.failed {
            return None;
        }
        if self.wait_until > 0 && self.entry(self.cursor.0).is_some() {
            return Some(self.wait_until);
        }
        self.timer
    }

    /// What is due by now.
    pub fn on_time(&mut self, now: u64, done: &mut Vec<Done>) {
        if self.failed {
            return;
        }
        if self.wait_until > 0 && now >= self.wait_until {
            self.wait_until = 0;
        }
        if self.wait_until == 0 && self.timer.is_some_and(|t| now >= t) {
            self.timer = None;
            self.again(now, done);
        }
    }

    /// Sends again from the oldest that is not acknowledged, unless that was tried too often.
    fn again(&mut self, now: u64, done: &mut Vec<Done>) {
        if self.retries_left == 0 {
            return self.fail_oldest(Outcome::RetryExceeded, done);
        }
        self.retries_left -= 1;
        self.rewind();
        self.departed = now;
        self.start_timer(now);
    }

    /// A later reply shows that an answer was lost: once, however many such replies follow.
    fn answer_lost(&mut self, now: u64, done: &mut Vec<Done>) {
        if self.implied.replace(self.unacked) != Some(self.unacked) {
            self.again(now, done);
        }
    }

    /// The request that the oldest PSN that is not acknowledged belongs to, and how far that is into it.
    fn oldest(&self) -> Option<(u64, u32)> {
        let (i, e) = self.queue.iter().enumerate().find(|(_, e)| e.psns > 0 && e.behind() > self.unacked)?;
        let into = u32::try_from(self.unacked.saturating_sub(e.psn)).unwrap_or(0);
        Some((self.front + i as u64, into * self.settings.mtu))
    }

    fn rewind(&mut self) {
        if let Some((wr, offset)) = self.oldest() {
            // Segments keep their bounds, so that what was executed is a duplicate as a whole.
            self.cursor = self.cursor.min((wr, offset / self.settings.segment * self.settings.segment));
        }
    }

    /// A local request was done, or failed.
    pub fn local_done(&mut self, wr: u64, outcome: Outcome, done: &mut Vec<Done>) {
        if outcome != Outcome::Success {
            return self.fail_wr(wr, outcome, done);
        }
        if let Some(e) = wr.checked_sub(self.front).and_then(|i| self.queue.get_mut(i as usize)) {
            e.done = true;
        }
        self.complete(done);
    }

    /// A reply.
    pub fn on_reply(&mut self, now: u64, reply: Reply, done: &mut Vec<Done>) {
        if self.failed {
            return;
        }
        match reply {
            Reply::Ack { psn } => {
                if !self.accept(now, self.meant(psn) + 1, done) {
                    self.answer_lost(now, done);
                }
            }
            Reply::Data { psn, psns, .. } => {
                let psn = self.meant(psn);
                let whole = self.accept(now, psn, done);
                if whole && psn == self.unacked {
                    self.advance(now, psn + u64::from(psns), done);
                } else if psn > self.unacked {
                    self.answer_lost(now, done);
                }
            }
            Reply::OutOfOrder { psn } => {
                let psn = self.meant(psn);
                let whole = self.accept(now, psn, done);
                if !whole {
                    self.answer_lost(now, done);
                } else if psn == self.unacked {
                    self.again(now, done);
                }
            }
            Reply::NotReady { psn, timer } => {
                let psn = self.meant(psn);
                if !self.accept(now, psn, done) || psn != self.unacked {
                    return;
                }
                if self.settings.rnr_retries != 7 {
                    if self.rnr_left == 0 {
                        return self.fail_oldest(Outcome::RnrExceeded, done);
                    }
                    self.rnr_left -= 1;
                }
                // The responder is alive: what was lost so far is not held against it.
                self.retries_left = self.settings.retries;
                self.rewind();
                self.wait_until = now + rnr::rnr_wait_ns(timer);
                self.timer = None;
            }
            Reply::Refused { psn, why } => {
                let psn = self.meant(psn);
                if self.accept(now, psn, done) && psn == self.unacked {
                    self.fail_oldest(Outcome::Refused(why), done);
                }
            }
        }
    }

    /// All before `behind` has been executed, says the responder. Reads and atomics need answers of their own: false, if
    /// one of them is missing.
    fn accept(&mut self, now: u64, behind: u64, done: &mut Vec<Done>) -> bool {
        if behind <= self.unacked || behind > self.sent {
            return true;
        }
        let mut covered = self.queue.iter().take_while(|e| e.psn < behind);
        let awaited = covered.find(|e| e.request.op.is_answered() && e.behind() > self.unacked);
        let limit = awaited.map_or(behind, |e| e.psn.max(self.unacked)).min(behind);
        self.advance(now, limit, done);
        limit == behind
    }

    fn advance(&mut self, now: u64, behind: u64, done: &mut Vec<Done>) {
        if behind <= self.unacked || behind > self.sent {
            return;
        }
        self.unacked = behind;
        (self.retries_left, self.rnr_left) = (self.settings.retries, self.settings.rnr_retries);
        self.start_timer(now);
        // What was acknowledged after it was rewound need not be sent again.
        let at = self.entry(self.cursor.0).map(|e| e.psn + u64::from(self.cursor.1 / self.settings.mtu));
        if at.is_some_and(|at| at < self.unacked) {
            self.wait_until = 0;
            self.cursor = self.oldest().unwrap_or((self.front + self.queue.len() as u64, 0));
        }
        self.complete(done);
    }

    fn complete(&mut self, done: &mut Vec<Done>) {
        while let Some(e) = self.queue.front() {
            if self.front >= self.cursor.0 || !(if e.psns == 0 { e.done } else { self.unacked >= e.behind() }) {
                return;
            }
            self.queue.pop_front();
            done.push(Done { wr: self.front, outcome: Outcome::Success });
            self.front += 1;
        }
    }

    fn fail_oldest(&mut self, outcome: Outcome, done: &mut Vec<Done>) {
        let wr = self.oldest().map_or(self.front, |(wr, _)| wr);
        self.fail_wr(wr, outcome, done);
    }

    /// A request fails: what is before it and not acknowledged, and all after it, is flushed.
    pub fn fail_wr(&mut self, wr: u64, outcome: Outcome, done: &mut Vec<Done>) {
        self.failed = true;
        self.timer = None;
        for _ in 0..self.queue.len() {
            done.push(Done { wr: self.front, outcome: if self.front == wr { outcome } else { Outcome::Flushed } });
            self.front += 1;
        }
        self.queue.clear();
        self.cursor = (self.front, 0);
        (self.unacked, self.sent) = (self.next_psn, self.next_psn);
    }

    /// The QP goes to error for a reason from outside.
    pub fn flush(&mut self, done: &mut Vec<Done>) {
        self.fail_wr(u64::MAX, Outcome::Flushed, done);
    }
}

fn wire(psn: u64) -> u32 {
    (psn & u64::from(psn::MASK)) as u32
}
