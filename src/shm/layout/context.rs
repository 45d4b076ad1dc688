//! Device contexts in the segment.

use super::Shared;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// How the calls about a device context are reached.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hooked {
    /// The program is linked with libibverbs.
    Linked = 1,
    /// The program loads libibverbs and looks its functions up.
    LookedUp = 2,
    /// A provider's own call opened it.
    Provider = 3,
    /// Only the opening was seen: the program's calls reach libibverbs past the hooks, and nothing on it is counted.
    Unseen = 4,
}

impl Hooked {
    /// By its number.
    pub fn from_u32(n: u32) -> Option<Hooked> {
        [Hooked::Linked, Hooked::LookedUp, Hooked::Provider, Hooked::Unseen].into_iter().find(|h| *h as u32 == n)
    }

    /// One word, as the snapshot has it.
    pub fn word(self) -> &'static str {
        match self {
            Hooked::Linked => "linked",
            Hooked::LookedUp => "looked_up",
            Hooked::Provider => "provider",
            Hooked::Unseen => "unseen",
        }
    }
}

/// An opened device context.
#[repr(C, align(64))]
pub struct ContextRecord {
    /// A [`super::Life`].
    pub life: AtomicU32,
    /// Index of any port record of the device.
    pub port: AtomicU32,
    /// A [`Hooked`].
    pub hooked: AtomicU32,
    /// Reserved, zero.
    pub reserved: AtomicU32,
    /// CLOCK_REALTIME when it was opened, ns.
    pub opened_ns: AtomicU64,
    /// Reserved, zero.
    pub reserved2: [AtomicU64; 5],
}

// SAFETY: repr(C), made of atomics only, and all-zero is a valid value.
unsafe impl Shared for ContextRecord {}
