//! A spin lock that costs a single locked instruction when nobody competes. A holder that is preempted makes others
//! yield instead of burning its core.

use super::atomic::{AtomicBool, const_new};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// A value behind a spin lock, on cache lines of its own.
#[repr(align(64))]
#[derive(Default)]
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time access to the value.
unsafe impl<T: Send> Sync for SpinLock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    const_new! {
        /// An open lock.
        pub fn new(value: T) -> Self {
            SpinLock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }
    }

    /// Waits for the lock.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_, T> {
        // SYNC POINT: Acquire pairs with Release in Guard::drop.
        if self.held.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            self.wait();
        }
        Guard(self)
    }

    /// The value, if nobody else can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Opens the lock whoever holds it: in a forked child, where the holder does not exist.
    ///
    /// # Safety
    /// No other thread of this process can be using the value.
    pub unsafe fn force_unlock(&self) {
        self.held.store(false, Release);
    }

    #[cold]
    fn wait(&self) {
        let mut pause = Pause::default();
        loop {
            while self.held.load(Relaxed) {
                pause.once();
            }
            if self.held.compare_exchange_weak(false, true, Acquire, Relaxed).is_ok() {
                return;
            }
        }
    }
}

/// Waiting for another thread: spin a while, then let others run.
#[derive(Default)]
pub(super) struct Pause(u32);

impl Pause {
    pub(super) fn once(&mut self) {
        self.0 = self.0.wrapping_add(1);
        #[cfg(loom)]
        return loom::thread::yield_now();
        #[cfg(not(loom))]
        if self.0.is_multiple_of(128) {
            std::thread::yield_now();
        } else {
            core::hint::spin_loop();
        }
    }
}

/// Holds the lock until it is dropped.
pub struct Guard<'a, T>(&'a SpinLock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and it is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.held.store(false, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn four_threads_lose_no_increment() {
        let lock = SpinLock::new(0u64);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 80_000);
    }
}
