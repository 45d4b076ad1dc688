//! What some views show besides the counters of each refresh: latency by port and peer, last errors by QP, events.

use core::sync::atomic::Ordering::Relaxed;
use telereduce::shm::layout::LatencyCounters;
use telereduce::shm::model::Model;
use telereduce::shm::reader::{Event, Reader};
use telereduce::shm::snapshot::{ErrorJson, LatencyJson, last_error};
use telereduce::telemetry::histogram::Latency;

/// Events of one process that are kept for the screen, the newest.
const EVENTS_KEPT: usize = 1024;

/// Of one process; empty unless the view wants it.
#[derive(Clone, Default)]
pub struct Extra {
    /// Post to poll by port index.
    pub ports: Vec<LatencyJson>,
    /// Post to poll by peer index.
    pub peers: Vec<LatencyJson>,
    /// The last error of each QP that has one, by [`telereduce::shm::model::QpView::index`], in that order.
    pub errors: Vec<(u32, ErrorJson)>,
    /// Completions and stalls, oldest first.
    pub events: Vec<Event>,
    /// Events ever written, also those that were overwritten.
    pub events_written: u64,
}

impl Extra {
    /// Latency, from the reader's last copy of details.
    pub fn latency(r: &Reader, m: &Model) -> Extra {
        let mut ports: Vec<Latency> =
            r.ports.iter().take(m.ports.len()).map(|p| one(&p.retired.detail.latency)).collect();
        let mut peers: Vec<Latency> =
            r.peers.iter().take(m.peers.len()).map(|p| one(&p.retired.detail.latency)).collect();
        for q in &m.qps {
            let Some(d) = r.details.get(q.index as usize) else { continue };
            for sum in [ports.get_mut(q.port as usize), peers.get_mut(q.peer as usize)].into_iter().flatten() {
                add(sum, &d.latency);
            }
        }
        let json = |l: Vec<Latency>| l.iter().map(LatencyJson::from).collect();
        Extra { ports: json(ports), peers: json(peers), ..Extra::default() }
    }

    /// Last errors, from the reader's last copy of details.
    pub fn errors(r: &Reader, m: &Model) -> Extra {
        let failed = m.qps.iter().filter(|q| q.line.send.wr_failed > 0 || q.line.recv.wr_failed > 0);
        let errors =
            failed.filter_map(|q| Some((q.index, last_error(r.details.get(q.index as usize)?, q, m)?))).collect();
        Extra { errors, ..Extra::default() }
    }

    /// Events, from the reader's last copy of them.
    pub fn events(r: &Reader) -> Extra {
        let mut events = r.events();
        events.drain(..events.len().saturating_sub(EVENTS_KEPT));
        Extra { events, events_written: r.events_written(), ..Extra::default() }
    }

    /// The last error of a QP.
    pub fn error_of(&self, qp: u32) -> Option<&ErrorJson> {
        let at = self.errors.binary_search_by_key(&qp, |e| e.0).ok()?;
        Some(&self.errors[at].1)
    }
}

fn one(l: &LatencyCounters) -> Latency {
    let mut sum = Latency::default();
    add(&mut sum, l);
    sum
}

/// The numbers may be anything: sums stop where they could overflow.
fn add(sum: &mut Latency, l: &LatencyCounters) {
    let n = l.count.load(Relaxed);
    if n == 0 {
        return;
    }
    sum.count = sum.count.saturating_add(n);
    sum.sum_ns = sum.sum_ns.saturating_add(l.sum_ns.load(Relaxed));
    sum.max_ns = sum.max_ns.max(l.max_ns.load(Relaxed));
    for (b, n) in sum.buckets.iter_mut().zip(&l.buckets) {
        *b = b.saturating_add(n.load(Relaxed)).min(u64::MAX >> 8);
    }
}
