//! Why something came to nothing: one list of names, for the wire, the segment's counters and the viewer.

/// Declares the reasons once: code on the wire, name for people, meaning.
macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident = $code:literal, $name:literal;)*) => {
        /// Why a claim, a connection or a lane was refused, or ended. Codes and names never change their meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason { $($(#[$doc])* $reason = $code),* }

        impl Reason {
            /// Every reason, in the order of their codes.
            pub const ALL: &[Reason] = &[$(Reason::$reason),*];

            /// Short stable name, lower case.
            pub fn name(self) -> &'static str {
                match self { $(Reason::$reason => $name),* }
            }
        }
    };
}

reasons! {
    /// Of a later version, or none was given.
    Other = 0, "other";
    /// No TCP connection within the time for it: a host that is down, or a firewall that drops.
    NoAnswer = 1, "no answer";
    /// Connected, but the other end did not say what it had to within the time for it.
    Silent = 2, "silent";
    /// Nothing listens at any of the ports: no shim there, or a firewall that rejects.
    Refused = 3, "refused";
    /// The network knows no way to the address.
    Unreachable = 4, "unreachable";
    /// The GID stands for no IP address that could be connected to (link-local, InfiniBand, multicast).
    NoIp = 5, "no IP in GID";
    /// The peer is this process itself.
    Loopback = 6, "loopback";
    /// What is there speaks another protocol.
    NotShim = 7, "not a shim";
    /// The peer's shim speaks another version of the protocol.
    Version = 8, "version";
    /// The peer's secret is another one.
    Secret = 9, "secret";
    /// One side has a secret, the other has none.
    SecretMissing = 10, "secret on one side";
    /// No process there has such a QP.
    UnknownQp = 11, "unknown QP";
    /// The QP exists, but is not (or not yet) connected to the claimant's.
    NotConnected = 12, "not connected to us";
    /// Both QPs exist and name each other, but their PSNs are of two different connections.
    Epoch = 13, "other epoch";
    /// The claim names a GID that is not the address at this end of the connection.
    Address = 14, "other address";
    /// One process sent on to another once too often.
    Redirects = 15, "redirects";
    /// A message of a length that its kind does not have.
    Length = 16, "message length";
    /// An unknown kind of message.
    Kind = 17, "message kind";
    /// A message with a field out of its range.
    Value = 18, "message field";
    /// A message that may not come now.
    Order = 19, "message order";
    /// The peer did not read what it was sent, or this side cannot keep up with its own requests.
    Backlog = 20, "backlog";
    /// A limit on connections or claims is reached.
    Limit = 21, "limit";
    /// Dropped for newer connections, since it had proven nothing yet.
    Crowded = 22, "crowded out";
    /// The two processes have another connection between the same addresses.
    Duplicate = 23, "duplicate";
    /// Nothing was asked for a while, and no pair of QPs needs the connection.
    Idle = 24, "idle";
    /// The connection broke: the peer died, or the network failed.
    Lost = 25, "lost";
    /// Closed on request, as when the program ends.
    Closed = 26, "closed";
    /// None of the well-known ports could be bound.
    Ports = 27, "ports taken";
    /// This process could not make a socket (descriptors, memory).
    Local = 28, "local";
    /// A lane could not be made.
    Lane = 29, "lane";
}

impl Reason {
    /// The reason of a code; of one that this version does not know, [`Reason::Other`].
    pub fn from_code(code: u8) -> Reason {
        Reason::ALL.get(usize::from(code)).copied().unwrap_or(Reason::Other)
    }

    /// Code on the wire, and index of its counter.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Whether the same may well succeed a little later.
    pub fn may_pass(self) -> bool {
        use Reason::*;
        matches!(
            self,
            Other
                | NoAnswer
                | Silent
                | Refused
                | Unreachable
                | UnknownQp
                | NotConnected
                | Backlog
                | Limit
                | Crowded
                | Duplicate
                | Idle
                | Lost
                | Local
        )
    }
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_places_in_the_list_and_come_back() {
        for (i, r) in Reason::ALL.iter().enumerate() {
            assert_eq!((usize::from(r.code()), Reason::from_code(r.code())), (i, *r));
        }
        assert_eq!(Reason::from_code(255), Reason::Other);
    }

    #[test]
    fn names_are_short_and_differ() {
        let names: std::collections::HashSet<_> = Reason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        assert!(names.iter().all(|n| !n.is_empty() && n.len() <= 20));
    }
}
