//! From the thread that polls a CQ to the log's: a queue per writer that never makes it wait.

use crate::telemetry::event::Event;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use ringbuf::traits::{Consumer, Observer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};
use std::sync::{Arc, Mutex, PoisonError};

/// Events that a queue holds: those of 30 ms at a million a second.
pub const EVENTS: usize = 1 << 15;
/// Events that are taken from one queue at a time.
const PART: usize = EVENTS / 4;

/// The writer's end. One thread at a time.
pub struct Feed {
    /// `None`: there is no memory for it, and all is dropped.
    end: Option<UnsafeCell<HeapProd<Event>>>,
    queues: Arc<Queues>,
}

// SAFETY: the end is only used by `put`, whose callers take turns.
unsafe impl Sync for Feed {}
// SAFETY: it may be moved as its parts may.
unsafe impl Send for Feed {}

/// The reader's ends of all queues.
#[derive(Default)]
pub struct Queues {
    ends: Mutex<Vec<HeapCons<Event>>>,
    dropped: AtomicU64,
    closed: AtomicBool,
}

impl Queues {
    /// A new queue's writer's end.
    pub fn feed(self: &Arc<Self>) -> Feed {
        let queue = if self.closed.load(Relaxed) { None } else { HeapRb::try_new(EVENTS).ok() };
        let end = queue.map(|q| {
            let (writer, reader) = q.split();
            self.ends.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
            UnsafeCell::new(writer)
        });
        Feed { end, queues: self.clone() }
    }

    /// Nobody will take anything: what comes is dropped.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let left: usize = ends.iter().map(|e| e.occupied_len()).sum();
        self.dropped.fetch_add(left as u64, Relaxed);
        ends.clear();
    }

    /// Adds what is in the queues to `to`, [`PART`] of each at most, in the order of end times; without memory, less. Queues
    /// are given up once their writer is gone and they are empty. Whether there is more.
    pub fn take(&self, to: &mut Vec<Event>) -> bool {
        let mut more = false;
        let start = to.len();
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.retain_mut(|end| {
            let over = !end.write_is_held();
            let n = end.occupied_len().min(PART);
            if to.try_reserve(n).is_ok() {
                to.extend(end.pop_iter().take(n));
            }
            more |= !end.is_empty();
            !over || !end.is_empty()
        });
        // A CQ that is just created wants the lock.
        drop(ends);
        to[start..].sort_by_key(|e| e.end_ns);
        more
    }

    /// So many more events were lost.
    pub fn drop_more(&self, events: u64) {
        self.dropped.fetch_add(events, Relaxed);
    }

    /// Events that found their queue full, or were lost otherwise.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

impl Feed {
    /// Adds an event, or counts it as dropped.
    ///
    /// # Safety
    /// No other thread calls it at the same time.
    #[inline]
    pub unsafe fn put(&self, e: Event) {
        // SAFETY: the caller's promise.
        let taken = self.end.as_ref().is_some_and(|end| unsafe { (*end.get()).try_push(e).is_ok() });
        if !taken {
            self.queues.dropped.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::Label;

    fn event(end_ns: u64) -> Event {
        Event {
            end_ns,
            bytes: 1,
            wr_outstanding: 0,
            bytes_outstanding: 0,
            latency_ns: 0,
            qp: 0,
            place: 0,
            label: Label::NONE,
        }
    }

    #[test]
    fn events_of_several_queues_come_in_order() {
        let q = Arc::new(Queues::default());
        let (a, b) = (q.feed(), q.feed());
        for i in 0..10 {
            // SAFETY: one thread.
            unsafe {
                a.put(event(2 * i));
                b.put(event(2 * i + 1));
            }
        }
        let mut out = Vec::new();
        q.take(&mut out);
        assert_eq!(out.iter().map(|e| e.end_ns).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_queue_counts_what_it_cannot_take() {
        let q = Arc::new(Queues::default());
        let feed = q.feed();
        for i in 0..EVENTS as u64 + 7 {
            // SAFETY: one thread.
            unsafe { feed.put(event(i)) };
        }
        assert_eq!(q.dropped(), 7);
        let mut out = Vec::new();
        assert!(q.take(&mut out));
        assert_eq!(out.len(), PART);
        while q.take(&mut out) {}
        assert_eq!((out.len(), out[EVENTS - 1].end_ns), (EVENTS, EVENTS as u64 - 1));
    }

    #[test]
    fn what_a_writer_left_is_taken_and_its_queue_given_up() {
        let q = Arc::new(Queues::default());
        let feed = q.feed();
        // SAFETY: one thread.
        unsafe { feed.put(event(1)) };
        drop(feed);
        let mut out = Vec::new();
        q.take(&mut out);
        assert_eq!((out.len(), q.ends.lock().unwrap().len()), (1, 0));
    }

    #[test]
    fn of_closed_queues_all_is_dropped() {
        let q = Arc::new(Queues::default());
        let before = q.feed();
        // SAFETY: one thread.
        unsafe { before.put(event(1)) };
        q.close();
        // SAFETY: one thread.
        unsafe { q.feed().put(event(2)) };
        let mut out = Vec::new();
        assert!(!q.take(&mut out));
        assert_eq!((out.len(), q.dropped()), (0, 2));
    }

    #[test]
    fn nothing_is_lost_or_doubled_between_threads() {
        let q = Arc::new(Queues::default());
        let feed = q.feed();
        const N: u64 = 200_000;
        let mut out = Vec::new();
        std::thread::scope(|s| {
            let writer = s.spawn(move || {
                for i in 0..N {
                    // SAFETY: one thread.
                    unsafe { feed.put(event(i)) };
                }
            });
            while !writer.is_finished() {
                q.take(&mut out);
            }
        });
        while q.take(&mut out) {}
        assert_eq!(out.len() as u64 + q.dropped(), N);
        assert!(out.windows(2).all(|w| w[0].end_ns < w[1].end_ns));
    }
}
