//! One promise at a time, by hand; the simulation has them all at once.

use super::super::driver::{FLUSHED, Fix, LanePosting, Moved, RETRY_EXCEEDED, SUCCESS, Verdict};
use super::super::lengths::RECORD_BYTES;
use super::super::schedule::Offer;
use super::super::wr::{Fields, INLINE, READ, SOLICITED, WRITE, WRITE_WITH_IMM, Wr};
use super::*;

const SEND: u32 = 2;
const LOC_PROT: u32 = 4;
const REM_ACCESS: u32 = 10;
const TARGET: u64 = 0x1_0000;
const OPEN: Offer = Offer { room: 9, speed: 0, least_bytes: 0 };
const RING: Ring = Ring { addr: TARGET + 0x1_0000, rkey: 8, slots: 4, tag: 3 };

/// A driver that notes what it is asked for.
#[derive(Default)]
struct Notes {
    primary: Vec<(u64, Why, Wr)>,
    /// Lane, token, opcode, offset, bytes.
    lanes: Vec<(usize, u64, u32, u64, u32)>,
    /// Lengths of split WRITE_WITH_IMMs: place, key, record.
    records: Vec<(u64, u32, Vec<u8>)>,
    breaks: u32,
    revokes: Vec<usize>,
    quiets: u32,
    refuses: Option<Errno>,
}

impl Driver for Notes {
    fn post_primary(&mut self, p: &Posting<'_>) -> Result<(), Errno> {
        self.refuses.map_or(Ok(()), Err)?;
        let mut wr = Wr::default();
        assert!(wr.copy_from(&p.wr));
        self.primary.push((p.seq, p.why, wr));
        Ok(())
    }

    fn post_lane(&mut self, p: &LanePosting<'_>) -> bool {
        assert_eq!(p.sges.iter().map(|s| s.length).sum::<u32>() + p.inline.len() as u32, p.length);
        if !p.inline.is_empty() {
            self.records.push((p.remote_addr, p.rkey, p.inline.to_vec()));
        }
        self.lanes.push((p.lane, p.token, p.opcode, p.remote_addr - TARGET, p.length));
        true
    }

    fn break_primary(&mut self) {
        self.breaks += 1;
    }

    fn revoke_lane(&mut self, lane: usize) {
        self.revokes.push(lane);
    }

    fn quiet(&mut self) {
        self.quiets += 1;
    }
}

/// An engine of two lanes; messages of 512 bytes and more go in pieces of 256, two on each lane.
struct Bench {
    engine: Engine,
    notes: Notes,
}

impl Bench {
    fn new(mode: Mode) -> Bench {
        let settings = Settings {
            mode,
            min_split_bytes: 512,
            unit_bytes: 256,
            max_chunk_bytes: 256,
            tail_bytes: 1,
            depth: 2,
            ahead: 4,
            split_imm: true,
        };
        let facts = QpFacts { max_send_wr: 4, max_send_sge: 2, max_inline_bytes: 16, sq_sig_all: false };
        let mut b = Bench { engine: Engine::new(facts, settings).unwrap(), notes: Notes::default() };
        b.engine.state_changed(State::Ready, &mut b.notes);
        b.engine.lane_up(0, &mut b.notes);
        b.engine.lane_up(1, &mut b.notes);
        b.engine.set_ring(Some(RING));
        b
    }

    fn post_wr(&mut self, fields: Fields, bytes: u32, inline: &[u8]) -> Result<(), Errno> {
        let list = [Sge { addr: 0x500, length: bytes, lkey: 1 }];
        let sges = if bytes == 0 { &[] } else { &list[..] };
        self.engine.post(&WrRef { fields, sges, inline }, &mut self.notes)
    }

    fn post(&mut self, wr_id: u64, opcode: u32, flags: u32, bytes: u32) {
        let fields = Fields { wr_id, opcode, flags, remote_addr: TARGET, imm: 77, ..Fields::default() };
        self.post_wr(fields, bytes, &[]).unwrap();
    }

    fn feed(&mut self) -> usize {
        let before = self.notes.lanes.len();
        self.engine.feed(&mut [OPEN; 2], &mut self.notes);
        self.notes.lanes.len() - before
    }

    /// Completes the pieces in flight, and those that then follow.
    fn complete_bodies(&mut self) {
        self.feed();
        while !self.notes.lanes.is_empty() {
            let (_, token, ..) = self.notes.lanes.remove(0);
            self.engine.chunk_completed(token, SUCCESS, 0, &mut self.notes);
            self.feed();
        }
    }

    /// A completion of the primary; what the application sees of it: status and length.
    fn complete(&mut self, wr_id: u64, status: u32) -> Option<(u32, Option<u32>)> {
        match self.engine.primary_completed(wr_id, status, &mut self.notes) {
            Verdict::Swallow => None,
            Verdict::Deliver(fix) => {
                self.engine.delivered(fix.upto);
                Some((fix.status.map_or(status, |s| s.0), fix.byte_len))
            }
        }
    }

    /// What is on the primary: number, kind, flags.
    fn primary(&self) -> Vec<(u64, Why, u32)> {
        self.notes.primary.iter().map(|(seq, why, wr)| (*seq, *why, wr.fields.flags)).collect()
    }
}

#[test]
fn small_wrs_pass_at_once_and_leave_the_queue_when_delivered() {
    let mut b = Bench::new(Mode::Strict);
    assert!(b.engine.passes(WRITE, 511) && b.engine.passes(SEND, 1 << 20) && !b.engine.passes(WRITE, 512));
    assert_eq!(b.engine.room(), 4);
    b.engine.note_passed(WRITE, false);
    b.engine.note_passed(WRITE, true);
    b.post(5, SEND, SIGNALED, 100);
    assert_eq!(b.engine.room(), 1);
    let Verdict::Deliver(fix) = b.engine.primary_completed(1, SUCCESS, &mut b.notes) else { panic!() };
    assert_eq!((fix, b.engine.room()), (Fix { byte_len: None, status: None, upto: 2 }, 1));
    b.engine.delivered(fix.upto);
    assert_eq!(b.engine.room(), 3);
    assert_eq!(b.notes.primary.len(), 1, "the fast path is the driver's own post");
}

#[test]
fn a_large_wr_ends_with_its_tail_which_alone_is_the_applications() {
    let mut b = Bench::new(Mode::Strict);
    b.post(5, WRITE_WITH_IMM, SIGNALED | SOLICITED, 1024);
    assert!(b.engine.wants_lanes() && b.engine.held() == 1 && !b.engine.passes(SEND, 1));
    assert_eq!(b.feed(), 4);
    let places: Vec<_> = b.notes.lanes.iter().map(|(l, _, op, at, n)| (*l, *op, *at, *n)).collect();
    let record = (0, WRITE, 0x1_0000 + 32, RECORD_BYTES as u32);
    assert_eq!(places, [record, (1, WRITE, 0, 256), (0, WRITE, 256, 256), (1, WRITE, 512, 256)]);
    assert_eq!(b.primary(), []);
    b.complete_bodies();
    assert_eq!(b.primary(), [(1, Why::Tail, SIGNALED | SOLICITED)]);
    let tail = &b.notes.primary[0].2;
    assert_eq!((tail.fields.wr_id, tail.fields.opcode, tail.fields.imm), (5, WRITE_WITH_IMM, 77));
    assert_eq!((tail.fields.remote_addr, tail.sges[0]), (TARGET + 896, Sge { addr: 0x880, length: 128, lkey: 1 }));
    assert_eq!(b.complete(5, SUCCESS), Some((SUCCESS, Some(1024))));
    assert_eq!((b.engine.room(), b.engine.is_idle(), b.engine.is_quiet()), (4, true, true));
}

#[test]
fn a_split_write_with_immediate_tells_its_length_before_its_tail() {
    let mut b = Bench::new(Mode::Strict);
    b.engine.note_passed(SEND, true);
    b.engine.note_passed(WRITE, true);
    b.post(5, WRITE_WITH_IMM, SIGNALED, 8);
    assert_eq!((b.complete(0, SUCCESS), b.complete(0, SUCCESS)), (Some((SUCCESS, None)), Some((SUCCESS, None))));
    assert_eq!(b.complete(5, SUCCESS), Some((SUCCESS, None)));
    b.post(5, WRITE_WITH_IMM, SIGNALED, 1024);
    b.feed();
    let record = Record { seq: 3, tag: 3, length: 1024, tail: 128, imm: 77 };
    assert_eq!(b.notes.records, [(RING.addr + 3 * 32, 8, record.to_bytes().to_vec())]);
    let (_, last, opcode, _, bytes) = b.notes.lanes.remove(0);
    assert_eq!((opcode, bytes), (WRITE, RECORD_BYTES as u32), "the record goes first");
    b.complete_bodies();
    assert_eq!(b.notes.primary.len(), 1, "all bytes have arrived, but not the record");
    b.engine.chunk_completed(last, SUCCESS, 0, &mut b.notes);
    assert_eq!(b.primary()[1..], [(4, Why::Tail, SIGNALED)]);
    assert_eq!((b.engine.stats().split_imm, b.engine.stats().chunks), (1, 5));
}

#[test]
fn without_a_ring_it_goes_whole_and_the_ring_is_wished_for_once() {
    let mut b = Bench::new(Mode::Strict);
    b.engine.set_ring(None);
    assert!(!b.engine.take_wish());
    b.post(1, WRITE_WITH_IMM, SIGNALED, 1024);
    b.post(2, WRITE_WITH_IMM, SIGNALED, 1024);
    assert_eq!(b.primary(), [(1, Why::App, SIGNALED), (2, Why::App, SIGNALED)]);
    assert_eq!(b.engine.stats().passed[Pass::NoRing as usize], 2);
    assert!(b.engine.take_wish() && !b.engine.take_wish());
    b.post(3, WRITE_WITH_IMM, 0, 1024);
    assert!(!b.engine.take_wish(), "it is known");
    b.engine.set_ring(Some(RING));
    b.post(4, WRITE_WITH_IMM, 0, 1024);
    assert_eq!((b.engine.stats().split_imm, b.engine.take_wish()), (1, false));
}

#[test]
fn a_reset_forgets_the_ring_and_counts_anew() {
    let mut b = Bench::new(Mode::Strict);
    b.engine.note_passed(SEND, false);
    b.engine.state_changed(State::Reset, &mut b.notes);
    b.engine.state_changed(State::Ready, &mut b.notes);
    b.engine.lane_up(0, &mut b.notes);
    b.post(1, WRITE_WITH_IMM, SIGNALED, 1024);
    assert_eq!(b.engine.stats().passed[Pass::NoRing as usize], 1);
    assert!(b.engine.take_wish());
    assert_eq!(b.complete(1, SUCCESS), Some((SUCCESS, None)));
    b.engine.set_ring(Some(RING));
    b.post(1, WRITE_WITH_IMM, SIGNALED, 1024);
    b.complete_bodies();
    assert_eq!(b.notes.records[0].0, RING.addr + 2 * 32, "the second that consumes a receive");
}

#[test]
fn notify_lengths_run_no_further_ahead_than_the_ring_allows() {
    let mut b = Bench::new(Mode::Notify);
    b.engine.facts.max_send_wr = 16;
    let post = |b: &mut Bench, i: u64| {
        let fields = Fields { wr_id: i, opcode: WRITE_WITH_IMM, flags: SIGNALED, ..Fields::default() };
        b.post_wr(Fields { remote_addr: TARGET + 4096 * i, ..fields }, 1024, &[]).unwrap();
    };
    (0..8).for_each(|i| post(&mut b, i));
    b.complete_bodies();
    // Four ahead of what is done, and nothing is: the fifth's bodies wait.
    assert_eq!((b.primary().len(), b.notes.records.len()), (4, 4));
    assert_eq!(b.complete(0, SUCCESS), Some((SUCCESS, Some(1024))));
    b.complete_bodies();
    assert_eq!(b.notes.records.len(), 5);
}

#[test]
fn a_record_that_is_refused_makes_the_wr_whole() {
    let mut b = Bench::new(Mode::Strict);
    b.post(1, WRITE_WITH_IMM, SIGNALED, 1024);
    b.feed();
    while let Some((_, token, _, at, _)) = b.notes.lanes.pop() {
        let status = if at + TARGET >= RING.addr { REM_ACCESS } else { SUCCESS };
        b.engine.chunk_completed(token, status, 0, &mut b.notes);
        b.feed();
    }
    assert_eq!(b.primary(), [(1, Why::Whole, SIGNALED)]);
}

#[test]
fn behind_what_nobody_hears_of_a_head_goes_first() {
    let mut b = Bench::new(Mode::Strict);
    b.engine.note_passed(WRITE, false);
    b.post(5, READ, FENCE, 1024);
    assert_eq!(b.primary(), [(2, Why::Head, SIGNALED | FENCE)]);
    assert!(b.engine.waits_for_primary() && b.feed() == 0);
    assert_eq!(b.complete(5, SUCCESS), None);
    assert!(!b.engine.waits_for_primary());
    b.complete_bodies();
    assert_eq!(b.primary()[1..], [(2, Why::Tail, FENCE)], "unsignaled, as the application's");
}

#[test]
fn behind_what_is_done_bodies_start_at_once() {
    let mut b = Bench::new(Mode::Strict);
    b.engine.note_passed(WRITE, false);
    b.engine.note_passed(WRITE, true);
    assert_eq!(b.complete(0, SUCCESS), Some((SUCCESS, None)));
    b.post(5, WRITE, SIGNALED, 1024);
    assert_eq!((b.primary(), b.feed()), (vec![], 4));
}

#[test]
fn a_tail_is_signaled_unasked_only_if_the_next_wr_waits_for_it() {
    let mut b = Bench::new(Mode::Strict);
    b.post(1, WRITE, 0, 1024);
    b.post(2, WRITE, 0, 1024);
    b.post(3, SEND, 0, 1);
    b.complete_bodies();
    assert_eq!(b.primary(), [(1, Why::Tail, SIGNALED)], "its completion says what a head's would");
    assert!(b.engine.waits_for_primary());
    assert_eq!((b.complete(1, SUCCESS), b.feed()), (None, 4));
    b.complete_bodies();
    assert_eq!(b.primary()[1..], [(2, Why::Tail, 0), (3, Why::App, 0)]);
    assert_eq!(b.engine.room(), 1, "no completion was the application's");
}

#[test]
fn what_is_held_is_a_copy_and_keeps_its_order() {
    let mut b = Bench::new(Mode::Strict);
    b.post(1, WRITE, SIGNALED, 1024);
    let mut data = [1, 2, 3];
    let fields = Fields { wr_id: 2, opcode: SEND, flags: INLINE, ..Fields::default() };
    b.post_wr(fields, 0, &data).unwrap();
    data.fill(9);
    b.post_wr(Fields { wr_id: 3, ..fields }, 0, &data).unwrap();
    b.complete_bodies();
    let sent: Vec<_> = b.notes.primary.iter().map(|(seq, _, wr)| (*seq, wr.inline.clone())).collect();
    assert_eq!(sent, [(1, vec![]), (2, vec![1, 2, 3]), (3, vec![9, 9, 9])]);
}

#[test]
fn the_queue_is_full_at_the_applications_count_and_bad_wrs_are_not_held() {
    let mut b = Bench::new(Mode::Strict);
    b.post(1, WRITE, SIGNALED, 1024);
    assert_eq!(b.post_wr(Fields { opcode: SEND, ..Fields::default() }, 0, &[0; 17]), Err(INVALID));
    for id in 2..5 {
        b.post(id, SEND, 0, 1);
    }
    assert_eq!(b.post_wr(Fields::default(), 1024, &[]), Err(NO_ROOM));
    b.complete_bodies();
    assert_eq!(b.complete(1, SUCCESS), Some((SUCCESS, Some(1024))));
    b.post(6, SEND, 0, 1);
    assert_eq!(b.engine.room(), 0);
}

#[test]
fn what_a_lane_refuses_the_qp_itself_answers_for() {
    let mut b = Bench::new(Mode::Strict);
    b.post(1, WRITE, 0, 1024);
    b.post(2, WRITE, SIGNALED, 1024);
    b.feed();
    let tokens: Vec<u64> = b.notes.lanes.iter().map(|l| l.1).collect();
    b.engine.chunk_completed(tokens[0], REM_ACCESS, 0, &mut b.notes);
    b.engine.chunk_completed(tokens[1], SUCCESS, 0, &mut b.notes);
    b.engine.chunk_completed(tokens[3], SUCCESS, 0, &mut b.notes);
    assert_eq!(b.primary(), [], "a piece may still arrive");
    b.engine.chunk_completed(tokens[2], FLUSHED, 0, &mut b.notes);
    assert_eq!((b.primary(), b.notes.revokes.clone()), (vec![], vec![0]));
    b.engine.lane_revoked(0, &mut b.notes);
    assert_eq!(b.primary(), [(1, Why::Whole, 0), (2, Why::Whole, SIGNALED)]);
    assert_eq!(b.complete(1, REM_ACCESS), Some((REM_ACCESS, None)));
    assert_eq!(b.complete(2, FLUSHED), Some((FLUSHED, None)));
    assert_eq!((b.engine.is_idle(), b.notes.breaks), (true, 0));
}

#[test]
fn lanes_that_refuse_what_the_qp_may_do_are_not_asked_again() {
    let mut b = Bench::new(Mode::Strict);
    b.post(1, READ, SIGNALED, 1024);
    b.engine.feed(&mut [Offer { room: 1, speed: 0, least_bytes: 0 }], &mut b.notes);
    b.engine.chunk_completed(b.notes.lanes[0].1, REM_ACCESS, 0, &mut b.notes);
    assert_eq!(b.complete(1, SUCCESS), Some((SUCCESS, None)), "its own length is right");
    b.engine.lane_up(0, &mut b.notes);
    assert!(b.engine.passes(WRITE, 1 << 20));
    b.post(2, WRITE, 0, 1024);
    assert_eq!(b.engine.stats().passed[Pass::LaneRefused as usize], 1);
}

#[test]
fn a_write_refused_here_may_have_left_in_part() {
    let mut b = Bench::new(Mode::Strict);
    b.post(1, WRITE, SIGNALED, 1024);
    b.engine.feed(&mut [Offer { room: 1, speed: 0, least_bytes: 0 }], &mut b.notes);
    b.engine.chunk_completed(b.notes.lanes[0].1, LOC_PROT, 0, &mut b.notes);
    assert_eq!((b.primary(), b.notes.revokes.len(), b.feed()), (vec![], 1, 0));
    b.engine.lane_revoked(0, &mut b.notes);
    assert_eq!(b.primary(), [(1, Why::Whole, SIGNALED)]);
}

#[test]
fn a_lost_write_is_sent_anew_when_it_cannot_arrive_and_a_lost_read_at_once() {
    for (opcode, revokes) in [(WRITE, vec![0]), (READ, vec![])] {
        let mut b = Bench::new(Mode::Strict);
        b.post(1, opcode, SIGNALED, 1024);
        b.feed();
        let lanes = std::mem::take(&mut b.notes.lanes);
        for (lane, token, ..) in &lanes {
            let status = if *lane == 0 { RETRY_EXCEEDED } else { SUCCESS };
            b.engine.chunk_completed(*token, status, 0, &mut b.notes);
        }
        assert_eq!(b.notes.revokes, revokes, "asked once");
        assert_eq!(b.feed(), if opcode == READ { 2 } else { 0 });
        if opcode == WRITE {
            b.engine.lane_revoked(0, &mut b.notes);
            assert_eq!(b.feed(), 2);
        }
        assert!(b.notes.lanes.iter().all(|l| l.0 == 1));
        let places =
            |l: &[(usize, u64, u32, u64, u32)]| l.iter().map(|l| l.3).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(places(&b.notes.lanes), places(&lanes[..1]).union(&places(&lanes[2..3])).copied().collect());
        b.complete_bodies();
        assert_eq!(b.primary(), [(1, Why::Tail, SIGNALED)]);
        assert_eq!(b.engine.stats().replayed, 2);
    }
}

#[test]
fn without_any_lane_a_wr_goes_whole() {
    let mut b = Bench::new(Mode::Strict);
    b.post(1, WRITE, SIGNALED, 2048);
    b.feed();
    b.engine.lane_down(0, &mut b.notes);
    b.engine.lane_down(1, &mut b.notes);
    assert_eq!(b.primary(), []);
    b.complete_bodies();
    assert_eq!(b.primary(), [(1, Why::Whole, SIGNALED)]);
}

#[test]
fn while_lanes_are_expected_two_large_wrs_go_whole_at_a_time() {
    let mut b = Bench::new(Mode::Strict);
    b.engine.lane_down(0, &mut b.notes);
    b.engine.lane_down(1, &mut b.notes);
    b.engine.expect_lanes(true, &mut b.notes);
    for id in 1..=4 {
        b.post(id, WRITE, if id == 4 { SIGNALED } else { 0 }, 1024);
    }
    let whole = |b: &Bench| b.primary().iter().map(|(seq, why, _)| (*seq, *why)).collect::<Vec<_>>();
    assert_eq!(b.primary(), [(1, Why::Whole, SIGNALED), (2, Why::Whole, SIGNALED)], "heard of, unasked");
    assert!(b.engine.waits_for_primary() && !b.engine.passes(WRITE, 1024));
    assert_eq!(b.complete(1, SUCCESS), None);
    assert_eq!(whole(&b)[2..], [(3, Why::Whole)]);
    b.engine.lane_up(0, &mut b.notes);
    assert_eq!((b.complete(2, SUCCESS), b.feed()), (None, 0), "strict: the third is not done");
    assert_eq!((b.complete(3, SUCCESS), b.feed()), (None, 2), "the fourth is split");
    b.complete_bodies();
    assert_eq!(b.primary()[3..], [(4, Why::Tail, SIGNALED)]);
}

#[test]
fn lanes_that_never_come_hold_nothing_back() {
    let mut b = Bench::new(Mode::Strict);
    b.engine.lane_down(0, &mut b.notes);
    b.engine.lane_down(1, &mut b.notes);
    b.engine.expect_lanes(true, &mut b.notes);
    (1..=4).for_each(|id| b.post(id, WRITE, SIGNALED, 1024));
    assert_eq!((b.primary().len(), b.engine.held()), (2, 2));
    b.engine.expect_lanes(false, &mut b.notes);
    assert_eq!((b.primary().len(), b.engine.held()), (4, 0));
    assert!(b.engine.passes(WRITE, 1 << 20));
}

#[test]
fn a_list_that_lanes_cannot_take_goes_whole() {
    let mut b = Bench::new(Mode::Strict);
    b.engine.limit_list(1);
    let list = [Sge { addr: 0x500, length: 100, lkey: 1 }, Sge { addr: 0x900, length: 924, lkey: 1 }];
    let fields = Fields { wr_id: 1, opcode: WRITE, flags: SIGNALED, remote_addr: TARGET, ..Fields::default() };
    b.engine.post(&WrRef { fields, sges: &list, inline: &[] }, &mut b.notes).unwrap();
    b.post(2, WRITE, SIGNALED, 1024);
    assert_eq!((b.feed(), b.primary()), (0, vec![(1, Why::Whole, SIGNALED)]), "its first piece needs two elements");
    assert_eq!(b.complete(1, SUCCESS), Some((SUCCESS, None)));
    assert_eq!(b.feed(), 4, "the next one does not");
}

#[test]
fn a_lane_that_cannot_be_revoked_breaks_the_qp_and_its_wr_says_why() {
    let mut b = Bench::new(Mode::Strict);
    b.post(1, WRITE, SIGNALED, 1024);
    b.post(2, SEND, SIGNALED, 1);
    b.engine.feed(&mut [Offer { room: 1, speed: 0, least_bytes: 0 }], &mut b.notes);
    b.engine.chunk_completed(b.notes.lanes[0].1, FLUSHED, 0, &mut b.notes);
    b.engine.lane_lost(0, &mut b.notes);
    assert_eq!((b.notes.breaks, b.notes.quiets, b.feed(), b.primary()), (1, 2, 0, vec![]));
    b.engine.state_changed(State::Error, &mut b.notes);
    assert_eq!(b.primary(), [(1, Why::App, SIGNALED), (2, Why::App, SIGNALED)]);
    assert_eq!(b.complete(1, FLUSHED), Some((RETRY_EXCEEDED, None)));
    assert_eq!(b.complete(2, FLUSHED), Some((FLUSHED, None)));
}

#[test]
fn what_is_lost_while_the_application_moves_the_qp_to_err_flushes() {
    for fails in [false, true] {
        let mut b = Bench::new(Mode::Strict);
        b.post(1, WRITE, SIGNALED, 1024);
        b.engine.feed(&mut [Offer { room: 1, speed: 0, least_bytes: 0 }], &mut b.notes);
        b.engine.depart(&mut b.notes);
        b.engine.chunk_completed(b.notes.lanes[0].1, RETRY_EXCEEDED, 0, &mut b.notes);
        b.engine.lane_lost(0, &mut b.notes);
        assert_eq!((b.notes.breaks, b.notes.quiets), (0, 1), "the application does that");
        if fails {
            // The application's call failed: the QP is as broken as if it had not been made.
            b.engine.resume(&mut b.notes);
            assert_eq!(b.notes.breaks, 1);
        }
        b.engine.state_changed(State::Error, &mut b.notes);
        assert_eq!(b.primary(), [(1, Why::App, SIGNALED)]);
        assert_eq!(b.complete(1, FLUSHED), Some((if fails { RETRY_EXCEEDED } else { FLUSHED }, None)));
    }
}

#[test]
fn a_head_that_fails_is_its_wrs_completion() {
    let mut b = Bench::new(Mode::Strict);
    b.engine.note_passed(WRITE, false);
    b.post(7, WRITE, 0, 1024);
    assert_eq!((b.primary(), b.feed()), (vec![(2, Why::Head, SIGNALED)], 0), "no body before it");
    assert_eq!(b.complete(7, REM_ACCESS), Some((REM_ACCESS, None)));
    assert!(b.engine.is_idle() && b.notes.quiets == 1);
}

#[test]
fn stop_means_that_nothing_starts_and_quiet_that_nothing_is_left() {
    let mut b = Bench::new(Mode::Strict);
    b.post(1, WRITE, SIGNALED, 1024);
    b.engine.feed(&mut [Offer { room: 1, speed: 0, least_bytes: 0 }], &mut b.notes);
    b.engine.stop(&mut b.notes);
    assert_eq!((b.feed(), b.notes.quiets, b.engine.is_quiet()), (0, 0, false));
    b.engine.chunk_completed(b.notes.lanes[0].1, SUCCESS, 0, &mut b.notes);
    assert_eq!((b.feed(), b.notes.quiets, b.engine.is_quiet()), (0, 1, true));
    b.engine.resume(&mut b.notes);
    assert_eq!(b.feed(), 3);
    b.engine.state_changed(State::Reset, &mut b.notes);
    assert!(b.engine.is_idle() && !b.engine.is_quiet(), "pieces that a RESET forgot are still there");
    let old = std::mem::take(&mut b.notes.lanes);
    b.engine.state_changed(State::Ready, &mut b.notes);
    b.engine.lane_up(0, &mut b.notes);
    b.post(1, WRITE, SIGNALED, 1024);
    for (_, token, ..) in &old[1..3] {
        b.engine.chunk_completed(*token, SUCCESS, 0, &mut b.notes);
    }
    b.engine.chunk_completed(old[3].1, FLUSHED, 0, &mut b.notes);
    assert_eq!((b.primary(), b.notes.revokes.len()), (vec![], 1), "they are not taken for those of another life");
    b.engine.lane_revoked(old[3].0, &mut b.notes);
    assert!(b.engine.is_quiet());
    b.complete_bodies();
    assert_eq!(b.notes.primary.len(), 1);
}

#[test]
fn what_the_provider_refuses_after_all_is_flushed_under_its_own_id() {
    let mut b = Bench::new(Mode::Strict);
    b.post(1, WRITE, SIGNALED, 1024);
    b.post(2, 14, 0, 64);
    b.feed();
    let lanes = std::mem::take(&mut b.notes.lanes);
    for (_, token, ..) in &lanes[1..] {
        b.engine.chunk_completed(*token, SUCCESS, 0, &mut b.notes);
    }
    b.notes.refuses = Some(NO_ROOM);
    b.engine.chunk_completed(lanes[0].1, SUCCESS, 0, &mut b.notes);
    assert!(b.engine.waits_for_primary(), "a full queue is tried again");
    b.notes.refuses = None;
    b.engine.resume(&mut b.notes);
    assert_eq!(b.notes.primary.len(), 2);
    b.post(3, WRITE, SIGNALED, 1024);
    assert_eq!(b.complete(1, SUCCESS), Some((SUCCESS, Some(1024))));
    assert_eq!(b.complete(3, SUCCESS), None, "its head");
    b.notes.refuses = Some(INVALID);
    b.engine.lane_down(0, &mut b.notes);
    b.engine.lane_down(1, &mut b.notes);
    assert_eq!((b.notes.breaks, b.engine.held()), (1, 1));
    b.notes.refuses = None;
    b.engine.state_changed(State::Error, &mut b.notes);
    let (_, why, wr) = &b.notes.primary[3];
    assert_eq!((*why, wr.fields.wr_id, wr.sges.len()), (Why::StandIn, 3, 0));
    assert_eq!(b.complete(3, FLUSHED), Some((2, None)));
}

#[test]
fn in_notify_mode_bodies_run_ahead_and_tails_do_not() {
    let mut b = Bench::new(Mode::Notify);
    b.post(1, WRITE, SIGNALED, 1024);
    let far = Fields { wr_id: 2, opcode: WRITE, remote_addr: TARGET + 4096, ..Fields::default() };
    b.post_wr(far, 1024, &[]).unwrap();
    b.post(3, WRITE, 0, 1024);
    assert_eq!(b.feed(), 4);
    b.engine.chunk_completed(b.notes.lanes[0].1, SUCCESS, 0, &mut b.notes);
    assert_eq!((b.feed(), b.notes.lanes[4].3), (1, 4096), "the second runs ahead");
    let first = b.notes.lanes.remove(1);
    b.notes.lanes.remove(0);
    b.complete_bodies();
    assert_eq!(b.primary(), [], "its tail does not, and the third overlaps the first");
    b.engine.chunk_completed(first.1, SUCCESS, 0, &mut b.notes);
    let (why, tails) = (Why::Tail, b.primary());
    assert_eq!(tails, [(1, why, SIGNALED), (2, why, SIGNALED)], "the second's completion says that the first is done");
}

#[test]
fn qps_that_share_lanes_share_their_room() {
    let (mut a, mut b) = (Bench::new(Mode::Strict), Bench::new(Mode::Strict));
    a.post(1, WRITE, 0, 1024);
    b.post(1, WRITE, 0, 1024);
    let mut offers = [2, 1].map(|room| Offer { room, speed: 0, least_bytes: 0 });
    a.engine.feed(&mut offers, &mut a.notes);
    b.engine.feed(&mut offers, &mut b.notes);
    assert_eq!((a.notes.lanes.len(), b.notes.lanes.len(), offers.map(|o| o.room)), (3, 0, [0, 0]));
    offers[1].room = 1;
    b.engine.feed(&mut offers, &mut b.notes);
    assert_eq!(b.notes.lanes.len(), 1);
}

#[test]
fn bytes_of_what_is_cut_are_counted_where_they_go() {
    let mut b = Bench::new(Mode::Strict);
    b.post(1, WRITE, SIGNALED, 1024);
    b.complete_bodies();
    b.complete(1, SUCCESS);
    let s = *b.engine.stats();
    assert_eq!((s.moved.split, s.moved.on_lanes + s.moved.on_qp), (1024, 1024));
    assert_eq!((s.moved.on_lanes, s.moved_reads), (896, Moved::default()));
    // A READ behind an unsignaled WR starts with a head; one lane breaks, and its pieces go again.
    b.post(2, SEND, 0, 8);
    b.post(3, READ, SIGNALED, 1024);
    assert_eq!(b.complete(3, SUCCESS), None, "the head's");
    b.feed();
    let (_, token, _, _, lost) = b.notes.lanes.remove(0);
    b.engine.chunk_completed(token, RETRY_EXCEEDED, 0, &mut b.notes);
    b.complete_bodies();
    b.complete(3, SUCCESS);
    let r = b.engine.stats().moved_reads;
    assert_eq!((r.split, r.on_lanes + r.on_qp), (1024, 1024 + u64::from(lost)));
    assert!(r.on_qp > 256, "head and tail: {r:?}");
    assert_eq!(b.engine.stats().moved.split, 2048);
    // One whose lanes are gone when half of it is there is posted whole, again.
    let before = *b.engine.stats();
    b.engine.lane_up(0, &mut b.notes);
    b.post(4, WRITE, SIGNALED, 2048);
    assert_eq!(b.feed(), 4);
    b.engine.lane_down(0, &mut b.notes);
    b.engine.lane_down(1, &mut b.notes);
    b.complete_bodies();
    let s = *b.engine.stats();
    assert_eq!((s.parted, s.given_up), (before.parted + 1, 1));
    let new = |now: u64, then: u64| now - then;
    assert_eq!(new(s.moved.split, before.moved.split), 2048);
    assert_eq!((new(s.moved.on_lanes, before.moved.on_lanes), new(s.moved.on_qp, before.moved.on_qp)), (1024, 2048));
}

#[test]
fn large_wrs_that_pass_are_counted_by_why() {
    let mut b = Bench::new(Mode::Strict);
    let large = |b: &Bench| b.engine.stats().large_passed;
    assert!(!b.engine.is_large(511) && b.engine.is_large(512));
    b.post(1, SEND, SIGNALED, 511);
    assert_eq!((large(&b), b.engine.last_large()), ([0; plan::PASSES], None), "small ones are not");
    b.post(1, SEND, SIGNALED, 512);
    assert_eq!((large(&b)[Pass::Opcode as usize], b.engine.last_large()), (1, Some(Pass::Opcode)));
    b.post(2, WRITE, SIGNALED, 1024);
    (0..2).for_each(|_| _ = b.complete(1, SUCCESS));
    assert_eq!((b.feed(), b.engine.last_large()), (4, None), "the last one is split");
    b.post(3, SEND, SIGNALED, 2000);
    assert_eq!(large(&b)[Pass::Opcode as usize], 2, "held back, and whole all the same");

    // What goes whole while lanes are expected is none that was split.
    let mut b = Bench::new(Mode::Strict);
    b.engine.lane_down(0, &mut b.notes);
    b.engine.lane_down(1, &mut b.notes);
    b.engine.expect_lanes(true, &mut b.notes);
    (1..=4).for_each(|id| b.post(id, WRITE, SIGNALED, 1024));
    let s = *b.engine.stats();
    assert_eq!((s.split, s.parted, s.moved), (4, 0, Moved::default()));
    assert_eq!(s.large_passed[Pass::NoLane as usize], 2, "two are held");

    // Without lanes all take the fast path, which says so of the large ones.
    let mut b = Bench::new(Mode::Strict);
    b.engine.lane_down(0, &mut b.notes);
    b.engine.lane_down(1, &mut b.notes);
    assert_eq!(b.engine.lanes_up(), 0);
    assert!(b.engine.passes(WRITE, 1 << 20));
    b.engine.note_passed(SEND, true);
    b.engine.note_large(WRITE);
    b.engine.note_large(SEND);
    assert_eq!((large(&b)[Pass::NoLane as usize], large(&b)[Pass::Opcode as usize]), (1, 1));
    b.engine.lane_up(1, &mut b.notes);
    assert!(!b.engine.passes(WRITE, 1 << 20) && b.engine.passes(SEND, 1 << 20));
    b.engine.state_changed(State::Error, &mut b.notes);
    assert!(b.engine.passes(WRITE, 1 << 20));
    b.engine.note_large(WRITE);
    assert_eq!((large(&b)[Pass::NotReady as usize], b.engine.last_large()), (1, Some(Pass::NotReady)));
    b.engine.state_changed(State::Reset, &mut b.notes);
    assert_eq!(b.engine.last_large(), None);
}

/// `cargo test --release -p telereduce --lib multipath::engine::tests::cost -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn cost_of_a_wr_that_passes() {
    use std::hint::black_box;
    const N: u32 = 100_000;
    const QUEUE: u32 = 32;
    let mut b = Bench::new(Mode::Strict);
    b.engine.facts.max_send_wr = QUEUE;
    let mut measure = |what: &str, queue: &dyn Fn(&mut Bench)| {
        // The best of many runs: others may use the machine.
        let best = (0..200).map(|_| {
            let start = std::time::Instant::now();
            (0..N / QUEUE).for_each(|_| queue(&mut b));
            start.elapsed()
        });
        println!("{what}: {:.2} ns", best.min().unwrap().as_nanos() as f64 / f64::from(N));
    };
    let decide = |b: &Bench| assert!(b.engine.passes(black_box(WRITE), black_box(64)) && b.engine.room() > 0);
    let fill = |b: &mut Bench, signaled: fn(u32) -> bool| {
        for i in 0..QUEUE {
            decide(b);
            b.engine.note_passed(WRITE, signaled(i));
        }
    };
    let drain = |b: &mut Bench, n| {
        for _ in 0..n {
            let verdict = b.engine.primary_completed(black_box(1), SUCCESS, &mut b.notes);
            let Verdict::Deliver(fix) = verdict else { panic!() };
            b.engine.delivered(fix.upto);
        }
    };
    measure("decision", &|b| (0..QUEUE).for_each(|_| decide(b)));
    measure("decision, note, completion", &|b| {
        fill(b, |_| true);
        drain(b, QUEUE);
    });
    measure("the same, one of 32 signaled", &|b| {
        fill(b, |i| i == QUEUE - 1);
        drain(b, 1);
    });
    let started = std::time::Instant::now();
    let pieces = b.engine.stats().chunks;
    for _ in 0..N {
        b.post(1, WRITE, SIGNALED, 8192);
        b.complete_bodies();
        b.complete(1, SUCCESS);
        b.notes.primary.clear();
    }
    let pieces = b.engine.stats().chunks - pieces;
    println!(
        "a piece of a split WR, with the notes taken: {:.0} ns",
        started.elapsed().as_nanos() as f64 / pieces as f64
    );
}

#[test]
fn a_batch_is_taken_as_a_whole_and_what_the_provider_then_refuses_fails_in_its_place() {
    let mut b = Bench::new(Mode::Strict);
    assert!(b.engine.has_room_for(4) && !b.engine.has_room_for(5));
    b.notes.refuses = Some(INVALID);
    let fields = Fields { wr_id: 7, opcode: SEND, flags: SIGNALED, ..Fields::default() };
    let wr = WrRef { fields, sges: &[], inline: &[] };
    b.engine.take(&wr, &mut b.notes).unwrap();
    assert_eq!((b.notes.breaks, b.engine.held()), (1, 1));
    assert!(b.engine.has_room_for(3) && !b.engine.has_room_for(4));
    b.notes.refuses = None;
    b.engine.state_changed(State::Error, &mut b.notes);
    assert_eq!(b.primary(), [(1, Why::StandIn, SIGNALED)]);
    assert_eq!(b.complete(7, FLUSHED), Some((2, None)));
}

#[test]
fn what_had_no_room_is_tried_again() {
    let mut b = Bench::new(Mode::Strict);
    let fields = Fields { wr_id: 7, opcode: SEND, flags: SIGNALED, ..Fields::default() };
    b.notes.refuses = Some(NO_ROOM);
    b.engine.take(&WrRef { fields, sges: &[], inline: &[] }, &mut b.notes).unwrap();
    assert!(b.engine.waits_for_primary() && b.primary().is_empty());
    b.notes.refuses = None;
    b.engine.retry(&mut b.notes);
    assert_eq!((b.primary(), b.engine.waits_for_primary()), (vec![(1, Why::App, SIGNALED)], false));
}
