//! What a report draws: numbers over time of each port, peer and path, from the frames of a recording.

use std::collections::BTreeMap;
use telereduce::shm::model::Counters;
use telereduce::shm::snapshot::{LatencyJson, SegmentJson, Snapshot};

/// What a series is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A port.
    Port,
    /// A peer of a port.
    Peer,
    /// A path of multi-path: its lanes together.
    Path,
}

/// A series' name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// What it is of.
    pub kind: Kind,
    /// Process id.
    pub pid: u32,
    /// When the process made its segment: numbers come again.
    pub created_ns: u64,
    /// Device, port, peer, as far as there are such.
    pub text: String,
}

/// One thing over time.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Sent, Gb/s; by the time of the interval's end, s.
    pub send: Vec<(f64, f64)>,
    /// Received, likewise.
    pub recv: Vec<(f64, f64)>,
    /// WRs outstanding.
    pub outstanding: Vec<(f64, f64)>,
    /// Latency since the look before, us: median, and what one in a hundred is above.
    pub latency: Vec<(f64, f64, f64)>,
    /// Failed WRs.
    pub failed: u64,
    /// Bytes sent and received while it was watched.
    pub bytes: (u64, u64),
    before: Option<(f64, Counters, Counters)>,
    buckets: BTreeMap<u64, u64>,
}

/// All of them.
#[derive(Default)]
pub struct All {
    /// By name.
    pub series: BTreeMap<Name, Series>,
    /// Processes: number and creation, with what they are called and whether they lived at the end.
    pub processes: BTreeMap<(u32, u64), (String, bool)>,
    /// Failed WRs by peer and status.
    pub errors: BTreeMap<(String, String), u64>,
}

impl All {
    /// Adds a frame, which is `at` s after the first.
    pub fn add(&mut self, s: &Snapshot, at: f64) {
        for g in &s.segments {
            self.segment(g, at);
        }
    }

    fn segment(&mut self, g: &SegmentJson, at: f64) {
        let rank = g.rank.map_or(String::new(), |r| format!(" rank {r}"));
        let called = format!("pid {}{rank} on {}: {}", g.pid, g.host, g.command);
        self.processes.insert((g.pid, g.created_ns), (called, g.alive));
        let name = |kind, text: String| Name { kind, pid: g.pid, created_ns: g.created_ns, text };
        for p in &g.ports {
            let s = self.series.entry(name(Kind::Port, format!("{}:{}", p.device, p.port))).or_default();
            s.counters(at, &p.line.send, &p.line.recv);
            s.latency(at, &p.details.latency_post_to_poll);
        }
        for p in &g.peers {
            let peer = p.ip.clone().or_else(|| p.gid.clone()).unwrap_or_else(|| format!("lid {}", p.lid));
            let place = format!("{peer} at {}:{}", p.device, p.port);
            let s = self.series.entry(name(Kind::Peer, place)).or_default();
            s.counters(at, &p.line.send, &p.line.recv);
            for (status, n) in p.details.errors.iter().chain(&p.details.recv_errors) {
                let most = self.errors.entry((format!("pid {}: {peer}", g.pid), status.clone())).or_default();
                *most = (*most).max(*n);
            }
        }
        // A path's lanes come and go; what they carried together does not go back, as those that are gone stay listed.
        let mut paths: BTreeMap<String, Counters> = BTreeMap::new();
        for l in &g.lanes {
            paths.entry(format!("{} {} -> {}", l.path, l.local, l.peer)).or_default().add(&l.chunks);
        }
        for (path, sum) in paths {
            self.series.entry(name(Kind::Path, format!("path {path}"))).or_default().counters(
                at,
                &sum,
                &Counters::default(),
            );
        }
    }
}

impl Series {
    fn counters(&mut self, at: f64, send: &Counters, recv: &Counters) {
        self.outstanding.push((at, send.wr_outstanding as f64));
        self.failed = send.wr_failed.saturating_add(recv.wr_failed);
        if let Some((then, s, r)) = self.before.filter(|(then, ..)| *then < at) {
            let grown = |now: u64, before: u64| now.saturating_sub(before);
            let (sent, received) =
                (grown(send.bytes_completed, s.bytes_completed), grown(recv.bytes_completed, r.bytes_completed));
            let gbps = |bytes: u64| bytes as f64 * 8e-9 / (at - then);
            self.send.push((at, gbps(sent)));
            self.recv.push((at, gbps(received)));
            self.bytes.0 = self.bytes.0.saturating_add(sent);
            self.bytes.1 = self.bytes.1.saturating_add(received);
        }
        self.before = Some((at, *send, *recv));
    }

    /// Percentiles of what was timed since the look before, each the lower bound of its bucket.
    fn latency(&mut self, at: f64, l: &LatencyJson) {
        let now: BTreeMap<u64, u64> = l.buckets.iter().copied().collect();
        let new = |(ns, n): (&u64, &u64)| (*ns, n.saturating_sub(self.buckets.get(ns).copied().unwrap_or(0)));
        let since: Vec<(u64, u64)> = now.iter().map(new).filter(|(_, n)| *n > 0).collect();
        let sum = since.iter().fold(0u64, |s, (_, n)| s.saturating_add(*n));
        let quantile = |q: f64| {
            let rank = (sum as f64 * q).ceil().max(1.0) as u64;
            let mut seen = 0u64;
            let bucket = since.iter().find(|(_, n)| {
                seen = seen.saturating_add(*n);
                seen >= rank
            });
            bucket.map_or(0.0, |(ns, _)| *ns as f64 / 1e3)
        };
        if sum > 0 {
            self.latency.push((at, quantile(0.5), quantile(0.99)));
        }
        self.buckets = now;
    }
}
