//! The label of each WR that a QP has in flight, where NCCL says what they are for ([`crate::attribution`]).
//!
//! A ring beside the queue's in-flight ring, with the same numbers. Written by the posting side under the queue's lock, read by
//! the polling side under the CQ's.

use crate::attribution::{self, Label, TABLES};
use crate::shm::layout::{LabelRecord, label_flags};
use crate::shm::segment::{bump, change_identity, put};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Labels of a queue.
pub struct Labels {
    ring: Box<[AtomicU64]>,
    record: Option<&'static LabelRecord>,
    /// WRs may be posted long after the application's call, by another thread.
    deferred: bool,
    /// The label of the last WR noted.
    last: AtomicU64,
    /// The last label that was one.
    known: AtomicU64,
    /// What the record says, by its place in the table of labels.
    told: AtomicU32,
}

impl Labels {
    /// For a ring of so many entries, a power of two. `None`: no memory.
    pub fn new(capacity: usize, record: Option<&'static LabelRecord>, deferred: bool) -> Option<Labels> {
        let mut ring = Vec::new();
        ring.try_reserve_exact(capacity).ok()?;
        ring.resize_with(capacity, AtomicU64::default);
        Some(Labels {
            ring: ring.into_boxed_slice(),
            record,
            deferred,
            last: AtomicU64::new(0),
            known: AtomicU64::new(0),
            told: AtomicU32::new(0),
        })
    }

    fn place(&self, number: u64) -> Option<&AtomicU64> {
        self.ring.get(number as usize & (self.ring.len() - 1))
    }

    /// The calling thread posts the WRs of these numbers.
    pub fn note(&self, numbers: Range<u64>) {
        let mut label = attribution::current();
        if label.is_none() && self.deferred {
            label = Label::from_word(self.known.load(Relaxed));
        }
        for number in numbers {
            self.place(number).inspect(|p| p.store(label.word(), Relaxed));
        }
        self.last.store(label.word(), Relaxed);
    }

    /// The provider took so many WRs of those noted last.
    pub fn accepted(&self, wrs: u64) {
        let label = Label::from_word(self.last.load(Relaxed));
        if label.is_none() || wrs == 0 {
            return;
        }
        let before = self.known.load(Relaxed);
        let Some(r) = self.record else { return self.known.store(label.word(), Relaxed) };
        bump(&r.wr_labelled, wrs);
        if before != label.word() {
            self.known.store(label.word(), Relaxed);
            if self.told.load(Relaxed) == label.place() {
                r.func_times.store(label.times(), Relaxed);
            } else {
                self.told.store(label.place(), Relaxed);
                tell(r, label);
            }
        }
    }

    /// What the record says is forgotten.
    pub fn begin_anew(&self) {
        self.told.store(0, Relaxed);
        self.known.store(0, Relaxed);
    }

    /// The label of the WR of this number.
    pub fn of(&self, number: u64) -> Label {
        self.place(number).map_or(Label::NONE, |p| Label::from_word(p.load(Relaxed)))
    }
}

/// Another label than before.
fn tell(r: &LabelRecord, label: Label) {
    use label_flags::{FUNC, GROUP, LABELLED, PEER, SENDS};
    let Some(a) = TABLES.find(label) else { return };
    let flag = |bit: u32, is: bool| if is { bit } else { 0 };
    let known = LABELLED
        | flag(SENDS, a.sends)
        | flag(GROUP, a.group.is_some())
        | flag(PEER, a.peer_rank.is_some())
        | flag(FUNC, a.func.is_some());
    let (group, rank, peer) = (a.group.unwrap_or(0), a.rank.unwrap_or(0), a.peer_rank.unwrap_or(0));
    let before = r.known.load(Relaxed);
    let is_same = before & !FUNC == known & !FUNC
        && r.group.load(Relaxed) == group
        && [(&r.rank, rank), (&r.peer_rank, peer), (&r.channel, a.channel)]
            .iter()
            .all(|(w, is)| w.load(Relaxed) == *is);
    bump(&r.changes, u64::from(before & LABELLED != 0 && !is_same));
    change_identity(&r.seq, || {
        put(&r.known, known);
        r.group.store(group, Relaxed);
        put(&r.rank, rank);
        put(&r.peer_rank, peer);
        put(&r.channel, a.channel);
        put(&r.func, a.func.map_or(0, u32::from));
        r.func_times.store(label.times(), Relaxed);
    });
}

/// The record is of a QP that did nothing yet.
pub(super) fn clear(r: &LabelRecord) {
    change_identity(&r.seq, || {
        [&r.known, &r.rank, &r.peer_rank, &r.channel, &r.func].iter().for_each(|w| put(w, 0));
        let words = [&r.group, &r.func_times, &r.wr_labelled, &r.changes];
        words.into_iter().chain(&r.local_gid).for_each(|w| w.store(0, Relaxed));
    });
}

/// Makes a record say what another one does.
pub(super) fn copy(from: &LabelRecord, to: &LabelRecord) {
    change_identity(&to.seq, || {
        for (f, t) in [
            (&from.known, &to.known),
            (&from.rank, &to.rank),
            (&from.peer_rank, &to.peer_rank),
            (&from.channel, &to.channel),
            (&from.func, &to.func),
        ] {
            put(t, f.load(Relaxed));
        }
        for (f, t) in [
            (&from.group, &to.group),
            (&from.func_times, &to.func_times),
            (&from.wr_labelled, &to.wr_labelled),
            (&from.changes, &to.changes),
            (&from.local_gid[0], &to.local_gid[0]),
            (&from.local_gid[1], &to.local_gid[1]),
        ] {
            t.store(f.load(Relaxed), Relaxed);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::{Key, Task};

    fn label(comm: u32, peer: u32, func: &[u8], times: u64) -> Label {
        let key = Key { comm: Some(comm), peer: Some(peer), channel: 3, sends: true, func: None };
        TABLES.label(key, Task::new(func, times)).unwrap()
    }

    #[test]
    fn each_wr_keeps_its_label_and_the_record_the_last() {
        // SAFETY: all-zero is a valid record.
        let record: &'static LabelRecord = Box::leak(Box::new(unsafe { core::mem::zeroed() }));
        let comm = TABLES.live(TABLES.init(0x1abe1, 2).unwrap()).unwrap();
        let (a, b) = (label(comm, 5, b"AllGather", 8), label(comm, 5, b"AllReduce", 1));
        let l = Labels::new(8, Some(record), false).unwrap();
        attribution::set(a);
        l.note(6..9);
        l.accepted(3);
        attribution::set(b);
        l.note(9..11);
        l.accepted(1);
        attribution::set(Label::NONE);
        l.note(11..12);
        l.accepted(1);
        assert_eq!([7, 8, 9, 11].map(|n| l.of(n)), [a, a, b, Label::NONE]);
        let get = |w: &AtomicU32| w.load(Relaxed);
        assert_eq!((record.group.load(Relaxed), get(&record.rank), get(&record.peer_rank)), (0x1abe1, 2, 5));
        assert_eq!((get(&record.channel), get(&record.func), record.func_times.load(Relaxed)), (3, 4, 1));
        assert_eq!((record.wr_labelled.load(Relaxed), record.changes.load(Relaxed)), (4, 0));
        attribution::set(label(comm, 6, b"AllReduce", 2));
        l.note(12..13);
        l.accepted(1);
        attribution::set(Label::NONE);
        assert_eq!((get(&record.peer_rank), record.changes.load(Relaxed)), (6, 1));
        clear(record);
        assert_eq!((get(&record.known), record.wr_labelled.load(Relaxed)), (0, 0));
    }

    #[test]
    fn what_is_posted_later_has_the_last_label() {
        let l = Labels::new(8, None, true).unwrap();
        let a = label(0, 5, b"AllGather", 8);
        attribution::set(a);
        l.note(0..1);
        l.accepted(1);
        attribution::set(Label::NONE);
        l.note(1..2);
        assert_eq!(l.of(1), a);
    }
}
