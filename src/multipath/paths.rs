//! Paths: which of a port's GIDs, and which flow labels, the lanes of a QP use.
//!
//! Each alias of the port's network device is a RoCE v2 GID of its own, so the network routes, and hashes onto links, what it
//! sends apart from the others'. GIDs are matched by address and never by index, since an index changes its GID when aliases
//! come and go. The flow label becomes the UDP source port (IBTA RoCE v2, annex A17), by which switches with ECMP choose a
//! link; so lanes with one GID and several labels take several links, too, if by chance.

use crate::control::gid;
use std::net::IpAddr;

/// Lanes that one QP may have.
pub const MOST: usize = 16;

/// `TELEREDUCE_PATHS`: the paths of each port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Paths {
    /// One, the application's own; nothing is done.
    #[default]
    Single,
    /// One per alias.
    Auto,
    /// One for each of the first so many aliases.
    First(usize),
    /// One for each of these addresses that the port has.
    Listed(Vec<IpAddr>),
}

impl std::str::FromStr for Paths {
    type Err = ();

    fn from_str(text: &str) -> Result<Paths, ()> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Paths::Auto);
        }
        if let Ok(n) = text.parse::<usize>() {
            return match n {
                0 | 1 => Ok(Paths::Single),
                2..=MOST => Ok(Paths::First(n)),
                _ => Err(()),
            };
        }
        let mut all = Vec::new();
        for word in text.split(',') {
            let ip = word.trim().parse().map_err(drop)?;
            if !all.contains(&ip) {
                all.push(ip);
            }
        }
        if all.len() <= MOST { Ok(Paths::Listed(all)) } else { Err(()) }
    }
}

/// `TELEREDUCE_PATH_KEY`: what makes one path another than the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Key {
    /// Its alias.
    #[default]
    Alias,
    /// Its flow label; all have the application's GID.
    FlowLabel,
    /// Both: aliases in turn, each with a label of its own.
    Both,
}

impl std::str::FromStr for Key {
    type Err = ();

    fn from_str(text: &str) -> Result<Key, ()> {
        match text.trim().to_ascii_lowercase().as_str() {
            "alias" => Ok(Key::Alias),
            "flowlabel" => Ok(Key::FlowLabel),
            "both" => Ok(Key::Both),
            _ => Err(()),
        }
    }
}

/// Where a lane goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Its source.
    pub gid: Gid,
    /// Its flow label, 20 bits, not 0; `None`: the application's.
    pub flow_label: Option<u32>,
}

/// A label for path `number`; others for another number, and for most other seeds.
fn label(number: usize, seed: u32) -> u32 {
    // Odd, so that numbers below 2^20 have labels of their own.
    let mixed = (number as u32).wrapping_mul(0x9_E377).wrapping_add(seed) & 0xf_ffff;
    if mixed == 0 { 0x5_5555 } else { mixed }
}

/// The paths of a QP's lanes, in the order in which they are paired with the peer's: as [`choose`], by this key. `seed`: two
/// processes that have different ones have different labels.
///
/// # Errors
/// Why there is one path only.
pub fn paths(paths: &Paths, key: Key, seed: u32, table: &[Gid], own: &[u8; 16]) -> Result<Vec<Path>, Why> {
    let aliases = match key {
        Key::FlowLabel => {
            let own = table.iter().find(|g| g.gid == *own && g.roce_v2).ok_or(Why::NoAddress)?;
            own.ip().ok_or(Why::NoAddress)?;
            vec![*own]
        }
        Key::Alias => choose(paths, table, own)?,
        Key::Both => choose(&Paths::Auto, table, own)?,
    };
    let n = match (paths, key) {
        (Paths::Single, _) => return Err(Why::TooFew),
        (_, Key::Alias) => aliases.len(),
        (Paths::First(n), _) => *n,
        (Paths::Auto | Paths::Listed(_), _) => MOST,
    };
    let of =
        |i: usize| Path { gid: aliases[i % aliases.len()], flow_label: (key != Key::Alias).then(|| label(i, seed)) };
    Ok((0..n).map(of).collect())
}

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its index, which it may lose at any time.
    pub index: u32,
    /// The GID.
    pub gid: [u8; 16],
    /// Whether it is one of RoCE v2: packets with it are routed by IP.
    pub roce_v2: bool,
    /// The network device that it belongs to (its interface index), 0 if there is none.
    pub netdev: u32,
}

impl Gid {
    /// The address that it stands for; a link-local one stands for none that could be routed.
    pub fn ip(&self) -> Option<IpAddr> {
        gid::ip(self.gid).ok()
    }
}

/// Why a QP has one path only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The application's GID is none of RoCE v2 with an address.
    NoAddress,
    /// Fewer than two of the addresses that were asked for are there.
    TooFew,
}

/// The GIDs of a QP's lanes, in the order in which they are paired with the peer's.
///
/// `own` is the GID that the application gave its QP. The others are those of the same network device and of the same kind
/// of address, in the order of the setting's list or else of their addresses, so that both hosts pair the first alias with the
/// first. `own` need not be among them.
///
/// # Errors
/// Why there is one path only.
pub fn choose(paths: &Paths, table: &[Gid], own: &[u8; 16]) -> Result<Vec<Gid>, Why> {
    let own = table.iter().find(|g| g.gid == *own && g.roce_v2).ok_or(Why::NoAddress)?;
    let own_ip = own.ip().ok_or(Why::NoAddress)?;
    let fits =
        |g: &&Gid| g.roce_v2 && g.netdev == own.netdev && g.ip().is_some_and(|ip| ip.is_ipv4() == own_ip.is_ipv4());
    let mut all: Vec<Gid> = table.iter().filter(fits).copied().collect();
    all.sort_by_key(|g| (g.gid, g.index));
    all.dedup_by_key(|g| g.gid);
    match paths {
        Paths::Single => all.clear(),
        Paths::Auto => all.truncate(MOST),
        Paths::First(n) => all.truncate(*n),
        Paths::Listed(ips) => {
            all = ips.iter().filter_map(|ip| all.iter().find(|g| g.ip() == Some(*ip)).copied()).collect();
        }
    }
    if all.len() < 2 { Err(Why::TooFew) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapped(ip: &str) -> [u8; 16] {
        match ip.parse().unwrap() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        }
    }

    fn table() -> Vec<Gid> {
        let entry = |index: u32, ip: &str, roce_v2, netdev| Gid { index, gid: mapped(ip), roce_v2, netdev };
        vec![
            entry(0, "fe80::1", false, 3),
            entry(1, "fe80::1", true, 3),
            entry(2, "10.1.0.2", false, 3),
            entry(3, "10.1.0.2", true, 3),
            entry(4, "10.1.0.1", true, 3),
            entry(7, "10.1.0.3", true, 3),
            entry(8, "10.9.0.1", true, 4), // a VLAN
            entry(9, "fd00::5", true, 3),
            entry(10, "fd00::6", true, 3),
        ]
    }

    fn pairs(setting: &str, key: Key) -> Result<Vec<(u32, Option<u32>)>, Why> {
        let all = paths(&setting.parse().unwrap(), key, 7, &table(), &mapped("10.1.0.2"))?;
        Ok(all.iter().map(|p| (p.gid.index, p.flow_label)).collect())
    }

    #[test]
    fn the_key_says_what_paths_differ_in() {
        assert_eq!(pairs("2", Key::Alias), Ok(vec![(4, None), (3, None)]));
        let labels = pairs("16", Key::FlowLabel).unwrap();
        assert!(labels.iter().all(|(index, label)| *index == 3 && (1..1 << 20).contains(&label.unwrap())));
        let mut distinct: Vec<_> = labels.iter().map(|(_, l)| *l).collect();
        distinct.sort();
        distinct.dedup();
        assert_eq!((labels.len(), distinct.len()), (16, 16));
        assert_eq!(pairs("auto", Key::FlowLabel).unwrap().len(), MOST);
        let both = pairs("4", Key::Both).unwrap();
        assert_eq!(both.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [4, 3, 7, 4]);
        assert!(both[0].1 != both[3].1 && both[0].1.is_some());
        assert_eq!(pairs("1", Key::FlowLabel), Err(Why::TooFew));
        assert_eq!(
            ("FlowLabel".parse(), "BOTH".parse(), "x".parse::<Key>()),
            (Ok(Key::FlowLabel), Ok(Key::Both), Err(()))
        );
    }

    fn chosen(setting: &str, own: &str) -> Result<Vec<u32>, Why> {
        choose(&setting.parse().unwrap(), &table(), &mapped(own)).map(|all| all.iter().map(|g| g.index).collect())
    }

    #[test]
    fn aliases_are_those_of_the_same_device_and_kind_by_address() {
        assert_eq!(chosen("auto", "10.1.0.2"), Ok(vec![4, 3, 7]));
        assert_eq!(chosen("auto", "fd00::6"), Ok(vec![9, 10]));
        assert_eq!(chosen("2", "10.1.0.3"), Ok(vec![4, 3]));
        assert_eq!(chosen("auto", "10.9.0.1"), Err(Why::TooFew));
    }

    #[test]
    fn a_list_is_taken_in_its_order_as_far_as_it_is_there() {
        assert_eq!(chosen("10.1.0.3,10.1.0.1,10.9.9.9", "10.1.0.2"), Ok(vec![7, 4]));
        assert_eq!(chosen("10.1.0.3, 10.9.9.9", "10.1.0.2"), Err(Why::TooFew));
    }

    #[test]
    fn one_path_has_its_reason() {
        assert_eq!(chosen("1", "10.1.0.2"), Err(Why::TooFew));
        assert_eq!(chosen("auto", "fe80::1"), Err(Why::NoAddress));
        assert_eq!(chosen("auto", "10.3.0.1"), Err(Why::NoAddress));
    }

    #[test]
    fn settings() {
        assert_eq!("AUTO".parse(), Ok(Paths::Auto));
        assert_eq!("1".parse(), Ok(Paths::Single));
        assert_eq!("16".parse(), Ok(Paths::First(16)));
        let ips = ["10.0.0.1", "fd00::1"].map(|i| i.parse().unwrap()).to_vec();
        assert_eq!("10.0.0.1, fd00::1,10.0.0.1".parse(), Ok(Paths::Listed(ips)));
        for bad in ["", "17", "-1", "many", "10.0.0.1,", "10.0.0.1 10.0.0.2"] {
            assert_eq!(bad.parse::<Paths>(), Err(()), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_table_gives_gids_of_it_once_each(
            hosts in prop::collection::vec((1u8..20, any::<bool>(), 1u32..3), 0..40), own in 0usize..40, n in 2usize..=16,
        ) {
            let gid = |host: u8| mapped(&format!("10.0.0.{host}"));
            let table: Vec<Gid> = hosts.iter().enumerate()
                .map(|(i, (host, roce_v2, netdev))| Gid { index: i as u32, gid: gid(*host), roce_v2: *roce_v2, netdev: *netdev })
                .collect();
            let Some(own) = table.get(own) else { return Ok(()) };
            if let Ok(all) = choose(&Paths::First(n), &table, &own.gid) {
                prop_assert!((2..=n).contains(&all.len()));
                prop_assert!(all.windows(2).all(|w| w[0].gid < w[1].gid));
                prop_assert!(all.iter().all(|g| table.contains(g) && g.roce_v2));
            }
        }
    }
}
