//! An engine that has nothing to do may sleep: WRs that pass, and their completions, go by it without a word, so that they
//! cost what they cost without it. It is woken before anything else happens: a WR that may be split, a completion in error,
//! a change of state.

use super::Engine;
use super::primary::Mark;

/// What a sleeping engine has missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// WRs that the primary took.
    pub wrs: u64,
    /// Of these, those that consume a receive at the peer.
    pub consumed: u64,
    /// WRs, these and earlier ones, that no completion has covered which the application got: the newest of all.
    pub open: u64,
}

impl Engine {
    /// Whether it may sleep: nothing is held or in flight on lanes, and the application got all completions that were told.
    #[inline(always)]
    pub fn may_sleep(&self) -> bool {
        self.ops.is_empty()
            && self.marks.is_empty()
            && self.delivered == self.acked
            && self.ready
            && !(self.flushing || self.breaking || self.stopped)
            && self.chunks.is_empty()
    }

    /// It sleeps no more. For each signaled WR that is open, oldest first, [`is_open`](Engine::is_open) or
    /// [`is_polled`](Engine::is_polled) follows, unless the QP is in ERR. Returns the number of the last WR.
    pub fn wake(&mut self, missed: Missed) -> u64 {
        self.accepted += missed.wrs;
        self.consumed += missed.consumed;
        // Nothing is known of what they touch.
        self.unseen = self.accepted;
        self.on_primary = self.accepted;
        let done = self.accepted.saturating_sub(missed.open);
        self.delivered = self.delivered.max(done);
        self.ack(done);
        self.accepted
    }

    /// WR `seq` is signaled, and its completion was not polled yet.
    pub fn is_open(&mut self, seq: u64) {
        self.mark(Mark::app(seq));
    }

    /// WR `seq` is signaled, and its completion was polled, though the application has not got it yet.
    pub fn is_polled(&mut self, seq: u64) {
        self.ack(seq);
    }
}
