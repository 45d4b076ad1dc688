//! A shared receive queue: its receives are taken by completions of many QPs, so in no order that we could know.

use super::qp::is_in_chain;
use super::registry::Device;
use super::users::Users;
use crate::shm::layout::SrqRecord;
use crate::shm::segment::{bump, raise};
use crate::sync::{Guard, SpinLock};
use crate::verbs::{PostSrqRecv, recv_bytes};
use core::sync::atomic::Ordering::Relaxed;
use rdma_sys::ibv_recv_wr;
use std::collections::VecDeque;

/// State of a shared receive queue.
pub struct Srq {
    /// Index of its record.
    pub index: u32,
    /// Address of the `ibv_srq`.
    pub address: usize,
    /// Its context.
    pub device: &'static Device,
    /// Its record.
    pub record: &'static SrqRecord,
    /// The provider's post.
    pub real: PostSrqRecv,
    /// QPs that it feeds, and CQs that its completions come to.
    pub(super) users: Users,
    max_sge: u32,
    /// More never wait: beyond that, completions went by unseen.
    most: usize,
    /// `(wr_id, bytes)` of each receive that waits, oldest first.
    waiting: SpinLock<VecDeque<(u64, u64)>>,
}

impl Srq {
    /// A queue of `max_wr` receives of at most `max_sge` elements. `None`: no memory.
    pub fn new(
        index: u32,
        (address, device): (usize, &'static Device),
        record: &'static SrqRecord,
        real: PostSrqRecv,
        max_wr: u32,
        max_sge: u32,
    ) -> Option<Srq> {
        let room = max_wr.min(1 << 20) as usize;
        // Twice, since what a poll has just taken from the provider may be posted anew before that poll has taken it here.
        let most = 2 * room.max(8);
        let mut waiting = VecDeque::new();
        waiting.try_reserve_exact(most + room).ok()?;
        let (users, waiting) = (Users::default(), SpinLock::new(waiting));
        Some(Srq { index, address, device, record, real, users, max_sge, most, waiting })
    }

    /// Locks the queue and notes the chain, before the provider gets it.
    ///
    /// # Safety
    /// `wr` is the chain passed to `ibv_post_srq_recv`.
    #[inline]
    pub unsafe fn start(&self, mut wr: *const ibv_recv_wr) -> Posting<'_> {
        let mut waiting = self.waiting.lock();
        if waiting.len() > self.most {
            self.drop_oldest(&mut waiting);
        }
        let before = waiting.len();
        // SAFETY: the chain is the application's, valid until the call returns.
        while let Some(w) = unsafe { wr.as_ref() } {
            if waiting.len() == waiting.capacity() && waiting.try_reserve(1).is_err() {
                break;
            }
            // SAFETY: the caller's promise.
            waiting.push_back((w.wr_id, unsafe { recv_bytes(w, self.max_sge) }));
            wr = w.next;
        }
        Posting { srq: self, waiting, before }
    }

    /// Memory stays bounded, whatever is seen of the completions.
    #[cold]
    #[inline(never)]
    fn drop_oldest(&self, waiting: &mut VecDeque<(u64, u64)>) {
        let extra = waiting.len().saturating_sub(self.most);
        self.count_dropped(extra as u64, waiting.drain(..extra).map(|(_, b)| b).sum());
    }

    fn count_dropped(&self, wr: u64, bytes: u64) {
        let done = &self.record.done;
        for (counter, by) in
            [(&done.wr_retired, wr), (&done.wr_dropped, wr), (&done.bytes_retired, bytes), (&done.bytes_dropped, bytes)]
        {
            bump(counter, by);
        }
    }

    /// Whether a receive of this id waits.
    pub(super) fn contains(&self, wr_id: u64) -> bool {
        self.waiting.lock().iter().any(|(id, _)| *id == wr_id)
    }

    /// Takes the receive that a completion used: the oldest of its id. Returns its buffer bytes.
    pub(super) fn take(&self, wr_id: u64, received: u64, failed: bool) -> Option<u64> {
        let mut waiting = self.waiting.lock();
        let at = waiting.iter().position(|(id, _)| *id == wr_id)?;
        let (_, capacity) = waiting.remove(at)?;
        let (post, done) = (&self.record.post, &self.record.done);
        raise(&done.wr_high_water, post.wr_posted.load(Relaxed).saturating_sub(done.wr_retired.load(Relaxed)));
        bump(&done.cqes, 1);
        bump(&done.wr_retired, 1);
        bump(&done.bytes_retired, capacity);
        if failed {
            bump(&done.wr_failed, 1);
            bump(&done.bytes_failed, capacity);
        } else {
            bump(&done.bytes_arrived, received);
        }
        Some(capacity)
    }

    /// The queue is gone: what waits is dropped.
    pub fn drop_waiting(&self) {
        let mut waiting = self.waiting.lock();
        self.count_dropped(waiting.len() as u64, waiting.iter().map(|(_, b)| b).sum());
        waiting.clear();
    }
}

/// A chain of receives between our note and the provider's answer.
pub struct Posting<'a> {
    srq: &'a Srq,
    waiting: Guard<'a, VecDeque<(u64, u64)>>,
    before: usize,
}

impl Posting<'_> {
    /// The provider took the whole chain.
    #[inline]
    pub fn accepted(self) {
        let new = self.waiting.range(self.before.min(self.waiting.len())..);
        let (wr, bytes) = new.fold((0, 0), |(n, sum), (_, b)| (n + 1, sum + b));
        bump(&self.srq.record.post.wr_posted, wr);
        bump(&self.srq.record.post.bytes_posted, bytes);
    }

    /// The provider failed with `bad`: that WR and all behind it are refused.
    ///
    /// # Safety
    /// `wr` is the chain of [`Srq::start`].
    #[cold]
    pub unsafe fn refused_from(mut self, mut wr: *const ibv_recv_wr, bad: *const ibv_recv_wr) {
        let mut keep = self.before;
        // SAFETY: the caller's promise.
        unsafe {
            if is_in_chain(wr, bad, |w| w.next) {
                while !core::ptr::eq(wr, bad) {
                    keep += 1;
                    wr = (*wr).next;
                }
            }
        }
        self.waiting.truncate(keep);
        self.accepted();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn no_post(
        _: *mut rdma_sys::ibv_srq,
        _: *mut ibv_recv_wr,
        _: *mut *mut ibv_recv_wr,
    ) -> core::ffi::c_int {
        0
    }

    #[test]
    fn completions_that_nobody_sees_do_not_make_it_grow() {
        // SAFETY: `Shared` promises that all-zero bytes are a valid record.
        let record: &'static SrqRecord = Box::leak(Box::new(unsafe { core::mem::zeroed() }));
        let device: &'static Device = Box::leak(Box::default());
        let srq = Srq::new(0, (16, device), record, no_post, 10, 1).unwrap();
        let mut element = rdma_sys::ibv_sge { addr: 0, length: 5, lkey: 0 };
        for i in 0..1000 {
            let wr = ibv_recv_wr { wr_id: i, next: core::ptr::null_mut(), sg_list: &mut element, num_sge: 1 };
            // SAFETY: a chain of one.
            unsafe { srq.start(&wr) }.accepted();
        }
        let (waiting, dropped) = (srq.waiting.lock().len() as u64, record.done.wr_dropped.load(Relaxed));
        assert!(waiting <= 21, "{waiting}");
        assert_eq!((waiting + dropped, record.done.bytes_dropped.load(Relaxed)), (1000, dropped * 5));
        assert_eq!((srq.take(999, 5, false), srq.take(3, 5, false)), (Some(5), None));
    }
}
