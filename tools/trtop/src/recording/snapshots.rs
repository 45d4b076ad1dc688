//! Frames of a recording as the documented JSON's objects.

use super::player::Player;
use crate::error::Failure;
use std::collections::HashMap;
use telereduce::shm::reader::{ReadError, Reader};
use telereduce::shm::snapshot::{self, EventJson, SCHEMA, SegmentJson, Snapshot};

/// Readers of the segments, which stay open from frame to frame.
pub struct Snapshots {
    player: Player,
    readers: HashMap<u64, Known>,
}

struct Known {
    reader: Reader,
    /// End of the newest event that was handed out.
    newest_ns: u64,
}

impl Snapshots {
    /// Of this recording.
    pub fn new(player: Player) -> Snapshots {
        Snapshots { player, readers: HashMap::new() }
    }

    /// The recording.
    pub fn player(&self) -> &Player {
        &self.player
    }

    /// What `trtop dump` would have written then; of processes `pids` only, unless that is empty. Each event comes once, with the
    /// first frame that has it. A segment that cannot be read is named on stderr.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn at(&mut self, frame: usize, pids: &[u32]) -> Result<Snapshot, Failure> {
        self.player.go(frame)?;
        let mut last = std::mem::take(&mut self.readers);
        let mut segments = Vec::new();
        for (id, path) in self.player.stage().paths() {
            let known = match last.remove(&id) {
                Some(k) => Ok(k),
                None => Reader::open(path).map(|reader| Known { reader, newest_ns: 0 }),
            };
            match known.and_then(|mut k| Ok((read(&mut k)?, k))) {
                Ok((s, k)) => {
                    if pids.is_empty() || pids.contains(&s.pid) {
                        segments.push(s);
                    }
                    self.readers.insert(id, k);
                }
                Err(e) => eprintln!("trtop: left out a segment of frame {frame}: {e}"),
            }
        }
        segments.sort_by_key(|s| (s.pid, s.uid));
        let f = self.player.frames()[frame.min(self.player.frames().len() - 1)];
        Ok(Snapshot { schema: SCHEMA.into(), time_ns: f.time_ns, segments, cause: None })
    }
}

fn read(k: &mut Known) -> Result<SegmentJson, ReadError> {
    let mut s = snapshot::segment(&mut k.reader, true)?;
    let newest = s.events.iter().map(|e: &EventJson| e.end_ns).fold(k.newest_ns, u64::max);
    s.events.retain(|e| e.end_ns > k.newest_ns);
    k.newest_ns = newest;
    Ok(s)
}
