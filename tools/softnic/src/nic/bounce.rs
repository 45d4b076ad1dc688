//! Copying where the system does not let processes reach one another's memory: through the segment of whoever owns the
//! memory, whose own thread does its half. That thread does nothing else, so it waits for no lock and can always be waited
//! for. It sleeps while nobody asks.

use super::copy::{self, CopyError, Pieces};
use super::host::Host;
use super::peer::Peer;
use crate::shared::layout::{BOUNCE, Bounce};
use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::ptr::{from_ref, null};
use std::time::{Duration, Instant};

const IDLE: u32 = 0;
const WRITE: u32 = 1;
const READ: u32 = 2;
const DONE: u32 = 3;
const FAULT: u32 = 4;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the owner of the other memory.
    There,
    /// From it.
    Here,
}

/// Whether this process should have the thread: whoever cannot reach its memory needs it.
pub fn is_needed(direct: bool) -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let (mut from, mut to) = (1u8, 0u8);
    let (from, to) = (Pieces::one(&raw mut from as u64, 1), Pieces::one(&raw mut to as u64, 1));
    // SAFETY: two variables of this function.
    let refused = unsafe { copy::write(Some(std::process::id()), &to, &from) }.is_err();
    !direct || refused || scope.is_ok_and(|s| s.trim() != "0")
}

fn wait(word: &AtomicU32, value: u32, time: Option<Duration>) {
    let limit = time.map(|t| libc::timespec { tv_sec: t.as_secs().cast_signed(), tv_nsec: t.subsec_nanos().into() });
    let limit = limit.as_ref().map_or(null(), from_ref);
    // SAFETY: a word in shared memory, and a time.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, limit) };
}

fn wake(word: &AtomicU32) {
    // SAFETY: a word in shared memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

fn data(b: &Bounce) -> u64 {
    b.data.get() as u64
}

/// Moves bytes between this process and another, piece by piece.
///
/// # Safety
/// As [`copy::write`].
pub unsafe fn transfer(peer: &Peer, way: Way, theirs: &Pieces, ours: &Pieces) -> Result<(), CopyError> {
    let b = &peer.header().bounce;
    if b.serves.load(Acquire) == 0 {
        return Err(CopyError::Denied);
    }
    let _turn = b.turn.lock();
    let mut done = 0;
    while done < ours.bytes() {
        let n = (ours.bytes() - done).min(BOUNCE);
        let (part, rest) = (ours.part(done, n), theirs.part(done, n));
        let room = Pieces::one(data(b), n);
        if way == Way::There {
            // SAFETY: the caller's promise; the room is the segment's, and its lock is held.
            unsafe { copy::write(None, &room, &part)? };
        }
        b.count.store(rest.iter().count() as u32, Relaxed);
        for (slot, (addr, bytes)) in b.pieces.iter().zip(rest.iter()) {
            slot[0].store(addr, Relaxed);
            slot[1].store(bytes as u64, Relaxed);
        }
        let ask = if way == Way::There { WRITE } else { READ };
        // SYNC POINT: pairs with the Acquire in `serve`.
        b.state.store(ask, Release);
        wake(&b.state);
        let until = Instant::now() + Duration::from_secs(5);
        let answer = loop {
            match b.state.load(Acquire) {
                now if now == ask => wait(&b.state, ask, Some(Duration::from_millis(20))),
                other => break other,
            }
            if peer.is_gone() || Instant::now() > until {
                break IDLE;
            }
        };
        b.state.store(IDLE, Release);
        match answer {
            DONE => {}
            FAULT => return Err(CopyError::Fault),
            _ => return Err(CopyError::Gone),
        }
        if way == Way::Here {
            // SAFETY: as above.
            unsafe { copy::read(None, &room, &part)? };
        }
        done += n;
    }
    Ok(())
}

/// Starts the thread.
pub fn start(host: &'static Host) {
    let thread = std::thread::Builder::new().name("softnic-copy".into()).stack_size(256 << 10);
    if let Err(e) = thread.spawn(|| serve(&host.me)) {
        crate::say(format_args!("no thread for copying: {e}"));
    }
}

fn serve(me: &Peer) {
    let b = &me.header().bounce;
    let own = std::process::id();
    b.serves.store(1, Release);
    loop {
        let state = b.state.load(Acquire);
        if !matches!(state, WRITE | READ) {
            wait(&b.state, state, None);
            continue;
        }
        let mut theirs = Pieces::new();
        for slot in b.pieces.iter().take(b.count.load(Relaxed) as usize) {
            theirs.push(slot[0].load(Relaxed), slot[1].load(Relaxed) as usize);
        }
        let room = Pieces::one(data(b), theirs.bytes().min(BOUNCE));
        // By the system's call if it works, so that memory that is not there is an error and no crash.
        // SAFETY: what the asker has looked up among this process's registered memory, and the room.
        let r = unsafe {
            match if state == WRITE {
                copy::write(Some(own), &theirs, &room)
            } else {
                copy::read(Some(own), &theirs, &room)
            } {
                Err(CopyError::Denied) if state == WRITE => copy::write(None, &theirs, &room),
                Err(CopyError::Denied) => copy::read(None, &theirs, &room),
                r => r,
            }
        };
        let answer = if r.is_ok() { DONE } else { FAULT };
        // SYNC POINT: pairs with the Acquire in `transfer`. Whoever asked may have given up.
        let _ = b.state.compare_exchange(state, answer, Release, Relaxed);
        wake(&b.state);
    }
}
