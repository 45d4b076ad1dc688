//! The file of a recording: frames one after the other, each with a checksum. It is only ever appended to, and needs no end.
//!
//! ```text
//! 8 bytes       MAGIC
//! frame ...     length u32, kind u32, CLOCK_REALTIME in ns u64, CRC-32 u32 of these three and of the bytes; then the bytes
//!   About       JSON: who recorded; each start of a recorder begins with one
//!   Key         zstd: all segments, from nothing
//!   Delta       zstd: what changed since the frame before
//! ```
//! All integers are little-endian. Where frames are is found by reading the file from its start; nothing in it says so.

use crate::error::Failure;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use telereduce::shm::layout::ABI_VERSION;

/// How each recording starts.
pub const MAGIC: &[u8; 8] = b"TRREC\x01\r\n";
/// What comes before a frame's bytes.
pub const HEAD_BYTES: usize = 20;
/// No frame is longer.
const MAX_FRAME_BYTES: u32 = 1 << 30;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Who recorded.
    About = 0,
    /// All segments.
    Key = 1,
    /// What changed.
    Delta = 2,
}

/// Who recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The host's name.
    pub host: String,
    /// Of the segments.
    pub layout: u32,
    /// Of trtop.
    pub version: String,
    /// Between frames.
    pub every_ns: u64,
}

/// A frame, ready to be appended.
pub fn frame(kind: FrameKind, time_ns: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + bytes.len());
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&(kind as u32).to_le_bytes());
    out.extend_from_slice(&time_ns.to_le_bytes());
    let sum = checksum(&out, bytes);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(bytes);
    out
}

fn checksum(head: &[u8], bytes: &[u8]) -> u32 {
    let mut h = crc32fast::Hasher::new();
    h.update(head);
    h.update(bytes);
    h.finalize()
}

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its bytes, after its head.
    pub offset: u64,
    /// How many.
    pub bytes: u32,
    /// It needs no frame before it.
    pub key: bool,
    /// CLOCK_REALTIME, ns.
    pub time_ns: u64,
}

/// What a file holds.
#[derive(Clone, Debug)]
pub struct Index {
    /// Who recorded last.
    pub about: About,
    /// Frames that can be shown, in the order of the file.
    pub frames: Vec<Entry>,
    /// Where the last whole frame ends.
    pub end: u64,
    /// What is wrong with the file, one sentence each.
    pub troubles: Vec<String>,
}

fn failed(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("cannot read {}: {why}", path.display()))
}

/// Reads the whole file and checks each frame.
///
/// # Errors
/// It is no recording, or one of another version. A file that is cut short or damaged is one as far as it can be read.
pub fn index(path: &Path, file: &File) -> Result<Index, Failure> {
    let mut from = BufReader::with_capacity(1 << 16, file);
    let mut magic = Vec::new();
    from.by_ref().take(8).read_to_end(&mut magic).map_err(|e| failed(path, e))?;
    if magic.len() < 8 && MAGIC.starts_with(&magic) {
        return Err(failed(path, format!("it is cut short: {} bytes, and not one whole frame", magic.len())));
    }
    if magic != MAGIC {
        return Err(failed(path, "it is no recording (see: trtop help record)"));
    }
    let mut scan = Scan { at: 8, about: None, frames: Vec::new(), end: 8, needs_key: true, troubles: Vec::new() };
    scan.all(&mut from).map_err(|e| failed(path, e))?;
    let Some(about) = scan.about else {
        let why = scan.troubles.pop().unwrap_or_else(|| "it ends after its first 8 bytes".into());
        return Err(failed(path, format!("not one whole frame: {why}")));
    };
    if about.layout != ABI_VERSION {
        let why = format!(
            "recorded of segments of layout version {}, this trtop reads version {ABI_VERSION}: use trtop {}",
            about.layout, about.version
        );
        return Err(failed(path, why));
    }
    Ok(Index { about, frames: scan.frames, end: scan.end, troubles: scan.troubles })
}

struct Scan {
    at: u64,
    about: Option<About>,
    frames: Vec<Entry>,
    end: u64,
    needs_key: bool,
    troubles: Vec<String>,
}

impl Scan {
    fn all(&mut self, from: &mut impl Read) -> io::Result<()> {
        // After a damaged frame comes another, if its length is right; two that are wrong are no frames at all.
        let mut damaged = None;
        let mut head = Vec::new();
        let mut bytes = Vec::new();
        loop {
            head.clear();
            bytes.clear();
            from.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
            if head.is_empty() {
                break;
            }
            let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let length = if head.len() < HEAD_BYTES { 0 } else { number(0) };
            if head.len() == HEAD_BYTES && length <= MAX_FRAME_BYTES {
                from.by_ref().take(u64::from(length)).read_to_end(&mut bytes)?;
            }
            if head.len() < HEAD_BYTES || bytes.len() < length as usize {
                let left = head.len() + bytes.len();
                self.troubles.push(format!("it ends within a frame: {left} bytes at byte {} are left out", self.at));
                break;
            }
            let whole = number(16) == checksum(&head[..16], &bytes);
            let start = self.at;
            self.at += (HEAD_BYTES + bytes.len()) as u64;
            if !whole {
                if damaged.replace(start).is_some() {
                    break;
                }
                continue;
            }
            if let Some(start) = damaged.take() {
                self.needs_key = true;
                self.troubles.push(format!("damaged at byte {start}: it goes on with the next key frame"));
            }
            let time_ns = u64::from(number(8)) | u64::from(number(12)) << 32;
            self.take(number(4), time_ns, start + HEAD_BYTES as u64, &bytes);
            self.end = self.at;
        }
        if let Some(start) = damaged {
            self.troubles.push(format!("damaged at byte {start}: nothing from there on can be read"));
        }
        Ok(())
    }

    fn take(&mut self, kind: u32, time_ns: u64, offset: u64, bytes: &[u8]) {
        if kind == FrameKind::About as u32 {
            match serde_json::from_slice::<About>(bytes) {
                // Frames of two layouts would not be of one recording.
                Ok(a) if self.about.as_ref().is_none_or(|first| first.layout == a.layout) => self.about = Some(a),
                Ok(a) => {
                    self.needs_key = true;
                    self.troubles.push(format!("from byte {offset} on it is of layout version {}", a.layout));
                }
                Err(e) => self.troubles.push(format!("the frame at byte {offset} does not say who recorded: {e}")),
            }
        } else if kind <= FrameKind::Delta as u32 {
            let key = kind == FrameKind::Key as u32;
            self.needs_key &= !key;
            if !self.needs_key {
                self.frames.push(Entry { offset, bytes: bytes.len() as u32, key, time_ns });
            }
        }
    }
}
