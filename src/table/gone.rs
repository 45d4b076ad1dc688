//! The end of an object's state: it is kept a while after the object is gone, so that even a program which still uses a
//! destroyed object does no harm.

use crate::sync::SpinLock;
use std::collections::VecDeque;

/// How many are kept.
const MOST: usize = 64;

/// Makes a state live until [`Gone`] frees it.
pub fn live<T>(state: T) -> &'static T {
    let raw = Box::into_raw(Box::new(state));
    // So that the address, of which the tables hold shared references, can be the box's again.
    let _ = raw.expose_provenance();
    // SAFETY: just made, and freed only as `Gone::add` demands.
    unsafe { &*raw }
}

/// States of destroyed objects, the oldest first.
pub struct Gone<T: 'static>(SpinLock<VecDeque<&'static T>>);

impl<T> Default for Gone<T> {
    fn default() -> Self {
        Gone::new()
    }
}

impl<T> Gone<T> {
    /// None.
    pub const fn new() -> Gone<T> {
        Gone(SpinLock::new(VecDeque::new()))
    }

    /// Keeps this one, and frees the one that was added 64 before.
    ///
    /// # Safety
    /// The state was made by [`live`], is in no table any more, and is added once.
    pub unsafe fn add(&self, state: &'static T) {
        let mut all = self.0.lock();
        all.push_back(state);
        let oldest = if all.len() > MOST { all.pop_front() } else { None };
        drop(all);
        if let Some(oldest) = oldest {
            let raw = core::ptr::with_exposed_provenance_mut::<T>(core::ptr::from_ref(oldest).addr());
            // SAFETY: made by `live`, which exposed it; as the callers promised, nobody finds it any more.
            drop(unsafe { Box::from_raw(raw) });
        }
    }

    /// In a forked child: whoever held the lock does not exist here.
    ///
    /// # Safety
    /// The process has one thread.
    pub unsafe fn reset_after_fork(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.force_unlock() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn the_newest_are_kept_and_each_older_one_is_freed_once() {
        static FREED: AtomicU64 = AtomicU64::new(0);
        struct State(u64);
        impl Drop for State {
            fn drop(&mut self) {
                // In the order in which they were added.
                assert_eq!(FREED.fetch_add(1, Relaxed), self.0);
            }
        }
        let gone = Gone::new();
        let all: Vec<_> = (0..100).map(|i| live(State(i))).collect();
        for (i, state) in (0u64..).zip(all) {
            // SAFETY: made by `live`, in no table.
            unsafe { gone.add(state) };
            assert_eq!((state.0, FREED.load(Relaxed)), (i, (i + 1).saturating_sub(MOST as u64)));
        }
    }
}
