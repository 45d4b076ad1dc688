//! A file below `/dev/shm`, mapped as large as it may ever become; memory is taken from the system step by step.

use core::mem::{align_of, size_of};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Marks what may lie in shared memory.
///
/// # Safety
/// `repr(C)`, without pointers, valid whatever a peer writes into it, and changed through atomics or [`super::lock`] only.
pub unsafe trait Shared {}

// SAFETY: an atomic.
unsafe impl Shared for core::sync::atomic::AtomicU64 {}

/// The mapping. It stays until the process ends, or until nobody can use it any more.
pub struct Mapping {
    base: *mut u8,
    len: usize,
    file: File,
}

// SAFETY: only atomics and locked values are reached through it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file, of which so many exist already or are made now.
    pub fn new(file: File, len: usize) -> io::Result<Mapping> {
        if file.metadata()?.len() < len as u64 {
            file.set_len(len as u64)?;
        }
        // SAFETY: a fresh mapping of an open file.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { base: base.cast(), len, file })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Takes memory for a range: without it, a full `/dev/shm` would kill whoever touches it first.
    pub fn allocate(&self, from: u64, bytes: u64) -> io::Result<()> {
        // SAFETY: a plain system call on an open file.
        match unsafe { libc::posix_fallocate(self.file.as_raw_fd(), from.cast_signed(), bytes.cast_signed()) } {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(e)),
        }
    }

    /// What lies at an offset, if that can be.
    pub fn at<T: Shared>(&self, offset: u64) -> Option<&T> {
        self.array(offset, 1).map(|a| &a[0])
    }

    /// Several, one after the other.
    pub fn array<T: Shared>(&self, offset: u64, n: usize) -> Option<&[T]> {
        let at = self.raw(offset, n.checked_mul(size_of::<T>())?)?;
        if offset == 0 && n == 0 || !(at as usize).is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: inside the mapping, aligned; `Shared` says that any bytes will do, and how they change.
        Some(unsafe { core::slice::from_raw_parts(at.cast(), n) })
    }

    /// The address of a range, if it lies inside.
    pub fn raw(&self, offset: u64, bytes: usize) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        (offset.checked_add(bytes)? <= self.len).then(|| self.base.wrapping_add(offset))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours, and borrowed by nobody.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
