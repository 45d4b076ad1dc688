//! Columns of the lists: what each shows, and what it sorts by.

use crate::history::sparkline;
use crate::rows::{Item, Row};
use crate::stuck::LISTED_NS;
use crate::units;
use std::cmp::Ordering;
use telereduce::attribution::{Attribution, func_name};
use telereduce::shm::layout::flags::OPAQUE;
use telereduce::shm::model::{LaneView, QpView};
use telereduce::verbs;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Col {
    /// Process id.
    Pid,
    /// Rank from the launcher.
    Rank,
    /// Rank at the far end.
    PeerRank,
    /// Own rank and the peer's in NCCL's communicator.
    Comm,
    /// NCCL's channel.
    Channel,
    /// NCCL's function.
    Func,
    /// Command line.
    Command,
    /// `live` or `dead`, of QPs their state.
    State,
    /// `device:port`.
    Port,
    /// Peer's IP address, GID or LID.
    Peer,
    /// Path of a lane.
    Path,
    /// A path's own address.
    Local,
    /// Lanes that a QP uses.
    Lanes,
    /// Why a QP uses one path.
    Why,
    /// A lane's share of what all lanes of its port send.
    Share,
    /// QP number.
    Qp,
    /// QP type.
    Type,
    /// Peer's QP number.
    Dest,
    /// QPs alive.
    Qps,
    /// Rate of completed sends.
    Send,
    /// The same over ten seconds.
    SendLong,
    /// Rate of completed receives.
    Recv,
    /// WRs completed per second.
    WrRate,
    /// Send WRs outstanding.
    Out,
    /// Send bytes outstanding.
    OutBytes,
    /// Receives outstanding.
    RecvOut,
    /// Highest number of send WRs outstanding on one QP.
    High,
    /// Highest number of send bytes outstanding on one QP.
    HighBytes,
    /// Bytes of completed sends.
    Sent,
    /// Bytes that arrived.
    Received,
    /// WRs completed in error.
    Errors,
    /// Outstanding send WRs over the last refreshes.
    OutSpark,
    /// Bandwidth over the last refreshes.
    RateSpark,
    /// Host that the process runs on.
    Host,
    /// Sends that were timed.
    Samples,
    /// Latency: median.
    P50,
    /// Latency: 90 %.
    P90,
    /// Latency: 99 %.
    P99,
    /// Latency: 99.9 %.
    P999,
    /// Latency: largest.
    Max,
    /// For how long nothing outstanding has completed.
    Stuck,
    /// Status of the last error.
    Status,
    /// When that was.
    ErrorAt,
}

/// What a row sorts by.
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    /// A number; what is not known yet sorts below zero.
    Number(f64),
    /// Text.
    Text(&'a str),
}

impl Key<'_> {
    /// Total order; texts come after numbers.
    pub fn order(&self, o: &Key) -> Ordering {
        match (self, o) {
            (Key::Number(a), Key::Number(b)) => a.total_cmp(b),
            (Key::Text(a), Key::Text(b)) => a.cmp(b),
            (Key::Number(_), Key::Text(_)) => Ordering::Less,
            (Key::Text(_), Key::Number(_)) => Ordering::Greater,
        }
    }
}

impl Col {
    /// Heading.
    pub fn title(self) -> &'static str {
        match self {
            Col::Pid => "PID",
            Col::Rank => "RANK",
            Col::PeerRank => "TO-RK",
            Col::Comm => "NCCL",
            Col::Channel => "CH",
            Col::Func => "FUNCTION",
            Col::Command => "COMMAND",
            Col::State => "ST",
            Col::Port => "PORT",
            Col::Peer => "PEER",
            Col::Path => "PATH",
            Col::Local => "LOCAL",
            Col::Lanes => "LANES",
            Col::Why => "ONE PATH",
            Col::Share => "SHARE",
            Col::Qp => "QP",
            Col::Type => "TYP",
            Col::Dest => "DEST QP",
            Col::Qps => "QPS",
            Col::Send => "SEND",
            Col::SendLong => "10 s",
            Col::Recv => "RECV",
            Col::WrRate => "WR/s",
            Col::Out => "OUT",
            Col::OutBytes => "OUT-B",
            Col::RecvOut => "RQ",
            Col::High => "HIGH",
            Col::HighBytes => "HIGH-B",
            Col::Sent => "SENT",
            Col::Received => "RCVD",
            Col::Errors => "ERR",
            Col::OutSpark => "OUT over time",
            Col::RateSpark => "BW over time",
            Col::Host => "HOST",
            Col::Samples => "TIMED",
            Col::P50 => "P50",
            Col::P90 => "P90",
            Col::P99 => "P99",
            Col::P999 => "P99.9",
            Col::Max => "MAX",
            Col::Stuck => "STUCK",
            Col::Status => "LAST ERROR",
            Col::ErrorAt => "AT UTC",
        }
    }

    /// What it shows, for the help screen.
    pub fn meaning(self) -> &'static str {
        match self {
            Col::Pid => "process id",
            Col::Rank => "rank, if a launcher gave one",
            Col::PeerRank => "rank at the far end, where it is known",
            Col::Comm => "own rank and the peer's in the NCCL communicator that used the QP last; > sends, < receives",
            Col::Channel => "channel that NCCL used the QP for last",
            Col::Func => "function that NCCL used the QP for last",
            Col::Command => "command line; [dead] = the process has ended without removing its segment",
            Col::State => "live, dead, gone (destroyed), or the QP's state",
            Col::Port => "device and port number",
            Col::Peer => "far end: IP address, GID or LID",
            Col::Path => "which path of its port the lane takes, from 0",
            Col::Local => "the path's own address; of a QP with one path: why",
            Col::Lanes => "lanes that multi-path uses for the QP",
            Col::Why => "why multi-path uses one path for the QP; Enter says more",
            Col::Share => "share of what all lanes of the process send on this port",
            Col::Qp => "QP number",
            Col::Type => "QP type; * = its ibv_wr_* sends are not counted",
            Col::Dest => "QP number at the far end",
            Col::Qps => "QPs alive",
            Col::Send => "completed sends, RDMA and atomics, bits per second",
            Col::SendLong => "SEND over the last ten seconds",
            Col::Recv => "completed receives, bits per second that arrived",
            Col::WrRate => "WRs completed per second, sends and receives",
            Col::Out => "send WRs outstanding: posted, not completed",
            Col::OutBytes => "bytes of these",
            Col::RecvOut => "receives outstanding",
            Col::High => "most send WRs ever outstanding on one QP",
            Col::HighBytes => "most send bytes ever outstanding on one QP",
            Col::Sent => "bytes of completed sends, total",
            Col::Received => "bytes that arrived, total",
            Col::Errors => "WRs completed in error, flushes included, total",
            Col::OutSpark => "OUT at the last refreshes",
            Col::RateSpark => "SEND + RECV at the last refreshes",
            Col::Host => "host, where there are several",
            Col::Samples => "sends timed from post to poll",
            Col::P50 => "latency from post to poll that half of them do not exceed",
            Col::P90 => "latency that 90 % do not exceed",
            Col::P99 => "latency that 99 % do not exceed",
            Col::P999 => "latency that 99.9 % do not exceed",
            Col::Max => "largest latency",
            Col::Stuck => "how long sends have been outstanding while none completed",
            Col::Status => "status of the last failed completion that was no flush",
            Col::ErrorAt => "when it was polled",
        }
    }

    fn quantile(self, row: &Row) -> Option<u64> {
        let l = row.latency()?;
        match self {
            Col::P50 => l.p50_ns,
            Col::P90 => l.p90_ns,
            Col::P99 => l.p99_ns,
            Col::P999 => l.p999_ns,
            _ => l.max_ns,
        }
    }

    /// Whether the list can be sorted by it.
    pub fn sortable(self) -> bool {
        !matches!(self, Col::OutSpark | Col::RateSpark)
    }

    /// Whether it is text, to the left; numbers stand to the right.
    pub fn is_text(self) -> bool {
        matches!(
            self,
            Col::Command
                | Col::Func
                | Col::Comm
                | Col::State
                | Col::Port
                | Col::Peer
                | Col::Local
                | Col::Type
                | Col::Why
                | Col::Host
                | Col::Status
        ) || !self.sortable()
    }

    /// What `row` sorts by in this column.
    pub fn key<'a>(self, row: &Row<'a>) -> Key<'a> {
        let l = row.line();
        let rate = |pick: fn(&crate::frame::Rates) -> f64| row.rates().map_or(-1.0, |r| pick(&r));
        Key::Number(match self {
            Col::Command => return Key::Text(&row.process.command),
            Col::Port => return Key::Text(row.port_name()),
            Col::Peer => return Key::Text(row.peer_name()),
            Col::Local => return Key::Text(row.local_name()),
            Col::Why => return Key::Text(row.why()),
            Col::Host => return Key::Text(&row.process.host),
            Col::Status => return Key::Text(row.last_error().map_or("", |e| &e.status)),
            Col::ErrorAt => row.last_error().map_or(-1.0, |e| e.time_ns as f64),
            Col::Stuck => row.stuck_ns() as f64,
            Col::Samples => row.latency().map_or(-1.0, |l| l.samples as f64),
            Col::P50 | Col::P90 | Col::P99 | Col::P999 | Col::Max => self.quantile(row).map_or(-1.0, |ns| ns as f64),
            Col::Lanes => lanes(row).map_or(-1.0, f64::from),
            // QPs come after the lanes.
            Col::Path => lane(row).map_or(f64::INFINITY, |l| f64::from(l.path)),
            Col::Share => share(row).unwrap_or(-1.0),
            Col::Pid => f64::from(row.process.pid),
            Col::Rank => row.process.rank.map_or(-1.0, |r| r as f64),
            Col::PeerRank => row.peer_rank().map_or(-1.0, |r| r as f64),
            Col::Channel => row.nccl().map_or(-1.0, |a| f64::from(a.channel)),
            Col::Comm => row.nccl().and_then(|a| a.peer_rank).map_or(-1.0, f64::from),
            Col::Func => return Key::Text(func(row).unwrap_or("-")),
            Col::State => match row.item {
                Item::Qp(q) if row.alive() => f64::from(q.state),
                _ => f64::from(u8::from(row.alive())) - 2.0,
            },
            Col::Qp => numbers(row).map_or(-1.0, |n| f64::from(n.0)),
            Col::Type => qp(row, |q| q.qp_type),
            Col::Dest => numbers(row).map_or(-1.0, |n| f64::from(n.1)),
            Col::Qps => f64::from(qps_live(row)),
            Col::Send => rate(|r| r.send_bytes),
            Col::SendLong => row.rate_of_ten_seconds().unwrap_or(-1.0),
            Col::Recv => rate(|r| r.recv_bytes),
            Col::WrRate => rate(|r| r.wr),
            Col::Out | Col::OutSpark => l.send.wr_outstanding as f64,
            Col::OutBytes => l.send.bytes_outstanding as f64,
            Col::RecvOut => l.recv.wr_outstanding as f64,
            Col::High => l.send.wr_high_water as f64,
            Col::HighBytes => l.send.bytes_high_water as f64,
            Col::Sent => l.send.bytes_completed as f64,
            Col::Received => l.recv.bytes_completed as f64,
            Col::Errors => errors(row) as f64,
            Col::RateSpark => rate(|r| r.send_bytes + r.recv_bytes),
        })
    }

    /// The text of `row` in this column, `width` cells wide at most where cutting needs care.
    pub fn text(self, row: &Row, width: usize) -> String {
        let l = row.line();
        let p = row.process;
        let bits = |pick: fn(&crate::frame::Rates) -> f64| match row.rates() {
            Some(r) => units::bits_per_s(pick(&r)),
            None => "-".into(),
        };
        match self {
            Col::Pid => p.pid.to_string(),
            Col::Rank => p.rank.map_or("-".into(), |r| r.to_string()),
            Col::Command if p.alive => p.command.clone(),
            Col::Command => format!("[dead] {}", p.command),
            Col::PeerRank => row.peer_rank().map_or("-".into(), |r| r.to_string()),
            Col::Channel => row.nccl().map_or("-".into(), |a| a.channel.to_string()),
            Col::Comm => row.nccl().map_or("-".into(), comm),
            Col::Func => func(row).unwrap_or("-").into(),
            Col::State => state(row),
            Col::Port => short_port(row.port_name(), width),
            Col::Peer => short_peer(row.peer_name(), width),
            Col::Local => match row.item {
                Item::Qp(_) => row.why().into(),
                _ => short_peer(row.local_name(), width),
            },
            Col::Why => row.why().into(),
            Col::Host => p.host.clone(),
            Col::Status => row.last_error().map_or("-".into(), |e| e.status.clone()),
            Col::ErrorAt => row.last_error().map_or("-".into(), |e| units::time_of_day(e.time_ns)),
            Col::Stuck => match row.stuck_ns() {
                ns if ns < LISTED_NS => "-".into(),
                ns => units::age(ns / 1_000_000_000),
            },
            Col::Samples => row.latency().map_or("-".into(), |l| units::count(l.samples)),
            Col::P50 | Col::P90 | Col::P99 | Col::P999 | Col::Max => {
                self.quantile(row).map_or("-".into(), units::latency)
            }
            Col::Lanes => lanes(row).map_or("-".into(), |n| n.to_string()),
            Col::Path => lane(row).map_or("-".into(), |l| l.path.to_string()),
            Col::Share => share(row).map_or("-".into(), |s| format!("{:.0} %", s * 100.0)),
            Col::Qp => numbers(row).map_or("-".into(), |n| n.0.to_string()),
            Col::Type => qp_text(row, |q| {
                let star = if q.flags & OPAQUE != 0 { "*" } else { "" };
                verbs::qp_type_name(q.qp_type) + star
            }),
            Col::Dest => numbers(row).filter(|n| n.1 != 0).map_or("-".into(), |n| n.1.to_string()),
            Col::Qps => units::count(u64::from(qps_live(row))),
            Col::Send => bits(|r| r.send_bytes),
            Col::SendLong => row.rate_of_ten_seconds().map_or("-".into(), units::bits_per_s),
            Col::Recv => bits(|r| r.recv_bytes),
            Col::WrRate => row.rates().map_or("-".into(), |r| units::per_s(r.wr)),
            Col::Out => units::count(l.send.wr_outstanding),
            Col::OutBytes => units::bytes(l.send.bytes_outstanding),
            Col::RecvOut => units::count(l.recv.wr_outstanding),
            Col::High => units::count(l.send.wr_high_water),
            Col::HighBytes => units::bytes(l.send.bytes_high_water),
            Col::Sent => units::bytes(l.send.bytes_completed),
            Col::Received => units::bytes(l.recv.bytes_completed),
            Col::Errors => units::count(errors(row)),
            Col::OutSpark => p.history.get(row.position).map_or(String::new(), |h| sparkline(&h.outstanding, width)),
            Col::RateSpark => p.history.get(row.position).map_or(String::new(), |h| sparkline(&h.bytes_per_s, width)),
        }
    }
}

/// Such as `3>9`: rank 3 sends to rank 9.
fn comm(a: &Attribution) -> String {
    let rank = |r: Option<u32>| r.map_or("?".into(), |r| r.to_string());
    format!("{}{}{}", rank(a.rank), if a.sends { '>' } else { '<' }, rank(a.peer_rank))
}

/// What NCCL did with a QP last.
fn func(row: &Row) -> Option<&'static str> {
    func_name(row.nccl()?.func?)
}

/// WRs completed in error, both directions.
pub fn errors(row: &Row) -> u64 {
    let l = row.line();
    l.send.wr_failed.saturating_add(l.recv.wr_failed)
}

fn qps_live(row: &Row) -> u32 {
    match row.item {
        Item::Port(p) => p.qps_live,
        Item::Peer(p) => p.qps_live,
        Item::Qp(q) => u32::from(q.live),
        Item::Lane(l) => l.qps,
    }
}

fn state(row: &Row) -> String {
    match row.item {
        _ if !row.process.alive => "dead".into(),
        Item::Qp(QpView { live: false, .. }) | Item::Lane(LaneView { live: false, .. }) => "gone".into(),
        Item::Qp(q) => verbs::qp_state_name(q.state),
        _ => "live".into(),
    }
}

fn lane<'a>(row: &Row<'a>) -> Option<&'a LaneView> {
    match row.item {
        Item::Lane(l) => Some(l),
        _ => None,
    }
}

/// Lanes that a QP uses, where multi-path is on.
fn lanes(row: &Row) -> Option<u32> {
    match row.item {
        Item::Qp(q) => row.process.multipath_of(q).map(|m| m.lanes),
        _ => None,
    }
}

/// A lane's share of what all lanes of its process send on its port now, from the second refresh on.
fn share(row: &Row) -> Option<f64> {
    let port = lane(row)?.port;
    let own = row.rates()?.send_bytes;
    let lanes = row.process.now.lanes.iter().enumerate().filter(|(_, l)| l.port == port);
    let all: f64 = lanes.filter_map(|(i, _)| row.process.lane_rates(i)).map(|r| r.send_bytes).sum();
    (all > 0.0).then(|| own / all)
}

/// QP number, and that of the far end.
fn numbers(row: &Row) -> Option<(u32, u32)> {
    match row.item {
        Item::Qp(q) => Some((q.qp_num, q.dest_qp_num)),
        Item::Lane(l) => Some((l.qp_num, l.dest_qp_num)),
        _ => None,
    }
}

fn qp(row: &Row, pick: fn(&QpView) -> u32) -> f64 {
    match row.item {
        Item::Qp(q) => f64::from(pick(q)),
        _ => -1.0,
    }
}

fn qp_text(row: &Row, text: impl Fn(&QpView) -> String) -> String {
    match row.item {
        Item::Qp(q) => text(q),
        _ => "-".into(),
    }
}

/// `device:port` in `width` cells: the device is cut, not the port.
pub fn short_port(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.into();
    }
    let (device, port) = name.rsplit_once(':').unwrap_or((name, ""));
    let room = width.saturating_sub(port.chars().count() + 2);
    let cut: String = device.chars().take(room).collect();
    format!("{cut}…:{port}")
}

/// An address in `width` cells: peers differ at the end.
pub fn short_peer(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.into();
    }
    let end: String = name.chars().skip(length - width.saturating_sub(1)).collect();
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_address_keeps_its_end() {
        assert_eq!(short_peer("10.0.0.12", 9), "10.0.0.12");
        assert_eq!(short_peer("2001:db8:aa:bb::1234", 10), "…:bb::1234");
        assert_eq!(short_peer("2001:db8::1", 0), "…");
    }

    #[test]
    fn a_long_device_keeps_its_port() {
        assert_eq!(short_port("mlx5_0:1", 8), "mlx5_0:1");
        assert_eq!(short_port("rocep65s0f1:1", 10), "rocep65…:1");
        assert_eq!(short_port("rocep65s0f1:1", 1), "…:1");
    }

    #[test]
    fn keys_have_a_total_order() {
        let n = |v| Key::Number(v);
        assert_eq!(n(f64::NAN).order(&n(f64::NAN)), Ordering::Equal);
        assert_eq!(n(1.0).order(&Key::Text("a")), Ordering::Less);
    }
}
