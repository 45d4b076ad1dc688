//! The order contract, checked at each step against what one RC QP would do.
//!
//! The oracle knows each WR that was accepted. It is told of each piece of it that touches memory, of the moment when its
//! last or only part runs at the target (*executed*), and of each completion that the application gets. At the moment of
//! execution it runs the WR natively on memory of its own, and compares.

use super::super::lengths::consumes;
use super::super::plan::Mode;
use super::super::wr::{FENCE, Fields, READ, SIGNALED, Sge, WRITE, WRITE_WITH_IMM, Wr};
use super::memory::{Memory, SEND, is_atomic, is_fetch, is_write, touched};
use std::collections::VecDeque;

/// What part of a WR touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// On a lane.
    Body,
    /// On a lane that broke, late.
    Late,
    /// The head, on the primary.
    Head,
    /// The tail, or the whole WR, on the primary.
    Last,
}

/// What must happen to a WR, and did.
pub struct Known {
    pub seq: u64,
    pub wr: Wr,
    pub signaled: bool,
    pub bytes: u64,
    /// The status with which it fails natively, whatever happens; 0: none.
    pub fault: u32,
    placed: Vec<bool>,
    executed: bool,
    landed: bool,
    expected: Vec<u8>,
}

impl Known {
    fn opcode(&self) -> u32 {
        self.wr.fields.opcode
    }

    fn touches(&self, addr: u64, bytes: u64) -> bool {
        let (start, n) = (self.wr.fields.remote_addr, touched(self.opcode(), self.bytes));
        n > 0 && bytes > 0 && start < addr + bytes && addr < start + n
    }
}

/// A completion as the application gets it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Which WR it belongs to, which no application knows.
    pub seq: u64,
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub byte_len: u32,
}

pub struct Oracle {
    mode: Mode,
    /// Native memory.
    pub memory: Memory,
    /// WRs not covered by a completion, oldest first.
    wrs: VecDeque<Known>,
    pub accepted: u64,
    pub executed: u64,
    /// What the peer's receives are to say: of a WRITE_WITH_IMM, length, immediate data if there is any.
    owed: VecDeque<(bool, u64, Option<u32>)>,
    /// The last WR whose completion was seen.
    pub covered: u64,
    /// The first completion in error was seen.
    pub failed: bool,
    /// The application moved the QP to ERR, or the engine broke it: any WR may fail, with these statuses.
    pub excuses: Vec<u32>,
    /// The engine said that nothing is in flight any more.
    pub quiet: bool,
    /// The first promise that was broken.
    pub violation: Option<String>,
    pub completions: u64,
}

impl Oracle {
    pub fn new(mode: Mode, memory: Memory) -> Oracle {
        Oracle {
            mode,
            memory,
            wrs: VecDeque::new(),
            accepted: 0,
            executed: 0,
            owed: VecDeque::new(),
            covered: 0,
            failed: false,
            excuses: Vec::new(),
            quiet: false,
            violation: None,
            completions: 0,
        }
    }

    /// After a RESET: WRs that were not finished left bytes that nobody relies on.
    pub fn reset(&mut self, real: &Memory) {
        self.wrs.clear();
        (self.accepted, self.executed, self.covered) = (0, 0, 0);
        (self.failed, self.quiet) = (false, false);
        self.excuses.clear();
        self.memory.agree(real);
    }

    pub fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.violation.is_none() {
            self.violation = Some(what());
        }
    }

    /// Outstanding as the application counts.
    pub fn outstanding(&self) -> u64 {
        self.accepted - self.covered
    }

    /// Whether the application wants a completion of this WR.
    pub fn is_signaled(&self, seq: u64) -> bool {
        self.at(seq).is_none_or(|at| self.wrs[at].signaled)
    }

    pub fn has_signaled_outstanding(&self) -> bool {
        self.wrs.iter().any(|k| k.signaled)
    }

    pub fn accept(&mut self, wr: Wr, signaled: bool, fault: u32) {
        self.accepted += 1;
        let bytes = wr.view().bytes();
        let placed = vec![false; touched(wr.fields.opcode, bytes) as usize];
        self.wrs.push_back(Known {
            seq: self.accepted,
            wr,
            signaled,
            bytes,
            fault,
            placed,
            executed: false,
            landed: false,
            expected: Vec::new(),
        });
    }

    fn at(&self, seq: u64) -> Option<usize> {
        let first = self.wrs.front()?.seq;
        let at = seq.checked_sub(first)? as usize;
        (at < self.wrs.len()).then_some(at)
    }

    /// Before the record of a WR's length is written.
    pub fn record(&mut self, seq: u64) {
        let quiet = self.quiet;
        self.check(!quiet, || format!("C11: the record of WR {seq} after quiet"));
        let early = self.at(seq).is_some_and(|at| !self.wrs[at].executed);
        self.check(early, || format!("C1: the record of WR {seq} after its last bytes"));
    }

    /// Before bytes `addr..addr + bytes` of the target are touched for a WR, by a piece with this list.
    pub fn touch(&mut self, seq: u64, part: Part, addr: u64, bytes: u64, sges: &[Sge]) {
        let quiet = self.quiet;
        self.check(!quiet || part == Part::Last || part == Part::Head, || format!("C11: WR {seq} after quiet"));
        let Some(at) = self.at(seq) else {
            self.check(false, || format!("C12: {part:?} bytes of WR {seq} land after its completion"));
            return;
        };
        let executed = self.wrs[at].executed;
        self.check(!executed, || format!("C2: {part:?} bytes of WR {seq} land after its last ones"));
        let primary = part == Part::Last || part == Part::Head;
        for m in self.executed + 1..seq {
            let bad =
                self.mode == Mode::Strict || primary || self.at(m).is_some_and(|m| self.conflict(m, at, addr, bytes));
            self.check(!bad, || format!("C3, C5: {part:?} of WR {seq} before WR {m}"));
        }
        if self.wrs[at].wr.fields.flags & FENCE != 0 {
            let early = self.wrs.iter().take(at).find(|k| is_fetch(k.opcode()) && !k.landed).map(|k| k.seq);
            self.check(early.is_none(), || format!("C6: fenced WR {seq} before READ or atomic {early:?}"));
        }
        self.place(at, part, addr, bytes, sges);
    }

    /// A WR or a part of it runs on the primary: the target, and a receiver there, must see the application's WR, once.
    pub fn resemble(&mut self, seq: u64, part: Part, posted: &Fields) {
        let Some(at) = self.at(seq) else { return };
        let k = &self.wrs[at];
        let app = k.wr.fields;
        let data_only = if app.opcode == READ { READ } else { WRITE };
        let same = if part == Part::Head {
            posted.opcode == data_only && posted.flags & !SIGNALED == app.flags & FENCE
        } else {
            let signaled = !k.signaled || posted.flags & SIGNALED != 0;
            let flags = (posted.flags ^ app.flags) & !SIGNALED == 0;
            let apart = Fields { flags: app.flags, remote_addr: app.remote_addr, ..*posted };
            signaled && flags && apart == app
        };
        self.check(same, || format!("C1, C3: {part:?} of {app:?} is posted as {posted:?}"));
    }

    /// Whether WR `m` and a piece of the later WR `at` are not to change places.
    fn conflict(&self, m: usize, at: usize, addr: u64, bytes: u64) -> bool {
        let (m, k) = (&self.wrs[m], &self.wrs[at]);
        let sends =
            !is_write(m.opcode()) && !is_fetch(m.opcode()) && (m.bytes > 0 || m.opcode() == super::memory::LOCAL_INV);
        let writes = is_write(m.opcode()) || is_atomic(m.opcode()) || is_write(k.opcode());
        sends || m.touches(addr, bytes) && writes
    }

    fn place(&mut self, at: usize, part: Part, addr: u64, bytes: u64, sges: &[Sge]) {
        let k = &mut self.wrs[at];
        let seq = k.seq;
        let Some(offset) = addr.checked_sub(k.wr.fields.remote_addr) else {
            self.check(false, || format!("WR {seq}: before its range"));
            return;
        };
        if bytes == 0 || is_atomic(k.opcode()) || !(is_write(k.opcode()) || k.opcode() == READ) {
            k.placed.fill(true);
            return;
        }
        if offset + bytes > k.bytes {
            self.check(false, || format!("WR {seq}: past its range"));
            return;
        }
        if part != Part::Last || offset > 0 {
            let listed: u64 = sges.iter().map(|s| u64::from(s.length)).sum();
            let cut = |b: u64| b.is_multiple_of(128) || b == k.wr.fields.remote_addr + k.bytes;
            let exact = listed == bytes && cut(addr + bytes) && (offset == 0 || cut(addr));
            if !exact {
                self.check(false, || format!("WR {seq}: a piece of {bytes} at {offset} with a list of {listed}"));
                return;
            }
        }
        let before = k.placed[..offset as usize].iter().all(|p| *p);
        k.placed[offset as usize..(offset + bytes) as usize].fill(true);
        let last = offset + bytes == k.bytes;
        self.check(!last || before, || format!("C4: the last bytes of WR {seq} before others"));
    }

    /// Its last part has run at the target, and changed `real` memory: runs it natively, and compares.
    pub fn execute(&mut self, seq: u64, real: &Memory) {
        let Some(at) = self.at(seq) else { return };
        let next = self.executed + 1;
        self.check(seq == next, || format!("C3: WR {seq} runs when it is the turn of {next}"));
        let k = &mut self.wrs[at];
        k.executed = true;
        let whole = k.placed.iter().all(|p| *p);
        let (f, bytes) = (k.wr.fields, k.bytes);
        let mut same = true;
        if is_write(f.opcode) {
            let data = if k.wr.inline.is_empty() { self.memory.gather(&k.wr.sges) } else { k.wr.inline.clone() };
            self.memory.put(f.remote_addr, &data);
            same = real.at(f.remote_addr, bytes) == data;
        } else if f.opcode == READ {
            k.expected = self.memory.at(f.remote_addr, bytes).to_vec();
            self.memory.scatter(&k.wr.sges, &k.expected);
        } else if is_atomic(f.opcode) {
            k.expected = self.memory.atomic(f.opcode, f.remote_addr, f.compare_add, f.swap);
            self.memory.scatter(&k.wr.sges, &k.expected);
            same = real.at(f.remote_addr, 8) == self.memory.at(f.remote_addr, 8);
        }
        if consumes(f.opcode) {
            let with_imm = f.opcode == WRITE_WITH_IMM;
            self.owed.push_back((with_imm, bytes, (f.opcode != SEND).then_some(f.imm)));
        }
        self.executed = seq;
        self.check(whole, || format!("C2: WR {seq} is finished, not all its bytes are there"));
        self.check(same, || format!("WR {seq}: the target's bytes are not the native ones"));
    }

    /// The payload of a SEND, when it runs.
    pub fn sent(&mut self, seq: u64, payload: &[u8]) {
        let Some(at) = self.at(seq) else { return };
        let k = &self.wrs[at];
        let native = if k.wr.inline.is_empty() { self.memory.gather(&k.wr.sges) } else { k.wr.inline.clone() };
        self.check(native == payload, || format!("WR {seq}: another payload"));
    }

    /// The peer's application gets a receive.
    pub fn received(&mut self, with_imm: bool, byte_len: u32, imm: u32) {
        let owed = self.owed.pop_front();
        let same = |(w, bytes, i): (bool, u64, Option<u32>)| {
            w == with_imm && bytes == u64::from(byte_len) && i.is_none_or(|i| i == imm)
        };
        let got = (with_imm, byte_len, imm);
        self.check(owed.is_some_and(same), || format!("C1: the receiver gets {got:?}, not {owed:?}"));
    }

    /// The peer's application has got all its receives.
    pub fn heard(&mut self) {
        let owed = self.owed.front().copied();
        self.check(owed.is_none(), || format!("C1: nothing received of {owed:?}"));
    }

    /// The answer to the last part of a READ or atomic is in `real` memory.
    pub fn land(&mut self, seq: u64, real: &Memory) {
        let Some(at) = self.at(seq) else { return };
        let k = &mut self.wrs[at];
        k.landed = true;
        let same = real.gather(&k.wr.sges) == k.expected;
        self.check(same, || format!("C6: READ {seq} brought other bytes than natively"));
    }

    /// The application gets a completion.
    pub fn complete(&mut self, s: &Seen) {
        self.completions += 1;
        let Some(at) = self.at(s.seq) else {
            self.check(false, || format!("C1: a completion more: {s:?}"));
            return;
        };
        let skipped = self.wrs.iter().take(at).find(|k| k.signaled || !k.executed).map(|k| k.seq);
        let flushes = self.failed;
        self.check(if flushes { at == 0 } else { skipped.is_none() }, || format!("C1, C7: {s:?}, but {skipped:?}"));
        let k = &self.wrs[at];
        let right_id = k.wr.fields.wr_id == s.wr_id;
        let (signaled, fault, opcode, bytes) = (k.signaled, k.fault, k.opcode(), k.bytes);
        let done = k.executed && (!is_fetch(opcode) || k.landed);
        self.check(right_id, || format!("C1: not its wr_id: {s:?}"));
        if s.status == 0 {
            self.check(!flushes && signaled && fault == 0, || format!("C1, C7: it cannot succeed: {s:?}"));
            self.check(done, || format!("C2: completed before it was done: {s:?}"));
            let same = s.opcode == opcode && u64::from(s.byte_len) == bytes;
            self.check(same, || format!("C1: opcode {opcode}, {bytes} bytes: {s:?}"));
        } else if flushes {
            self.check(s.status == 5, || format!("C7: not flushed: {s:?}"));
        } else {
            self.failed = true;
            let own = fault != 0 && s.status == fault;
            let excused = self.excuses.contains(&s.status);
            self.check(own || excused, || format!("C7: fails with {} where natively with {fault}", s.status));
        }
        self.wrs.drain(..=at);
        self.covered = s.seq;
    }

    /// Everything has come to rest: nothing is owed.
    pub fn finish(&mut self, real: &Memory) {
        let owed = self.wrs.iter().find(|k| k.signaled || self.failed || !k.executed).map(|k| k.seq);
        self.check(owed.is_none(), || format!("C1, C7: no completion of WR {owed:?}"));
        if !self.failed && self.excuses.is_empty() {
            let same = self.memory == *real;
            self.check(same, || "memory is not the native one".into());
        }
    }
}
