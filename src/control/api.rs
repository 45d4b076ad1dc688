//! What the side channel asks of the shim, and tells it.

use super::Reason;
use super::wire::{Message, ProcessId, Psns, QpAddr, QpPair};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A connection between two processes, unique in this process's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// A QP of this process, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OurQp {
    /// The QP that it is connected to, from RTR on.
    pub peer: Option<QpAddr>,
    /// The PSNs that it was given so far.
    pub psns: Psns,
    /// Number of the pool of lanes that it may use: QPs of one pool share lanes.
    pub pool: u32,
}

/// The QPs of this process that may have lanes. Asked on the side channel's thread, which must not be made to wait for one
/// that waits for the side channel.
pub trait Qps: Send {
    /// The QP of that address; `None` if it is not this process's, or may have no lanes.
    fn find(&self, qp: &QpAddr) -> Option<OurQp>;
}

/// Who owns a QP of this network namespace and user. Asked on the side channel's thread.
pub trait Directory: Send {
    /// The own port of the process that owns the QP, at the address of the QP's GID ([`super::rendezvous::Ports`]).
    fn port_of(&self, qp: &QpAddr) -> Option<u16>;
}

/// What happens to claims, pairs and links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both sides say that these QPs are connected to each other: messages about them and their PDs' lanes go over `link`.
    /// Comes after either side's claim; again if the QPs were connected anew. If this side's QP has moved on before its
    /// shim sees this, the shim sends `QpGoing` and forgets the pair.
    Paired {
        /// As this side sees it.
        pair: QpPair,
        /// The connection, which other pairs share.
        link: LinkId,
        /// The other process.
        process: ProcessId,
        /// The peer's PSNs, as far as it knew them.
        psns: Psns,
        /// The peer's pool.
        pool: u32,
    },
    /// This side's claim failed so far; it is tried again.
    Delayed {
        /// As this side sees it.
        pair: QpPair,
        /// Why.
        reason: Reason,
    },
    /// This side's claim came to nothing. The peer's may still come, and pair the QPs.
    Failed {
        /// As this side sees it.
        pair: QpPair,
        /// Why.
        reason: Reason,
    },
    /// About lanes, or about a QP of a pair of this link. Lane numbers are the link's: those of another link are others.
    /// After `QpGoing` the pair is forgotten already: the shim makes its side quiet and answers `QpQuiet`, which counts for
    /// the pair, epoch and link that was asked.
    Message {
        /// Where it came from, and where an answer goes.
        link: LinkId,
        /// As its sender sees things.
        message: Message,
    },
    /// The connection is gone, and with it all that was agreed on it: pairs and lanes.
    Lost {
        /// Which.
        link: LinkId,
        /// Why.
        reason: Reason,
        /// The pairs that it served, as this side sees them; none if all were forgotten before.
        pairs: Vec<QpPair>,
    },
    /// The side channel has ended, on request or because it failed: no event follows.
    Stopped,
}

/// Bounds on what the side channel holds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections; at the limit, one that serves no pair makes room for another.
    pub links: usize,
    /// Connections from others on which no claim was accepted yet. Beyond it, the oldest of the address that holds most
    /// of them is dropped.
    pub unproven: usize,
    /// Claims of this side that are being pursued.
    pub claims: usize,
}

impl Limits {
    /// Limits that leave most of a process's descriptors to the program.
    pub fn for_descriptors(soft_limit: u64) -> Limits {
        let share = |part: u64, most: u64| (soft_limit / part).clamp(8, most) as usize;
        Limits { links: share(4, 4096), unproven: share(8, 256), claims: 65_536 }
    }
}

const REASONS: usize = Reason::ALL.len();

/// How often what happened, since the start; by [`Reason::code`].
#[derive(Default)]
pub struct Tally {
    /// Pairs made.
    pub paired: AtomicU64,
    /// Claims of this side that came to nothing.
    pub failed: [AtomicU64; REASONS],
    /// Claims of others that were refused.
    pub refused: [AtomicU64; REASONS],
    /// Connections that ended.
    pub ended: [AtomicU64; REASONS],
}

impl Tally {
    pub(super) fn count(counters: &[AtomicU64; REASONS], reason: Reason) {
        counters[usize::from(reason.code())].fetch_add(1, Relaxed);
    }

    /// One of the counters.
    pub fn get(counters: &[AtomicU64; REASONS], reason: Reason) -> u64 {
        counters[usize::from(reason.code())].load(Relaxed)
    }
}
