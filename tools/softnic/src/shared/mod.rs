//! What the processes of a network share: a registry of them, and one segment of memory each, below `/dev/shm`.
//!
//! A segment is written by its owner and by whoever sends to it. Both may die at any time: locks are robust, what a lock
//! does not guard is atomic, and an owner's death is noticed by the pid file descriptor that each peer holds.

pub mod alive;
pub mod arena;
pub mod layout;
pub mod lock;
pub mod mapping;
pub mod registry;
