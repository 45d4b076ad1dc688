//! Appending to a recording.

use super::codec::{Codec, Image};
use super::file::{self, About, FrameKind, MAGIC};
use crate::error::Failure;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A key frame comes after so many frames at the soonest,
const KEY_FRAMES: u64 = 600;
/// and after so many times its size of others.
const KEY_SIZES: u64 = 4;
/// What is left of the counters is noise: higher levels take more time and save nothing.
const LEVEL: i32 = 1;

/// An open recording.
pub struct Writer {
    path: PathBuf,
    file: File,
    codec: Codec,
    compressor: zstd::bulk::Compressor<'static>,
    /// Where the last whole frame ends.
    end: u64,
    since_key: Option<(u64, u64)>,
    key_bytes: u64,
    /// Frames written.
    pub frames: u64,
}

impl Writer {
    /// Begins a recording; goes on with one that is there. `force`: replaces whatever is there.
    ///
    /// # Errors
    /// There is another file, another trtop records to it, or it cannot be written.
    pub fn open(path: &Path, about: &About, force: bool) -> Result<Writer, Failure> {
        let failed = |e: io::Error| cannot_write(path, &e);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(Failure::new(format!("cannot record to {}: not a regular file", path.display())));
        }
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Failure::new(format!("cannot record to {}: another trtop does", path.display())));
        }
        let length = file.metadata().map_err(failed)?.len();
        let mut end = 0;
        if force {
            file.set_len(0).map_err(failed)?;
        } else if length > 0 {
            end = file::index(path, &file).map_err(|e| refused(path, &e))?.end;
            // What a crash left of a frame.
            file.set_len(end).map_err(failed)?;
        }
        file.seek(SeekFrom::Start(end)).map_err(failed)?;
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(failed)?;
        let codec = Codec::default();
        let mut w =
            Writer { path: path.into(), file, codec, compressor, end, since_key: None, key_bytes: 0, frames: 0 };
        if end == 0 {
            w.append(MAGIC)?;
        }
        let about = serde_json::to_vec(about).expect("numbers and text always make JSON");
        w.append(&file::frame(FrameKind::About, telereduce::clock::realtime_ns(), &about))?;
        Ok(w)
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Appends a frame of segments, in the order of their ids. `restless`: also what changes with every frame, at random.
    ///
    /// # Errors
    /// It cannot be written; the file then ends with the frame before.
    pub fn write(
        &mut self,
        time_ns: u64,
        segments: &[(u64, &Image)],
        denied: u64,
        restless: bool,
    ) -> Result<(), Failure> {
        let key = self.since_key.is_none_or(|(n, bytes)| n >= KEY_FRAMES && bytes >= KEY_SIZES * self.key_bytes);
        let raw = self.codec.encode(key, segments, denied, restless);
        let bytes = self.compressor.compress(&raw).map_err(|e| cannot_write(&self.path, &e))?;
        let kind = if key { FrameKind::Key } else { FrameKind::Delta };
        self.append(&file::frame(kind, time_ns, &bytes))?;
        let length = bytes.len() as u64;
        if key {
            self.since_key = Some((0, 0));
            self.key_bytes = length;
            // At most one key frame's frames are lost with the power.
            self.file.sync_data().map_err(|e| cannot_write(&self.path, &e))?;
        } else if let Some((n, sum)) = &mut self.since_key {
            *n += 1;
            *sum += length;
        }
        self.frames += 1;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if let Err(e) = self.file.write_all(bytes) {
            let _ = self.file.set_len(self.end);
            return Err(Failure::new(format!(
                "cannot write {}: {e}; it holds the {} frames that were recorded until now",
                self.path.display(),
                self.frames
            )));
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Writes all of it to the disk.
    ///
    /// # Errors
    /// As the system says.
    pub fn finish(self) -> Result<(), Failure> {
        self.file.sync_all().map_err(|e| cannot_write(&self.path, &e))
    }
}

fn cannot_write(path: &Path, e: &io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {e}", path.display()))
}

fn refused(path: &Path, e: &Failure) -> Failure {
    Failure::new(format!(
        "{} is there, and cannot be gone on with ({}); name another file, or replace it: --force",
        path.display(),
        e.message
    ))
}
