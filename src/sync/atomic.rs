//! The atomics of the locks and of the tables: the processor's, or loom's, which tries every order that the memory model
//! allows (`tools/run-tests`).

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, compiler_fence, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, fence, fence as compiler_fence};

/// A constructor that is `const`, but for loom's atomics.
macro_rules! const_new {
    ($(#[$doc:meta])* pub fn new($($arg:ident: $type:ty)?) -> $ret:ty $body:block) => {
        $(#[$doc])*
        #[cfg(not(loom))]
        pub const fn new($($arg: $type)?) -> $ret $body
        $(#[$doc])*
        #[cfg(loom)]
        pub fn new($($arg: $type)?) -> $ret $body
    };
}
pub(crate) use const_new;
