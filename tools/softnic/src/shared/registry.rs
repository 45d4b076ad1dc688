//! The processes of a network: who has which place, and the clocks of paths that they share.

use super::alive;
use super::layout::MAGIC;
use super::lock::Locked;
use super::mapping::{Mapping, Shared};
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Processes of a network.
pub const PLACES: usize = 256;
/// Paths that have clocks.
const CLOCKS: usize = 1024;

#[repr(C)]
struct Table {
    magic: AtomicU64,
    changing: Locked<()>,
    places: [Place; PLACES],
    clocks: [Clock; CLOCKS],
}

// SAFETY: `repr(C)`, atomics and a lock.
unsafe impl Shared for Table {}

/// A process's place. Place 0 is never given, so that no QP has number 0 or 1.
#[repr(C)]
pub struct Place {
    pid: AtomicU64,
    start: AtomicU64,
    /// Counts its owners; stored last.
    turn: AtomicU64,
}

/// When a path is free again; shared by all who send on it.
#[repr(C)]
pub struct Clock {
    key: AtomicU64,
    /// In ns of the monotonic clock.
    pub free_at: AtomicU64,
}

/// The registry, as one process sees it.
pub struct Registry {
    dir: PathBuf,
    mapping: Mapping,
    /// The own place.
    pub place: usize,
    /// The own turn there.
    pub turn: u64,
}

fn folder(network: &str) -> io::Result<PathBuf> {
    // SAFETY: always succeeds.
    let user = unsafe { libc::geteuid() };
    let name: String = network.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_').collect();
    let dir = PathBuf::from(format!("/dev/shm/softnic-{user}-{name}"));
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let meta = fs::symlink_metadata(&dir)?;
    if !meta.is_dir() || meta.uid() != user {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "its folder in /dev/shm belongs to somebody else"));
    }
    Ok(dir)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn lock(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: a plain system call on an open file.
    let done = unsafe { libc::flock(file.as_raw_fd(), how) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The network's folder, and its registry's file, locked.
fn enter(network: &str) -> io::Result<(PathBuf, File)> {
    loop {
        let dir = folder(network)?;
        let path = dir.join("registry");
        let file = match open(&path) {
            // Its last process was just leaving.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        lock(&file, libc::LOCK_EX)?;
        if fs::metadata(&path).is_ok_and(|m| file.metadata().is_ok_and(|f| f.ino() == m.ino())) {
            return Ok((dir, file));
        }
    }
}

impl Registry {
    /// Takes a place in a network.
    pub fn join(network: &str) -> io::Result<Registry> {
        let (dir, file) = enter(network)?;
        let mapping = Mapping::new(file.try_clone()?, size_of::<Table>())?;
        mapping.allocate(0, size_of::<Table>() as u64)?;
        let mut registry = Registry { dir, mapping, place: 0, turn: 0 };
        let table = registry.table();
        if table.magic.load(Acquire) != MAGIC {
            if table.magic.load(Relaxed) != 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "another version of softnic uses this network"));
            }
            // SAFETY: fresh zeros, and the file lock keeps others out.
            unsafe { Locked::init((&raw const table.changing).cast_mut(), ()) };
            table.magic.store(MAGIC, Release);
        }
        let taken = registry.take_place();
        lock(&file, libc::LOCK_UN)?;
        (registry.place, registry.turn) = taken?;
        Ok(registry)
    }

    fn table(&self) -> &Table {
        self.mapping.at(0).expect("the mapping is as large as the table")
    }

    fn take_place(&self) -> io::Result<(usize, u64)> {
        let table = self.table();
        let _changing = table.changing.lock();
        let mut free = None;
        for (i, p) in table.places.iter().enumerate().skip(1) {
            let pid = p.pid.load(Relaxed) as u32;
            if pid != 0 && alive::start_time(pid) == p.start.load(Relaxed) {
                continue;
            }
            if pid != 0 {
                self.sweep(i, p.turn.load(Relaxed));
                p.pid.store(0, Relaxed);
            }
            // The one that was free longest: a number that was just used is not used again soon.
            let turn = p.turn.load(Relaxed);
            if free.is_none_or(|(_, t)| turn < t) {
                free = Some((i, turn));
            }
        }
        let (place, turn) = free.ok_or_else(|| io::Error::other("the network has no place left"))?;
        let p = &table.places[place];
        let pid = std::process::id();
        p.start.store(alive::start_time(pid), Relaxed);
        p.turn.store(turn + 1, Release);
        p.pid.store(u64::from(pid), Release);
        Ok((place, turn + 1))
    }

    /// Removes what a process left.
    fn sweep(&self, place: usize, turn: u64) {
        let prefix = format!("{place}.{turn}.");
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                // Somebody else may have removed it.
                drop(fs::remove_file(entry.path()));
            }
        }
    }

    /// Leaves the network. The last to leave removes it.
    pub fn leave(&self) {
        let locked = lock(self.mapping.file(), libc::LOCK_EX).is_ok();
        self.table().places[self.place].pid.store(0, Release);
        self.sweep(self.place, self.turn);
        let lives = |p: &Place| {
            let pid = p.pid.load(Relaxed) as u32;
            pid != 0 && alive::start_time(pid) == p.start.load(Relaxed)
        };
        if locked && !self.table().places.iter().any(lives) {
            // Whoever waits for the lock finds that its file is no longer there, and begins anew.
            drop(fs::remove_dir_all(&self.dir));
        }
        // Its failure means that there was no lock.
        drop(lock(self.mapping.file(), libc::LOCK_UN));
    }

    /// The pid and the turn of whoever has a place now.
    pub fn owner(&self, place: usize) -> Option<(u32, u64)> {
        let p = self.table().places.get(place)?;
        let pid = p.pid.load(Acquire) as u32;
        (pid != 0).then(|| (pid, p.turn.load(Acquire)))
    }

    /// A file of a process.
    pub fn file(&self, place: usize, turn: u64, name: &str) -> PathBuf {
        self.dir.join(format!("{place}.{turn}.{name}"))
    }

    /// The clock of a path.
    pub fn clock(&self, key: u64) -> &Clock {
        let clocks = &self.table().clocks;
        let key = key.max(1);
        for i in 0..CLOCKS {
            let c = &clocks[(key as usize).wrapping_add(i) % CLOCKS];
            match c.key.compare_exchange(0, key, Relaxed, Relaxed) {
                Ok(_) => return c,
                Err(there) if there == key => return c,
                Err(_) => {}
            }
        }
        // All taken: such paths share one.
        &clocks[key as usize % CLOCKS]
    }
}
