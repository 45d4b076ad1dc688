//! Threads of ours that only look and write.

use std::io;
use std::thread::{Builder, JoinHandle};
use telereduce::control::rendezvous::without_signals;

/// Stack of such a thread.
const STACK_BYTES: usize = 256 << 10;

/// Starts a thread that takes no signals and is the least of all. The kernel shows 15 letters of its name, and
/// [`crate::alone`] must know it.
pub fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    without_signals(|| {
        let thread = Builder::new().name(name.into()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            stand_back();
            work();
        })
    })
}

/// The thread was started by one of the program's, which may be bound to a processor or have real-time priority.
fn stand_back() {
    // SAFETY: all-zero sets and parameters are valid values; the calls read only these, and change this thread alone.
    unsafe {
        let batch: libc::sched_param = core::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const batch);
        libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, 10);
        let mut any: libc::cpu_set_t = core::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize).for_each(|cpu| libc::CPU_SET(cpu, &mut any));
        libc::sched_setaffinity(0, size_of_val(&any), &raw const any);
    }
}
