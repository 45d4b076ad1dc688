//! The side channel.

pub mod api;
pub mod field;
pub mod gid;
pub mod hub;
pub mod net;
pub mod pursuit;
pub mod reason;
pub mod rendezvous;
pub mod secret;
pub mod session;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod testing;
pub mod wire;

pub use reason::Reason;
