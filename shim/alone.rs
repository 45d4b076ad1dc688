//! A program whose main thread has ended by `pthread_exit` ends when its last thread does. Threads of ours would keep it
//! alive: they look, and end it as its last thread would have.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::fs;

/// What the names of our threads begin with.
const OURS: &str = "telereduce-";

/// Ends the process with code 0, as libc does when the last thread ends, if no thread but ours is left. Called by threads of
/// ours now and then.
pub fn end_if_only_ours_are_left() {
    static ENDING: AtomicBool = AtomicBool::new(false);
    if only_ours_are_left() == Some(true) && !ENDING.swap(true, Relaxed) {
        // SAFETY: no thread of the program runs any more.
        unsafe { libc::exit(0) };
    }
}

/// `None`: cannot be known.
fn only_ours_are_left() -> Option<bool> {
    // The main thread first: while it lives, which is nearly always, there is nothing else to look at.
    if !is_over(&fs::read_to_string("/proc/self/stat").ok()?)? {
        return Some(false);
    }
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let stat = match fs::read_to_string(thread.ok()?.path().join("stat")) {
            Ok(stat) => stat,
            // It has ended meanwhile.
            Err(_) => continue,
        };
        let (name, _) = stat.split_once('(')?.1.rsplit_once(')')?;
        if !name.starts_with(OURS) && !is_over(&stat)? {
            return Some(false);
        }
    }
    Some(true)
}

/// Whether the thread of such a line has ended.
fn is_over(stat: &str) -> Option<bool> {
    let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
    Some(matches!(state, 'Z' | 'X'))
}
