//! The application: random WRs whose outcome RC defines.
//!
//! WRITEs and SENDs read memory that nothing changes; only fenced ones read what READs bring, as anything else is not
//! defined natively either.

use super::super::wr::{FENCE, Fields, INLINE, READ, SIGNALED, SOLICITED, Sge, WRITE, WRITE_WITH_IMM, Wr};
use super::memory::{
    COMPARE_SWAP, FETCH_ADD, LOCAL_INV, SEND, SEND_WITH_IMM, SINK, SIZE, SOURCE, TARGET, is_atomic, is_fetch,
};
use super::rng::Rng;
use super::world::{BAD_LKEY, BAD_RKEY, PRIMARY_RKEY};

/// Elements of a WR at most.
pub const MAX_SGE: u32 = 6;
/// Inline bytes at most.
pub const MAX_INLINE: u32 = 48;

/// The application's habits, which differ from run to run.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Per mille of WRs that are signaled.
    pub signaled: u32,
    /// Fenced.
    pub fenced: u32,
    /// With something wrong.
    pub faulty: u32,
    /// Large.
    pub large: u32,
    /// Longest message, bytes.
    pub longest: u32,
    /// Of a stream of WRITE_WITH_IMMs that do not touch each other.
    pub streams: u32,
}

/// Messages of a stream that lie side by side.
const STREAM: u64 = 10;

/// The next WR, `number` of them after others.
pub fn wr(rng: &mut Rng, h: &Habits, number: u64) -> Wr {
    if rng.chance(h.streams) {
        let bytes = rng.within(380, (SIZE / STREAM) as u32);
        let flags = if rng.chance(h.signaled) { SIGNALED } else { 0 };
        let mut w = Wr { fields: fields(rng, WRITE_WITH_IMM, flags, bytes), sges: Vec::new(), inline: Vec::new() };
        w.fields.remote_addr = TARGET + number % STREAM * (SIZE / STREAM);
        list(rng, &mut w, bytes);
        return w;
    }
    let large = rng.chance(h.large);
    let opcode = if large {
        rng.pick(&[WRITE, WRITE, WRITE, WRITE_WITH_IMM, READ, READ, SEND])
    } else {
        rng.pick(&[WRITE, WRITE, WRITE_WITH_IMM, SEND, SEND_WITH_IMM, READ, COMPARE_SWAP, FETCH_ADD, LOCAL_INV])
    };
    let bytes = match opcode {
        COMPARE_SWAP | FETCH_ADD => 8,
        LOCAL_INV => 0,
        _ if large => rng.within(200, h.longest),
        _ => rng.pick(&[0, 1, 1, 8, 31, 64]),
    };
    let mut flags = 0;
    for (flag, chance) in [(SIGNALED, h.signaled), (FENCE, h.fenced), (SOLICITED, 100)] {
        flags |= if rng.chance(chance) { flag } else { 0 };
    }
    let mut w = Wr { fields: fields(rng, opcode, flags, bytes), sges: Vec::new(), inline: Vec::new() };
    let inline = !is_fetch(opcode) && opcode != LOCAL_INV && bytes > 0 && bytes <= MAX_INLINE && rng.chance(300);
    if inline {
        w.fields.flags |= INLINE;
        w.inline = (0..bytes).map(|_| rng.next() as u8).collect();
    } else {
        list(rng, &mut w, bytes);
    }
    if rng.chance(h.faulty) {
        spoil(rng, &mut w);
    }
    w
}

fn fields(rng: &mut Rng, opcode: u32, flags: u32, bytes: u32) -> Fields {
    let start = if is_atomic(opcode) { 4 + 8 * rng.below(SIZE / 8 - 1) } else { rng.below(SIZE - u64::from(bytes)) };
    Fields {
        // Few values, since an application may give all its WRs the same.
        wr_id: rng.below(3),
        opcode,
        flags,
        remote_addr: TARGET + start,
        rkey: 1,
        // Few, so that one message may look like another.
        imm: rng.below(2) as u32,
        compare_add: rng.below(3),
        swap: rng.next(),
        ..Fields::default()
    }
}

/// A list of elements that lie apart; those that are written do not overlap.
fn list(rng: &mut Rng, w: &mut Wr, bytes: u32) {
    let fetch = is_fetch(w.fields.opcode);
    let from_sink = fetch || w.fields.flags & FENCE != 0 && rng.chance(500);
    let elements = if is_atomic(w.fields.opcode) { 1 } else { rng.within(1, MAX_SGE) };
    let base = if from_sink { SINK } else { SOURCE };
    let slack = SIZE - u64::from(bytes);
    let mut at = rng.below(slack / 2 + 1);
    let mut left = bytes;
    for i in 1..=elements {
        let length = if i == elements { left } else { rng.below(u64::from(left) + 1) as u32 };
        if bytes > 0 || i == 1 {
            w.sges.push(Sge { addr: base + at, length, lkey: 1 });
        }
        at += u64::from(length) + rng.below(slack / 2 / u64::from(MAX_SGE) + 1);
        left -= length;
    }
}

fn spoil(rng: &mut Rng, w: &mut Wr) {
    match rng.below(9) {
        0 => w.fields.rkey = BAD_RKEY,
        1..=5 => w.fields.rkey = PRIMARY_RKEY,
        6 => {
            if let Some(s) = w.sges.last_mut() {
                s.lkey = BAD_LKEY;
            }
        }
        7 => w.fields.extra[0] = 1,
        // Ends past the region.
        _ => {
            let bytes = w.view().bytes();
            w.fields.remote_addr = TARGET + SIZE - bytes / 2;
        }
    }
}
