//! Labels and handles: one word each.

use super::func::{self, Func};
use core::num::NonZeroUsize;

/// Bits of a label's place in the table.
const PLACE: u32 = 18;
/// Places of labels; the first is never used.
pub(super) const PLACES: u32 = 1 << PLACE;
/// Bits of how many times a function ran: a million a second fill them in 12 days.
const TIMES: u32 = 40;
/// Where a handle says what it is.
const KIND: u32 = 60;

/// What a WR belongs to: its place in the table, and the how-manieth run of the function it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label(u64);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Task = 1,
    Op = 2,
    Step = 3,
    Context = 4,
}

impl Label {
    /// No label.
    pub const NONE: Label = Label(0);

    pub(super) fn new(place: u32, times: u64) -> Label {
        Label(u64::from(place % PLACES) | keep(times, TIMES) << PLACE)
    }

    /// From a word that may be anything.
    pub fn from_word(word: u64) -> Label {
        Label(keep(word, PLACE + TIMES))
    }

    /// As a word; 0 = none.
    pub fn word(self) -> u64 {
        self.0
    }

    /// Whether there is none.
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Place in the table.
    #[inline]
    pub fn place(self) -> u32 {
        self.0 as u32 % PLACES
    }

    /// How many times the function ran; 0 = not known.
    pub fn times(self) -> u64 {
        self.0 >> PLACE
    }

    /// The handle of a ProxyOp with this label.
    pub fn op(self) -> usize {
        handle(Kind::Op, self.0)
    }

    /// The handle of a ProxyStep of such a ProxyOp.
    pub fn step(self) -> usize {
        handle(Kind::Step, self.0)
    }

    /// The label of a ProxyOp's handle.
    pub fn of_op(handle: usize) -> Option<Label> {
        open(Kind::Op, handle).map(Label::from_word)
    }

    /// The label of a ProxyStep's handle.
    #[inline]
    pub fn of_step(handle: usize) -> Option<Label> {
        open(Kind::Step, handle).map(Label::from_word)
    }
}

/// A collective or a point-to-point call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Function.
    pub func: Option<Func>,
    /// How many times it ran, this time included; 0 = not known.
    pub times: u64,
}

impl Task {
    /// The function of this name, for the `times`th time.
    pub fn new(name: &[u8], times: u64) -> Task {
        Task { func: func::named(name), times: keep(times, TIMES) }
    }

    /// Its handle.
    pub fn handle(self) -> usize {
        handle(Kind::Task, self.func.map_or(0, |f| u64::from(f) + 1) | keep(self.times, TIMES) << PLACE)
    }

    /// The task of a handle.
    pub fn of(handle: usize) -> Option<Task> {
        let word = open(Kind::Task, handle)?;
        Some(Task { func: (word as u8).checked_sub(1), times: keep(word >> PLACE, TIMES) })
    }
}

/// The context of a communicator, by its place.
pub(super) fn context(place: u32) -> usize {
    handle(Kind::Context, u64::from(place))
}

/// The communicator's place.
pub(super) fn of_context(handle: usize) -> Option<u32> {
    open(Kind::Context, handle).and_then(|word| u32::try_from(word).ok())
}

fn keep(word: u64, bits: u32) -> u64 {
    word & ((1 << bits) - 1)
}

fn handle(kind: Kind, word: u64) -> usize {
    ((kind as u64) << KIND | keep(word, KIND)) as usize
}

fn open(kind: Kind, handle: usize) -> Option<u64> {
    let word = NonZeroUsize::new(handle)?.get() as u64;
    (word >> KIND == kind as u64).then(|| keep(word, KIND))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn handles_say_what_they_were_made_of(place in 1..PLACES, times in 0u64..1 << TIMES, func in 0u8..11) {
            let label = Label::new(place, times);
            prop_assert_eq!((label.place(), label.times()), (place, times));
            prop_assert_eq!(Label::of_op(label.op()), Some(label));
            prop_assert_eq!(Label::of_step(label.step()), Some(label));
            prop_assert_eq!((Label::of_step(label.op()), Task::of(label.op())), (None, None));
            let task = Task { func: Some(func), times };
            prop_assert_eq!(Task::of(task.handle()), Some(task));
            prop_assert_eq!(of_context(context(place)), Some(place));
        }

        #[test]
        fn anything_may_be_a_handle(word: usize) {
            for label in [Label::of_op(word), Label::of_step(word)].into_iter().flatten() {
                prop_assert!(label.place() < PLACES);
            }
            let _ = (Task::of(word), of_context(word));
        }
    }

    #[test]
    fn a_task_may_be_unknown() {
        let task = Task::new(b"Unheard", 7);
        assert_eq!(Task::of(task.handle()), Some(Task { func: None, times: 7 }));
        assert_eq!((Task::of(0), Label::of_op(0)), (None, None));
    }
}
