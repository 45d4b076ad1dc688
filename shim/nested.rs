//! Hooks that are reached again while they serve a call, on the same thread.
//!
//! libibverbs, providers and wrapper libraries call exports themselves. Only the outermost hook counts: what is made
//! inside is theirs, and what the program gets is counted by the hook that the program called. The innermost one tells
//! which library is at work: what it calls by name is its own.

use crate::library::Library;
use core::cell::Cell;
use core::ptr::null;

std::thread_local! {
    static AT_WORK: Cell<*const Library> = const { Cell::new(null()) };
}

/// A call of a real function, from a hook.
pub struct Inside {
    around: *const Library,
}

impl Inside {
    /// Enters a function of `library`.
    pub fn enter(library: &'static Library) -> Inside {
        Inside { around: AT_WORK.replace(library) }
    }

    /// Whether the program called the hook, and no other hook did.
    pub fn is_outermost(&self) -> bool {
        self.around.is_null()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        AT_WORK.set(self.around);
    }
}

/// The library that this thread is inside of.
pub fn at_work() -> Option<&'static Library> {
    // SAFETY: null, or a library that was entered; these are statics.
    unsafe { AT_WORK.get().as_ref() }
}
