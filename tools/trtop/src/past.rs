//! What was sent by when, over the last ten seconds: bandwidths that a second's burst or pause does not change much.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use telereduce::shm::model::Model;
use telereduce::shm::snapshot::Object;

/// The bandwidth is that of so long.
const SPAN: Duration = Duration::from_secs(10);
/// Moments are at least so far apart.
const APART: Duration = Duration::from_millis(900);

/// Bytes of completed sends at one moment.
#[derive(Debug)]
struct Moment {
    at: Duration,
    /// By port index.
    ports: Vec<u64>,
    /// By peer index.
    peers: Vec<u64>,
    /// Index, when it was created, bytes; by index.
    qps: Vec<(u32, u64, u64)>,
    /// The same of lanes.
    lanes: Vec<(u32, u64, u64)>,
}

impl Moment {
    fn of(at: Duration, m: &Model) -> Moment {
        Moment {
            at,
            ports: m.ports.iter().map(|p| p.line.send.bytes_completed).collect(),
            peers: m.peers.iter().map(|p| p.line.send.bytes_completed).collect(),
            qps: m.qps.iter().map(|q| (q.index, q.created_ns, q.line.send.bytes_completed)).collect(),
            lanes: m.lanes.iter().map(|l| (l.index, l.created_ns, l.line.send.bytes_completed)).collect(),
        }
    }

    /// What it had sent then; nothing if it was not there.
    fn sent(&self, object: Object, created_ns: u64) -> u64 {
        let find = |all: &[(u32, u64, u64)], i: u32| {
            let at = all.binary_search_by_key(&i, |x| x.0).ok()?;
            (all[at].1 == created_ns).then_some(all[at].2)
        };
        let sent = match object {
            Object::Port(i) => self.ports.get(i as usize).copied(),
            Object::Peer(i) => self.peers.get(i as usize).copied(),
            Object::Qp(i) => find(&self.qps, i),
            Object::Lane(i) => find(&self.lanes, i),
        };
        sent.unwrap_or(0)
    }
}

/// The last ten seconds of one process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Past {
    moments: VecDeque<Arc<Moment>>,
    now: Duration,
}

impl Past {
    /// Takes the counters of time `now`. Where time goes back, or leaps, as in a replay, the past begins anew.
    pub fn note(&mut self, now: Duration, m: &Model) {
        if now < self.now || now - self.now > SPAN {
            self.moments.clear();
        }
        self.now = now;
        // The oldest one that is ten seconds old stays.
        while self.moments.get(1).is_some_and(|second| now - second.at >= SPAN) {
            self.moments.pop_front();
        }
        if self.moments.back().is_none_or(|last| now - last.at >= APART) {
            self.moments.push_back(Arc::new(Moment::of(now, m)));
        }
    }

    /// Bytes per second that an object sent over the last ten seconds, or since the process is looked at; `None` at first.
    /// `sent`: its bytes of completed sends now.
    pub fn rate(&self, object: Object, created_ns: u64, sent: u64) -> Option<f64> {
        let first = self.moments.front()?;
        let seconds = (self.now - first.at).as_secs_f64();
        (seconds > 0.0).then(|| sent.saturating_sub(first.sent(object, created_ns)) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use telereduce::shm::model::{Line, PortView};

    fn port(sent: u64) -> Model {
        let mut line = Line::default();
        line.send.bytes_completed = sent;
        let mut m = Model::default();
        let device = "mlx5_0".into();
        m.ports.push(PortView { device, port_num: 1, line, qps_live: 1, multipath: None, stalls: None });
        m
    }

    proptest! {
        /// Refreshes at any intervals: the rate is that since the newest refresh of those kept that is ten seconds old or more,
        /// else since the first.
        #[test]
        fn the_rate_is_that_of_ten_seconds(steps in prop::collection::vec((1u64..4000, 0u64..1 << 40), 2..60)) {
            let mut past = Past::default();
            let (mut at, mut sent) = (0, 0);
            let mut all = Vec::new();
            for (ms, bytes) in steps {
                at += ms;
                sent += bytes;
                past.note(Duration::from_millis(at), &port(sent));
                all.push((at, sent));
                let Some(rate) = past.rate(Object::Port(0), 0, sent) else {
                    prop_assert_eq!(all.len(), 1);
                    continue;
                };
                let since = |t: u64, s: u64| (sent - s) as f64 / ((at - t) as f64 / 1e3);
                let is_so_old = |t| if at - all[0].0 <= 10_000 { t == all[0].0 } else { (10_000..15_000).contains(&(at - t)) };
                let found = all.iter().any(|&(t, s)| is_so_old(t) && (since(t, s) - rate).abs() <= rate * 1e-9);
                prop_assert!(found, "{rate} of {all:?}");
            }
        }
    }

    #[test]
    fn what_came_later_began_with_nothing_and_time_may_leap() {
        let s = Duration::from_secs;
        let mut past = Past::default();
        past.note(s(100), &Model::default());
        past.note(s(102), &port(3000));
        assert_eq!(past.rate(Object::Port(0), 0, 3000), Some(1500.0));
        assert_eq!(past.rate(Object::Qp(7), 1, 10), Some(5.0));
        for leap in [s(50), s(1000)] {
            past.note(leap, &port(9000));
            assert_eq!(past.rate(Object::Port(0), 0, 9000), None);
        }
    }
}
