//! A lock in shared memory that outlives whoever holds it.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

/// A value and its lock, shared between processes.
#[repr(C)]
pub struct Locked<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the mutex guards the value, between threads and processes alike.
unsafe impl<T: Send> Sync for Locked<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Locked<T> {}

/// The right to the value.
pub struct Guard<'a, T>(&'a Locked<T>);

impl<T> Locked<T> {
    /// Makes it at `at`.
    ///
    /// # Safety
    /// `at` is memory for one that nobody uses yet.
    pub unsafe fn init(at: *mut Locked<T>, value: T) {
        // SAFETY: the caller's promise; attributes are initialised before they are used.
        unsafe {
            let mut attributes = core::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut attributes);
            libc::pthread_mutexattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(&raw mut attributes, libc::PTHREAD_MUTEX_ROBUST);
            libc::pthread_mutex_init((*at).mutex.get(), &raw const attributes);
            libc::pthread_mutexattr_destroy(&raw mut attributes);
            (*at).value.get().write(value);
        }
    }

    /// Waits for it. A holder that died left the value as each of its stores left it: those who change it order their
    /// stores so that this can be lived with.
    pub fn lock(&self) -> Guard<'_, T> {
        // SAFETY: it was initialised.
        unsafe {
            if libc::pthread_mutex_lock(self.mutex.get()) == libc::EOWNERDEAD {
                libc::pthread_mutex_consistent(self.mutex.get());
            }
        }
        Guard(self)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.0.mutex.get()) };
    }
}
