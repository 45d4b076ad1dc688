//! The transport's state machines, without I/O: packets, replies and the time go in; packets, verdicts and completions
//! come out. No handle, clock, lock or byte of payload is here, so that tests can run any schedule.

pub mod packet;
pub mod psn;
pub mod requester;
pub mod responder;
pub mod rnr;

#[cfg(test)]
mod pair_tests;
