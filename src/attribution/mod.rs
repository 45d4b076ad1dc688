//! Which collective a WR belongs to, as NCCL's profiler interface tells it.
//!
//! ```text
//! init        -> communicator   kept for good; the context that NCCL gets stands for it
//! Coll, P2p   -> task           function and how many times it ran; all of it is in the handle
//! ProxyOp     -> label          communicator, peer, channel, direction, function: one of a table of these
//! ProxyStep   -> current        the label of what this thread posts from now on
//! post        -> ring           the QP keeps each WR's label (telemetry/labels)
//! completion  -> event, record  into the log's line and into the segment
//! ```
//!
//! Handles are numbers that say everything, never addresses: nothing is allocated or locked, and what NCCL hands back,
//! however wrong, is looked at and never followed. A label table and a communicator table of fixed size bound the memory;
//! what finds them full is posted without a label, or without its communicator.

mod current;
mod func;
mod label;
mod table;

pub use current::{current, leave, set};
pub use func::{Func, name as func_name};
pub use label::{Label, Task};
pub use table::{Attribution, Key, Tables};

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Those of this process.
pub static TABLES: Tables = Tables::new();

static ACTIVE: AtomicBool = AtomicBool::new(false);

/// NCCL has a profiler: QPs keep labels from now on.
pub fn activate() {
    ACTIVE.store(true, Relaxed);
}

/// Whether there are labels.
pub fn is_active() -> bool {
    ACTIVE.load(Relaxed)
}
