//! The other end's receives: posted, taken by messages, completed, polled; and the ring that records are written to.

use super::super::guard::Guard;
use super::super::lengths::{Arrival, Receives, Ring, SLOT_BYTES, slots};
use std::collections::VecDeque;

/// Its ring; not at a multiple of a slot's size.
pub const RING: u64 = 0x30_0008;
/// Key of the ring.
pub const RING_RKEY: u32 = 4;

const RECV: u32 = 1 << 7;
const RECV_RDMA_WITH_IMM: u32 = 129;

/// One QP's receives.
pub struct Receiver {
    receives: Receives,
    ring: Vec<[u64; 3]>,
    tag: u32,
    /// Receives that may be posted or not polled, together.
    max_recv_wr: usize,
    posted: usize,
    cq: VecDeque<Arrival>,
    /// Polled by the shim for the application.
    kept: VecDeque<Arrival>,
    without: Option<Guard>,
}

impl Receiver {
    pub fn new(max_recv_wr: u32, ahead: u32, without: Option<Guard>) -> Receiver {
        let mut receives = Receives::default();
        receives.guards.without = without;
        receives.restart(1);
        let slots = slots(max_recv_wr, ahead).unwrap() as usize;
        Receiver {
            receives,
            ring: vec![[0; 3]; slots],
            tag: 1,
            max_recv_wr: max_recv_wr as usize,
            posted: 0,
            cq: VecDeque::new(),
            kept: VecDeque::new(),
            without,
        }
    }

    /// The ring as the sender is told of it.
    pub fn offer(&mut self) -> Ring {
        let slots = self.ring.len() as u32;
        let tag = self.receives.offer(slots).unwrap();
        Ring { addr: RING, rkey: RING_RKEY, slots, tag }
    }

    /// A record is written.
    pub fn write(&mut self, addr: u64, bytes: &[u8]) {
        let (slot, off) = ((addr - RING) / u64::from(SLOT_BYTES), (addr - RING) % u64::from(SLOT_BYTES));
        assert!(off == 0 && bytes.len() == 24);
        for (word, b) in self.ring[slot as usize].iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(b.try_into().unwrap());
        }
    }

    /// The application posts receives, if there is room.
    pub fn post(&mut self) -> bool {
        let most = self.max_recv_wr - self.cq.len();
        std::mem::replace(&mut self.posted, most) < most
    }

    /// Whether a message finds a receive.
    pub fn is_ready(&self) -> bool {
        self.posted > 0
    }

    /// A message takes a receive.
    pub fn take(&mut self, with_imm: bool, byte_len: u32, imm: u32) {
        self.posted -= 1;
        self.cq.push_back(Arrival { opcode: if with_imm { RECV_RDMA_WITH_IMM } else { RECV }, byte_len, imm });
    }

    fn poll(&mut self) -> Option<Arrival> {
        let mut a = self.cq.pop_front()?;
        let ring = &self.ring;
        if let Some(bytes) = self.receives.received(&a, |slot| ring[slot as usize]) {
            a.byte_len = bytes;
        }
        Some(a)
    }

    /// The shim polls a completion for the application.
    pub fn draw(&mut self) -> bool {
        let drawn = self.poll();
        self.kept.extend(drawn);
        drawn.is_some()
    }

    /// The application polls: its opcode is one of a SEND, or one of a WRITE_WITH_IMM (true).
    pub fn next(&mut self) -> Option<(bool, u32, u32)> {
        let a = self.kept.pop_front().or_else(|| self.poll())?;
        Some((a.opcode == RECV_RDMA_WITH_IMM, a.byte_len, a.imm))
    }

    /// The QP goes through RESET.
    pub fn reset(&mut self) {
        while self.without != Some(Guard::DrawFirst) && self.draw() {}
        self.posted = 0;
        self.tag += 1;
        self.receives.restart(self.tag);
    }

    /// Whether the application has everything.
    pub fn is_empty(&self) -> bool {
        self.cq.is_empty() && self.kept.is_empty()
    }
}
