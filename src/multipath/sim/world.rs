//! The primary and the lanes, as a network with delays, loss and failures would have them.
//!
//! The primary is a plain RC QP: it runs its WRs at the target in order, then acknowledges them in order; a failure fails
//! one and flushes the rest. So does each lane, at a pace of its own. A lane that breaks leaves WRITEs behind that land
//! late, as packets do that wait in a switch, until the peer's end is reset.

use super::super::driver::{Driver, Errno, INVALID, LanePosting, NO_ROOM, Posting, Why};
use super::super::engine::{EXTRA_CQES, EXTRA_SEND_WRS};
use super::super::lengths::consumes;
use super::super::wr::{FENCE, Fields, READ, SIGNALED, Sge, WRITE_WITH_IMM, Wr};
use super::memory::{Memory, is_atomic, is_fetch, is_write, touched};
use super::oracle::{Oracle, Part};
use super::receiver::{RING_RKEY, Receiver};
use super::rng::Rng;
use std::collections::VecDeque;

/// A remote key that nothing may use.
pub const BAD_RKEY: u32 = 3;
/// A remote key that only the primary may use.
pub const PRIMARY_RKEY: u32 = 2;
/// A local key that nothing may use.
pub const BAD_LKEY: u32 = 9;

const FLUSHED: u32 = 5;
const LOC_PROT: u32 = 4;
const REM_ACCESS: u32 = 10;
const RETRY_EXC: u32 = 12;

/// Whether the provider takes no such WR.
pub fn is_refused(f: &Fields) -> bool {
    f.extra[0] != 0
}

/// The status with which this WR, or piece, fails natively; 0: none.
pub fn fault(f: &Fields, sges: &[Sge], bytes: u64) -> u32 {
    let n = touched(f.opcode, bytes);
    if sges.iter().any(|s| s.lkey == BAD_LKEY && s.length > 0) {
        LOC_PROT
    } else if n > 0 && (f.rkey == BAD_RKEY || !Memory::is_there(f.remote_addr, n)) {
        REM_ACCESS
    } else {
        0
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    Queued,
    /// It ran at the target; what it brings back.
    Ran(Vec<u8>),
    Failed(u32),
}

struct Entry {
    seq: u64,
    why: Why,
    wr: Wr,
    progress: Progress,
    /// WRs posted on the primary up to this one.
    number: u64,
}

/// A completion in the primary's CQ.
pub struct Cqe {
    pub seq: u64,
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub byte_len: u32,
    why: Why,
    number: u64,
}

struct Piece {
    token: u64,
    seq: u64,
    fields: Fields,
    sges: Vec<Sge>,
    /// Of a record.
    inline: Vec<u8>,
    length: u32,
    progress: Progress,
}

impl Piece {
    fn is_record(&self) -> bool {
        !self.inline.is_empty()
    }
}

#[derive(Default)]
pub struct Lane {
    queue: VecDeque<Piece>,
    /// Completions that the driver has not polled.
    done: VecDeque<(u64, u32)>,
    pub broken: bool,
    pub resting: bool,
    /// The peer's end of the broken lane was reset.
    pub revoked: bool,
}

pub struct World {
    pub oracle: Oracle,
    pub memory: Memory,
    pub receiver: Receiver,
    pub rng: Rng,
    primary: VecDeque<Entry>,
    pub err: bool,
    posted: u64,
    freed: u64,
    max_send_wr: u64,
    depth: usize,
    pub cq: VecDeque<Cqe>,
    pub lanes: Vec<Lane>,
    late: Vec<(usize, Piece)>,
    pub break_asked: bool,
    pub revoke_asked: Vec<usize>,
    /// One in so many posts on lanes is refused, per mille.
    pub refuse: u32,
    /// How many were.
    pub refused: u64,
    /// Pieces that ran on lanes.
    pub pieces: u64,
}

impl World {
    pub fn new(
        oracle: Oracle,
        memory: Memory,
        receiver: Receiver,
        rng: Rng,
        max_send_wr: u32,
        lanes: usize,
        depth: u32,
    ) -> World {
        World {
            oracle,
            memory,
            receiver,
            rng,
            primary: VecDeque::new(),
            err: false,
            posted: 0,
            freed: 0,
            max_send_wr: u64::from(max_send_wr),
            depth: depth as usize,
            cq: VecDeque::new(),
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            late: Vec::new(),
            break_asked: false,
            revoke_asked: Vec::new(),
            refuse: 0,
            refused: 0,
            pieces: 0,
        }
    }

    /// The primary goes through RESET; lanes are made anew.
    pub fn reset(&mut self) {
        self.primary.clear();
        self.cq.clear();
        (self.err, self.posted, self.freed, self.break_asked) = (false, 0, 0, false);
        self.revoke_asked.clear();
        for l in &mut self.lanes {
            *l = Lane::default();
        }
        self.late.clear();
        self.receiver.reset();
        self.oracle.reset(&self.memory);
    }

    /// The next WR of the primary runs at the target.
    pub fn run_primary(&mut self) -> bool {
        let waiting = self.primary.iter().position(|e| e.progress == Progress::Queued);
        let stuck = |e: &Entry| matches!(e.progress, Progress::Failed(_));
        let Some(at) = waiting.filter(|_| !self.err && !self.primary.iter().any(stuck)) else { return false };
        let e = &self.primary[at];
        if e.wr.fields.flags & FENCE != 0 && self.primary.iter().take(at).any(|e| is_fetch(e.wr.fields.opcode)) {
            return false;
        }
        let (f, bytes, seq) = (e.wr.fields, e.wr.view().bytes(), e.seq);
        let status = fault(&f, &e.wr.sges, bytes);
        if status != 0 {
            self.primary[at].progress = Progress::Failed(status);
            return true;
        }
        let part = if e.why == Why::Head { Part::Head } else { Part::Last };
        let receives = part == Part::Last && consumes(f.opcode);
        if receives && !self.receiver.is_ready() {
            // It is tried again until there is a receive.
            return false;
        }
        self.oracle.resemble(seq, part, &f);
        self.oracle.touch(seq, part, f.remote_addr, touched(f.opcode, bytes), &e.wr.sges);
        let payload = if e.wr.inline.is_empty() { self.memory.gather(&e.wr.sges) } else { e.wr.inline.clone() };
        let mut brings = Vec::new();
        if is_write(f.opcode) {
            self.memory.put(f.remote_addr, &payload);
        } else if f.opcode == READ {
            brings = self.memory.at(f.remote_addr, bytes).to_vec();
        } else if is_atomic(f.opcode) {
            brings = self.memory.atomic(f.opcode, f.remote_addr, f.compare_add, f.swap);
        } else {
            self.oracle.sent(seq, &payload);
        }
        self.primary[at].progress = Progress::Ran(brings);
        if receives {
            self.receiver.take(f.opcode == WRITE_WITH_IMM, bytes as u32, f.imm);
        }
        if part == Part::Last {
            self.oracle.execute(seq, &self.memory);
        }
        true
    }

    /// The oldest WR of the primary is acknowledged, fails, or is flushed.
    pub fn ack_primary(&mut self) -> bool {
        let Some(front) = self.primary.front() else { return false };
        if front.progress == Progress::Queued && !self.err {
            return false;
        }
        let Some(e) = self.primary.pop_front() else { return false };
        let f = e.wr.fields;
        let status = match &e.progress {
            _ if self.err => FLUSHED,
            Progress::Failed(status) => *status,
            Progress::Ran(brings) => {
                if is_fetch(f.opcode) {
                    self.memory.scatter(&e.wr.sges, brings);
                    if e.why != Why::Head {
                        self.oracle.land(e.seq, &self.memory);
                    }
                }
                0
            }
            Progress::Queued => 0,
        };
        self.err |= status != 0;
        if f.flags & SIGNALED != 0 || status != 0 {
            let byte_len = e.wr.view().bytes() as u32;
            let (wr_id, opcode) = (f.wr_id, f.opcode);
            self.cq.push_back(Cqe { seq: e.seq, wr_id, status, opcode, byte_len, why: e.why, number: e.number });
            let ours = self.cq.iter().filter(|c| self.is_extra(c)).count();
            self.oracle.check(ours <= EXTRA_CQES as usize, || format!("C8: {ours} completions more than natively"));
        }
        true
    }

    /// Whether a completion is one that natively would not be.
    fn is_extra(&self, c: &Cqe) -> bool {
        c.status == 0 && (c.why == Why::Head || !self.oracle.is_signaled(c.seq))
    }

    /// The application's poll takes a completion off the CQ.
    pub fn poll(&mut self) -> Option<Cqe> {
        let c = self.cq.pop_front()?;
        self.freed = self.freed.max(c.number);
        Some(c)
    }

    /// The next piece of a lane runs at the target.
    pub fn run_lane(&mut self, lane: usize) -> bool {
        let l = &mut self.lanes[lane];
        let Some(p) = l.queue.iter_mut().find(|p| p.progress == Progress::Queued).filter(|_| !l.broken) else {
            return false;
        };
        let (f, bytes) = (p.fields, u64::from(p.length));
        if p.is_record() {
            p.progress = Progress::Ran(Vec::new());
            self.oracle.record(p.seq);
            self.oracle.check(f.rkey == RING_RKEY, || "a record with another key".into());
            self.receiver.write(f.remote_addr, &p.inline);
            return true;
        }
        let status = if f.rkey == PRIMARY_RKEY { REM_ACCESS } else { fault(&f, &p.sges, bytes) };
        if status != 0 {
            p.progress = Progress::Failed(status);
            self.fail_lane(lane);
            return true;
        }
        self.pieces += 1;
        self.oracle.touch(p.seq, Part::Body, f.remote_addr, bytes, &p.sges);
        if f.opcode == READ {
            p.progress = Progress::Ran(self.memory.at(f.remote_addr, bytes).to_vec());
        } else {
            let payload = self.memory.gather(&p.sges);
            self.memory.put(f.remote_addr, &payload);
            p.progress = Progress::Ran(Vec::new());
        }
        true
    }

    /// The oldest piece of a lane completes, well or not; the driver will see it.
    pub fn ack_lane(&mut self, lane: usize) -> bool {
        let l = &mut self.lanes[lane];
        let Some(front) = l.queue.front() else { return false };
        let status = match &front.progress {
            Progress::Failed(status) => *status,
            _ if l.broken => FLUSHED,
            Progress::Ran(brings) => {
                if front.fields.opcode == READ {
                    self.oracle.check(!self.oracle.quiet, || "C11: a READ lands after quiet".into());
                    self.memory.scatter(&front.sges, brings);
                }
                0
            }
            Progress::Queued => return false,
        };
        l.done.push_back((front.token, status));
        l.queue.pop_front();
        true
    }

    /// A completion of a lane: token and status.
    pub fn poll_lane(&mut self, lane: usize) -> Option<(u64, u32)> {
        self.lanes[lane].done.pop_front()
    }

    /// The lane's path fails.
    pub fn break_lane(&mut self, lane: usize) -> bool {
        let l = &mut self.lanes[lane];
        if l.broken {
            return false;
        }
        if let Some(p) = l.queue.front_mut() {
            p.progress = Progress::Failed(RETRY_EXC);
        }
        self.fail_lane(lane);
        true
    }

    /// Nothing runs on the lane any more, but WRITEs may still be on their way, or come a second time.
    fn fail_lane(&mut self, lane: usize) {
        let l = &mut self.lanes[lane];
        l.broken = true;
        for p in &l.queue {
            let refused_there = p.progress == Progress::Failed(REM_ACCESS);
            if p.fields.opcode != READ && !refused_there && self.rng.chance(500) {
                let (fields, sges, inline) = (p.fields, p.sges.clone(), p.inline.clone());
                let (token, seq, length) = (p.token, p.seq, p.length);
                self.late.push((lane, Piece { token, seq, fields, sges, inline, length, progress: Progress::Queued }));
            }
        }
    }

    /// A packet arrives late.
    pub fn land_late(&mut self) -> bool {
        if self.late.is_empty() {
            return false;
        }
        let at = self.rng.below(self.late.len() as u64) as usize;
        let (_, p) = self.late.swap_remove(at);
        let bytes = u64::from(p.length);
        if p.is_record() {
            self.oracle.record(p.seq);
            self.receiver.write(p.fields.remote_addr, &p.inline);
        } else if fault(&p.fields, &p.sges, bytes) == 0 {
            self.oracle.touch(p.seq, Part::Late, p.fields.remote_addr, bytes, &p.sges);
            let payload = self.memory.gather(&p.sges);
            self.memory.put(p.fields.remote_addr, &payload);
        }
        true
    }

    /// The peer's end of the lane is reset.
    pub fn revoke(&mut self, lane: usize) {
        self.late.retain(|(l, _)| *l != lane);
        self.lanes[lane].revoked = true;
    }

    /// Pieces that the lane takes now.
    pub fn room(&self, lane: usize, depth: usize) -> u32 {
        depth.saturating_sub(self.lanes[lane].queue.len() + self.lanes[lane].done.len()) as u32
    }

    /// Whether nothing is on any lane: no completion will come from there.
    pub fn are_lanes_empty(&self) -> bool {
        (0..self.lanes.len()).all(|l| self.is_lane_empty(l))
    }

    /// Whether all pieces of the lane have completed, polled or not.
    pub fn is_queue_empty(&self, lane: usize) -> bool {
        self.lanes[lane].queue.is_empty()
    }

    /// A new lane, in place of one that broke; completions of that one may still be there.
    pub fn renew(&mut self, lane: usize) {
        let l = &mut self.lanes[lane];
        (l.broken, l.resting, l.revoked) = (false, false, false);
    }

    /// Whether the lane has nothing to say any more.
    pub fn is_lane_empty(&self, lane: usize) -> bool {
        self.lanes[lane].queue.is_empty() && self.lanes[lane].done.is_empty()
    }

    /// Whether nothing moves, on the primary and on lanes.
    pub fn is_still(&self) -> bool {
        self.primary.is_empty() && self.late.is_empty() && self.are_lanes_empty()
    }
}

impl Driver for World {
    fn post_primary(&mut self, p: &Posting<'_>) -> Result<(), Errno> {
        let used = self.posted - self.freed;
        let limit = self.max_send_wr + u64::from(EXTRA_SEND_WRS);
        if used >= limit {
            let err = self.err || self.oracle.failed;
            self.oracle.check(err, || format!("C8: {used} WRs on a primary of {limit}"));
            return Err(NO_ROOM);
        }
        if is_refused(&p.wr.fields) {
            return Err(INVALID);
        }
        self.posted += 1;
        let mut wr = Wr::default();
        wr.copy_from(&p.wr);
        let (seq, why, number) = (p.seq, p.why, self.posted);
        self.primary.push_back(Entry { seq, why, wr, progress: Progress::Queued, number });
        Ok(())
    }

    fn post_lane(&mut self, p: &LanePosting<'_>) -> bool {
        if self.rng.chance(self.refuse) {
            self.refused += 1;
            return false;
        }
        let (token, length) = (p.token, p.length);
        let fields =
            Fields { opcode: p.opcode, remote_addr: p.remote_addr, rkey: p.rkey, flags: SIGNALED, ..Fields::default() };
        let (sges, inline) = (p.sges.to_vec(), p.inline.to_vec());
        let piece = Piece { token, seq: p.seq, fields, sges, inline, length, progress: Progress::Queued };
        self.lanes[p.lane].queue.push_back(piece);
        let n = self.lanes[p.lane].queue.len() + self.lanes[p.lane].done.len();
        self.oracle.check(n <= self.depth, || format!("{n} pieces on a lane"));
        true
    }

    fn break_primary(&mut self) {
        self.break_asked = true;
    }

    fn revoke_lane(&mut self, lane: usize) {
        self.revoke_asked.push(lane);
    }

    fn quiet(&mut self) {
        let still = self.late.is_empty() && self.lanes.iter().all(|l| l.queue.is_empty());
        self.oracle.check(still, || "C11: quiet is said while pieces are in flight".into());
        self.oracle.quiet = true;
    }
}
