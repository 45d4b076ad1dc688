//! The C surface: what `verbs.h` declares and `libibverbs.map` exports, in terms of [`crate::nic`].
//!
//! Every function here is called by the program, which promises what the verbs demand: valid objects that this library
//! made, lists as long as they say. That promise is what each `SAFETY` comment means by *the caller's*.

#![allow(clippy::missing_safety_doc, reason = "the verbs' own documentation says what each call demands")]

pub mod ah;
pub mod async_events;
pub mod cq;
pub mod cq_ex;
pub mod device;
pub mod kernel;
pub mod memory;
pub mod modify;
pub mod names;
pub mod qp;
pub mod qp_ex;
pub mod query;
pub mod send;
pub mod srq;
pub mod xrc;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Sets errno.
pub(crate) fn set_errno(e: c_int) {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = e };
}

/// Runs a call that returns an errno. A panic is a failure of this call only.
pub(crate) fn errno(f: impl FnOnce() -> Result<(), c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => 0,
        Ok(Err(e)) => e,
        Err(_) => libc::EIO,
    }
}

/// Runs a call that returns an object, or null and errno.
pub(crate) fn object<T>(f: impl FnOnce() -> Result<*mut T, c_int>) -> *mut T {
    let e = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(o)) => return o,
        Ok(Err(e)) => e,
        Err(_) => libc::EIO,
    };
    set_errno(e);
    core::ptr::null_mut()
}

/// Runs a call that returns 0, or -1 and errno.
pub(crate) fn minus_one(f: impl FnOnce() -> Result<(), c_int>) -> c_int {
    let e = errno(f);
    if e == 0 {
        return 0;
    }
    set_errno(e);
    -1
}

/// The errno of an I/O error.
pub(crate) fn code(e: std::io::Error) -> c_int {
    e.raw_os_error().unwrap_or(match e.kind() {
        std::io::ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    })
}

/// The mutex and condition that every object of the verbs has, and its counts of events.
pub(crate) mod acks {
    use libc::{pthread_cond_t, pthread_mutex_t};

    /// Prepares both.
    ///
    /// # Safety
    /// They are part of an object that nobody uses yet.
    pub unsafe fn init<M, C>(mutex: *mut M, cond: *mut C) {
        // SAFETY: the caller's promise; the types are those of pthread, by another name.
        unsafe {
            libc::pthread_mutex_init(mutex.cast(), core::ptr::null());
            libc::pthread_cond_init(cond.cast(), core::ptr::null());
        }
    }

    /// Counts `n` acknowledged events.
    ///
    /// # Safety
    /// They are part of a live object.
    pub unsafe fn add<M, C>(mutex: *mut M, cond: *mut C, completed: *mut u32, n: u32) {
        let (mutex, cond): (*mut pthread_mutex_t, *mut pthread_cond_t) = (mutex.cast(), cond.cast());
        // SAFETY: the caller's promise.
        unsafe {
            libc::pthread_mutex_lock(mutex);
            *completed = (*completed).wrapping_add(n);
            libc::pthread_cond_signal(cond);
            libc::pthread_mutex_unlock(mutex);
        }
    }

    /// Waits until as many were acknowledged as were reported.
    ///
    /// # Safety
    /// As above.
    pub unsafe fn wait<M, C>(mutex: *mut M, cond: *mut C, completed: *const u32, reported: impl Fn() -> u32) {
        let (mutex, cond): (*mut pthread_mutex_t, *mut pthread_cond_t) = (mutex.cast(), cond.cast());
        // SAFETY: the caller's promise.
        unsafe {
            libc::pthread_mutex_lock(mutex);
            while completed.read_volatile() != reported() {
                libc::pthread_cond_wait(cond, mutex);
            }
            libc::pthread_mutex_unlock(mutex);
        }
    }
}
