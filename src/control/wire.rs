//! Messages of the side channel, and their way to and from bytes.
//!
//! ```text
//! frame  = body length (u16) | kind (u8) | body          numbers little-endian, every kind of a fixed length
//! ```
//!
//! A connection starts with [`Hello`] from both sides. The head of `Hello` (mark, version) and the whole of [`Bye`] are the
//! same in every version, so that two versions can tell each other that they differ; all else is of [`VERSION`].
//! Message kinds stand once, in `messages!`; their fields once, in `record!`.

use super::Reason;
use super::field::record;
pub use super::field::{Field, LaneEnd, LaneId, Psn, Psns, QpAddr, QpPair};
use crate::multipath::lengths::{MOST_SLOTS, SLOT_BYTES};

/// Version of the protocol.
pub const VERSION: u16 = 2;

/// Largest frame that any version may send.
pub const MAX_FRAME_BYTES: usize = 4096;

/// Length and kind.
const HEAD_BYTES: usize = 3;

/// What a connection starts with.
const MARK: u32 = u32::from_le_bytes(*b"TLRD");

/// A random number that names one process (one use of the side channel in it) among all.
pub type ProcessId = [u8; 16];

/// Mark and version, at the start of every version's `Hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HelloHead;

impl Field for HelloHead {
    const BYTES: usize = 6;

    fn put(&self, out: &mut Vec<u8>) {
        MARK.put(out);
        VERSION.put(out);
    }

    fn get(from: &mut &[u8]) -> Result<Self, Reason> {
        match (u32::get(from)?, u16::get(from)?) {
            (MARK, VERSION) => Ok(HelloHead),
            (MARK, _) => Err(Reason::Version),
            _ => Err(Reason::NotShim),
        }
    }

    #[cfg(test)]
    fn sample(_: &mut impl FnMut() -> u64) -> Self {
        HelloHead
    }
}

record! {
    /// First message of both sides.
    Hello {
        /// The same for all.
        head: HelloHead,
        /// Who sends it.
        process: ProcessId,
        /// Fresh random bytes.
        nonce: [u8; 32],
        /// Whether the sender has a secret, and so wants the other side to prove that it has it, too.
        secret: bool,
        /// The port, at the address of this end of the connection, where nobody listens but the sender; 0 = none.
        own_port: u16,
    }
}

record! {
    /// That the sender has the secret: see `secret`.
    Proof {
        /// HMAC-SHA256.
        mac: [u8; 32],
    }
}

record! {
    /// "My QP is connected to yours." Answered by [`Accept`], [`Refuse`] or [`Redirect`].
    Claim {
        /// The claimant's number for it, growing by one.
        id: u32,
        /// The QPs, as the claimant sees them.
        pair: QpPair,
        /// The claimant's PSNs.
        psns: Psns,
        /// Number of the claimant's pool of lanes that its QP belongs to.
        pool: u32,
    }
}

record! {
    /// "It is." The pair may have lanes now.
    Accept {
        /// Number of the claim.
        id: u32,
        /// The answerer's PSNs.
        psns: Psns,
        /// As in the claim, the answerer's.
        pool: u32,
    }
}

record! {
    /// "It is not."
    Refuse {
        /// Number of the claim.
        id: u32,
        /// Why.
        reason: Reason,
    }
}

record! {
    /// "That QP is another process's of this host, which listens there."
    Redirect {
        /// Number of the claim.
        id: u32,
        /// Port at the address that was connected to.
        port: u16,
    } check |r| r.port != 0
}

record! {
    /// "Let this lane be": the sender's end is made.
    LaneOffer {
        /// Which.
        lane: LaneId,
        /// The sender's end.
        end: LaneEnd,
    }
}

record! {
    /// The other end is made and connected to the offered one.
    LaneAccept {
        /// Which.
        lane: LaneId,
        /// The sender's end.
        end: LaneEnd,
    }
}

record! {
    /// There will be no such lane.
    LaneRefuse {
        /// Which.
        lane: LaneId,
        /// Why.
        reason: Reason,
    }
}

record! {
    /// Both ends are connected: the lane may be used in both directions.
    LaneReady {
        /// Which.
        lane: LaneId,
    }
}

record! {
    /// "Reset your end of the lane": answered by [`LaneRevoked`], and only when it is done.
    RevokeLane {
        /// Which.
        lane: LaneId,
    }
}

record! {
    /// The sender's end is reset: nothing of that epoch can arrive any more.
    LaneRevoked {
        /// Which.
        lane: LaneId,
    }
}

record! {
    /// "My QP is leaving the state in which you may write to it: stop." Answered by [`QpQuiet`].
    QpGoing {
        /// The pair, as the sender sees it.
        pair: QpPair,
        /// The sender's number of this departure, to be repeated in the answer; [`QpGoing::NOBODY`] is not the shim's.
        epoch: u64,
    }
}

impl QpGoing {
    /// Epoch of a departure for whose answer nobody waits: a claim that was accepted too late.
    pub const NOBODY: u64 = 0;
}

record! {
    /// Nothing of the sender's is on its way to that QP any more.
    QpQuiet {
        /// The pair, as the sender sees it.
        pair: QpPair,
        /// As in the message that this answers.
        epoch: u64,
    }
}

record! {
    /// "Where may I write how long my messages are?" Answered by [`LengthRing`], or not at all.
    WantRing {
        /// The pair, as the sender sees it.
        pair: QpPair,
        /// The sender's number of this question, to be repeated in the answer.
        id: u64,
    }
}

record! {
    /// "There": records of the lengths of split messages to the sender's QP.
    LengthRing {
        /// The pair, as the sender sees it.
        pair: QpPair,
        /// As in the message that this answers.
        id: u64,
        /// Name of the QP's connection, until it leaves its state.
        tag: u32,
        /// First slot.
        addr: u64,
        /// Remote key.
        rkey: u32,
        /// Binary logarithm of the number of slots, no more than 12.
        slots_log2: u8,
    } check |r| r.slots_log2 <= 12 && r.addr.checked_add(u64::from(SLOT_BYTES) << r.slots_log2).is_some()
}

const _: () = assert!(MOST_SLOTS == 1 << 12);

record! {
    /// The last message: the sender closes the connection.
    Bye {
        /// Why.
        reason: Reason,
    }
}

/// Declares the kinds of messages: number on the wire and record.
macro_rules! messages {
    ($($kind:literal $record:ident $meaning:literal;)*) => {
        /// A message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Message { $(#[doc = $meaning] $record($record)),* }

        $(impl From<$record> for Message {
            fn from(record: $record) -> Message {
                Message::$record(record)
            }
        })*

        impl Message {
            /// Number of each kind.
            pub const KINDS: &[u8] = &[$($kind),*];

            /// Bytes of the largest body.
            const LARGEST_BODY_BYTES: usize = {
                let mut largest = 0;
                $(if $record::BYTES > largest { largest = $record::BYTES })*
                largest
            };

            /// Appends the message's frame.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Message::$record(r) => {
                        ($record::BYTES as u16).put(out);
                        out.push($kind);
                        r.put(out);
                    })*
                }
            }

            /// Length of the body of a kind.
            fn body_bytes(kind: u8) -> Option<usize> {
                match kind { $($kind => Some($record::BYTES),)* _ => None }
            }

            /// The message of a kind and a whole body.
            fn decode(kind: u8, mut body: &[u8]) -> Result<Message, Reason> {
                match kind { $($kind => $record::get(&mut body).map(Message::$record),)* _ => Err(Reason::Kind) }
            }

            /// A message of the kind at `index` of [`Message::KINDS`], for tests.
            #[cfg(test)]
            pub(super) fn sample(index: usize, random: &mut impl FnMut() -> u64) -> Message {
                match Message::KINDS[index % Message::KINDS.len()] {
                    $($kind => Message::$record($record::sample(random)),)*
                    kind => unreachable!("{kind}"),
                }
            }
        }
    };
}

messages! {
    1 Hello "Who is there";
    2 Proof "that the secret is known";
    3 Claim "of a pair of QPs";
    4 Accept "of a claim";
    5 Refuse "of a claim";
    6 Redirect "of a claim";
    7 LaneOffer "of a new lane";
    8 LaneAccept "of an offer";
    9 LaneRefuse "of an offer";
    10 LaneReady "to be used";
    11 RevokeLane "asks for a reset";
    12 LaneRevoked "that it is done";
    13 QpGoing "asks for quiet";
    14 QpQuiet "that it is";
    15 Bye "and why";
    16 WantRing "asks for the ring";
    17 LengthRing "of lengths";
}

const HELLO: u8 = Message::KINDS[0];

const _: () = assert!(HEAD_BYTES + Message::LARGEST_BODY_BYTES <= MAX_FRAME_BYTES);

/// Bytes to messages, in whatever pieces they arrive. Holds at most the part of one frame of this version.
#[derive(Default)]
pub struct Decoder {
    /// Start of a frame whose end has not come yet.
    part: Vec<u8>,
    /// Set by the first error, and the answer ever after.
    error: Option<Reason>,
}

impl Decoder {
    /// Takes bytes from the front of `input` until one message is complete, or all are taken (`None`).
    ///
    /// # Errors
    /// [`Reason::Kind`], [`Reason::Length`], [`Reason::Value`]: what is wrong with the message; [`Reason::Version`]: a
    /// `Hello` of another version; [`Reason::NotShim`]: a `Hello` without the mark. Nothing can be decoded afterwards. An
    /// unknown kind and a wrong length are found as soon as the first three bytes are there.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Message>, Reason> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let decoded = self.step(input);
        if let Err(error) = decoded {
            self.error = Some(error);
            self.part = Vec::new();
        }
        decoded
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Option<Message>, Reason> {
        if !self.fill(HEAD_BYTES, input) {
            return Ok(None);
        }
        let (length, kind) = (usize::from(u16::from_le_bytes([self.part[0], self.part[1]])), self.part[2]);
        let body = Message::body_bytes(kind).ok_or(Reason::Kind)?;
        if length != body {
            // Perhaps another version's.
            let head = HEAD_BYTES + HelloHead::BYTES;
            if kind != HELLO || length < HelloHead::BYTES || HEAD_BYTES + length > MAX_FRAME_BYTES {
                return Err(Reason::Length);
            }
            if !self.fill(head, input) {
                return Ok(None);
            }
            return Err(HelloHead::get(&mut &self.part[HEAD_BYTES..]).err().unwrap_or(Reason::Length));
        }
        if !self.fill(HEAD_BYTES + length, input) {
            return Ok(None);
        }
        let message = Message::decode(kind, &self.part[HEAD_BYTES..])?;
        self.part.clear();
        Ok(Some(message))
    }

    /// Moves bytes from `input` until `want` are there; whether they are.
    fn fill(&mut self, want: usize, input: &mut &[u8]) -> bool {
        let missing = want.saturating_sub(self.part.len()).min(input.len());
        let (now, rest) = input.split_at(missing);
        self.part.extend_from_slice(now);
        *input = rest;
        self.part.len() >= want
    }

    /// Bytes of memory that it holds, for tests of its bound.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.part.capacity()
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
