//! A lock that its first user owns: while no other thread wants it, taking and giving it are plain stores.
//!
//! The owner says "busy" and then looks whether it still owns the lock; who takes the lock away says "shared" and then
//! looks whether the owner is busy. One of the two must see the other, for which a fence is needed on both sides. The
//! owner's would cost as much as a locked instruction, so the one who takes it away makes *all* threads of the process
//! pass a barrier, with the system call `membarrier`, once. From then on the lock is an ordinary spin lock.

use super::atomic::{AtomicBool, AtomicUsize, compiler_fence, fence};
use super::spin::{Pause, SpinLock};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};

/// No thread has used the lock yet.
const NOBODY: usize = 0;
/// Several threads use it.
const SHARED: usize = 1;

/// Whether new locks may have owners.
static OWNERS: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

/// Asks the kernel for `membarrier`; without it every lock is shared from the start. Call once per process, before locks
/// are made.
pub fn allow_owners() {
    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
    // SAFETY: the call takes no memory.
    let rc = unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) };
    OWNERS.store(rc == 0, Relaxed);
}

/// Makes every running thread of the process pass a full memory barrier.
#[cfg(not(loom))]
fn barrier_everywhere() {
    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    // SAFETY: the call takes no memory.
    let rc = unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
    if rc != 0 {
        // Forbidden since it was registered (a seccomp filter). A store leaves the processor's buffer within microseconds.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    fence(SeqCst);
}

/// Loom knows no system call; with it the owner's fence is a real one, too, which is what the call makes of it.
#[cfg(loom)]
fn barrier_everywhere() {
    fence(SeqCst);
}

/// A number that no two living threads share, never 0 or 1.
#[cfg(loom)]
pub(super) fn this_thread() -> usize {
    static NEXT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(SHARED + 1);
    loom::thread_local! { static ME: usize = NEXT.fetch_add(1, Relaxed) }
    ME.with(|me| *me)
}

/// A number that no two living threads share, never 0 or 1.
#[cfg(not(loom))]
#[inline(always)]
pub(super) fn this_thread() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let thread: usize;
        // SAFETY: on x86-64 Linux the first word at %fs is the address of the thread's control block.
        unsafe {
            core::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(pure, readonly, nostack, preserves_flags))
        };
        thread
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: no preconditions.
        unsafe { libc::pthread_self() as usize }
    }
}

/// A value behind a lock that is free of charge for its first user, on cache lines of its own.
#[repr(align(64))]
pub struct OwnedLock<T> {
    owner: AtomicUsize,
    busy: AtomicBool,
    /// The holder has `shared`. Written by that holder only; `busy` cannot tell, since a former owner sets it for a moment
    /// before it sees that it is none.
    by_turns: AtomicBool,
    shared: SpinLock<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time access to the value.
unsafe impl<T: Send> Sync for OwnedLock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: Send> Send for OwnedLock<T> {}

impl<T: Default> Default for OwnedLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> OwnedLock<T> {
    /// An open lock without an owner.
    pub fn new(value: T) -> Self {
        let owner = AtomicUsize::new(if OWNERS.load(Relaxed) { NOBODY } else { SHARED });
        OwnedLock {
            owner,
            busy: AtomicBool::new(false),
            by_turns: AtomicBool::new(false),
            shared: SpinLock::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// The lock, if that is free of charge: the calling thread owns it. The hot path tries this first, so that its own
    /// code has no branch for a shared lock.
    #[inline(always)]
    pub fn try_own(&self) -> Option<OwnerGuard<'_, T>> {
        let me = this_thread();
        if self.owner.load(Relaxed) == me {
            self.busy.store(true, Relaxed);
            // SYNC POINT: with barrier_everywhere in `take_away`, orders the store before the load below.
            compiler_fence(SeqCst);
            if self.owner.load(Acquire) == me {
                return Some(OwnerGuard(self));
            }
            self.busy.store(false, Release);
        }
        None
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> OwnedGuard<'_, T> {
        match self.try_own() {
            // Given back by OwnedGuard::drop, which sees that it is the owner's.
            Some(mine) => {
                core::mem::forget(mine);
                OwnedGuard(self)
            }
            None => self.lock_slowly(this_thread()),
        }
    }

    /// Does `work` under the lock, and leaves it without an owner if it had none: for who makes or changes what another
    /// thread will use.
    pub fn in_passing<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let had_none = self.owner.load(Relaxed) == NOBODY;
        let mut guard = self.lock();
        let result = work(&mut guard);
        drop(guard);
        if had_none {
            // SYNC POINT: pairs with the Acquire of who owns it next. Fails if another thread has taken it away since.
            let _ = self.owner.compare_exchange(this_thread(), NOBODY, Release, Relaxed);
        }
        result
    }

    /// Ends the ownership, if there is one: from now on [`OwnedLock::try_own`] answers `None`. The caller does not hold the
    /// lock.
    #[inline(always)]
    pub fn share(&self) {
        if self.owner.load(Relaxed) != SHARED {
            self.share_slowly();
        }
    }

    #[cold]
    #[inline(never)]
    extern "C" fn share_slowly(&self) {
        if self.owner.compare_exchange(NOBODY, SHARED, Acquire, Relaxed).is_err() {
            let _one = self.shared.lock();
            if self.owner.load(Relaxed) != SHARED {
                self.take_away();
            }
        }
    }

    // extern "C" for its promise not to unwind: there is nothing in it that could.
    #[cold]
    #[inline(never)]
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    extern "C" fn lock_slowly(&self, me: usize) -> OwnedGuard<'_, T> {
        if self.owner.compare_exchange(NOBODY, me, Acquire, Relaxed).is_ok() {
            return self.lock();
        }
        // Given back by OwnedGuard::drop.
        core::mem::forget(self.shared.lock());
        if self.owner.load(Relaxed) != SHARED {
            self.take_away();
        }
        self.by_turns.store(true, Relaxed);
        OwnedGuard(self)
    }

    #[cold]
    #[inline(never)]
    extern "C" fn unlock_shared(&self) {
        self.by_turns.store(false, Relaxed);
        // SAFETY: a guard that is not the owner's holds it.
        unsafe { self.shared.force_unlock() };
    }

    /// Ends the ownership, whoever's it is, and waits until the owner is out. Holds `shared`.
    fn take_away(&self) {
        self.owner.store(SHARED, SeqCst);
        barrier_everywhere();
        let mut pause = Pause::default();
        // SYNC POINT: Acquire pairs with the owner's Release in OwnedGuard::drop.
        while self.busy.load(Acquire) {
            pause.once();
        }
    }
}

/// Holds the lock as its owner until it is dropped.
#[repr(transparent)]
pub struct OwnerGuard<'a, T>(&'a OwnedLock<T>);

impl<T> Deref for OwnerGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for OwnerGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and it is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for OwnerGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.busy.store(false, Release);
    }
}

/// Holds the lock until it is dropped.
pub struct OwnedGuard<'a, T>(&'a OwnedLock<T>);

impl<T> Deref for OwnedGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for OwnedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and it is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for OwnedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // False for the owner: others set it after `take_away` has seen the owner out, and clear it before they leave.
        if !self.0.by_turns.load(Relaxed) {
            self.0.busy.store(false, Release);
        } else {
            self.0.unlock_shared();
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// Loom's cell panics if two threads use it at once.
    #[test]
    fn the_owner_and_another_thread_are_never_both_inside() {
        OWNERS.store(true, Relaxed);
        loom::model(|| {
            // SAFETY: whoever adds holds the lock.
            let add = |v: *mut u32| unsafe { *v += 1 };
            let lock = Arc::new(OwnedLock::new(UnsafeCell::new(0)));
            lock.lock().with_mut(add);
            let other = loom::thread::spawn({
                let lock = lock.clone();
                move || lock.lock().with_mut(add)
            });
            if let Some(mine) = lock.try_own() {
                mine.with_mut(add);
            } else {
                lock.lock().with_mut(add);
            }
            other.join().unwrap();
            // SAFETY: read under the lock.
            lock.lock().with(|v| assert_eq!(unsafe { *v }, 3));
        });
    }

    #[test]
    fn who_is_there_in_passing_is_alone_and_leaves_nobody_behind() {
        OWNERS.store(true, Relaxed);
        loom::model(|| {
            // SAFETY: whoever adds holds the lock.
            let add = |v: *mut u32| unsafe { *v += 1 };
            let lock = Arc::new(OwnedLock::new(UnsafeCell::new(0)));
            let other = loom::thread::spawn({
                let lock = lock.clone();
                move || lock.lock().with_mut(add)
            });
            lock.in_passing(|v| v.with_mut(add));
            other.join().unwrap();
            assert_ne!(lock.owner.load(Relaxed), this_thread());
            // SAFETY: read under the lock.
            lock.lock().with(|v| assert_eq!(unsafe { *v }, 2));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_user_owns_it_and_a_second_one_makes_it_shared() {
        allow_owners();
        let lock = OwnedLock::new(0);
        *lock.lock() += 1;
        assert_eq!(lock.owner.load(Relaxed), this_thread());
        *lock.try_own().unwrap() += 1;
        std::thread::scope(|s| {
            s.spawn(|| {
                assert!(lock.try_own().is_none());
                *lock.lock() += 1;
            });
        });
        assert_eq!(lock.owner.load(Relaxed), SHARED);
        assert!(lock.try_own().is_none());
        assert_eq!(*lock.lock(), 3);
    }

    #[test]
    fn who_is_there_in_passing_does_not_become_the_owner_or_end_an_ownership() {
        allow_owners();
        let lock = OwnedLock::new(0);
        std::thread::scope(|s| {
            s.spawn(|| lock.in_passing(|v| *v += 1));
        });
        assert_eq!(lock.owner.load(Relaxed), NOBODY);
        *lock.lock() += 1;
        lock.in_passing(|v| *v += 1);
        assert_eq!(lock.owner.load(Relaxed), this_thread());
        assert_eq!(*lock.try_own().unwrap(), 3);
    }

    #[test]
    fn a_lock_that_was_shared_has_no_owner() {
        allow_owners();
        for used in [false, true] {
            let lock = OwnedLock::new(0);
            if used {
                *lock.lock() += 1;
            }
            lock.share();
            assert!(lock.try_own().is_none());
            *lock.lock() += 1;
            assert!(lock.try_own().is_none());
        }
    }

    #[test]
    fn a_former_owner_that_looks_busy_for_a_moment_does_not_keep_it_locked() {
        let lock = std::sync::Arc::new(OwnedLock::new(0));
        lock.owner.store(SHARED, Relaxed);
        let guard = lock.lock();
        // Between the two looks at `owner`, in `lock`.
        lock.busy.store(true, Relaxed);
        drop(guard);
        lock.busy.store(false, Relaxed);
        let (done, wait) = std::sync::mpsc::channel();
        std::thread::spawn({
            let lock = lock.clone();
            move || done.send(*lock.lock())
        });
        assert_eq!(wait.recv_timeout(std::time::Duration::from_secs(10)), Ok(0));
    }

    #[test]
    fn no_increment_is_lost_while_ownership_ends() {
        allow_owners();
        for _ in 0..300 {
            let lock = OwnedLock::new(0u64);
            let (mine, others) = (std::cell::Cell::new(0u64), AtomicUsize::new(0));
            std::thread::scope(|s| {
                s.spawn(|| {
                    for _ in 0..50 {
                        *lock.lock() += 1;
                        others.fetch_add(1, Relaxed);
                    }
                });
                for i in 0..5000 {
                    match lock.try_own() {
                        Some(mut v) if i % 2 == 0 => *v += 1,
                        other => {
                            drop(other);
                            *lock.lock() += 1;
                        }
                    }
                    mine.set(mine.get() + 1);
                }
            });
            assert_eq!(*lock.lock(), mine.get() + others.load(Relaxed) as u64);
        }
    }

    #[test]
    fn threads_have_different_numbers() {
        let mine = this_thread();
        std::thread::scope(|s| {
            s.spawn(move || assert_ne!(this_thread(), mine));
        });
        assert!(mine > SHARED);
    }
}
