//! Work that the hot path seldom does, kept out of its line.
//!
//! The hot path is written so that it cannot panic and calls nothing that could unwind: the compiler then needs no
//! landing pads and keeps everything in registers, which is a third of its cost. What may panic runs [`aside`].

use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::panic::{AssertUnwindSafe, catch_unwind};

static ON_PANIC: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets what is called after a panic was caught.
pub fn on_panic(call: fn()) {
    ON_PANIC.store(call as *mut (), Relaxed);
}

/// Runs `work` out of line. If it panics, that is reported to [`on_panic`]'s function and the default is returned.
#[cold]
#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "extern \"C\" for its promise not to unwind; only Rust calls it")]
pub extern "C" fn aside<R: Default, F: FnOnce() -> R>(work: F) -> R {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(_) => {
            let call = ON_PANIC.load(Relaxed);
            if !call.is_null() {
                // SAFETY: only `on_panic` stores here, and it stores a fn().
                let call: fn() = unsafe { core::mem::transmute(call) };
                call();
            }
            R::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;

    #[test]
    fn a_panic_is_reported_and_ends_there() {
        static PANICS: AtomicUsize = AtomicUsize::new(0);
        on_panic(|| _ = PANICS.fetch_add(1, Relaxed));
        assert_eq!(aside(|| 7), 7);
        assert_eq!(aside(|| -> u32 { panic!("on purpose") }), 0);
        assert_eq!(PANICS.load(Relaxed), 1);
    }
}
