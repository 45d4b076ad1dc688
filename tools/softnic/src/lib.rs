//! A software RDMA NIC in user space, as a drop-in `libibverbs.so.1`.
//!
//! The way of a WR: [`capi`] takes it from the program and gives it to the [`nic::sender`] of its QP, whose [`core`] makes
//! packets of it; the [`net`] says when each arrives, if it does; [`nic::deliver`] then runs the responder of the QP that it
//! is for, which lies in memory that both processes [share](shared), and moves the payload straight from the one
//! process's memory to the other's. Replies go back the same way, and become completions.
//!
//! There is no kernel part and no daemon. The thread that posts or polls does the work; one thread per process, asleep
//! otherwise, does what is due when nobody calls.

pub mod capi;
pub mod config;
pub mod core;
pub mod net;
pub mod nic;
pub mod shared;

/// A line on stderr.
pub(crate) fn say(what: std::fmt::Arguments) {
    use std::io::Write;
    // The program's stderr may be closed.
    drop(writeln!(std::io::stderr(), "softnic: {what}"));
}
