//! Segments to the bytes of a frame and back. Both sides keep the segments as the last frame left them.

use super::columns::{self, Memories, Shape, put, take};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use telereduce::shm::layout::{HEADER_BYTES, Kind, MAX_REGIONS};
use telereduce::shm::reader::{Extent, MAX_IMAGE_BYTES};

/// All segments of a frame together are not larger than this.
const MAX_FRAME_BYTES: usize = 4 << 30;

/// Why the bytes of a frame are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong(pub &'static str);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A segment's bytes at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// As they lie in its file.
    pub bytes: Vec<u8>,
    /// Where the regions are.
    pub extents: Vec<Extent>,
    /// Whether its process lived.
    pub alive: bool,
}

/// A segment as the last frame left it.
#[derive(Default)]
pub struct Segment {
    /// The segment.
    pub image: Image,
    /// Bytes that changed since [`Codec::shown`], by where they start.
    pub changed: BTreeMap<usize, usize>,
    /// By where a region starts.
    memories: BTreeMap<usize, Memories>,
}

impl Segment {
    /// Header and regions: where each starts, and its records.
    fn parts(&self) -> Vec<(usize, Shape)> {
        let header = (0, Shape { kind: None, record_bytes: HEADER_BYTES, count: 1 });
        let shape = |e: &Extent| Shape { kind: Some(e.kind), record_bytes: e.record_bytes, count: e.count };
        std::iter::once(header).chain(self.image.extents.iter().map(|e| (e.offset, shape(e)))).collect()
    }

    /// Other regions: those that are where they were keep what is known of them.
    fn lay_out(&mut self, extents: Vec<Extent>, bytes: usize) {
        self.image.bytes.resize(bytes, 0);
        self.image.extents = extents;
        self.changed = [(0, bytes)].into();
    }
}

/// The state of a writer or of a reader of frames.
#[derive(Default)]
pub struct Codec {
    segments: BTreeMap<u64, Segment>,
    /// Segments of other users at the last frame.
    pub denied: u64,
}

const ALIVE: u64 = 1;
const LAID_OUT: u64 = 2;

impl Codec {
    /// The frame's bytes. A key frame needs none before it. `segments` are in the order of their ids; `restless`: also what changes
    /// with every frame, at random.
    pub fn encode(&mut self, key: bool, segments: &[(u64, &Image)], denied: u64, restless: bool) -> Vec<u8> {
        if key {
            self.segments.clear();
        }
        self.segments.retain(|id, _| segments.iter().any(|(s, _)| s == id));
        self.denied = denied;
        let mut out = Vec::new();
        put(&mut out, denied);
        put(&mut out, segments.len() as u64);
        let mut last = 0;
        for &(id, new) in segments {
            put(&mut out, id - last);
            last = id;
            let s = self.segments.entry(id).or_default();
            s.image.alive = new.alive;
            let laid_out = s.image.extents != new.extents || s.image.bytes.len() != new.bytes.len();
            put(&mut out, if new.alive { ALIVE } else { 0 } | if laid_out { LAID_OUT } else { 0 });
            if laid_out {
                put_extents(&mut out, new);
                s.lay_out(new.extents.clone(), new.bytes.len());
            }
            for (offset, shape) in s.parts() {
                let range = offset..offset + shape.count * shape.record_bytes;
                let memories = s.memories.entry(offset).or_default();
                let (old, new) = (&mut s.image.bytes[range.clone()], &new.bytes[range]);
                columns::encode(&shape, old, new, restless || laid_out, memories, &mut out);
            }
        }
        out
    }

    /// Goes on to the frame of these bytes.
    ///
    /// # Errors
    /// They are none that [`Codec::encode`] made after the same frames; then only a key frame comes after this one.
    pub fn decode(&mut self, key: bool, mut from: &[u8]) -> Result<(), Wrong> {
        if key {
            self.segments.clear();
        }
        self.denied = take(&mut from)?;
        let count = take(&mut from)?;
        let mut before = std::mem::take(&mut self.segments);
        let (mut last, mut bytes) = (0u64, 0);
        for _ in 0..count {
            let id = last.checked_add(take(&mut from)?).ok_or(Wrong("a number is too large"))?;
            last = id;
            let mut s = before.remove(&id).unwrap_or_default();
            let flags = take(&mut from)?;
            s.image.alive = flags & ALIVE != 0;
            if flags & LAID_OUT != 0 {
                let (extents, bytes) = take_extents(&mut from)?;
                s.lay_out(extents, bytes);
            } else if s.image.bytes.is_empty() {
                return Err(Wrong("a segment that was not there before"));
            }
            bytes += s.image.bytes.len();
            if bytes > MAX_FRAME_BYTES {
                return Err(Wrong("too many bytes"));
            }
            for (offset, shape) in s.parts() {
                let range = offset..offset + shape.count * shape.record_bytes;
                let memories = s.memories.entry(offset).or_default();
                if columns::decode(&shape, &mut s.image.bytes[range.clone()], memories, &mut from)? {
                    let end = s.changed.entry(range.start).or_default();
                    *end = range.end.max(*end);
                }
            }
            match self.segments.entry(id) {
                Entry::Vacant(v) => v.insert(s),
                Entry::Occupied(_) => return Err(Wrong("a segment comes twice")),
            };
        }
        if from.is_empty() { Ok(()) } else { Err(Wrong("there is more than a frame")) }
    }

    /// The segments, by their ids in the recording.
    pub fn segments(&self) -> impl Iterator<Item = (u64, &Segment)> {
        self.segments.iter().map(|(id, s)| (*id, s))
    }

    /// What changed until now is known.
    pub fn shown(&mut self) {
        self.segments.values_mut().for_each(|s| s.changed.clear());
    }
}

fn put_extents(out: &mut Vec<u8>, image: &Image) {
    put(out, image.bytes.len() as u64);
    put(out, image.extents.len() as u64);
    for e in &image.extents {
        [e.kind as usize, e.record_bytes, e.count, e.offset].into_iter().for_each(|n| put(out, n as u64));
    }
}

/// Regions that lie within the segment, of records of the right size.
fn take_extents(from: &mut &[u8]) -> Result<(Vec<Extent>, usize), Wrong> {
    let bytes = take(from)?;
    let bytes = usize::try_from(bytes).ok().filter(|b| (HEADER_BYTES..=MAX_IMAGE_BYTES).contains(b));
    let bytes = bytes.ok_or(Wrong("a segment of an impossible size"))?;
    let count = take(from)?;
    if count > MAX_REGIONS as u64 {
        return Err(Wrong("more regions than a segment has"));
    }
    let (mut extents, mut sum) = (Vec::new(), 0);
    for _ in 0..count {
        let mut number = || usize::try_from(take(from)?).map_err(|_| Wrong("a number is too large"));
        let (kind, record_bytes, count, offset) = (number()?, number()?, number()?, number()?);
        let known = u32::try_from(kind).ok().and_then(Kind::from_u32).filter(|(_, bytes)| *bytes == record_bytes);
        let (kind, _) = known.ok_or(Wrong("records of an unknown kind or size"))?;
        let end = count.checked_mul(record_bytes).and_then(|n| n.checked_add(offset));
        if offset < HEADER_BYTES || end.is_none_or(|end| end > bytes) {
            return Err(Wrong("a region outside of its segment"));
        }
        sum += count * record_bytes;
        extents.push(Extent { kind, record_bytes, count, offset });
    }
    if sum > bytes { Err(Wrong("regions that overlap")) } else { Ok((extents, bytes)) }
}
