//! The IP address that a GID stands for, and back.

use super::Reason;
use crate::shm::model::gid_ip;
use std::net::IpAddr;

/// A GID, in network order.
pub type Gid = [u8; 16];

/// Where the side channel of a GID's host is: its IP address, for RoCE v2 GIDs made of IPv4 and of global (or unique
/// local) IPv6 addresses.
///
/// # Errors
/// [`Reason::NoIp`]: link-local and unspecified GIDs, and multicast.
pub fn ip(gid: Gid) -> Result<IpAddr, Reason> {
    gid_ip(gid).filter(|ip| !ip.is_multicast() && !ip.is_unspecified()).ok_or(Reason::NoIp)
}

/// The GID of an address, as RoCE v2 makes it.
pub fn from_ip(ip: IpAddr) -> Gid {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(s: &str) -> Gid {
        s.parse::<std::net::Ipv6Addr>().unwrap().octets()
    }

    #[test]
    fn roce_v2_gids_have_an_ip() {
        for (text, want) in [
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("::ffff:127.0.0.2", "127.0.0.2"),
            ("2001:db8::7", "2001:db8::7"),
            ("fd00::1", "fd00::1"),
        ] {
            let want: IpAddr = want.parse().unwrap();
            assert_eq!(ip(gid(text)), Ok(want));
            assert_eq!(from_ip(want), gid(text));
        }
    }

    #[test]
    fn other_gids_have_none_and_say_so() {
        for text in ["fe80::1", "fe80::526b:4bff:fe12:3456", "::", "::ffff:0.0.0.0", "::ffff:224.0.0.1", "ff02::1"] {
            assert_eq!(ip(gid(text)), Err(Reason::NoIp), "{text}");
        }
        assert_eq!(Reason::NoIp.name(), "no IP in GID");
    }
}
