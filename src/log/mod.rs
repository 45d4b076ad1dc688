//! The log: one line per completed transfer, written by a thread of its own.
//!
//! ```text
//! poll   -> feed      the CQ puts its event into a queue of its own, or counts it as dropped; never waits
//! thread -> Flows     the windows of the flow
//!        -> line      as text: the TeleReduce line, JSON or CSV
//!        -> file      appended, a whole number of lines at a time; a new file when it is large
//! ```

pub mod feed;
pub mod file;
pub mod line;
pub mod writer;
