//! Rows of a list: which ones there are, which pass the filter, in what order.

use crate::columns::{Col, Key};
use crate::frame::{Frame, Process, Rates, RowId};
use std::cmp::Ordering;
use telereduce::attribution::Attribution;
use telereduce::multipath::single::Single;
use telereduce::shm::model::{LaneView, Line, PeerView, PortView, QpView};
use telereduce::shm::snapshot::{ErrorJson, LatencyJson, Object};

/// The lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Ports.
    Ports = 0,
    /// Queue pairs.
    Qps = 1,
    /// Peers.
    Peers = 2,
    /// Paths: the lanes of multi-path, and the QPs that it leaves on one path.
    Paths = 3,
    /// Latency of ports and peers.
    Latency = 4,
    /// QPs with errors, and those that stand still.
    Errors = 5,
    /// Completion events.
    Events = 6,
    /// What is seen, and what is not.
    Doctor = 7,
}

impl View {
    /// All, in the order of Tab.
    pub const ALL: [View; 8] =
        [View::Ports, View::Qps, View::Peers, View::Paths, View::Latency, View::Errors, View::Events, View::Doctor];

    /// Its tab.
    pub fn title(self) -> &'static str {
        ["Ports", "QPs", "Peers", "Paths", "Latency", "Errors", "Events", "Doctor"][self as usize]
    }

    /// Its tab where there is little room.
    pub fn short(self) -> &'static str {
        ["Ports", "QPs", "Peers", "Paths", "Lat", "Err", "Ev", "Doc"][self as usize]
    }

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        ["ports", "qps", "peers", "paths", "latency", "errors", "events", "doctor"][self as usize]
    }

    /// The view of this name.
    pub fn named(name: &str) -> Option<View> {
        View::ALL.into_iter().find(|v| v.name() == name)
    }
}

/// What a row is about.
#[derive(Clone, Copy)]
pub enum Item<'a> {
    /// A port.
    Port(&'a PortView),
    /// A peer.
    Peer(&'a PeerView),
    /// A QP.
    Qp(&'a QpView),
    /// A lane.
    Lane(&'a LaneView),
}

/// One row.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// Its process.
    pub process: &'a Process,
    /// Where it stands in the process's list.
    pub position: usize,
    /// What it is.
    pub item: Item<'a>,
}

impl<'a> Row<'a> {
    /// The row at `at` = (process, position) of a view.
    pub fn at(frame: &'a Frame, view: View, (process, position): (u32, u32)) -> Option<Row<'a>> {
        let process = frame.processes.get(process as usize)?;
        let position = position as usize;
        let item = match view {
            View::Ports => Item::Port(process.now.ports.get(position)?),
            View::Qps => Item::Qp(process.now.qps.get(position)?),
            View::Peers => Item::Peer(process.now.peers.get(position)?),
            View::Latency => match position.checked_sub(process.now.ports.len()) {
                None => Item::Port(&process.now.ports[position]),
                Some(position) => {
                    return Some(Row { process, position, item: Item::Peer(process.now.peers.get(position)?) });
                }
            },
            View::Errors => {
                let position = *process.troubled.get(position)? as usize;
                return Some(Row { process, position, item: Item::Qp(process.now.qps.get(position)?) });
            }
            View::Events | View::Doctor => return None,
            View::Paths => match position.checked_sub(process.now.lanes.len()) {
                None => Item::Lane(&process.now.lanes[position]),
                Some(i) => {
                    let position = *process.single.get(i)? as usize;
                    return Some(Row { process, position, item: Item::Qp(process.now.qps.get(position)?) });
                }
            },
        };
        Some(Row { process, position, item })
    }

    /// The row with identity `id`.
    pub fn find(frame: &'a Frame, id: RowId) -> Option<Row<'a>> {
        let process = frame.process(id.process)?;
        let (position, item) = match id.object {
            Object::Port(i) => (i as usize, Item::Port(process.now.ports.get(i as usize)?)),
            Object::Peer(i) => (i as usize, Item::Peer(process.now.peers.get(i as usize)?)),
            Object::Qp(i) => {
                let at = process.now.qps.binary_search_by_key(&i, |q| q.index).ok()?;
                (at, Item::Qp(&process.now.qps[at]))
            }
            Object::Lane(i) => {
                let at = process.now.lanes.binary_search_by_key(&i, |l| l.index).ok()?;
                (at, Item::Lane(&process.now.lanes[at]))
            }
        };
        Some(Row { process, position, item })
    }

    /// Its position in a view, as [`Row::at`] takes it.
    fn place_in(&self, view: View) -> Option<usize> {
        match (view, self.item) {
            (View::Paths, Item::Qp(_)) => {
                let i = self.process.single.binary_search(&(self.position as u32)).ok()?;
                Some(self.process.now.lanes.len() + i)
            }
            (View::Latency, Item::Peer(_)) => Some(self.process.now.ports.len() + self.position),
            (View::Errors, Item::Qp(_)) => self.process.troubled.binary_search(&(self.position as u32)).ok(),
            _ => Some(self.position),
        }
    }

    /// Its identity.
    pub fn id(&self) -> RowId {
        let object = match self.item {
            Item::Port(_) => Object::Port(self.position as u32),
            Item::Peer(_) => Object::Peer(self.position as u32),
            Item::Qp(q) => Object::Qp(q.index),
            Item::Lane(l) => Object::Lane(l.index),
        };
        RowId { process: self.process.id, object }
    }

    /// Its counters.
    pub fn line(&self) -> &'a Line {
        match self.item {
            Item::Port(p) => &p.line,
            Item::Peer(p) => &p.line,
            Item::Qp(q) => &q.line,
            Item::Lane(l) => &l.line,
        }
    }

    /// Its rates, from the second refresh on.
    pub fn rates(&self) -> Option<Rates> {
        match self.item {
            Item::Port(_) => self.process.port_rates(self.position),
            Item::Peer(_) => self.process.peer_rates(self.position),
            Item::Qp(_) => self.process.qp_rates(self.position),
            Item::Lane(_) => self.process.lane_rates(self.position),
        }
    }

    /// Bytes of completed sends per second over the last ten seconds, or since it is looked at.
    pub fn rate_of_ten_seconds(&self) -> Option<f64> {
        let created_ns = match self.item {
            Item::Qp(q) => q.created_ns,
            Item::Lane(l) => l.created_ns,
            _ => 0,
        };
        self.process.past.rate(self.id().object, created_ns, self.line().send.bytes_completed)
    }

    /// `device:port`.
    pub fn port_name(&self) -> &'a str {
        match self.item {
            Item::Port(_) => self.process.port_name(self.position as u32),
            Item::Peer(p) => self.process.port_name(p.port),
            Item::Qp(q) => self.process.port_name(q.port),
            Item::Lane(l) => self.process.port_name(l.port),
        }
    }

    /// The peer's name, `-` for ports.
    pub fn peer_name(&self) -> &'a str {
        match self.item {
            Item::Port(_) => "-",
            Item::Peer(_) => self.process.peer_name(self.position as u32),
            Item::Qp(q) => self.process.peer_name(q.peer),
            Item::Lane(_) => self.process.lane_names.get(self.position).map_or("-", |n| &n.1),
        }
    }

    /// The rank at its far end, where it is known.
    pub fn peer_rank(&self) -> Option<u64> {
        let ranks = match self.item {
            Item::Qp(_) => &self.process.ranks_of_qps,
            Item::Peer(_) => &self.process.ranks_of_peers,
            _ => return None,
        };
        ranks.get(self.position).copied().flatten()
    }

    /// What NCCL used a QP for last, if it said so.
    pub fn nccl(&self) -> Option<&'a Attribution> {
        match self.item {
            Item::Qp(_) => self.process.now.labels.get(self.position)?.last.as_ref(),
            _ => None,
        }
    }

    /// Why multi-path uses one path for it; `-` for all but QPs, and where it does not.
    pub fn why(&self) -> &'static str {
        match self.item {
            Item::Qp(q) => self.process.multipath_of(q).and_then(|m| m.single).map_or("-", Single::name),
            _ => "-",
        }
    }

    /// The path's own address; of a QP, why it has no others.
    pub fn local_name(&self) -> &'a str {
        match self.item {
            Item::Qp(_) => self.why(),
            Item::Lane(_) => self.process.lane_names.get(self.position).map_or("-", |n| &n.0),
            _ => "-",
        }
    }

    /// Its latency, where the view wants it.
    pub fn latency(&self) -> Option<&'a LatencyJson> {
        match self.item {
            Item::Port(_) => self.process.extra.ports.get(self.position),
            Item::Peer(_) => self.process.extra.peers.get(self.position),
            _ => None,
        }
    }

    /// The last error of a QP, where the view wants it.
    pub fn last_error(&self) -> Option<&'a ErrorJson> {
        match self.item {
            Item::Qp(q) => self.process.extra.error_of(q.index),
            _ => None,
        }
    }

    /// For how long a QP has had sends outstanding of which none completed, ns.
    pub fn stuck_ns(&self) -> u64 {
        match self.item {
            Item::Qp(q) => self.process.stuck_ns(q),
            _ => 0,
        }
    }

    /// Whether the object still exists.
    pub fn alive(&self) -> bool {
        self.process.alive
            && match self.item {
                Item::Qp(q) => q.live,
                Item::Lane(l) => l.live,
                _ => true,
            }
    }
}

/// A substring that rows must have in device, peer, QP number, command, pid or rank. Case does not matter.
pub struct Filter(String);

impl Filter {
    /// Of what the user typed.
    pub fn new(text: &str) -> Filter {
        Filter(text.trim().to_lowercase())
    }

    /// Whether it lets everything through.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `text` has it.
    pub fn has(&self, text: &str) -> bool {
        if self.0.is_empty() {
            return true;
        }
        if text.is_ascii() && self.0.is_ascii() {
            let (t, f) = (text.as_bytes(), self.0.as_bytes());
            return t.windows(f.len()).any(|w| w.eq_ignore_ascii_case(f));
        }
        text.to_lowercase().contains(&self.0)
    }

    /// Whether the process itself has it.
    pub fn process_has(&self, p: &Process) -> bool {
        self.has(&p.command)
            || self.has(&p.pid.to_string())
            || self.has(&p.host)
            || p.rank.is_some_and(|r| self.has(&r.to_string()) || self.has(&format!("rank {r}")))
    }

    fn row_has(&self, r: &Row) -> bool {
        self.has(r.port_name())
            || match r.item {
                Item::Port(_) => false,
                Item::Peer(_) => self.has(r.peer_name()),
                Item::Qp(q) => self.has(r.peer_name()) || self.has(&q.qp_num.to_string()) || self.has(r.why()),
                Item::Lane(l) => self.has(r.peer_name()) || self.has(r.local_name()) || self.has(&l.qp_num.to_string()),
            }
    }
}

/// How a list is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// By what.
    pub by: Col,
    /// Largest first.
    pub descending: bool,
}

/// All rows of a view that pass the filter, not yet in order; [`Rows::window`] sorts as much as is seen.
pub struct Rows<'a> {
    frame: &'a Frame,
    view: View,
    sort: Sort,
    keyed: Vec<(Key<'a>, (u32, u32))>,
    /// Place of each process by rank; empty where that does not matter.
    groups: Vec<u32>,
}

impl<'a> Rows<'a> {
    /// Collects them.
    pub fn new(frame: &'a Frame, view: View, filter: &str, sort: Sort) -> Rows<'a> {
        let filter = Filter::new(filter);
        let mut keyed = Vec::new();
        for (pi, p) in frame.processes.iter().enumerate() {
            let n = match view {
                View::Ports => p.now.ports.len(),
                View::Qps => p.now.qps.len(),
                View::Peers => p.now.peers.len(),
                View::Paths => p.now.lanes.len() + p.single.len(),
                View::Latency => p.now.ports.len() + p.now.peers.len(),
                View::Errors => p.troubled.len(),
                View::Events | View::Doctor => 0,
            };
            let all = filter.0.is_empty() || filter.process_has(p);
            keyed.reserve(n);
            for i in 0..n {
                let at = (pi as u32, i as u32);
                let Some(row) = Row::at(frame, view, at) else { continue };
                if all || filter.row_has(&row) {
                    keyed.push((sort.by.key(&row), at));
                }
            }
        }
        Rows { frame, view, sort, keyed, groups: Vec::new() }
    }

    /// Those of a rank stand together, in the order of host, rank and pid; sorted are those of a rank.
    pub fn by_rank(mut self) -> Rows<'a> {
        let key = |i: &u32| {
            let p = &self.frame.processes[*i as usize];
            (p.host.as_str(), p.rank.unwrap_or(u64::MAX), p.pid)
        };
        let mut order: Vec<u32> = (0..self.frame.processes.len() as u32).collect();
        order.sort_by(|a, b| key(a).cmp(&key(b)));
        self.groups = vec![0; order.len()];
        for (place, i) in (0..).zip(order) {
            self.groups[i as usize] = place;
        }
        self
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.keyed.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keyed.is_empty()
    }

    /// How many rows stand before the one with identity `id`; `None` if it is not among them.
    pub fn rank(&self, id: RowId) -> Option<usize> {
        let row = Row::find(self.frame, id)?;
        let process = self.frame.processes.iter().position(|p| p.id == id.process)?;
        let at = (process as u32, row.place_in(self.view)? as u32);
        let own = (self.sort.by.key(&row), at);
        let mut present = false;
        let mut before = 0;
        for k in &self.keyed {
            present |= k.1 == at;
            before += usize::from(order(&self.groups, self.sort.descending, k, &own) == Ordering::Less);
        }
        present.then_some(before)
    }

    /// The rows from place `start` up to `end` of the sorted list. Sorts those alone.
    pub fn window(&mut self, start: usize, end: usize) -> Vec<Row<'a>> {
        let end = end.min(self.keyed.len());
        let start = start.min(end);
        if start == end {
            return Vec::new();
        }
        let (d, groups) = (self.sort.descending, &self.groups);
        let by = |a: &(Key, (u32, u32)), b: &(Key, (u32, u32))| order(groups, d, a, b);
        if end < self.keyed.len() {
            self.keyed.select_nth_unstable_by(end - 1, by);
        }
        if start > 0 {
            self.keyed[..end].select_nth_unstable_by(start, by);
        }
        let part = &mut self.keyed[start..end];
        part.sort_unstable_by(by);
        part.iter().filter_map(|(_, at)| Row::at(self.frame, self.view, *at)).collect()
    }
}

/// By group and key; equal ones stay in the order of processes and records, whatever the direction.
fn order(groups: &[u32], descending: bool, a: &(Key, (u32, u32)), b: &(Key, (u32, u32))) -> Ordering {
    let o = a.0.order(&b.0);
    let o = if descending { o.reverse() } else { o };
    let group = |k: &(Key, (u32, u32))| groups.get(k.1.0 as usize);
    group(a).cmp(&group(b)).then(o).then(a.1.cmp(&b.1))
}
