//! Memory for the last snapshot, which may be written while some thread, even the one that writes, is inside of malloc.
//!
//! The library's allocator is malloc, except on the one thread that has entered the arena: it gets pieces of a mapping of
//! its own, one behind the other, and what it frees is simply left. The hot path allocates nothing, so it pays nothing.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{copy_nonoverlapping, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Address space that is asked for, half as much if there is not enough, and so on. Only what is used becomes memory.
const LARGEST: usize = 1 << 36;
const SMALLEST: usize = 1 << 20;

/// The thread in the arena, 0 if there is none.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Where the next piece begins. Only the thread in the arena uses it.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// From now on this thread allocates in the arena. One thread of the process at most.
pub fn enter() {
    INSIDE.store(this_thread(), Release);
}

/// From now on it does not. Pieces that it keeps stay valid.
pub fn leave() {
    INSIDE.store(0, Release);
}

fn this_thread() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

#[inline]
fn is_inside() -> bool {
    match INSIDE.load(Relaxed) {
        0 => false,
        thread => thread == this_thread(),
    }
}

#[inline]
fn is_piece(at: *mut u8) -> bool {
    (START.load(Acquire)..END.load(Relaxed)).contains(&(at as usize))
}

/// Anonymous memory, or null.
pub fn map(bytes: usize) -> *mut u8 {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let at = unsafe { libc::mmap(null_mut(), bytes, access, kind | libc::MAP_NORESERVE, -1, 0) };
    if at == libc::MAP_FAILED { null_mut() } else { at.cast() }
}

fn first_piece() {
    let mut bytes = LARGEST;
    while bytes >= SMALLEST {
        let at = map(bytes) as usize;
        if at != 0 {
            NEXT.store(at, Relaxed);
            END.store(at + bytes, Relaxed);
            START.store(at, Release);
            return;
        }
        bytes /= 2;
    }
}

fn piece(layout: Layout) -> *mut u8 {
    if START.load(Relaxed) == 0 {
        first_piece();
    }
    let at = NEXT.load(Relaxed).next_multiple_of(layout.align());
    match at.checked_add(layout.size()) {
        Some(end) if at != 0 && end <= END.load(Relaxed) => {
            NEXT.store(end, Relaxed);
            at as *mut u8
        }
        _ => null_mut(),
    }
}

struct Allocator;

// SAFETY: either malloc throughout, or pieces of the arena, which do not overlap and are never used again.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_inside() {
            return piece(layout);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_inside() {
            // Never used before, so still as the kernel made it.
            return piece(layout);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if !is_piece(at) && !is_inside() {
            // SAFETY: the caller's promise; it is malloc's.
            unsafe { System.dealloc(at, layout) }
        }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_piece(at) && !is_inside() {
            // SAFETY: the caller's promise; it is malloc's.
            return unsafe { System.realloc(at, layout, size) };
        }
        // The newest piece grows where it is, as a buffer does that is filled.
        let (from, end) = (at as usize, at as usize + layout.size());
        if is_inside() && end == NEXT.load(Relaxed) && size >= layout.size() && size <= END.load(Relaxed) - from {
            NEXT.store(from + size, Relaxed);
            return at;
        }
        // SAFETY: the caller's promise: the size is not 0 and does not overflow; the new place is another one.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                copy_nonoverlapping(at, new, layout.size().min(size));
            }
            new
        }
    }
}
