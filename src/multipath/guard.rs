//! The engine's promises that tests take away one at a time, to see that the simulation notices.

/// A check without which the order contract is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// The tail waits for all bodies (C2, C4).
    TailLast,
    /// WRs after a split one wait for its tail (C3).
    HoldBack,
    /// Strict: bodies wait for all earlier WRs (C5).
    StrictWait,
    /// Notify: bodies wait for earlier WRs that they conflict with (C5, C6).
    Overlap,
    /// Notify: what passed unseen may conflict (C5).
    Unseen,
    /// A fenced body waits for earlier READs and atomics (C6).
    Fence,
    /// The head's completion is ours (C1).
    SwallowHead,
    /// A tail's completion says the whole length (C1).
    Length,
    /// A WR is not posted whole while pieces of it may still arrive (C7, C12).
    Settle,
    /// A WR that lanes refuse is posted whole (C7).
    Whole,
    /// One WR more than the application's queue holds is refused (C8).
    Limit,
    /// Nothing starts after stop (C11).
    Stop,
    /// Quiet means that no piece is in flight (C11).
    Quiet,
    /// What is lost while the application makes the QP leave RTS flushes (C7).
    Leave,
    /// A lost piece is sent anew only after the peer's end is gone (C12).
    RevokeFirst,
    /// The tail waits for the record of the message's length (C1, at the receiver).
    RecordFirst,
    /// Notify: records do not run further ahead than the ring is long (C1, at the receiver).
    Lead,
    /// A record counts only for its own message and connection (C1, at the receiver).
    Match,
    /// Receives are counted anew from a RESET on (C1, at the receiver).
    Restart,
    /// Completions from before a RESET are drawn before new ones can come: the driver's promise (C1, at the receiver).
    #[cfg(test)]
    DrawFirst,
}

/// Which guards are in their places: all, but for tests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guards {
    #[cfg(test)]
    pub without: Option<Guard>,
}

impl Guards {
    /// Whether this one is.
    #[inline(always)]
    pub fn keep(self, guard: Guard) -> bool {
        #[cfg(test)]
        return self.without != Some(guard);
        #[cfg(not(test))]
        {
            let _ = guard;
            true
        }
    }
}

#[cfg(test)]
impl Guard {
    pub(super) const ALL: [Guard; 20] = [
        Guard::Leave,
        Guard::TailLast,
        Guard::HoldBack,
        Guard::StrictWait,
        Guard::Overlap,
        Guard::Unseen,
        Guard::Fence,
        Guard::SwallowHead,
        Guard::Length,
        Guard::Settle,
        Guard::Whole,
        Guard::Limit,
        Guard::Stop,
        Guard::Quiet,
        Guard::RevokeFirst,
        Guard::RecordFirst,
        Guard::Lead,
        Guard::Match,
        Guard::Restart,
        Guard::DrawFirst,
    ];
}
