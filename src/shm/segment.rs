//! Writer's side of a segment: create the file, grow it by regions, mark it complete, remove it.
//!
//! Memory is reserved with `posix_fallocate` before it is mapped: a sparse file in a full /dev/shm would kill the
//! process with SIGBUS at the first touch. Mappings last until the process ends, so records are `'static`.

use super::layout::{ABI_VERSION, HEADER_BYTES, Header, Kind, MAGIC, MAX_REGIONS, Shared, Text};
use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release};
use memmap2::{MmapOptions, MmapRaw};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;

/// Who the process is, as the header says it.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Process id.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Field 22 of `/proc/self/stat`, or 0 if it cannot be read.
    pub start_time_ticks: u64,
    /// CLOCK_REALTIME now, ns.
    pub created_ns: u64,
    /// Host name.
    pub host: String,
    /// Command line, arguments joined by spaces.
    pub command: String,
    /// Rank from the launcher's environment.
    pub rank: Option<u64>,
    /// World size from the launcher's environment.
    pub world_size: Option<u64>,
    /// Job id from the launcher's environment.
    pub job: Option<String>,
}

/// A segment that this process writes.
pub struct Segment {
    file: File,
    /// Holds the lock. Opened apart from `file`, whose mappings a forked child inherits: they would keep the lock, and
    /// the segment would look alive for as long as the child does.
    lock: File,
    /// Device and number of the file.
    inode: (u64, u64),
    path: PathBuf,
    header: &'static Header,
}

/// File name of the segment of process `pid` of user `uid`.
pub fn file_name(uid: u32, pid: u32) -> String {
    format!("telereduce.{uid}.{pid}")
}

impl Segment {
    /// Creates `DIR/telereduce.UID.PID`, mode 0600, with an empty region directory, and holds an exclusive `flock` on it
    /// for as long as the process lives (how readers tell a live segment from a left-over).
    ///
    /// Readers refuse the file until [`Segment::publish`].
    ///
    /// # Errors
    /// Whatever open, flock, posix_fallocate or mmap say; the file is removed again.
    pub fn create(dir: &Path, who: &Identity, latency_every: u32, min_event_bytes: u64) -> io::Result<Segment> {
        let path = dir.join(file_name(who.uid, who.pid));
        let file = above_standard(create_exclusive(&path)?)?;
        let made = open_lock(&path, &file).and_then(|lock| {
            hold(&lock)?;
            Ok((lock, Self::lay_out(&file, who, latency_every, min_event_bytes)?))
        });
        match made {
            Ok((lock, header)) => {
                Ok(Segment { inode: identity(file.as_raw_fd()).unwrap_or_default(), file, lock, path, header })
            }
            Err(e) => {
                let _ = std::fs::remove_file(&path);
                Err(e)
            }
        }
    }

    fn lay_out(file: &File, who: &Identity, latency_every: u32, min_event_bytes: u64) -> io::Result<&'static Header> {
        let header: &'static Header = &map::<Header>(file, 0, HEADER_BYTES as u64, 1)?[0];
        header.version.store(ABI_VERSION, Relaxed);
        header.header_bytes.store(HEADER_BYTES as u32, Relaxed);
        header.pid.store(who.pid, Relaxed);
        header.uid.store(who.uid, Relaxed);
        header.start_time_ticks.store(who.start_time_ticks, Relaxed);
        header.created_ns.store(who.created_ns, Relaxed);
        header.heartbeat_ns.store(who.created_ns, Relaxed);
        header.rank.store(who.rank.unwrap_or(u64::MAX), Relaxed);
        header.world_size.store(who.world_size.unwrap_or(0), Relaxed);
        header.latency_every.store(latency_every, Relaxed);
        header.min_event_bytes.store(min_event_bytes, Relaxed);
        header.job.set(who.job.as_deref().unwrap_or_default());
        header.host.set(&who.host);
        header.command.set(&who.command);
        header.file_bytes.store(HEADER_BYTES as u64, Relaxed);
        Ok(header)
    }

    /// The header, for counters that live there.
    pub fn header(&self) -> &'static Header {
        self.header
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// In a forked child: closes its copies of the descriptors, which would keep the lock. Not those that the application
    /// has closed and used for something else.
    pub fn close_in_child(&self) {
        for fd in [self.lock.as_raw_fd(), self.file.as_raw_fd()] {
            if self.is_ours(fd) {
                // SAFETY: the segment of the parent is used no more in this process, and never dropped.
                unsafe { libc::close(fd) };
            }
        }
    }

    /// Whether the descriptor still is the segment's, that is the mapped file.
    fn is_ours(&self, fd: RawFd) -> bool {
        identity(fd).is_some_and(|i| i == self.inode)
    }

    /// The file, to read the segment back.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Appends zeroed regions of `count` records, one per kind and type given by the caller through [`Segment::extend`].
    ///
    /// # Errors
    /// No memory left in the file system, no directory entry left, or mmap failed; nothing has changed then.
    pub fn add_region<T: Shared>(&self, kind: Kind, count: usize) -> io::Result<&'static [T]> {
        debug_assert!(Kind::ALL.contains(&(kind, size_of::<T>())));
        // A program that closes what it did not open may have made something else of the descriptor.
        if !self.is_ours(self.file.as_raw_fd()) {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let h = self.header;
        let slot = h.region_count.load(Relaxed) as usize;
        if slot >= MAX_REGIONS {
            return Err(io::Error::other("the segment's region directory is full"));
        }
        let first: u32 = (0..slot)
            .filter(|&i| h.regions[i].kind.load(Relaxed) == kind as u32)
            .map(|i| h.regions[i].count.load(Relaxed))
            .sum();
        let offset = h.file_bytes.load(Relaxed);
        let bytes = (count * size_of::<T>()) as u64;
        let bytes = bytes.div_ceil(PAGE) * PAGE;
        let records = map::<T>(&self.file, offset, bytes, count)?;
        let r = &h.regions[slot];
        r.kind.store(kind as u32, Relaxed);
        r.record_bytes.store(size_of::<T>() as u32, Relaxed);
        r.count.store(count as u32, Relaxed);
        r.first_index.store(first, Relaxed);
        r.offset.store(offset, Relaxed);
        h.file_bytes.store(offset + bytes, Relaxed);
        // SYNC POINT: pairs with the reader's pread, which sees the entry before the count that covers it.
        h.region_count.store(slot as u32 + 1, Release);
        Ok(records)
    }

    /// Makes the segment visible to readers.
    pub fn publish(&self) {
        // SYNC POINT: everything above is stored before the magic.
        self.header.magic.store(MAGIC, Release);
    }

    /// Removes the file; the mapping stays usable.
    pub fn unlink(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens a new file; a left-over of a dead process of the same number is removed first.
fn create_exclusive(path: &Path) -> io::Result<File> {
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)
    };
    match open() {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            // Ours and nobody alive holds it: our number was used before. Anything else is not ours to remove.
            let meta = std::fs::symlink_metadata(path)?;
            // SAFETY: geteuid has no preconditions.
            let ours = meta.uid() == unsafe { libc::geteuid() };
            if !ours || super::discover::is_locked(path) {
                return Err(e);
            }
            std::fs::remove_file(path)?;
            open()
        }
        other => other,
    }
}

/// The file under a number that is no standard stream's: a program that has closed those may open them anew, or write to
/// them what is not for a segment.
pub fn above_standard(file: File) -> io::Result<File> {
    if file.as_raw_fd() > 2 {
        return Ok(file);
    }
    // SAFETY: duplicating a descriptor touches no memory; the new one is owned by nobody else.
    unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

/// The file once more, with an open file description of its own.
fn open_lock(path: &Path, file: &File) -> io::Result<File> {
    let lock =
        above_standard(OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)?)?;
    if identity(lock.as_raw_fd()) != identity(file.as_raw_fd()) {
        return Err(io::Error::other("the segment was replaced while it was made"));
    }
    Ok(lock)
}

/// Device and inode of an open file.
pub fn identity(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: an all-zero stat is a valid value; fstat writes only that.
    unsafe {
        let mut s: libc::stat = core::mem::zeroed();
        (libc::fstat(fd, &mut s) == 0).then_some((s.st_dev, s.st_ino))
    }
}

/// Takes the lock that says "alive". A reader may be testing it at this very moment, for microseconds: try again.
fn hold(file: &File) -> io::Result<()> {
    for _ in 0..50 {
        // SAFETY: flock on a descriptor that we own has no memory effects.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    Err(io::Error::last_os_error())
}

/// How large a file this process may write.
pub fn largest_file() -> u64 {
    // SAFETY: an all-zero rlimit is a valid value; getrlimit writes only that.
    unsafe {
        let mut limit: libc::rlimit = core::mem::zeroed();
        // RLIM_INFINITY is the largest number.
        if libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) == 0 { limit.rlim_cur } else { u64::MAX }
    }
}

/// Reserves memory for `bytes` at `offset`. Beyond RLIMIT_FSIZE the kernel would send SIGXFSZ, which kills: not tried.
fn reserve(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    if offset + bytes > largest_file() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    // A profiler's timer may interrupt it, time and again.
    for _ in 0..100 {
        // SAFETY: a valid descriptor and no memory involved; the error is the return value.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), offset as i64, bytes as i64) } {
            0 => return Ok(()),
            libc::EINTR => {}
            rc => return Err(io::Error::from_raw_os_error(rc)),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EINTR))
}

/// Reserves and maps `bytes` at `offset`, and views the start as `count` records.
fn map<T: Shared>(file: &File, offset: u64, bytes: u64, count: usize) -> io::Result<&'static [T]> {
    assert!(count as u64 * size_of::<T>() as u64 <= bytes && offset.is_multiple_of(PAGE));
    reserve(file, offset, bytes)?;
    let map: MmapRaw = MmapOptions::new().offset(offset).len(bytes as usize).map_raw(file)?;
    let start = map.as_mut_ptr().cast::<T>();
    core::mem::forget(map);
    // SAFETY: the mapping is page-aligned, at least `count` records long, backed by reserved memory, never unmapped, and
    // freshly zeroed, which `Shared` promises to be a valid value; all access goes through atomics.
    Ok(unsafe { core::slice::from_raw_parts(start, count) })
}

impl<const N: usize> Text<N> {
    /// Stores `s`, cut at a character boundary so that it fits.
    pub fn set(&self, s: &str) {
        let mut end = s.len().min(N);
        while !s.is_char_boundary(end) {
            end -= 1;
        }
        for (i, cell) in self.0.iter().enumerate() {
            cell.store(if i < end { s.as_bytes()[i] } else { 0 }, Relaxed);
        }
    }

    /// The text up to the first NUL; bytes that are not UTF-8 or not printable become U+FFFD.
    pub fn get(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().map(|b| b.load(Relaxed)).take_while(|&b| b != 0).collect();
        String::from_utf8_lossy(&bytes).chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
    }
}

/// Adds to a counter that has one writer at a time: a plain load and store, no locked instruction.
#[inline(always)]
pub fn bump(c: &AtomicU64, by: u64) {
    c.store(c.load(Relaxed).wrapping_add(by), Relaxed);
}

/// Raises a high-water mark that has one writer at a time.
#[inline(always)]
pub fn raise(c: &AtomicU64, to: u64) {
    if to > c.load(Relaxed) {
        c.store(to, Relaxed);
    }
}

/// Changes the identity of a record whose `seq` guards it. One writer at a time.
pub fn change_identity(seq: &AtomicU32, change: impl FnOnce()) {
    let before = seq.load(Relaxed);
    seq.store(before.wrapping_add(1), Relaxed);
    // SYNC POINT: a reader that sees part of the change also sees the odd number.
    core::sync::atomic::fence(Release);
    change();
    seq.store(before.wrapping_add(2), Release);
}

/// Stores a GID as two words of memory.
pub fn put_gid(to: &[AtomicU64; 2], gid: [u8; 16]) {
    for (word, half) in to.iter().zip(gid.chunks_exact(8)) {
        word.store(u64::from_ne_bytes(half.try_into().expect("8 bytes")), Relaxed);
    }
}

/// Stores a 32-bit identity field.
#[inline]
pub fn put(c: &AtomicU32, v: u32) {
    c.store(v, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `check` holds in a child process, which may change what is the process's.
    fn holds_in_child(check: impl FnOnce() -> bool) {
        // SAFETY: the child makes system calls, needs no lock of another thread but malloc's, which fork keeps usable, and
        // ends itself.
        let status = unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::_exit(if check() { 0 } else { 1 });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        };
        assert_eq!(status, 0, "exit status, or the signal that ended it");
    }

    #[test]
    fn descriptors_leave_the_standard_streams_alone() {
        let dir = tempfile::tempdir().unwrap();
        let who = Identity { pid: 1, uid: 2, ..Identity::default() };
        holds_in_child(|| {
            // SAFETY: the child's own descriptors.
            (0..3).for_each(|fd| _ = unsafe { libc::close(fd) });
            Segment::create(dir.path(), &who, 0, 0).is_ok_and(|s| {
                // SAFETY: as above.
                let first_is_closed = unsafe { libc::fcntl(0, libc::F_GETFD) } < 0;
                s.file.as_raw_fd() > 2 && s.lock.as_raw_fd() > 2 && first_is_closed
            })
        });
    }

    #[test]
    fn a_limit_on_file_sizes_is_an_error_and_no_signal() {
        let file = tempfile::tempfile().unwrap();
        holds_in_child(|| {
            let limit = libc::rlimit { rlim_cur: 2 * PAGE, rlim_max: 2 * PAGE };
            // SAFETY: a value that is only read.
            let set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) } == 0;
            let (fits, over) = (reserve(&file, 0, 2 * PAGE), reserve(&file, PAGE, 2 * PAGE));
            set && fits.is_ok() && over.is_err_and(|e| e.raw_os_error() == Some(libc::EFBIG))
        });
    }
}
