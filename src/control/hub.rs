//! All connections of one process, and the claims that travel over them; still without sockets or a clock.
//!
//! The driver (`rendezvous`) brings bytes, the time and the shim's wishes, and takes away [`Action`]s and [`Event`]s.
//!
//! - A claim goes to IP(the peer QP's GID), well-known port. Whoever of that host answers there accepts it, or sends it on
//!   to the QP's owner. Connections are kept and used for all further claims to the same address.
//! - A claim is accepted if it names a QP of ours that is connected to exactly the claimant's, if PSNs that both know
//!   match, and if both GIDs are the addresses of this very connection: nobody can claim for another host, since TCP's
//!   handshake proves an address. For that reason there is one connection per pair of processes *and of addresses*.
//!   (Without a shared secret, a host is trusted as a whole: whoever may listen at a well-known port of the peer's address
//!   can answer for QPs there. Where users do not trust each other, a job needs a secret.)
//! - Should two processes connect twice between the same addresses (both at once), the one with the smaller process id
//!   closes the newer as soon as it is ready, before anything was claimed on it; the other side moves its claims over.

use super::Reason;
use super::api::{Directory, Event, Limits, LinkId, Qps, Tally};
use super::gid;
use super::pursuit::Pursuit;
use super::secret::{Secret, Side};
use super::session::{self, Session, Setup};
use super::wire::{Bye, Message, ProcessId, Psns, QpGoing, QpPair, QpQuiet};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

mod claims;

/// How long a port where nothing answered is not dialled again: many QPs of one peer ask at about the same time. Shorter
/// than the shortest of `RETRY_NS`, so that every retry does dial.
const CLOSED_NS: u64 = 150_000_000;

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect: then bytes go both ways, or [`Hub::lost`].
    Dial {
        /// The connection's name.
        link: LinkId,
        /// Its address on this side.
        from: IpAddr,
        /// Where to.
        to: SocketAddr,
    },
    /// Send these last bytes as far as they go without waiting, and close.
    Close {
        /// Which connection.
        link: LinkId,
        /// Farewell.
        last: Vec<u8>,
    },
}

/// What a hub is made of.
pub struct Parts {
    /// This process's random name.
    pub process: ProcessId,
    /// First of the well-known ports.
    pub base_port: u16,
    /// The job's secret.
    pub secret: Option<Arc<Secret>>,
    /// Bounds.
    pub limits: Limits,
    /// This process's QPs.
    pub qps: Box<dyn Qps>,
    /// Other processes' QPs.
    pub directory: Box<dyn Directory>,
    /// Where to count.
    pub tally: Arc<Tally>,
}

/// Where a connection goes: address on this side, address and port on the other.
type Route = (IpAddr, SocketAddr);

/// A question on its way: the pair, and the pursuit's ticket.
type Ask = (QpPair, u64);

struct Link {
    session: Session,
    /// Whether the network has carried anything yet.
    connected: bool,
    /// Entries of `Hub::routes` that lead here.
    routes: Vec<Route>,
    /// Claims to be made once it is ready and has room.
    waiting: VecDeque<Ask>,
    /// Claims made, by their number.
    asked: HashMap<u32, Ask>,
    /// Pairs that it serves.
    pairs: HashSet<QpPair>,
}

/// The state machine.
pub struct Hub {
    parts: Parts,
    links: BTreeMap<LinkId, Link>,
    last_link: u64,
    last_ticket: u64,
    routes: HashMap<Route, LinkId>,
    pursuits: HashMap<QpPair, Pursuit>,
    /// Pairs that both sides agree on, with the link that serves them and the peer's PSNs.
    pairs: HashMap<QpPair, (LinkId, Psns)>,
    own_ports: HashMap<IpAddr, u16>,
    /// Where nothing answered a moment ago, why, and until when that is taken for granted.
    closed: HashMap<Route, (Reason, u64)>,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

impl Hub {
    /// A hub without connections.
    pub fn new(parts: Parts) -> Hub {
        Hub {
            parts,
            links: BTreeMap::new(),
            last_link: 0,
            last_ticket: 0,
            routes: HashMap::new(),
            pursuits: HashMap::new(),
            pairs: HashMap::new(),
            own_ports: HashMap::new(),
            closed: HashMap::new(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// This process listens at `port` of `ip`, alone.
    pub fn set_own_port(&mut self, ip: IpAddr, port: u16) {
        self.own_ports.insert(ip, port);
    }

    /// The next thing to do.
    pub fn take_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next thing to tell.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // ---- the shim's wishes

    /// Finds the peer of a QP that was connected just now; ends in [`Event::Paired`] or [`Event::Failed`]. Saying the same
    /// again does nothing, but for a claim that waits for its next try: that is made at once.
    pub fn claim(&mut self, pair: QpPair, psns: Psns, now_ns: u64) {
        if let Some(pursuit) = self.pursuits.get_mut(&pair) {
            let waits = pursuit.wait_until_ns.is_some();
            pursuit.psns = psns;
            if waits {
                self.ask_again(pair, now_ns);
            }
            return;
        }
        if let Some((_, peer)) = self.pairs.get(&pair) {
            if psns.match_peer(*peer) {
                return;
            }
            self.forget(&pair);
        }
        let against = match gid::ip(pair.mine.gid).and(gid::ip(pair.yours.gid)) {
            Err(reason) => Some(reason),
            Ok(_) if self.is_own(&pair) => Some(Reason::Loopback),
            Ok(_) => (self.pursuits.len() >= self.parts.limits.claims).then_some(Reason::Limit),
        };
        if let Some(reason) = against {
            return self.give_up(pair, reason);
        }
        let elsewhere = self.owner_here(&pair);
        self.pursuits.insert(pair, Pursuit::new(psns, elsewhere));
        self.ask(pair, now_ns);
    }

    /// The pair is no more: its QP left the state, and both sides are quiet. Says nothing to the peer. (Not needed for a
    /// pair of which [`QpGoing`] was received.)
    pub fn forget(&mut self, pair: &QpPair) {
        self.pursuits.remove(pair);
        if let Some((link, _)) = self.pairs.remove(pair)
            && let Some(link) = self.links.get_mut(&link)
        {
            link.pairs.remove(pair);
        }
    }

    /// Sends a message about lanes or QPs. If the link is gone, [`Event::Lost`] says or has said so.
    pub fn send(&mut self, link: LinkId, message: &Message, now_ns: u64) {
        if let Some(l) = self.links.get_mut(&link)
            && let Err(reason) = l.session.send(message)
        {
            self.end(link, reason, now_ns);
        }
    }

    /// Closes every connection and drops every claim.
    pub fn close(&mut self, now_ns: u64) {
        self.pursuits.clear();
        let all: Vec<LinkId> = self.links.keys().copied().collect();
        all.into_iter().for_each(|link| self.end(link, Reason::Closed, now_ns));
    }

    // ---- the network

    /// Somebody has connected from `theirs` to `mine`.
    ///
    /// # Errors
    /// There is no room: the bytes to send before closing.
    pub fn accepted(&mut self, mine: IpAddr, theirs: IpAddr, nonce: [u8; 32], now_ns: u64) -> Result<LinkId, Vec<u8>> {
        if !self.has_room(now_ns) {
            Tally::count(&self.parts.tally.ended, Reason::Limit);
            let mut last = Vec::new();
            Message::from(Bye { reason: Reason::Limit }).encode(&mut last);
            return Err(last);
        }
        let link = self.add(Side::Listener, mine, theirs, nonce, now_ns);
        self.make_room(now_ns);
        Ok(link)
    }

    /// Whether one more connection may be made; one that serves nothing at the moment makes room.
    fn has_room(&mut self, now_ns: u64) -> bool {
        if self.links.len() < self.parts.limits.links {
            return true;
        }
        let spare = |l: &Link| l.session.is_ready() && l.pairs.is_empty() && l.asked.is_empty() && l.waiting.is_empty();
        let Some(link) = self.links.iter().find(|(_, l)| spare(l)).map(|(id, _)| *id) else { return false };
        self.end(link, Reason::Idle, now_ns);
        true
    }

    /// Beyond the limit of connections that have proven nothing, drops the oldest of the address that has most of them.
    fn make_room(&mut self, now_ns: u64) {
        let unproven = |l: &Link| l.session.setup().side == Side::Listener && !l.session.is_proven();
        let mut by_ip: HashMap<IpAddr, (usize, LinkId)> = HashMap::new();
        let mut all = 0;
        for (id, link) in self.links.iter().filter(|(_, l)| unproven(l)) {
            let entry = by_ip.entry(link.session.setup().their_ip).or_insert((0, *id));
            *entry = (entry.0 + 1, entry.1.min(*id));
            all += 1;
        }
        if all > self.parts.limits.unproven
            && let Some((_, oldest)) = by_ip.into_values().max_by_key(|(n, id)| (*n, core::cmp::Reverse(*id)))
        {
            self.end(oldest, Reason::Crowded, now_ns);
        }
    }

    fn add(&mut self, side: Side, mine: IpAddr, theirs: IpAddr, nonce: [u8; 32], now_ns: u64) -> LinkId {
        self.last_link += 1;
        let setup = Setup {
            side,
            my_ip: mine,
            their_ip: theirs,
            process: self.parts.process,
            nonce,
            own_port: self.own_ports.get(&mine).copied().unwrap_or(0),
            secret: self.parts.secret.clone(),
        };
        let link = Link {
            session: Session::new(setup, now_ns),
            connected: side == Side::Listener,
            routes: Vec::new(),
            waiting: VecDeque::new(),
            asked: HashMap::new(),
            pairs: HashSet::new(),
        };
        self.links.insert(LinkId(self.last_link), link);
        LinkId(self.last_link)
    }

    /// A connection that was dialled is there.
    pub fn connected(&mut self, link: LinkId) {
        if let Some(l) = self.links.get_mut(&link) {
            l.connected = true;
        }
    }

    /// Bytes have come.
    pub fn received(&mut self, link: LinkId, mut bytes: &[u8], now_ns: u64) {
        while let Some(l) = self.links.get_mut(&link) {
            match l.session.receive(&mut bytes, now_ns) {
                Ok(Some(event)) => self.handle(link, event, now_ns),
                Ok(None) => return,
                Err(reason) => return self.end(link, reason, now_ns),
            }
        }
    }

    /// The connection is gone, or never came to be.
    pub fn lost(&mut self, link: LinkId, reason: Reason, now_ns: u64) {
        self.end(link, reason, now_ns);
    }

    /// Bytes to send.
    pub fn outgoing(&self, link: LinkId) -> &[u8] {
        self.links.get(&link).map_or(&[], |l| l.session.outgoing())
    }

    /// So many of them are sent.
    pub fn sent(&mut self, link: LinkId, bytes: usize) {
        if let Some(l) = self.links.get_mut(&link) {
            l.session.sent(bytes);
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64) {
        let due = |at: Option<u64>| at.is_some_and(|at| at <= now_ns);
        let links: Vec<LinkId> =
            self.links.iter().filter(|(_, l)| due(l.session.deadline_ns())).map(|(id, _)| *id).collect();
        for link in links {
            while let Some(l) = self.links.get_mut(&link) {
                match l.session.expire(now_ns) {
                    Ok(Some(event)) => self.handle(link, event, now_ns),
                    Ok(None) => break,
                    Err(Reason::Silent) if !l.connected => self.end(link, Reason::NoAnswer, now_ns),
                    Err(reason) => self.end(link, reason, now_ns),
                }
            }
        }
        let pairs: Vec<QpPair> =
            self.pursuits.iter().filter(|(_, p)| due(p.wait_until_ns)).map(|(pair, _)| *pair).collect();
        pairs.into_iter().for_each(|pair| self.ask_again(pair, now_ns));
    }

    /// When [`Hub::tick`] has something to do.
    pub fn deadline_ns(&self) -> Option<u64> {
        let links = self.links.values().filter_map(|l| l.session.deadline_ns());
        links.chain(self.pursuits.values().filter_map(|p| p.wait_until_ns)).min()
    }

    // ---- sessions

    fn handle(&mut self, link: LinkId, event: session::Event, now_ns: u64) {
        match event {
            session::Event::Ready => self.ready(link, now_ns),
            session::Event::Claim(claim) => self.answer(link, &claim, now_ns),
            session::Event::Answered(id, answer) => {
                if let Some(ask) = self.links.get_mut(&link).and_then(|l| l.asked.remove(&id)) {
                    self.answered(link, ask, answer, now_ns);
                    self.pump(link, now_ns);
                }
            }
            session::Event::Message(message) => self.message(link, message, now_ns),
        }
    }

    fn ready(&mut self, link: LinkId, now_ns: u64) {
        let Some(l) = self.links.get_mut(&link) else { return };
        let (setup, peer) = (l.session.setup(), l.session.peer().map(|p| (p.process, p.own_port)));
        let Some((process, port)) = peer else { return };
        let route = (setup.my_ip, SocketAddr::new(setup.their_ip, port));
        if port != 0
            && let std::collections::hash_map::Entry::Vacant(free) = self.routes.entry(route)
        {
            free.insert(link);
            l.routes.push(route);
        }
        if self.parts.process < process && self.twin(link).is_some() {
            return self.end(link, Reason::Duplicate, now_ns);
        }
        self.pump(link, now_ns);
    }

    /// Another connection that is ready, between the same processes and addresses.
    fn twin(&self, link: LinkId) -> Option<LinkId> {
        let ends = |l: &Link| Some((l.session.peer()?.process, l.session.setup().my_ip, l.session.setup().their_ip));
        let these = ends(self.links.get(&link)?)?;
        self.links.iter().find(|(id, l)| **id != link && l.session.is_ready() && ends(l) == Some(these)).map(|l| *l.0)
    }

    /// A message about lanes or QPs goes up. A QP that goes is no pair any more, from this moment on; if it was none of this
    /// link's, nobody here uses it, and the peer may know that at once.
    fn message(&mut self, link: LinkId, message: Message, now_ns: u64) {
        if let Message::QpGoing(QpGoing { pair, epoch }) = message {
            let pair = pair.swapped();
            if self.pairs.get(&pair).is_none_or(|p| p.0 != link) {
                return self.send(link, &QpQuiet { pair, epoch }.into(), now_ns);
            }
            self.forget(&pair);
        }
        if let Message::QpQuiet(QpQuiet { epoch: QpGoing::NOBODY, .. }) = message {
            return;
        }
        self.events.push_back(Event::Message { link, message });
    }

    /// Ends a connection: its claims go on elsewhere, its pairs are lost.
    fn end(&mut self, link: LinkId, reason: Reason, now_ns: u64) {
        let twin = if reason == Reason::Duplicate { self.twin(link) } else { None };
        let Some(mut l) = self.links.remove(&link) else { return };
        l.session.close(reason);
        self.actions.push_back(Action::Close { link, last: l.session.outgoing().to_vec() });
        Tally::count(&self.parts.tally.ended, reason);
        for route in &l.routes {
            self.routes.remove(route);
        }
        if let (false, Some(route)) = (l.connected, l.routes.first()) {
            self.closed.retain(|_, (_, until_ns)| *until_ns > now_ns);
            self.closed.insert(*route, (reason, now_ns.saturating_add(CLOSED_NS)));
        }
        if l.session.is_proven() {
            let pairs: Vec<QpPair> = l.pairs.into_iter().collect();
            pairs.iter().for_each(|pair| _ = self.pairs.remove(pair));
            self.events.push_back(Event::Lost { link, reason, pairs });
        }
        let claims = l.asked.into_values().chain(l.waiting);
        match twin.and_then(|id| Some((id, self.links.get_mut(&id)?))) {
            Some((twin, t)) => {
                // What led to the one leads to the other.
                self.routes.extend(l.routes.iter().map(|route| (*route, twin)));
                t.routes.extend(l.routes);
                t.waiting.extend(claims);
                self.pump(twin, now_ns);
            }
            None => claims.collect::<Vec<_>>().into_iter().for_each(|ask| self.failed(ask, reason, now_ns)),
        }
    }
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
