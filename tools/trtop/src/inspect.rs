//! What each file that is named as a segment is: live, dead, unfinished, damaged, or not ours to read.

use core::sync::atomic::Ordering::Relaxed;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use telereduce::shm::discover::{self, Found};
use telereduce::shm::model::Model;
use telereduce::shm::reader::{ReadError, Reader};

/// What became of the process that made a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Live,
    /// It ended without removing its segment.
    Dead,
    /// The segment is not complete.
    Unfinished,
    /// The file cannot be a segment of this version: why.
    Damaged(String),
    /// We may not read it.
    Denied,
}

impl State {
    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            State::Live => "live",
            State::Dead => "dead",
            State::Unfinished => "unfinished",
            State::Damaged(_) => "damaged",
            State::Denied => "no access",
        }
    }
}

/// One file.
pub struct Inspected {
    /// Name, uid and pid.
    pub found: Found,
    /// What it is.
    pub state: State,
    /// Whether a process holds it, whatever is in it.
    pub held: bool,
    /// Time since it was created, or, if that cannot be read, last changed.
    pub age: Duration,
    /// What is in it, if it can be read.
    pub contents: Option<Contents>,
    /// Open, if that is allowed.
    pub file: Option<File>,
}

/// What `trtop ls` tells of a readable segment.
pub struct Contents {
    /// Rank.
    pub rank: Option<u64>,
    /// `device:port` of each port.
    pub ports: Vec<String>,
    /// QPs alive.
    pub qps: u64,
    /// Command line.
    pub command: String,
}

/// The directory of segments, as the library finds it; a bad setting is said on stderr.
pub fn directory() -> PathBuf {
    let (config, wrong) = telereduce::config::Config::read(|name| {
        (name == "TELEREDUCE_DIR").then(|| std::env::var_os(name)).flatten().map(|v| v.to_string_lossy().into_owned())
    });
    for w in wrong {
        eprintln!("trtop: {w}");
    }
    config.dir
}

/// Every file in `dir` that is named as a segment; of processes `pids` only, unless that is empty. One after the other,
/// so that not all of them are open at a time.
///
/// # Errors
/// The directory cannot be read.
pub fn all(dir: &Path, pids: &[u32]) -> io::Result<impl Iterator<Item = Inspected>> {
    let found = discover::list(dir)?;
    Ok(found.into_iter().filter(move |f| pids.is_empty() || pids.contains(&f.pid)).filter_map(inspect))
}

/// `None` if it is gone.
fn inspect(found: Found) -> Option<Inspected> {
    let meta = std::fs::symlink_metadata(&found.path).ok()?;
    let changed = meta.modified().ok().and_then(|t| SystemTime::now().duration_since(t).ok()).unwrap_or_default();
    let mut i = Inspected { found, state: State::Denied, held: false, age: changed, contents: None, file: None };
    let opened = discover::open(&i.found.path).and_then(|f| Ok((f.try_clone()?, f)));
    let (file, copy) = match opened {
        Ok(both) => both,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Some(i),
        Err(e) => {
            i.state = State::Damaged(e.to_string());
            return Some(i);
        }
    };
    i.held = discover::is_held(&file);
    i.file = Some(file);
    match Reader::from_file(copy) {
        Ok(r) => {
            i.state = if i.held { State::Live } else { State::Dead };
            let created = r.header().created_ns.load(Relaxed);
            i.age = Duration::from_nanos(telereduce::clock::realtime_ns().saturating_sub(created));
            i.contents = Some(contents(&r));
        }
        Err(ReadError::Unfinished) => i.state = State::Unfinished,
        Err(e) => i.state = State::Damaged(e.to_string()),
    }
    Some(i)
}

fn contents(r: &Reader) -> Contents {
    let m = Model::new(r);
    let rank = r.header().rank.load(Relaxed);
    Contents {
        rank: (rank != u64::MAX).then_some(rank),
        ports: m.ports.iter().map(crate::frame::port_text).collect(),
        qps: m.qps.iter().filter(|q| q.live).count() as u64,
        command: r.header().command.get(),
    }
}

impl Inspected {
    /// Whether the path still names the file that was inspected.
    pub fn is_still_there(&self) -> bool {
        let Some(file) = &self.file else { return false };
        match (file.metadata(), std::fs::symlink_metadata(&self.found.path)) {
            (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
            _ => false,
        }
    }
}
