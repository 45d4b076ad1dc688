//! Segments as OpenMetrics.

use super::addresses::Address;
use super::labels::Labels;
use crate::cli::Per;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Instant;
use telereduce::shm::model::{Counters, Line};
use telereduce::shm::snapshot::{Details, LatencyJson, PeerJson, PortJson, QpJson, SegmentJson};
use telereduce::shm::stall::Stalls;

/// How the metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0, which Prometheus asks for.
    OpenMetrics,
    /// Prometheus's older text, for all others.
    Text,
}

impl Exposition {
    /// What a client gets that accepts this.
    pub fn accepted(accept: &str) -> Exposition {
        if accept.contains("application/openmetrics-text") { Exposition::OpenMetrics } else { Exposition::Text }
    }

    /// Content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Upper bounds of the latency histograms: powers of two, 64 ns to 137 s.
const POWERS: std::ops::RangeInclusive<u32> = 6..=37;

/// What a scrape found.
#[derive(Debug)]
pub struct Scrape {
    /// Processes.
    pub segments: Vec<SegmentJson>,
    /// Of this host's ports.
    pub addresses: Vec<Address>,
    /// What there is a series for.
    pub per: Per,
    /// Segments that could not be read.
    pub unreadable: u64,
    /// When it began.
    pub start: Instant,
}

impl Scrape {
    /// As text.
    ///
    /// # Errors
    /// None that a string could have.
    pub fn text(self, exposition: Exposition) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("telereduce");
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        match exposition {
            Exposition::OpenMetrics => text::encode(&mut out, &registry)?,
            Exposition::Text => prometheus_text::encode(&mut out, &registry)?,
        }
        Ok(out)
    }
}

/// Whose a series is.
#[derive(Clone, Debug, PartialEq, Eq, EncodeLabelSet)]
struct Owner {
    host: String,
    uid: u32,
    pid: u32,
    rank: Option<u64>,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct Info {
    #[prometheus(flatten)]
    owner: Owner,
    command: String,
    world_size: Option<u64>,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct What {
    #[prometheus(flatten)]
    owner: Owner,
    what: &'static str,
}

/// A path of multi-path.
#[derive(Clone, Debug, EncodeLabelSet)]
struct Path {
    #[prometheus(flatten)]
    owner: Owner,
    device: String,
    port: u32,
    local: String,
    peer: String,
}

/// A port, a peer or a QP.
struct Row {
    labels: Labels,
    line: Line,
    qps: Option<u32>,
    /// What a dead process has outstanding, nobody waits for.
    alive: bool,
}

impl Row {
    /// A direction has series once anything was posted in it.
    fn directions(&self) -> impl Iterator<Item = (&'static str, &Counters)> {
        let both = [("send", &self.line.send), ("recv", &self.line.recv)];
        both.into_iter().filter(|(_, c)| c.wr_posted > 0 || c.wr_outstanding > 0)
    }
}

#[derive(Default)]
struct PathSum {
    chunks: Counters,
    latency: Histogram,
}

/// A family's name, unit and help, and what of a queue's counters it is.
type Of = (&'static str, Option<Unit>, &'static str, fn(&Counters) -> u64);

fn totals() -> [Of; 6] {
    let bytes = || Some(Unit::Bytes);
    [
        ("wrs_posted", None, "Work requests that the provider accepted", |c| c.wr_posted),
        ("wrs_completed", None, "Work requests retired by a successful completion, their own or a later one's", |c| {
            c.wr_completed
        }),
        ("wrs_failed", None, "Work requests completed in error, flushes included", |c| c.wr_failed),
        ("wrs_dropped", None, "Work requests that vanished without a completion (RESET, destroy)", |c| c.wr_dropped),
        ("posted", bytes(), "Bytes of posted work requests; receive: of their buffers", |c| c.bytes_posted),
        ("completed", bytes(), "Bytes of completed work requests; receive: that arrived", |c| c.bytes_completed),
    ]
}

fn path_totals() -> [Of; 3] {
    [
        ("path_completed", Some(Unit::Bytes), "Multi-path: bytes of chunks that a path carried", |c| c.bytes_completed),
        ("path_chunks", None, "Multi-path: chunks that a path carried", |c| c.wr_completed),
        ("path_chunks_failed", None, "Multi-path: chunks that failed on a path", |c| c.wr_failed),
    ]
}

fn levels() -> [Of; 2] {
    [
        ("wrs_outstanding", None, "Work requests posted and not completed", |c| c.wr_outstanding),
        ("outstanding", Some(Unit::Bytes), "Bytes of outstanding work requests", |c| c.bytes_outstanding),
    ]
}

impl Collector for Scrape {
    fn encode(&self, mut e: DescriptorEncoder) -> fmt::Result {
        let rows: Vec<Row> = self.segments.iter().flat_map(|s| rows(s, self.per)).collect();
        for (name, unit, help, value) in totals() {
            let mut family = e.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
            for r in &rows {
                r.directions().try_for_each(|(d, c)| counter(&mut family, &r.labels.with("direction", d), value(c)))?;
            }
        }
        let alive = || rows.iter().filter(|r| r.alive);
        for (name, unit, help, value) in levels() {
            let mut family = e.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            for r in alive() {
                r.directions().try_for_each(|(d, c)| gauge(&mut family, &r.labels.with("direction", d), value(c)))?;
            }
        }
        let mut family = e.encode_descriptor("qps", "Queue pairs that exist", None, MetricType::Gauge)?;
        for r in alive() {
            r.qps.map_or(Ok(()), |n| gauge(&mut family, &r.labels, u64::from(n)))?;
        }
        self.stalls(&mut e)?;
        self.details(&mut e)?;
        self.paths(&mut e)?;
        self.processes(&mut e)
    }
}

impl Scrape {
    /// Errors, of peers too; latencies, which take some thirty series each, of peers only where there is a series per QP anyway.
    fn details(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Completions in error, by status";
        let mut family = e.encode_descriptor("completion_errors", help, None, MetricType::Counter)?;
        for (labels, sends, recvs) in self.segments.iter().flat_map(|s| errors(s, self.per)) {
            for (direction, errors) in [("send", sends), ("recv", recvs)] {
                let labels = labels.with("direction", direction);
                errors.iter().try_for_each(|(status, n)| counter(&mut family, &labels.with("status", status), *n))?;
            }
        }
        let help = "From the post of a sampled signaled send to the poll that returned its completion";
        let mut family = e.encode_descriptor("latency", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for s in &self.segments {
            let ports = s.ports.iter().map(|p| (Whose::Port(p), &p.details)).filter(|_| self.per != Per::Qp);
            let peers = s.peers.iter().map(|p| (Whose::Peer(p), &p.details)).filter(|_| self.per == Per::Qp);
            for (whose, d) in ports.chain(peers) {
                if d.latency_post_to_poll.samples > 0 {
                    Histogram::from(&d.latency_post_to_poll).encode(&mut family, &labels(s, whose))?;
                }
            }
        }
        Ok(())
    }

    /// Only of processes that watch for stalls.
    fn stalls(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let all: Vec<(Labels, Stalls, bool)> =
            self.segments.iter().flat_map(|s| stalls(s, self.per).map(|(p, x)| (p, x, s.alive))).collect();
        if all.is_empty() {
            return Ok(());
        }
        let help = "Times that nothing completed for TELEREDUCE_STALL_MS though sends waited";
        let mut family = e.encode_descriptor("stalls", help, None, MetricType::Counter)?;
        all.iter().try_for_each(|(labels, s, _)| counter(&mut family, labels, s.stalls))?;
        let help = "Queue pairs that stall";
        let mut family = e.encode_descriptor("qps_stalled", help, None, MetricType::Gauge)?;
        let alive = || all.iter().filter(|(_, _, alive)| *alive);
        alive().try_for_each(|(labels, s, _)| gauge(&mut family, labels, u64::from(s.qps_stalled)))?;
        let help = "Age of the oldest outstanding send for which a completion is to come; 0: there is none";
        let mut family = e.encode_descriptor("oldest_outstanding", help, Some(&Unit::Seconds), MetricType::Gauge)?;
        let now_ns = telereduce::clock::realtime_ns();
        alive().try_for_each(|(labels, s, _)| {
            let age = s.oldest_ns.map_or(0, |ns| now_ns.saturating_sub(ns));
            ConstGauge::new(seconds(age)).encode(family.encode_family(labels)?)
        })
    }

    fn paths(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let paths: Vec<(Path, PathSum)> = self.segments.iter().flat_map(paths).collect();
        if paths.is_empty() {
            return Ok(());
        }
        for (name, unit, help, value) in path_totals() {
            let mut family = e.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
            paths.iter().try_for_each(|(p, s)| counter(&mut family, p, value(&s.chunks)))?;
        }
        let help = "Multi-path: bytes of chunks that are under way on a path";
        let mut family = e.encode_descriptor("path_outstanding", help, Some(&Unit::Bytes), MetricType::Gauge)?;
        paths.iter().try_for_each(|(p, s)| gauge(&mut family, p, s.chunks.bytes_outstanding))?;
        let help = "Multi-path: from the post of a chunk to its completion";
        let mut family = e.encode_descriptor("path_latency", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        paths.iter().try_for_each(|(p, s)| s.latency.encode(&mut family, p))
    }

    fn processes(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let mut family = e.encode_descriptor("process_info", "A process with a segment", None, MetricType::Gauge)?;
        for s in &self.segments {
            let labels = Info { owner: owner(s), command: s.command.clone(), world_size: s.world_size };
            gauge(&mut family, &labels, 1)?;
        }
        let mut family = e.encode_descriptor("process_up", "Whether the process lives", None, MetricType::Gauge)?;
        self.segments.iter().try_for_each(|s| gauge(&mut family, &owner(s), u64::from(s.alive)))?;
        let help = "When the process last used verbs, since the epoch";
        let mut family = e.encode_descriptor("heartbeat_timestamp", help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for s in &self.segments {
            ConstGauge::new(seconds(s.heartbeat_ns)).encode(family.encode_family(&owner(s))?)?;
        }
        let help = "What could not be counted, or logged";
        let mut family = e.encode_descriptor("missed", help, None, MetricType::Counter)?;
        for s in &self.segments {
            let m = &s.missed;
            for (what, n) in [
                ("objects_untracked", m.objects_untracked),
                ("objects_opaque", m.objects_opaque),
                ("wrs_unseen", m.wrs_unseen),
                ("completions_unmatched", m.completions_unmatched),
                ("panics", m.panics),
                ("log_dropped", m.log_dropped),
            ] {
                counter(&mut family, &What { owner: owner(s), what }, n)?;
            }
        }
        let help = "An address of a port of this host";
        let mut family = e.encode_descriptor("address_info", help, None, MetricType::Gauge)?;
        for a in &self.addresses {
            let labels = [("device", a.device.clone()), ("port", a.port.to_string()), ("address", a.address.clone())];
            gauge(&mut family, &labels, 1)?;
        }
        let help = "Segments of this host that could not be read: other users', or damaged";
        let family = e.encode_descriptor("segments_unreadable", help, None, MetricType::Gauge)?;
        ConstGauge::new(self.unreadable).encode(family)?;
        let help = "How long this scrape took, but for its last lines";
        let family = e.encode_descriptor("scrape_duration", help, Some(&Unit::Seconds), MetricType::Gauge)?;
        ConstGauge::new(self.start.elapsed().as_secs_f64()).encode(family)
    }
}

fn counter(family: &mut MetricEncoder, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
    ConstCounter::new(value).encode(family.encode_family(labels)?)
}

fn gauge(family: &mut MetricEncoder, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
    ConstGauge::new(value).encode(family.encode_family(labels)?)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn owner(s: &SegmentJson) -> Owner {
    Owner { host: s.host.clone(), uid: s.uid, pid: s.pid, rank: s.rank }
}

/// What labels name.
#[derive(Clone, Copy)]
enum Whose<'a> {
    Port(&'a PortJson),
    Peer(&'a PeerJson),
    Qp(&'a QpJson),
}

fn labels(s: &SegmentJson, whose: Whose) -> Labels {
    let name_of;
    let (device, port, peer, peer_rank, qp_num) = match whose {
        Whose::Port(p) => (&*p.device, p.port, None, &None, None),
        Whose::Peer(p) => {
            name_of = name(p);
            (&*p.device, p.port, Some(&name_of), &p.peer_rank, None)
        }
        Whose::Qp(q) => {
            (q.device.as_deref().unwrap_or(""), q.port.unwrap_or(0), q.peer.as_ref(), &q.peer_rank, Some(&q.qp_num))
        }
    };
    let all: [(&str, Option<&dyn Display>); 8] = [
        ("host", Some(&s.host)),
        ("uid", Some(&s.uid)),
        ("pid", Some(&s.pid)),
        ("rank", s.rank.as_ref().map(|r| r as _)),
        ("device", Some(&device)),
        ("peer", peer.map(|p| p as _)),
        ("peer_rank", peer_rank.as_ref().map(|r| r as _)),
        ("qp_num", qp_num.map(|n| n as _)),
    ];
    Labels::new(all, ("port", port))
}

fn rows(s: &SegmentJson, per: Per) -> Vec<Row> {
    let row = |whose, line, qps| Row { labels: labels(s, whose), line, qps, alive: s.alive };
    match per {
        Per::Port => s.ports.iter().map(|p| row(Whose::Port(p), p.line, Some(p.qps_live))).collect(),
        Per::Peer => {
            let peers = s.peers.iter().map(|p| row(Whose::Peer(p), p.line, Some(p.qps_live)));
            // What has no peer: datagrams that arrive, or whose address handle is not known, receives of SRQs, QPs that were
            // never connected.
            let rest = s.ports.iter().map(|p| {
                let (mut line, mut qps) = (p.line, p.qps_live);
                for x in peers_of(s, p) {
                    line.send = less(line.send, &x.line.send);
                    line.recv = less(line.recv, &x.line.recv);
                    qps = qps.saturating_sub(x.qps_live);
                }
                // Receives that wait, in SRQs or before their QP is connected, will be a peer's: no counter may hold them.
                line.recv.wr_posted = line.recv.wr_posted.saturating_sub(line.recv.wr_outstanding);
                line.recv.bytes_posted = line.recv.bytes_posted.saturating_sub(line.recv.bytes_outstanding);
                row(Whose::Port(p), line, Some(qps))
            });
            peers.chain(rest).collect()
        }
        Per::Qp => s.qps.iter().filter(|q| q.live).map(|q| row(Whose::Qp(q), q.line, None)).collect(),
    }
}

fn peers_of<'a>(s: &'a SegmentJson, p: &'a PortJson) -> impl Iterator<Item = &'a PeerJson> {
    s.peers.iter().filter(|x| (&x.device, x.port) == (&p.device, p.port))
}

type ByStatus = BTreeMap<String, u64>;

/// Completions in error, of sends and of receives: per peer, and of what has none.
fn errors(s: &SegmentJson, per: Per) -> Vec<(Labels, ByStatus, ByStatus)> {
    let of = |whose, d: &Details| (labels(s, whose), d.errors.clone(), d.recv_errors.clone());
    let mut all: Vec<_> = match per {
        Per::Port => Vec::new(),
        Per::Peer | Per::Qp => s.peers.iter().map(|p| of(Whose::Peer(p), &p.details)).collect(),
    };
    for p in &s.ports {
        let (labels, mut sends, mut recvs) = of(Whose::Port(p), &p.details);
        if per != Per::Port {
            for x in peers_of(s, p) {
                for (rest, part) in [(&mut sends, &x.details.errors), (&mut recvs, &x.details.recv_errors)] {
                    for (status, n) in part {
                        let left = rest.get(status).copied().unwrap_or(0).saturating_sub(*n);
                        if left == 0 { _ = rest.remove(status) } else { _ = rest.insert(status.clone(), left) }
                    }
                }
            }
        }
        all.push((labels, sends, recvs));
    }
    all
}

fn name(p: &PeerJson) -> String {
    p.ip.clone().or_else(|| p.gid.clone()).unwrap_or_else(|| format!("lid {}", p.lid))
}

/// What is in `all` and not in `part`.
fn less(all: Counters, part: &Counters) -> Counters {
    macro_rules! difference { ($($f:ident)*) => { Counters { $($f: all.$f.saturating_sub(part.$f),)* ..all } } }
    difference!(wr_posted wr_completed wr_failed wr_dropped wr_outstanding bytes_posted bytes_completed bytes_failed
                bytes_dropped bytes_outstanding cqes)
}

/// How long sends wait, per port, peer or QP.
fn stalls(s: &SegmentJson, per: Per) -> std::vec::IntoIter<(Labels, Stalls)> {
    let mut all = Vec::new();
    let mut add = |whose, stalls: Option<Stalls>| all.extend(stalls.map(|x| (labels(s, whose), x)));
    match per {
        Per::Port => s.ports.iter().for_each(|p| add(Whose::Port(p), p.stall)),
        Per::Peer => {
            s.peers.iter().for_each(|p| add(Whose::Peer(p), p.stall));
            for p in &s.ports {
                let Some(whole) = p.stall else { continue };
                // Of what has no peer: its QPs that there are, and the stalls that are no peer's.
                let alone =
                    |q: &&QpJson| q.peer.is_none() && (q.device.as_ref(), q.port) == (Some(&p.device), Some(p.port));
                let mut rest = Stalls::default();
                s.qps.iter().filter(alone).filter_map(|q| q.stall).for_each(|x| rest.add(&x));
                let of_peers: u64 = peers_of(s, p).filter_map(|x| x.stall).map(|x| x.stalls).sum();
                rest.stalls = whole.stalls.saturating_sub(of_peers);
                add(Whose::Port(p), Some(rest));
            }
        }
        Per::Qp => s.qps.iter().filter(|q| q.live).for_each(|q| add(Whose::Qp(q), q.stall)),
    }
    all.into_iter()
}

/// The lanes of a process, by path.
fn paths(s: &SegmentJson) -> Vec<(Path, PathSum)> {
    let mut sums: BTreeMap<(&str, u32, &str, &str), PathSum> = BTreeMap::new();
    for l in &s.lanes {
        let key = (l.device.as_deref().unwrap_or(""), l.port.unwrap_or(0), l.local.as_str(), l.peer.as_str());
        let sum = sums.entry(key).or_default();
        sum.chunks.add(&l.chunks);
        sum.latency.add(&l.latency_post_to_poll);
    }
    sums.into_iter()
        .map(|((device, port, local, peer), sum)| {
            let (device, local, peer) = (device.into(), local.into(), peer.into());
            (Path { owner: owner(s), device, port, local, peer }, sum)
        })
        .collect()
}

/// A histogram with a bucket per power of two.
#[derive(Default)]
struct Histogram {
    samples: u64,
    sum_ns: u64,
    /// By power.
    buckets: BTreeMap<u32, u64>,
}

impl Histogram {
    fn add(&mut self, l: &LatencyJson) {
        self.samples += l.samples;
        self.sum_ns = self.sum_ns.wrapping_add(l.sum_ns);
        for (lower, n) in &l.buckets {
            let power = (64 - lower.leading_zeros()).clamp(*POWERS.start(), *POWERS.end() + 1);
            *self.buckets.entry(power).or_default() += n;
        }
    }

    fn encode(&self, family: &mut MetricEncoder, labels: &impl EncodeLabelSet) -> fmt::Result {
        let bucket = |power: u32| {
            let bound = if power > *POWERS.end() { f64::INFINITY } else { seconds(1 << power) };
            (bound, self.buckets.get(&power).copied().unwrap_or(0))
        };
        let buckets: Vec<(f64, u64)> = (*POWERS.start()..=*POWERS.end() + 1).map(bucket).collect();
        let mut encoder = family.encode_family(labels)?;
        encoder.encode_histogram::<NoLabelSet>(seconds(self.sum_ns), self.samples, &buckets, None)
    }
}

impl From<&LatencyJson> for Histogram {
    fn from(l: &LatencyJson) -> Histogram {
        let mut h = Histogram::default();
        h.add(l);
        h
    }
}
