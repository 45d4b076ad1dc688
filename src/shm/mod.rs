//! The shared segment: what the shim writes and every viewer reads.
//!
//! [`layout`] is the ABI, [`segment`] the writer, [`discover`] finds segments and tells the living from the dead,
//! [`reader`] copies one out, [`model`] adds it up per port, peer and QP, [`snapshot`] is the documented JSON of it.

pub mod discover;
pub mod label;
pub mod layout;
pub mod model;
pub mod multipath;
pub mod reader;
pub mod segment;
pub mod snapshot;
pub mod stall;
