//! The watch for stalls: looks at all QPs' counters from time to time. It reads what readers of the segment read, and takes
//! the registry's lock only where something changes.

use super::{Control, Telemetry};
use crate::attribution::Label;
use crate::clock::realtime_ns;
use crate::shm::layout::{CqRecord, EventKind, Kind, Life, QpDetail, QpRecord, RingRecord, StallCounters, StallRecord};
use crate::shm::segment::{bump, raise};
use crate::telemetry::event::{self, Event};
use crate::telemetry::stall::{Change, Queue, Waiting};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// `enum ibv_qp_state`.
const IBV_QPS_ERR: u32 = 6;

/// Watches all QPs of a process.
pub struct StallWatch {
    after_ns: u64,
    rows: Vec<Row>,
    cqs: Vec<&'static CqRecord>,
    /// Regions of the segment when `rows` were made.
    regions: u32,
    ring: Option<&'static RingRecord>,
    /// Time watched so far: without times in which the process did not run, and could not poll.
    watched_ns: u64,
    looked: Instant,
}

struct Row {
    qp: &'static QpRecord,
    detail: &'static QpDetail,
    stalls: &'static StallRecord,
    created_ns: u64,
    waiting: Waiting,
    /// Polls of its send CQ when something last completed.
    polls: u64,
    moved_ns: u64,
}

/// A QP that began to stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// Index of its record.
    pub index: u32,
    /// Its number.
    pub qp_num: u32,
}

impl StallWatch {
    /// A watch for QPs of which nothing completes for so long. `None`: there is none to be, or no memory for it.
    pub fn new(telemetry: &Telemetry, after: Duration, now: Instant) -> Option<StallWatch> {
        let c = telemetry.unnoticed();
        c.stalls.as_ref()?;
        let ring = telemetry.rings.then(|| telemetry.segment.add_region::<RingRecord>(Kind::Ring, 1).ok()).flatten();
        Some(StallWatch {
            after_ns: after.as_nanos() as u64,
            rows: Vec::new(),
            cqs: Vec::new(),
            regions: 0,
            ring: ring.map(|r| &r[0]),
            watched_ns: 0,
            looked: now,
        })
    }

    /// Looks at all QPs; returns those that began to stall since the last look.
    pub fn look(&mut self, telemetry: &Telemetry, now: Instant) -> Vec<Stalled> {
        let gone_by = now.saturating_duration_since(self.looked).as_nanos() as u64;
        self.looked = now;
        // It was stopped, or the machine slept: the program may be about to poll.
        self.watched_ns += gone_by.min(self.after_ns / 2);
        if telemetry.hot.header.region_count.load(Acquire) != self.regions {
            self.find_rows(&telemetry.unnoticed(), telemetry);
        }
        let (real_ns, watched_ns) = (realtime_ns(), self.watched_ns);
        let mut began = Vec::new();
        for (row, index) in self.rows.iter_mut().zip(0..) {
            match row.look((watched_ns, real_ns), self.after_ns, &self.cqs) {
                None => row.longest_grows(telemetry, watched_ns),
                Some(Change::Begins(ns)) => {
                    began.push(Stalled { index, qp_num: row.qp.qp_num.load(Relaxed) });
                    row.counters(telemetry, |c| bump(&c.stalls, 1));
                    row.longest_grows(telemetry, watched_ns);
                    self.ring.inspect(|ring| event::write(ring, &row.event(index, EventKind::Stall, real_ns, ns)));
                }
                Some(Change::Ends(ns)) => {
                    row.counters(telemetry, |c| raise(&c.longest_ns, ns));
                    self.ring.inspect(|ring| event::write(ring, &row.event(index, EventKind::StallEnd, real_ns, ns)));
                }
            }
        }
        began
    }

    /// The records of all QPs that there can be.
    fn find_rows(&mut self, c: &Control, telemetry: &Telemetry) {
        self.regions = telemetry.hot.header.region_count.load(Acquire);
        let Some(stalls) = &c.stalls else { return };
        let next = self.rows.len() as u32;
        let new = (next..).map_while(|i| {
            Some(Row {
                qp: c.qps.find(i)?,
                detail: c.details.find(i)?,
                stalls: stalls.find(i)?,
                created_ns: 0,
                waiting: Waiting::default(),
                polls: 0,
                moved_ns: 0,
            })
        });
        for row in new {
            if self.rows.try_reserve(1).is_err() {
                return;
            }
            self.rows.push(row);
        }
        let next = self.cqs.len() as u32;
        self.cqs.extend((next..).map_while(|i| c.cqs.find(i)));
    }
}

impl Row {
    fn is_the_same(&self) -> bool {
        let qp = self.qp;
        qp.created_ns.load(Relaxed) == self.created_ns && qp.life.load(Relaxed) == Life::Live as u32
    }

    /// Changes its QP's counters, if it has them still.
    fn counters(&self, telemetry: &Telemetry, change: impl FnOnce(&StallCounters)) {
        let _c = telemetry.unnoticed();
        if self.is_the_same() {
            change(&self.stalls.counters);
        }
    }

    fn longest_grows(&self, telemetry: &Telemetry, watched_ns: u64) {
        if let Some(since) = self.waiting.stalled_ns() {
            self.counters(telemetry, |c| raise(&c.longest_ns, watched_ns - since));
        }
    }

    fn look(&mut self, now: (u64, u64), after_ns: u64, cqs: &[&CqRecord]) -> Option<Change> {
        let watched_ns = now.0;
        let (qp, to) = (self.qp, self.stalls);
        if !self.is_the_same() {
            if qp.life.load(Relaxed) != Life::Live as u32 && self.created_ns == 0 {
                return None;
            }
            // Another QP has the record, or none. What stalled is no more.
            let change = self.waiting.look(Queue::default(), watched_ns, after_ns, || true);
            self.waiting = Waiting::default();
            let live = qp.life.load(Relaxed) == Life::Live as u32 && qp.seq.load(Acquire).is_multiple_of(2);
            self.created_ns = if live { qp.created_ns.load(Relaxed) } else { 0 };
            self.publish(now, cqs);
            return change;
        }
        let (post, done) = (&qp.send_post, &qp.send_done);
        let queue = Queue {
            posted: post.wr_posted.load(Relaxed),
            asked: post.wr_asked.load(Relaxed),
            retired: done.wr_retired.load(Relaxed),
        };
        let is_broken =
            || qp.qp_state.load(Relaxed) == IBV_QPS_ERR || self.detail.send_errors.last_ns.load(Relaxed) != 0;
        let change = self.waiting.look(queue, watched_ns, after_ns, is_broken);
        if self.waiting.moved_ns() != self.moved_ns || self.waiting.oldest_ns().is_none() {
            self.moved_ns = self.waiting.moved_ns();
            self.polls = 0;
        }
        if self.waiting.oldest_ns().is_some() || to.oldest_ns.load(Relaxed) != 0 || change.is_some() {
            self.publish(now, cqs);
        }
        change
    }

    fn publish(&mut self, (watched_ns, real_ns): (u64, u64), cqs: &[&CqRecord]) {
        let real = |ns: Option<u64>| ns.map_or(0, |ns| real_ns.saturating_sub(watched_ns - ns));
        let to = self.stalls;
        to.oldest_ns.store(real(self.waiting.oldest_ns()), Relaxed);
        to.stalled_ns.store(real(self.waiting.stalled_ns()), Relaxed);
        let polls = cqs
            .get(to.send_cq.load(Relaxed) as usize)
            .map_or(0, |cq| cq.polls_empty.load(Relaxed).wrapping_add(cq.cqes.load(Relaxed)));
        if self.polls == 0 {
            self.polls = polls;
        }
        to.cq_polls.store(polls.saturating_sub(self.polls), Relaxed);
    }

    fn event(&self, index: u32, kind: EventKind, end_ns: u64, waited_ns: u64) -> Event {
        let qp = self.qp;
        let left = |posted: u64, gone: u64| posted.saturating_sub(gone);
        let (post, done) = (&qp.send_post, &qp.send_done);
        let (port, peer) = (qp.port.load(Relaxed), qp.peer.load(Relaxed));
        Event {
            end_ns,
            bytes: 0,
            wr_outstanding: left(post.wr_posted.load(Relaxed), done.wr_retired.load(Relaxed)),
            bytes_outstanding: left(post.bytes_posted.load(Relaxed), done.bytes_retired.load(Relaxed)),
            latency_ns: waited_ns,
            qp: u64::from(index) << 32 | u64::from(qp.qp_num.load(Relaxed)),
            place: u64::from(peer) << 32 | u64::from(port.min(0xffff)) << 16 | kind as u64,
            label: Label::NONE,
        }
    }
}

impl Control {
    /// The record of a QP's stalls, if there is one.
    pub(super) fn stalls_of(&self, i: u32) -> Option<&'static StallRecord> {
        self.stalls.as_ref()?.find(i)
    }
}
