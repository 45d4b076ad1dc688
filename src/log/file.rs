//! The log's file: whole lines, appended; a new file when it is large; a full disk survived.

use crate::shm::segment::{above_standard, identity};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// After a failed write, nothing is tried for so long.
const AGAIN: Duration = Duration::from_secs(1);
/// Bytes of one write.
const AT_ONCE: usize = 64 << 10;
/// Names that are tried for one file.
const NAMES: u32 = 10_000;

/// An append-only file of lines.
pub struct LogFile {
    stem: PathBuf,
    extension: &'static str,
    head: String,
    /// Bytes at which the next file begins.
    most: u64,
    open: Option<Open>,
    /// Number of the next name.
    next: u32,
    not_before: Option<Instant>,
}

struct Open {
    file: File,
    path: PathBuf,
    inode: (u64, u64),
    /// Bytes of whole lines.
    bytes: u64,
}

/// What became of some lines.
#[derive(Debug)]
pub enum Written {
    /// They are in the file.
    All,
    /// They are lost: the first failure, or one after something was written.
    Failed(io::Error, PathBuf),
    /// They are lost, as others before.
    Still,
}

impl Open {
    /// All of `lines`. The program may close our descriptor, and open a file of its own under its number, at any time: each
    /// call looks first.
    fn write(&mut self, mut lines: &[u8]) -> io::Result<()> {
        while !lines.is_empty() {
            if !self.is_ours() {
                return Err(io::Error::other("the program closed its descriptor"));
            }
            match self.file.write(&lines[..lines.len().min(AT_ONCE)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => lines = &lines[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn is_ours(&self) -> bool {
        identity(self.file.as_raw_fd()) == Some(self.inode)
    }
}

impl LogFile {
    /// Files `stem.extension`, `stem.1.extension`, ... that begin with `head` and end at `most` bytes or soon after. Nothing is
    /// opened before there is a line; a file that exists is not touched.
    pub fn new(stem: &Path, extension: &'static str, head: String, most: u64) -> LogFile {
        LogFile { stem: stem.into(), extension, head, most, open: None, next: 0, not_before: None }
    }

    /// Appends `lines`, which end in a newline. Where that fails the file keeps the whole lines it had, and is tried again a
    /// second later.
    pub fn append(&mut self, lines: &[u8], now: Instant) -> Written {
        if self.not_before.is_some_and(|t| now < t) {
            return Written::Still;
        }
        match self.try_append(lines) {
            Ok(()) => {
                self.not_before = None;
                Written::All
            }
            Err((e, path)) => {
                let first = self.not_before.replace(now + AGAIN).is_none();
                if first { Written::Failed(e, path) } else { Written::Still }
            }
        }
    }

    fn try_append(&mut self, lines: &[u8]) -> Result<(), (io::Error, PathBuf)> {
        if let Some(theirs) = self.open.take_if(|o| !o.is_ours()) {
            // The program closed our descriptor; its number may be that of a file of the program's now.
            core::mem::forget(theirs.file);
        }
        if self.open.as_ref().is_some_and(|o| o.bytes >= self.most) {
            self.open = None;
        }
        if self.open.is_none() {
            self.open = Some(self.create()?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        if let Err(e) = open.write(lines) {
            // Half a line is no line.
            if open.is_ours() {
                let _ = open.file.set_len(open.bytes);
            }
            return Err((e, open.path.clone()));
        }
        open.bytes += lines.len() as u64;
        Ok(())
    }

    fn create(&mut self) -> Result<Open, (io::Error, PathBuf)> {
        loop {
            let path = self.name(self.next);
            let made = OpenOptions::new().append(true).create_new(true).mode(0o644).open(&path);
            match made {
                Ok(file) => {
                    let mut file = above_standard(file).map_err(|e| (e, path.clone()))?;
                    if let Err(e) = file.write_all(self.head.as_bytes()) {
                        let _ = std::fs::remove_file(&path);
                        return Err((e, path));
                    }
                    self.next += 1;
                    let inode = identity(file.as_raw_fd()).unwrap_or_default();
                    return Ok(Open { file, path, inode, bytes: self.head.len() as u64 });
                }
                Err(e) if e.kind() == ErrorKind::AlreadyExists && self.next < NAMES => self.next += 1,
                Err(e) => return Err((e, path)),
            }
        }
    }

    fn name(&self, number: u32) -> PathBuf {
        let mut name = self.stem.clone().into_os_string();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        name.push(".");
        name.push(self.extension);
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut all: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn files_end_when_they_are_large() {
        let dir = tempfile::tempdir().unwrap();
        let mut f = LogFile::new(&dir.path().join("a"), "csv", "head\n".into(), 12);
        assert!(names(dir.path()).is_empty());
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            assert!(matches!(f.append(line.as_bytes(), Instant::now()), Written::All));
        }
        assert_eq!(names(dir.path()), ["a.1.csv", "a.csv"]);
        let text = |n| std::fs::read_to_string(dir.path().join(n)).unwrap();
        assert_eq!((text("a.csv"), text("a.1.csv")), ("head\none\ntwo\n".into(), "head\nthree\nfour\n".into()));
    }

    #[test]
    fn what_exists_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.log"), "theirs").unwrap();
        let mut f = LogFile::new(&dir.path().join("a"), "log", String::new(), 100);
        assert!(matches!(f.append(b"ours\n", Instant::now()), Written::All));
        assert_eq!(std::fs::read_to_string(dir.path().join("a.log")).unwrap(), "theirs");
        assert_eq!(std::fs::read_to_string(dir.path().join("a.1.log")).unwrap(), "ours\n");
    }

    #[test]
    fn what_the_program_opened_at_our_number_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let mut f = LogFile::new(&dir.path().join("a"), "log", String::new(), 100);
        f.append(b"1\n", Instant::now());
        let theirs = dir.path().join("theirs");
        let file = File::create(&theirs).unwrap();
        let ours = f.open.as_ref().unwrap().file.as_raw_fd();
        // SAFETY: as a program that closes every descriptor and opens its own; both are open here.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), ours) }, ours);
        assert!(matches!(f.append(b"2\n", Instant::now()), Written::All));
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "");
        assert_eq!(names(dir.path()), ["a.1.log", "a.log", "theirs"]);
        // SAFETY: forgotten by the log, and nobody else's.
        unsafe { libc::close(ours) };
    }

    #[test]
    fn one_failure_is_told_and_it_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("later");
        let mut f = LogFile::new(&place.join("a"), "log", String::new(), 100);
        let start = Instant::now();
        assert!(matches!(f.append(b"1\n", start), Written::Failed(e, _) if e.kind() == ErrorKind::NotFound));
        std::fs::create_dir(&place).unwrap();
        assert!(matches!(f.append(b"2\n", start), Written::Still));
        assert!(matches!(f.append(b"3\n", start + AGAIN), Written::All));
        assert_eq!(std::fs::read_to_string(place.join("a.log")).unwrap(), "3\n");
    }
}
