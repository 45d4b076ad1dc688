//! Copies the segments of the host, for a recording: their bytes, as they are.

use super::codec::Image;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use telereduce::shm::discover::{self, Found};
use telereduce::shm::layout::Kind;
use telereduce::shm::reader::{ReadError, Reader};

/// What each frame has.
const HOT: [Kind; 9] =
    [Kind::Context, Kind::Port, Kind::Peer, Kind::Srq, Kind::Lane, Kind::Qp, Kind::Multipath, Kind::Label, Kind::Stall];
/// What is much, and changes at random: frames have it now and then, less often the more QPs there are.
const COLD: [Kind; 2] = [Kind::Cq, Kind::QpDetail];
/// Per QP, from one frame with it to the next.
const COLD_EVERY: Duration = Duration::from_millis(10);

/// Open segments and their last copies.
pub struct Segments {
    dir: PathBuf,
    pids: Vec<u32>,
    events: bool,
    user: u32,
    next_id: u64,
    open: HashMap<PathBuf, Open>,
    cold: Option<Instant>,
    /// Files that were said to be unreadable.
    broken: BTreeMap<PathBuf, String>,
    /// Segments of other users at the last copy.
    pub denied: u64,
}

struct Open {
    id: u64,
    file: (u64, u64),
    reader: Reader,
    image: Image,
    seen: bool,
}

impl Segments {
    /// Looks at segments in `dir`, those of processes `pids` only unless that is empty. `events`: copies completion events.
    pub fn new(dir: &Path, pids: &[u32], events: bool) -> Segments {
        Segments {
            dir: dir.into(),
            pids: pids.into(),
            events,
            user: rustix::process::geteuid().as_raw(),
            next_id: 1,
            open: HashMap::new(),
            cold: None,
            broken: BTreeMap::new(),
            denied: 0,
        }
    }

    /// Copies all of them. Whether what changes at random was copied, too.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn copy(&mut self) -> io::Result<bool> {
        let found = discover::list(&self.dir)?;
        let records = |k: Kind| {
            let extents = self.open.values().flat_map(|o| &o.image.extents);
            extents.filter(|e| e.kind == k).map(|e| e.count as u32).fold(0, u32::saturating_add)
        };
        let cold = self.cold.is_none_or(|at| at.elapsed() >= COLD_EVERY.saturating_mul(records(Kind::Qp)));
        if cold {
            self.cold = Some(Instant::now());
        }
        let mut kinds = HOT.to_vec();
        kinds.extend(COLD.iter().filter(|_| cold));
        kinds.extend([Kind::Ring].iter().filter(|_| self.events));
        self.denied = 0;
        self.open.values_mut().for_each(|o| o.seen = false);
        let pids = self.pids.clone();
        for f in found.iter().filter(|f| pids.is_empty() || pids.contains(&f.pid)) {
            match self.one(f, &kinds) {
                Ok(()) => {
                    self.broken.remove(&f.path);
                }
                Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::NotFound => {}
                Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::PermissionDenied && f.uid != self.user => {
                    self.denied += 1;
                }
                Err(ReadError::Unfinished) => {}
                Err(e) => {
                    let why = e.to_string();
                    if self.broken.insert(f.path.clone(), why.clone()).as_ref() != Some(&why) {
                        eprintln!("trtop: left out {}: {why}", f.path.display());
                    }
                }
            }
        }
        self.open.retain(|_, o| o.seen);
        Ok(cold)
    }

    fn one(&mut self, f: &Found, kinds: &[Kind]) -> Result<(), ReadError> {
        let meta = std::fs::symlink_metadata(&f.path)?;
        let file = (meta.dev(), meta.ino());
        let mut o = match self.open.remove(&f.path).filter(|o| o.file == file) {
            Some(o) => o,
            None => {
                let opened = discover::open(&f.path)?;
                let meta = opened.metadata()?;
                self.next_id += 1;
                let file = (meta.dev(), meta.ino());
                Open { id: self.next_id - 1, file, reader: Reader::unread(opened), image: Image::default(), seen: true }
            }
        };
        // What is new is copied whole.
        let first = o.image.bytes.is_empty();
        let all = [&HOT[..], &COLD, &[Kind::Ring]].concat();
        o.image.extents = o.reader.image(if first { &all } else { kinds }, &mut o.image.bytes)?;
        o.image.alive = o.reader.is_alive();
        o.seen = true;
        self.open.insert(f.path.clone(), o);
        Ok(())
    }

    /// The last copies, in the order of their ids.
    pub fn images(&self) -> Vec<(u64, &Image)> {
        let mut all: Vec<_> = self.open.values().map(|o| (o.id, &o.image)).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }
}
