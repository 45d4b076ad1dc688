//! A segment as it lies in its file, for recordings: bytes without their meaning, and where the regions are.

use super::super::layout::{HEADER_BYTES, Header, Kind};
use super::{ReadError, Reader};
use core::mem::size_of;
use std::os::unix::fs::FileExt;

/// No image is larger than this: some 300,000 QPs.
pub const MAX_IMAGE_BYTES: usize = 1 << 30;

/// A region, as it lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// What its records are.
    pub kind: Kind,
    /// Size of each.
    pub record_bytes: usize,
    /// How many.
    pub count: usize,
    /// Where the first is.
    pub offset: usize,
}

impl Extent {
    /// The bytes of all records.
    pub fn range(&self) -> core::ops::Range<usize> {
        self.offset..self.offset + self.count * self.record_bytes
    }
}

impl Reader {
    /// Copies the header and the regions of `kinds` into `image`, each byte where the file has it; those of other kinds stay as
    /// they are there. Tells where all regions are. Sums over QPs and what retired QPs left are consistent, as after
    /// [`Reader::refresh`].
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn image(&mut self, kinds: &[Kind], image: &mut Vec<u8>) -> Result<Vec<Extent>, ReadError> {
        let mut extents = Vec::new();
        for _ in 0..8 {
            let before = self.read_header()?;
            extents = self.extents();
            let end = extents.iter().map(|e| e.range().end).fold(HEADER_BYTES, usize::max);
            if end > MAX_IMAGE_BYTES {
                return Err(ReadError::Invalid(format!("{end} bytes, at most {MAX_IMAGE_BYTES} are recorded")));
            }
            image.resize(end, 0);
            // The header that the regions were taken from, not one that may have more of them.
            image[..size_of::<Header>()].copy_from_slice(self.header.bytes_mut(0, 1));
            for e in extents.iter().filter(|e| kinds.contains(&e.kind)) {
                self.file.read_exact_at(&mut image[e.range()], e.offset as u64)?;
            }
            let after = self.read_header()?;
            if before == after && before.is_multiple_of(2) {
                break;
            }
        }
        Ok(extents)
    }

    /// Every region of the last header.
    fn extents(&self) -> Vec<Extent> {
        let at = |s: &super::Span| Extent {
            kind: s.kind,
            record_bytes: s.record_bytes,
            count: s.count,
            offset: s.offset as usize,
        };
        self.spans.iter().map(at).collect()
    }
}
