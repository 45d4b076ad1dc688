//! The `dlsym`, `dlvsym`, `_exit` and `_Exit` behind ours: the next ones in the program's search order, normally libc's own.
//!
//! They are found by walking the list of loaded objects that the dynamic linker keeps for debuggers. That needs no call
//! and no lock, so it also works before any constructor ran, and where somebody replaced what we would have called.

use crate::elf::{Dynamic, Entry};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// `dlsym`.
pub type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
/// `dlvsym`.
pub type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// `_exit`.
pub type Exit = unsafe extern "C" fn(c_int) -> !;

/// `struct link_map`, its public part.
#[repr(C)]
struct Loaded {
    bias: usize,
    file: *const c_char,
    dynamic: *const Entry,
    next: *const Loaded,
}

/// `struct r_debug`, its first fields.
#[repr(C)]
struct ForDebuggers {
    version: c_int,
    first: *const Loaded,
}

unsafe extern "C" {
    static _r_debug: ForDebuggers;
    static _DYNAMIC: Entry;
}

/// Address of the real `dlsym`, 0 if there is none.
pub fn dlsym_address() -> usize {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    address(&FOUND, c"dlsym")
}

/// Address of the real `dlvsym`, 0 if there is none.
pub fn dlvsym_address() -> usize {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    address(&FOUND, c"dlvsym")
}

/// The real `dlsym`.
pub fn dlsym() -> Option<Dlsym> {
    // SAFETY: libc's function, or null.
    unsafe { core::mem::transmute(dlsym_address()) }
}

/// The real `dlvsym`.
pub fn dlvsym() -> Option<Dlvsym> {
    // SAFETY: libc's function, or null.
    unsafe { core::mem::transmute(dlvsym_address()) }
}

/// The real `_exit`.
pub fn _exit() -> Option<Exit> {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: libc's function, or null.
    unsafe { core::mem::transmute(address(&FOUND, c"_exit")) }
}

/// The real `_Exit`.
#[allow(non_snake_case, reason = "named as the function is")]
pub fn _Exit() -> Option<Exit> {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: libc's function, or null.
    unsafe { core::mem::transmute(address(&FOUND, c"_Exit")) }
}

#[inline(always)]
fn address(found: &AtomicUsize, name: &CStr) -> usize {
    match found.load(Relaxed) {
        0 => search(found, name),
        address => address,
    }
}

#[cold]
fn search(found: &AtomicUsize, name: &CStr) -> usize {
    let (mut behind_us, mut before_us) = (false, 0);
    // SAFETY: the list is complete before any code of a library runs. What we visit of it was there at the start of the
    // program, and is never unloaded: libc comes last at the latest.
    unsafe {
        let mut next = _r_debug.first;
        while let Some(loaded) = next.as_ref() {
            next = loaded.next;
            if core::ptr::eq(loaded.dynamic, &raw const _DYNAMIC) {
                behind_us = true;
                continue;
            }
            if loaded.dynamic.is_null() {
                continue;
            }
            let address = Dynamic::new(loaded.bias, loaded.dynamic).function(name).unwrap_or(0);
            if address != 0 && behind_us {
                found.store(address, Relaxed);
                return address;
            }
            if before_us == 0 {
                before_us = address;
            }
        }
    }
    // We were loaded late, after libc.
    found.store(before_us, Relaxed);
    before_us
}
