//! SIGUSR2 asks the flight recorder for a file, where the program has no use of its own for the signal.
//!
//! The handler sets a flag. A handler that the program sets later replaces it, and may call it, as the one before. What is
//! ignored stays ignored, and what is blocked is not taken. A forked child has the default again.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

static ASKED: AtomicBool = AtomicBool::new(false);
/// The handler may be set.
static LISTENS: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: c_int) {
    ASKED.store(true, Release);
}

fn handler() -> libc::sighandler_t {
    on_signal as extern "C" fn(c_int) as libc::sighandler_t
}

/// Takes the signal, if it would end the program.
pub fn listen() {
    // SAFETY: all-zero actions are valid values; the calls read and write only these.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        if libc::sigaction(libc::SIGUSR2, core::ptr::null(), &mut action) != 0 || action.sa_sigaction != libc::SIG_DFL {
            return;
        }
        action.sa_sigaction = handler();
        // The program's calls go on, and its signal stack is used where it has one.
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGUSR2, &action, core::ptr::null_mut());
    }
    LISTENS.store(true, Relaxed);
}

/// Whether a file was asked for since the last time.
pub fn was_asked() -> bool {
    ASKED.swap(false, Acquire)
}

/// Whether one is asked for.
pub fn is_asked() -> bool {
    ASKED.load(Acquire)
}

/// In a forked child, where nobody looks: the default again, unless the program has set something else.
pub fn after_fork() {
    if !LISTENS.swap(false, Relaxed) {
        return;
    }
    ASKED.store(false, Relaxed);
    // SAFETY: as in `listen`.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        if libc::sigaction(libc::SIGUSR2, core::ptr::null(), &mut action) == 0 && action.sa_sigaction == handler() {
            action.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(libc::SIGUSR2, &action, core::ptr::null_mut());
        }
    }
}
