//! A WR that the engine holds.

use super::super::lengths::Record;
use super::super::plan::{Cut, Piece};
use super::super::wr::Wr;

/// How it reaches the application's QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is.
    #[default]
    Pass,
    /// Flushed, by a WR that any provider takes.
    StandIn,
    /// As a tail, once its bodies have arrived.
    Split(Cut),
    /// It was to be split, and goes whole after all, once no piece of it can arrive any more.
    Whole,
}

/// The first piece, if it went on the application's QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Head {
    /// It did not, or its completion has been seen.
    #[default]
    None,
    /// Posted.
    Posted,
}

/// Some units of a message, or the record of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub first: u32,
    /// At least 1.
    pub count: u32,
}

/// The record of the length: one unit more, beside the others.
pub(super) const RECORD: Run = Run { first: u32::MAX, count: 1 };

/// What the record is, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub record: Record,
    pub remote_addr: u64,
    pub rkey: u32,
}

/// A WR that was accepted, and whose last or only part is not on the application's QP yet.
#[derive(Debug, Default)]
pub(super) struct Op {
    pub wr: Wr,
    /// Its number.
    pub seq: u64,
    /// The application gets a completion for it, `sq_sig_all` included.
    pub signaled: bool,
    pub form: Form,
    pub head: Head,
    /// Bodies may start once the WRs up to this one are done.
    pub start_after: u64,
    /// Of a split WRITE_WITH_IMM.
    pub note: Option<Note>,
    /// It waits to be posted.
    note_waits: bool,
    note_again: bool,
    noted: bool,
    /// The first unit that was never posted.
    next: u32,
    /// Runs of units to post anew.
    redo: Vec<Run>,
    /// Units that have arrived.
    pub done: u32,
    /// Pieces in flight on lanes.
    pub live: u32,
    /// Lost pieces that may still arrive.
    pub doubtful: u32,
    /// Some body was posted on a lane.
    pub started: bool,
    /// Some piece was posted, on a lane or as the head.
    pub parted: bool,
}

impl Op {
    /// Ready for another WR; the buffers stay.
    pub fn recycle(&mut self) {
        self.redo.clear();
        let (wr, redo) = (std::mem::take(&mut self.wr), std::mem::take(&mut self.redo));
        *self = Op { wr, redo, ..Op::default() };
    }

    /// Whether no piece of it can arrive any more.
    pub fn is_settled(&self) -> bool {
        self.live == 0 && self.doubtful == 0
    }

    /// It has a record, which is posted before the other bodies.
    pub fn set_note(&mut self, note: Note) {
        (self.note, self.note_waits) = (Some(note), true);
    }

    /// These units have arrived.
    pub fn arrived(&mut self, run: Run) {
        if run == RECORD {
            self.noted = true;
        } else {
            self.done += run.count;
        }
    }

    /// Whether its record has arrived, if it has one.
    pub fn is_recorded(&self) -> bool {
        self.noted || self.note.is_none()
    }

    /// Whether a body waits to be posted.
    pub fn has_piece(&self) -> bool {
        match &self.form {
            Form::Split(cut) => self.note_waits || !self.redo.is_empty() || self.next < cut.units(),
            _ => false,
        }
    }

    /// Units that wait to be posted.
    pub fn waiting(&self, cut: &Cut) -> u32 {
        cut.units() - self.next + u32::from(self.note_waits) + self.redo.iter().map(|r| r.count).sum::<u32>()
    }

    /// The next units to post, no more than `most`, which is at least 1; and whether they are posted anew.
    pub fn take_run(&mut self, cut: &Cut, most: u32) -> Option<(Run, bool)> {
        if std::mem::take(&mut self.note_waits) {
            return Some((RECORD, self.note_again));
        }
        if let Some(run) = self.redo.last_mut() {
            let taken = Run { first: run.first, count: run.count.min(most) };
            *run = Run { first: run.first + taken.count, count: run.count - taken.count };
            if run.count == 0 {
                self.redo.pop();
            }
            return Some((taken, true));
        }
        let taken = Run { first: self.next, count: most.min(cut.units() - self.next) };
        self.next += taken.count;
        (taken.count > 0).then_some((taken, false))
    }

    /// These units were not posted, or they were lost for good: again.
    pub fn put_back(&mut self, run: Run) {
        if run == RECORD {
            (self.note_waits, self.note_again) = (true, true);
            return;
        }
        match self.redo.last_mut() {
            Some(next) if next.first == run.first + run.count => {
                *next = Run { first: run.first, count: run.count + next.count };
            }
            _ => self.redo.push(run),
        }
    }

    /// The first unit goes on the application's QP.
    pub fn take_head(&mut self, cut: &Cut) -> Piece {
        debug_assert!(self.next == 0 && self.redo.is_empty());
        self.next = 1;
        self.head = Head::Posted;
        cut.body(0, 1)
    }

    /// It did not.
    pub fn give_head_back(&mut self) {
        self.next = 0;
        self.head = Head::None;
    }
}
