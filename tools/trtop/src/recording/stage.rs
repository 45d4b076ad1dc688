//! The segments of a recording at one moment, as files again: what reads segments reads these.

use super::codec::Codec;
use crate::error::Failure;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use telereduce::shm::layout::Header;
use telereduce::shm::segment::file_name;

/// A directory of our own, which goes with the stage.
pub struct Stage {
    dir: tempfile::TempDir,
    user: u32,
    files: BTreeMap<u64, Shown>,
    next: u64,
}

struct Shown {
    /// Never used twice.
    number: u64,
    /// When the process made its segment, ns.
    created_ns: u64,
    path: PathBuf,
    name_pid: u32,
    file: File,
    bytes: usize,
    /// Held while the process lived, as the process held its segment.
    lock: Option<File>,
}

impl Stage {
    /// An empty one, in memory if that is possible.
    ///
    /// # Errors
    /// There is no directory for it.
    pub fn new() -> Result<Stage, Failure> {
        let mut named = tempfile::Builder::new();
        named.prefix("trtop-replay.");
        let dir = named.tempdir_in(telereduce::shm::discover::DEFAULT_DIR).or_else(|_| named.tempdir());
        let dir = dir.map_err(|e| Failure::new(format!("no place for the recording's segments: {e}")))?;
        Ok(Stage { dir, user: rustix::process::geteuid().as_raw(), files: BTreeMap::new(), next: 0 })
    }

    /// Where the segments are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Files of the segments, each with a number that stays its own.
    pub fn paths(&self) -> impl Iterator<Item = (u64, &Path)> {
        self.files.values().map(|s| (s.number, s.path.as_path()))
    }

    /// Makes the files those of `codec`'s last frame.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn show(&mut self, codec: &mut Codec) -> Result<(), Failure> {
        let failed =
            |dir: &Path, e: io::Error| Failure::new(format!("cannot write a segment to {}: {e}", dir.display()));
        // Each start of a recorder counts from one: an id alone does not tell.
        let there: BTreeMap<u64, u64> = codec.segments().map(|(id, s)| (id, created_ns(&s.image.bytes))).collect();
        let stays = |(id, s): (&u64, &Shown)| there.get(id) == Some(&s.created_ns);
        let gone: Vec<u64> = self.files.iter().filter(|f| !stays(*f)).map(|(id, _)| *id).collect();
        for id in gone {
            if let Some(s) = self.files.remove(&id) {
                let _ = std::fs::remove_file(s.path);
            }
        }
        for (id, s) in codec.segments() {
            let new = !self.files.contains_key(&id);
            if new {
                let shown = self.create(&s.image.bytes).map_err(|e| failed(self.dir.path(), e))?;
                self.next += 1;
                self.files.insert(id, shown);
            }
            let Some(shown) = self.files.get_mut(&id) else { continue };
            let whole = BTreeMap::from([(0, s.image.bytes.len())]);
            shown
                .write(&s.image.bytes, if new { &whole } else { &s.changed })
                .map_err(|e| failed(self.dir.path(), e))?;
            shown.hold(s.image.alive).map_err(|e| failed(self.dir.path(), e))?;
        }
        codec.shown();
        Ok(())
    }

    /// A file with the process' number in its name; another one if there are two of that number.
    fn create(&self, segment: &[u8]) -> io::Result<Shown> {
        let at = core::mem::offset_of!(Header, pid);
        let pid = segment.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let taken = |pid: u32| self.files.values().any(|s| s.name_pid == pid);
        let name_pid = (pid..=u32::MAX).chain(0..pid).find(|p| !taken(*p)).unwrap_or(pid);
        let path = self.dir.path().join(file_name(self.user, name_pid));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let created_ns = created_ns(segment);
        Ok(Shown { number: self.next, created_ns, path, name_pid, file, bytes: 0, lock: None })
    }
}

impl Shown {
    fn write(&mut self, bytes: &[u8], changed: &BTreeMap<usize, usize>) -> io::Result<()> {
        if self.bytes != bytes.len() {
            // A reader refuses large files of which not all is there.
            self.file.set_len(bytes.len() as u64)?;
            rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, bytes.len() as u64)?;
            self.bytes = bytes.len();
        }
        changed.iter().try_for_each(|(start, end)| self.file.write_all_at(&bytes[*start..*end], *start as u64))
    }

    fn hold(&mut self, alive: bool) -> io::Result<()> {
        if alive == self.lock.is_some() {
            return Ok(());
        }
        self.lock = None;
        if alive {
            let lock = File::open(&self.path)?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            self.lock = Some(lock);
        }
        Ok(())
    }
}

fn created_ns(segment: &[u8]) -> u64 {
    let at = core::mem::offset_of!(Header, created_ns);
    let word = segment.get(at..at + 8).and_then(|b| b.try_into().ok());
    word.map_or(0, u64::from_le_bytes)
}
