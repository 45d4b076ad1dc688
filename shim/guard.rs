//! Rule one, "never hurt the app": our own work runs here, so that a panic ends counting and not the program.

use crate::{context, log, state};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

/// Runs our work on the hot path; `None` if it panicked, in which case nothing is counted any more.
#[inline(always)]
pub fn hot<T>(work: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(v) => Some(v),
        Err(_) => {
            stop_counting();
            None
        }
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// As [`hot`], anywhere else: errno is afterwards what it was before, and a thread that is being cancelled is not ended in
/// our work, whose frames cannot be unwound, but at the program's next cancellation point.
pub fn run<T>(work: impl FnOnce() -> T) -> Option<T> {
    // SAFETY: errno is the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let result = without_cancellation(|| hot(work));
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    result
}

/// Runs `work`, in which the thread is not cancelled.
pub fn without_cancellation<T>(work: impl FnOnce() -> T) -> T {
    let mut cancel = 0;
    // SAFETY: the call writes only to what it is given.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut cancel) };
    let result = work();
    // SAFETY: as above.
    unsafe { pthread_setcancelstate(cancel, core::ptr::null_mut()) };
    result
}

/// After a panic: nothing is counted any more.
#[cold]
pub fn stop_counting() {
    context::detach_all();
    if let Some(s) = state::get() {
        s.telemetry.hot().header.panics.fetch_add(1, Relaxed);
    }
}

/// The panic hook: one line for the first panic, whatever threads it meets.
pub fn say_panic(info: &PanicHookInfo<'_>) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        let what = info.to_string().replace('\n', " ");
        log::line(format_args!("internal error, counting stops here; the program is not affected ({what})"));
    }
}

/// A place where tests make the shim panic: `TELEREDUCE_FAULT=name`, only in builds with the feature `fault`.
#[inline(always)]
pub fn fault_point(name: &str) {
    #[cfg(feature = "fault")]
    if std::env::var("TELEREDUCE_FAULT").is_ok_and(|v| v == name) {
        panic!("fault {name}");
    }
    #[cfg(not(feature = "fault"))]
    let _ = name;
}
