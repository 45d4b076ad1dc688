//! Why a QP has one path: one list of codes, names and advice, for the segment, the snapshot and the viewer.

use super::paths::Why;
use super::plan::Pass;
use crate::control::Reason;

/// Declares the reasons once: code in the segment, name for programs, and for people what it means and what to do.
macro_rules! singles {
    ($($single:ident = $code:literal, $name:literal, $advice:literal;)*) => {
        /// Why a QP has one path at present. Codes and names never change their meaning; 0 is no reason's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Single { $(#[doc = $advice] $single = $code),* }

        impl Single {
            /// Every reason, in the order of their codes.
            pub const ALL: &[Single] = &[$(Single::$single),*];

            /// Short stable name, as the JSON has it.
            pub fn name(self) -> &'static str {
                match self { $(Single::$single => $name),* }
            }

            /// What it means and what to do, one line.
            pub fn advice(self) -> &'static str {
                match self { $(Single::$single => $advice),* }
            }
        }
    };
}

singles! {
    // The QP, as it was made.
    Off = 1, "off", "multi-path could not start in this process: its stderr says why";
    QpType = 2, "qp_type", "only RC QPs have several paths; nothing to do";
    Extended = 3, "extended", "it was made by a vendor's own call, or for operations that are not split; use ibv_create_qp";
    NoSends = 4, "no_sends", "it was made with max_send_wr 0; nothing to do";
    Cq = 5, "cq", "its send CQ cannot take the library's completions (single-threaded, of a parent domain or a vendor's own call, or too many QPs on it); use more CQs, of ibv_create_cq";
    Queue = 6, "queue", "the device grants no send queue one entry longer than asked for; ask for a lower max_send_wr";
    Memory = 7, "memory", "no memory for what multi-path needs; raise the program's limits";
    Unconnected = 8, "unconnected", "the QP has no peer yet";
    // The port.
    NoAddress = 9, "no_address", "its GID is no RoCE v2 GID with an IP address; use one that is (NCCL_IB_GID_INDEX, -x)";
    TooFewAddresses = 10, "too_few_addresses", "fewer than two of the addresses in TELEREDUCE_PATHS are on the port; add aliases: trtop vnic add";
    // The peer's shim.
    Pending = 11, "pending", "the peer's library is being looked for; wait a little";
    LanesPending = 12, "lanes_pending", "the peer's library was found, and lanes are being made; wait a little";
    NoShimAtPeer = 13, "no_shim_at_peer", "nothing answers at the peer's TELEREDUCE_PORT: start the peer with the library and TELEREDUCE_PATHS, or open the firewall that rejects";
    NoAnswer = 14, "no_answer", "the peer's host does not answer at TELEREDUCE_PORT: a firewall drops it, or the host is down";
    Silent = 15, "silent", "the peer's port took the connection and says nothing: a firewall or proxy between, or a process that is stopped";
    Unreachable = 16, "unreachable", "there is no IP route to the peer's address: add one";
    NoIp = 17, "no_ip", "the peer's GID stands for no IP address; use RoCE v2 GIDs of routable addresses";
    Loopback = 18, "loopback", "the peer is this process itself; nothing to do";
    NotShim = 19, "not_a_shim", "another program listens at the peer's TELEREDUCE_PORT: choose another port on both sides";
    Version = 20, "version", "the peer has another version of the library: install the same on both sides";
    Secret = 21, "secret", "the two sides have different secrets: give both the same TELEREDUCE_SECRET_FILE";
    SecretOnOneSide = 22, "secret_on_one_side", "only one side has a TELEREDUCE_SECRET_FILE: give it to both, or to none";
    UnknownQp = 23, "unknown_qp", "no process at the peer's address knows the QP: start that program with the library, as the same user, and TELEREDUCE_PATHS";
    NotConnectedToUs = 24, "not_connected_to_us", "the peer's QP is not, or not yet, connected to this one, or has one path only: see there";
    OtherEpoch = 25, "other_epoch", "the two ends are of two connections of the same QPs; connect both anew";
    OtherAddress = 26, "other_address", "the peer sees another address than this side's GID: address translation is between; take it away";
    Redirects = 27, "redirects", "the peer's processes send on to each other; set other TELEREDUCE_PORTs";
    Protocol = 28, "protocol", "the peer's library sent what this one does not understand; please report it";
    Busy = 29, "busy", "one side cannot keep up with the other's requests; it is tried again";
    Limit = 30, "limit", "too many connections or claims in one process; raise ulimit -n";
    Duplicate = 31, "duplicate", "the two processes had another connection, which must end first; it is tried again";
    Closed = 32, "closed", "one side's library has ended its part, as when a program ends";
    PortsTaken = 33, "ports_taken", "none of the 8 ports from TELEREDUCE_PORT on can be bound: choose others on both sides";
    NoSockets = 34, "no_sockets", "no socket can be made at the address of the QP's GID: raise ulimit -n, or give the address to this host";
    Other = 35, "other", "for a reason that this version does not know";
    // Lanes.
    NoLanesHere = 36, "no_lanes_here", "this side could not make lanes: the device's max_qp or memory is used up, or it has fewer paths; use fewer QPs";
    NoLanesThere = 37, "no_lanes_there", "the peer could not make lanes: its max_qp or memory is used up, or it has other paths; look there";
    LanesRefused = 38, "lanes_refused", "lanes were refused what the QP itself may do (type 2 memory windows, say); nothing is split any more";
    LanesBroke = 39, "lanes_broke", "all lanes failed: the other paths' links are down, or the peer is; look at view 4 and at the links";
    LinkLost = 40, "link_lost", "the connection to the peer's library was lost, and the lanes with it: the peer died, or the network failed";
    PeerLeft = 41, "peer_left", "one of the two QPs left RTS, or began to, and the lanes with it; nothing to do";
    // The last large WR, with lanes up.
    NotReady = 42, "not_ready", "the last large WR was posted while the QP was not in RTS";
    Opcode = 43, "opcode", "the last large WR is of an opcode that is not split (SEND, atomics)";
    Inline = 44, "inline", "the last large WR has inline data, which is not split";
    FewPieces = 45, "few_pieces", "the last large WR makes fewer than two pieces: raise TELEREDUCE_SPLIT_MIN or send more at once";
    TooLong = 46, "too_long", "the last large WR is longer than a message may be";
    Wraps = 47, "wraps", "the last large WR's remote range goes past the end of the address space";
    NoRing = 48, "no_ring", "the last large WR is a WRITE_WITH_IMM, and the peer's library has no place for its length: too many receives, or a CQ that it does not see";
}

impl Single {
    /// As the segment has it; 0 is several paths.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The reason of a code; `None` for 0. Of one that this version does not know, [`Single::Other`].
    pub fn from_code(code: u32) -> Option<Single> {
        let at = code.checked_sub(1)? as usize;
        Some(Single::ALL.get(at).copied().unwrap_or(Single::Other))
    }

    /// The reason of a name.
    pub fn from_name(name: &str) -> Option<Single> {
        Single::ALL.iter().copied().find(|s| s.name() == name)
    }

    /// Why a WR that could have been split was not, on a QP with lanes. `None`: it says nothing about the QP.
    pub fn of_pass(pass: Pass) -> Option<Single> {
        match pass {
            Pass::NotReady => Some(Single::NotReady),
            Pass::NoLane | Pass::Small => None,
            Pass::LaneRefused => Some(Single::LanesRefused),
            Pass::Opcode | Pass::Imm => Some(Single::Opcode),
            Pass::NoRing => Some(Single::NoRing),
            Pass::Inline => Some(Single::Inline),
            Pass::FewPieces => Some(Single::FewPieces),
            Pass::TooLong => Some(Single::TooLong),
            Pass::Wraps => Some(Single::Wraps),
        }
    }
}

impl From<Why> for Single {
    fn from(why: Why) -> Single {
        match why {
            Why::NoAddress => Single::NoAddress,
            Why::TooFew => Single::TooFewAddresses,
        }
    }
}

/// Why a claim came to nothing.
impl From<Reason> for Single {
    fn from(reason: Reason) -> Single {
        match reason {
            Reason::Other => Single::Other,
            Reason::NoAnswer => Single::NoAnswer,
            Reason::Silent => Single::Silent,
            Reason::Refused => Single::NoShimAtPeer,
            Reason::Unreachable => Single::Unreachable,
            Reason::NoIp => Single::NoIp,
            Reason::Loopback => Single::Loopback,
            Reason::NotShim => Single::NotShim,
            Reason::Version => Single::Version,
            Reason::Secret => Single::Secret,
            Reason::SecretMissing => Single::SecretOnOneSide,
            Reason::UnknownQp => Single::UnknownQp,
            Reason::NotConnected => Single::NotConnectedToUs,
            Reason::Epoch => Single::OtherEpoch,
            Reason::Address => Single::OtherAddress,
            Reason::Redirects => Single::Redirects,
            Reason::Length | Reason::Kind | Reason::Value | Reason::Order => Single::Protocol,
            Reason::Backlog | Reason::Crowded => Single::Busy,
            Reason::Limit => Single::Limit,
            Reason::Duplicate => Single::Duplicate,
            Reason::Idle | Reason::Closed => Single::Closed,
            Reason::Lost => Single::LinkLost,
            Reason::Ports => Single::PortsTaken,
            Reason::Local => Single::NoSockets,
            Reason::Lane => Single::NoLanesThere,
        }
    }
}

impl core::fmt::Display for Single {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_places_in_the_list_and_come_back() {
        assert_eq!(Single::from_code(0), None);
        for (i, s) in Single::ALL.iter().enumerate() {
            assert_eq!((s.code() as usize, Single::from_code(s.code())), (i + 1, Some(*s)));
        }
        assert_eq!(Single::from_code(u32::MAX), Some(Single::Other));
    }

    #[test]
    fn names_are_words_for_programs_and_come_back() {
        let names: HashSet<_> = Single::ALL.iter().map(|s| s.name()).collect();
        assert_eq!(names.len(), Single::ALL.len());
        for s in Single::ALL {
            let n = s.name();
            assert!(!n.is_empty() && n.len() <= 20 && n.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{n}");
            assert_eq!(Single::from_name(n), Some(*s));
        }
        assert_eq!(Single::from_name("none of them"), None);
    }

    #[test]
    fn the_readme_says_what_to_do_about_each() {
        let readme = include_str!("../../README.md");
        for s in Single::ALL {
            assert!(readme.contains(&format!("`{}`", s.name())), "{s}");
        }
    }

    #[test]
    fn each_has_one_line_of_its_own() {
        let all: HashSet<_> = Single::ALL.iter().map(|s| s.advice()).collect();
        assert_eq!(all.len(), Single::ALL.len());
        assert!(all.iter().all(|a| (20..=170).contains(&a.len()) && !a.contains('\n') && !a.ends_with('.')), "{all:?}");
    }

    #[test]
    fn the_side_channel_s_reasons_are_told_apart_where_people_do_different_things() {
        let all: HashSet<_> = Reason::ALL.iter().map(|r| Single::from(*r)).collect();
        // Four of them are the protocol's, two of either load or a planned end.
        assert_eq!(all.len(), Reason::ALL.len() - 3 - 1 - 1);
        assert!(Reason::ALL.iter().all(|r| (Single::from(*r) == Single::Other) == (*r == Reason::Other)));
    }

    #[test]
    fn what_a_large_wr_says_of_its_qp() {
        let silent: Vec<Pass> = Pass::ALL.into_iter().filter(|p| Single::of_pass(*p).is_none()).collect();
        assert_eq!(silent, [Pass::NoLane, Pass::Small]);
        let all: HashSet<_> = Pass::ALL.into_iter().filter_map(Single::of_pass).collect();
        // A WRITE_WITH_IMM that is not to be split is an opcode like others.
        assert_eq!(all.len(), Pass::ALL.len() - 2 - 1);
    }
}
