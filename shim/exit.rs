//! The end of the process: the final snapshot, and the segment is removed.

use crate::{arena, flight, guard, log, state, transfers};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use telereduce::config;
use telereduce::shm::segment::largest_file;
use telereduce::shm::{reader::Reader, snapshot};

extern "C" fn at_exit() {
    guard::run(|| {
        let Some(s) = state::get() else { return };
        // A child that was forked without our handler (a raw clone) must not touch its parent's segment.
        if std::process::id() != s.who.pid || !begin(s.who.pid) {
            return;
        }
        transfers::finish();
        flight::finish();
        last_words(s, Told::InFull);
        s.telemetry.segment().unlink();
        over();
    });
}

/// The process that has begun to end, and the thread that ends it.
static ENDING: AtomicU32 = AtomicU32::new(0);
static ENDER: AtomicUsize = AtomicUsize::new(0);
static OVER: AtomicBool = AtomicBool::new(false);

/// True, once, if nobody in this process has begun with its end. Else another thread gets a second to finish it; there is
/// nothing to wait for if this thread was interrupted in it. Takes no lock.
pub fn begin(pid: u32) -> bool {
    // SAFETY: no preconditions.
    let me = unsafe { libc::pthread_self() as usize };
    if ENDING.swap(pid, AcqRel) != pid {
        ENDER.store(me, Release);
        return true;
    }
    wait(1000, || OVER.load(Acquire) || ENDER.load(Acquire) == me);
    false
}

/// Waits until `done`, for so many milliseconds at most. Takes no lock.
pub fn wait(most_ms: u32, done: impl Fn() -> bool) {
    for _ in 0..most_ms {
        if done() {
            break;
        }
        // SAFETY: a time that is only read.
        unsafe { libc::nanosleep(&libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 }, core::ptr::null_mut()) };
    }
}

/// The end that was begun is done.
pub fn over() {
    OVER.store(true, Release);
}

/// In a forked child, which may have an end of its own to come.
pub fn after_fork() {
    ENDER.store(0, Release);
    OVER.store(false, Release);
    arena::leave();
}

/// How an error is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// By its text.
    InFull,
    /// By its number: libc takes locks for its text.
    Suddenly,
}

/// Writes the last snapshot, if one is wanted.
pub fn last_words(s: &state::State, told: Told) {
    let Some(template) = &s.config.snapshot else { return };
    let name = config::expand(template, s.who.pid, &s.who.host, s.who.rank);
    match (write_snapshot(s, Path::new(&name)), told) {
        (Ok(()), _) => {}
        (Err(e), Told::InFull) => log::line(format_args!("cannot write the snapshot {name}: {e}")),
        (Err(e), Told::Suddenly) => {
            let number = e.raw_os_error().unwrap_or(0);
            log::line(format_args!("cannot write the snapshot {name}: error {number}"));
        }
    }
}

// The linker's array of finalisers: run after every atexit handler that the application registered.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = at_exit;

/// The process's own segment, to be read. The file may have been removed, or the program may have closed our descriptor, but
/// hardly both.
pub fn read_back(s: &state::State) -> io::Result<Reader> {
    let segment = s.telemetry.segment();
    Reader::open(segment.path()).or_else(|_| Reader::from_file(segment.file().try_clone()?)).map_err(io::Error::other)
}

fn write_snapshot(s: &state::State, path: &Path) -> io::Result<()> {
    let mut reader = read_back(s)?;
    let mut segment = snapshot::segment(&mut reader, true).map_err(io::Error::other)?;
    segment.alive = false;
    let mut json = serde_json::to_vec_pretty(&snapshot::dump(vec![segment])).map_err(io::Error::other)?;
    json.push(b'\n');
    // The kernel would end the program with SIGXFSZ.
    if json.len() as u64 > largest_file() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    File::create(path)?.write_all(&json)
}
