//! What of a port's sends is no peer's, never less than an earlier scrape said.
//!
//! It is the difference of two counts, the QPs' and the peers'. Datagrams count in both, and the two are copied one after the
//! other: while they are sent, the difference goes up and down by what was sent between the copies. A counter that goes down
//! has begun anew, for Prometheus.

use std::collections::HashMap;
use telereduce::shm::model::Counters;
use telereduce::shm::snapshot::SegmentJson;

/// User, pid, start, device and port.
type Key = (u32, u32, u64, String, u32);

/// What earlier scrapes said.
#[derive(Debug, Default)]
pub struct Rests(HashMap<Key, Counters>);

impl Rests {
    /// Raises what the ports have, where the rest would have gone down.
    pub fn hold(&mut self, segments: &mut [SegmentJson]) {
        let mut now = HashMap::new();
        for s in segments {
            for p in &mut s.ports {
                let key = (s.uid, s.pid, s.start_time_ticks, p.device.clone(), p.port);
                let before = self.0.get(&key).copied().unwrap_or_default();
                let peers = s.peers.iter().filter(|x| (&x.device, x.port) == (&p.device, p.port));
                let mut of_peers = Counters::default();
                peers.for_each(|x| of_peers.add(&x.line.send));
                let mut rest = Counters::default();
                macro_rules! hold { ($($f:ident)*) => { $(
                    let (all, part) = (&mut p.line.send.$f, of_peers.$f);
                    rest.$f = all.saturating_sub(part).max(before.$f);
                    *all = (*all).max(part.saturating_add(rest.$f));
                )* } }
                hold!(wr_posted wr_completed wr_failed wr_dropped bytes_posted bytes_completed);
                now.insert(key, rest);
            }
        }
        self.0 = now;
    }
}
