//! Tells the thread that records failures and stalls that there is something to record.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::sync::OnceLock;
use std::thread::Thread;

/// Raised by failed completions, which are seldom.
#[derive(Default)]
pub struct Alarm {
    /// Somebody wants to know.
    thread: OnceLock<Thread>,
    raised: AtomicBool,
    /// `qp record index << 32 | qp_num` of the last.
    last: AtomicU64,
}

impl Alarm {
    /// Wakes this thread from now on.
    pub fn wakes(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// A completion of this QP was in error, and no flush. Takes no lock.
    pub fn raise(&self, qp_index: u32, qp_num: u32) {
        let Some(thread) = self.thread.get() else { return };
        self.last.store(u64::from(qp_index) << 32 | u64::from(qp_num), Relaxed);
        // One call of the system for many failures.
        if !self.raised.swap(true, AcqRel) {
            thread.unpark();
        }
    }

    /// Whether it was raised, and by whom: index of the QP's record and its number.
    pub fn take(&self) -> Option<(u32, u32)> {
        self.raised.swap(false, AcqRel).then(|| {
            let last = self.last.load(Relaxed);
            ((last >> 32) as u32, last as u32)
        })
    }

    /// Whether it is raised.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Acquire)
    }
}
