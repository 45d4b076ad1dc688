//! Goes to any frame of a recording.

use super::codec::Codec;
use super::file::{self, Entry, Index};
use super::stage::Stage;
use crate::error::Failure;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// No frame is larger before its compression.
const MAX_RAW_BYTES: usize = 2 << 30;

/// An open recording, and its segments at one frame.
pub struct Player {
    path: PathBuf,
    file: File,
    index: Index,
    codec: Codec,
    /// The frame that `codec` is at.
    at: Option<usize>,
    stage: Stage,
}

impl Player {
    /// Opens a recording. What is wrong with it is said on stderr.
    ///
    /// # Errors
    /// It is none, or has not one whole frame.
    pub fn open(path: &Path) -> Result<Player, Failure> {
        let file = File::open(path).map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
        let index = file::index(path, &file)?;
        index.troubles.iter().for_each(|t| eprintln!("trtop: {}: {t}", path.display()));
        if index.frames.is_empty() {
            return Err(Failure::new(format!("{} has not one whole frame of counters", path.display())));
        }
        Ok(Player { path: path.into(), file, index, codec: Codec::default(), at: None, stage: Stage::new()? })
    }

    /// Its frames; there is at least one.
    pub fn frames(&self) -> &[Entry] {
        &self.index.frames
    }

    /// What the file says of itself.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The last frame that is not later than this; the first, if all are.
    pub fn frame_at(&self, time_ns: u64) -> usize {
        self.index.frames.partition_point(|f| f.time_ns <= time_ns).saturating_sub(1)
    }

    /// Segments of other users at the frame.
    pub fn denied(&self) -> u64 {
        self.codec.denied
    }

    /// The segments of the last frame gone to, as files.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Goes to frame `to`.
    ///
    /// # Errors
    /// The file has changed since it was opened, or there is no room for the segments.
    pub fn go(&mut self, to: usize) -> Result<(), Failure> {
        let to = to.min(self.index.frames.len() - 1);
        if self.at == Some(to) {
            return Ok(());
        }
        let key = self.index.frames[..=to].iter().rposition(|f| f.key).unwrap_or(0);
        let first = match self.at {
            Some(at) if at < to && at >= key => at + 1,
            _ => key,
        };
        for i in first..=to {
            self.at = None;
            let f = self.index.frames[i];
            let read = self.raw(&f).and_then(|raw| self.codec.decode(f.key, &raw).map_err(|e| e.to_string()));
            read.map_err(|why| {
                let path = self.path.display();
                Failure::new(format!("cannot read {path}: the frame at byte {}: {why}", f.offset))
            })?;
        }
        self.stage.show(&mut self.codec)?;
        self.at = Some(to);
        Ok(())
    }

    fn raw(&self, f: &Entry) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; f.bytes as usize];
        self.file.read_exact_at(&mut bytes, f.offset).map_err(|e| e.to_string())?;
        let size = zstd::zstd_safe::get_frame_content_size(&bytes).ok().flatten();
        let size = size.and_then(|s| usize::try_from(s).ok()).filter(|s| *s <= MAX_RAW_BYTES);
        let size = size.ok_or("it does not say how large it is")?;
        zstd::bulk::decompress(&bytes, size).map_err(|e| e.to_string())
    }
}
