//! From the thread that polls a CQ to the log's: a queue per writer that never makes it wait.

use crate::telemetry::event::Event;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use ringbuf::traits::{Consumer, Observer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};
use std::sync::{Arc, Mutex, PoisonError};

/// Events that a queue holds: those of 25 ms, between two looks of the log's thread, at 650,000 a second.
const EVENTS: usize = 1 << 14;

/// The writer's end. One thread at a time.
pub struct Feed {
    end: UnsafeCell<HeapProd<Event>>,
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
}

impl Queues {
    /// A new queue's writer's end. `None`: no memory.
    pub fn feed(self: &Arc<Self>) -> Option<Feed> {
        let (writer, reader) = HeapRb::try_new(EVENTS).ok()?.split();
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
        Some(Feed { end: UnsafeCell::new(writer), queues: self.clone() })
    }

    /// Takes what is in the queues: adds it to `to`, in the order of end times. Queues whose writer is gone are given up.
    pub fn take(&self, to: &mut Vec<Event>) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let start = to.len();
        ends.retain_mut(|end| {
            let over = !end.write_is_held();
            to.extend(end.pop_iter());
            !over
        });
        to[start..].sort_by_key(|e| e.end_ns);
    }

    /// Events that found their queue full.
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
        let end = unsafe { &mut *self.end.get() };
        if end.try_push(e).is_err() {
            self.queues.dropped.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(end_ns: u64) -> Event {
        Event { end_ns, bytes: 1, wr_outstanding: 0, bytes_outstanding: 0, latency_ns: 0, qp: 0, place: 0 }
    }

    #[test]
    fn events_of_several_queues_come_in_order() {
        let q = Arc::new(Queues::default());
        let (a, b) = (q.feed().unwrap(), q.feed().unwrap());
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
        let feed = q.feed().unwrap();
        for i in 0..EVENTS as u64 + 7 {
            // SAFETY: one thread.
            unsafe { feed.put(event(i)) };
        }
        assert_eq!(q.dropped(), 7);
        let mut out = Vec::new();
        q.take(&mut out);
        assert_eq!((out.len(), out[EVENTS - 1].end_ns), (EVENTS, EVENTS as u64 - 1));
    }

    #[test]
    fn what_a_writer_left_is_taken_and_its_queue_given_up() {
        let q = Arc::new(Queues::default());
        let feed = q.feed().unwrap();
        // SAFETY: one thread.
        unsafe { feed.put(event(1)) };
        drop(feed);
        let mut out = Vec::new();
        q.take(&mut out);
        assert_eq!((out.len(), q.ends.lock().unwrap().len()), (1, 0));
    }

    #[test]
    fn nothing_is_lost_or_doubled_between_threads() {
        let q = Arc::new(Queues::default());
        let feed = q.feed().unwrap();
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
        q.take(&mut out);
        assert_eq!(out.len() as u64 + q.dropped(), N);
        assert!(out.windows(2).all(|w| w[0].end_ns < w[1].end_ns));
    }
}
