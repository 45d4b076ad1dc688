//! A program whose main thread has ended by `pthread_exit` ends when its last thread does. Threads of ours would keep it
//! alive: they look, and end it as its last thread would have.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::fs;
use std::time::{Duration, Instant};

/// The names of our threads.
const OURS: [&str; 4] = ["telereduce-log", "telereduce-lane", "telereduce-side", "telereduce-dump"];

/// A thread of ours looks, each of these times.
pub struct Watch {
    every: Duration,
    looked: Instant,
}

impl Watch {
    /// From now on.
    pub fn every(every: Duration) -> Watch {
        Watch { every, looked: Instant::now() }
    }

    /// If it is time: ends the process with code 0, as libc does when the last thread ends, if no thread but ours is left.
    pub fn look(&mut self) {
        static ENDING: AtomicBool = AtomicBool::new(false);
        if self.looked.elapsed() <= self.every {
            return;
        }
        self.looked = Instant::now();
        if only_ours_are_left() == Some(true) && !ENDING.swap(true, Relaxed) {
            // SAFETY: no thread of the program runs any more.
            unsafe { libc::exit(0) };
        }
    }
}

/// `None`: cannot be known.
fn only_ours_are_left() -> Option<bool> {
    // The main thread first: while it lives, which is nearly always, there is nothing else to look at.
    if !has_ended(&fs::read_to_string("/proc/self/stat").ok()?)? {
        return Some(false);
    }
    let mut ours = 0;
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let stat = match fs::read_to_string(thread.ok()?.path().join("stat")) {
            Ok(stat) => stat,
            // It has ended meanwhile.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => continue,
            Err(_) => return None,
        };
        let (name, _) = stat.split_once('(')?.1.rsplit_once(')')?;
        match (OURS.contains(&name), has_ended(&stat)?) {
            (true, _) => ours += 1,
            (false, true) => {}
            (false, false) => return Some(false),
        }
    }
    // One that was started meanwhile is counted, though it was not listed.
    Some(threads(&fs::read_to_string("/proc/self/stat").ok()?)? == ours + 1)
}

/// Whether the thread of such a line has ended.
fn has_ended(stat: &str) -> Option<bool> {
    let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
    Some(matches!(state, 'Z' | 'X'))
}

/// The number of threads in such a line, a main thread that has ended included.
fn threads(stat: &str) -> Option<usize> {
    // The 20th field; the state is the third.
    stat.rsplit_once(')')?.1.split_whitespace().nth(17)?.parse().ok()
}
