//! Claims: how the peer's are answered, and how this side's are pursued.

use super::{Action, Ask, Hub, Route};
use crate::control::api::{Event, LinkId, Tally};
use crate::control::pursuit::Next;
use crate::control::secret::{Side, random};
use crate::control::session::Answer;
use crate::control::wire::{Claim, ProcessId, Psns, QpGoing, QpPair};
use crate::control::{Reason, gid};
use core::sync::atomic::Ordering::Relaxed;
use std::net::SocketAddr;

impl Hub {
    /// Answers the peer's claim.
    pub(super) fn answer(&mut self, link: LinkId, claim: &Claim, now_ns: u64) {
        let Some(l) = self.links.get(&link) else { return };
        let (setup, process) = (l.session.setup(), l.session.peer().map(|p| p.process).unwrap_or_default());
        let pair = claim.pair.swapped();
        let here = gid::ip(pair.mine.gid) == Ok(setup.my_ip) && gid::ip(pair.yours.gid) == Ok(setup.their_ip);
        let own_port = setup.own_port;
        let answer = match self.parts.qps.find(&pair.mine) {
            _ if !here => Answer::Refused(Reason::Address),
            None => match self.parts.directory.port_of(&pair.mine) {
                Some(port) if port != own_port && port != 0 => Answer::Elsewhere(port),
                _ => Answer::Refused(Reason::UnknownQp),
            },
            Some(qp) if qp.peer != Some(pair.yours) => Answer::Refused(Reason::NotConnected),
            Some(qp) if !qp.psns.match_peer(claim.psns) => Answer::Refused(Reason::Epoch),
            // The peer's side of the other connection is gone, this side's not yet: it will be.
            Some(_) if self.pairs.get(&pair).is_some_and(|(other, _)| *other != link) => {
                Answer::Refused(Reason::Duplicate)
            }
            Some(qp) => Answer::Accepted(qp.psns, qp.pool),
        };
        if let Answer::Refused(reason) = answer {
            Tally::count(&self.parts.tally.refused, reason);
        }
        if let Some(l) = self.links.get_mut(&link)
            && let Err(reason) = l.session.answer(claim.id, answer)
        {
            return self.end(link, reason, now_ns);
        }
        if matches!(answer, Answer::Accepted(..)) {
            // An answer to a claim of our own may still come; the pair will be there by then.
            self.pursuits.remove(&pair);
            self.pair(pair, link, process, (claim.psns, claim.pool));
        }
    }

    /// Our claim was answered.
    pub(super) fn answered(&mut self, link: LinkId, (pair, ticket): Ask, answer: Answer, now_ns: u64) {
        let Some(pursuit) = self.pursuits.get_mut(&pair) else {
            // Forgotten meanwhile, and the peer must not rely on it; or paired meanwhile by the peer's own claim.
            if matches!(answer, Answer::Accepted(..)) && self.pairs.get(&pair).is_none_or(|p| p.0 != link) {
                self.send(link, &QpGoing { pair, epoch: QpGoing::NOBODY }.into(), now_ns);
            }
            return;
        };
        if pursuit.ticket != ticket {
            return;
        }
        let next = match answer {
            Answer::Accepted(psns, pool) => return self.accepted_there(link, pair, (psns, pool), now_ns),
            Answer::Elsewhere(port) => pursuit.redirected(port, now_ns),
            Answer::Refused(reason) => pursuit.failed(reason, now_ns),
        };
        self.go_on(pair, next, now_ns);
    }

    /// The peer says yes. Our QP may have moved on, unless it is just as the peer says.
    fn accepted_there(&mut self, link: LinkId, pair: QpPair, (psns, pool): (Psns, u32), now_ns: u64) {
        let Some(process) = self.links.get(&link).and_then(|l| l.session.peer()).map(|p| p.process) else { return };
        let against = match self.parts.qps.find(&pair.mine) {
            Some(qp) if qp.peer == Some(pair.yours) => (!qp.psns.match_peer(psns)).then_some(Reason::Epoch),
            _ => Some(Reason::NotConnected),
        };
        self.pursuits.remove(&pair);
        match against {
            None => self.pair(pair, link, process, (psns, pool)),
            Some(reason) => {
                self.send(link, &QpGoing { pair, epoch: QpGoing::NOBODY }.into(), now_ns);
                self.give_up(pair, reason);
            }
        }
    }

    fn pair(&mut self, pair: QpPair, link: LinkId, process: ProcessId, (psns, pool): (Psns, u32)) {
        let Some(l) = self.links.get_mut(&link) else { return };
        l.pairs.insert(pair);
        let before = self.pairs.insert(pair, (link, psns));
        if !before.is_some_and(|(l, p)| l == link && p.agree(psns)) {
            self.parts.tally.paired.fetch_add(1, Relaxed);
            self.events.push_back(Event::Paired { pair, link, process, psns, pool });
        }
    }

    /// The own port of the process of this host that owns the peer's QP: no need to ask another.
    pub(super) fn owner_here(&self, pair: &QpPair) -> Option<u16> {
        self.parts.directory.port_of(&pair.yours).filter(|port| *port != 0)
    }

    /// Whether the peer's QP is this process's, too, as far as is known: it is from its own RTR on.
    pub(super) fn is_own(&self, pair: &QpPair) -> bool {
        self.parts.qps.find(&pair.yours).is_some()
    }

    /// As [`Hub::ask`], after some time: the owner may have appeared.
    pub(super) fn ask_again(&mut self, pair: QpPair, now_ns: u64) {
        if self.is_own(&pair) {
            return self.give_up(pair, Reason::Loopback);
        }
        let elsewhere = self.owner_here(&pair);
        if let Some(pursuit) = self.pursuits.get_mut(&pair) {
            pursuit.aim(elsewhere);
        }
        self.ask(pair, now_ns);
    }

    /// Asks where the pursuit says, over a connection that is there or a new one.
    pub(super) fn ask(&mut self, pair: QpPair, now_ns: u64) {
        let Some(pursuit) = self.pursuits.get_mut(&pair) else { return };
        self.last_ticket += 1;
        (pursuit.wait_until_ns, pursuit.ticket) = (None, self.last_ticket);
        let (Ok(from), Ok(ip)) = (gid::ip(pair.mine.gid), gid::ip(pair.yours.gid)) else { return };
        let route = (from, SocketAddr::new(ip, pursuit.port(self.parts.base_port)));
        let link = match self.routes.get(&route) {
            Some(link) => Ok(*link),
            None => self.dial(route, now_ns),
        };
        let link = match link {
            Ok(link) => link,
            Err(reason) => return self.failed((pair, self.last_ticket), reason, now_ns),
        };
        if let Some(l) = self.links.get_mut(&link) {
            l.waiting.push_back((pair, self.last_ticket));
        }
        self.pump(link, now_ns);
    }

    fn dial(&mut self, route: Route, now_ns: u64) -> Result<LinkId, Reason> {
        if let Some((reason, _)) = self.closed.get(&route).filter(|c| c.1 > now_ns) {
            return Err(*reason);
        }
        if !self.has_room(now_ns) {
            return Err(Reason::Limit);
        }
        let nonce = random().map_err(|_| Reason::Local)?;
        let link = self.add(Side::Dialler, route.0, route.1.ip(), nonce, now_ns);
        if let Some(l) = self.links.get_mut(&link) {
            l.routes.push(route);
        }
        self.routes.insert(route, link);
        self.actions.push_back(Action::Dial { link, from: route.0, to: route.1 });
        Ok(link)
    }

    /// Makes claims that wait for this link, as many as it takes.
    pub(super) fn pump(&mut self, link: LinkId, now_ns: u64) {
        while let Some(l) = self.links.get_mut(&link)
            && l.session.is_ready()
            && let Some((pair, ticket)) = l.waiting.front().copied()
        {
            let pursuit = self.pursuits.get(&pair).filter(|p| p.ticket == ticket);
            let pool = self.parts.qps.find(&pair.mine).map_or(0, |qp| qp.pool);
            match pursuit.map(|p| l.session.claim(pair, p.psns, pool, now_ns)) {
                // Forgotten, or paired by the peer's claim.
                None => _ = l.waiting.pop_front(),
                Some(Ok(Some(id))) => {
                    l.waiting.pop_front();
                    l.asked.insert(id, (pair, ticket));
                }
                Some(Ok(None)) => return,
                Some(Err(reason)) => self.end(link, reason, now_ns),
            }
        }
    }

    pub(super) fn failed(&mut self, (pair, ticket): Ask, reason: Reason, now_ns: u64) {
        let is_own = reason == Reason::Loopback && self.is_own(&pair);
        if let Some(pursuit) = self.pursuits.get_mut(&pair)
            && pursuit.ticket == ticket
        {
            let next = if is_own { Next::GiveUp(reason) } else { pursuit.failed(reason, now_ns) };
            self.go_on(pair, next, now_ns);
        }
    }

    fn go_on(&mut self, pair: QpPair, next: Next, now_ns: u64) {
        match next {
            Next::Ask => self.ask(pair, now_ns),
            Next::Wait => {
                if let Some(reason) = self.pursuits.get(&pair).and_then(|p| p.last_failure()) {
                    self.events.push_back(Event::Delayed { pair, reason });
                }
            }
            Next::GiveUp(reason) => self.give_up(pair, reason),
        }
    }

    pub(super) fn give_up(&mut self, pair: QpPair, reason: Reason) {
        self.pursuits.remove(&pair);
        Tally::count(&self.parts.tally.failed, reason);
        self.events.push_back(Event::Failed { pair, reason });
    }
}
