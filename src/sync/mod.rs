//! Locks of the hot path.
//!
//! Providers hold spin locks around their queues; ours are held around the provider's call, so that what is counted has
//! the provider's order. [`SpinLock`] is the plain one. [`OwnedLock`] costs no locked instruction as long as one thread
//! uses it, which is how nearly every queue is used.

pub(crate) mod atomic;
mod owned;
mod spin;

pub use owned::{OwnedGuard, OwnedLock, OwnerGuard, allow_owners};
pub use spin::{Guard, SpinLock};
