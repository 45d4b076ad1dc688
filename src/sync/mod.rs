//! Locks of the hot path.
//!
//! Providers hold spin locks around their queues; ours are held around the provider's call, so that what is counted has
//! the provider's order. [`SpinLock`] is the plain one. [`OwnedLock`] costs no locked instruction as long as one thread
//! uses it, which is how nearly every queue is used. A [`Gate`] is passed before either, where the provider's own lock is
//! held over the application's code.

pub(crate) mod atomic;
#[cfg(not(loom))]
mod gate;
mod owned;
mod spin;

#[cfg(not(loom))]
pub use gate::{Entry, Gate};
pub use owned::{OwnedGuard, OwnedLock, OwnerGuard, allow_owners};
pub use spin::{Guard, SpinLock};
