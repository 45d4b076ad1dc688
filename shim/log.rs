//! The few lines that the shim ever says, on stderr.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::io::Write;
use std::os::fd::FromRawFd;

/// Writes `telereduce: ...` and a newline in one call. Nothing is written to a stderr whose reader is gone, which would
/// kill the program with SIGPIPE, or does not read, which would block it.
pub fn line(message: fmt::Arguments<'_>) {
    let mut stderr = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry, as the count says.
    if unsafe { libc::poll(&mut stderr, 1, 100) } != 1 || stderr.revents != libc::POLLOUT {
        return;
    }
    let text = format!("telereduce: {message}\n");
    // SAFETY: ManuallyDrop keeps descriptor 2 open; writing to it touches no memory of ours.
    let mut stderr = core::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(2) });
    let _ = stderr.write_all(text.as_bytes());
}

/// As [`line`], the first time that anything is said this way.
pub fn line_once(message: fmt::Arguments<'_>) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        line(message);
    }
}
