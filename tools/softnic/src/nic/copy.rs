//! Moving bytes between the memory of two processes, of which one is this one.

use libc::{c_ulong, iovec, pid_t};

/// Why bytes could not be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyError {
    /// The other process is gone.
    Gone,
    /// An address is not mapped.
    Fault,
    /// The system does not allow it.
    Denied,
}

/// Pieces of memory, in order.
#[derive(Clone, Copy)]
pub struct Pieces {
    n: usize,
    list: [iovec; MAX],
}

impl Default for Pieces {
    fn default() -> Pieces {
        Pieces::new()
    }
}

const MAX: usize = crate::shared::layout::MAX_SGE + 1;

impl Pieces {
    /// None.
    pub const fn new() -> Pieces {
        Pieces { n: 0, list: [iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; MAX] }
    }

    /// One.
    pub fn one(addr: u64, bytes: usize) -> Pieces {
        let mut p = Pieces::new();
        p.push(addr, bytes);
        p
    }

    /// Appends one, if it is not empty and there is room.
    pub fn push(&mut self, addr: u64, bytes: usize) {
        if bytes > 0 && self.n < MAX {
            self.list[self.n] = iovec { iov_base: addr as *mut _, iov_len: bytes };
            self.n += 1;
        }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        self.as_slice().iter().map(|p| p.iov_len).sum()
    }

    /// So many bytes of them, from an offset on.
    pub fn part(&self, offset: usize, bytes: usize) -> Pieces {
        let (mut skip, mut left, mut part) = (offset, bytes, Pieces::new());
        for (addr, n) in self.iter() {
            let from = skip.min(n);
            let take = (n - from).min(left);
            part.push(addr + from as u64, take);
            skip -= from;
            left -= take;
        }
        part
    }

    /// Address and bytes of each.
    pub fn iter(&self) -> impl Iterator<Item = (u64, usize)> {
        self.as_slice().iter().map(|p| (p.iov_base as u64, p.iov_len))
    }

    fn as_slice(&self) -> &[iovec] {
        &self.list[..self.n]
    }
}

/// Copies from this process to another; both have as many bytes.
///
/// # Safety
/// The pieces are memory that its owners gave to the NIC: nobody relies on what is in them but by the rules of RDMA.
pub unsafe fn write(pid: Option<u32>, theirs: &Pieces, ours: &Pieces) -> Result<(), CopyError> {
    // SAFETY: the caller's promise.
    unsafe {
        match pid {
            None => between(theirs, ours),
            Some(pid) => system(pid, theirs, ours, libc::process_vm_writev),
        }
    }
}

/// Copies from another process to this one; both have as many bytes.
///
/// # Safety
/// As [`write`].
pub unsafe fn read(pid: Option<u32>, theirs: &Pieces, ours: &Pieces) -> Result<(), CopyError> {
    // SAFETY: the caller's promise.
    unsafe {
        match pid {
            None => between(ours, theirs),
            Some(pid) => system(pid, theirs, ours, libc::process_vm_readv),
        }
    }
}

type Call = unsafe extern "C" fn(pid_t, *const iovec, c_ulong, *const iovec, c_ulong, c_ulong) -> isize;

unsafe fn system(pid: u32, theirs: &Pieces, ours: &Pieces, call: Call) -> Result<(), CopyError> {
    let bytes = ours.bytes();
    if bytes == 0 {
        return Ok(());
    }
    let (a, b) = (ours.as_slice(), theirs.as_slice());
    // SAFETY: the system checks every address.
    let n = unsafe { call(pid.cast_signed(), a.as_ptr(), a.len() as _, b.as_ptr(), b.len() as _, 0) };
    if usize::try_from(n) == Ok(bytes) {
        return Ok(());
    }
    if n >= 0 {
        return Err(CopyError::Fault);
    }
    Err(match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ESRCH) => CopyError::Gone,
        Some(libc::EPERM | libc::ENOSYS) => CopyError::Denied,
        _ => CopyError::Fault,
    })
}

/// Within this process.
unsafe fn between(to: &Pieces, from: &Pieces) -> Result<(), CopyError> {
    let (mut to, mut from) = (to.as_slice().iter().copied(), from.as_slice().iter().copied());
    let (mut t, mut f) = (to.next(), from.next());
    while let (Some(mut a), Some(mut b)) = (t, f) {
        let n = a.iov_len.min(b.iov_len);
        // SAFETY: the caller's promise.
        unsafe { ascending(a.iov_base.cast(), b.iov_base.cast(), n) };
        let rest = |p: &mut iovec| {
            p.iov_base = p.iov_base.wrapping_byte_add(n);
            p.iov_len -= n;
            p.iov_len > 0
        };
        t = if rest(&mut a) { Some(a) } else { to.next() };
        f = if rest(&mut b) { Some(b) } else { from.next() };
    }
    Ok(())
}

/// Copies so that whoever watches the target sees it change from its start to its end, 8 bytes at a time, as behind a
/// NIC. Programs wait for the last byte of a message.
unsafe fn ascending(mut to: *mut u8, mut from: *const u8, mut n: usize) {
    // SAFETY: the caller's promise. Overlaps are the program's own concern, as with a NIC.
    unsafe {
        while n > 0 && !(to as usize).is_multiple_of(8) {
            to.write_volatile(from.read());
            (to, from, n) = (to.add(1), from.add(1), n - 1);
        }
        while n >= 8 {
            to.cast::<u64>().write_volatile(from.cast::<u64>().read_unaligned());
            (to, from, n) = (to.add(8), from.add(8), n - 8);
        }
        while n > 0 {
            to.write_volatile(from.read());
            (to, from, n) = (to.add(1), from.add(1), n - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(buffer: &mut [u8], lengths: &[usize]) -> Pieces {
        let (mut p, mut at) = (Pieces::new(), 0);
        for n in lengths {
            p.push(buffer.as_mut_ptr() as u64 + at as u64, *n);
            at += n;
        }
        p.push(buffer.as_mut_ptr() as u64 + at as u64, buffer.len() - at);
        p
    }

    proptest! {
        #[test]
        fn pieces_of_any_cut_arrive_whole(data: Vec<u8>, cuts in proptest::collection::vec(0usize..40, 0..8), own: bool) {
            let mut from = data.clone();
            let mut to = vec![0; data.len()];
            let cut = |c: &[usize]| { let mut left = data.len(); c.iter().map(|n| { let n = (*n).min(left); left -= n; n }).collect::<Vec<_>>() };
            let a = pieces(&mut from, &cut(&cuts));
            let b = pieces(&mut to, &cut(&cuts.iter().rev().copied().collect::<Vec<_>>()));
            let pid = (!own).then(std::process::id);
            // SAFETY: both are buffers of this test.
            prop_assert_eq!(unsafe { write(pid, &b, &a) }, Ok(()));
            prop_assert_eq!(&to, &data);
            from.fill(0);
            // SAFETY: as above.
            prop_assert_eq!(unsafe { read(pid, &b, &a) }, Ok(()));
            prop_assert_eq!(&from, &data);
        }
    }

    #[test]
    fn a_part_may_begin_and_end_in_any_piece() {
        let mut p = Pieces::new();
        for (addr, bytes) in [(100, 10), (200, 5), (300, 20)] {
            p.push(addr, bytes);
        }
        let part = |offset, bytes| p.part(offset, bytes).iter().collect::<Vec<_>>();
        assert_eq!(part(0, 35), [(100, 10), (200, 5), (300, 20)]);
        assert_eq!(part(9, 3), [(109, 1), (200, 2)]);
        assert_eq!(part(12, 10), [(202, 3), (300, 7)]);
        assert_eq!(part(35, 0), []);
    }

    #[test]
    fn what_is_not_mapped_is_a_fault() {
        let mut from = [1u8; 16];
        let ours = Pieces::one(from.as_mut_ptr() as u64, 16);
        // SAFETY: the system refuses the address.
        let r = unsafe { write(Some(std::process::id()), &Pieces::one(8, 16), &ours) };
        assert_eq!(r, Err(CopyError::Fault));
    }
}
