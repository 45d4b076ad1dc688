//! Records of one kind: handed out, retired oldest first, and more of them made when they run out.

use crate::shm::layout::{Kind, Shared};
use crate::shm::segment::Segment;
use std::collections::VecDeque;
use std::io;

/// No region grows by more records than this at a time.
const LARGEST_STEP: usize = 16384;

/// Records of one kind.
pub struct Pool<T: Shared> {
    kind: Kind,
    records: Vec<&'static T>,
    free: Vec<u32>,
    retired: VecDeque<u32>,
}

impl<T: Shared> Pool<T> {
    /// A pool of `first` records.
    ///
    /// # Errors
    /// As [`Segment::add_region`] says.
    pub fn new(segment: &Segment, kind: Kind, first: usize) -> io::Result<Pool<T>> {
        let mut p = Pool { kind, records: Vec::new(), free: Vec::new(), retired: VecDeque::new() };
        p.grow(segment, first)?;
        Ok(p)
    }

    fn grow(&mut self, segment: &Segment, by: usize) -> io::Result<()> {
        let new = segment.add_region::<T>(self.kind, by)?;
        let first = self.records.len() as u32;
        self.records.extend(new.iter());
        // Lowest index on top.
        self.free.extend((first..first + by as u32).rev());
        Ok(())
    }

    /// An unused record: free, else new. `None` if the segment cannot grow.
    pub fn take(&mut self, segment: &Segment) -> Option<u32> {
        if self.free.is_empty() {
            self.grow(segment, self.records.len().clamp(1, LARGEST_STEP)).ok()?;
        }
        self.free.pop()
    }

    /// As [`Pool::take`], but once `keep` records are retired the oldest of them is used first, and any of them before
    /// nothing.
    pub fn take_or_reuse(&mut self, segment: &Segment, keep: usize) -> Option<u32> {
        if self.retired.len() >= keep {
            return self.retired.pop_front();
        }
        self.take(segment).or_else(|| self.retired.pop_front())
    }

    /// Makes sure that record `i` exists, for a pool parallel to another.
    pub fn reach(&mut self, segment: &Segment, i: u32) -> bool {
        while self.records.len() <= i as usize {
            if self.grow(segment, self.records.len().clamp(1, LARGEST_STEP)).is_err() {
                return false;
            }
        }
        true
    }

    /// The record at `i`, which this pool handed out.
    pub fn get(&self, i: u32) -> &'static T {
        self.records[i as usize]
    }

    /// The record at `i`, if there is one.
    pub fn find(&self, i: u32) -> Option<&'static T> {
        self.records.get(i as usize).copied()
    }

    /// The record's object is gone, its contents stay.
    pub fn retire(&mut self, i: u32) {
        self.retired.push_back(i);
    }

    /// The record is empty again.
    pub fn release(&mut self, i: u32) {
        self.free.push(i);
    }

    /// Records retired and not given away.
    pub fn retired_count(&self) -> usize {
        self.retired.len()
    }

    /// Takes the record that was retired first.
    pub fn oldest_retired(&mut self) -> Option<u32> {
        self.retired.pop_front()
    }
}
