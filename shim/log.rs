//! The few lines that the shim ever says, on stderr.

use core::fmt;
use std::io::Write;
use std::os::fd::FromRawFd;

/// Writes `telereduce: ...` and a newline in one call. A closed or full stderr is ignored.
pub fn line(message: fmt::Arguments<'_>) {
    let text = format!("telereduce: {message}\n");
    // SAFETY: ManuallyDrop keeps descriptor 2 open; writing to it touches no memory of ours.
    let mut stderr = core::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(2) });
    let _ = stderr.write_all(text.as_bytes());
}
