//! The functions behind the hooks, one set per libibverbs: a process may hold several, and an object that one of them
//! made must never reach another.
//!
//! Calls that were *looked up* ([`crate::lookup`]) come through hooks that belong to one library each, from a small pool.
//! What *linked* calls mean, [`crate::linked`] says. No libibverbs is ever loaded by us.

use crate::{Function, linked, objects};
use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// How many libraries can have hooks of their own.
pub const POOL: usize = 8;

static LOADED: [Library; POOL] = [const { Library::new() }; POOL];

/// Addresses of one library's functions, 0 where none was asked for yet.
pub struct Library {
    /// Where the library is loaded, 0 if the place is free.
    start: AtomicUsize,
    functions: [AtomicUsize; Function::COUNT],
}

impl Library {
    /// Nothing known yet.
    pub const fn new() -> Library {
        Library { start: AtomicUsize::new(0), functions: [const { AtomicUsize::new(0) }; Function::COUNT] }
    }

    fn cell(&self, function: Function) -> &AtomicUsize {
        &self.functions[function as usize]
    }

    /// Where it is loaded; 0: nowhere in particular.
    pub fn start(&self) -> usize {
        self.start.load(Relaxed)
    }

    /// Stores the address of a real function.
    pub fn set(&self, function: Function, address: usize) {
        // SYNC POINT: pairs with the Acquire in `get`.
        self.cell(function).store(address, Release);
    }

    /// Address of a real function.
    pub fn get(&self, function: Function) -> Option<usize> {
        Some(self.cell(function).load(Acquire)).filter(|address| *address != 0)
    }

    /// That of a place in the pool.
    pub fn of_place<const PLACE: usize>() -> &'static Library {
        &LOADED[PLACE]
    }
}

/// How a call reached us: whose function it means, and, if it came through an export, where it came from.
#[derive(Clone, Copy)]
pub struct Way {
    /// Whose functions are behind the hook.
    pub library: &'static Library,
    /// The address that the call returns to, 0 if it came through a hook that was looked up.
    pub caller: usize,
}

/// The hook for a real function that a look-up found: `None` if it is not a libibverbs's.
pub fn hook(function: Function, real: usize) -> Option<usize> {
    if linked::behind_us(function) == Some(real) {
        return Some(function.exported());
    }
    let start =
        objects::find(|o| o.contains(real).then(|| o.is_home_of(function.name()).then(|| o.start()))).flatten()?;
    let Some((library, place)) = place_of(start) else {
        crate::log::line_once(format_args!(
            "more than {POOL} copies of libibverbs are loaded: the devices opened through this one are not counted"
        ));
        return None;
    };
    library.set(function, real);
    function.pooled(place)
}

/// The place in the pool of the library that is loaded at `start`. What is in a place is never cleared: its functions
/// are stored, before anybody gets a hook, by whoever looks them up.
pub fn place_of(start: usize) -> Option<(&'static Library, usize)> {
    let take = |from: usize| {
        LOADED.iter().enumerate().find_map(|(place, l)| {
            let taken = l.start.compare_exchange(from, start, Relaxed, Relaxed);
            (taken.is_ok() || taken == Err(start)).then_some((l, place))
        })
    };
    let known = LOADED.iter().position(|l| l.start.load(Relaxed) == start);
    known.map(|place| (&LOADED[place], place)).or_else(|| take(0)).or_else(|| {
        // Places of libraries that were unloaded.
        let gone = LOADED
            .iter()
            .map(|l| l.start.load(Relaxed))
            .find(|old| objects::find(|o| (o.start() == *old && o.is_hooked()).then_some(())).is_none())?;
        take(gone)
    })
}
