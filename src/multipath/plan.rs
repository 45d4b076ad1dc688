//! Step *plan*: does this WR pass as it is, and if not, where is it cut?
//!
//! Pure arithmetic. A [`Cut`] is a handful of numbers, whatever the size of the message; its pieces are computed when
//! they are needed: a lane takes a run of equal *units*, as many as suit it at that moment (see
//! [`schedule`](super::schedule)). Cuts lie at multiples of [`ALIGN`] of the *remote* address, so that no cache line or TLP
//! of the target is written by two pieces. The last piece, the *tail*, is short: it starts after all others have arrived, and so
//! costs the message one round trip, in which little else travels.

use super::wr::{INLINE, READ, WRITE, WRITE_WITH_IMM, WrRef};

/// Cuts lie at multiples of this many bytes of the remote address.
pub const ALIGN: u32 = 128;

/// Longest message of RC, bytes.
pub const LONGEST: u64 = 1 << 31;

/// How much order is kept between WRs; see the order contract, C5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// No byte of a WR is visible before those of earlier WRs.
    #[default]
    Strict,
    /// Bodies may run ahead of earlier WRs that they do not overlap.
    Notify,
}

/// The user's choices, the same for all QPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Order between WRs.
    pub mode: Mode,
    /// Smallest message that is split, bytes.
    pub min_split_bytes: u32,
    /// The unit: smallest body piece that is worth its work request, bytes; rounded up to a multiple of [`ALIGN`].
    pub unit_bytes: u32,
    /// Largest body piece, bytes, in whole units. Large enough to keep a path busy for longer than the CPU needs.
    pub max_chunk_bytes: u32,
    /// The tail has at least this many bytes, and less than [`ALIGN`] more; 0 counts as 1.
    pub tail_bytes: u32,
    /// Pieces that one QP keeps in flight on one lane.
    pub depth: u32,
    /// In notify mode: how many of the WRs that are held are looked at for something to start, and how many WRs a split
    /// WRITE_WITH_IMM may be ahead of what is done. The receiver's ring is made for the same number.
    pub ahead: u32,
    /// WRITE_WITH_IMM is split, too, where the receiver's shim has a [`Ring`](super::lengths::Ring) for its length.
    pub split_imm: bool,
}

impl Settings {
    /// Settings for messages of this many bytes and more, whose units are an eighth of it, within reason.
    pub fn of(min_split_bytes: u32) -> Settings {
        Settings { min_split_bytes, unit_bytes: (min_split_bytes / 8).clamp(512, 32 << 10), ..Settings::default() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mode: Mode::Strict,
            min_split_bytes: 128 << 10,
            unit_bytes: 32 << 10,
            max_chunk_bytes: 1 << 20,
            tail_bytes: 1,
            depth: 2,
            ahead: 16,
            split_imm: true,
        }
    }
}

/// Why a WR passes as it is. The names are stable: they are counters' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Pass {
    /// The QP is not in RTS.
    NotReady,
    /// No lane is up (no shim at the peer, the side channel has not answered yet, all lanes broke).
    NoLane,
    /// The lanes refused what the QP itself was allowed, so nothing of this QP is split any more.
    LaneRefused,
    /// Not a WRITE, WRITE_WITH_IMM or READ.
    Opcode,
    /// Below the size from which messages are split; also if it has no bytes at all.
    Small,
    /// Inline data.
    Inline,
    /// It would make fewer than two units.
    FewPieces,
    /// Longer than a message may be; the provider will say so.
    TooLong,
    /// Its remote range goes past the end of the address space; the target will say so.
    Wraps,
    /// WRITE_WITH_IMM is not to be split.
    Imm,
    /// WRITE_WITH_IMM, and the receiver's shim has no ring for its length, or none yet.
    NoRing,
}

/// Number of reasons.
pub const PASSES: usize = 11;

impl Pass {
    /// Every reason, in the order of its number.
    pub const ALL: [Pass; PASSES] = [
        Pass::NotReady,
        Pass::NoLane,
        Pass::LaneRefused,
        Pass::Opcode,
        Pass::Small,
        Pass::Inline,
        Pass::FewPieces,
        Pass::TooLong,
        Pass::Wraps,
        Pass::Imm,
        Pass::NoRing,
    ];

    /// Stable name.
    pub fn name(self) -> &'static str {
        match self {
            Pass::NotReady => "not_ready",
            Pass::NoLane => "no_lane",
            Pass::LaneRefused => "lane_refused",
            Pass::Opcode => "opcode",
            Pass::Small => "small",
            Pass::Inline => "inline",
            Pass::FewPieces => "few_pieces",
            Pass::TooLong => "too_long",
            Pass::Wraps => "wraps",
            Pass::Imm => "imm",
            Pass::NoRing => "no_ring",
        }
    }
}

/// What becomes of a WR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It goes as it is.
    Pass(Pass),
    /// It is cut.
    Split(Cut),
}

/// Whether WRs of this opcode are ever split.
#[inline(always)]
pub fn is_splittable(opcode: u32) -> bool {
    opcode <= WRITE_WITH_IMM || opcode == READ
}

const _: () = assert!(WRITE == 0 && WRITE_WITH_IMM == 1);

/// Some bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte's place in the message.
    pub offset: u32,
    /// Bytes, at least 1.
    pub length: u32,
}

/// How a message is cut: into units, numbered from 0, whose runs are the bodies; and a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Message, bytes.
    length: u32,
    /// By how much the remote address is past a multiple of [`ALIGN`].
    past: u32,
    /// Bytes of a unit, the first and the last one's may be less; a multiple of [`ALIGN`].
    step: u32,
    /// Where the tail starts, counted from the last multiple of [`ALIGN`] before the message.
    tail_at: u32,
}

impl Cut {
    /// Number of units, at least 2.
    pub fn units(&self) -> u32 {
        self.tail_at.div_ceil(self.step)
    }

    /// Message, bytes.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Bytes of a unit.
    pub fn unit_bytes(&self) -> u32 {
        self.step
    }

    /// The body of `count` units from `first` on.
    pub fn body(&self, first: u32, count: u32) -> Piece {
        debug_assert!(count > 0 && first + count <= self.units());
        let start = (first * self.step).max(self.past);
        // Near 2^32 only if the message ends there, and then the tail is before it.
        let end = (u64::from(first + count) * u64::from(self.step)).min(u64::from(self.tail_at)) as u32;
        Piece { offset: start - self.past, length: end - start }
    }

    /// The tail.
    pub fn tail(&self) -> Piece {
        let offset = self.tail_at - self.past;
        Piece { offset, length: self.length - offset }
    }
}

fn round_up(bytes: u32) -> u32 {
    bytes.clamp(1, 1 << 30).next_multiple_of(ALIGN)
}

/// Decides on a WR. `lanes`: some are up, or may soon be.
pub fn plan(wr: &WrRef<'_>, settings: &Settings, lanes: bool) -> Plan {
    let f = &wr.fields;
    if !is_splittable(f.opcode) {
        return Plan::Pass(Pass::Opcode);
    }
    let bytes = wr.bytes();
    if bytes < u64::from(settings.min_split_bytes.max(1)) {
        return Plan::Pass(Pass::Small);
    }
    if f.opcode == WRITE_WITH_IMM && !settings.split_imm {
        return Plan::Pass(Pass::Imm);
    }
    if wr.has(INLINE) || !wr.inline.is_empty() {
        return Plan::Pass(Pass::Inline);
    }
    if bytes > LONGEST {
        return Plan::Pass(Pass::TooLong);
    }
    if f.remote_addr.checked_add(bytes).is_none() {
        return Plan::Pass(Pass::Wraps);
    }
    if !lanes {
        return Plan::Pass(Pass::NoLane);
    }
    cut(f.remote_addr, bytes as u32, settings).map_or(Plan::Pass(Pass::FewPieces), Plan::Split)
}

fn cut(remote_addr: u64, length: u32, settings: &Settings) -> Option<Cut> {
    let past = (remote_addr % u64::from(ALIGN)) as u32;
    let last = (past + length).checked_sub(settings.tail_bytes.max(1))?;
    let tail_at = last - last % ALIGN;
    if tail_at <= past {
        return None;
    }
    let c = Cut { length, past, step: round_up(settings.unit_bytes), tail_at };
    (c.units() >= 2).then_some(c)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
