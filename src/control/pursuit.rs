//! Where a claim goes next: the well-known ports in their order, where it is sent on to, and again a little later.

use super::Reason;
use super::wire::Psns;

/// Consecutive well-known ports: one per user of a network namespace.
pub const BASE_PORTS: u16 = 8;

/// How often one process may send a claim on to another.
pub const MAX_REDIRECTS: u8 = 3;

/// After how long a claim that failed is tried once more, ns: each once.
pub const RETRY_NS: [u64; 4] = [200_000_000, 1_000_000_000, 4_000_000_000, 10_000_000_000];

/// A claim of this side without a final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pursuit {
    /// What is known of this side's QP.
    pub psns: Psns,
    /// When it goes on; `None` while it is with a link.
    pub wait_until_ns: Option<u64>,
    /// Number of the question that waits for its answer; answers to earlier ones count no more.
    pub ticket: u64,
    slot: u16,
    elsewhere: Option<u16>,
    redirects: u8,
    retries: usize,
    /// Of what failed in this round, the most telling.
    worst: Option<Reason>,
    /// Of what failed in the round before.
    before: Option<Reason>,
}

/// What to do with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask at [`Pursuit::port`].
    Ask,
    /// Wait for [`Pursuit::wait_until_ns`].
    Wait,
    /// It came to nothing.
    GiveUp(Reason),
}

impl Pursuit {
    /// A claim that was asked nowhere yet. `elsewhere`: the own port of the QP's owner, if it is known.
    pub fn new(psns: Psns, elsewhere: Option<u16>) -> Pursuit {
        Pursuit {
            psns,
            wait_until_ns: None,
            ticket: 0,
            slot: 0,
            elsewhere,
            redirects: 0,
            retries: 0,
            worst: None,
            before: None,
        }
    }

    /// Why it came to nothing in the last round that is over.
    pub fn last_failure(&self) -> Option<Reason> {
        self.before
    }

    /// Where to ask now.
    pub fn port(&self, base_port: u16) -> u16 {
        self.elsewhere.unwrap_or(base_port.saturating_add(self.slot))
    }

    /// The owner listens at `port`.
    pub fn redirected(&mut self, port: u16, now_ns: u64) -> Next {
        if self.redirects >= MAX_REDIRECTS {
            return self.failed(Reason::Redirects, now_ns);
        }
        self.redirects += 1;
        self.elsewhere = Some(port);
        Next::Ask
    }

    /// Asking there failed.
    pub fn failed(&mut self, reason: Reason, now_ns: u64) -> Next {
        let worst = match self.worst {
            Some(before) if telling(before) >= telling(reason) => before,
            _ => reason,
        };
        self.worst = Some(worst);
        if self.elsewhere.is_none() && self.slot + 1 < BASE_PORTS && others_may_know(reason) {
            self.slot += 1;
            return Next::Ask;
        }
        match RETRY_NS.get(self.retries) {
            Some(delay_ns) if worst.may_pass() => {
                let retries = self.retries + 1;
                let wait_until_ns = Some(now_ns.saturating_add(*delay_ns));
                *self = Pursuit { retries, wait_until_ns, before: Some(worst), ..Pursuit::new(self.psns, None) };
                Next::Wait
            }
            _ => Next::GiveUp(worst),
        }
    }
}

/// Of several reasons of one round, the one that counts: what the owner of the QP may have said.
fn telling(reason: Reason) -> u8 {
    match reason {
        Reason::Refused => 0,
        Reason::UnknownQp => 1,
        r if !r.may_pass() => 2,
        _ => 3,
    }
}

/// Whether the next of the well-known ports is worth asking: not if the host itself does not answer, if this process has
/// no means to ask, or if the QP's owner has spoken. (A process that reaches itself at the port that it shares is not the
/// owner of the peer's QP.)
fn others_may_know(reason: Reason) -> bool {
    use Reason::*;
    !matches!(reason, NoAnswer | Unreachable | Local | Limit | NotConnected | Epoch | Address | Duplicate | Redirects)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u16 = 1000;

    fn pursuit() -> Pursuit {
        Pursuit::new(Psns::UNKNOWN, None)
    }

    /// Fails with `reasons` in turn; the ports asked and the end of the round.
    fn round(p: &mut Pursuit, reasons: &[Reason]) -> (Vec<u16>, Next) {
        let mut ports = Vec::new();
        for r in reasons {
            ports.push(p.port(BASE));
            match p.failed(*r, 0) {
                Next::Ask => {}
                end => return (ports, end),
            }
        }
        panic!("still asking after {ports:?}")
    }

    #[test]
    fn the_well_known_ports_are_asked_in_order() {
        let (ports, end) = round(&mut pursuit(), &[Reason::Refused; 8]);
        assert_eq!((ports, end), ((1000..1008).collect(), Next::Wait));
        let mut p = pursuit();
        assert_eq!(p.last_failure(), None);
        round(&mut p, &[Reason::Refused; 8]);
        assert_eq!(p.last_failure(), Some(Reason::Refused));
    }

    #[test]
    fn a_host_that_does_not_answer_is_not_asked_eight_times() {
        assert_eq!(round(&mut pursuit(), &[Reason::NoAnswer]), (vec![1000], Next::Wait));
    }

    #[test]
    fn the_owner_s_word_counts() {
        let (_, end) = round(&mut pursuit(), &[Reason::Refused, Reason::UnknownQp, Reason::Epoch]);
        assert_eq!(end, Next::GiveUp(Reason::Epoch));
        let mut all = vec![Reason::Version];
        all.extend([Reason::Refused; 7]);
        assert_eq!(round(&mut pursuit(), &all).1, Next::GiveUp(Reason::Version));
        all[3] = Reason::Silent;
        assert_eq!(round(&mut pursuit(), &all).1, Next::Wait);
    }

    #[test]
    fn retries_and_redirects_are_bounded() {
        let mut p = pursuit();
        for delay in RETRY_NS {
            assert_eq!(p.failed(Reason::NotConnected, 7), Next::Wait);
            assert_eq!(p.wait_until_ns, Some(7 + delay));
        }
        assert_eq!(p.failed(Reason::NotConnected, 7), Next::GiveUp(Reason::NotConnected));
        let mut p = pursuit();
        for port in 1..=u16::from(MAX_REDIRECTS) {
            assert_eq!((p.redirected(port, 0), p.port(BASE)), (Next::Ask, port));
        }
        assert_eq!(p.redirected(9, 0), Next::GiveUp(Reason::Redirects));
    }

    #[test]
    fn a_retry_starts_from_the_first_port() {
        let mut p = pursuit();
        p.redirected(9, 0);
        assert_eq!(p.failed(Reason::Refused, 0), Next::Wait);
        assert_eq!(p.port(BASE), BASE);
    }
}
