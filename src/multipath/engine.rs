//! The state machine of one application QP.
//!
//! A WR is *held* from its post until its last or only part is on the application's QP, the *primary*; WRs reach the
//! primary in the order of their posts. Of a split WR, the bodies go to lanes; the tail follows on the primary once they
//! have arrived, and completes as the WR. So each WR that is not held is native, and native is what orders, completes,
//! flushes and fails it.
//!
//! When bodies may start is one number, `start_after`: the WR up to which everything must be done. Strict: the one
//! before. Notify: the last one that conflicts. What is done is known from the primary's completions, matched in order
//! by `marks`, one for each signaled WR there. If that leaves earlier WRs open, the split WR's first piece, the *head*,
//! goes on the primary behind them, signaled, and its completion says that they are done.
//!
//! While lanes are expected (the peer's shim is being asked), large WRs go whole, but only two at a time, so that those
//! behind them can still be split when the lanes are there. The driver sees to it that this lasts no longer than it may.
//!
//! What is held is never more than the application's queue would hold, WRs and bytes.
//!
//! The engine is not thread-safe: the driver has a lock per QP around every call. Whoever polls the application's CQ
//! drives it on; see [`Engine::waits_for_primary`].

mod chunks;
mod lanes;
mod op;
mod primary;
mod sleep;

use self::chunks::{Chunk, Chunks};
use self::lanes::LaneState;
use self::op::{Form, Head, Note, Op};
use self::primary::{Blame, Mark};
pub use self::sleep::Missed;
use super::driver::{Driver, Errno, INVALID, NO_ROOM, Posting, State, Stats, Why};
use super::guard::{Guard, Guards};
use super::lengths::{self, Record, Ring};
use super::overlap::{Footprint, Window};
use super::plan::{self, Mode, Pass, Plan, Settings};
use super::schedule::Turns;
use super::wr::{FENCE, SIGNALED, Sge, WRITE_WITH_IMM, WrRef};
use std::collections::VecDeque;

/// WRs that the primary's send queue must take beyond the application's `max_send_wr`: one head.
pub const EXTRA_SEND_WRS: u32 = 1;

/// Completions that the primary's CQ must hold beyond what the application counted on, per QP: one head's, and of WRs that
/// only the engine wants to hear of one tail's, and two that went whole while lanes were expected.
pub const EXTRA_CQES: u32 = 4;

/// What the engine needs to know of its QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpFacts {
    /// WRs that the application may have outstanding: what it was told, without [`EXTRA_SEND_WRS`].
    pub max_send_wr: u32,
    /// Elements of a WR's list.
    pub max_send_sge: u32,
    /// Inline data of a WR.
    pub max_inline_bytes: u32,
    /// Every WR completes.
    pub sq_sig_all: bool,
}

/// Whether a ring would be of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// Nothing was posted that needs one.
    No,
    /// Something was.
    Yes,
    /// The driver knows.
    Told,
}

/// One QP's engine.
#[derive(Debug)]
pub struct Engine {
    /// WRs held, oldest first.
    ops: VecDeque<Op>,
    /// Messages below this pass.
    threshold_bytes: u64,
    /// Larger ones, too.
    large_pass: bool,
    /// Why the last large WR passed; `None` if it was cut, or there was none.
    last_large: Option<Pass>,
    /// WRs accepted since the last RESET: the number of the last one.
    accepted: u64,
    /// The last one whose last or only part is on the primary.
    on_primary: u64,
    /// The last one of the fast path.
    unseen: u64,
    /// Those that consume a receive at the peer.
    consumed: u64,
    /// All up to this one are done.
    acked: u64,
    /// All up to this one are covered by completions that the application got.
    delivered: u64,
    marks: VecDeque<Mark>,
    /// Lengths of the messages whose tails are marked, bytes.
    totals: VecDeque<u32>,
    facts: QpFacts,
    settings: Settings,
    ready: bool,
    /// Nothing starts, here and on lanes.
    stopped: bool,
    /// It is the application that wants it so.
    leaving: bool,
    /// A piece that was given up since then.
    given_up: Option<Chunk>,
    /// The primary is in ERR.
    flushing: bool,
    /// The driver was asked to move the primary to ERR.
    breaking: bool,
    /// A lane refused what it should not have.
    refused: bool,
    /// The primary had no room for what is next.
    stalled: bool,
    blame: Option<Blame>,
    /// Where the lengths of split WRITE_WITH_IMMs go.
    ring: Option<Ring>,
    wish: Wish,
    window: Window,
    chunks: Chunks,
    lanes: Vec<LaneState>,
    lanes_up: u32,
    /// Elements that a lane takes.
    lane_sges: usize,
    /// There may be lanes soon.
    expects_lanes: bool,
    /// The last two WRs that went whole meanwhile; the next one waits for the first of them.
    ahead_of_lanes: [u64; 2],
    turns: Turns,
    scratch: Vec<Sge>,
    spare: Vec<Op>,
    stats: Stats,
    pub(super) guards: Guards,
}

impl Engine {
    /// The engine of a QP in RESET, without lanes. `None`: no memory.
    pub fn new(facts: QpFacts, settings: Settings) -> Option<Engine> {
        let mut marks = VecDeque::new();
        marks.try_reserve_exact((facts.max_send_wr + EXTRA_SEND_WRS) as usize).ok()?;
        Some(Engine {
            ops: VecDeque::new(),
            threshold_bytes: u64::from(settings.min_split_bytes.max(1)),
            large_pass: true,
            last_large: None,
            accepted: 0,
            on_primary: 0,
            unseen: 0,
            consumed: 0,
            acked: 0,
            delivered: 0,
            marks,
            totals: VecDeque::new(),
            facts,
            settings,
            ready: false,
            stopped: false,
            leaving: false,
            given_up: None,
            flushing: false,
            breaking: false,
            refused: false,
            stalled: false,
            blame: None,
            ring: None,
            wish: Wish::No,
            window: Window::default(),
            chunks: Chunks::default(),
            lanes: Vec::new(),
            lanes_up: 0,
            lane_sges: usize::MAX,
            expects_lanes: false,
            ahead_of_lanes: [0; 2],
            turns: Turns::default(),
            scratch: Vec::new(),
            spare: Vec::new(),
            stats: Stats::default(),
            guards: Guards::default(),
        })
    }

    /// Whether a guard is in its place: always, but for tests.
    #[inline(always)]
    fn keeps(&self, guard: Guard) -> bool {
        self.guards.keep(guard)
    }

    /// Whether a WR of this opcode and length goes to the primary as it is, at once: the fast path. If so for each WR of
    /// a chain, and the chain is not longer than [`room`](Engine::room), the driver posts it and then says
    /// [`note_passed`](Engine::note_passed) for each WR that the provider took. Otherwise, [`post`](Engine::post).
    #[inline(always)]
    pub fn passes(&self, opcode: u32, bytes: u64) -> bool {
        self.ops.is_empty() && (!self.is_large(bytes) || self.large_pass || !plan::is_splittable(opcode))
    }

    /// Whether a message has the size from which messages are split.
    #[inline(always)]
    pub fn is_large(&self, bytes: u64) -> bool {
        bytes >= self.threshold_bytes
    }

    /// A large WR took the fast path: it is counted, and remembered for [`last_large`](Engine::last_large).
    #[cold]
    pub fn note_large(&mut self, opcode: u32) {
        self.large_passed(if plan::is_splittable(opcode) {
            self.why_none().unwrap_or(Pass::NoLane)
        } else {
            Pass::Opcode
        });
    }

    /// Why no WR is split now, whatever it is.
    fn why_none(&self) -> Option<Pass> {
        if !self.ready || self.flushing || self.breaking {
            Some(Pass::NotReady)
        } else if !self.has_or_expects_lanes() {
            Some(Pass::NoLane)
        } else {
            self.refused.then_some(Pass::LaneRefused)
        }
    }

    fn large_passed(&mut self, why: Pass) {
        self.stats.large_passed[why as usize] += 1;
        self.last_large = Some(why);
    }

    /// Lanes that take pieces of this QP.
    pub fn lanes_up(&self) -> u32 {
        self.lanes_up
    }

    /// Why nothing is split though there are lanes: they refused what the QP may do, or the last large WR was none to be
    /// split. `None`: the last large WR was split, or there was none.
    pub fn last_large(&self) -> Option<Pass> {
        if self.refused { Some(Pass::LaneRefused) } else { self.last_large }
    }

    /// A WR of the fast path is on the primary. `signaled`: by its flags; `sq_sig_all` is the engine's to know.
    #[inline(always)]
    pub fn note_passed(&mut self, opcode: u32, signaled: bool) {
        self.accepted += 1;
        self.consumed += u64::from(lengths::consumes(opcode));
        self.unseen = self.accepted;
        self.on_primary = self.accepted;
        if signaled || self.facts.sq_sig_all {
            self.mark(Mark::app(self.accepted));
        }
    }

    /// WRs that the application may still post. Once the primary is in ERR there is no limit but the provider's own.
    #[inline(always)]
    pub fn room(&self) -> u32 {
        let outstanding = self.accepted - self.delivered;
        if self.flushing { u32::MAX } else { self.facts.max_send_wr.saturating_sub(outstanding as u32) }
    }

    /// The application posts a WR; the WRs of a chain come one by one, up to the first that is refused.
    ///
    /// # Errors
    /// What `ibv_post_send` is to return, this WR being the bad one: [`NO_ROOM`] if the application's queue is full or
    /// there is no memory to hold the WR, [`INVALID`] if it would be held and exceeds the QP's limits, or the provider's.
    pub fn post<D: Driver>(&mut self, wr: &WrRef<'_>, d: &mut D) -> Result<(), Errno> {
        if self.room() == 0 && self.keeps(Guard::Limit) {
            return Err(NO_ROOM);
        }
        let plan = self.plan(wr);
        match plan {
            Plan::Pass(why) if self.ops.is_empty() || !self.keeps(Guard::HoldBack) => self.pass(wr, why, d),
            _ => self.hold(wr, plan, d),
        }
    }

    /// Whether so many WRs can be posted, and held if need be: what a batch that is taken as a whole asks.
    pub fn has_room_for(&self, wrs: usize) -> bool {
        let held = (self.facts.max_send_wr as usize).saturating_sub(self.ops.len());
        wrs <= held.min(self.room() as usize)
    }

    /// As [`post`](Engine::post), of a WR of a batch that was accepted as a whole, for which there was
    /// [room](Engine::has_room_for): if the provider refuses it, it fails as a held one does.
    ///
    /// # Errors
    /// [`NO_ROOM`] if there is no memory, [`INVALID`] if it exceeds the QP's limits.
    pub fn take<D: Driver>(&mut self, wr: &WrRef<'_>, d: &mut D) -> Result<(), Errno> {
        let plan = self.plan(wr);
        self.hold(wr, plan, d)
    }

    /// Tries again what the primary had no room for.
    pub fn retry<D: Driver>(&mut self, d: &mut D) {
        if self.stalled {
            self.pump(d);
        }
    }

    /// While nothing is held, shorter messages pass.
    #[inline(always)]
    pub fn threshold_bytes(&self) -> u64 {
        self.threshold_bytes
    }

    fn plan(&mut self, wr: &WrRef<'_>) -> Plan {
        if !self.ready || self.flushing || self.breaking {
            return Plan::Pass(Pass::NotReady);
        }
        match plan::plan(wr, &self.settings, self.has_or_expects_lanes()) {
            Plan::Split(_) if self.refused => Plan::Pass(Pass::LaneRefused),
            Plan::Split(_) if wr.fields.opcode == WRITE_WITH_IMM && self.ring.is_none() => {
                if self.wish == Wish::No && self.lanes_up > 0 {
                    self.wish = Wish::Yes;
                }
                Plan::Pass(Pass::NoRing)
            }
            plan => plan,
        }
    }

    /// Nothing is held, and the WR need not be.
    fn pass<D: Driver>(&mut self, wr: &WrRef<'_>, why: Pass, d: &mut D) -> Result<(), Errno> {
        let (seq, signaled) = (self.accepted + 1, self.is_signaled(wr));
        let mut wr = *wr;
        set_signaled(&mut wr.fields.flags, signaled);
        d.post_primary(&Posting { wr, seq, why: Why::App })?;
        self.accepted = seq;
        self.consumed += u64::from(lengths::consumes(wr.fields.opcode));
        self.on_primary = self.on_primary.max(seq);
        self.count_passed(&wr, why);
        self.see(seq, &wr);
        if signaled {
            self.mark(Mark::app(seq));
        }
        Ok(())
    }

    /// Something is held, or the WR is to be split.
    fn hold<D: Driver>(&mut self, wr: &WrRef<'_>, plan: Plan, d: &mut D) -> Result<(), Errno> {
        if wr.sges.len() > self.facts.max_send_sge as usize || wr.inline.len() > self.facts.max_inline_bytes as usize {
            return Err(INVALID);
        }
        // Of a QP in ERR too, whose `room` has no limit.
        if self.ops.len() >= self.facts.max_send_wr as usize && self.keeps(Guard::Limit) {
            return Err(NO_ROOM);
        }
        let mut op = self.spare.pop().unwrap_or_default();
        if !op.wr.copy_from(wr) || self.ops.try_reserve(1).is_err() {
            self.spare.push(op);
            return Err(NO_ROOM);
        }
        op.seq = self.accepted + 1;
        op.signaled = self.is_signaled(wr);
        op.start_after = self.start_after(wr);
        self.consumed += u64::from(lengths::consumes(wr.fields.opcode));
        op.form = match plan {
            Plan::Split(cut) => {
                self.stats.split += 1;
                self.note_length(&mut op, cut);
                Form::Split(cut)
            }
            Plan::Pass(why) => {
                self.count_passed(wr, why);
                Form::Pass
            }
        };
        self.stats.held += u64::from(!self.ops.is_empty());
        self.accepted = op.seq;
        self.see(op.seq, wr);
        self.ops.push_back(op);
        self.pump(d);
        Ok(())
    }

    /// A piece of a held WR was posted.
    fn count_parted(&mut self, at: usize) {
        let op = &mut self.ops[at];
        if !std::mem::replace(&mut op.parted, true)
            && let Form::Split(cut) = op.form
        {
            self.stats.parted += 1;
            self.stats.moved(op.wr.fields.opcode, |m| m.split += u64::from(cut.length()));
            self.last_large = None;
        }
    }

    /// The oldest WR held was posted as it is.
    fn count_whole(&mut self) {
        let op = &self.ops[0];
        let (bytes, opcode) = (op.wr.view().bytes(), op.wr.fields.opcode);
        if op.form == Form::Pass || op.form == Form::StandIn {
            return;
        }
        if op.parted {
            self.stats.given_up += 1;
            self.stats.moved(opcode, |m| m.on_qp += bytes);
        } else {
            self.large_passed(self.why_none().unwrap_or(Pass::NoLane));
        }
    }

    fn count_passed(&mut self, wr: &WrRef<'_>, why: Pass) {
        self.stats.passed[why as usize] += 1;
        if self.is_large(wr.bytes()) {
            self.large_passed(why);
        }
    }

    /// A split WRITE_WITH_IMM has a record of its length.
    fn note_length(&mut self, op: &mut Op, cut: plan::Cut) {
        let Some(ring) = self.ring.filter(|_| op.wr.fields.opcode == WRITE_WITH_IMM) else { return };
        let (seq, imm) = (self.consumed, op.wr.fields.imm);
        let record = Record { seq, tag: ring.tag, length: cut.length(), tail: cut.tail().length, imm };
        op.set_note(Note { record, remote_addr: ring.place(seq), rkey: ring.rkey });
        if self.keeps(Guard::Lead) {
            op.start_after = op.start_after.max(op.seq.saturating_sub(u64::from(self.settings.ahead.max(1))));
        }
        self.stats.split_imm += 1;
    }

    /// Whether the receiver's ring was missed for the first time since there is none. The driver asks for it then.
    #[inline(always)]
    pub fn take_wish(&mut self) -> bool {
        let wished = self.wish == Wish::Yes;
        if wished {
            self.wish = Wish::Told;
        }
        wished
    }

    /// Lengths of split WRITE_WITH_IMMs go there from now on; `None`: they are not split. A RESET forgets it. All lanes
    /// must take inline data of [`lengths::RECORD_BYTES`].
    pub fn set_ring(&mut self, ring: Option<Ring>) {
        self.ring = ring;
        if ring.is_none() {
            self.wish = Wish::No;
        }
    }

    fn is_signaled(&self, wr: &WrRef<'_>) -> bool {
        wr.has(SIGNALED) || self.facts.sq_sig_all
    }

    /// Notes what a WR touches, where that will be asked.
    fn see(&mut self, seq: u64, wr: &WrRef<'_>) {
        if self.settings.mode == Mode::Notify && !self.flushing {
            self.window.push(seq, Footprint::of(wr));
        }
    }

    /// Up to which WR everything must be done before bodies of this one, the next, may start.
    fn start_after(&self, wr: &WrRef<'_>) -> u64 {
        if self.settings.mode == Mode::Strict {
            return if self.keeps(Guard::StrictWait) { self.accepted } else { 0 };
        }
        let this = Footprint::of(wr);
        let conflict = self.window.last(|f| f.blocks(&this));
        let fetch = if wr.has(FENCE) { self.window.last_fetch() } else { 0 };
        let keep = |guard, seq| if self.keeps(guard) { seq } else { 0 };
        keep(Guard::Overlap, conflict).max(keep(Guard::Fence, fetch)).max(keep(Guard::Unseen, self.unseen))
    }

    /// Whether WRs are held. If not, everything accepted is on the primary, and nothing on lanes but what a RESET forgot.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.ops.is_empty()
    }

    /// WRs held.
    pub fn held(&self) -> usize {
        self.ops.len()
    }

    /// Whether what is held waits for a completion of the primary. While it does, somebody must poll the application's
    /// CQ even if the application does not (it may sleep, or watch memory), and keep what is found for it.
    pub fn waits_for_primary(&self) -> bool {
        let waits = |op: &Op| match op.form {
            Form::Split(_) => op.start_after > self.acked,
            _ => false,
        };
        let lacks_lanes = |op: &Op| matches!(op.form, Form::Split(_)) && self.lanes_up == 0;
        let front = |op: &Op| op.head == Head::Posted || waits(op) || lacks_lanes(op);
        self.stalled || self.ops.front().is_some_and(front)
    }

    /// Whether no piece of this QP is in flight on a lane, nor lost and still able to arrive.
    pub fn is_quiet(&self) -> bool {
        self.chunks.is_empty() || !self.keeps(Guard::Quiet)
    }

    /// What it did so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The application is about to move the QP out of RTS, or to destroy it: nothing starts any more. The driver waits
    /// for [`Driver::quiet`] (meanwhile it polls the lanes, or breaks them), then makes the real call, then says
    /// [`state_changed`](Engine::state_changed); or [`resume`](Engine::resume) if that failed.
    pub fn depart<D: Driver>(&mut self, d: &mut D) {
        self.leaving = true;
        self.stop(d);
    }

    /// As [`depart`](Engine::depart), of the peer's QP.
    pub fn stop<D: Driver>(&mut self, d: &mut D) {
        self.stopped = true;
        self.tell_quiet(d);
    }

    /// The QP's state stays as it was, or it is back in RTS from SQD.
    pub fn resume<D: Driver>(&mut self, d: &mut D) {
        (self.stopped, self.leaving) = (false, false);
        if let Some(c) = self.given_up.take() {
            self.give_up(&c, d);
        }
        self.pump(d);
    }

    /// The QP's state changed, and the provider knows. To [`State::Reset`] only when quiet, if pieces are not to land in
    /// memory that the application thinks its own again; a piece that is still in flight keeps its token.
    pub fn state_changed<D: Driver>(&mut self, to: State, d: &mut D) {
        (self.stopped, self.leaving, self.given_up) = (false, false, None);
        self.breaking = false;
        match to {
            State::Ready => self.ready = true,
            State::Error => self.flushing = true,
            State::Reset => self.forget(),
        }
        self.refresh();
        self.pump(d);
        self.tell_quiet(d);
    }

    fn forget(&mut self) {
        while let Some(mut op) = self.ops.pop_front() {
            op.recycle();
            self.spare.push(op);
        }
        self.chunks.orphan();
        self.marks.clear();
        self.totals.clear();
        self.window.clear();
        (self.accepted, self.on_primary, self.unseen, self.acked, self.delivered) = (0, 0, 0, 0, 0);
        self.consumed = 0;
        self.set_ring(None);
        (self.ready, self.flushing, self.refused, self.stalled) = (false, false, false, false);
        (self.blame, self.last_large) = (None, None);
        for lane in &mut self.lanes {
            lane.turn.up = false;
        }
        (self.lanes_up, self.expects_lanes, self.ahead_of_lanes) = (0, false, [0; 2]);
    }

    fn has_or_expects_lanes(&self) -> bool {
        self.lanes_up > 0 || self.expects_lanes
    }

    /// Sets what the fast path compares with.
    fn refresh(&mut self) {
        self.large_pass = self.why_none().is_some();
    }

    fn tell_quiet<D: Driver>(&self, d: &mut D) {
        if (self.stopped || self.flushing || self.breaking) && self.is_quiet() {
            d.quiet();
        }
    }

    fn op_mut(&mut self, seq: u64) -> Option<&mut Op> {
        let at = self.ops.binary_search_by_key(&seq, |op| op.seq).ok()?;
        self.ops.get_mut(at)
    }
}

fn set_signaled(flags: &mut u32, signaled: bool) {
    *flags = *flags & !SIGNALED | if signaled { SIGNALED } else { 0 };
}

#[cfg(test)]
#[path = "engine/tests.rs"]
mod tests;
