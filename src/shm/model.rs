//! A segment's copy, added up: plain numbers per QP, port and peer.
//!
//! A port's or peer's counters are those of its QPs plus what retired QPs left there, and at a peer what datagrams added. A port's receives also hold those
//! posted to its shared receive queues; a QP that takes from an SRQ counts a receive as posted when it is completed.

use super::label::{self, LabelView};
use super::layout::{DoneCounters, LaneRecord, Life, NONE, PostCounters, QpRecord};
use super::multipath::{self, MultipathCounts, MultipathView};
use super::reader::Reader;
use super::stall::Stalls;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv6Addr};

/// Work requests and bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// WRs that the provider accepted.
    pub wr_posted: u64,
    /// WRs retired by a successful completion, their own or a later one's.
    pub wr_completed: u64,
    /// WRs completed in error, flushes included.
    pub wr_failed: u64,
    /// WRs that vanished without completion (RESET, destroy).
    pub wr_dropped: u64,
    /// posted - completed - failed - dropped.
    pub wr_outstanding: u64,
    /// Send: payload bytes posted. Receive: buffer bytes posted.
    pub bytes_posted: u64,
    /// Send: bytes of `wr_completed`. Receive: bytes that arrived.
    pub bytes_completed: u64,
    /// Bytes of `wr_failed`.
    pub bytes_failed: u64,
    /// Bytes of `wr_dropped`.
    pub bytes_dropped: u64,
    /// Bytes of outstanding WRs (receive: buffer bytes).
    pub bytes_outstanding: u64,
    /// Most WRs ever outstanding at a completion; of a port or peer: the most of any one QP, or of a peer's datagrams.
    pub wr_high_water: u64,
    /// Most bytes ever outstanding at a completion; likewise.
    pub bytes_high_water: u64,
    /// Completions polled.
    pub cqes: u64,
}

impl Counters {
    /// Sends of a record. The copy is not one moment, so differences saturate.
    pub fn sends(post: &PostCounters, done: &DoneCounters) -> Counters {
        Self::read(post, done)
    }

    /// Receives of a record; what arrived may be less than what the buffers hold.
    pub fn receives(post: &PostCounters, done: &DoneCounters) -> Counters {
        Counters { bytes_completed: done.bytes_arrived.load(Relaxed), ..Self::read(post, done) }
    }

    fn read(post: &PostCounters, done: &DoneCounters) -> Counters {
        let get = |a: &core::sync::atomic::AtomicU64| a.load(Relaxed);
        let (wr_retired, bytes_retired) = (get(&done.wr_retired), get(&done.bytes_retired));
        let mut c = Counters {
            wr_posted: get(&post.wr_posted),
            bytes_posted: get(&post.bytes_posted),
            wr_failed: get(&done.wr_failed),
            bytes_failed: get(&done.bytes_failed),
            wr_dropped: get(&done.wr_dropped),
            bytes_dropped: get(&done.bytes_dropped),
            wr_high_water: get(&done.wr_high_water),
            bytes_high_water: get(&done.bytes_high_water),
            cqes: get(&done.cqes),
            ..Counters::default()
        };
        c.wr_completed = wr_retired.saturating_sub(c.wr_failed).saturating_sub(c.wr_dropped);
        c.bytes_completed = bytes_retired.saturating_sub(c.bytes_failed).saturating_sub(c.bytes_dropped);
        c.wr_outstanding = c.wr_posted.saturating_sub(wr_retired);
        c.bytes_outstanding = c.bytes_posted.saturating_sub(bytes_retired);
        c.wr_high_water = c.wr_high_water.max(c.wr_outstanding);
        c.bytes_high_water = c.bytes_high_water.max(c.bytes_outstanding);
        c
    }

    /// Adds `o`; high-water marks take the larger.
    pub fn add(&mut self, o: &Counters) {
        macro_rules! sum { ($($f:ident)*) => { $(self.$f = self.$f.wrapping_add(o.$f);)* } }
        sum!(wr_posted wr_completed wr_failed wr_dropped wr_outstanding bytes_posted bytes_completed bytes_failed
             bytes_dropped bytes_outstanding cqes);
        self.wr_high_water = self.wr_high_water.max(o.wr_high_water);
        self.bytes_high_water = self.bytes_high_water.max(o.bytes_high_water);
    }
}

/// Sends and receives of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Sends, READs, WRITEs, atomics: everything posted by ibv_post_send.
    #[serde(flatten)]
    pub send: Counters,
    /// Receives.
    pub recv: Counters,
}

impl Line {
    /// Adds both directions.
    pub fn add(&mut self, o: &Line) {
        self.send.add(&o.send);
        self.recv.add(&o.recv);
    }
}

/// A port.
#[derive(Clone, Debug)]
pub struct PortView {
    /// Device name.
    pub device: String,
    /// Port number; 0 = QPs of the device that never reached INIT.
    pub port_num: u32,
    /// Sums.
    pub line: Line,
    /// QPs alive on it.
    pub qps_live: u32,
    /// What multi-path did for its QPs, where that is on.
    pub multipath: Option<MultipathCounts>,
    /// How long its sends wait, where that is watched.
    pub stalls: Option<Stalls>,
}

/// The far end of connected QPs and of datagrams.
#[derive(Clone, Debug)]
pub struct PeerView {
    /// Index of the port.
    pub port: u32,
    /// Remote GID, if the address has one.
    pub gid: Option<[u8; 16]>,
    /// Remote LID, 0 if none.
    pub lid: u32,
    /// Sums.
    pub line: Line,
    /// QPs alive that are connected with this peer.
    pub qps_live: u32,
    /// How long sends to it wait, where that is watched.
    pub stalls: Option<Stalls>,
}

impl PeerView {
    /// The peer as people write it: an IP address where the GID stands for one, else the GID, else `lid N`.
    pub fn name(&self) -> String {
        match self.gid {
            Some(g) => gid_text(g),
            None => format!("lid {}", self.lid),
        }
    }
}

/// A GID as text: dotted IPv4 for `::ffff:a.b.c.d`, else IPv6.
pub fn gid_text(gid: [u8; 16]) -> String {
    let v6 = Ipv6Addr::from(gid);
    match v6.to_ipv4_mapped() {
        Some(v4) => v4.to_string(),
        None => v6.to_string(),
    }
}

/// The IP address that a RoCE v2 GID stands for; `None` for link-local and other GIDs.
pub fn gid_ip(gid: [u8; 16]) -> Option<IpAddr> {
    let v6 = Ipv6Addr::from(gid);
    match v6.to_ipv4_mapped() {
        Some(v4) => Some(IpAddr::V4(v4)),
        None if v6.segments()[0] & 0xffc0 == 0xfe80 || v6.is_unspecified() => None,
        None => Some(IpAddr::V6(v6)),
    }
}

/// A QP.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpView {
    /// Index of its record.
    pub index: u32,
    /// Number.
    pub qp_num: u32,
    /// The peer's number, 0 before RTR.
    pub dest_qp_num: u32,
    /// Index of the port, or [`NONE`].
    pub port: u32,
    /// Index of the peer, or [`NONE`].
    pub peer: u32,
    /// `enum ibv_qp_type`.
    pub qp_type: u32,
    /// `enum ibv_qp_state`.
    pub state: u32,
    /// Index of the SRQ, or [`NONE`].
    pub srq: u32,
    /// Granted send queue depth.
    pub max_send_wr: u32,
    /// Granted receive queue depth.
    pub max_recv_wr: u32,
    /// Bits of [`super::layout::flags`].
    pub flags: u32,
    /// False once it was destroyed.
    pub live: bool,
    /// CLOCK_REALTIME at creation, ns.
    pub created_ns: u64,
    /// Counters.
    pub line: Line,
    /// How long its sends wait, where that is watched.
    pub stalls: Option<Stalls>,
}

/// A completion queue.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CqView {
    /// Index of its record.
    pub index: u32,
    /// False once it was destroyed.
    pub live: bool,
    /// Entries as granted.
    pub cqe: u32,
    /// Calls of ibv_poll_cq that returned nothing.
    pub polls_empty: u64,
    /// Completions returned.
    pub cqes: u64,
    /// Some completions may not be seen.
    pub opaque: bool,
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SrqView {
    /// Index of its record.
    pub index: u32,
    /// False once it was destroyed.
    pub live: bool,
    /// Granted depth.
    pub max_wr: u32,
    /// Receives.
    pub recv: Counters,
}

/// A lane of multi-path.
#[derive(Clone, Copy, Debug)]
pub struct LaneView {
    /// Index of its record.
    pub index: u32,
    /// False once it was destroyed.
    pub live: bool,
    /// Which path of its port it takes, from 0.
    pub path: u32,
    /// Index of the port, or [`NONE`].
    pub port: u32,
    /// Number.
    pub qp_num: u32,
    /// The peer's number.
    pub dest_qp_num: u32,
    /// The application's QPs that it serves.
    pub qps: u32,
    /// The path's own GID.
    pub local_gid: [u8; 16],
    /// The peer's GID.
    pub remote_gid: [u8; 16],
    /// CLOCK_REALTIME at creation, ns.
    pub created_ns: u64,
    /// Chunks, as sends.
    pub line: Line,
}

/// Everything in a segment but per-opcode, per-status and latency details.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// By port index.
    pub ports: Vec<PortView>,
    /// By peer index.
    pub peers: Vec<PeerView>,
    /// Live and retired QPs.
    pub qps: Vec<QpView>,
    /// Live and retired CQs.
    pub cqs: Vec<CqView>,
    /// Live and retired SRQs.
    pub srqs: Vec<SrqView>,
    /// Live and retired lanes, whose chunks are in no sum.
    pub lanes: Vec<LaneView>,
    /// What multi-path does to the QPs, by their index; empty where it is off.
    pub multipath: Vec<MultipathView>,
    /// Whom the QPs work for, in the order of `qps`.
    pub labels: Vec<LabelView>,
    /// Whether multi-path is on.
    pub multipath_on: bool,
}

/// When the process last made a control call or polled a completion that was timed, CLOCK_REALTIME ns.
pub fn heartbeat_ns(r: &Reader) -> u64 {
    let control = r.header().heartbeat_ns.load(Relaxed);
    r.cqs.iter().fold(control, |latest, c| latest.max(c.last_ns.load(Relaxed)))
}

impl Model {
    /// Adds up the reader's last copy.
    pub fn new(r: &Reader) -> Model {
        let mut m = Model::default();
        m.refill(r);
        m
    }

    /// As [`Model::new`], into the memory of a model that is not needed any more.
    pub fn refill(&mut self, r: &Reader) {
        let m = self;
        m.ports.clear();
        m.peers.clear();
        m.qps.clear();
        m.cqs.clear();
        m.srqs.clear();
        m.lanes.clear();
        m.multipath.clear();
        m.labels.clear();
        m.multipath_on = !r.multipath.is_empty();
        let watched = !r.stalls.is_empty();
        m.qps.reserve(r.qps.len());
        for p in r.ports.iter().take_while(|p| p.used.load(Acquire) == 1) {
            let line = Line {
                send: Counters::sends(&p.retired.send_post, &p.retired.send_done),
                recv: Counters::receives(&p.retired.recv_post, &p.retired.recv_done),
            };
            m.ports.push(PortView {
                device: p.device.get(),
                port_num: p.port_num.load(Relaxed),
                line,
                qps_live: 0,
                multipath: m.multipath_on.then(|| MultipathCounts::of(&p.retired_multipath)),
                stalls: watched.then(|| Stalls::of(&p.retired_stalls)),
            });
        }
        for p in r.peers.iter().take_while(|p| p.used.load(Acquire) == 1) {
            let gid = gid_of(&p.gid);
            let line = Line {
                send: Counters::sends(&p.retired.send_post, &p.retired.send_done),
                recv: Counters::receives(&p.retired.recv_post, &p.retired.recv_done),
            };
            m.peers.push(PeerView {
                port: p.port.load(Relaxed),
                gid: (p.is_global.load(Relaxed) == 1).then_some(gid),
                lid: p.lid.load(Relaxed),
                line,
                qps_live: 0,
                stalls: watched.then(|| Stalls::of(&p.retired_stalls)),
            });
        }
        for (i, q) in r.qps.iter().enumerate() {
            let Some(mut view) = qp_view(i, q) else { continue };
            view.stalls = r.stalls.get(i).map(Stalls::of_qp);
            let multipath = r.multipath.get(i).map(|record| multipath::view(i, record));
            m.multipath.extend(multipath);
            if let Some(p) = m.ports.get_mut(view.port as usize) {
                p.line.add(&view.line);
                p.qps_live += u32::from(view.live);
                if let (Some(sum), Some(of_qp)) = (&mut p.multipath, &multipath) {
                    sum.add(&of_qp.counts);
                }
                add_stalls(&mut p.stalls, &view.stalls);
            }
            if let Some(p) = m.peers.get_mut(view.peer as usize) {
                p.line.add(&view.line);
                p.qps_live += u32::from(view.live);
                add_stalls(&mut p.stalls, &view.stalls);
            }
            m.qps.push(view);
            m.labels.push(r.labels.get(i).map(label::view).unwrap_or_default());
        }
        m.add_cqs_and_srqs(r);
        m.lanes.extend(r.lanes.iter().enumerate().filter_map(|(i, l)| lane_view(i, l)));
    }

    /// What multi-path does to the QP of this index.
    pub fn multipath_of(&self, qp: u32) -> Option<&MultipathView> {
        let at = self.multipath.binary_search_by_key(&qp, |m| m.index).ok()?;
        self.multipath.get(at)
    }

    fn add_cqs_and_srqs(&mut self, r: &Reader) {
        for (i, c) in r.cqs.iter().enumerate() {
            let life = c.life.load(Relaxed);
            if life == Life::Free as u32 {
                continue;
            }
            self.cqs.push(CqView {
                index: i as u32,
                live: life == Life::Live as u32,
                cqe: c.cqe.load(Relaxed),
                polls_empty: c.polls_empty.load(Relaxed),
                cqes: c.cqes.load(Relaxed),
                opaque: c.flags.load(Relaxed) & super::layout::cq_flags::OPAQUE != 0,
            });
        }
        for (i, s) in r.srqs.iter().enumerate() {
            let life = s.life.load(Relaxed);
            if life == Life::Free as u32 {
                continue;
            }
            let recv = Counters::receives(&s.post, &s.done);
            // QPs count an SRQ's receive when it completes; only what still waits in the SRQ, or left it without a
            // completion, is the port's besides.
            if let Some(p) = self.ports.get_mut(s.port.load(Relaxed) as usize) {
                let by_qps = recv.wr_completed.saturating_add(recv.wr_failed);
                let waiting = Counters {
                    wr_posted: recv.wr_posted.saturating_sub(by_qps),
                    wr_outstanding: recv.wr_outstanding,
                    wr_dropped: recv.wr_dropped,
                    bytes_posted: recv.bytes_outstanding.saturating_add(recv.bytes_dropped),
                    bytes_outstanding: recv.bytes_outstanding,
                    bytes_dropped: recv.bytes_dropped,
                    ..Counters::default()
                };
                p.line.recv.add(&waiting);
            }
            self.srqs.push(SrqView {
                index: i as u32,
                live: life == Life::Live as u32,
                max_wr: s.max_wr.load(Relaxed),
                recv,
            });
        }
    }
}

fn qp_view(index: usize, q: &QpRecord) -> Option<QpView> {
    let life = q.life.load(Relaxed);
    if life == Life::Free as u32 || q.seq.load(Relaxed) % 2 == 1 {
        return None;
    }
    let get = |a: &core::sync::atomic::AtomicU32| a.load(Relaxed);
    Some(QpView {
        index: index as u32,
        qp_num: get(&q.qp_num),
        dest_qp_num: get(&q.dest_qp_num),
        port: get(&q.port),
        peer: get(&q.peer),
        qp_type: get(&q.qp_type),
        state: get(&q.qp_state),
        srq: get(&q.srq),
        max_send_wr: get(&q.max_send_wr),
        max_recv_wr: get(&q.max_recv_wr),
        flags: get(&q.flags),
        live: life == Life::Live as u32,
        created_ns: q.created_ns.load(Relaxed),
        line: Line {
            send: Counters::sends(&q.send_post, &q.send_done),
            recv: Counters::receives(&q.recv_post, &q.recv_done),
        },
        stalls: None,
    })
}

fn add_stalls(sum: &mut Option<Stalls>, of_qp: &Option<Stalls>) {
    if let (Some(sum), Some(of_qp)) = (sum, of_qp) {
        sum.add(of_qp);
    }
}

fn lane_view(index: usize, l: &LaneRecord) -> Option<LaneView> {
    let life = l.life.load(Relaxed);
    if life == Life::Free as u32 || l.seq.load(Relaxed) % 2 == 1 {
        return None;
    }
    Some(LaneView {
        index: index as u32,
        live: life == Life::Live as u32,
        path: l.path.load(Relaxed),
        port: l.port.load(Relaxed),
        qp_num: l.qp_num.load(Relaxed),
        dest_qp_num: l.dest_qp_num.load(Relaxed),
        qps: l.qps.load(Relaxed),
        local_gid: gid_of(&l.local_gid),
        remote_gid: gid_of(&l.remote_gid),
        created_ns: l.created_ns.load(Relaxed),
        line: Line { send: Counters::sends(&l.post, &l.done), recv: Counters::default() },
    })
}

/// A GID from its two words.
pub fn gid_of(words: &[AtomicU64; 2]) -> [u8; 16] {
    let mut gid = [0; 16];
    for (to, word) in gid.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    gid
}

/// An index that may be [`NONE`].
pub fn index(i: u32) -> Option<usize> {
    (i != NONE).then_some(i as usize)
}
