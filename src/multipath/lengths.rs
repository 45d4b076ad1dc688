//! How long a split WRITE_WITH_IMM was: the receiver's completion says the tail's length, a record says the message's.
//!
//! ```text
//! sender    its shim counts the messages that consume a receive; a split WRITE_WITH_IMM has one more body on a lane: a
//!           record, written into slot seq % slots of a ring at the receiver. As all bodies, it is there before the tail.
//! receiver  its shim counts receive completions of the QP; one whose slot holds exactly its record gets the length there
//! ```
//!
//! Both count from 1 since their QP left RESET. A slot is not written again before its completion was polled: the ring is
//! longer than what can be unpolled at the receiver and what the sender may run ahead, together ([`slots`]).

use super::guard::{Guard, Guards};
use super::wr::WRITE_WITH_IMM;
use rdma_sys::{ibv_wc_opcode, ibv_wr_opcode};

/// A record, bytes.
pub const RECORD_BYTES: usize = 24;

/// From slot to slot, bytes.
pub const SLOT_BYTES: u32 = 32;

/// A QP that would need a longer ring gets none.
pub const MOST_SLOTS: u32 = 4096;

/// Whether a send of this opcode takes a receive of the peer's.
#[inline(always)]
pub fn consumes(opcode: u32) -> bool {
    use ibv_wr_opcode::{IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV};
    const ALL: u32 = 1 << WRITE_WITH_IMM | 1 << IBV_WR_SEND | 1 << IBV_WR_SEND_WITH_IMM | 1 << IBV_WR_SEND_WITH_INV;
    opcode < u32::BITS && ALL >> opcode & 1 == 1
}

/// Slots of a ring: a power of two. `unpolled`: receive completions of the QP that may wait to be polled; `ahead`: as
/// [`Settings::ahead`](super::plan::Settings::ahead). `None`: too many.
pub fn slots(unpolled: u32, ahead: u32) -> Option<u32> {
    let least = unpolled.checked_add(ahead)?.checked_add(1)?;
    (least <= MOST_SLOTS).then(|| least.next_power_of_two())
}

/// What is written for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which of the messages that consume a receive, from 1 since RESET.
    pub seq: u64,
    /// The receiver's name for this connection.
    pub tag: u32,
    /// Message, bytes.
    pub length: u32,
    /// Its tail, bytes.
    pub tail: u32,
    /// Immediate data as it travels.
    pub imm: u32,
}

impl Record {
    /// As it is written: little-endian.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(self.to_words()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn to_words(self) -> [u64; 3] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [self.seq, pair(self.tag, self.length), pair(self.tail, u32::from_be(self.imm))]
    }

    /// Of the three words of a slot as they lie in memory; any words are a record.
    pub fn from_memory(words: [u64; 3]) -> Record {
        let [seq, second, third] = words.map(u64::from_le);
        Record {
            seq,
            tag: second as u32,
            length: (second >> 32) as u32,
            tail: third as u32,
            imm: ((third >> 32) as u32).to_be(),
        }
    }
}

/// A ring as the sender knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// First slot, at the receiver.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Slots, a power of two.
    pub slots: u32,
    /// As in [`Record::tag`].
    pub tag: u32,
}

impl Ring {
    /// Where the record of message `seq` goes.
    pub fn place(&self, seq: u64) -> u64 {
        self.addr.wrapping_add(u64::from(slot(seq, self.slots)) * u64::from(SLOT_BYTES))
    }
}

fn slot(seq: u64, slots: u32) -> u32 {
    (seq % u64::from(slots.max(1))) as u32
}

/// A completion of a receive, without error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// `enum ibv_wc_opcode`.
    pub opcode: u32,
    /// `byte_len`.
    pub byte_len: u32,
    /// Immediate data as it travels; if there is none, anything.
    pub imm: u32,
}

/// The receives of one QP.
#[derive(Debug, Default)]
pub struct Receives {
    /// Those completed since RESET.
    count: u64,
    tag: u32,
    /// Of the ring; 0: there is none.
    slots: u32,
    /// They cannot be counted.
    lost: bool,
    pub(super) guards: Guards,
}

impl Receives {
    #[inline(always)]
    fn keeps(&self, guard: Guard) -> bool {
        self.guards.keep(guard)
    }

    /// The QP is in RESET, and every completion from before was told. `tag`: no connection had it before.
    pub fn restart(&mut self, tag: u32) {
        if self.keeps(Guard::Restart) {
            self.count = 0;
        }
        (self.tag, self.lost) = (tag, false);
    }

    /// Some were not told: they cannot be counted before the next RESET.
    pub fn lose_count(&mut self) {
        self.lost = true;
    }

    /// There is a ring of so many slots from now on; its tag. `None`: nothing would come of it.
    pub fn offer(&mut self, slots: u32) -> Option<u32> {
        self.slots = slots;
        (!self.lost).then_some(self.tag)
    }

    /// A receive completed: each of the QP, in their order. What `byte_len` must say instead. `read`: gives the words of
    /// a slot.
    #[inline(always)]
    pub fn received(&mut self, a: &Arrival, read: impl FnOnce(u32) -> [u64; 3]) -> Option<u32> {
        self.count += 1;
        if a.opcode == ibv_wc_opcode::IBV_WC_RECV {
            return None;
        }
        if a.opcode != ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM {
            // Of tag matching, which has other completions, too.
            self.lost = true;
        }
        if self.lost || self.slots == 0 {
            return None;
        }
        let record = Record::from_memory(read(slot(self.count, self.slots)));
        let is_its = record.seq == self.count
            && record.tag == self.tag
            && record.imm == a.imm
            && record.tail == a.byte_len
            && record.length > a.byte_len;
        (is_its || !self.keeps(Guard::Match)).then_some(record.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RECV: u32 = ibv_wc_opcode::IBV_WC_RECV;
    const WITH_IMM: u32 = ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;

    fn words(bytes: [u8; RECORD_BYTES]) -> [u64; 3] {
        core::array::from_fn(|i| u64::from_ne_bytes(bytes[8 * i..8 * i + 8].try_into().unwrap()))
    }

    fn record() -> impl Strategy<Value = Record> {
        (any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>())
            .prop_map(|(seq, tag, length, tail, imm)| Record { seq, tag, length, tail, imm })
    }

    /// Receives of which `count` completed, with a ring.
    fn after(count: u64, tag: u32, slots: u32) -> Receives {
        let mut r = Receives::default();
        r.restart(tag);
        assert_eq!(r.offer(slots), Some(tag));
        r.count = count;
        r
    }

    #[test]
    fn sends_and_writes_with_immediate_consume_receives() {
        let all: Vec<u32> = (0..100).filter(|o| consumes(*o)).collect();
        assert_eq!(all, [1, 2, 3, 9]);
        assert!(!consumes(u32::MAX));
    }

    #[test]
    fn the_layout_is_little_endian_and_the_immediate_as_it_travels() {
        let imm = u32::from_ne_bytes([1, 2, 3, 4]);
        let r = Record { seq: 7, tag: 0x0a0b_0c0d, length: 0x100, tail: 5, imm };
        let want = [7, 0, 0, 0, 0, 0, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a, 0, 1, 0, 0, 5, 0, 0, 0, 4, 3, 2, 1];
        assert_eq!(r.to_bytes(), want);
    }

    #[test]
    fn slots_are_a_power_of_two_and_enough() {
        assert_eq!((slots(0, 0), slots(256, 16), slots(255, 0)), (Some(1), Some(512), Some(256)));
        assert_eq!((slots(4079, 16), slots(4080, 16)), (Some(4096), None));
        assert_eq!((slots(u32::MAX, 16), slots(16, u32::MAX)), (None, None));
    }

    #[test]
    fn what_cannot_be_counted_is_left_alone() {
        let r = Record { seq: 3, tag: 9, length: 100, tail: 4, imm: 1 };
        let a = Arrival { opcode: WITH_IMM, byte_len: 4, imm: 1 };
        let read = |_| words(r.to_bytes());
        assert_eq!(after(2, 9, 8).received(&a, read), Some(100));
        let mut lost = after(1, 9, 8);
        assert_eq!(lost.received(&Arrival { opcode: RECV + 3, ..a }, read), None, "of tag matching");
        assert_eq!((lost.received(&a, read), lost.offer(8)), (None, None));
        lost.restart(10);
        assert_eq!((lost.count, lost.offer(8)), (0, Some(10)));
        let mut none = Receives::default();
        assert_eq!(none.received(&a, |_| panic!("there is no ring")), None);
        let mut untold = after(2, 9, 8);
        untold.lose_count();
        assert_eq!(untold.received(&a, read), None);
    }

    proptest! {
        #[test]
        fn records_come_back(r in record()) {
            prop_assert_eq!(Record::from_memory(words(r.to_bytes())), r);
        }

        #[test]
        fn records_lie_apart_in_the_ring(first in any::<u32>(), log in 0u32..12, addr in any::<u32>()) {
            let ring = Ring { addr: u64::from(addr), rkey: 0, slots: 1 << log, tag: 0 };
            let mut all: Vec<u64> = (0..u64::from(ring.slots)).map(|i| ring.place(u64::from(first) + i)).collect();
            all.sort_unstable();
            let want: Vec<u64> = (0..u64::from(ring.slots)).map(|i| ring.addr + 32 * i).collect();
            prop_assert_eq!(all, want);
        }

        #[test]
        fn only_the_very_record_counts(r in record(), of in 0usize..6, by in 1u32..) {
            let (tail, length) = (r.tail % 1000, 1000 + r.length / 2);
            let r = Record { tail, length, seq: r.seq.max(1), ..r };
            let a = Arrival { opcode: WITH_IMM, byte_len: r.tail, imm: r.imm };
            let read = |_| words(r.to_bytes());
            prop_assert_eq!(after(r.seq - 1, r.tag, 64).received(&a, read), Some(r.length));
            // The same but for one thing.
            let (mut count, mut tag, mut a) = (r.seq - 1, r.tag, a);
            match of {
                0 => count = (count.wrapping_add(u64::from(by))).min(u64::MAX - 1),
                1 => tag = tag.wrapping_add(by),
                2 => a.imm = a.imm.wrapping_add(by),
                3 => a.byte_len = a.byte_len.wrapping_add(by),
                4 => a.opcode = RECV,
                _ => a.byte_len = r.length,
            }
            prop_assume!(count != r.seq - 1 || of != 0);
            prop_assert_eq!(after(count, tag, 64).received(&a, read), None);
        }
    }
}
