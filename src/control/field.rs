//! How fields and records of messages are laid out: fixed sizes, little-endian, no padding.
//!
//! `record!` declares a record once; its size, its encoder, its decoder and its random samples for tests follow.

use super::{Reason, gid::Gid};

/// Something of a fixed size that messages are made of.
pub trait Field: Sized {
    /// Bytes on the wire.
    const BYTES: usize;

    /// Appends its bytes.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes its bytes from the front of `from`.
    ///
    /// # Errors
    /// [`Reason::Length`]: too few; [`Reason::Value`]: they stand for nothing.
    fn get(from: &mut &[u8]) -> Result<Self, Reason>;

    /// A value for tests, made of `random` numbers; it need not pass the checks of its record.
    #[cfg(test)]
    fn sample(random: &mut impl FnMut() -> u64) -> Self;
}

/// Takes `N` bytes from the front.
fn take<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], Reason> {
    let (bytes, rest) = from.split_first_chunk::<N>().ok_or(Reason::Length)?;
    *from = rest;
    Ok(*bytes)
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Field for $type {
            const BYTES: usize = size_of::<$type>();

            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(from: &mut &[u8]) -> Result<Self, Reason> {
                take(from).map(Self::from_le_bytes)
            }

            // As many small numbers as large ones.
            #[cfg(test)]
            fn sample(random: &mut impl FnMut() -> u64) -> Self {
                let bits = random() % u64::from(Self::BITS + 1);
                (random() & (1u64.checked_shl(bits as u32).unwrap_or(0).wrapping_sub(1))) as Self
            }
        }
    )*};
}
integer!(u8, u16, u32, u64);

impl<const N: usize> Field for [u8; N] {
    const BYTES: usize = N;

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn get(from: &mut &[u8]) -> Result<Self, Reason> {
        take(from)
    }

    #[cfg(test)]
    fn sample(random: &mut impl FnMut() -> u64) -> Self {
        core::array::from_fn(|_| random() as u8)
    }
}

impl Field for bool {
    const BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(from: &mut &[u8]) -> Result<Self, Reason> {
        match take(from)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Reason::Value),
        }
    }

    #[cfg(test)]
    fn sample(random: &mut impl FnMut() -> u64) -> Self {
        random() & 1 == 1
    }
}

impl Field for Reason {
    const BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.code());
    }

    fn get(from: &mut &[u8]) -> Result<Self, Reason> {
        u8::get(from).map(Reason::from_code)
    }

    #[cfg(test)]
    fn sample(random: &mut impl FnMut() -> u64) -> Self {
        Reason::ALL[random() as usize % Reason::ALL.len()]
    }
}

/// Declares a record of fields, and what must hold for its values.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }
     $(check |$this:ident| $check:expr)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type),* }

        impl Field for $name {
            const BYTES: usize = 0 $(+ <$type as Field>::BYTES)*;

            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn get(from: &mut &[u8]) -> Result<Self, Reason> {
                let record = $name { $($field: Field::get(from)?),* };
                $({ let $this = &record; if !$check { return Err(Reason::Value); } })?
                Ok(record)
            }

            #[cfg(test)]
            fn sample(random: &mut impl FnMut() -> u64) -> Self {
                loop {
                    let record = $name { $($field: Field::sample(random)),* };
                    $({ let $this = &record; if !$check { continue; } })?
                    return record;
                }
            }
        }
    };
}
pub(super) use record;

/// Whether a number has 24 bits, as QPNs and PSNs have.
fn is_24_bit(n: u32) -> bool {
    n < 1 << 24
}

record! {
    /// A QP as the network names it.
    QpAddr {
        /// Its GID.
        gid: Gid,
        /// Its number, 24 bits.
        qpn: u32,
    } check |q| is_24_bit(q.qpn)
}

record! {
    /// A PSN, if its side knows it already.
    Psn {
        /// Whether the number counts.
        known: bool,
        /// 24 bits; 0 if it is not known.
        number: u32,
    } check |p| is_24_bit(p.number) && (p.known || p.number == 0)
}

impl Psn {
    /// Not known yet.
    pub const UNKNOWN: Psn = Psn { known: false, number: 0 };

    /// Known; bits above the 24 of a PSN are cut off, as hardware does.
    pub fn new(number: u32) -> Psn {
        Psn { known: true, number: number & 0xff_ffff }
    }

    /// False if both are known and differ.
    pub fn agrees(self, other: Psn) -> bool {
        !self.known || !other.known || self.number == other.number
    }
}

record! {
    /// The PSNs that a QP was given, which tell its connection from an earlier one of the same numbers.
    Psns {
        /// First of what it sends (set on the way to RTS).
        send: Psn,
        /// First of what it expects (set on the way to RTR).
        receive: Psn,
    }
}

impl Psns {
    /// Neither known.
    pub const UNKNOWN: Psns = Psns { send: Psn::UNKNOWN, receive: Psn::UNKNOWN };

    /// Whether a QP with these may be connected to one with `peer`'s: what one sends, the other expects.
    pub fn match_peer(self, peer: Psns) -> bool {
        self.send.agrees(peer.receive) && self.receive.agrees(peer.send)
    }

    /// Whether these may be the same QP's at two moments.
    pub fn agree(self, other: Psns) -> bool {
        self.send.agrees(other.send) && self.receive.agrees(other.receive)
    }
}

record! {
    /// Two QPs connected to each other, as seen by one side: in a message, the sender of it.
    QpPair {
        /// This side's.
        mine: QpAddr,
        /// The other side's.
        yours: QpAddr,
    }
}

impl QpPair {
    /// The same pair, seen by the other side.
    pub fn swapped(self) -> QpPair {
        QpPair { mine: self.yours, yours: self.mine }
    }
}

record! {
    /// Which lane: a pair of PDs, a number in it, and how often that number was used.
    LaneId {
        /// The pair of PDs, as the side that made the first offer numbered it.
        pds: u64,
        /// Number of the lane, and of its path.
        lane: u16,
        /// Which use of that number; a message of another epoch concerns a lane that is gone.
        epoch: u64,
    }
}

record! {
    /// One end of a lane: what the other end needs to connect its QP.
    LaneEnd {
        /// GID of the lane's path at this end.
        gid: Gid,
        /// Number of the lane's QP, 24 bits.
        qpn: u32,
        /// First PSN that it sends, 24 bits.
        psn: u32,
        /// Largest `enum ibv_mtu` that it can use, 1 (256 bytes) to 5 (4096).
        mtu: u8,
        /// Remote accesses that it will allow, bits of `enum ibv_access_flags`: no more than WRITE, READ and ATOMIC.
        access: u32,
        /// ACK timeout exponent, 0 to 31.
        timeout: u8,
    } check |e| is_24_bit(e.qpn) && is_24_bit(e.psn) && (1..=5).contains(&e.mtu) && e.access & !0xe == 0 && e.timeout < 32
}
