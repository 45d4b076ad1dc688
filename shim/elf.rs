//! A loaded object as the dynamic linker sees it: its dynamic section, read in place.
//!
//! This is how the real `dlsym` is found without calling `dlsym`, and how a libibverbs is told from anything else. It
//! allocates nothing, takes no lock and calls nobody, so that it also serves constructors that run before ours.

use core::ffi::{CStr, c_char};

/// An entry of a dynamic section.
#[repr(C)]
pub struct Entry {
    tag: i64,
    value: usize,
}

const NEEDED: i64 = 1;
const HASH: i64 = 4;
const STRTAB: i64 = 5;
const SYMTAB: i64 = 6;
const SONAME: i64 = 14;
const GNU_HASH: i64 = 0x6fff_fef5;
const VERSYM: i64 = 0x6fff_fff0;
const VERDEF: i64 = 0x6fff_fffc;

/// Of a symbol's version: another version of this name is the default.
const HIDDEN: u16 = 0x8000;

#[repr(C)]
struct VersionDefinition {
    version: u16,
    flags: u16,
    index: u16,
    count: u16,
    hash: u32,
    aux: u32,
    next: u32,
}

/// The dynamic section of an object that is loaded, and stays so for as long as this is used.
#[derive(Clone, Copy)]
pub struct Dynamic {
    bias: usize,
    entries: *const Entry,
}

impl Dynamic {
    /// # Safety
    /// `entries` is the dynamic section, up to its null entry, of a loaded object; `bias` is what the dynamic linker
    /// added to its addresses.
    pub unsafe fn new(bias: usize, entries: *const Entry) -> Dynamic {
        Dynamic { bias, entries }
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let mut next = self.entries;
        core::iter::from_fn(move || {
            // SAFETY: `new` was promised a section that ends with a null entry, where this ends, too.
            let e = unsafe { &*next };
            // SAFETY: as above.
            next = unsafe { next.add(usize::from(e.tag != 0)) };
            (e.tag != 0).then_some(e)
        })
    }

    fn value(&self, tag: i64) -> Option<usize> {
        self.entries().find(|e| e.tag == tag).map(|e| e.value)
    }

    /// What an entry points to. glibc has added the bias to the entries of most objects, but not to all.
    fn table<T>(&self, tag: i64) -> Option<*const T> {
        let at = self.value(tag).filter(|at| *at != 0)?;
        Some(if at < self.bias { at + self.bias } else { at } as *const T)
    }

    fn text(&self, offset: usize) -> Option<&CStr> {
        let strings = self.table::<c_char>(STRTAB)?;
        // SAFETY: an offset into the string table, which holds NUL-terminated strings.
        Some(unsafe { CStr::from_ptr(strings.add(offset)) })
    }

    /// The name under which others need it.
    pub fn soname(&self) -> Option<&CStr> {
        self.text(self.value(SONAME)?)
    }

    /// Whether it is linked with an object of this name.
    pub fn needs(&self, soname: &CStr) -> bool {
        self.entries().filter(|e| e.tag == NEEDED).any(|e| self.text(e.value) == Some(soname))
    }

    /// Whether it defines symbols of this version.
    pub fn defines_version(&self, name: &CStr) -> bool {
        let mut next = self.table::<VersionDefinition>(VERDEF);
        while let Some(d) = next {
            // SAFETY: definitions follow each other at the offsets that they state, 0 ends them; each has a name.
            let (offset, text) = unsafe { ((*d).next, d.byte_add((*d).aux as usize).cast::<u32>().read()) };
            if self.text(text as usize) == Some(name) {
                return true;
            }
            // SAFETY: as above.
            next = (offset != 0).then(|| unsafe { d.byte_add(offset as usize) });
        }
        false
    }

    /// Whether it refers to a symbol of others by this name.
    pub fn imports(&self, name: &CStr) -> bool {
        // SAFETY: tables of a loaded object. Symbols that are not defined stand in front of those in the GNU hash table;
        // the other table has as many chains as there are symbols.
        unsafe {
            let Some(symbols) = self.table::<libc::Elf64_Sym>(SYMTAB) else { return false };
            let count = match (self.table::<u32>(GNU_HASH), self.table::<u32>(HASH)) {
                (Some(table), _) | (None, Some(table)) => *table.add(1),
                (None, None) => 0,
            };
            (0..count as usize).any(|i| {
                let s = &*symbols.add(i);
                s.st_shndx == 0 && self.text(s.st_name as usize) == Some(name)
            })
        }
    }

    /// Address of a function that it defines, of the default version if there are several.
    pub fn function(&self, name: &CStr) -> Option<usize> {
        let mut hidden = None;
        // SAFETY: tables of a loaded object, read as its hash table says.
        unsafe {
            let symbols = self.table::<libc::Elf64_Sym>(SYMTAB)?;
            let versions = self.table::<u16>(VERSYM);
            let defined = |i: usize| {
                let s = &*symbols.add(i);
                let is_code = matches!(s.st_info & 15, 0 | 2) && s.st_info >> 4 != 0;
                (is_code && s.st_shndx != 0 && s.st_value != 0 && self.text(s.st_name as usize) == Some(name))
                    .then(|| self.bias.wrapping_add(s.st_value as usize))
            };
            let mut default = |i: usize| {
                let found = defined(i)?;
                if versions.is_some_and(|v| *v.add(i) & HIDDEN != 0) {
                    hidden = hidden.or(Some(found));
                    return None;
                }
                Some(found)
            };
            let found = match (self.table(GNU_HASH), self.table::<u32>(HASH)) {
                (Some(table), _) => in_gnu_hash(table, name, &mut default),
                // The number of chains is that of symbols.
                (None, Some(table)) => (0..*table.add(1) as usize).find_map(&mut default),
                (None, None) => None,
            };
            found.or(hidden)
        }
    }
}

/// Calls `accept` with the indices of the symbols that may have this name, until it finds something.
///
/// # Safety
/// `table` is a loaded object's DT_GNU_HASH.
unsafe fn in_gnu_hash<T>(table: *const u32, name: &CStr, accept: impl FnMut(usize) -> Option<T>) -> Option<T> {
    let hash = name.to_bytes().iter().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(*b)));
    // SAFETY: header, filter of one word each, buckets, then one hash per symbol from the first hashed one on; a bucket
    // holds the index of its first symbol, and the lowest bit of a hash is set at its last.
    unsafe {
        let (buckets, first, filter_words) = (*table, *table.add(1) as usize, *table.add(2) as usize);
        if buckets == 0 {
            return None;
        }
        let bucket = table.add(4 + 2 * filter_words);
        let chain = bucket.add(buckets as usize);
        let start = *bucket.add((hash % buckets) as usize) as usize;
        let mut last = start < first;
        let candidates = (start..).map_while(|i| {
            if last {
                return None;
            }
            let h = *chain.add(i - first);
            last = h & 1 != 0;
            Some((i, h | 1 == hash | 1))
        });
        candidates.filter(|(_, same)| *same).map(|(i, _)| i).find_map(accept)
    }
}
