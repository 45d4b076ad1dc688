//! The engine's dealings with the application's QP: what is posted there, and what its completions say.

use super::super::driver::{Driver, Errno, Fix, NO_ROOM, Posting, SUCCESS, Verdict, Why, piece_of};
use super::super::guard::Guard;
use super::super::plan::Cut;
use super::super::wr::{FENCE, Fields, READ, SIGNALED, WRITE, WrRef, sublist};
use super::op::{Form, Head};
use super::{Engine, set_signaled};

/// Whose completion a signaled WR of the primary will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The application's, of a whole WR.
    App,
    /// The application's, of a tail; the message's length is in `totals`.
    Tail,
    /// A tail's that the application does not want to hear of.
    Ours,
    /// A head's.
    Head,
}

/// A signaled WR on the primary: the WR up to which its completion says that all are done, and whose that is. In one
/// word, since each WR that passes has one. Completions come in the order of marks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(u64);

impl Mark {
    /// A whole WR of the application.
    #[inline(always)]
    pub fn app(seq: u64) -> Mark {
        Mark::new(seq, Owner::App)
    }

    #[inline(always)]
    fn new(seq: u64, owner: Owner) -> Mark {
        Mark(seq << 2 | owner as u64)
    }

    #[inline(always)]
    fn seq(self) -> u64 {
        self.0 >> 2
    }

    #[inline(always)]
    fn owner(self) -> Owner {
        match self.0 & 3 {
            0 => Owner::App,
            1 => Owner::Tail,
            2 => Owner::Ours,
            _ => Owner::Head,
        }
    }
}

/// The status that a WR is to fail with, which is known before its completion comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blame {
    seq: u64,
    wr_id: u64,
    status: u32,
    vendor_err: u32,
    /// The WR is on the primary, to be flushed.
    posted: bool,
}

/// `IBV_WC_LOC_QP_OP_ERR`: the provider would not have the WR.
const NOT_TAKEN: u32 = 2;

impl Engine {
    #[inline(always)]
    pub(super) fn mark(&mut self, mark: Mark) {
        // Of a QP in ERR nothing completes any more but in error, and these are not matched.
        if !self.flushing {
            self.marks.push_back(mark);
        }
    }

    /// Posts on the primary whatever may go there now.
    pub(super) fn pump<D: Driver>(&mut self, d: &mut D) {
        self.stalled = false;
        while !self.stopped && !self.breaking {
            let Some(op) = self.ops.front() else { return };
            let settled = op.is_settled() || !self.keeps(Guard::Settle);
            let again = match op.form {
                Form::StandIn => self.flushing && self.post_front(Why::StandIn, d),
                _ if self.flushing => op.head != Head::Posted && settled && self.post_front(Why::App, d),
                Form::Pass => self.post_front(Why::App, d),
                Form::Whole => op.head != Head::Posted && settled && self.post_front(Why::Whole, d),
                Form::Split(cut) => self.advance(&cut, d),
            };
            if !again {
                return;
            }
        }
    }

    /// The oldest WR held is to be split. Whether there is more to do.
    fn advance<D: Driver>(&mut self, cut: &Cut, d: &mut D) -> bool {
        let op = &self.ops[0];
        let recorded = op.is_recorded() || !self.keeps(Guard::RecordFirst);
        if op.done == cut.units() && recorded || !self.keeps(Guard::TailLast) && !op.has_piece() {
            return self.post_tail(cut, d);
        }
        if self.lanes_up == 0 && op.has_piece() {
            return self.without_lanes();
        }
        op.head == Head::None && !op.started && self.acked < op.start_after && !self.will_be_acked(op) && {
            self.post_head(cut, d)
        }
    }

    /// Whether a completion that is on its way says that bodies of this WR may start.
    fn will_be_acked(&self, op: &super::Op) -> bool {
        self.marks.back().is_some_and(|m| m.seq() >= op.start_after)
    }

    /// The oldest WR held is to be split, and there are no lanes. Whether it goes whole.
    fn without_lanes(&mut self) -> bool {
        let op = &mut self.ops[0];
        if self.expects_lanes {
            // The queue of the primary is kept short, so that what comes later still can be split.
            if op.started || self.acked < self.ahead_of_lanes[0] {
                return false;
            }
            self.ahead_of_lanes = [self.ahead_of_lanes[1], op.seq];
        }
        op.form = Form::Whole;
        self.stats.whole += 1;
        true
    }

    /// Posts the oldest WR held as it is. False: not now.
    fn post_front<D: Driver>(&mut self, why: Why, d: &mut D) -> bool {
        let op = &self.ops[0];
        let (seq, signaled) = (op.seq, op.signaled);
        let heard = signaled || why == Why::Whole && self.ahead_of_lanes[1] == seq;
        let mut wr = op.wr.view();
        set_signaled(&mut wr.fields.flags, heard);
        if let Err(e) = d.post_primary(&Posting { wr, seq, why }) {
            return self.not_taken(e, d);
        }
        self.count_whole();
        if heard {
            self.mark(if signaled { Mark::app(seq) } else { Mark::new(seq, Owner::Ours) });
        }
        self.leave();
        true
    }

    /// The primary did not take the oldest WR held. Whether to try again at once.
    fn not_taken<D: Driver>(&mut self, e: Errno, d: &mut D) -> bool {
        if e == NO_ROOM {
            self.stalled = true;
            return false;
        }
        if self.ops[0].form == Form::StandIn {
            self.stats.dropped += 1;
            self.leave();
            return true;
        }
        // It was accepted, so it must complete: it fails as if the QP had found out, and a WR that any provider takes is
        // flushed in its place.
        let first = self.is_caught_up();
        let op = &mut self.ops[0];
        let (seq, wr_id) = (op.seq, op.wr.fields.wr_id);
        op.form = Form::StandIn;
        op.wr.sges.clear();
        op.wr.inline.clear();
        op.wr.fields = Fields { wr_id, opcode: WRITE, ..Fields::default() };
        if first {
            self.blame(seq, wr_id, NOT_TAKEN, 0);
        }
        self.break_primary(d);
        self.flushing
    }

    fn post_tail<D: Driver>(&mut self, cut: &Cut, d: &mut D) -> bool {
        let op = &self.ops[0];
        let next_waits = |op: &super::Op| matches!(op.form, Form::Split(_)) && op.start_after > self.acked;
        let (seq, piece) = (op.seq, cut.tail());
        let owner = if op.signaled { Owner::Tail } else { Owner::Ours };
        let signaled = op.signaled || self.ops.get(1).is_some_and(next_waits);
        let mut fields = piece_of(&op.wr.fields, piece.offset);
        set_signaled(&mut fields.flags, signaled);
        self.scratch.clear();
        sublist(&op.wr.sges, piece.offset, piece.length, &mut self.scratch);
        let wr = WrRef { fields, sges: &self.scratch, inline: &[] };
        if let Err(e) = d.post_primary(&Posting { wr, seq, why: Why::Tail }) {
            return self.not_taken(e, d);
        }
        self.stats.moved(fields.opcode, |m| m.on_qp += u64::from(piece.length));
        if signaled {
            self.mark(Mark::new(seq, owner));
        }
        if owner == Owner::Tail {
            self.totals.push_back(cut.length());
        }
        self.leave();
        true
    }

    /// Whether there is more to do.
    fn post_head<D: Driver>(&mut self, cut: &Cut, d: &mut D) -> bool {
        let op = &mut self.ops[0];
        let (seq, piece) = (op.seq, op.take_head(cut));
        // Its completion then says so much, and an error before any body started can only be an earlier WR's or its own.
        op.start_after = seq - 1;
        let opcode = if op.wr.fields.opcode == READ { READ } else { WRITE };
        let flags = op.wr.fields.flags & FENCE | SIGNALED;
        let fields = Fields { opcode, flags, imm: 0, ..piece_of(&op.wr.fields, piece.offset) };
        self.scratch.clear();
        sublist(&op.wr.sges, piece.offset, piece.length, &mut self.scratch);
        let wr = WrRef { fields, sges: &self.scratch, inline: &[] };
        if let Err(e) = d.post_primary(&Posting { wr, seq, why: Why::Head }) {
            op.give_head_back();
            return self.not_taken(e, d);
        }
        self.mark(Mark::new(seq - 1, Owner::Head));
        self.stats.heads += 1;
        self.count_parted(0);
        self.stats.moved(opcode, |m| m.on_qp += u64::from(piece.length));
        false
    }

    /// The oldest WR held is not held any more.
    fn leave(&mut self) {
        let Some(mut op) = self.ops.pop_front() else { return };
        self.on_primary = self.on_primary.max(op.seq);
        if let Some(b) = &mut self.blame
            && b.seq == op.seq
        {
            b.posted = true;
        }
        op.recycle();
        self.spare.push(op);
    }

    /// WR `seq` is to fail with this status, unless one before it failed.
    pub(super) fn blame(&mut self, seq: u64, wr_id: u64, status: u32, vendor_err: u32) {
        if self.blame.is_none() {
            self.blame = Some(Blame { seq, wr_id, status, vendor_err, posted: false });
        }
    }

    /// Whether everything before the oldest WR held is done.
    pub(super) fn is_caught_up(&self) -> bool {
        self.acked == self.on_primary
    }

    pub(super) fn break_primary<D: Driver>(&mut self, d: &mut D) {
        if !self.flushing && !self.breaking {
            self.breaking = true;
            self.refresh();
            d.break_primary();
            self.tell_quiet(d);
        }
    }

    /// A send completion of the primary was polled: all of them, in their order. `wr_id` and `status` (`enum
    /// ibv_wc_status`) are the completion's.
    #[inline(always)]
    pub fn primary_completed<D: Driver>(&mut self, wr_id: u64, status: u32, d: &mut D) -> Verdict {
        match self.completed_at_once(status) {
            Some(upto) => Verdict::Deliver(Fix { byte_len: None, status: None, upto }),
            None => self.other_completed(wr_id, status, d),
        }
    }

    /// The same, if that moves nothing: nothing is held, and the completion is the application's as it is. What
    /// [`delivered`](Engine::delivered) is to be told. `None`: nothing was done, it is for
    /// [`primary_completed`](Engine::primary_completed).
    #[inline(always)]
    pub fn completed_at_once(&mut self, status: u32) -> Option<u64> {
        if status != SUCCESS || !self.ops.is_empty() {
            return None;
        }
        let mark = *self.marks.front().filter(|mark| mark.owner() == Owner::App)?;
        self.marks.pop_front();
        self.ack(mark.seq());
        Some(mark.seq())
    }

    #[inline(always)]
    pub(super) fn ack(&mut self, seq: u64) {
        self.acked = self.acked.max(seq);
        self.window.acked(self.acked);
    }

    #[inline(never)]
    fn other_completed<D: Driver>(&mut self, wr_id: u64, status: u32, d: &mut D) -> Verdict {
        if status != SUCCESS {
            return self.primary_failed(wr_id, d);
        }
        let Some(mark) = self.marks.pop_front() else {
            return Verdict::Deliver(Fix { upto: self.delivered, ..Fix::default() });
        };
        let (seq, owner) = (mark.seq(), mark.owner());
        self.ack(seq);
        if owner == Owner::Head
            && let Some(op) = self.ops.front_mut()
        {
            op.head = Head::None;
            op.done += 1;
        }
        let total = if owner == Owner::Tail { self.totals.pop_front() } else { None };
        self.pump(d);
        if owner == Owner::Ours || owner == Owner::Head && self.keeps(Guard::SwallowHead) {
            return Verdict::Swallow;
        }
        let byte_len = total.filter(|_| self.keeps(Guard::Length));
        Verdict::Deliver(Fix { byte_len, status: None, upto: seq })
    }

    /// The application got a completion; `upto` is the verdict's. Its WR and those before it leave the send queue.
    #[inline(always)]
    pub fn delivered(&mut self, upto: u64) {
        // A completion from before a RESET may come late.
        self.delivered = self.delivered.max(upto.min(self.accepted));
    }

    fn primary_failed<D: Driver>(&mut self, wr_id: u64, d: &mut D) -> Verdict {
        self.marks.clear();
        self.totals.clear();
        self.flushing = true;
        self.breaking = false;
        self.refresh();
        let mut verdict = Verdict::Deliver(Fix { upto: self.delivered, ..Fix::default() });
        if self.ops.front().is_some_and(|op| op.head == Head::Posted) {
            // It is an earlier WR's, or the head's, before which no body starts. Either way the head's own will come, just
            // once, and it looks as the WR's would: that one is done with.
            self.leave();
        } else {
            let mine = |b: &mut Blame| b.posted && b.wr_id == wr_id;
            if let Some(b) = self.blame.take_if(mine)
                && let Verdict::Deliver(fix) = &mut verdict
            {
                fix.status = Some((b.status, b.vendor_err));
            }
        }
        self.pump(d);
        self.tell_quiet(d);
        verdict
    }
}
