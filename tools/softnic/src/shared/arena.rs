//! Memory of a segment, for its owner: blocks of powers of two, which are used again.

use super::mapping::Mapping;
use std::io;
use std::sync::Mutex;

const SMALLEST: u32 = 6;
/// What is taken from the system at once.
const STEP: u64 = 1 << 20;

/// Hands out ranges of a mapping.
pub struct Arena {
    state: Mutex<State>,
}

struct State {
    /// All before is in use or in `free`.
    top: u64,
    /// All before exists.
    allocated: u64,
    free: [Vec<u64>; 40],
}

fn class(bytes: usize) -> u32 {
    bytes.max(1).next_power_of_two().trailing_zeros().max(SMALLEST)
}

impl Arena {
    /// Hands out what is behind `start`, up to which the mapping exists.
    pub fn new(start: u64) -> Arena {
        Arena { state: Mutex::new(State { top: start, allocated: start, free: [const { Vec::new() }; 40] }) }
    }

    /// A range of zeros.
    pub fn take(&self, mapping: &Mapping, bytes: usize) -> io::Result<u64> {
        let class = class(bytes);
        let size = 1u64 << class;
        let mut s = self.state.lock().expect("no panic under it");
        let list = s.free.get_mut(class as usize).ok_or(io::ErrorKind::OutOfMemory)?;
        let offset = if let Some(offset) = list.pop() {
            offset
        } else {
            let offset = s.top.next_multiple_of(size.min(4096));
            let end = offset + size;
            mapping.raw(offset, size as usize).ok_or(io::ErrorKind::OutOfMemory)?;
            if end > s.allocated {
                let more = (end - s.allocated).next_multiple_of(STEP);
                mapping.allocate(s.allocated, more)?;
                s.allocated += more;
            }
            s.top = end;
            return Ok(offset);
        };
        drop(s);
        let at = mapping.raw(offset, size as usize).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a range that was given back: its former user has made sure that no peer comes to it any more.
        unsafe { at.write_bytes(0, size as usize) };
        Ok(offset)
    }

    /// Gives a range back.
    pub fn give_back(&self, offset: u64, bytes: usize) {
        self.state.lock().expect("no panic under it").free[class(bytes) as usize].push(offset);
    }
}
