//! Whether a process is still the one that it was.

use std::os::fd::{FromRawFd, OwnedFd};

/// When a process started, in clock ticks since boot; 0 if there is none, or only what is left of it.
pub fn start_time(pid: u32) -> u64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0 };
    // The name may hold anything, so the fields are counted from behind its parenthesis.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    if matches!(fields.next(), None | Some("Z" | "X")) {
        return 0;
    }
    fields.nth(18).and_then(|f| f.parse().ok()).unwrap_or(0)
}

/// A file descriptor that becomes readable when the process ends.
pub fn watch(pid: u32) -> Option<OwnedFd> {
    // SAFETY: a plain system call; the descriptor is ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_start_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let start = start_time(child.id());
        assert!(start > 0);
        assert_eq!(start, start_time(child.id()));
        child.kill().expect("a child");
        while start_time(child.id()) != 0 {
            std::thread::yield_now();
        }
        child.wait().expect("a child");
        assert_eq!(start_time(child.id()), 0);
    }
}
