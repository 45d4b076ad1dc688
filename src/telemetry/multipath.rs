//! What multi-path does to a QP, told to its record. Told where something happened to pieces or lanes, not per WR.

use crate::multipath::driver::{Moved, Stats};
use crate::multipath::single::Single;
use crate::shm::layout::{MovedCounters, MultipathRecord};
use crate::shm::segment::{bump, put};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of one QP's engine. One caller at a time.
pub struct Multipath {
    record: &'static MultipathRecord,
    told: Stats,
}

impl Multipath {
    /// Of a QP whose engine did nothing yet.
    pub fn new(record: &'static MultipathRecord) -> Multipath {
        Multipath { record, told: Stats::default() }
    }

    /// What the engine did so far, and how many lanes take its pieces. `single`: why there is one path.
    pub fn tell(&mut self, stats: &Stats, lanes: u32, single: Option<Single>) {
        say(self.record, lanes, single);
        if *stats == self.told {
            return;
        }
        let (c, told) = (&self.record.counters, &self.told);
        grow(&c.wr_split, told.parted, stats.parted);
        grow(&c.wr_whole, told.given_up, stats.given_up);
        grow(&c.wr_held, told.held, stats.held);
        grow(&c.chunks, told.chunks, stats.chunks);
        grow(&c.chunks_replayed, told.replayed, stats.replayed);
        moved(&c.moved, &told.moved, &stats.moved);
        moved(&c.moved_reads, &told.moved_reads, &stats.moved_reads);
        for (i, c) in c.large_passed.iter().enumerate().take(stats.large_passed.len()) {
            grow(c, told.large_passed[i], stats.large_passed[i]);
        }
        self.told = *stats;
    }

    /// A lane for this QP could not be made: by this side, or by the peer.
    pub fn lane_failed(&mut self, here: bool) {
        let c = if here { &self.record.lanes_failed_here } else { &self.record.lanes_failed_there };
        put(c, c.load(Relaxed).wrapping_add(1));
    }
}

/// Why a QP without an engine has one path; or with one, and how many lanes it has.
pub fn say(record: &MultipathRecord, lanes: u32, single: Option<Single>) {
    put(&record.lanes, lanes);
    put(&record.single, single.map_or(0, Single::code));
}

/// The record may have been emptied meanwhile, by a RESET: it gets what is new.
fn grow(c: &AtomicU64, before: u64, now: u64) {
    if now != before {
        bump(c, now.wrapping_sub(before));
    }
}

fn moved(c: &MovedCounters, before: &Moved, now: &Moved) {
    grow(&c.bytes_split, before.split, now.split);
    grow(&c.bytes_on_lanes, before.on_lanes, now.on_lanes);
    grow(&c.bytes_on_qp, before.on_qp, now.on_qp);
}

#[cfg(test)]
#[path = "multipath_tests.rs"]
mod tests;
