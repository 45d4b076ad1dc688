//! How long sends wait: of a QP, of a port and of a peer.

use super::layout::{StallCounters, StallRecord};
use core::sync::atomic::Ordering::Relaxed;
use serde::{Deserialize, Serialize};

/// Sends that wait for their completion, and stalls. Where stalls are watched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// When the oldest outstanding send was posted, CLOCK_REALTIME ns, at most one look of the watch late; `None`: none waits.
    pub oldest_ns: Option<u64>,
    /// Since when nothing completes, likewise; `None`: it does not stall. Of a port or peer: the first of its QPs that stall.
    pub stalled_ns: Option<u64>,
    /// How often the send CQ was polled since something completed; of a port or peer: the fewest of its QPs that stall.
    pub cq_polls: Option<u64>,
    /// QPs that stall.
    pub qps_stalled: u32,
    /// Stalls so far.
    pub stalls: u64,
    /// The longest, one that lasts included.
    pub longest_ns: u64,
}

impl Stalls {
    /// A QP's.
    pub fn of_qp(r: &StallRecord) -> Stalls {
        let known = |ns: u64| (ns != 0).then_some(ns);
        let stalled_ns = known(r.stalled_ns.load(Relaxed));
        Stalls {
            oldest_ns: known(r.oldest_ns.load(Relaxed)),
            stalled_ns,
            cq_polls: stalled_ns.map(|_| r.cq_polls.load(Relaxed)),
            qps_stalled: u32::from(stalled_ns.is_some()),
            ..Stalls::of(&r.counters)
        }
    }

    /// What retired QPs left.
    pub fn of(c: &StallCounters) -> Stalls {
        let (stalls, longest_ns) = (c.stalls.load(Relaxed), c.longest_ns.load(Relaxed));
        Stalls { stalls, longest_ns, ..Stalls::default() }
    }

    /// Adds a QP's.
    pub fn add(&mut self, o: &Stalls) {
        let first = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        self.oldest_ns = first(self.oldest_ns, o.oldest_ns);
        self.stalled_ns = first(self.stalled_ns, o.stalled_ns);
        self.cq_polls = first(self.cq_polls, o.cq_polls);
        self.qps_stalled = self.qps_stalled.saturating_add(o.qps_stalled);
        self.stalls = self.stalls.wrapping_add(o.stalls);
        self.longest_ns = self.longest_ns.max(o.longest_ns);
    }
}
