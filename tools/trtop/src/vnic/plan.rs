//! Which addresses a port's aliases get: pure arithmetic.

use std::net::Ipv4Addr;

/// Aliases that a port may have: each host has so many numbers of its own under a shared prefix.
pub const MOST: u32 = 16;

/// Where aliases come from if nothing is said: RFC 6598's shared address space, which no host's own network should use.
pub const DEFAULT: Cidr = Cidr { address: Ipv4Addr::new(100, 64, 0, 0), length: 10 };

/// An address and the length of its network's prefix, 1 to 31 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// Address.
    pub address: Ipv4Addr,
    /// Bits of the network.
    pub length: u8,
}

impl Cidr {
    fn hosts(self) -> u32 {
        u32::MAX >> self.length
    }

    /// The part of the address that says which host of the network it is.
    pub fn host(self) -> u32 {
        self.address.to_bits() & self.hosts()
    }

    fn with_host(self, host: u32) -> Option<Cidr> {
        // The first and the last are the network's and the broadcast's.
        (1..self.hosts()).contains(&host).then(|| Cidr {
            address: Ipv4Addr::from_bits(self.address.to_bits() & !self.hosts() | host),
            length: self.length,
        })
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Cidr, String> {
        let cidr = || {
            let (address, length) = text.split_once('/')?;
            let (address, length) = (address.parse().ok()?, length.parse().ok()?);
            (1..=30).contains(&length).then_some(Cidr { address, length })
        };
        cidr().ok_or_else(|| "not an IPv4 network such as 10.9.0.0/16 (a prefix of 1 to 30 bits)".into())
    }
}

/// The first `count` aliases of the host whose own address is `own`.
///
/// A `prefix` without a host part is shared by all hosts of a network: each has [`MOST`] addresses of its own in it, by its
/// number in `own`'s network, so the same command fits every host. One with a host part is the first alias itself.
///
/// # Errors
/// The prefix has no room for them; in words.
pub fn aliases(own: Cidr, prefix: Cidr, count: u32) -> Result<Vec<Cidr>, String> {
    let first = if prefix.host() == 0 { own.host().checked_mul(MOST) } else { Some(prefix.host()) };
    // Number 0 of the very first host would be the network itself: its aliases begin with 1, and nobody has number 0.
    let all = (0..count).map(|i| prefix.with_host(first?.checked_add(i)?)).collect::<Option<Vec<_>>>();
    all.ok_or_else(|| {
        format!(
            "{prefix} has no room for aliases of host {own}; name a larger network with --prefix, or the first address itself \
             (such as --prefix 10.9.0.101/16)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn texts(own: &str, prefix: &str, count: u32) -> Vec<String> {
        aliases(cidr(own), cidr(prefix), count).unwrap().iter().map(Cidr::to_string).collect()
    }

    #[test]
    fn each_host_has_its_own() {
        assert_eq!(texts("10.1.0.1/16", "10.9.0.0/16", 2), ["10.9.0.16/16", "10.9.0.17/16"]);
        assert_eq!(texts("10.1.0.2/16", "10.9.0.0/16", 1), ["10.9.0.32/16"]);
        assert_eq!(aliases(cidr("10.1.2.3/16"), DEFAULT, 1).unwrap()[0].to_string(), "100.64.32.48/10");
    }

    #[test]
    fn a_host_part_is_the_first_alias() {
        assert_eq!(texts("10.1.0.1/16", "10.1.0.101/16", 2), ["10.1.0.101/16", "10.1.0.102/16"]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (own, prefix, count) in
            [("10.1.9.9/16", "10.9.0.0/24", 1), ("10.1.0.1/16", "10.9.0.254/24", 2), ("10.200.0.1/8", "10.9.0.0/16", 1)]
        {
            assert!(aliases(cidr(own), cidr(prefix), count).is_err(), "{own} {prefix}");
        }
        for text in ["10.9.0.0", "10.9.0.0/0", "10.9.0.0/31", "10.9.0.0/33", "10.9.0/16", "fe80::1/64", ""] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_two_hosts_share_one(a in 1u32..65535, b in 1u32..65535, count in 1..=MOST) {
            let of = |host: u32| aliases(cidr("10.1.0.0/16").with_host(host).unwrap(), DEFAULT, count).unwrap();
            prop_assert!(a == b || of(a).iter().all(|x| !of(b).contains(x)));
            prop_assert!(of(a).iter().all(|x| x.address.to_bits() >> 22 == DEFAULT.address.to_bits() >> 22));
        }
    }
}
