//! The log's file: whole lines, appended; a new file when it is large; a full disk survived.

use crate::own_file::OwnFile;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// After a failed write, nothing is tried for so long.
const AGAIN: Duration = Duration::from_secs(1);
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
    file: OwnFile,
    path: PathBuf,
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
        if self.open.as_ref().is_some_and(|o| o.bytes >= self.most || !o.file.is_ours()) {
            self.open = None;
        }
        if self.open.is_none() {
            self.open = Some(self.create()?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        if let Err(e) = open.file.write(lines) {
            // Half a line is no line.
            open.file.cut(open.bytes);
            return Err((e, open.path.clone()));
        }
        open.bytes += lines.len() as u64;
        Ok(())
    }

    fn create(&mut self) -> Result<Open, (io::Error, PathBuf)> {
        loop {
            let path = self.name(self.next);
            match OwnFile::create(&path) {
                Ok(mut file) => {
                    if let Err(e) = file.write(self.head.as_bytes()) {
                        let _ = std::fs::remove_file(&path);
                        return Err((e, path));
                    }
                    self.next += 1;
                    return Ok(Open { file, path, bytes: self.head.len() as u64 });
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
    use crate::own_file::names;
    use std::fs::File;
    use std::os::fd::AsRawFd;

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
        let ours = f.open.as_ref().unwrap().file.descriptor();
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
