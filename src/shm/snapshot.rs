//! The documented JSON of segments, `"schema": "telereduce/1"`: written by `trtop dump` and, at the program's exit, to
//! `TELEREDUCE_SNAPSHOT`.
//!
//! `segments[]` holds one object per process with `contexts[]`, `ports[]`, `peers[]`, `qps[]`, `srqs[]` and `cqs[]`,
//! and `lanes[]` where multi-path has any. Where it is on, ports and QPs have `multipath`, with a QP's reason for having
//! one path in `single_path`. Every
//! port, peer and QP carries `wr_posted, wr_completed, wr_failed, wr_dropped, wr_outstanding, bytes_posted, bytes_completed,
//! bytes_failed, bytes_dropped, bytes_outstanding, wr_high_water, bytes_high_water, cqes` for sends, and the same under
//! `recv`. For WRs and for bytes sent, always: posted = completed + failed + dropped + outstanding; a message may be shorter
//! than the buffer that was posted for it. Times are ns, `*_ns` fields with a date are CLOCK_REALTIME. A number is never
//! missing; what is not known is `null`. New fields may be added; the ones here stay. The objects stand in `schema`, field by field.

mod schema;

pub use schema::*;

use super::label::LabelView;
use super::layout::{Hooked, LatencyCounters, Life, OPCODES, QpDetail, STATUSES};
use super::model::{Counters, LaneView, Model, PeerView, QpView, gid_ip, gid_text, index};
use super::multipath::{MultipathCounts, MultipathView};
use super::reader::{Event, ReadError, Reader};
use crate::attribution::{self, Attribution};
use crate::multipath::plan::Pass;
use crate::telemetry::histogram::Latency;
use crate::verbs;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::net::Ipv6Addr;

/// Sum of details before it becomes JSON.
#[derive(Clone, Default)]
struct Sum {
    opcodes: [Posted; OPCODES],
    errors: [u64; STATUSES],
    recv_errors: [u64; STATUSES],
    latency: Latency,
}

impl Sum {
    fn add(&mut self, d: &QpDetail) {
        let add = |sum: &mut u64, n: &AtomicU64| *sum = sum.saturating_add(n.load(Relaxed));
        for (sum, o) in self.opcodes.iter_mut().zip(&d.opcodes) {
            add(&mut sum.wr, &o.wr);
            add(&mut sum.bytes, &o.bytes);
        }
        for i in 0..STATUSES {
            add(&mut self.errors[i], &d.send_errors.by_status[i]);
            add(&mut self.recv_errors[i], &d.recv_errors.by_status[i]);
        }
        self.add_latency(&d.latency);
    }

    /// As [`Latency::add`], for numbers that may be anything: a bucket stops where a sum over all could overflow.
    fn add_latency(&mut self, l: &LatencyCounters) {
        let sum = &mut self.latency;
        sum.count = sum.count.saturating_add(l.count.load(Relaxed));
        sum.sum_ns = sum.sum_ns.saturating_add(l.sum_ns.load(Relaxed));
        sum.max_ns = sum.max_ns.max(l.max_ns.load(Relaxed));
        for (b, n) in sum.buckets.iter_mut().zip(&l.buckets) {
            *b = b.saturating_add(n.load(Relaxed)).min(u64::MAX >> 8);
        }
    }

    fn json(&self) -> Details {
        let by_status = |e: &[u64; STATUSES]| {
            e.iter().enumerate().filter(|(_, n)| **n > 0).map(|(i, n)| (verbs::status_name(i as u32), *n)).collect()
        };
        Details {
            opcodes: (self.opcodes.iter().enumerate())
                .filter(|(_, p)| p.wr > 0)
                .map(|(i, p)| (verbs::opcode_name(i as u32), *p))
                .collect(),
            errors: by_status(&self.errors),
            recv_errors: by_status(&self.recv_errors),
            latency_post_to_poll: (&self.latency).into(),
        }
    }
}

/// Copies everything from `r` and describes it.
///
/// # Errors
/// As [`Reader::refresh`] says.
pub fn segment(r: &mut Reader, with_events: bool) -> Result<SegmentJson, ReadError> {
    r.refresh()?;
    r.refresh_details()?;
    r.refresh_events()?;
    let m = Model::new(r);
    let mut json = describe(r, &m);
    let events = r.events();
    json.missed.events_overwritten = r.events_written().saturating_sub(events.len() as u64);
    if with_events {
        json.events = events.iter().map(|e| event_json(&m, e)).collect();
    }
    Ok(json)
}

/// As [`segment`], without events and what is known of them: these are by far the most to copy.
///
/// # Errors
/// As [`Reader::refresh`] says.
pub fn counters(r: &mut Reader) -> Result<SegmentJson, ReadError> {
    r.refresh()?;
    r.refresh_details()?;
    Ok(describe(r, &Model::new(r)))
}

fn describe(r: &Reader, m: &Model) -> SegmentJson {
    let mut ports: Vec<Sum> = r.ports.iter().take(m.ports.len()).map(|p| retired(&p.retired.detail)).collect();
    let mut peers: Vec<Sum> = r.peers.iter().take(m.peers.len()).map(|p| retired(&p.retired.detail)).collect();
    let mut qps = Vec::with_capacity(m.qps.len());
    for (q, label) in m.qps.iter().zip(&m.labels) {
        let mut sum = Sum::default();
        let detail = r.details.get(q.index as usize);
        if let Some(d) = detail {
            sum.add(d);
            for s in [ports.get_mut(q.port as usize), peers.get_mut(q.peer as usize)].into_iter().flatten() {
                s.add(d);
            }
        }
        qps.push(qp_json(m, (q, label), &sum, detail));
    }
    let h = r.header();
    let (rank, world) = (h.rank.load(Relaxed), h.world_size.load(Relaxed));
    SegmentJson {
        pid: h.pid.load(Relaxed),
        uid: h.uid.load(Relaxed),
        start_time_ticks: h.start_time_ticks.load(Relaxed),
        command: h.command.get(),
        host: h.host.get(),
        rank: (rank != u64::MAX).then_some(rank),
        world_size: (world != 0).then_some(world),
        job: Some(h.job.get()).filter(|j| !j.is_empty()),
        alive: r.is_alive(),
        created_ns: h.created_ns.load(Relaxed),
        heartbeat_ns: super::model::heartbeat_ns(r),
        latency_every: h.latency_every.load(Relaxed),
        missed: h.into(),
        contexts: contexts(r, m),
        ports: (m.ports.iter().zip(&ports))
            .map(|(p, s)| PortJson {
                device: p.device.clone(),
                port: p.port_num,
                qps_live: p.qps_live,
                line: p.line,
                details: s.json(),
                multipath: p.multipath.map(|c| multipath_json(&c, &p.line.send)),
                stall: p.stalls,
            })
            .collect(),
        peers: m.peers.iter().zip(&peers).map(|(p, s)| peer_json(m, p, s)).collect(),
        qps,
        srqs: m.srqs.clone(),
        cqs: m.cqs.clone(),
        lanes: m.lanes.iter().map(|l| lane_json(m, l, r)).collect(),
        events: Vec::new(),
    }
}

fn contexts(r: &Reader, m: &Model) -> Vec<ContextJson> {
    let known = r.contexts.iter().filter(|c| c.life.load(Relaxed) != Life::Free as u32);
    known
        .map(|c| ContextJson {
            device: place(m, c.port.load(Relaxed)).0,
            live: c.life.load(Relaxed) == Life::Live as u32,
            hooked: Hooked::from_u32(c.hooked.load(Relaxed)).map_or("unknown", Hooked::word).into(),
            opened_ns: c.opened_ns.load(Relaxed),
        })
        .collect()
}

/// One port, peer, QP or lane of a [`Model`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// By index in [`Model::ports`].
    Port(u32),
    /// By index in [`Model::peers`].
    Peer(u32),
    /// By [`QpView::index`].
    Qp(u32),
    /// By [`LaneView::index`].
    Lane(u32),
}

/// Details of one object, and a QP's last error, from the last [`Reader::refresh_details`].
pub fn details(r: &Reader, m: &Model, of: Object) -> (Details, Option<ErrorJson>) {
    let (left, one) = match of {
        Object::Port(i) => (r.ports.get(i as usize).map(|p| &p.retired), None),
        Object::Peer(i) => (r.peers.get(i as usize).map(|p| &p.retired), None),
        Object::Qp(i) => (None, r.details.get(i as usize)),
        Object::Lane(_) => (None, None),
    };
    let mut sum = left.map_or_else(Sum::default, |t| retired(&t.detail));
    let belongs = |q: &&QpView| match of {
        Object::Port(i) => q.port == i,
        Object::Peer(i) => q.peer == i,
        Object::Qp(i) => q.index == i,
        Object::Lane(_) => false,
    };
    for q in m.qps.iter().filter(belongs) {
        if let Some(d) = r.details.get(q.index as usize) {
            sum.add(d);
        }
    }
    if let Object::Lane(i) = of
        && let Some(l) = r.lanes.get(i as usize)
    {
        sum.add_latency(&l.latency);
    }
    let qp = m.qps.iter().find(|q| of == Object::Qp(q.index));
    (sum.json(), one.zip(qp).and_then(|(d, q)| last_error(d, q, m)))
}

fn retired(d: &QpDetail) -> Sum {
    let mut s = Sum::default();
    s.add(d);
    s
}

fn place(m: &Model, port: u32) -> (Option<String>, Option<u32>) {
    match index(port).and_then(|i| m.ports.get(i)) {
        Some(p) => (Some(p.device.clone()), (p.port_num > 0).then_some(p.port_num)),
        None => (None, None),
    }
}

fn peer_name(m: &Model, peer: u32) -> Option<String> {
    index(peer).and_then(|i| m.peers.get(i)).map(PeerView::name)
}

fn peer_json(m: &Model, p: &PeerView, s: &Sum) -> PeerJson {
    let (device, port) = place(m, p.port);
    PeerJson {
        device: device.unwrap_or_default(),
        port: port.unwrap_or(0),
        gid: p.gid.map(|g| Ipv6Addr::from(g).to_string()),
        ip: p.gid.and_then(gid_ip).map(|ip| ip.to_string()),
        lid: p.lid,
        peer_rank: None,
        qps_live: p.qps_live,
        line: p.line,
        details: s.json(),
        stall: p.stalls,
    }
}

fn qp_json(m: &Model, (q, label): (&QpView, &LabelView), s: &Sum, detail: Option<&QpDetail>) -> QpJson {
    let (device, port) = place(m, q.port);
    QpJson {
        qp_num: q.qp_num,
        r#type: verbs::qp_type_name(q.qp_type),
        state: q.live.then(|| verbs::qp_state_name(q.state)),
        live: q.live,
        device,
        port,
        peer: peer_name(m, q.peer),
        dest_qp_num: (q.dest_qp_num != 0).then_some(q.dest_qp_num),
        source: label.local_gid.map(gid_text),
        peer_rank: None,
        nccl: label.last.as_ref().map(|a| nccl_json(label, a)),
        srq: index(q.srq).map(|i| i as u32),
        max_send_wr: q.max_send_wr,
        max_recv_wr: q.max_recv_wr,
        opaque: q.flags & super::layout::flags::OPAQUE != 0,
        created_ns: q.created_ns,
        line: q.line,
        details: s.json(),
        last_error: detail.and_then(|d| last_error(d, q, m)),
        stall: q.stalls,
        multipath: m.multipath_of(q.index).map(|v| qp_multipath_json(v, &q.line.send)),
    }
}

fn nccl_json(label: &LabelView, a: &Attribution) -> NcclJson {
    NcclJson {
        group: a.group,
        rank: a.rank,
        peer_rank: a.peer_rank,
        channel: a.channel,
        direction: if a.sends { "send" } else { "recv" }.into(),
        func: a.func.map(|f| attribution::func_name(f).map_or_else(|| f.to_string(), String::from)),
        func_times: a.times,
        wr_labelled: label.wr_labelled,
        changes: label.changes,
    }
}

fn qp_multipath_json(v: &MultipathView, sends: &Counters) -> QpMultipathJson {
    QpMultipathJson {
        lanes: v.lanes,
        lanes_failed_here: v.lanes_failed_here,
        lanes_failed_there: v.lanes_failed_there,
        single_path: v.single.map(|s| s.name().into()),
        work: multipath_json(&v.counts, sends),
    }
}

fn multipath_json(c: &MultipathCounts, sends: &Counters) -> MultipathJson {
    let by_reason = Pass::ALL.iter().zip(c.large_passed).filter(|(_, n)| *n > 0);
    MultipathJson {
        wr_split: c.wr_split,
        wr_whole: c.wr_whole,
        wr_held: c.wr_held,
        moved: c.moved,
        bytes_carried: c.bytes_carried(sends),
        reads: c.reads,
        chunks: c.chunks,
        chunks_replayed: c.chunks_replayed,
        large_passed: by_reason.map(|(p, n)| (p.name().into(), n)).collect(),
    }
}

fn lane_json(m: &Model, l: &LaneView, r: &Reader) -> LaneJson {
    let (device, port) = place(m, l.port);
    let mut latency = Sum::default();
    if let Some(record) = r.lanes.get(l.index as usize) {
        latency.add_latency(&record.latency);
    }
    LaneJson {
        path: l.path,
        device,
        port,
        local: gid_text(l.local_gid),
        peer: gid_text(l.remote_gid),
        qp_num: l.qp_num,
        dest_qp_num: l.dest_qp_num,
        live: l.live,
        qps: l.qps,
        chunks: l.line.send,
        latency_post_to_poll: (&latency.latency).into(),
    }
}

/// The newest error of a QP that was not a flush.
pub fn last_error(d: &QpDetail, q: &QpView, m: &Model) -> Option<ErrorJson> {
    let newest = [&d.send_errors, &d.recv_errors].into_iter().max_by_key(|e| e.last_ns.load(Relaxed))?;
    let (last, outstood) = (newest.last.load(Relaxed), &newest.last_outstood);
    let opcode = outstood.opcode.load(Relaxed).checked_sub(1);
    (last != 0).then(|| ErrorJson {
        status: verbs::status_name((last >> 32) as u32),
        vendor_err: last as u32,
        wr_id: newest.last_wr_id.load(Relaxed),
        time_ns: newest.last_ns.load(Relaxed),
        qp_num: q.qp_num,
        peer: peer_name(m, q.peer),
        direction: if core::ptr::eq(newest, &d.send_errors) { "send" } else { "recv" }.into(),
        wr_outstanding: outstood.wr.load(Relaxed),
        bytes_outstanding: outstood.bytes.load(Relaxed),
        oldest_opcode: opcode.map(|o| verbs::opcode_name(o as u32)),
    })
}

fn event_json(m: &Model, e: &Event) -> EventJson {
    let (device, port) = place(m, e.port_index);
    EventJson {
        kind: e.kind.word().into(),
        end_ns: e.end_ns,
        device,
        port,
        qp_num: e.qp_num,
        peer: peer_name(m, e.peer_index),
        status: verbs::status_name(u32::from(e.status)),
        bytes: e.bytes,
        wr_outstanding: e.wr_outstanding,
        bytes_outstanding: e.bytes_outstanding,
        latency_ns: e.latency_ns,
        waited_ns: e.waited_ns,
        vendor_err: e.vendor_err,
    }
}

/// Puts segments into a dump.
pub fn dump(segments: Vec<SegmentJson>) -> Snapshot {
    Snapshot { schema: SCHEMA.into(), time_ns: crate::clock::realtime_ns(), cause: None, segments }
}

const _: () = assert!(Life::Free as u32 == 0, "a zeroed record is a free one");
