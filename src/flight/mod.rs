//! The flight recorder's files: which are written, and how.
//!
//! A file is whole or not there: it gets its name when everything is in it. A process writes so many files by itself and
//! no more, so the first ones are kept, which show how it began; and some more that were asked for.

use crate::own_file::OwnFile;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files of one process that nobody asked for.
const OWN_FILES: u32 = 16;
/// Files in all.
const FILES: u32 = 64;
/// Bytes of them.
const BYTES: u64 = 256 << 20;
/// Between files that nobody asked for: what happens meanwhile is in the next one.
const APART: Duration = Duration::from_secs(10);
/// Numbers of QPs in a file's cause.
const QPS: usize = 64;

/// Why there is to be a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Sends stall.
    Stall,
    /// A completion was in error.
    Error,
    /// It was asked for.
    Signal,
}

impl Reason {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Stall => "stall",
            Reason::Error => "error",
            Reason::Signal => "signal",
        }
    }
}

/// What came since the last file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    reasons: BTreeSet<Reason>,
    qp_nums: BTreeSet<u32>,
}

impl Cause {
    /// The first of its reasons.
    pub fn reason(&self) -> Option<Reason> {
        self.reasons.first().copied()
    }

    /// QPs that began to stall, or failed.
    pub fn qp_nums(&self) -> Vec<u32> {
        self.qp_nums.iter().copied().collect()
    }
}

/// What there is to record, and what may still be written.
pub struct Recorder {
    dir: PathBuf,
    /// `telereduce.HOST.PID`.
    stem: String,
    waiting: Cause,
    own_files: u32,
    files: u32,
    bytes: u64,
    /// When the last file that nobody asked for was written.
    last_own: Option<Instant>,
    said_full: bool,
}

/// What became of a file.
#[derive(Debug)]
pub enum Recorded {
    /// It is there.
    File(PathBuf),
    /// It could not be written.
    Failed(io::Error, PathBuf),
    /// It would be too much, for the first time.
    Full,
    /// It would be too much.
    StillFull,
}

impl Recorder {
    /// Files `DIR/STEM.N-REASON.json`.
    pub fn new(dir: &Path, stem: String) -> Recorder {
        Recorder {
            dir: dir.into(),
            stem,
            waiting: Cause::default(),
            own_files: 0,
            files: 0,
            bytes: 0,
            last_own: None,
            said_full: false,
        }
    }

    /// Something to be recorded, of these QPs.
    pub fn note(&mut self, reason: Reason, qp_nums: impl IntoIterator<Item = u32>) {
        self.waiting.reasons.insert(reason);
        let room = QPS.saturating_sub(self.waiting.qp_nums.len());
        self.waiting.qp_nums.extend(qp_nums.into_iter().take(room));
    }

    /// Whether something waits to be recorded, be it time or not.
    pub fn has_some(&self) -> bool {
        !self.waiting.reasons.is_empty()
    }

    /// What is to be recorded now. `last`: there will be no later.
    pub fn due(&mut self, now: Instant, last: bool) -> Option<Cause> {
        let asked = self.waiting.reasons.contains(&Reason::Signal);
        let early = self.last_own.is_some_and(|t| now.saturating_duration_since(t) < APART);
        if !self.has_some() || early && !asked && !last {
            return None;
        }
        let own = !asked;
        if own {
            self.last_own = Some(now);
        }
        Some(core::mem::take(&mut self.waiting))
    }

    /// Files that may still be written without being asked for.
    pub fn files_left(&self) -> u32 {
        OWN_FILES.saturating_sub(self.own_files)
    }

    /// Writes a file.
    pub fn write(&mut self, cause: &Cause, content: &[u8]) -> Recorded {
        let own = !cause.reasons.contains(&Reason::Signal);
        let too_many = self.files >= FILES || own && self.own_files >= OWN_FILES;
        if too_many || self.bytes.saturating_add(content.len() as u64) > BYTES {
            return if core::mem::replace(&mut self.said_full, true) { Recorded::StillFull } else { Recorded::Full };
        }
        self.files += 1;
        self.own_files += u32::from(own);
        let reason = cause.reason().map_or("none", Reason::word);
        let path = self.dir.join(format!("{}.{}-{reason}.json", self.stem, self.files));
        match put(&path, content) {
            Ok(()) => {
                self.bytes += content.len() as u64;
                Recorded::File(path)
            }
            Err(e) => Recorded::Failed(e, path),
        }
    }
}

/// The file under its name, whole. One that has the name already stays, and that is an error.
fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let mut file = OwnFile::create(&part)?;
    let done = file.write(content).and_then(|()| std::fs::hard_link(&part, path));
    drop(file);
    let _ = std::fs::remove_file(&part);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_file::names;

    fn cause(r: &mut Recorder, reason: Reason) -> Cause {
        r.note(reason, [7]);
        r.due(Instant::now(), true).unwrap()
    }

    #[test]
    fn a_file_is_whole_and_named_for_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let mut r = Recorder::new(dir.path(), "a.1".into());
        let c = cause(&mut r, Reason::Error);
        assert!(matches!(r.write(&c, b"{}"), Recorded::File(p) if p == dir.path().join("a.1.1-error.json")));
        assert_eq!(std::fs::read(dir.path().join("a.1.1-error.json")).unwrap(), b"{}");
        assert_eq!((names(dir.path()).len(), r.files_left()), (1, OWN_FILES - 1));
    }

    #[test]
    fn what_exists_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.1.1-stall.json"), "theirs").unwrap();
        let mut r = Recorder::new(dir.path(), "a.1".into());
        let c = cause(&mut r, Reason::Stall);
        assert!(matches!(r.write(&c, b"{}"), Recorded::Failed(..)));
        assert_eq!(std::fs::read(dir.path().join("a.1.1-stall.json")).unwrap(), b"theirs");
        assert_eq!(names(dir.path()).len(), 1);
    }

    #[test]
    fn what_comes_soon_after_waits_unless_it_was_asked_for() {
        let mut r = Recorder::new(Path::new("/"), String::new());
        let start = Instant::now();
        assert_eq!(r.due(start, true), None);
        r.note(Reason::Stall, [1]);
        assert!(r.due(start, false).is_some());
        r.note(Reason::Error, [2]);
        r.note(Reason::Stall, [3]);
        assert_eq!((r.due(start, false), r.has_some()), (None, true));
        let c = r.due(start + APART, false).unwrap();
        assert_eq!((c.reason(), c.qp_nums()), (Some(Reason::Stall), vec![2, 3]));
        r.note(Reason::Error, [4]);
        assert!(r.due(start + APART, false).is_none());
        r.note(Reason::Signal, []);
        assert_eq!(r.due(start + APART, false).map(|c| c.reasons.len()), Some(2));
        r.note(Reason::Error, [4]);
        assert!(r.due(start + APART, true).is_some(), "at the end nothing waits");
    }

    #[test]
    fn files_and_bytes_are_bounded_and_that_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut r = Recorder::new(dir.path(), "a".into());
        let (mut full, mut files) = (0, 0);
        for i in 0..3 * FILES {
            let c = cause(&mut r, if i < FILES { Reason::Stall } else { Reason::Signal });
            match r.write(&c, b"{}") {
                Recorded::File(_) => files += 1,
                Recorded::Full => full += 1,
                Recorded::StillFull => {}
                Recorded::Failed(e, _) => panic!("{e}"),
            }
            assert!(i >= FILES || r.own_files <= OWN_FILES);
        }
        assert_eq!((files, full, names(dir.path()).len()), (FILES, 1, FILES as usize));
        let mut r = Recorder::new(dir.path(), "b".into());
        r.bytes = BYTES - 1;
        let c = cause(&mut r, Reason::Signal);
        assert!(matches!(r.write(&c, b"{}"), Recorded::Full));
        assert!(matches!(r.write(&c, b"{"), Recorded::File(_)));
    }

    #[test]
    fn a_cause_names_so_many_qps_and_no_more() {
        let mut r = Recorder::new(Path::new("/"), String::new());
        r.note(Reason::Stall, 0..1000);
        r.note(Reason::Stall, [5000]);
        assert_eq!(r.due(Instant::now(), false).unwrap().qp_nums().len(), QPS);
    }
}
