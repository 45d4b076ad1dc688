//! Which library's function a linked call means: the one that the dynamic linker would have bound it to without us.
//!
//! That is the next function of this name in the program's search order. Where there is none, a plugin was loaded with a
//! libibverbs of its own, perhaps one of several; then the object that the call is about tells, or the library that is at
//! work on this thread, or the object that the call comes from, or the device.

use crate::hooks::Subject;
use crate::library::{Library, POOL, Way, place_of};
use crate::objects::Object;
use crate::{Function, context, nested, next, objects};
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rdma_sys::ibv_device;

static LINKED: Library = Library::new();

/// The library that a call of an export means.
///
/// # Safety
/// `subject` is the call's first argument, as valid as the call demands.
pub unsafe fn way(function: Function, caller: usize, subject: impl Subject) -> Way {
    // SAFETY: the caller's promise.
    let context = || unsafe { subject.context() };
    let library = if behind_us(function).is_some() {
        &LINKED
    } else if let Some(c) = context::find(context()).filter(|c| has(c.library, function)) {
        c.library
    } else if let Some(library) = nested::at_work().filter(|l| has(l, function)) {
        library
    } else {
        let by_caller = of_caller(function, caller);
        let found = by_caller.or_else(|| of_device(function, subject.device())).or_else(|| first(function));
        // Nothing found is an empty set: there is no libibverbs, and the hooks say so.
        found.unwrap_or(&LINKED)
    };
    Way { library, caller }
}

/// The next function of this name in the program's search order.
pub fn behind_us(function: Function) -> Option<usize> {
    static ABSENT_AT: [AtomicU64; Function::COUNT] = [const { AtomicU64::new(u64::MAX) }; Function::COUNT];
    if let Some(known) = LINKED.get(function) {
        return Some(known);
    }
    let absent_at = &ABSENT_AT[function as usize];
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
    LINKED.set(function, found as usize);
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
    let start = library.start();
    let here = |o: &Object<'_>| (o.start() == start).then(|| o.dynamic()?.function(function.name()));
    match objects::find(here).flatten() {
        Some(address) if start != 0 => {
            library.set(function, address);
            true
        }
        _ => false,
    }
}

/// Address of a function of this library that is not hooked.
pub fn unhooked(library: &Library, name: &CStr) -> Option<usize> {
    if library.start() != 0 {
        return objects::find(|o| (o.start() == library.start()).then(|| o.dynamic()?.function(name))).flatten();
    }
    // SAFETY: a valid name; as in `behind_us`.
    let found = unsafe { next::dlsym()?(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // The program must not see that this failed.
        // SAFETY: no preconditions.
        unsafe { libc::dlerror() };
    }
    (!found.is_null()).then_some(found as usize)
}

/// Start of a library that such a function comes from, and the function's address.
fn function_of(o: &Object<'_>, function: Function) -> Option<(usize, usize)> {
    let address = o.is_home_of(function.name()).then(|| o.dynamic()?.function(function.name())).flatten()?;
    Some((o.start(), address))
}

fn stored(function: Function, (start, address): (usize, usize)) -> Option<&'static Library> {
    let (library, _) = place_of(start)?;
    library.set(function, address);
    Some(library)
}

/// The libibverbs that the calling object is, or is linked with.
fn of_caller(function: Function, caller: usize) -> Option<&'static Library> {
    let found = objects::find(|calling| {
        let found =
            || function_of(calling, function).or_else(|| linked_with(calling, function, |o| function_of(o, function)));
        calling.contains(caller).then(found)
    });
    stored(function, found.flatten()?)
}

/// The libibverbs that lists this device. Only where nothing else tells: a function that was not hooked went on to our
/// export by a jump.
fn of_device(function: Function, device: *mut ibv_device) -> Option<&'static Library> {
    type List = unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device;
    type Free = unsafe extern "C" fn(*mut *mut ibv_device);
    let mut candidates = [None; POOL];
    let mut places = candidates.iter_mut();
    // Called outside of this: listing may load providers.
    objects::find(|o| {
        let found = function_of(o, function)?;
        let d = o.dynamic()?;
        let calls = (d.function(c"ibv_get_device_list")?, d.function(c"ibv_free_device_list")?);
        *places.next()? = Some((found, calls));
        None::<()>
    });
    let lists_it = |(list, free): (usize, usize)| {
        // SAFETY: a libibverbs's own functions of these names.
        unsafe {
            let (list, free) = (core::mem::transmute::<usize, List>(list), core::mem::transmute::<usize, Free>(free));
            let mut n = 0;
            let devices = list(&raw mut n);
            if devices.is_null() {
                return false;
            }
            let listed = (0..n.max(0) as usize).any(|i| *devices.add(i) == device);
            free(devices);
            listed
        }
    };
    if device.is_null() || candidates.iter().flatten().count() < 2 {
        return None;
    }
    stored(function, candidates.into_iter().flatten().find(|(_, calls)| lists_it(*calls))?.0)
}

/// Any libibverbs.
fn first(function: Function) -> Option<&'static Library> {
    stored(function, objects::find(|o| function_of(o, function))?)
}

/// Whether natively a search of the whole program finds this function, where it now finds our export. Code that was loaded
/// later than the program, at `caller`, also sees what was loaded with it; then any libibverbs is taken for that.
pub fn is_visible(function: Function, caller: usize) -> bool {
    let anywhere = || objects::find(|o| function_of(o, function)).is_some();
    behind_us(function).is_some() || (caller != 0 && !is_early(caller) && anywhere())
}

/// Whether any object but ours has such a function.
pub fn is_anywhere(function: Function) -> bool {
    let theirs = |o: &Object<'_>| o.dynamic()?.function(function.name()).filter(|at| *at != function.exported());
    objects::find(theirs).is_some()
}

/// Whether the code at this address was loaded with the program: before libc, which every program has.
fn is_early(address: usize) -> bool {
    let libc = next::dlsym_address();
    objects::find(|o| (o.contains(address) || o.contains(libc)).then(|| o.contains(address))).unwrap_or(false)
}

/// Whether a call of a function came from the library that the function is of.
pub fn calls_itself(way: Way, function: Function) -> bool {
    way.caller != 0 && objects::find(|o| o.contains(way.caller).then(|| o.is_home_of(function.name()))).unwrap_or(false)
}

/// Whether the code at this address is of an object that calls this function of others.
pub fn calls(address: usize, function: Function) -> bool {
    objects::find(|o| o.contains(address).then(|| o.dynamic().is_some_and(|d| d.imports(function.name()))))
        .unwrap_or(false)
}

/// What `of` says of the first library with such a function that this object is linked with.
fn linked_with<T>(user: &Object<'_>, function: Function, of: impl Fn(&Object<'_>) -> Option<T>) -> Option<T> {
    let user = user.dynamic()?;
    objects::find(|o| {
        let d = o.dynamic()?;
        (o.is_home_of(function.name()) && user.needs(d.soname()?)).then(|| of(o)).flatten()
    })
}
