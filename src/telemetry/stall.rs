//! How long a queue's sends wait, known from looks at its counters: posting and polling pay nothing for it.
//!
//! A send *waits* if a completion was asked for, its own or that of a later one, and none was polled that covers it. Without
//! such a request none will come, and sends without one may stay outstanding for ever in a queue that is merely idle. A
//! queue *stalls* once it has waited for so long without any completion.
//!
//! Ages are those that the looks prove, at most one look too small, and never too large. A completion that the device has
//! and the program did not poll is seen by nobody: its send waits.

/// A queue's counters, in WRs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Posted.
    pub posted: u64,
    /// Number of the last that asks for a completion.
    pub asked: u64,
    /// Retired.
    pub retired: u64,
}

/// What was known of a queue at the last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting {
    waits: bool,
    stalls: bool,
    retired: u64,
    /// Since then nothing completed.
    moved_ns: u64,
    /// WRs up to this number were posted by then.
    mark: u64,
    mark_ns: u64,
}

/// What a look found to have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A stall began; nothing completed for so long.
    Begins(u64),
    /// It is over, after so long.
    Ends(u64),
}

impl Waiting {
    /// The queue, looked at `now_ns`, on any clock that does not go back. It stalls once nothing completed for `after_ns`; not
    /// if it `is_broken`.
    pub fn look(
        &mut self,
        queue: Queue,
        now_ns: u64,
        after_ns: u64,
        is_broken: impl FnOnce() -> bool,
    ) -> Option<Change> {
        let waits = queue.asked > queue.retired;
        if queue.retired >= self.mark || queue.posted < self.mark || !self.waits {
            (self.mark, self.mark_ns) = (queue.posted, now_ns);
        }
        if !waits || !self.waits || queue.retired != self.retired {
            let change = self.stalls.then(|| Change::Ends(now_ns - self.moved_ns));
            (self.waits, self.stalls, self.retired, self.moved_ns) = (waits, false, queue.retired, now_ns);
            return change;
        }
        let waited = now_ns - self.moved_ns;
        if self.stalls || waited < after_ns || is_broken() {
            return None;
        }
        self.stalls = true;
        Some(Change::Begins(waited))
    }

    /// When, at the latest, the oldest outstanding WR was posted; `None`: nothing waits.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.waits.then_some(self.mark_ns)
    }

    /// Since when nothing completes, of a queue that stalls.
    pub fn stalled_ns(&self) -> Option<u64> {
        self.stalls.then_some(self.moved_ns)
    }

    /// When something was last seen to complete, or the queue to be idle.
    pub fn moved_ns(&self) -> u64 {
        self.moved_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const AFTER: u64 = 50;

    /// A queue that posts, completes and is looked at.
    #[derive(Default)]
    struct Model {
        now: u64,
        queue: Queue,
        /// When each outstanding WR was posted, and whether it asks for a completion.
        open: VecDeque<(u64, bool)>,
        /// When something last completed, or it began to wait.
        moved: u64,
        waiting: Waiting,
    }

    impl Model {
        fn waits(&self) -> bool {
            self.open.iter().any(|o| o.1)
        }

        fn post(&mut self, asks: bool) {
            if asks && !self.waits() {
                self.moved = self.now;
            }
            self.open.push_back((self.now, asks));
            self.queue.posted += 1;
            if asks {
                self.queue.asked = self.queue.posted;
            }
        }

        fn complete(&mut self) {
            if let Some(at) = self.open.iter().position(|o| o.1) {
                self.open.drain(..=at);
                self.queue.retired += at as u64 + 1;
                self.moved = self.now;
            }
        }

        fn look(&mut self) -> Option<Change> {
            self.waiting.look(self.queue, self.now, AFTER, || false)
        }
    }

    proptest! {
        /// No age is larger than the truth; the look after a wait of AFTER and one more look says so; what ends had begun.
        #[test]
        fn looks_prove_what_they_say(steps in prop::collection::vec((0u8..10, 0u64..30), 1..300)) {
            let (mut m, mut stalls, mut looked) = (Model::default(), false, 0);
            for (what, time) in steps {
                m.now += time;
                match what {
                    0..3 => m.post(what > 0),
                    3..5 => m.complete(),
                    _ => {
                        let change = m.look();
                        prop_assert_eq!(m.waiting.oldest_ns().is_some(), m.waits());
                        if let Some(ns) = m.waiting.oldest_ns() {
                            prop_assert!(ns >= m.open[0].0 && ns <= m.now);
                        }
                        match change {
                            Some(Change::Begins(ns)) => {
                                prop_assert!(!stalls && ns >= AFTER && m.waits() && m.now - m.moved >= ns);
                                stalls = true;
                            }
                            Some(Change::Ends(ns)) => {
                                prop_assert!(stalls && ns >= AFTER);
                                stalls = false;
                            }
                            None => {}
                        }
                        prop_assert_eq!(stalls, m.waiting.stalled_ns().is_some());
                        // It has been seen to wait, and nothing has moved since.
                        if m.waits() && m.moved < looked && m.now - looked >= AFTER {
                            prop_assert!(stalls);
                        }
                        if !(m.waits() && m.moved < looked) {
                            looked = m.now;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn sends_that_ask_for_nothing_do_not_wait() {
        let mut m = Model::default();
        m.post(false);
        for _ in 0..10 {
            assert_eq!((m.look(), m.waiting.oldest_ns()), (None, None));
            m.now += AFTER;
        }
        // Covered by one that asks, they do, from when they were seen.
        m.post(true);
        m.look();
        m.now += AFTER;
        assert_eq!(m.look(), Some(Change::Begins(AFTER)));
        m.now += AFTER;
        m.complete();
        assert_eq!((m.look(), m.waiting.oldest_ns()), (Some(Change::Ends(2 * AFTER)), None));
    }

    #[test]
    fn a_deep_queue_that_moves_is_old_and_does_not_stall() {
        let mut m = Model::default();
        (0..100).for_each(|_| m.post(true));
        for _ in 0..99 {
            assert_eq!(m.look(), None);
            m.now += AFTER - 1;
            m.complete();
        }
        assert_eq!(m.waiting.oldest_ns(), Some(0));
    }

    #[test]
    fn a_broken_queue_does_not_stall() {
        let mut m = Model::default();
        m.post(true);
        m.look();
        m.now += 2 * AFTER;
        assert_eq!(m.waiting.look(m.queue, m.now, AFTER, || true), None);
        assert_eq!(m.look(), Some(Change::Begins(2 * AFTER)));
    }
}
