//! Processes that leave without finalisers, by `_exit`, `_Exit` or `quick_exit`: these end as others do.
//!
//! We export the first two; `quick_exit` calls a handler. All three may be called anywhere: in a signal handler, on its
//! small stack, while any lock of libc's or ours is held, by several threads at once, in a child of vfork that runs in its
//! parent's memory. So what is done here takes no lock, has a stack and memory of its own, and comes first and only once;
//! then the next function of the name is called. Libc's own calls of it (in `daemon`) and the system call go by unseen.

use crate::{arena, exit, flight, next, own_stack, state, transfers};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// # Safety
/// As the function of this name in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    finish();
    go_on(next::_exit(), status)
}

/// # Safety
/// As the function of this name in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    finish();
    go_on(next::_Exit(), status)
}

fn go_on(real: Option<next::Exit>, status: c_int) -> ! {
    // SAFETY: libc's function, or what it does.
    unsafe {
        if let Some(real) = real {
            real(status);
        }
        libc::syscall(libc::SYS_exit_group, status);
    }
    loop {
        core::hint::spin_loop();
    }
}

unsafe extern "C" {
    fn __cxa_at_quick_exit(handler: unsafe extern "C" fn(*mut c_void), object: *mut c_void) -> c_int;
}

unsafe extern "C" fn at_quick_exit(_: *mut c_void) {
    finish();
}

/// Called when the first device is opened, so that handlers which the program registers later run before ours.
pub fn register() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Relaxed) {
        // SAFETY: a function of this library, which is never unloaded.
        unsafe { __cxa_at_quick_exit(at_quick_exit, core::ptr::null_mut()) };
    }
}

fn finish() {
    let Some(s) = state::get() else { return };
    // In a child of vfork, or of a raw clone, all of this is the parent's.
    if std::process::id() != s.who.pid {
        return;
    }
    uninterrupted(|| {
        if !exit::begin(s.who.pid) {
            return;
        }
        transfers::finish();
        flight::finish();
        arena::enter();
        if !own_stack::call(work) {
            s.telemetry.segment().unlink();
        }
        arena::leave();
        exit::over();
    });
}

extern "C" fn work() {
    if let Some(s) = state::get() {
        let _ = catch_unwind(AssertUnwindSafe(|| exit::last_words(s, exit::Told::Suddenly)));
        s.telemetry.segment().unlink();
    }
}

/// No signal handler runs meanwhile, and no cancellation.
fn uninterrupted(work: impl FnOnce()) {
    // SAFETY: all-zero signal sets are valid values; the calls write only to what they are given.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        crate::guard::without_cancellation(work);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
    }
}
