//! The functions behind the hooks, one set per libibverbs: a process may hold several, and an object that one of them
//! made must never reach another.
//!
//! *Linked* calls reach our exports, and mean what the dynamic linker would have bound them to: the next function of this
//! name in the program's search order, else that of the libibverbs which the calling object is linked with. *Looked up*
//! calls ([`crate::lookup`]) come through hooks that belong to one library each, from a small pool. No libibverbs is
//! ever loaded by us.

use crate::objects::Object;
use crate::{Function, context, nested, next, objects};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use rdma_sys::ibv_context;

/// How many libraries can have hooks of their own.
pub const POOL: usize = 8;

static LINKED: Library = Library::new();
static LOADED: [Library; POOL] = [const { Library::new() }; POOL];

/// Addresses of one library's functions, 0 where none was asked for yet.
pub struct Library {
    /// Where the library is loaded, 0 if the place is free.
    start: AtomicUsize,
    functions: [AtomicUsize; Function::COUNT],
}

impl Library {
    const fn new() -> Library {
        Library { start: AtomicUsize::new(0), functions: [const { AtomicUsize::new(0) }; Function::COUNT] }
    }

    fn cell(&self, function: Function) -> &AtomicUsize {
        &self.functions[function as usize]
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

/// The library that a call of an export means; `context` is that of the object it is about, if there is one.
pub fn linked(function: Function, caller: usize, context: impl FnOnce() -> *mut ibv_context) -> Way {
    let library = if behind_us(function).is_some() {
        &LINKED
    } else if let Some(c) = context::find(context()).filter(|c| has(c.library, function)) {
        c.library
    } else if let Some(library) = nested::at_work().filter(|l| has(l, function)) {
        library
    } else {
        // Nothing found is an empty set: there is no libibverbs, and the hooks say so.
        of_caller(function, caller).unwrap_or(&LINKED)
    };
    Way { library, caller }
}

/// The next function of this name in the program's search order.
fn behind_us(function: Function) -> Option<usize> {
    static ABSENT_AT: [AtomicU64; Function::COUNT] = [const { AtomicU64::new(u64::MAX) }; Function::COUNT];
    let (cell, absent_at) = (LINKED.cell(function), &ABSENT_AT[function as usize]);
    let known = cell.load(Acquire);
    if known != 0 {
        return Some(known);
    }
    let now = objects::generation();
    if absent_at.load(Relaxed) == now {
        return None;
    }
    let real = next::dlsym()?;
    // SAFETY: a valid name; RTLD_NEXT is relative to this library, which the call returns to.
    let found = unsafe { real(libc::RTLD_NEXT, function.name().as_ptr()) };
    if found.is_null() {
        // The program must not see that this failed.
        // SAFETY: no preconditions.
        unsafe { libc::dlerror() };
        absent_at.store(now, Relaxed);
        return None;
    }
    keep_loaded(found);
    cell.store(found as usize, Release);
    Some(found as usize)
}

/// What is cached must not be unloaded, which could happen to a library that the program opened globally. Others are left
/// alone: before libc's own constructor ran, `dlopen` loses the environment.
fn keep_loaded(address: *mut c_void) {
    if is_early(address as usize) {
        return;
    }
    // SAFETY: an address in a loaded object, and the name that this object has.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr(address, &raw mut info) == 0
            || info.dli_fname.is_null()
            || libc::dlopen(info.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_LAZY).is_null()
        {
            libc::dlerror();
        }
    }
}

/// Whether this library, as it is loaded now, has the function, which is then stored.
fn has(library: &Library, function: Function) -> bool {
    let start = library.start.load(Relaxed);
    let here = |o: &Object<'_>| (o.start() == start).then(|| o.dynamic()?.function(function.name()));
    match objects::find(here).flatten() {
        Some(address) if start != 0 => {
            library.cell(function).store(address, Release);
            true
        }
        _ => false,
    }
}

/// The libibverbs that the calling object belongs to or is linked with, else the first there is.
fn of_caller(function: Function, caller: usize) -> Option<&'static Library> {
    let with_function = |o: &Object<'_>| {
        let address = o.is_libibverbs().then(|| o.dynamic()?.function(function.name())).flatten()?;
        Some((o.start(), address))
    };
    let by_caller = objects::find(|calling| {
        let found = || with_function(calling).or_else(|| linked_with(calling, with_function));
        calling.contains(caller).then(found)
    });
    let (start, address) = by_caller.flatten().or_else(|| objects::find(with_function))?;
    let (library, _) = place_of(start)?;
    library.cell(function).store(address, Release);
    Some(library)
}

/// Whether natively a search of the whole program finds this function, where it now finds our export. Code that was loaded
/// later than the program, at `caller`, also sees what was loaded with it; then any libibverbs is taken for that.
pub fn is_visible(function: Function, caller: usize) -> bool {
    let with_it = |o: &Object<'_>| o.is_libibverbs().then(|| o.dynamic()?.function(function.name())).flatten();
    behind_us(function).is_some() || (caller != 0 && !is_early(caller) && objects::find(with_it).is_some())
}

/// Whether the code at this address was loaded with the program: before libc, which every program has.
fn is_early(address: usize) -> bool {
    let libc = next::dlsym_address();
    objects::find(|o| (o.contains(address) || o.contains(libc)).then(|| o.contains(address))).unwrap_or(false)
}

/// The hook for a real function that a look-up found: `None` if it is not a libibverbs's.
pub fn hook(function: Function, real: usize) -> Option<usize> {
    if behind_us(function) == Some(real) {
        return Some(function.exported());
    }
    let start = objects::find(|o| o.contains(real).then(|| o.is_libibverbs().then(|| o.start()))).flatten()?;
    let Some((library, place)) = place_of(start) else {
        crate::log::line_once(format_args!(
            "more than {POOL} copies of libibverbs are loaded: the devices opened through this one are not counted"
        ));
        return None;
    };
    library.cell(function).store(real, Release);
    function.pooled(place)
}

/// The place in the pool of the library that is loaded at `start`. What is in a place is never cleared: its functions
/// are stored, before anybody gets a hook, by whoever looks them up.
fn place_of(start: usize) -> Option<(&'static Library, usize)> {
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
            .find(|old| objects::find(|o| (o.start() == *old && o.is_libibverbs()).then_some(())).is_none())?;
        take(gone)
    })
}

/// Whether the code at this address is linked with a libibverbs, so that its calls come through our exports.
pub fn is_linked_user(address: usize) -> bool {
    objects::find(|o| o.contains(address).then(|| !o.is_libibverbs() && linked_with(o, |_| Some(())).is_some()))
        .unwrap_or(false)
}

/// What `of` says of the first libibverbs that this object is linked with.
fn linked_with<T>(user: &Object<'_>, of: impl Fn(&Object<'_>) -> Option<T>) -> Option<T> {
    let user = user.dynamic()?;
    objects::find(|o| {
        let d = o.dynamic()?;
        (o.is_libibverbs() && user.needs(d.soname()?)).then(|| of(o)).flatten()
    })
}
