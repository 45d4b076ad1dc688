//! A WR that the engine holds.

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
    /// The first body that was never posted.
    next: u32,
    /// Bodies to post anew.
    redo: Vec<u32>,
    /// Bodies that have arrived.
    pub done: u32,
    /// Pieces in flight on lanes.
    pub live: u32,
    /// Lost pieces that may still arrive.
    pub doubtful: u32,
    /// Some body was posted on a lane.
    pub started: bool,
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

    /// Whether a body waits to be posted.
    pub fn has_piece(&self) -> bool {
        match &self.form {
            Form::Split(cut) => !self.redo.is_empty() || self.next < cut.bodies(),
            _ => false,
        }
    }

    /// The next body to post: its number, and whether it is posted anew.
    pub fn take_piece(&mut self, cut: &Cut) -> Option<(u32, bool)> {
        if let Some(i) = self.redo.pop() {
            return Some((i, true));
        }
        (self.next < cut.bodies()).then(|| {
            self.next += 1;
            (self.next - 1, false)
        })
    }

    /// Body `i` was not posted, or it was lost for good: again.
    pub fn put_back(&mut self, i: u32) {
        self.redo.push(i);
    }

    /// The first body goes on the application's QP.
    pub fn take_head(&mut self, cut: &Cut) -> Piece {
        debug_assert!(self.next == 0 && self.redo.is_empty());
        self.next = 1;
        self.head = Head::Posted;
        cut.body(0)
    }

    /// It did not.
    pub fn give_head_back(&mut self) {
        self.next = 0;
        self.head = Head::None;
    }
}
