//! Programs that load libibverbs themselves and look its functions up get our hooks, too.
//!
//! We export `dlsym` and `dlvsym`. A look-up of anything that is not in our list goes on to the real function by a jump,
//! not by a call: the real one looks at the address that it returns to, to know whose `RTLD_NEXT` is meant. A look-up of
//! one of our names by a handle is answered with a hook, provided that the real look-up finds a function of a libibverbs:
//! what natively fails, fails, and leaves its message for `dlerror`. `RTLD_NEXT` and plain `RTLD_DEFAULT` stay as they
//! are, since our exports take part in the search that they ask for. The old calls of version IBVERBS_1.0 are not ours.

use crate::{Function, guard, library, linked, next};
use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use telereduce::config;

/// What becomes of a look-up.
#[repr(C)]
struct Answer {
    /// The function that it goes on to; 0: it ends here.
    go_on: usize,
    /// Its result if it ends here.
    result: *mut c_void,
}

/// Handle, name, version if there is one, and the address that the look-up returns to.
type Choose = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, usize) -> Answer;

/// The bodies of both exports: the arguments are kept, and the stack is as it was when the real function is entered.
macro_rules! answer_or_go_on {
    ($choose:path) => {{
        const _: Choose = $choose;
        #[cfg(target_arch = "x86_64")]
        core::arch::naked_asm!(
            "mov rcx, [rsp]",
            "push rdi",
            "push rsi",
            "push rdx",
            "call {choose}",
            "mov rcx, rdx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "test rax, rax",
            "je 2f",
            "jmp rax",
            "2:",
            "mov rax, rcx",
            "ret",
            choose = sym $choose
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::naked_asm!(
            "stp x29, x30, [sp, #-48]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "mov x3, x30",
            "bl {choose}",
            "mov x16, x0",
            "mov x17, x1",
            "ldp x0, x1, [sp, #16]",
            "ldr x2, [sp, #32]",
            "ldp x29, x30, [sp], #48",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "mov x0, x17",
            "ret",
            choose = sym $choose
        );
    }};
}

/// # Safety
/// As the function of this name in libc.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    answer_or_go_on!(choose_dlsym)
}

/// # Safety
/// As the function of this name in libc.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    answer_or_go_on!(choose_dlvsym)
}

unsafe extern "C" fn choose_dlsym(handle: *mut c_void, name: *const c_char, _: *const c_char, caller: usize) -> Answer {
    // SAFETY: the program's promise: a handle and a name.
    let answer = unsafe { ours(name) }.and_then(|f| guard::run(|| unsafe { by_name(handle, f, caller) }).flatten());
    answer.map_or(Answer { go_on: next::dlsym_address(), result: null_mut() }, |result| Answer { go_on: 0, result })
}

unsafe extern "C" fn choose_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    _: usize,
) -> Answer {
    // SAFETY: the program's promise: a handle, a name and a version.
    let answer = unsafe { ours(name) }.and_then(|f| guard::run(|| unsafe { by_version(handle, f, version) }).flatten());
    answer.map_or(Answer { go_on: next::dlvsym_address(), result: null_mut() }, |result| Answer { go_on: 0, result })
}

/// The result of a `dlsym` of one of our names; `None`: as without us.
unsafe fn by_name(handle: *mut c_void, function: Function, caller: usize) -> Option<*mut c_void> {
    let real = next::dlsym()?;
    let name = function.name().as_ptr();
    if handle == libc::RTLD_NEXT {
        // Our export takes part in that search. Where nobody else has such a function, it is not to be found.
        // SAFETY: a valid name, which is nowhere behind us.
        return (!linked::is_anywhere(function)).then(|| unsafe { real(handle, name) });
    }
    // SAFETY: the program's handle. With RTLD_DEFAULT this is the search of a library that was there from the start.
    let found = unsafe { real(handle, name) };
    let scope = if handle == libc::RTLD_DEFAULT { caller } else { 0 };
    if found as usize == function.exported() && !linked::is_visible(function, scope) {
        // Our export stands for a function that is not there, or not for all to see.
        // SAFETY: a valid name, which is nowhere behind us.
        return Some(unsafe { real(libc::RTLD_NEXT, name) });
    }
    if handle == libc::RTLD_DEFAULT {
        return None;
    }
    Some(hooked(function, found))
}

/// As [`by_name`], of a `dlvsym`.
unsafe fn by_version(handle: *mut c_void, function: Function, version: *const c_char) -> Option<*mut c_void> {
    // SAFETY: the program's promise: a version, if it is not null.
    if handle == libc::RTLD_NEXT || version.is_null() || unsafe { CStr::from_ptr(version) } == c"IBVERBS_1.0" {
        return None;
    }
    // SAFETY: the program's handle and version.
    let found = unsafe { next::dlvsym()?(handle, function.name().as_ptr(), version) };
    if found.is_null() && handle == libc::RTLD_DEFAULT {
        // The caller may see more than we do.
        return None;
    }
    Some(hooked(function, found))
}

fn hooked(function: Function, found: *mut c_void) -> *mut c_void {
    if found.is_null() || found as usize == function.exported() || !is_on(&COUNTING, c"TELEREDUCE") {
        return found;
    }
    library::hook(function, found as usize).map_or(found, |hook| hook as *mut c_void)
}

/// The function of this name, if it is one of ours and look-ups are answered.
unsafe fn ours(name: *const c_char) -> Option<Function> {
    // SAFETY: the program's promise: a name, if it is not null.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })?;
    Function::named(name).filter(|_| is_on(&ANSWERING, c"TELEREDUCE_DLSYM"))
}

/// Whether the library does anything at all.
pub fn is_counting() -> bool {
    is_on(&COUNTING, c"TELEREDUCE")
}

const UNREAD: u8 = 2;
static COUNTING: AtomicU8 = AtomicU8::new(UNREAD);
static ANSWERING: AtomicU8 = AtomicU8::new(UNREAD);

/// A setting, read once, without allocating: a constructor may look something up before anything else works.
fn is_on(setting: &AtomicU8, name: &CStr) -> bool {
    let known = setting.load(Relaxed);
    if known != UNREAD {
        return known == 1;
    }
    // SAFETY: a valid name; the value is only looked at.
    let value = unsafe { libc::getenv(name.as_ptr()).as_ref().map(|v| CStr::from_ptr(v)) };
    let on = value.and_then(|v| config::switch(v.to_bytes())).unwrap_or(true);
    setting.store(u8::from(on), Relaxed);
    on
}
