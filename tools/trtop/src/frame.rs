//! What a screen shows: every process's counters at one moment, and those of the refresh before for the rates.

use crate::extra::Extra;
use crate::history::History;
use crate::past::Past;
use crate::replay;
use crate::stuck::{LISTED_NS, Watch};
use std::path::PathBuf;
use telereduce::shm::model::{LaneView, Line, Model, PortView, QpView, index};
use telereduce::shm::multipath::MultipathView;
use telereduce::shm::snapshot::{Details, ErrorJson, Missed, Object};

/// One refresh. Drawing only reads it.
#[derive(Clone, Default)]
pub struct Frame {
    /// CLOCK_REALTIME of the refresh, ns.
    pub realtime_ns: u64,
    /// This host.
    pub host: String,
    /// Where segments are looked for.
    pub dir: PathBuf,
    /// Processes, by process id.
    pub processes: Vec<Process>,
    /// Files that are named as segments and cannot be read as such.
    pub broken: Vec<Broken>,
    /// Segments of other users, which we may not read.
    pub denied: usize,
    /// Why there is nothing to show at all.
    pub problem: Option<String>,
    /// What `trtop doctor` says, line by line, if it was asked for.
    pub doctor: Vec<String>,
    /// More about one row, if it was asked for.
    pub detail: Option<Detail>,
    /// Where a replay is; `None` = this is live.
    pub replay: Option<replay::Position>,
}

/// A file that cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// One row's identity; stays while rows come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowId {
    /// [`Process::id`].
    pub process: u64,
    /// Which of its objects.
    pub object: Object,
}

/// More about one row.
#[derive(Clone)]
pub struct Detail {
    /// The row.
    pub row: RowId,
    /// Opcodes, errors, latency.
    pub details: Details,
    /// The last error that was not a flush; QPs only.
    pub last_error: Option<ErrorJson>,
    /// The refreshes since the row is looked at; of a port, those since it is there.
    pub history: History,
}

/// One process.
#[derive(Clone, Default)]
pub struct Process {
    /// Given by the sampler when it opened the segment; never used twice.
    pub id: u64,
    /// Process id, in its own pid namespace.
    pub pid: u32,
    /// Whether the process lives.
    pub alive: bool,
    /// Rank, if a launcher gave one.
    pub rank: Option<u64>,
    /// Host name as the process sees it.
    pub host: String,
    /// Command line.
    pub command: String,
    /// In how many sends one has its latency measured, the next signaled one; 0 = none.
    pub latency_every: u32,
    /// What could not be counted.
    pub missed: Missed,
    /// Counters now.
    pub now: Model,
    /// Counters at the refresh before.
    pub before: Model,
    /// Seconds between the two, by the viewer's monotonic clock; 0 = there was no refresh before.
    pub interval_s: f64,
    /// `device:port` by port index.
    pub port_names: Vec<String>,
    /// IP address, GID or LID by peer index.
    pub peer_names: Vec<String>,
    /// Positions in [`Model::qps`] of live QPs for which multi-path has a reason to use one path.
    pub single: Vec<u32>,
    /// Own address and the peer's by position in [`Model::lanes`].
    pub lane_names: Vec<(String, String)>,
    /// By port index.
    pub history: Vec<History>,
    /// What was sent over the last ten seconds.
    pub past: Past,
    /// Since when each QP stands still.
    pub watch: Watch,
    /// CLOCK_REALTIME of its refresh, ns.
    pub at_ns: u64,
    /// Positions in [`Model::qps`] of those that failed, or stand still.
    pub troubled: Vec<u32>,
    /// Ranks at the far ends of QPs, by position in [`Model::qps`]; empty where no process has a rank.
    pub ranks_of_qps: Vec<Option<u64>>,
    /// Ranks of peers, by peer index; likewise.
    pub ranks_of_peers: Vec<Option<u64>>,
    /// What the view shows besides.
    pub extra: Extra,
}

/// Differences per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Bytes of completed sends.
    pub send_bytes: f64,
    /// Bytes that arrived in completed receives.
    pub recv_bytes: f64,
    /// WRs completed, sends and receives.
    pub wr: f64,
}

impl Rates {
    /// From `before` to `now`, `seconds` apart; `None` if there was no refresh before.
    pub fn between(before: &Line, now: &Line, seconds: f64) -> Option<Rates> {
        let per_s = |b: u64, n: u64| n.saturating_sub(b) as f64 / seconds;
        (seconds > 0.0).then(|| Rates {
            send_bytes: per_s(before.send.bytes_completed, now.send.bytes_completed),
            recv_bytes: per_s(before.recv.bytes_completed, now.recv.bytes_completed),
            wr: per_s(before.send.wr_completed, now.send.wr_completed)
                + per_s(before.recv.wr_completed, now.recv.wr_completed),
        })
    }
}

impl Process {
    /// Rates of a port; one that was not there before started at zero.
    pub fn port_rates(&self, i: usize) -> Option<Rates> {
        let zero = Line::default();
        Rates::between(
            self.before.ports.get(i).map_or(&zero, |p| &p.line),
            &self.now.ports.get(i)?.line,
            self.interval_s,
        )
    }

    /// Rates of a peer; likewise.
    pub fn peer_rates(&self, i: usize) -> Option<Rates> {
        let zero = Line::default();
        Rates::between(
            self.before.peers.get(i).map_or(&zero, |p| &p.line),
            &self.now.peers.get(i)?.line,
            self.interval_s,
        )
    }

    /// Rates of a QP, the one at `position` of [`Model::qps`]; likewise.
    pub fn qp_rates(&self, position: usize) -> Option<Rates> {
        let q = self.now.qps.get(position)?;
        let zero = Line::default();
        Rates::between(self.qp_before(position, q).map_or(&zero, |b| &b.line), &q.line, self.interval_s)
    }

    /// Rates of a lane, the one at `position` of [`Model::lanes`]; likewise.
    pub fn lane_rates(&self, position: usize) -> Option<Rates> {
        let l = self.now.lanes.get(position)?;
        let same = |b: &&LaneView| (b.qp_num, b.created_ns) == (l.qp_num, l.created_ns);
        let old =
            self.before.lanes.binary_search_by_key(&l.index, |b| b.index).ok().and_then(|at| self.before.lanes.get(at));
        let zero = Line::default();
        Rates::between(old.filter(same).map_or(&zero, |b| &b.line), &l.line, self.interval_s)
    }

    /// The same QP at the refresh before. QPs are in the order of their index, mostly at the same position as before.
    fn qp_before(&self, position: usize, q: &QpView) -> Option<&QpView> {
        let old = &self.before.qps;
        let same = |b: &&QpView| b.qp_num == q.qp_num && b.created_ns == q.created_ns;
        match old.get(position) {
            Some(b) if b.index == q.index => Some(b).filter(same),
            _ => {
                let at = old.binary_search_by_key(&q.index, |b| b.index).ok()?;
                old.get(at).filter(same)
            }
        }
    }

    /// Takes the counters as those of time `now_ns`: since when QPs stand still, and which ones are to be listed for it.
    pub fn take_stock(&mut self, now_ns: u64) {
        self.at_ns = now_ns;
        self.watch.note(&self.now.qps, now_ns);
        let troubled = |q: &QpView| {
            let failed = q.line.send.wr_failed > 0 || q.line.recv.wr_failed > 0;
            failed || self.stuck_ns(q) >= LISTED_NS
        };
        self.troubled = (0..).zip(&self.now.qps).filter(|(_, q)| troubled(q)).map(|(at, _)| at).collect();
    }

    /// For how long a QP has had sends outstanding of which none completed, ns: as its process's watch says, else as was seen
    /// from here.
    pub fn stuck_ns(&self, q: &QpView) -> u64 {
        if !self.alive || !q.live {
            return 0;
        }
        let since = |ns: u64| self.at_ns.saturating_sub(ns);
        let seen = self.watch.stuck_ns(q, self.at_ns);
        match q.stalls {
            None => seen,
            Some(s) => s.stalled_ns.map_or_else(|| s.oldest_ns.map_or(0, |o| seen.min(since(o))), since),
        }
    }

    /// What multi-path does to a QP; `None` where it is off.
    pub fn multipath_of(&self, q: &QpView) -> Option<&MultipathView> {
        self.now.multipath_of(q.index)
    }

    /// `device:port` of a port index, `-` if there is none.
    pub fn port_name(&self, port: u32) -> &str {
        name(&self.port_names, port)
    }

    /// A peer's name, `-` if there is none.
    pub fn peer_name(&self, peer: u32) -> &str {
        name(&self.peer_names, peer)
    }

    /// What is not counted, and why, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let m = &self.missed;
        if m.panics > 0 {
            notes.push("counting stopped after an internal error: these are its last numbers".to_string());
        }
        if m.objects_untracked > 0 {
            notes.push(format!("{} objects are not counted: no room in the segment", m.objects_untracked));
        }
        if m.wrs_unseen > 0 {
            notes.push(format!("{} WRs were posted to QPs and SRQs that are not counted", m.wrs_unseen));
        }
        if m.objects_opaque > 0 {
            notes.push(format!("{} QPs or CQs (marked *) of which not everything may be seen", m.objects_opaque));
        }
        if m.log_dropped > 0 {
            notes.push(format!(
                "{} transfers are not in the log: it was too slow, or could not be written",
                m.log_dropped
            ));
        }
        if m.completions_unmatched > 0 {
            notes.push(format!("{} completions of WRs that were never seen posted", m.completions_unmatched));
        }
        notes
    }
}

fn name(names: &[String], i: u32) -> &str {
    index(i).and_then(|i| names.get(i)).map_or("-", String::as_str)
}

/// `device:port`, or the device alone for QPs that never reached INIT.
pub fn port_text(p: &PortView) -> String {
    if p.port_num == 0 { format!("{}:-", p.device) } else { format!("{}:{}", p.device, p.port_num) }
}

impl Frame {
    /// The process with this id.
    pub fn process(&self, id: u64) -> Option<&Process> {
        self.processes.iter().find(|p| p.id == id)
    }

    /// Whether its processes are of several hosts.
    pub fn several_hosts(&self) -> bool {
        self.processes.windows(2).any(|p| p[0].host != p[1].host)
    }

    /// Whether NCCL said of some QP whom it works for.
    pub fn is_labelled(&self) -> bool {
        self.processes.iter().any(|p| p.now.labels.iter().any(|l| l.last.is_some()))
    }

    /// Sums of all ports of the living. What the dead had outstanding is no load on anything any more.
    pub fn totals(&self) -> (Line, Rates) {
        let (mut line, mut rates) = (Line::default(), Rates::default());
        for p in self.processes.iter().filter(|p| p.alive) {
            for (i, port) in p.now.ports.iter().enumerate() {
                line.add(&port.line);
                if let Some(r) = p.port_rates(i) {
                    rates.send_bytes += r.send_bytes;
                    rates.recv_bytes += r.recv_bytes;
                    rates.wr += r.wr;
                }
            }
        }
        (line, rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(send_bytes: u64, send_wr: u64, recv_bytes: u64) -> Line {
        let mut l = Line::default();
        l.send.bytes_completed = send_bytes;
        l.send.wr_completed = send_wr;
        l.recv.bytes_completed = recv_bytes;
        l
    }

    #[test]
    fn rates_are_differences_per_second() {
        let r = Rates::between(&line(1000, 10, 0), &line(3000, 20, 500), 0.5).unwrap();
        assert_eq!((r.send_bytes, r.recv_bytes, r.wr), (4000.0, 1000.0, 20.0));
        assert_eq!(Rates::between(&line(0, 0, 0), &line(1, 1, 1), 0.0), None);
        // A counter that went back belongs to another object.
        assert_eq!(Rates::between(&line(9, 9, 9), &line(0, 0, 0), 1.0), Some(Rates::default()));
    }

    fn qp(index: u32, qp_num: u32, bytes: u64) -> QpView {
        QpView { index, qp_num, live: true, created_ns: 7, line: line(bytes, 0, 0), ..QpView::default() }
    }

    #[test]
    fn a_qp_is_compared_with_itself_wherever_it_stood() {
        let mut p = Process { interval_s: 1.0, ..Process::default() };
        p.before.qps = vec![qp(0, 100, 1), qp(4, 104, 50), qp(9, 109, 90)];
        p.now.qps = vec![qp(4, 104, 60), qp(9, 999, 95), qp(12, 112, 7)];
        let sends: Vec<f64> = (0..3).map(|i| p.qp_rates(i).unwrap().send_bytes).collect();
        // The second one's record was given to another QP, the third is new.
        assert_eq!(sends, [10.0, 95.0, 7.0]);
    }
}
