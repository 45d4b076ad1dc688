//! Telemetry: what is in flight on each queue, and what became of it.
//!
//! [`registry`] is the control path: which devices, CQs, SRQs and QPs exist and which records of the segment they own.
//! [`qp`], [`srq`] and [`cq`] are the hot path: a post enters the queue's ring ([`inflight`]), a polled completion
//! retires it, adds to the counters, to the latency [`histogram`] and to the event ring ([`event`]). Of a UD QP, each WR has a
//! [`peer`] of its own ([`datagrams`]).

pub mod address;
pub mod alarm;
pub mod attention;
pub mod batch;
pub mod cq;
pub mod datagrams;
pub mod event;
pub mod fold;
pub mod histogram;
pub mod inflight;
pub mod labels;
pub mod lane;
pub mod multipath;
pub mod peer;
pub mod pool;
pub mod qp;
pub mod registry;
pub mod srq;
pub mod stall;
#[cfg(test)]
pub(crate) mod testing;
mod users;
pub mod xrc;

use crate::clock::Clock;
use crate::shm::layout::Header;

/// What the hot path needs to know of the process.
pub struct Hot {
    /// The process's clock.
    pub clock: &'static Clock,
    /// The segment's header.
    pub header: &'static Header,
    /// In how many sends one is timed, the next signaled one; 0 = none.
    pub latency_every: u32,
    /// Whether completions make events.
    pub events: bool,
    /// Largest message without an event.
    pub min_event_bytes: u64,
    /// Raised by failures.
    pub alarm: alarm::Alarm,
}
