//! Memory at both ends, and what a WR does to it natively.

use super::super::wr::{READ, Sge, WRITE, WRITE_WITH_IMM};
use super::rng::Rng;

/// Bytes of each region.
pub const SIZE: u64 = 4096;
/// The target's region; not at a multiple of a piece's alignment.
pub const TARGET: u64 = 0x7_0034;
/// Local region that WRITEs and SENDs read, and nothing changes.
pub const SOURCE: u64 = 0x10_0000;
/// Local region that READs and atomics write, and fenced WRs read.
pub const SINK: u64 = 0x20_0000;

pub const SEND: u32 = 2;
pub const SEND_WITH_IMM: u32 = 3;
pub const COMPARE_SWAP: u32 = 5;
pub const FETCH_ADD: u32 = 6;
pub const LOCAL_INV: u32 = 7;

pub fn is_atomic(opcode: u32) -> bool {
    opcode == COMPARE_SWAP || opcode == FETCH_ADD
}

pub fn is_write(opcode: u32) -> bool {
    opcode == WRITE || opcode == WRITE_WITH_IMM
}

/// Brings bytes back that a fence waits for.
pub fn is_fetch(opcode: u32) -> bool {
    opcode == READ || is_atomic(opcode)
}

/// Bytes that an opcode with a list of `bytes` touches at the target.
pub fn touched(opcode: u32, bytes: u64) -> u64 {
    if is_atomic(opcode) {
        8
    } else if is_write(opcode) || opcode == READ {
        bytes
    } else {
        0
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct Memory {
    pub target: Vec<u8>,
    source: Vec<u8>,
    sink: Vec<u8>,
}

impl Memory {
    pub fn new(rng: &mut Rng) -> Memory {
        let mut region = || (0..SIZE).map(|_| rng.next() as u8).collect();
        Memory { target: region(), source: region(), sink: region() }
    }

    fn local(&self, addr: u64, length: u32) -> &[u8] {
        let (region, base) = if addr >= SINK { (&self.sink, SINK) } else { (&self.source, SOURCE) };
        &region[(addr - base) as usize..][..length as usize]
    }

    /// The bytes that a list describes.
    pub fn gather(&self, sges: &[Sge]) -> Vec<u8> {
        sges.iter().flat_map(|s| self.local(s.addr, s.length).iter().copied()).collect()
    }

    /// Puts bytes where a list says.
    pub fn scatter(&mut self, sges: &[Sge], bytes: &[u8]) {
        let mut rest = bytes;
        for s in sges {
            let (now, later) = rest.split_at(s.length as usize);
            self.sink[(s.addr - SINK) as usize..][..now.len()].copy_from_slice(now);
            rest = later;
        }
    }

    pub fn is_there(addr: u64, bytes: u64) -> bool {
        bytes == 0 || addr >= TARGET && addr + bytes <= TARGET + SIZE
    }

    pub fn at(&self, addr: u64, bytes: u64) -> &[u8] {
        if bytes == 0 { &[] } else { &self.target[(addr - TARGET) as usize..][..bytes as usize] }
    }

    pub fn put(&mut self, addr: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.target[(addr - TARGET) as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Does an atomic; returns what was there.
    pub fn atomic(&mut self, opcode: u32, addr: u64, compare_add: u64, swap: u64) -> Vec<u8> {
        let old = self.at(addr, 8).to_vec();
        let value = u64::from_ne_bytes(old[..].try_into().unwrap());
        let new = match opcode {
            FETCH_ADD => value.wrapping_add(compare_add),
            _ if value == compare_add => swap,
            _ => value,
        };
        self.put(addr, &new.to_ne_bytes());
        old
    }

    /// What the target and the sink hold becomes the same as in `other`.
    pub fn agree(&mut self, other: &Memory) {
        self.target.copy_from_slice(&other.target);
        self.sink.copy_from_slice(&other.sink);
    }
}
