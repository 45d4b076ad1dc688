//! GIDs: 16 bytes, an IPv6 address, which may stand for an IPv4 address.

use serde::{Deserialize, Deserializer, de::Error};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// An address of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Of an address.
    pub fn of(ip: IpAddr) -> Gid {
        Gid(match ip {
            IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
            IpAddr::V6(a) => a.octets(),
        })
    }

    /// In two halves, as shared memory holds it.
    pub fn halves(&self) -> [u64; 2] {
        let [a, b] = [0, 8].map(|i| u64::from_be_bytes(self.0[i..i + 8].try_into().expect("8 bytes")));
        [a, b]
    }

    /// From two halves.
    pub fn from_halves(h: [u64; 2]) -> Gid {
        Gid((u128::from(h[0]) << 64 | u128::from(h[1])).to_be_bytes())
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl<'de> Deserialize<'de> for Gid {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Gid, D::Error> {
        let text = String::deserialize(d)?;
        let ip = text.parse().map_err(|_| D::Error::custom(format!("not an IPv4 or IPv6 address: {text:?}")))?;
        Ok(Gid::of(ip))
    }
}
