//! One connection between two processes' shims, as a state machine: bytes and the time in, events and bytes out.
//!
//! ```text
//! dialler                          listener
//!    Hello  ---------------------->          without a secret, both are ready here
//!           <----------------------  Hello
//!    Proof  ---------------------->          the one who came proves first: who listens gives nothing away
//!           <----------------------  Proof
//!    Claim  <--------------------->  Claim   either side, any number
//!    lanes  <--------------------->  lanes   only once a claim was accepted
//!    Bye    <--------------------->  Bye
//! ```
//!
//! It knows no socket and no clock. Whatever goes wrong ends it with a [`Reason`], which the other side is told if the
//! connection still carries it.

use super::Reason;
use super::secret::{Secret, Side, Transcript};
use super::wire::{
    Accept, Bye, Claim, Decoder, Hello, HelloHead, MAX_FRAME_BYTES, Message, ProcessId, Psns, QpPair, Redirect, Refuse,
};
use std::net::IpAddr;
use std::sync::Arc;

/// Time for the connection, both greetings and both proofs together, ns.
pub const HANDSHAKE_NS: u64 = 1_000_000_000;

/// Time for the answer to a claim, ns.
pub const ANSWER_NS: u64 = 1_000_000_000;

/// How long a connection may stay without any claim having been accepted, after it was last asked or answered, ns.
pub const IDLE_NS: u64 = 10_000_000_000;

/// Claims of one side that may wait for their answers.
pub const MAX_CLAIMS: usize = 64;

/// Most bytes that may wait to be sent.
pub const MAX_OUTGOING_BYTES: usize = 64 << 10;

/// What a session is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// This end.
    pub side: Side,
    /// Address of this end.
    pub my_ip: IpAddr,
    /// Address of the other end.
    pub their_ip: IpAddr,
    /// This process.
    pub process: ProcessId,
    /// Fresh random bytes.
    pub nonce: [u8; 32],
    /// This process's own port at `my_ip`, 0 = none.
    pub own_port: u16,
    /// The secret, if there is one.
    pub secret: Option<Arc<Secret>>,
}

/// Answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The QPs are connected; the answerer's PSNs.
    Accepted(Psns, u32),
    /// They are not, or no answer came.
    Refused(Reason),
    /// The QP is another process's, which listens at this port of the same address.
    Elsewhere(u16),
}

/// What came of bytes or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is over: claims may be made.
    Ready,
    /// To be answered at once with [`Session::answer`].
    Claim(Claim),
    /// To the claim of that number.
    Answered(u32, Answer),
    /// A message about lanes or QPs, to be passed on.
    Message(Message),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    Proving,
    Ready,
    Over(Reason),
}

/// One end of a connection.
pub struct Session {
    setup: Setup,
    hello: Hello,
    peer: Option<Hello>,
    state: State,
    decoder: Decoder,
    outgoing: Vec<u8>,
    /// End of the handshake, later of idleness.
    deadline_ns: u64,
    /// Whether any claim was accepted, by either side.
    proven: bool,
    next_claim: u32,
    /// Claims without an answer, with their deadlines: the oldest first.
    claims: Vec<(u32, u64)>,
}

impl Session {
    /// Starts a connection's life: for the dialler before it is connected, so that its time counts.
    pub fn new(setup: Setup, now_ns: u64) -> Session {
        let hello = Hello {
            head: HelloHead,
            process: setup.process,
            nonce: setup.nonce,
            secret: setup.secret.is_some(),
            own_port: setup.own_port,
        };
        let mut session = Session {
            hello,
            peer: None,
            state: State::Greeting,
            decoder: Decoder::default(),
            outgoing: Vec::new(),
            deadline_ns: now_ns.saturating_add(HANDSHAKE_NS),
            proven: false,
            next_claim: 0,
            claims: Vec::new(),
            setup,
        };
        if session.setup.side == Side::Dialler {
            session.put(&hello.into());
        }
        session
    }

    /// Takes bytes from the front of `input` until something comes of them, or all are taken (`None`).
    ///
    /// # Errors
    /// The session is over; why.
    pub fn receive(&mut self, input: &mut &[u8], now_ns: u64) -> Result<Option<Event>, Reason> {
        loop {
            if let State::Over(reason) = self.state {
                return Err(reason);
            }
            let Some(message) = self.decoder.next(input).or_else(|r| self.fail(r))? else { return Ok(None) };
            if let Some(event) = self.handle(message, now_ns).or_else(|r| self.fail(r))? {
                return Ok(Some(event));
            }
        }
    }

    fn handle(&mut self, message: Message, now_ns: u64) -> Result<Option<Event>, Reason> {
        match (self.state, message) {
            (_, Message::Bye(bye)) => {
                self.state = State::Over(bye.reason);
                Err(bye.reason)
            }
            (State::Greeting, Message::Hello(hello)) => self.greet(hello, now_ns),
            (State::Proving, Message::Proof(proof)) => {
                let (secret, transcript) = self.secret_and_transcript().ok_or(Reason::Order)?;
                secret.check(self.setup.side.other(), &transcript, &proof)?;
                if self.setup.side == Side::Listener {
                    self.prove()?;
                }
                Ok(Some(self.ready(now_ns)))
            }
            (State::Ready, Message::Claim(claim)) => {
                self.deadline_ns = now_ns.saturating_add(IDLE_NS);
                Ok(Some(Event::Claim(claim)))
            }
            (State::Ready, Message::Accept(a)) => {
                let event = self.answered(a.id, Answer::Accepted(a.psns, a.pool), now_ns)?;
                self.proven |= event.is_some();
                Ok(event)
            }
            (State::Ready, Message::Refuse(r)) => self.answered(r.id, Answer::Refused(r.reason), now_ns),
            (State::Ready, Message::Redirect(r)) => self.answered(r.id, Answer::Elsewhere(r.port), now_ns),
            (State::Ready, Message::Hello(_) | Message::Proof(_)) => Err(Reason::Order),
            (State::Ready, other) if self.proven => Ok(Some(Event::Message(other))),
            _ => Err(Reason::Order),
        }
    }

    fn greet(&mut self, hello: Hello, now_ns: u64) -> Result<Option<Event>, Reason> {
        if hello.process == self.setup.process {
            return Err(Reason::Loopback);
        }
        if hello.secret != self.hello.secret {
            return Err(Reason::SecretMissing);
        }
        self.peer = Some(hello);
        if self.setup.side == Side::Listener {
            self.put(&self.hello.into());
        }
        if self.setup.secret.is_none() {
            return Ok(Some(self.ready(now_ns)));
        }
        self.state = State::Proving;
        if self.setup.side == Side::Dialler {
            self.prove()?;
        }
        Ok(None)
    }

    fn secret_and_transcript(&self) -> Option<(Arc<Secret>, Transcript)> {
        let (s, peer) = (&self.setup, self.peer?);
        let transcript = match s.side {
            Side::Dialler => {
                Transcript { dialler_ip: s.my_ip, listener_ip: s.their_ip, dialler: self.hello, listener: peer }
            }
            Side::Listener => {
                Transcript { dialler_ip: s.their_ip, listener_ip: s.my_ip, dialler: peer, listener: self.hello }
            }
        };
        Some((s.secret.clone()?, transcript))
    }

    fn prove(&mut self) -> Result<(), Reason> {
        let (secret, transcript) = self.secret_and_transcript().ok_or(Reason::Order)?;
        self.put(&secret.proof(self.setup.side, &transcript).into());
        Ok(())
    }

    fn ready(&mut self, now_ns: u64) -> Event {
        self.state = State::Ready;
        self.deadline_ns = now_ns.saturating_add(IDLE_NS);
        Event::Ready
    }

    /// An answer to a claim: to none that waits if it comes too late, which is no fault of the peer's.
    fn answered(&mut self, id: u32, answer: Answer, now_ns: u64) -> Result<Option<Event>, Reason> {
        if id >= self.next_claim {
            return Err(Reason::Order);
        }
        let Some(at) = self.claims.iter().position(|c| c.0 == id) else { return Ok(None) };
        self.claims.remove(at);
        self.deadline_ns = now_ns.saturating_add(IDLE_NS);
        Ok(Some(Event::Answered(id, answer)))
    }

    /// What has come of the time alone: to be called until it gives `None`, at [`Session::deadline_ns`] or later.
    ///
    /// # Errors
    /// The session is over: [`Reason::Silent`] or [`Reason::Idle`].
    pub fn expire(&mut self, now_ns: u64) -> Result<Option<Event>, Reason> {
        match self.state {
            State::Over(reason) => Err(reason),
            State::Greeting | State::Proving if self.deadline_ns <= now_ns => self.fail(Reason::Silent),
            State::Greeting | State::Proving => Ok(None),
            State::Ready => match self.claims.first() {
                Some(&(_, deadline_ns)) if deadline_ns > now_ns => Ok(None),
                // Others may be there who answer: this connection was of no use.
                Some(_) if !self.proven => self.fail(Reason::Silent),
                Some(&(id, _)) => {
                    self.claims.remove(0);
                    Ok(Some(Event::Answered(id, Answer::Refused(Reason::Silent))))
                }
                None if !self.proven && self.deadline_ns <= now_ns => self.fail(Reason::Idle),
                None => Ok(None),
            },
        }
    }

    /// When [`Session::expire`] has something to do; `None`: never, unless something arrives.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.state {
            State::Over(_) => None,
            State::Greeting | State::Proving => Some(self.deadline_ns),
            State::Ready => self.claims.first().map(|c| c.1).or((!self.proven).then_some(self.deadline_ns)),
        }
    }

    /// Claims a pair of QPs; the claim's number, or `None` while [`MAX_CLAIMS`] wait.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn claim(&mut self, pair: QpPair, psns: Psns, pool: u32, now_ns: u64) -> Result<Option<u32>, Reason> {
        if self.claims.len() >= MAX_CLAIMS {
            return Ok(None);
        }
        let id = self.next_claim;
        self.send(&Claim { id, pair, psns, pool }.into())?;
        self.next_claim = id.checked_add(1).ok_or(Reason::Limit).or_else(|r| self.fail(r))?;
        self.claims.push((id, now_ns.saturating_add(ANSWER_NS)));
        Ok(Some(id))
    }

    /// Answers the peer's claim of that number.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn answer(&mut self, id: u32, answer: Answer) -> Result<(), Reason> {
        self.proven |= matches!(answer, Answer::Accepted(..));
        self.send(&match answer {
            Answer::Accepted(psns, pool) => Accept { id, psns, pool }.into(),
            Answer::Refused(reason) => Refuse { id, reason }.into(),
            Answer::Elsewhere(port) => Redirect { id, port }.into(),
        })
    }

    /// Sends a message of a session that is ready.
    ///
    /// # Errors
    /// The session is over: [`Reason::Backlog`] if this message found no room, [`Reason::Order`] if it is not ready.
    pub fn send(&mut self, message: &Message) -> Result<(), Reason> {
        match self.state {
            State::Over(reason) => Err(reason),
            State::Ready if self.outgoing.len() + MAX_FRAME_BYTES > MAX_OUTGOING_BYTES => self.fail(Reason::Backlog),
            State::Ready => {
                self.put(message);
                Ok(())
            }
            State::Greeting | State::Proving => self.fail(Reason::Order),
        }
    }

    fn put(&mut self, message: &Message) {
        message.encode(&mut self.outgoing);
    }

    /// Bytes to be sent.
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing
    }

    /// The first `bytes` of [`Session::outgoing`] are sent.
    pub fn sent(&mut self, bytes: usize) {
        self.outgoing.drain(..bytes.min(self.outgoing.len()));
        if self.outgoing.is_empty() && self.outgoing.capacity() > MAX_FRAME_BYTES {
            self.outgoing = Vec::new();
        }
    }

    /// Ends the session, with a farewell that says why.
    pub fn close(&mut self, reason: Reason) {
        if !matches!(self.state, State::Over(_)) {
            self.put(&Bye { reason }.into());
            self.state = State::Over(reason);
        }
    }

    /// Ends the session, and says so in two ways.
    fn fail<T>(&mut self, reason: Reason) -> Result<T, Reason> {
        self.close(reason);
        Err(reason)
    }

    /// The peer's greeting, once it has come.
    pub fn peer(&self) -> Option<&Hello> {
        self.peer.as_ref()
    }

    /// Whether claims may be made.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Whether any claim was accepted, by either side.
    pub fn is_proven(&self) -> bool {
        self.proven
    }

    /// What it was made of.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
