//! The sending half of a QP at work: WRs become packets on a path, replies come back, completions are appended.

use super::clock::now;
use super::copy::Pieces;
use super::cq;
use super::deliver::{From, deliver};
use super::host::Host;
use super::keys;
use super::peer::Peer;
use super::qp::{Plan, Qp, event, kind, state, status};
use crate::core::packet::{Op, Packet, Refusal, Reply};
use crate::core::psn;
use crate::core::requester::{Done, Outcome, Request, Requester, Settings, Step};
use crate::net::draws::Draws;
use crate::net::gid::Gid;
use crate::net::path::{Fate, Path};
use crate::shared::layout::{self, Completion, Element};
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use std::collections::VecDeque;
use std::sync::Arc;

/// A WR, as it is posted.
pub struct Post<'a> {
    /// The program's.
    pub id: u64,
    /// `IBV_WC_*`, for its completion.
    pub opcode: u32,
    /// A completion is wanted.
    pub signaled: bool,
    /// What travels.
    pub request: Request,
    /// Where its bytes are, or go to; nothing, if they are inline.
    pub elements: &'a [Element],
    /// Inline data, in pieces.
    pub inline: Option<&'a [(*const u8, usize)]>,
    /// To whom.
    pub to: To,
    /// What the NIC itself does.
    pub local: Local,
}

/// To whom a WR goes, if not to the QP's peer.
#[derive(Clone, Copy, Default)]
pub struct To {
    /// Datagrams: from which address to which, to which QP, with which key.
    pub datagram: Option<(Gid, Gid, u32, u32)>,
    /// XRC: the SRQ.
    pub srq: u32,
}

/// Done by the NIC itself.
#[derive(Clone, Copy, Default)]
pub enum Local {
    /// Nothing.
    #[default]
    None,
    /// Invalidate a key.
    Invalidate(u32),
    /// Make a window's key `new` instead of `old`, and make it stand for a range.
    Bind {
        /// The window's key so far.
        old: u32,
        /// The key from now on.
        new: u32,
        /// The region's key.
        region: u32,
        /// What for.
        range: keys::Range,
    },
}

#[derive(Clone, Copy, Default)]
struct Wr {
    id: u64,
    opcode: u32,
    signaled: bool,
    inline: bool,
    elements: u32,
    bytes: u32,
    to: To,
    local: Local,
}

/// Where a connected QP sends to.
pub struct Route {
    /// Source address.
    pub from: Gid,
    /// Destination address.
    pub to: Gid,
    /// The QP there.
    pub qp: u32,
}

/// The two ways between two addresses.
struct Ways {
    ends: [Gid; 2],
    there: Arc<Path>,
    back: Arc<Path>,
    clocks: [&'static AtomicU64; 2],
    ideal: bool,
}

/// The sending half.
pub struct Sender {
    requester: Requester,
    wrs: Box<[Wr]>,
    elements: Box<[Element]>,
    inline: Box<[u8]>,
    plan: Plan,
    shared: &'static layout::Qp,
    route: Option<Route>,
    ways: Option<Ways>,
    peer: Option<Arc<Peer>>,
    draws: Draws,
    /// Packets and replies under way, by when they arrive.
    forward: VecDeque<(u64, Packet)>,
    backward: VecDeque<(u64, Reply)>,
    /// When the newest of each arrives.
    order: [u64; 2],
    done: Vec<Done>,
    /// When the engine will look after it.
    scheduled: u64,
    failed: bool,
    drain_told: bool,
}

impl Sender {
    /// An empty queue.
    pub fn new(plan: &Plan, shared: &'static layout::Qp) -> Sender {
        let n = plan.wrs[0] as usize;
        Sender {
            requester: Requester::new(Settings::default(), 0),
            wrs: vec![Wr::default(); n].into(),
            elements: vec![Element::default(); n * plan.elements[0] as usize].into(),
            inline: vec![0; n * plan.inline as usize].into(),
            plan: *plan,
            shared,
            route: None,
            ways: None,
            peer: None,
            draws: Draws::new(0, 0),
            forward: VecDeque::new(),
            backward: VecDeque::new(),
            order: [0; 2],
            done: Vec::new(),
            scheduled: u64::MAX,
            failed: false,
            drain_told: true,
        }
    }

    /// Where it sends to, from now on.
    pub fn set_route(&mut self, host: &'static Host, qp: u32, route: Route) {
        self.ways = Some(Ways::new(host, route.from, route.to));
        // The n-th QP of a process throws the same dice each time, whichever place the process has.
        let flow =
            (u64::from(qp % layout::QPS as u32) << 32) ^ route.from.halves()[1].rotate_left(17) ^ route.to.halves()[1];
        self.draws = Draws::new(host.config.seed, flow);
        self.peer = None;
        self.route = Some(route);
    }

    /// Timers, windows, and the first PSN.
    pub fn set(&mut self, settings: Settings, first_psn: Option<u32>) {
        self.requester.set(settings, first_psn);
    }

    /// What is set.
    pub fn settings(&self) -> Settings {
        *self.requester.settings()
    }

    /// The PSN of the next WR.
    pub fn next_psn(&self) -> u32 {
        self.requester.next_psn()
    }

    /// Stops sending (SQD) or goes on.
    pub fn drain(&mut self, on: bool) {
        self.requester.drain(on);
        self.drain_told = !on;
    }

    /// Whether it was asked to stop and has not yet.
    pub fn is_draining(&self) -> bool {
        !self.requester.is_drained()
    }

    /// Queues a WR; it is sent by [`Sender::run`].
    pub fn post(&mut self, p: &Post) -> Result<(), i32> {
        let n = self.wrs.len() as u64;
        if self.used() >= n {
            return Err(libc::ENOMEM);
        }
        let max = self.plan.elements[0] as usize;
        if p.elements.len() > max {
            return Err(libc::EINVAL);
        }
        if let Some(pieces) = p.inline
            && pieces.iter().map(|i| i.1).sum::<usize>() > self.plan.inline as usize
        {
            return Err(libc::EINVAL);
        }
        let number = self.requester.post(p.request);
        let slot = (number % n) as usize;
        self.elements[slot * max..][..p.elements.len()].copy_from_slice(p.elements);
        if let Some(pieces) = p.inline {
            let mut room = &mut self.inline[slot * self.plan.inline as usize..];
            for (from, bytes) in pieces {
                // SAFETY: the program's inline data, of which it says that it is there; the room was checked above.
                unsafe { room.as_mut_ptr().copy_from_nonoverlapping(*from, *bytes) };
                room = &mut room[*bytes..];
            }
        }
        self.wrs[slot] = Wr {
            id: p.id,
            opcode: p.opcode,
            signaled: p.signaled || self.plan.all_signaled,
            inline: p.inline.is_some(),
            elements: p.elements.len() as u32,
            bytes: p.request.bytes,
            to: p.to,
            local: p.local,
        };
        Ok(())
    }

    /// Slots in use: those of WRs that are not over, and of those whose completions nobody polled.
    pub fn used(&self) -> u64 {
        self.requester.behind().saturating_sub(self.shared.sends_polled.load(Acquire))
    }

    /// Does what is due and what can be done.
    pub fn run(&mut self, qp: &Qp, host: &'static Host) {
        let mut now = now();
        if self.scheduled <= now {
            self.scheduled = u64::MAX;
        }
        if qp.state() == state::ERR {
            return self.fail(qp, host);
        }
        loop {
            let mut moved = false;
            // By their own times, and before any timer: that they are seen to late makes nobody time out, and what they let
            // go leaves when it would have left, so that a path is not idle for want of a processor.
            while let Some(forward) = self.next_due(now) {
                moved = true;
                if forward && let Some((at, packet)) = self.forward.pop_front() {
                    self.arrive(qp, host, at, &packet);
                } else if let Some((at, reply)) = self.backward.pop_front() {
                    self.requester.on_reply(at, reply, &mut self.done);
                    self.send(qp, host, at);
                }
            }
            self.requester.on_time(now, &mut self.done);
            moved |= self.send(qp, host, now);
            self.reap(qp, host);
            if self.failed || !moved {
                break;
            }
            now = super::clock::now();
        }
        if !self.drain_told && self.requester.is_drained() {
            self.drain_told = true;
            host.notify(self.plan.events, event::SQ_DRAINED, self.plan.name);
        }
        self.schedule(qp, host, now);
    }

    fn schedule(&mut self, qp: &Qp, host: &'static Host, now: u64) {
        let under_way = [self.forward.front().map(|f| f.0), self.backward.front().map(|b| b.0)];
        let next = under_way.into_iter().flatten().chain(self.requester.deadline()).min();
        if let Some(at) = next.filter(|at| *at < self.scheduled) {
            self.scheduled = at.max(now);
            host.engine.schedule(self.scheduled, qp.number % layout::QPS as u32);
        }
    }

    /// Sends what can be sent at a time. False: nothing.
    fn send(&mut self, qp: &Qp, host: &'static Host, now: u64) -> bool {
        let mut moved = false;
        while let Some(step) = self.requester.next(now) {
            moved = true;
            match step {
                Step::Local(wr) => {
                    let outcome = self.do_locally(qp, host, wr);
                    self.requester.local_done(wr, outcome, &mut self.done);
                }
                Step::Transmit(packet) => self.transmit(qp, host, now, &packet),
            }
            if self.done.len() >= 16 {
                self.reap(qp, host);
            }
        }
        moved
    }

    /// Does what is due before something new is posted, which did not exist then.
    pub fn catch_up(&mut self, qp: &Qp, host: &'static Host) {
        if !self.forward.is_empty() || !self.backward.is_empty() {
            self.run(qp, host);
        }
    }

    /// Whether a packet (true) or a reply is due next, if any is.
    fn next_due(&self, now: u64) -> Option<bool> {
        let packet = self.forward.front().map_or(u64::MAX, |f| f.0);
        let reply = self.backward.front().map_or(u64::MAX, |b| b.0);
        (packet.min(reply) <= now).then_some(packet < reply)
    }

    fn is_unreliable(&self) -> bool {
        matches!(self.plan.kind, kind::UC | kind::UD)
    }

    fn transmit(&mut self, qp: &Qp, host: &'static Host, now: u64, packet: &Packet) {
        if let Err(outcome) = self.pieces(host, packet) {
            return self.requester.fail_wr(packet.wr, outcome, &mut self.done);
        }
        let to = self.wrs[(packet.wr % self.wrs.len() as u64) as usize].to;
        if let Some((from, to, ..)) = to.datagram
            && self.ways.as_ref().is_none_or(|w| !w.lead(from, to))
        {
            self.ways = Some(Ways::new(host, from, to));
        }
        let Some(ways) = &self.ways else { return };
        let on_wire = if packet.op == Op::Read { 0 } else { packet.bytes.max(1) };
        let fate = if ways.ideal {
            Fate { departs: now, arrives: Some(now) }
        } else {
            ways.there.fate(now, on_wire, self.order[0], &mut self.draws, ways.clocks[0])
        };
        self.requester.departed(fate.departs);
        match fate.arrives {
            Some(at) if at <= now && self.forward.is_empty() => self.arrive(qp, host, now, packet),
            Some(at) => {
                self.order[0] = at;
                self.forward.push_back((at, *packet));
            }
            None => {}
        }
        if self.is_unreliable() {
            // Sent is done.
            let ack = Reply::Ack { psn: psn::add(packet.psn, packet.psns - 1) };
            self.replied(now, fate.departs, ack);
        }
    }

    fn replied(&mut self, now: u64, at: u64, reply: Reply) {
        if at <= now && self.backward.is_empty() {
            self.requester.on_reply(now, reply, &mut self.done);
        } else {
            let at = at.max(self.order[1]);
            self.order[1] = at;
            self.backward.push_back((at, reply));
        }
    }

    /// A packet is there.
    fn arrive(&mut self, qp: &Qp, host: &'static Host, now: u64, packet: &Packet) {
        if packet.wr < self.requester.front() {
            // A copy of what was acknowledged: its WR's memory is the program's again.
            return;
        }
        let Ok(ours) = self.pieces(host, packet) else { return };
        let wr = &self.wrs[(packet.wr % self.wrs.len() as u64) as usize];
        let (from, to, number, qkey) = match (wr.to.datagram, &self.route) {
            (Some(d), _) => d,
            (None, Some(r)) => (r.from, r.to, r.qp, 0),
            (None, None) => return,
        };
        if qp.port(host).is_none_or(|p| p.up.load(Relaxed) == 0) {
            return;
        }
        let known = self.peer.as_ref().filter(|p| !p.is_gone() && p.place == (number >> 16) as usize);
        if known.is_none() {
            self.peer = host.peer(number);
        }
        let Some(peer) = &self.peer else { return };
        let sender = From { qp: qp.number, kind: self.plan.kind, gid: from, to, srq: wr.to.srq, qkey, ours: &ours };
        let Some(reply) = deliver(host, peer, number, &sender, packet) else { return };
        let Some(ways) = &self.ways else { return };
        if ways.ideal {
            return self.replied(now, now, reply);
        }
        let bytes = if let Reply::Data { bytes, .. } = reply { bytes } else { 0 };
        let fate = ways.back.fate(now, bytes, self.order[1], &mut self.draws, ways.clocks[1]);
        if let Some(at) = fate.arrives {
            // A read's bytes take time on their way: its timeout runs from when they have left.
            self.requester.departed(fate.departs);
            self.replied(now, at, reply);
        }
    }

    /// The packet's part of the WR's memory.
    fn pieces(&self, host: &'static Host, p: &Packet) -> Result<Pieces, Outcome> {
        let slot = (p.wr % self.wrs.len() as u64) as usize;
        let wr = &self.wrs[slot];
        let mut pieces = Pieces::new();
        if wr.inline {
            let at = &self.inline[slot * self.plan.inline as usize + p.offset as usize..];
            pieces.push(at.as_ptr() as u64, p.bytes as usize);
            return Ok(pieces);
        }
        let (mut skip, mut left) = (u64::from(p.offset), u64::from(p.bytes));
        for e in &self.elements[slot * self.plan.elements[0] as usize..][..wr.elements as usize] {
            let n = u64::from(e.bytes).saturating_sub(skip).min(left);
            let begin = e.addr.wrapping_add(skip.min(u64::from(e.bytes)));
            skip = skip.saturating_sub(u64::from(e.bytes));
            if n == 0 {
                continue;
            }
            let writes = p.op.is_answered();
            let at = keys::hold(&host.me, e.key)
                .filter(|h| h.range.kind == 0 && h.range.pd == self.plan.pd)
                .filter(|h| !writes || h.range.access & keys::LOCAL_WRITE != 0)
                .and_then(|h| h.place(begin, n))
                .ok_or(Outcome::LocalProtection)?;
            pieces.push(at, n as usize);
            left -= n;
        }
        if left == 0 { Ok(pieces) } else { Err(Outcome::LocalLength) }
    }

    fn do_locally(&self, qp: &Qp, host: &'static Host, wr: u64) -> Outcome {
        match self.wrs[(wr % self.wrs.len() as u64) as usize].local {
            Local::None => Outcome::LocalOperation,
            Local::Invalidate(key) => {
                let bound = keys::hold(&host.me, key).is_some_and(|h| h.range.kind == 2 && h.range.pd == self.plan.pd);
                if bound && keys::invalidate(&host.me, key) { Outcome::Success } else { Outcome::LocalOperation }
            }
            Local::Bind { old, new, region, mut range } => {
                if range.len > 0 {
                    let Some(place) = keys::hold(&host.me, region)
                        .filter(|h| h.range.kind == 0 && h.range.pd == range.pd && h.range.access & keys::MW_BIND != 0)
                        .and_then(|h| h.place(range.addr, range.len))
                    else {
                        return Outcome::LocalOperation;
                    };
                    range.iova = if range.access & keys::ZERO_BASED != 0 { 0 } else { range.addr };
                    range.addr = place;
                }
                range.qp = qp.number;
                host.keys.change(&host.me, old, new, range);
                Outcome::Success
            }
        }
    }

    fn reap(&mut self, qp: &Qp, host: &'static Host) {
        for Done { wr, outcome } in self.done.drain(..) {
            let w = &self.wrs[(wr % self.wrs.len() as u64) as usize];
            if outcome == Outcome::Success && !w.signaled {
                continue;
            }
            let c = Completion {
                id: w.id,
                status: match outcome {
                    Outcome::Success => status::SUCCESS,
                    Outcome::Flushed => status::FLUSHED,
                    Outcome::RetryExceeded => status::RETRY_EXC,
                    Outcome::RnrExceeded => status::RNR_RETRY_EXC,
                    Outcome::Refused(Refusal::Access) => status::REM_ACCESS,
                    Outcome::Refused(Refusal::InvalidRequest) => status::REM_INV_REQ,
                    Outcome::Refused(Refusal::Operation) => status::REM_OP,
                    Outcome::LocalProtection => status::LOC_PROT,
                    Outcome::LocalOperation => status::LOC_QP_OP,
                    Outcome::LocalLength => status::LOC_LEN,
                },
                opcode: w.opcode,
                bytes: w.bytes,
                qp: qp.number,
                time: super::clock::now(),
                sends: wr + 1,
                ..Completion::default()
            };
            cq::append(host, &host.me, self.plan.send_cq, c, false);
        }
        if self.requester.has_failed() && !self.failed {
            self.failed = true;
            qp.shared().state.store(state::ERR, core::sync::atomic::Ordering::SeqCst);
            self.forward.clear();
            self.backward.clear();
            qp.flush_receives(host);
            if self.plan.srq != 0 {
                host.notify(self.plan.events, event::LAST_WQE_REACHED, self.plan.name);
            }
        }
    }

    /// Flushes all: the QP is in error.
    pub fn fail(&mut self, qp: &Qp, host: &'static Host) {
        self.requester.flush(&mut self.done);
        self.reap(qp, host);
    }
}

impl Ways {
    fn new(host: &'static Host, from: Gid, to: Gid) -> Ways {
        let (there, back) = (host.path(from, to), host.path(to, from));
        let ideal = there.is_ideal() && back.is_ideal();
        let clock = |a: Gid, b: Gid| {
            let key = [a.halves(), b.halves()].concat().iter().fold(0u64, |h, w| Draws::new(h, *w).number());
            &host.registry.clock(key).free_at
        };
        Ways { ends: [from, to], clocks: [clock(from, to), clock(to, from)], there, back, ideal }
    }

    fn lead(&self, from: Gid, to: Gid) -> bool {
        self.ends == [from, to]
    }
}
