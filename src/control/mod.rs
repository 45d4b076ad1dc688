//! The side channel.

pub mod api;
pub mod field;
pub mod gid;
pub mod hub;
pub mod pursuit;
pub mod reason;
pub mod secret;
pub mod session;
#[cfg(test)]
mod testing;
pub mod wire;

pub use reason::Reason;
