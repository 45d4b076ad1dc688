//! What WRs touch, and which of two must not run before the other (notify mode).
//!
//! A footprint has one range at the target and one here, the hull of the scatter/gather list. It is compared by address
//! alone, whatever the keys: two keys of the same memory count as the same, but one memory registered at two addresses
//! (`ibv_reg_mr_iova`) is not seen as one.

use super::wr::{READ, WRITE, WRITE_WITH_IMM, WrRef};
use rdma_sys::ibv_wr_opcode;
use std::collections::VecDeque;

/// Bytes `start..=last` of an address space; nothing if `start > last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    last: u64,
    written: bool,
}

impl Range {
    const NONE: Range = Range { start: 1, last: 0, written: false };

    fn new(start: u64, bytes: u64, written: bool) -> Range {
        if bytes == 0 {
            return Range::NONE;
        }
        start.checked_add(bytes - 1).map_or(Range { start: 0, last: u64::MAX, written }, |last| Range {
            start,
            last,
            written,
        })
    }

    fn conflicts(&self, other: &Range) -> bool {
        (self.written || other.written)
            && self.start <= self.last
            && other.start <= other.last
            && self.start <= other.last
            && other.start <= self.last
    }
}

/// What one WR touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    remote: Range,
    local: Range,
    /// It touches what cannot be known (a receive buffer), or changes what keys mean.
    unknown: bool,
    /// A READ or an atomic: what a fence waits for.
    fetches: bool,
}

impl Footprint {
    /// Of this WR.
    pub fn of(wr: &WrRef<'_>) -> Footprint {
        let f = &wr.fields;
        let bytes = wr.bytes();
        let local = |written| {
            let some = || wr.sges.iter().filter(|s| s.length > 0);
            let start = some().map(|s| s.addr).min().unwrap_or(0);
            let end = some().map(|s| s.addr.saturating_add(u64::from(s.length))).max().unwrap_or(0);
            Range::new(start, end - start, written)
        };
        let none = Footprint { remote: Range::NONE, local: Range::NONE, unknown: false, fetches: false };
        match f.opcode {
            WRITE | WRITE_WITH_IMM => {
                Footprint { remote: Range::new(f.remote_addr, bytes, true), local: local(false), ..none }
            }
            READ => {
                Footprint { remote: Range::new(f.remote_addr, bytes, false), local: local(true), fetches: true, ..none }
            }
            ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP | ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                Footprint { remote: Range::new(f.remote_addr, 8, true), local: local(true), fetches: true, ..none }
            }
            ibv_wr_opcode::IBV_WR_SEND | ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => {
                Footprint { local: local(false), unknown: bytes > 0, ..none }
            }
            _ => Footprint { local: local(true), unknown: true, ..none },
        }
    }

    /// Whether `later`, posted after `self`, must wait for it.
    pub fn blocks(&self, later: &Footprint) -> bool {
        self.unknown || self.remote.conflicts(&later.remote) || self.local.conflicts(&later.local)
    }
}

/// The footprints of the WRs that are not known to be done, oldest first.
#[derive(Debug, Default)]
pub struct Window(VecDeque<(u64, Footprint)>);

impl Window {
    /// WR number `seq` was accepted.
    pub fn push(&mut self, seq: u64, f: Footprint) {
        self.0.push_back((seq, f));
    }

    /// Everything up to `seq` is done.
    #[inline(always)]
    pub fn acked(&mut self, seq: u64) {
        while self.0.front().is_some_and(|(s, _)| *s <= seq) {
            self.0.pop_front();
        }
    }

    /// The last WR for which `blocks` holds; 0 if none.
    pub fn last(&self, blocks: impl Fn(&Footprint) -> bool) -> u64 {
        self.0.iter().rev().find(|(_, f)| blocks(f)).map_or(0, |(s, _)| *s)
    }

    /// The last READ or atomic; 0 if none.
    pub fn last_fetch(&self) -> u64 {
        self.last(|f| f.fetches)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::wr::{Fields, Sge};
    use super::*;
    use proptest::prelude::*;

    fn of(opcode: u32, remote_addr: u64, sges: &[Sge]) -> Footprint {
        Footprint::of(&WrRef { fields: Fields { opcode, remote_addr, ..Fields::default() }, sges, inline: &[] })
    }

    fn at(addr: u64, length: u32) -> [Sge; 1] {
        [Sge { addr, length, lkey: 0 }]
    }

    #[test]
    fn writers_block_what_they_touch_and_readers_do_not_block_each_other() {
        let write = of(WRITE, 1000, &at(0, 100));
        assert!(write.blocks(&of(WRITE, 1099, &at(5000, 100))));
        assert!(!write.blocks(&of(WRITE, 1100, &at(0, 100))), "both read the local bytes");
        assert!(write.blocks(&of(READ, 900, &at(5000, 101))));
        assert!(write.blocks(&of(READ, 5000, &at(99, 10))), "the READ would change what the WRITE sends");
        let read = of(READ, 1000, &at(0, 100));
        assert!(!read.blocks(&of(READ, 1000, &at(100, 100))));
        assert!(read.blocks(&of(READ, 9000, &at(50, 1))));
        assert!(read.blocks(&of(WRITE, 1050, &at(200, 1))));
        assert!(!read.blocks(&of(WRITE, 1100, &at(200, 1))));
        assert!(of(6, 1004, &at(8, 8)).blocks(&of(READ, 1011, &at(500, 1))), "an atomic has eight bytes there");
    }

    #[test]
    fn what_cannot_be_known_blocks_and_nothing_blocks_nothing() {
        let write = of(WRITE, 1000, &at(0, 100));
        assert!(of(2, 0, &at(5000, 1)).blocks(&write), "its receive buffer may be anywhere");
        assert!(!of(2, 0, &[]).blocks(&write));
        assert!(!of(WRITE_WITH_IMM, 1050, &[]).blocks(&write));
        assert!(of(7, 0, &[]).blocks(&write), "LOCAL_INV");
        assert!(of(8, 0, &[]).blocks(&write), "BIND_MW");
        assert!(of(WRITE, u64::MAX - 10, &at(9000, 100)).blocks(&write), "a range that wraps may be anywhere");
    }

    proptest! {
        #[test]
        fn ranges_conflict_as_sets_do(a in 0u64..50, an in 0u64..20, b in 0u64..50, bn in 0u64..20) {
            let both = (a..a + an).any(|x| (b..b + bn).contains(&x));
            prop_assert_eq!(Range::new(a, an, true).conflicts(&Range::new(b, bn, false)), both);
            prop_assert!(!Range::new(a, an, false).conflicts(&Range::new(b, bn, false)));
        }
    }

    #[test]
    fn the_window_forgets_what_is_done() {
        let mut w = Window::default();
        w.push(5, of(WRITE, 1000, &at(0, 100)));
        w.push(7, of(READ, 3000, &at(200, 100)));
        w.push(9, of(WRITE, 2000, &at(0, 100)));
        let probe = of(WRITE, 1000, &at(0, 1));
        assert_eq!((w.last(|f| f.blocks(&probe)), w.last_fetch()), (5, 7));
        w.acked(7);
        assert_eq!((w.last(|f| f.blocks(&probe)), w.last_fetch()), (0, 0));
    }
}
