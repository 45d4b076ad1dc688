//! How many states refer to one of a CQ or SRQ. Only one that nobody refers to may be freed: a QP whose destruction was not
//! seen keeps its CQs'.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Their number. It changes, and is looked at, under the registry's lock, or while the object is not destroyed yet.
#[derive(Default)]
pub(super) struct Users(AtomicU32);

impl Users {
    pub(super) fn one_more(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(super) fn one_less(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    pub(super) fn none(&self) -> bool {
        self.0.load(Relaxed) == 0
    }
}
