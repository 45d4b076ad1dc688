//! A network in memory for tests of hubs: hosts, processes, connections; the time stands still unless a test moves it.

use super::Reason;
use super::api::{Directory, Event, Limits, LinkId, OurQp, Qps, Tally};
use super::hub::{Action, Hub, Parts};
use super::secret::Secret;
use super::testing::{Random, Table};
use super::wire::{Message, Psns, QpAddr, QpPair};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub const BASE: u16 = 18516;
pub const SECOND: u64 = 1_000_000_000;

impl Qps for Table<OurQp> {
    fn find(&self, qp: &QpAddr) -> Option<OurQp> {
        self.get(qp)
    }
}

impl Directory for Table<u16> {
    fn port_of(&self, qp: &QpAddr) -> Option<u16> {
        self.get(qp)
    }
}

/// A process.
pub struct Node {
    pub hub: Hub,
    pub ip: IpAddr,
    pub qps: Table<OurQp>,
    pub own_port: u16,
    pub tally: Arc<Tally>,
    /// What its shim was told, but for delays.
    pub events: Vec<Event>,
    /// Why claims were put off.
    pub delays: Vec<Reason>,
}

/// One end of a connection.
type End = (usize, LinkId);

#[derive(Default)]
pub struct Net {
    pub nodes: Vec<Node>,
    pub now_ns: u64,
    /// Who listens where.
    pub listeners: HashMap<SocketAddr, Vec<usize>>,
    /// The other end of each end.
    ends: HashMap<End, End>,
    /// Bytes on their way, in order per end; `None`: it is closed.
    flying: VecDeque<(End, Option<Vec<u8>>)>,
    /// Connections made.
    pub dials: usize,
    /// If set, what arrives from this address seems to come from the other.
    pub disguise: Option<(IpAddr, IpAddr)>,
    /// If set, nothing that is dialled answers.
    pub deaf: bool,
    /// Of all processes added from now on.
    pub secret: Option<Arc<Secret>>,
}

impl Net {
    /// A process at 10.0.0.`host`, which listens at its own port and at the well-known one of `slot`.
    pub fn add(&mut self, name: u8, host: u8, slot: u16, directory: &Table<u16>, limits: Limits) -> usize {
        let (ip, node) = (IpAddr::from([10, 0, 0, host]), self.nodes.len());
        let (qps, tally, own_port) = (Table::default(), Arc::<Tally>::default(), 40_000 + node as u16);
        let mut hub = Hub::new(Parts {
            process: [name; 16],
            base_port: BASE,
            secret: self.secret.clone(),
            limits,
            qps: Box::new(qps.clone()),
            directory: Box::new(directory.clone()),
            tally: tally.clone(),
        });
        hub.set_own_port(ip, own_port);
        for port in [own_port, BASE + slot] {
            self.listeners.entry(SocketAddr::new(ip, port)).or_default().push(node);
        }
        self.nodes.push(Node { hub, ip, qps, own_port, tally, events: Vec::new(), delays: Vec::new() });
        node
    }

    /// Connects the QPs of two processes to each other, as both applications do; the pair as the first sees it.
    pub fn connect(&self, a: (usize, u32), b: (usize, u32)) -> QpPair {
        let pair = QpPair { mine: self.qp(a), yours: self.qp(b) };
        self.nodes[a.0].qps.set(pair.mine, OurQp { peer: Some(pair.yours), psns: Psns::UNKNOWN, pool: 7 });
        self.nodes[b.0].qps.set(pair.yours, OurQp { peer: Some(pair.mine), psns: Psns::UNKNOWN, pool: 7 });
        pair
    }

    pub fn qp(&self, (node, qpn): (usize, u32)) -> QpAddr {
        QpAddr { gid: super::gid::from_ip(self.nodes[node].ip), qpn }
    }

    pub fn claim(&mut self, node: usize, pair: QpPair) {
        let psns = self.nodes[node].qps.get(&pair.mine).map_or(Psns::UNKNOWN, |q| q.psns);
        self.nodes[node].hub.claim(pair, psns, self.now_ns);
        self.act(node);
    }

    pub fn send(&mut self, node: usize, link: LinkId, message: Message) {
        self.nodes[node].hub.send(link, &message, self.now_ns);
        self.act(node);
    }

    /// Does what a process's hub wants.
    fn act(&mut self, node: usize) {
        while let Some(action) = self.nodes[node].hub.take_action() {
            match action {
                Action::Dial { link, from, to } => self.dial((node, link), from, to),
                Action::Close { link, last } => self.close((node, link), last),
            }
        }
        let Node { hub, events, delays, .. } = &mut self.nodes[node];
        while let Some(event) = hub.take_event() {
            match event {
                Event::Delayed { reason, .. } => delays.push(reason),
                event => events.push(event),
            }
        }
        let ends: Vec<End> = self.ends.keys().filter(|e| e.0 == node).copied().collect();
        for end in ends {
            let hub = &mut self.nodes[node].hub;
            let bytes = hub.outgoing(end.1).to_vec();
            hub.sent(end.1, bytes.len());
            if !bytes.is_empty() {
                self.flying.push_back((self.ends[&end], Some(bytes)));
            }
        }
    }

    fn dial(&mut self, end: End, from: IpAddr, to: SocketAddr) {
        self.dials += 1;
        if self.deaf {
            return;
        }
        let Some(nodes) = self.listeners.get(&to).filter(|n| !n.is_empty()) else {
            self.nodes[end.0].hub.lost(end.1, Reason::Refused, self.now_ns);
            return;
        };
        let node = nodes[self.dials % nodes.len()];
        let seems = self.disguise.filter(|d| d.0 == from).map_or(from, |d| d.1);
        match self.nodes[node].hub.accepted(to.ip(), seems, [9; 32], self.now_ns) {
            Ok(link) => {
                self.nodes[end.0].hub.connected(end.1);
                self.ends.insert(end, (node, link));
                self.ends.insert((node, link), end);
            }
            Err(_) => self.nodes[end.0].hub.lost(end.1, Reason::Lost, self.now_ns),
        }
        if node != end.0 {
            self.act(node);
        }
    }

    fn close(&mut self, end: End, last: Vec<u8>) {
        if let Some(other) = self.ends.remove(&end) {
            self.flying.push_back((other, Some(last)));
            self.flying.push_back((other, None));
        }
    }

    /// Delivers what is on its way, and what comes of that; `false`: there was nothing.
    pub fn deliver_one(&mut self) -> bool {
        let Some((end, bytes)) = self.flying.pop_front() else { return false };
        let hub = &mut self.nodes[end.0].hub;
        match bytes {
            Some(bytes) => hub.received(end.1, &bytes, self.now_ns),
            None => {
                hub.lost(end.1, Reason::Lost, self.now_ns);
                self.ends.remove(&end);
            }
        }
        self.act(end.0);
        true
    }

    /// Delivers until nothing is on its way.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.deliver_one() {
                return;
            }
        }
        panic!("the network does not come to rest");
    }

    /// Lets time pass, deadline by deadline.
    pub fn pass(&mut self, ns: u64) {
        let until = self.now_ns + ns;
        for _ in 0..100_000 {
            self.settle();
            let next = self.nodes.iter().filter_map(|n| n.hub.deadline_ns()).min();
            let Some(at) = next.filter(|at| *at <= until) else {
                self.now_ns = until;
                return;
            };
            self.now_ns = self.now_ns.max(at);
            for node in 0..self.nodes.len() {
                self.nodes[node].hub.tick(self.now_ns);
                self.act(node);
            }
        }
        panic!("time does not pass");
    }

    /// The network fails, and only one end notices.
    pub fn lose(&mut self, node: usize, link: LinkId) {
        if let Some(other) = self.ends.remove(&(node, link)) {
            self.ends.remove(&other);
        }
        self.nodes[node].hub.lost(link, Reason::Lost, self.now_ns);
        self.act(node);
    }

    /// Breaks a connection that is there, if any.
    pub fn break_one(&mut self, random: &mut Random) {
        let mut ends: Vec<End> = self.ends.keys().copied().collect();
        ends.sort();
        if ends.is_empty() {
            return;
        }
        let end = ends[random.below(ends.len())];
        if let Some(other) = self.ends.remove(&end) {
            self.ends.remove(&other);
            self.flying.retain(|(to, _)| *to != end && *to != other);
            for (node, link) in [end, other] {
                self.nodes[node].hub.lost(link, Reason::Lost, self.now_ns);
                self.act(node);
            }
        }
    }

    /// Moves one delivery of another end to the front.
    pub fn reorder(&mut self, random: &mut Random) {
        if let Some((end, _)) = self.flying.get(random.below(self.flying.len())) {
            let end = *end;
            let at = self.flying.iter().position(|(e, _)| *e == end).unwrap();
            let moved = self.flying.remove(at).unwrap();
            self.flying.push_front(moved);
        }
    }

    /// The links on which a process has paired this pair, in the order of events.
    pub fn paired(&self, node: usize, pair: QpPair) -> Vec<LinkId> {
        let link = |e: &Event| match e {
            Event::Paired { pair: p, link, .. } if *p == pair => Some(*link),
            _ => None,
        };
        self.nodes[node].events.iter().filter_map(link).collect()
    }

    /// How a process's claims of this pair failed.
    pub fn failures(&self, node: usize, pair: QpPair) -> Vec<Reason> {
        let reason = |e: &Event| match e {
            Event::Failed { pair: p, reason } if *p == pair => Some(*reason),
            _ => None,
        };
        self.nodes[node].events.iter().filter_map(reason).collect()
    }

    /// The other end of a link.
    pub fn other_end(&self, node: usize, link: LinkId) -> Option<End> {
        self.ends.get(&(node, link)).copied()
    }
}
