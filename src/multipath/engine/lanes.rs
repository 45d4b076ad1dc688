//! The engine's dealings with lanes: which there are, what they take, and what became of it.

use super::super::driver::{Driver, FLUSHED, Failure, LanePosting, RETRY_EXCEEDED, SUCCESS, failure};
use super::super::guard::Guard;
use super::super::lengths::RECORD_BYTES;
use super::super::plan::{Cut, Mode};
use super::super::schedule::{Lane, Load, Offer};
use super::super::wr::{READ, WRITE, sublist};
use super::Engine;
use super::chunks::Chunk;
use super::op::{Form, Op, RECORD};

/// A lane.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaneState {
    pub turn: Lane,
    /// How often the peer's end was reset. Pieces from before that cannot arrive any more.
    age: u32,
    /// The driver was asked for that.
    asked: bool,
    /// That cannot be done.
    lost: bool,
}

impl Engine {
    /// Lane `lane` (a small number, the driver's) takes pieces of this QP from now on. One that broke is replaced by
    /// [`lane_revoked`](Engine::lane_revoked), then this; completions of its old self may still come.
    pub fn lane_up<D: Driver>(&mut self, lane: usize, d: &mut D) {
        if self.lanes.len() <= lane {
            self.lanes.resize(lane + 1, LaneState::default());
        }
        let l = &mut self.lanes[lane];
        l.turn.up = true;
        (l.asked, l.lost) = (false, false);
        self.count_lanes();
        self.pump(d);
    }

    /// The lane takes no new pieces. Those in flight on it complete, well or not.
    pub fn lane_down<D: Driver>(&mut self, lane: usize, d: &mut D) {
        self.set_down(lane);
        self.pump(d);
    }

    fn set_down(&mut self, lane: usize) {
        if let Some(l) = self.lanes.get_mut(lane) {
            l.turn.up = false;
            self.count_lanes();
        }
    }

    /// There may be lanes soon, or not any more. Forgotten at RESET; lanes that are up make no difference.
    pub fn expect_lanes<D: Driver>(&mut self, expected: bool, d: &mut D) {
        self.expects_lanes = expected;
        self.refresh();
        self.pump(d);
    }

    /// Lanes take lists of so many elements; a message with a piece that needs more goes whole.
    pub fn limit_list(&mut self, max_sge: u32) {
        self.lane_sges = max_sge as usize;
    }

    fn count_lanes(&mut self) {
        self.lanes_up = self.lanes.iter().filter(|l| l.turn.up).count() as u32;
        self.refresh();
    }

    /// The peer's end of the broken lane is gone, and what was on its way to it: lost pieces are sent anew elsewhere.
    pub fn lane_revoked<D: Driver>(&mut self, lane: usize, d: &mut D) {
        let Some(l) = self.lanes.get_mut(lane) else { return };
        l.age += 1;
        self.set_down(lane);
        while let Some(c) = self.chunks.take_lost(lane) {
            if let Some(op) = self.op_mut(c.seq) {
                op.doubtful -= 1;
                op.put_back(c.run);
            }
        }
        self.pump(d);
        self.tell_quiet(d);
    }

    /// The peer's end of the broken lane cannot be reset. If pieces of this QP were lost on it, the QP fails.
    pub fn lane_lost<D: Driver>(&mut self, lane: usize, d: &mut D) {
        let Some(l) = self.lanes.get_mut(lane) else { return };
        l.lost = true;
        self.set_down(lane);
        while let Some(c) = self.chunks.take_lost(lane) {
            if let Some(op) = self.op_mut(c.seq) {
                op.doubtful -= 1;
            }
            self.give_up(&c, d);
        }
        self.pump(d);
        self.tell_quiet(d);
    }

    /// A lost piece can neither be sent anew nor be waited for: the QP is broken, as it would be natively if its path
    /// were. Of one that the application makes leave RTS, what is not done flushes, or goes, and that is all.
    pub(super) fn give_up<D: Driver>(&mut self, c: &Chunk, d: &mut D) {
        if self.leaving && self.keeps(Guard::Leave) {
            self.given_up = self.given_up.or(Some(*c));
            return;
        }
        let first = self.ops.front().is_some_and(|op| op.seq == c.seq) && self.is_caught_up();
        if let (Some((status, vendor_err)), Some(op)) = (c.lost, self.op_mut(c.seq)) {
            let wr_id = op.wr.fields.wr_id;
            if first {
                // A piece that was behind the one that failed says less.
                let status = if status == FLUSHED { RETRY_EXCEEDED } else { status };
                self.blame(c.seq, wr_id, status, vendor_err);
            }
            self.break_primary(d);
        }
    }

    /// Whether a piece waits for a lane: then [`feed`](Engine::feed) is worth a call.
    pub fn wants_lanes(&self) -> bool {
        self.startable().is_some()
    }

    /// The oldest WR that has a piece which may go now.
    fn startable(&self) -> Option<usize> {
        if self.ops.is_empty() || self.stopped && self.keeps(Guard::Stop) || self.flushing || self.breaking {
            return None;
        }
        self.ops.iter().take(self.ahead()).position(|op| op.has_piece() && op.start_after <= self.acked)
    }

    /// WRs that are looked at. Strict: only the oldest can have everything before it done.
    fn ahead(&self) -> usize {
        if self.settings.mode == Mode::Strict { 1 } else { self.settings.ahead.max(1) as usize }
    }

    /// What waits, from WR `at` of those held on.
    fn load(&self, at: usize, cut: &Cut) -> Load {
        let unit_bytes = cut.unit_bytes();
        let waiting = |op: &Op| match &op.form {
            Form::Split(cut) if op.start_after <= self.acked => op.waiting(cut),
            _ => 0,
        };
        let all: u64 = self.ops.iter().take(self.ahead()).map(|op| u64::from(waiting(op))).sum();
        Load {
            units: self.ops[at].waiting(cut),
            unit_bytes,
            bytes: all * u64::from(unit_bytes),
            max_bytes: self.settings.max_chunk_bytes,
            depth: self.settings.depth.max(1),
        }
    }

    /// Posts pieces on lanes with room, and takes that room from the offers, one for each lane. The driver calls this
    /// whenever a lane has room or [`wants_lanes`](Engine::wants_lanes) may have changed; the same offers serve all QPs that
    /// share the lanes, in whatever order the driver thinks fair.
    pub fn feed<D: Driver>(&mut self, offers: &mut [Offer], d: &mut D) {
        while let Some(at) = self.startable() {
            let Form::Split(cut) = self.ops[at].form else { break };
            let load = self.load(at, &cut);
            let lanes = self.lanes.iter().map(|l| l.turn);
            let Some((lane, units)) = self.turns.pick(lanes, offers, &load) else { break };
            if self.post_piece(at, &cut, (lane, units), d) {
                offers[lane].room -= 1;
            } else {
                offers[lane].room = 0;
            }
        }
        // One that lanes cannot take goes whole.
        if !self.keeps(Guard::TailLast) || self.ops.front().is_some_and(|op| op.form == Form::Whole) {
            self.pump(d);
        }
    }

    fn post_piece<D: Driver>(&mut self, at: usize, cut: &Cut, (lane, units): (usize, u32), d: &mut D) -> bool {
        let op = &mut self.ops[at];
        let Some((run, again)) = op.take_run(cut, units) else { return false };
        let f = op.wr.fields;
        let reads = f.opcode == READ;
        let age = self.lanes[lane].age;
        self.scratch.clear();
        let record;
        let mut posting = LanePosting {
            lane,
            token: 0,
            seq: op.seq,
            opcode: if reads { READ } else { WRITE },
            remote_addr: f.remote_addr,
            rkey: f.rkey,
            sges: &[],
            inline: &[],
            length: RECORD_BYTES as u32,
        };
        match op.note.filter(|_| run == RECORD) {
            Some(note) => {
                record = note.record.to_bytes();
                (posting.remote_addr, posting.rkey, posting.inline) = (note.remote_addr, note.rkey, &record);
            }
            None => {
                let piece = cut.body(run.first, run.count);
                sublist(&op.wr.sges, piece.offset, piece.length, &mut self.scratch);
                if self.scratch.len() > self.lane_sges {
                    op.put_back(run);
                    op.form = Form::Whole;
                    self.stats.whole += 1;
                    return false;
                }
                posting.remote_addr += u64::from(piece.offset);
                (posting.sges, posting.length) = (&self.scratch, piece.length);
            }
        }
        let (bytes, chunks) = (posting.length, &mut self.chunks);
        posting.token = chunks.insert(Chunk { seq: op.seq, run, bytes, lane, age, reads, lost: None });
        let token = posting.token;
        if !d.post_lane(&posting) {
            self.chunks.remove(token);
            op.put_back(run);
            return false;
        }
        op.live += 1;
        op.started = true;
        let turn = &mut self.lanes[lane].turn;
        turn.live += 1;
        turn.live_bytes += u64::from(bytes);
        self.stats.chunks += 1;
        if run != RECORD {
            self.stats.moved(f.opcode, |m| m.on_lanes += u64::from(bytes));
        }
        self.stats.replayed += u64::from(again);
        self.count_parted(at);
        true
    }

    /// A piece completed: `token` is its posting's, `status` (`enum ibv_wc_status`) and `vendor_err` the completion's.
    /// A failed one takes its lane down, whose own QP is in ERR then.
    pub fn chunk_completed<D: Driver>(&mut self, token: u64, status: u32, vendor_err: u32, d: &mut D) {
        let Some(&mut chunk) = self.chunks.get_mut(token) else { return };
        if chunk.lost.is_some() {
            return;
        }
        let turn = &mut self.lanes[chunk.lane].turn;
        turn.live = turn.live.saturating_sub(1);
        turn.live_bytes = turn.live_bytes.saturating_sub(u64::from(chunk.bytes));
        if let Some(op) = self.op_mut(chunk.seq) {
            op.live -= 1;
        }
        if status == SUCCESS {
            self.chunks.remove(token);
            if let Some(op) = self.op_mut(chunk.seq) {
                op.arrived(chunk.run);
            }
        } else {
            self.chunk_failed(token, chunk, (status, vendor_err), d);
        }
        self.pump(d);
        self.tell_quiet(d);
    }

    fn chunk_failed<D: Driver>(&mut self, token: u64, mut chunk: Chunk, why: (u32, u32), d: &mut D) {
        let fate = failure(why.0);
        let lane = self.lanes[chunk.lane];
        let revoked = chunk.age != lane.age;
        if !revoked {
            self.set_down(chunk.lane);
        }
        // A READ's answer is dropped by our own end, which is in ERR.
        let can_arrive = fate != Failure::RefusedThere && !chunk.reads && !revoked;
        if can_arrive && self.keeps(Guard::RevokeFirst) {
            chunk.lost = Some(why);
            if lane.lost {
                self.chunks.remove(token);
                self.give_up(&chunk, d);
            } else {
                self.doubt(token, chunk, d);
            }
        } else {
            self.chunks.remove(token);
            let forgiven = fate != Failure::Lost && !self.keeps(Guard::Whole);
            if let Some(op) = self.op_mut(chunk.seq) {
                op.put_back(chunk.run);
                if forgiven {
                    op.arrived(chunk.run);
                }
            }
        }
        if fate != Failure::Lost && self.keeps(Guard::Whole) {
            self.lane_refused(chunk.seq);
        }
    }

    fn doubt<D: Driver>(&mut self, token: u64, chunk: Chunk, d: &mut D) {
        if let Some(c) = self.chunks.get_mut(token) {
            *c = chunk;
        }
        if let Some(op) = self.op_mut(chunk.seq) {
            op.doubtful += 1;
        }
        if !std::mem::replace(&mut self.lanes[chunk.lane].asked, true) {
            d.revoke_lane(chunk.lane);
        }
    }

    /// A lane refused a piece of WR `seq`. The QP itself shall say what is wrong with it; if nothing is, lanes are not
    /// for this QP. Nothing later starts before that is known.
    fn lane_refused(&mut self, seq: u64) {
        if seq == 0 {
            return;
        }
        self.refused = true;
        self.refresh();
        for op in self.ops.iter_mut().filter(|op| op.seq >= seq && matches!(op.form, Form::Split(_))) {
            op.form = Form::Whole;
            self.stats.whole += 1;
        }
    }
}
