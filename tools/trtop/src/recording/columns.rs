//! A region's changes, column by column: of a word that changed in any record, what differs from its prediction in each.

use super::codec::Wrong;
use super::predict::{Memory, Predict, is_restless, predict};
use std::collections::HashMap;
use telereduce::shm::layout::Kind;

/// Appends a number in 7 bits per byte, the lowest first.
pub fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Takes such a number off the front.
pub fn take(from: &mut &[u8]) -> Result<u64, Wrong> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first().ok_or(Wrong("a number is cut short"))?;
        *from = rest;
        n |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(n);
        }
    }
    Err(Wrong("a number is too long"))
}

/// Small numbers of either sign become small ones without.
fn folded(n: i64) -> u64 {
    (n << 1 ^ n >> 63) as u64
}

fn unfolded(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut w = [0; 8];
    w.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(w)
}

/// Bytes that are compared at a time.
const LINE: usize = 64;

/// What is remembered of a region, by column; empty for columns that never changed.
pub type Memories = HashMap<usize, Vec<Memory>>;

/// One region's records. `None` as the kind = the header.
#[derive(Clone, Copy)]
pub struct Shape {
    /// What the records are.
    pub kind: Option<Kind>,
    /// Size of each.
    pub record_bytes: usize,
    /// How many.
    pub count: usize,
}

impl Shape {
    fn predict(&self, column: usize) -> Predict {
        self.kind.map_or(Predict::Same, |k| predict(k, column))
    }

    fn is_restless(&self, column: usize) -> bool {
        self.kind.is_some_and(|k| is_restless(k, column))
    }

    /// Columns with a change that is to be recorded.
    fn changed(&self, old: &[u8], new: &[u8], restless: bool) -> Vec<usize> {
        let mut changed = vec![false; self.record_bytes / 8];
        for (o, n) in old.chunks_exact(self.record_bytes).zip(new.chunks_exact(self.record_bytes)) {
            // Most lines of most records stay as they are.
            for (line, (o, n)) in o.chunks(LINE).zip(n.chunks(LINE)).enumerate().filter(|(_, (o, n))| o != n) {
                let columns = &mut changed[line * LINE / 8..];
                (0..o.len() / 8).for_each(|c| columns[c] |= word(o, c * 8) != word(n, c * 8));
            }
        }
        (0..changed.len()).filter(|c| changed[*c] && (restless || !self.is_restless(*c))).collect()
    }
}

/// How much each record's cell of a column grew, kept for the columns that follow it.
type Growth = HashMap<usize, Vec<i64>>;

/// Goes over a column's cells: `growth` tells by how much one grows, given its old value and what it is expected to.
fn column(
    shape: &Shape,
    column: usize,
    bytes: &mut [u8],
    memories: &mut Memories,
    grown: &mut Growth,
    mut growth: impl FnMut(usize, u64, i64) -> Result<i64, Wrong>,
) -> Result<(), Wrong> {
    let predict = shape.predict(column);
    let none = Vec::new();
    let base = match predict {
        Predict::Follows(b) | Predict::Tracks(b) => grown.get(&b).unwrap_or(&none),
        _ => &none,
    };
    let memory = memories.entry(column).or_default();
    if predict != Predict::Same {
        memory.resize(shape.count, (0, 0));
    }
    let mut grew = Vec::with_capacity(shape.count);
    for row in 0..shape.count {
        let at = row * shape.record_bytes + column * 8;
        let old = word(bytes, at);
        let base = base.get(row).copied().unwrap_or(0);
        let expected = memory.get(row).map_or(0, |m| predict.growth(*m, base));
        let g = growth(at, old, expected)?;
        if let Some(m) = memory.get_mut(row) {
            predict.remember(m, base, g);
        }
        bytes[at..at + 8].copy_from_slice(&old.wrapping_add(g as u64).to_le_bytes());
        grew.push(g);
    }
    grown.insert(column, grew);
    Ok(())
}

/// Writes what leads from `old` to `new`, and makes `old` what a reader will have. Whether anything changed.
pub fn encode(
    shape: &Shape,
    old: &mut [u8],
    new: &[u8],
    restless: bool,
    memories: &mut Memories,
    out: &mut Vec<u8>,
) -> bool {
    let changed = shape.changed(old, new, restless);
    put(out, changed.len() as u64);
    let mut grown = Growth::new();
    let mut last = 0;
    for &c in &changed {
        put(out, (c - last) as u64);
        last = c;
        let done = column(shape, c, old, memories, &mut grown, |at, before, expected| {
            let g = word(new, at).wrapping_sub(before) as i64;
            put(out, folded(g.wrapping_sub(expected)));
            Ok(g)
        });
        debug_assert!(done.is_ok(), "there is nothing to read here that could be wrong");
    }
    !changed.is_empty()
}

/// Takes off the front of `from` what [`encode`] wrote, and makes of `bytes` what it leads to. Whether anything changed.
pub fn decode(shape: &Shape, bytes: &mut [u8], memories: &mut Memories, from: &mut &[u8]) -> Result<bool, Wrong> {
    let columns = shape.record_bytes / 8;
    let count = take(from)?;
    if count > columns as u64 {
        return Err(Wrong("more columns than a record has"));
    }
    let mut grown = Growth::new();
    let mut last = 0usize;
    for i in 0..count {
        let by = take(from)?;
        let c = usize::try_from(by).ok().and_then(|by| last.checked_add(by)).filter(|c| *c < columns);
        let c = c.filter(|_| i == 0 || by > 0).ok_or(Wrong("a column that no record has"))?;
        last = c;
        column(shape, c, bytes, memories, &mut grown, |_, _, expected| {
            Ok(unfolded(take(from)?).wrapping_add(expected))
        })?;
    }
    Ok(count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use telereduce::shm::layout::QpRecord;

    const SHAPE: Shape = Shape { kind: Some(Kind::Qp), record_bytes: size_of::<QpRecord>(), count: 5 };

    proptest! {
        #[test]
        fn numbers_come_back(n in any::<u64>(), i in any::<i64>()) {
            let mut out = Vec::new();
            put(&mut out, n);
            put(&mut out, folded(i));
            let mut from = out.as_slice();
            prop_assert_eq!(take(&mut from).unwrap(), n);
            prop_assert_eq!(unfolded(take(&mut from).unwrap()), i);
            prop_assert!(from.is_empty());
        }

        /// Any words at all, frame after frame, come back; also where they do not go on as predicted.
        #[test]
        fn records_come_back(frames in proptest::collection::vec(proptest::collection::vec(
            (0usize..SHAPE.count * SHAPE.record_bytes / 8, prop_oneof![any::<u64>(), 0u64..300]), 0..60), 1..8)) {
            let bytes = SHAPE.count * SHAPE.record_bytes;
            let (mut now, mut old, mut read) = (vec![0; bytes], vec![0; bytes], vec![0; bytes]);
            let (mut own, mut readers) = (Memories::new(), Memories::new());
            for f in frames {
                for (at, value) in f {
                    let sum = word(&now, at * 8).wrapping_add(value);
                    now[at * 8..at * 8 + 8].copy_from_slice(&sum.to_le_bytes());
                }
                let mut out = Vec::new();
                let changed = encode(&SHAPE, &mut old, &now, true, &mut own, &mut out);
                prop_assert_eq!(&old, &now);
                let mut from = out.as_slice();
                prop_assert_eq!(decode(&SHAPE, &mut read, &mut readers, &mut from).unwrap(), changed);
                prop_assert!(from.is_empty());
                prop_assert_eq!(&read, &now);
            }
        }
    }

    #[test]
    fn what_grows_evenly_takes_a_byte_a_counter_at_most() {
        let bytes = SHAPE.count * SHAPE.record_bytes;
        let (mut now, mut old) = (vec![0u8; bytes], vec![0u8; bytes]);
        let mut memories = Memories::new();
        let posted = core::mem::offset_of!(QpRecord, send_post);
        let mut length = 0;
        for frame in 1..100u64 {
            for row in 0..SHAPE.count {
                let at = row * SHAPE.record_bytes + posted;
                now[at..at + 8].copy_from_slice(&(frame * 40).to_le_bytes());
                now[at + 8..at + 16].copy_from_slice(&(frame * 40 * 65536).to_le_bytes());
            }
            let mut out = Vec::new();
            encode(&SHAPE, &mut old, &now, true, &mut memories, &mut out);
            length = out.len();
        }
        assert_eq!(length, 1 + 2 * (1 + SHAPE.count));
    }
}
