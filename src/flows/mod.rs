//! Flows: what goes from a port to a peer, and what each QP of it carries.
//!
//! Everything here works on completion events, off the application's threads: the log's thread has them from a queue of its
//! own, `trtop` from the segment's rings.

pub mod table;
pub mod window;
