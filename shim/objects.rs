//! The objects that are loaded: the program, its libraries, what it opened later.

use crate::elf::{Dynamic, Entry};
use core::ffi::{CStr, c_int, c_void};

/// A loaded object. It stays loaded as long as this exists: the dynamic linker's lock is held.
pub struct Object<'a> {
    bias: usize,
    segments: &'a [libc::Elf64_Phdr],
    file: &'a CStr,
}

impl Object<'_> {
    fn mapped(&self) -> impl Iterator<Item = (usize, usize)> {
        let loads = self.segments.iter().filter(|s| s.p_type == libc::PT_LOAD);
        loads.map(|s| (self.bias.wrapping_add(s.p_vaddr as usize), s.p_memsz as usize))
    }

    /// Whether it holds this address.
    pub fn contains(&self, address: usize) -> bool {
        self.mapped().any(|(start, bytes)| address.wrapping_sub(start) < bytes)
    }

    /// Whether its file's name begins so.
    pub fn is_called(&self, name: &[u8]) -> bool {
        let file = self.file.to_bytes();
        file.rsplit(|b| *b == b'/').next().unwrap_or(file).starts_with(name)
    }

    /// Where it begins.
    pub fn start(&self) -> usize {
        self.mapped().map(|m| m.0).min().unwrap_or(0)
    }

    /// Its dynamic section.
    pub fn dynamic(&self) -> Option<Dynamic> {
        let s = self.segments.iter().find(|s| s.p_type == libc::PT_DYNAMIC)?;
        let entries = self.bias.wrapping_add(s.p_vaddr as usize) as *const Entry;
        // SAFETY: PT_DYNAMIC of a loaded object.
        Some(unsafe { Dynamic::new(self.bias, entries) })
    }

    /// Whether it is a libibverbs, whatever it is called.
    fn is_libibverbs(&self) -> bool {
        self.is(&VERBS)
    }

    /// Whether it is a library whose functions are hooked.
    pub fn is_hooked(&self) -> bool {
        self.is_libibverbs() || PROVIDERS.iter().any(|l| self.is(l))
    }

    /// Whether it is a library that has the hooked function of this name.
    pub fn is_home_of(&self, function: &CStr) -> bool {
        let other = PROVIDERS.iter().find(|l| function.to_bytes().starts_with(l.functions));
        self.is(other.unwrap_or(&VERBS))
    }

    fn is(&self, library: &Named) -> bool {
        let named = |name: &CStr| {
            let name = name.to_bytes();
            let base = name.rsplit(|b| *b == b'/').next().unwrap_or(name);
            base.starts_with(library.file)
        };
        self.dynamic().is_some_and(|d| d.defines_version(library.version) || d.soname().is_some_and(named))
            || named(self.file)
    }
}

/// How a library is known: libraries that bring their own copy rename it. Its functions have the version that all
/// programs ask for, or, where there are no versions, it has the name.
struct Named {
    functions: &'static [u8],
    version: &'static CStr,
    file: &'static [u8],
}

const VERBS: Named = Named { functions: b"ibv_", version: c"IBVERBS_1.1", file: b"libibverbs" };
const PROVIDERS: [Named; 2] = [
    Named { functions: b"mlx5dv_", version: c"MLX5_1.0", file: b"libmlx5" },
    Named { functions: b"efadv_", version: c"EFA_1.0", file: b"libefa" },
];

/// Calls `visit` with each object, in the order of loading, until it answers.
pub fn find<T>(visit: impl FnMut(&Object<'_>) -> Option<T>) -> Option<T> {
    struct Search<F, T> {
        visit: F,
        found: Option<T>,
    }

    unsafe extern "C" fn each<T, F: FnMut(&Object<'_>) -> Option<T>>(
        info: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker's description of an object, and the search that is passed below.
        unsafe {
            let (info, search) = (&*info, &mut *search.cast::<Search<F, T>>());
            if info.dlpi_phdr.is_null() {
                return 0;
            }
            let file = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
            let segments = core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
            search.found = (search.visit)(&Object { bias: info.dlpi_addr as usize, segments, file });
            c_int::from(search.found.is_some())
        }
    }

    fn callback<T, F: FnMut(&Object<'_>) -> Option<T>>(
        _: &Search<F, T>,
    ) -> unsafe extern "C" fn(*mut libc::dl_phdr_info, libc::size_t, *mut c_void) -> c_int {
        each::<T, F>
    }

    let mut search = Search { visit, found: None };
    let callback = callback(&search);
    // SAFETY: the callback gets the search that it was made for, only during the call.
    unsafe { libc::dl_iterate_phdr(Some(callback), (&raw mut search).cast()) };
    search.found
}

/// Changes whenever something was loaded or unloaded.
pub fn generation() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: libc::size_t, sum: *mut c_void) -> c_int {
        // SAFETY: the dynamic linker's description, and the number that is passed below.
        unsafe { *sum.cast::<u64>() = (*info).dlpi_adds.wrapping_add((*info).dlpi_subs) };
        1
    }
    let mut sum = 0u64;
    // SAFETY: the callback gets a number to write to.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut sum).cast()) };
    sum
}
