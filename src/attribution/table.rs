//! Communicators and labels of a process: two tables that only grow, without locks.

use super::func::Func;
use super::label::{self, Label, PLACES, Task};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Communicators that are known at most, those that are gone included.
const COMMS: usize = 1 << 14;
/// Places that are tried for a label.
const TRIES: u32 = 64;
/// Largest peer that a key holds.
const LARGEST_PEER: u32 = (1 << 24) - 2;

const LIVE: u32 = 1;
const GONE: u32 = 2;

/// A rank of a communicator in this process.
struct Comm {
    /// 0 = not there yet. SYNC POINT: Release store after the rest.
    life: AtomicU32,
    rank: AtomicU32,
    id: AtomicU64,
    /// Point-to-point calls so far, sends and others: NCCL does not number them.
    calls: [AtomicU64; 2],
}

impl Comm {
    #[expect(clippy::declare_interior_mutable_const, reason = "the initial value of an array's elements")]
    const NEW: Comm = Comm {
        life: AtomicU32::new(0),
        rank: AtomicU32::new(0),
        id: AtomicU64::new(0),
        calls: [const { AtomicU64::new(0) }; 2],
    };
}

/// The tables.
pub struct Tables {
    comms: [Comm; COMMS],
    /// Communicators that have a place.
    known: AtomicU32,
    /// Keys by place, 0 = free; what has a place keeps it.
    keys: [AtomicU64; PLACES as usize],
}

/// What WRs with one label have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Place of the communicator, if it is known.
    pub comm: Option<u32>,
    /// Rank of the peer within it.
    pub peer: Option<u32>,
    /// Channel.
    pub channel: u8,
    /// This side sends the data; else it posts what the sender waits for.
    pub sends: bool,
    /// Function, if it is known.
    pub func: Option<Func>,
}

/// What a label stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The communicator, as all its ranks know it.
    pub group: Option<u64>,
    /// Own rank within it.
    pub rank: Option<u32>,
    /// The peer's.
    pub peer_rank: Option<u32>,
    /// Channel.
    pub channel: u32,
    /// This side sends the data; else it posts what the sender waits for.
    pub sends: bool,
    /// Function.
    pub func: Option<Func>,
    /// How many times it ran.
    pub times: Option<u64>,
}

impl Key {
    fn word(self) -> u64 {
        let peer = self.peer.filter(|p| *p <= LARGEST_PEER).map_or(0, |p| u64::from(p) + 1);
        1 << 63
            | u64::from(self.sends) << 56
            | self.func.map_or(0, |f| u64::from(f) + 1) << 48
            | u64::from(self.channel) << 40
            | peer << 16
            | self.comm.filter(|c| (*c as usize) < COMMS).map_or(0, |c| u64::from(c) + 1)
    }

    fn of(word: u64) -> Key {
        Key {
            comm: u32::from(word as u16).checked_sub(1),
            peer: ((word >> 16) as u32 & 0xff_ffff).checked_sub(1),
            channel: (word >> 40) as u8,
            sends: word >> 56 & 1 == 1,
            func: ((word >> 48) as u8).checked_sub(1),
        }
    }
}

impl Tables {
    /// Empty ones.
    #[expect(clippy::new_without_default, reason = "large, and made once, in a static")]
    pub const fn new() -> Tables {
        Tables {
            comms: [Comm::NEW; COMMS],
            known: AtomicU32::new(0),
            keys: [const { AtomicU64::new(0) }; PLACES as usize],
        }
    }

    fn comm(&self, place: u32) -> Option<&Comm> {
        self.comms.get(place as usize).filter(|c| c.life.load(Acquire) != 0)
    }

    /// A communicator was made, in which this process is `rank`. Returns its context; `None`: there have been too many.
    pub fn init(&self, id: u64, rank: u32) -> Option<usize> {
        let known = self.known.load(Relaxed).min(COMMS as u32);
        // One that was made again with the same id is the same.
        let again = (0..known).find(|place| {
            self.comm(*place).is_some_and(|c| {
                (c.id.load(Relaxed), c.rank.load(Relaxed)) == (id, rank)
                    && c.life.compare_exchange(GONE, LIVE, Relaxed, Relaxed).is_ok()
            })
        });
        if let Some(place) = again {
            return Some(label::context(place));
        }
        let place = self.known.fetch_update(Relaxed, Relaxed, |n| (n < COMMS as u32).then_some(n + 1)).ok()?;
        let comm = &self.comms[place as usize];
        comm.id.store(id, Relaxed);
        comm.rank.store(rank, Relaxed);
        comm.life.store(LIVE, Release);
        Some(label::context(place))
    }

    /// The communicator of a context that may be anything, if it is there.
    pub fn live(&self, context: usize) -> Option<u32> {
        let place = label::of_context(context)?;
        self.comm(place).filter(|c| c.life.load(Relaxed) == LIVE).map(|_| place)
    }

    /// The communicator is gone; what was posted for it keeps its name.
    pub fn finalize(&self, context: usize) {
        if let Some(comm) = self.live(context).and_then(|place| self.comm(place)) {
            comm.life.store(GONE, Relaxed);
        }
    }

    /// One more point-to-point call on a communicator: how many there were, by direction.
    pub fn call(&self, comm: u32, send: bool) -> u64 {
        self.comm(comm).map_or(0, |c| c.calls[usize::from(send)].fetch_add(1, Relaxed) + 1)
    }

    /// The label of `key` in this run of its function. `None`: there is no place left.
    pub fn label(&self, key: Key, task: Task) -> Option<Label> {
        let word = Key { func: task.func, ..key }.word();
        let hash = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let place = (0..TRIES).map(|i| 1 + (hash as u32).wrapping_add(i) % (PLACES - 1)).find(|place| {
            let slot = &self.keys[*place as usize];
            match slot.load(Relaxed) {
                0 => slot.compare_exchange(0, word, Relaxed, Relaxed).is_ok() || slot.load(Relaxed) == word,
                there => there == word,
            }
        })?;
        Some(Label::new(place, task.times))
    }

    /// Whether what has this label posts for the receiving side.
    pub fn receives(&self, label: Label) -> bool {
        self.keys.get(label.place() as usize).is_some_and(|k| !Key::of(k.load(Relaxed)).sends)
    }

    /// What a label stands for; `None` of none.
    pub fn find(&self, label: Label) -> Option<Attribution> {
        let word = self.keys.get(label.place() as usize)?.load(Relaxed);
        if label.is_none() || word == 0 {
            return None;
        }
        let key = Key::of(word);
        let comm = key.comm.and_then(|place| self.comm(place));
        Some(Attribution {
            group: comm.map(|c| c.id.load(Relaxed)),
            rank: comm.map(|c| c.rank.load(Relaxed)),
            peer_rank: key.peer,
            channel: u32::from(key.channel),
            sends: key.sends,
            func: key.func,
            times: Some(label.times()).filter(|n| *n > 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tables() -> &'static Tables {
        // SAFETY: all-zero is what `new` makes; too large to pass through a stack.
        Box::leak(unsafe { Box::<Tables>::new_zeroed().assume_init() })
    }

    proptest! {
        #[test]
        fn keys_are_read_back(comm in proptest::option::of(0..COMMS as u32), peer in proptest::option::of(0..=LARGEST_PEER),
                              channel: u8, sends: bool, func in proptest::option::of(0u8..11)) {
            let key = Key { comm, peer, channel, sends, func };
            prop_assert_eq!(Key::of(key.word()), key);
            prop_assert_ne!(key.word(), 0);
        }
    }

    #[test]
    fn a_label_says_whose_it_is() {
        let t = tables();
        let (a, b) = (t.init(0xabcd, 1).unwrap(), t.init(0xabcd, 3).unwrap());
        let label = |context, peer, times| {
            let key = Key { comm: t.live(context), peer: Some(peer), channel: 2, sends: true, func: None };
            t.label(key, Task::new(b"AllReduce", times)).unwrap()
        };
        let (first, second) = (label(a, 9, 5), label(b, 9, 6));
        assert_eq!((label(a, 9, 7).place(), label(a, 8, 5).place() == first.place()), (first.place(), false));
        let found = t.find(second).unwrap();
        assert_eq!((found.group, found.rank, found.peer_rank), (Some(0xabcd), Some(3), Some(9)));
        assert_eq!((found.channel, found.sends, found.func, found.times), (2, true, Some(4), Some(6)));
        t.finalize(a);
        t.finalize(a);
        assert_eq!((t.live(a), t.live(b).is_some(), t.live(0), t.live(usize::MAX)), (None, true, None, None));
        assert_eq!(t.find(first).unwrap().rank, Some(1), "what was posted keeps its name");
        assert_eq!((t.find(Label::NONE), t.find(Label::new(77, 1))), (None, None));
        // The same communicator anew.
        assert_eq!(t.init(0xabcd, 1), Some(a));
        assert_ne!(t.init(0xabcd, 1), Some(a), "two of the same at once are two");
    }

    #[test]
    fn calls_are_counted_by_direction() {
        let t = tables();
        let comm = t.live(t.init(1, 0).unwrap()).unwrap();
        assert_eq!([true, true, false, true].map(|send| t.call(comm, send)), [1, 2, 1, 3]);
        assert_eq!(t.call(99, true), 0);
    }

    #[test]
    fn full_tables_know_what_they_knew() {
        let t = tables();
        let first = t.init(1, 0).unwrap();
        assert_eq!((0..2 * COMMS as u64).filter_map(|i| t.init(2 + i, 0)).count(), COMMS - 1);
        let key = |i: u32| Key { comm: t.live(first), peer: Some(i), ..Key::default() };
        let known = t.label(key(0), Task::default()).unwrap();
        let given = (1..2 * PLACES).filter_map(|i| t.label(key(i), Task::default())).count();
        assert!(given < PLACES as usize && given > PLACES as usize / 2, "{given}");
        assert_eq!(t.label(key(0), Task::default()), Some(known));
        assert_eq!(t.find(known).unwrap().peer_rank, Some(0));
    }
}
