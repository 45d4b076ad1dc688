//! The receiving half of a QP: what is expected next, and what is executed, repeated or refused.
//!
//! The state is plain data without pointers: it lies in memory that both processes see, and whoever brings a packet runs it.

use super::packet::{Extra, Op, Packet, Refusal, Reply};
use super::psn;

/// How many atomics can be answered once more.
pub const REMEMBERED: usize = 32;

/// Why a packet was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No receive: the requester shall try again later.
    NotReady,
    /// For good. The QP goes to error.
    Refused(Refusal),
    /// The responder's memory is gone, and so is the packet.
    Lost,
}

/// What a responder needs done. Each call is final: it is not repeated for a packet that comes again.
pub trait Memory {
    /// Takes the next receive for a message.
    fn take_receive(&mut self) -> Result<(), Trouble>;
    /// Puts the packet's bytes into the receive that was taken.
    fn fill_receive(&mut self, packet: &Packet) -> Result<(), Trouble>;
    /// Puts the packet's bytes into registered memory.
    fn write(&mut self, packet: &Packet) -> Result<(), Trouble>;
    /// Brings registered memory to the requester. May be repeated.
    fn read(&mut self, packet: &Packet) -> Result<(), Trouble>;
    /// Changes 8 bytes, and returns what they were.
    fn atomic(&mut self, packet: &Packet) -> Result<u64, Trouble>;
    /// Brings the former value of an atomic to the requester. May be repeated.
    fn answer_atomic(&mut self, packet: &Packet, value: u64) -> Result<(), Trouble>;
    /// Invalidates a key.
    fn invalidate(&mut self, key: u32) -> Result<(), Trouble>;
    /// Completes the receive that was taken.
    fn complete_receive(&mut self, packet: &Packet);
}

/// The state.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Responder {
    /// The PSN that is expected.
    expected: u32,
    /// Bytes of the current message that are there.
    progress: u32,
    /// A message was begun and has not ended.
    in_message: bool,
    /// The current message has a receive.
    has_receive: bool,
    /// The requester knows that it shall begin again at `expected`.
    told: bool,
    /// Code of the wait that an RNR NAK asks for.
    pub rnr_timer: u8,
    /// Whether anything ever came.
    pub established: bool,
    /// Where the next value is remembered.
    next: u8,
    atomics: [Remembered; REMEMBERED],
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Remembered {
    psn: u32,
    value: u64,
}

impl Responder {
    /// Nothing came yet.
    pub const fn new(expected: u32, rnr_timer: u8) -> Responder {
        Responder {
            expected: expected & psn::MASK,
            progress: 0,
            in_message: false,
            has_receive: false,
            told: false,
            rnr_timer,
            established: false,
            next: 0,
            atomics: [Remembered { psn: u32::MAX, value: 0 }; REMEMBERED],
        }
    }

    /// The PSN that is expected.
    pub fn expected(&self) -> u32 {
        self.expected
    }

    /// Gives up the receive of a message that will never be whole. False: there is none.
    pub fn drop_receive(&mut self) -> bool {
        core::mem::take(&mut self.has_receive)
    }

    /// A packet of a reliable connection.
    pub fn on_packet(&mut self, p: &Packet, memory: &mut impl Memory) -> Option<Reply> {
        match psn::distance(p.psn, self.expected) {
            0 => {}
            1.. => {
                return (!core::mem::replace(&mut self.told, true)).then_some(Reply::OutOfOrder { psn: self.expected });
            }
            ..0 => return self.on_duplicate(p, memory),
        }
        self.told = false;
        self.established = true;
        match self.execute(p, memory) {
            Ok(value) => {
                self.expected = psn::add(p.psn, p.psns);
                if p.op.is_atomic() {
                    self.atomics[usize::from(self.next)] = Remembered { psn: p.psn, value };
                    self.next = (self.next + 1) % REMEMBERED as u8;
                }
                Some(answer(p, value).unwrap_or(Reply::Ack { psn: psn::add(p.psn, p.psns - 1) }))
            }
            Err(Trouble::NotReady) => {
                // What follows it comes too early and is dropped in silence.
                self.told = true;
                Some(Reply::NotReady { psn: p.psn, timer: self.rnr_timer })
            }
            Err(Trouble::Lost) => None,
            Err(Trouble::Refused(why)) => Some(Reply::Refused { psn: p.psn, why }),
        }
    }

    /// A packet of an unreliable connection: what is not whole is dropped.
    pub fn on_unreliable(&mut self, p: &Packet, memory: &mut impl Memory) {
        let gap = p.psn != self.expected;
        self.expected = psn::add(p.psn, p.psns);
        if p.is_first() {
            self.in_message = false;
        } else if gap || !self.in_message {
            self.in_message = false;
            return;
        }
        if self.execute(p, memory).is_err() {
            self.in_message = false;
        }
    }

    fn on_duplicate(&mut self, p: &Packet, memory: &mut impl Memory) -> Option<Reply> {
        match p.op {
            Op::Read => memory.read(p).ok().and_then(|()| answer(p, 0)),
            Op::CompareSwap | Op::FetchAdd => {
                let value = self.atomics.iter().find(|a| a.psn == p.psn)?.value;
                memory.answer_atomic(p, value).ok().and_then(|()| answer(p, value))
            }
            _ => Some(Reply::Ack { psn: psn::add(self.expected, psn::MASK) }),
        }
    }

    fn execute(&mut self, p: &Packet, memory: &mut impl Memory) -> Result<u64, Trouble> {
        let invalid = Err(Trouble::Refused(Refusal::InvalidRequest));
        let begins = p.is_first();
        if begins == self.in_message || (!begins && p.offset != self.progress) {
            return invalid;
        }
        let takes = p.op == Op::Send || matches!(p.extra, Extra::Immediate(_));
        if takes && !self.has_receive {
            memory.take_receive()?;
            self.has_receive = true;
        }
        let mut value = 0;
        match p.op {
            Op::Send => memory.fill_receive(p)?,
            Op::Write => memory.write(p)?,
            Op::Read => memory.read(p)?,
            Op::CompareSwap | Op::FetchAdd => {
                value = memory.atomic(p)?;
                memory.answer_atomic(p, value)?;
            }
            Op::Local => return invalid,
        }
        self.progress = p.offset + p.bytes;
        self.in_message = !p.is_last();
        if p.is_last() {
            if let Extra::Invalidate(key) = p.extra {
                memory.invalidate(key)?;
            }
            if core::mem::take(&mut self.has_receive) {
                memory.complete_receive(p);
            }
        }
        Ok(value)
    }
}

fn answer(p: &Packet, value: u64) -> Option<Reply> {
    let bytes = if p.op == Op::Read { p.bytes } else { 8 };
    p.op.is_answered().then_some(Reply::Data { psn: p.psn, psns: p.psns, bytes, value })
}
