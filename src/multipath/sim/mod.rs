//! A simulation of one QP with lanes, seeded: random WRs, delays, failures and state changes; the [`oracle`] watches.
//!
//! The [`app`] posts WRs of all kinds, on a queue that is often full; the [`world`] runs them, out of step on each lane; the
//! driver here polls, feeds, revokes and repairs at random, and moves the QP to ERR and RESET; the [`receiver`] posts
//! receives, and polls what took them. A run ends when everything has come to rest, which it must. The seed of a run that failed is in its message, and is all that is needed to see it
//! again.

mod app;
mod memory;
mod oracle;
mod receiver;
mod rng;
mod tests;
mod world;

use self::app::Habits;
use self::memory::Memory;
use self::oracle::{Oracle, Seen};
use self::receiver::Receiver;
use self::rng::Rng;
use self::world::World;
use super::driver::{Driver, Errno};
use super::driver::{INVALID, NO_ROOM, Posting, State, Verdict, Why};
use super::engine::{Engine, Missed, QpFacts};
use super::guard::Guard;
use super::lengths;
use super::plan::{Mode, Settings};
use super::schedule::Offer;
use super::wr::{INLINE, SIGNALED, Wr};

/// What a run is like.
#[derive(Clone, Debug)]
struct Setup {
    settings: Settings,
    facts: QpFacts,
    lanes: usize,
    habits: Habits,
    /// Per ten thousand steps: lanes that break, state changes, failures of revocation.
    breaks: u32,
    changes: u32,
    lost: u32,
    /// The application polls only when the engine needs it to, or its queue is full.
    lazy: bool,
    /// Lanes that broke are replaced unasked.
    eager: bool,
    /// Steps favour one lane this much.
    skew: u32,
    /// Receives that the peer may have posted and not polled.
    max_recv_wr: u32,
    /// The peer has a ring for lengths.
    ring: bool,
    /// How often the peer polls its receives, in a thousand tries.
    receives: u32,
}

impl Setup {
    fn random(rng: &mut Rng) -> Setup {
        let mode = rng.pick(&[Mode::Strict, Mode::Strict, Mode::Notify]);
        let settings = Settings {
            mode,
            min_split_bytes: rng.within(200, 500),
            unit_bytes: 128,
            max_chunk_bytes: rng.pick(&[128, 256, 512]),
            tail_bytes: rng.pick(&[1, 1, 64]),
            depth: rng.within(1, 3),
            ahead: rng.within(1, 6),
            split_imm: true,
        };
        let facts = QpFacts {
            max_send_wr: rng.within(2, 20),
            max_send_sge: app::MAX_SGE,
            max_inline_bytes: app::MAX_INLINE,
            sq_sig_all: rng.chance(100),
        };
        let habits = Habits {
            signaled: rng.pick(&[50, 300, 500, 900]),
            fenced: rng.pick(&[0, 100, 300]),
            faulty: rng.pick(&[0, 5, 20, 40]),
            large: rng.pick(&[200, 500, 900]),
            longest: rng.pick(&[900, 1500]),
            streams: rng.pick(&[0, 0, 0, 950]),
        };
        let (breaks, changes) = (rng.pick(&[0, 0, 10, 100]), rng.pick(&[0, 0, 5, 30]));
        let lost = if breaks > 0 { rng.pick(&[0, 0, 100]) } else { 0 };
        let lanes = rng.within(1, 4) as usize;
        let (lazy, eager, skew) = (rng.chance(250), rng.chance(500), rng.within(0, 6));
        let (max_recv_wr, ring, receives) =
            (rng.pick(&[1, 4, 30, 30]), rng.chance(900), rng.pick(&[50, 500, 1000, 1000]));
        Setup { settings, facts, lanes, habits, breaks, changes, lost, lazy, eager, skew, max_recv_wr, ring, receives }
    }
}

/// Where a change of state stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// The driver waits for quiet; then the QP goes to ERR, RESET, or stays.
    Waits(Option<State>),
}

struct Sim {
    setup: Setup,
    rng: Rng,
    engine: Engine,
    world: World,
    change: Change,
    /// The engine was told that there may be lanes.
    expecting: bool,
    /// A lane was lost for good while the application makes the QP leave.
    lost_meanwhile: bool,
    /// The driver asked for the peer's ring.
    asked: bool,
    /// The engine sleeps, and has missed this.
    asleep: Option<Missed>,
    /// How often it has.
    naps: u64,
    steps: u64,
}

impl Sim {
    fn new(seed: u64, without: Option<Guard>) -> Sim {
        let mut rng = Rng::new(seed);
        let setup = Setup::random(&mut rng);
        Sim::with(setup, rng, without)
    }

    fn with(setup: Setup, mut rng: Rng, without: Option<Guard>) -> Sim {
        let memory = Memory::new(&mut rng);
        let oracle = Oracle::new(setup.settings.mode, memory.clone());
        let world_rng = Rng::new(rng.next());
        let receiver = Receiver::new(setup.max_recv_wr, setup.settings.ahead, without);
        let (max_send_wr, depth) = (setup.facts.max_send_wr, setup.settings.depth);
        let mut world = World::new(oracle, memory, receiver, world_rng, max_send_wr, setup.lanes, depth);
        world.refuse = rng.pick(&[0, 0, 50]);
        let mut engine = Engine::new(setup.facts, setup.settings).unwrap();
        engine.guards.without = without;
        let (change, expecting, lost_meanwhile, asked, asleep, naps, steps) =
            (Change::None, false, false, false, None, 0, 0);
        let mut sim = Sim { setup, rng, engine, world, change, expecting, lost_meanwhile, asked, asleep, naps, steps };
        sim.start();
        sim
    }

    fn start(&mut self) {
        self.engine.state_changed(State::Ready, &mut self.world);
        self.nap();
        if self.rng.chance(300) {
            // Lanes come later, if at all.
            self.expecting = true;
            self.engine.expect_lanes(true, &mut self.world);
            self.world.lanes.iter_mut().for_each(|l| l.resting = true);
            return;
        }
        for lane in 0..self.setup.lanes {
            self.engine.lane_up(lane, &mut self.world);
        }
    }

    /// Runs for about `steps`, then until everything has come to rest. What was violated, if anything.
    fn run(&mut self, steps: u64) -> Result<(), String> {
        let end = self.steps + steps;
        while self.steps < end && self.world.oracle.violation.is_none() {
            if self.change == Change::None && self.rng.chance(150) {
                self.post();
            } else {
                self.step(true);
            }
        }
        self.settle();
        self.world.oracle.violation.take().map_or(Ok(()), Err)
    }

    /// Nothing new is posted: all that was accepted ends.
    fn settle(&mut self) {
        let mut patience = 20_000;
        while self.world.oracle.violation.is_none() {
            let rest = self.engine.is_idle()
                && self.world.is_still()
                && self.world.cq.is_empty()
                && self.world.receiver.is_empty();
            if rest && !self.world.break_asked && self.world.revoke_asked.is_empty() && self.change == Change::None {
                self.world.oracle.finish(&self.world.memory);
                self.world.oracle.heard();
                return;
            }
            // Even an application that never polls gets its data through, if others poll when the engine says so.
            let oracle = &self.world.oracle;
            let broken = oracle.failed || self.world.err;
            self.step(!self.setup.lazy || oracle.executed == oracle.accepted || broken);
            patience -= 1;
            let engine = &self.engine;
            self.world.oracle.check(patience > 0, || format!("deadlock: {engine:?}"));
        }
    }

    /// One random event, of those that are possible if that is found soon.
    fn step(&mut self, may_poll: bool) {
        self.steps += 1;
        let mut tries = 0;
        while !self.event(may_poll) && tries < 4 {
            tries += 1;
        }
    }

    fn event(&mut self, may_poll: bool) -> bool {
        if self.rng.below(10_000) < u64::from(self.setup.breaks) {
            let lane = self.rng.below(self.setup.lanes as u64) as usize;
            return if self.rng.chance(700) { self.world.break_lane(lane) } else { self.rest(lane) };
        }
        if self.rng.below(10_000) < u64::from(self.setup.changes) {
            self.begin_change();
        }
        let lane = self.lane();
        match self.rng.below(13) {
            0 | 1 => self.world.run_primary(),
            2 | 3 => self.world.ack_primary(),
            4 => self.world.run_lane(lane),
            5 => self.world.ack_lane(lane),
            6 => self.poll_lane(lane),
            7 => self.feed(),
            8 => self.world.land_late(),
            9 => self.ring() || self.repair(),
            10 => self.go_on_with_change(),
            11 => self.receive(),
            _ => self.poll(may_poll),
        }
    }

    /// A lane, not each as often.
    fn lane(&mut self) -> usize {
        let n = self.setup.lanes as u64;
        if self.rng.below(8) < u64::from(self.setup.skew) { 0 } else { self.rng.below(n) as usize }
    }

    fn post(&mut self) {
        self.steps += 1;
        let mut wr = app::wr(&mut self.rng, &self.setup.habits, self.world.oracle.accepted);
        let oracle = &self.world.oracle;
        let limit = u64::from(self.setup.facts.max_send_wr);
        if oracle.outstanding() + 2 >= limit && !oracle.has_signaled_outstanding() {
            // An application that never asked for a completion could not go on natively.
            wr.fields.flags |= SIGNALED;
        }
        let signaled = wr.fields.flags & SIGNALED != 0 || self.setup.facts.sq_sig_all;
        let fits = oracle.outstanding() < limit;
        let result = self.post_one(&wr, signaled);
        let erring = self.world.err || self.world.oracle.failed || !self.world.oracle.excuses.is_empty();
        let same = if erring { !fits || result.is_ok() } else { result.is_ok() == fits };
        if result == Err(INVALID) && world::is_refused(&wr.fields) {
            return;
        }
        self.world.oracle.check(same && (result.is_ok() || result == Err(NO_ROOM)), || {
            format!("C8: {result:?} where natively there is room: {fits}")
        });
        if result.is_ok() {
            let bytes = wr.view().bytes();
            let mut fault = world::fault(&wr.fields, &wr.sges, bytes);
            if world::is_refused(&wr.fields) {
                // It was held, so nobody knew. It will never run; those before it may be flushed.
                fault = 2;
                self.world.oracle.excuses.extend([5]);
            }
            self.world.oracle.accept(wr, signaled, fault);
        }
        if self.rng.chance(700) {
            self.feed();
        }
    }

    fn post_one(&mut self, wr: &Wr, signaled: bool) -> Result<(), Errno> {
        let view = wr.view();
        let small = !self.engine.is_large(view.bytes());
        let fits = self.world.oracle.outstanding() < u64::from(self.setup.facts.max_send_wr);
        if let Some(missed) = self.asleep.as_mut().filter(|_| small && fits) {
            let mut posted = view;
            posted.fields.flags |= if signaled { SIGNALED } else { 0 };
            let seq = self.world.oracle.accepted + 1;
            self.world.post_primary(&Posting { wr: posted, seq, why: Why::App })?;
            missed.wrs += 1;
            missed.consumed += u64::from(lengths::consumes(wr.fields.opcode));
            return Ok(());
        }
        self.wake();
        let fast = self.engine.passes(wr.fields.opcode, view.bytes()) && self.engine.room() > 0;
        if !fast || wr.fields.flags & INLINE != 0 || self.rng.chance(300) {
            return self.engine.post(&view, &mut self.world);
        }
        let mut wr = view;
        wr.fields.flags |= if signaled { SIGNALED } else { 0 };
        let seq = self.world.oracle.accepted + 1;
        self.world.post_primary(&Posting { wr, seq, why: Why::App })?;
        self.engine.note_passed(wr.fields.opcode, view.has(SIGNALED));
        Ok(())
    }

    /// The engine may sleep, if nothing is to be done.
    fn nap(&mut self) {
        if self.asleep.is_none() && self.change == Change::None && self.engine.may_sleep() && self.rng.chance(900) {
            self.asleep = Some(Missed::default());
            self.naps += 1;
        }
    }

    /// Before the engine is to do anything else than sleep.
    fn wake(&mut self) {
        let Some(missed) = self.asleep.take() else { return };
        let oracle = &self.world.oracle;
        let accepted = self.engine.wake(Missed { open: oracle.outstanding(), ..missed });
        let same = accepted == oracle.accepted;
        (oracle.covered + 1..=accepted).filter(|seq| oracle.is_signaled(*seq)).for_each(|seq| self.engine.is_open(seq));
        self.world.oracle.check(same, || format!("an engine that slept counts {accepted} WRs"));
    }

    fn feed(&mut self) -> bool {
        if !self.engine.wants_lanes() && self.engine.guards.without.is_none() {
            return false;
        }
        let depth = self.setup.settings.depth as usize;
        let full = self.rng.chance(300);
        let mut room: Vec<u32> = (0..self.setup.lanes)
            .map(|l| if full && self.rng.chance(500) { 0 } else { self.world.room(l, depth) })
            .collect();
        // As wrong as a measurement may be; or all alike.
        let alike = self.rng.chance(500).then(|| self.rng.pick(&[0, 1, 100]));
        let offer = |room| Offer {
            room,
            speed: alike.unwrap_or_else(|| self.rng.pick(&[0, 1, 100, 100, 5000, u32::MAX])),
            least_bytes: self.rng.pick(&[0, 0, 256, u32::MAX]),
        };
        let mut offers: Vec<Offer> = room.drain(..).map(offer).collect();
        let refused = self.world.refused;
        self.engine.feed(&mut offers, &mut self.world);
        let (engine, is_told) = (&self.engine, full || self.world.refused > refused);
        let waits_for_nothing = engine.wants_lanes() && engine.lanes_up() > 0 && self.world.are_lanes_empty();
        self.world.oracle.check(is_told || !waits_for_nothing, || {
            format!("a piece waits, and all lanes are idle, so nothing would ever wake it: {offers:?} {engine:?}")
        });
        true
    }

    /// The ring that was asked for is there; or it is forgotten, as when the side channel broke.
    fn ring(&mut self) -> bool {
        self.asked |= self.engine.take_wish();
        if self.asked && self.setup.ring && self.change == Change::None {
            self.asked = false;
            let ring = self.world.receiver.offer();
            self.engine.set_ring(Some(ring));
            return true;
        }
        if self.rng.chance(5) {
            self.asked = false;
            self.engine.set_ring(None);
        }
        false
    }

    /// The peer's application polls, or its shim does for it.
    fn receive(&mut self) -> bool {
        if !self.rng.chance(self.setup.receives) {
            return self.world.receiver.post();
        }
        if self.rng.chance(100) {
            return self.world.receiver.draw();
        }
        let mut any = false;
        while let Some((with_imm, byte_len, imm)) = self.world.receiver.next() {
            self.world.oracle.received(with_imm, byte_len, imm);
            any = true;
        }
        self.world.receiver.post() || any
    }

    fn poll_lane(&mut self, lane: usize) -> bool {
        let Some((token, status)) = self.world.poll_lane(lane) else { return false };
        self.engine.chunk_completed(token, status, 7, &mut self.world);
        if self.rng.chance(500) {
            self.feed();
        }
        true
    }

    /// A lane takes no new pieces for a while.
    fn rest(&mut self, lane: usize) -> bool {
        let l = &mut self.world.lanes[lane];
        if l.broken || l.resting {
            return false;
        }
        l.resting = true;
        self.engine.lane_down(lane, &mut self.world);
        true
    }

    /// Revokes what the engine asked for; brings lanes back.
    fn repair(&mut self) -> bool {
        if self.expecting && self.rng.chance(30) {
            self.expecting = false;
            self.engine.expect_lanes(false, &mut self.world);
            return true;
        }
        if self.rng.chance(300) && !self.world.revoke_asked.is_empty() {
            let lane = self.world.revoke_asked.remove(0);
            self.world.revoke(lane);
            if self.rng.chance(self.setup.lost) {
                if self.change == Change::None {
                    self.world.oracle.excuses.extend([5, 12]);
                } else {
                    self.lost_meanwhile = true;
                }
                self.engine.lane_lost(lane, &mut self.world);
            } else {
                self.engine.lane_revoked(lane, &mut self.world);
            }
            return true;
        }
        let lane = self.lane();
        let l = &self.world.lanes[lane];
        if l.resting && !l.broken && self.change == Change::None {
            self.world.lanes[lane].resting = false;
            self.engine.lane_up(lane, &mut self.world);
            return true;
        }
        let free = l.broken && self.world.is_queue_empty(lane) && !self.world.revoke_asked.contains(&lane);
        // Some drivers reset the peer's end of every lane that breaks, others when they are asked.
        if free && (l.revoked || self.setup.eager) && self.rng.chance(200) {
            if !self.world.lanes[lane].revoked {
                self.world.revoke(lane);
                self.engine.lane_revoked(lane, &mut self.world);
            }
            self.world.renew(lane);
            self.engine.lane_up(lane, &mut self.world);
            return true;
        }
        false
    }

    fn begin_change(&mut self) {
        if self.change == Change::None {
            self.wake();
            let to = self.rng.pick(&[Some(State::Error), Some(State::Reset), None]);
            self.change = Change::Waits(to);
            self.engine.depart(&mut self.world);
        }
    }

    fn go_on_with_change(&mut self) -> bool {
        if self.world.break_asked && self.change == Change::None {
            self.world.break_asked = false;
            self.world.err = true;
            self.engine.state_changed(State::Error, &mut self.world);
            return true;
        }
        let ripe = self.world.oracle.quiet && self.rng.chance(300);
        match self.change {
            Change::Waits(_) if !ripe => return false,
            Change::Waits(None) => {
                self.change = Change::None;
                if std::mem::take(&mut self.lost_meanwhile) {
                    self.world.oracle.excuses.extend([5, 12]);
                }
                self.world.oracle.quiet = self.world.oracle.failed;
                self.engine.resume(&mut self.world);
            }
            Change::Waits(Some(State::Error)) => {
                self.change = Change::None;
                self.lost_meanwhile = false;
                self.world.err = true;
                self.world.break_asked = false;
                self.world.oracle.excuses.push(5);
                self.engine.state_changed(State::Error, &mut self.world);
            }
            Change::Waits(Some(_)) => self.reset(),
            // A broken QP is of no use to anybody.
            Change::None if self.world.oracle.failed && self.engine.is_idle() && self.world.is_still() => {
                if self.world.cq.is_empty() {
                    self.world.oracle.finish(&self.world.memory);
                }
                self.begin_change();
                self.change = Change::Waits(Some(State::Reset));
            }
            _ => return false,
        }
        true
    }

    fn reset(&mut self) {
        (self.change, self.asked, self.lost_meanwhile) = (Change::None, false, false);
        self.world.reset();
        self.engine.state_changed(State::Reset, &mut self.world);
        self.start();
    }

    fn poll(&mut self, may_poll: bool) -> bool {
        let full = self.world.oracle.outstanding() >= u64::from(self.setup.facts.max_send_wr);
        let wants = self.engine.waits_for_primary() || full && may_poll || self.world.oracle.failed;
        if !(wants || may_poll && !self.setup.lazy) {
            return self.setup.lazy && may_poll && self.rng.chance(20) && self.take();
        }
        self.take()
    }

    /// Polls one completion.
    fn take(&mut self) -> bool {
        let Some(c) = self.world.poll() else { return false };
        if self.asleep.is_some() {
            if c.status == 0 {
                let (status, opcode, byte_len) = (c.status, c.opcode, c.byte_len);
                self.world.oracle.complete(&Seen { seq: c.seq, wr_id: c.wr_id, status, opcode, byte_len });
                return true;
            }
            self.wake();
        }
        let verdict = self.engine.primary_completed(c.wr_id, c.status, &mut self.world);
        if let Verdict::Deliver(fix) = verdict {
            let status = fix.status.map_or(c.status, |(status, _)| status);
            let byte_len = fix.byte_len.unwrap_or(c.byte_len);
            let seen = Seen { seq: c.seq, wr_id: c.wr_id, status, opcode: c.opcode, byte_len };
            self.world.oracle.complete(&seen);
            self.engine.delivered(fix.upto);
        }
        self.nap();
        true
    }
}
