//! Who is between two calls that belong together, `ibv_wr_start` and `ibv_wr_complete`, or `ibv_start_poll` and
//! `ibv_end_poll`.
//!
//! Providers keep their own lock over such a stretch, so whoever else wants the queue waits there. If one of our locks
//! were taken inside that stretch by one thread and outside it by another, they would wait for each other. So whoever
//! takes our lock and then waits for the provider, and whoever takes our lock inside the provider's, holds the gate all
//! the while, which only one can.
//!
//! It is held over the application's own code; therefore its holder may pass again, and nobody waits for ever: who finds
//! that the same holder stays for long goes on to the provider without it, and then must not take our lock inside the
//! provider's. A holder that is lost, since it left by a way that we do not see, is known to be stuck, and not waited for
//! again.

use super::owned::this_thread;
use super::spin::Pause;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::{Duration, Instant};

/// How long one waits for one and the same holder.
const PATIENCE: Duration = Duration::from_secs(1);

/// A gate, free at first.
#[derive(Default)]
#[repr(align(64))]
pub struct Gate {
    /// Number of times that it was entered and left: odd while somebody holds it.
    turn: AtomicU64,
    /// The holder's thread, 0 while nobody is known to hold it.
    thread: AtomicUsize,
    /// The turn whose holder has stayed too long.
    stuck: AtomicU64,
}

/// How somebody came to be at the gate.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It is the caller's, who is to leave it.
    Entered,
    /// It was the caller's already.
    Inside,
    /// Somebody else holds it, and stays.
    Late,
}

impl Gate {
    /// Waits for the gate, as long as holders come and go.
    #[inline(always)]
    pub fn enter(&self) -> Entry {
        let turn = self.turn.load(Relaxed);
        if turn.is_multiple_of(2) && self.take(turn) { Entry::Entered } else { self.wait(true) }
    }

    /// As [`enter`](Gate::enter), but waits for ever: never [`Entry::Late`].
    #[inline(always)]
    pub fn enter_patiently(&self) -> Entry {
        let turn = self.turn.load(Relaxed);
        if turn.is_multiple_of(2) && self.take(turn) { Entry::Entered } else { self.wait(false) }
    }

    /// Enters it if nobody holds it, not even the caller.
    #[inline(always)]
    pub fn try_enter(&self) -> bool {
        let turn = self.turn.load(Relaxed);
        turn.is_multiple_of(2) && self.take(turn)
    }

    #[inline(always)]
    fn take(&self, turn: u64) -> bool {
        // SYNC POINT: Acquire pairs with Release in `leave`.
        let taken = self.turn.compare_exchange(turn, turn + 1, Acquire, Relaxed).is_ok();
        if taken {
            self.thread.store(this_thread(), Relaxed);
        }
        taken
    }

    // extern "C" for its promise not to unwind: there is nothing in it that could.
    #[cold]
    #[inline(never)]
    extern "C" fn wait(&self, gives_up: bool) -> Entry {
        let mut pause = Pause::default();
        let mut waited_for = (0, None::<Instant>);
        loop {
            let turn = self.turn.load(Relaxed);
            if turn.is_multiple_of(2) {
                if self.take(turn) {
                    return Entry::Entered;
                }
                continue;
            }
            // Set by this thread alone, and cleared before the turn ends.
            if self.thread.load(Relaxed) == this_thread() {
                return Entry::Inside;
            }
            match waited_for {
                (same, Some(since)) if same == turn => {
                    if gives_up && (self.stuck.load(Relaxed) == turn || is_over(since)) {
                        self.stuck.store(turn, Relaxed);
                        return Entry::Late;
                    }
                }
                _ => waited_for = (turn, Some(Instant::now())),
            }
            for _ in 0..256 {
                pause.once();
            }
        }
    }

    /// Leaves it. The caller has entered it, or ends what somebody began who has.
    #[inline(always)]
    pub fn leave(&self) {
        self.thread.store(0, Relaxed);
        self.turn.store(self.turn.load(Relaxed) + 1, Release);
    }
}

fn is_over(since: Instant) -> bool {
    let over = since.elapsed() > PATIENCE;
    #[cfg(test)]
    tests::WAITED.set(tests::WAITED.get() + u32::from(over));
    over
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::AtomicBool;

    thread_local! {
        /// How often this thread's patience ended.
        pub static WAITED: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn its_holder_passes_again_and_others_after_it_has_left() {
        let gate = Gate::default();
        assert_eq!(gate.enter(), Entry::Entered);
        assert_eq!(gate.enter(), Entry::Inside);
        let left = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                assert_eq!(gate.enter(), Entry::Entered);
                assert!(left.load(Acquire));
                gate.leave();
            });
            std::thread::sleep(Duration::from_millis(5));
            left.store(true, Release);
            gate.leave();
        });
        assert_eq!(gate.enter(), Entry::Entered);
    }

    #[test]
    fn only_one_is_inside_however_many_come_and_go() {
        let (gate, inside) = (Gate::default(), std::cell::UnsafeCell::new(0));
        struct Shared<'a>(&'a Gate, &'a std::cell::UnsafeCell<u64>);
        // SAFETY: the cell is used inside the gate alone.
        unsafe impl Sync for Shared<'_> {}
        let shared = Shared(&gate, &inside);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let shared = &shared;
                    for _ in 0..5000 {
                        assert_eq!(shared.0.enter(), Entry::Entered);
                        // SAFETY: as above.
                        unsafe { *shared.1.get() += 1 };
                        shared.0.leave();
                    }
                });
            }
        });
        assert_eq!(inside.into_inner(), 20000);
    }

    #[test]
    fn who_only_tries_gets_it_when_it_is_free() {
        let gate = Gate::default();
        assert!(gate.try_enter());
        assert!(!gate.try_enter());
        assert_eq!(gate.enter_patiently(), Entry::Inside);
        gate.leave();
        assert!(gate.try_enter());
        std::thread::scope(|s| {
            let other = s.spawn(|| gate.enter_patiently());
            std::thread::sleep(PATIENCE + Duration::from_millis(200));
            gate.leave();
            assert_eq!(other.join().unwrap(), Entry::Entered);
        });
    }

    #[test]
    fn nobody_waits_for_ever_nor_twice_for_one_that_is_lost() {
        let gate = Gate::default();
        // This thread lives on: the next one gets the number of one that has ended.
        assert_eq!(gate.enter(), Entry::Entered);
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..100 {
                    assert_eq!(gate.enter(), Entry::Late);
                }
                assert_eq!(WAITED.get(), 1);
            });
        });
        gate.leave();
        assert_eq!(gate.enter(), Entry::Entered);
    }
}
