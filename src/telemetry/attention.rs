//! Which sends of a QP multi-path's engine is to see, and what it missed: while it sleeps, small WRs and their completions
//! cost what they cost without it.
//!
//! It falls asleep under its own lock and the CQ's; it is woken under these and the send queue's. So who has the CQ's lock
//! or the send queue's knows.

use super::qp::Qp;
use crate::multipath::lengths::consumes;
use crate::shm::layout::OPCODES;
use crate::verbs::send_facts;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use rdma_sys::ibv_send_wr;

/// Messages that an engine is to see.
#[derive(Debug)]
pub struct Attention {
    /// Those of so many bytes and more.
    from: AtomicU64,
}

impl Attention {
    /// There is no engine.
    pub fn none() -> Attention {
        Attention { from: AtomicU64::new(u64::MAX) }
    }

    /// It is awake, and sees all.
    pub fn all(&self) {
        self.from.store(0, Release);
    }

    /// It sleeps, and is to be woken for messages of so many bytes, at least 1.
    pub fn only_from(&self, bytes: u64) {
        self.from.store(bytes.clamp(1, u64::MAX - 1), Release);
    }

    /// Shorter messages are none of its business: 0 if it is awake.
    #[inline(always)]
    pub fn from(&self) -> u64 {
        self.from.load(Relaxed)
    }

    /// Whether it sleeps. Under the CQ's lock, or the send queue's.
    #[inline(always)]
    pub fn sleeps(&self) -> bool {
        !matches!(self.from.load(Acquire), 0 | u64::MAX)
    }
}

/// What was posted so far, in a QP's life.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// WRs.
    pub wrs: u64,
    /// Those that consume a receive at the peer.
    pub consumed: u64,
}

impl Qp {
    /// Whether a sleeping engine need not see this chain, and the queue, which has a limit, has room for all of it.
    ///
    /// # Safety
    /// A chain as `ibv_post_send` takes it; the send queue is locked.
    pub unsafe fn sleeps_through(&self, mut wr: *const ibv_send_wr) -> bool {
        let from = self.engine.from();
        if !self.engine.sleeps() {
            return false;
        }
        let mut room = self.sends.ring.room();
        // SAFETY: the caller's promise.
        while let Some(w) = unsafe { wr.as_ref() } {
            // SAFETY: as above.
            let bytes = unsafe { send_facts(w, self.spec.max_send_sge) }.bytes;
            if room == 0 || bytes >= from {
                return false;
            }
            room -= 1;
            wr = w.next;
        }
        true
    }

    /// What was posted so far. Nothing is being posted.
    pub fn sent(&self) -> Sent {
        let of = |opcode: usize| self.detail.opcodes[opcode].wr.load(Relaxed);
        let consumed = (0..OPCODES).filter(|o| consumes(*o as u32)).map(of).fold(0, u64::wrapping_add);
        Sent { wrs: self.record.send_post.wr_posted.load(Relaxed), consumed }
    }

    /// Sends that no completion has covered which the application got. Under the CQ's lock.
    pub fn open_sends(&self) -> u64 {
        let (post, done) = (&self.record.send_post, &self.record.send_done);
        post.wr_posted.load(Relaxed).saturating_sub(done.wr_retired.load(Relaxed))
    }

    /// Those of them that ask for a completion, oldest first: WRs posted after it.
    ///
    /// # Safety
    /// Under the CQ's lock and the send queue's.
    pub unsafe fn open_signaled_sends(&self) -> impl Iterator<Item = u64> {
        let all = self.record.send_post.wr_posted.load(Relaxed);
        // SAFETY: the caller's promise.
        let open = unsafe { self.sends.ring.open() };
        open.filter(|(_, signaled)| *signaled).map(move |(end, _)| all.wrapping_sub(end))
    }

    /// No more than `limit` sends may be outstanding, though the provider would take more. Nothing was posted yet.
    pub fn limit_sends(&self, limit: u32) {
        self.sends.ring.set_limit(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::Attention;

    #[test]
    fn an_engine_is_none_awake_or_asleep() {
        let a = Attention::none();
        assert_eq!((a.sleeps(), a.from()), (false, u64::MAX), "nothing is its business");
        a.all();
        assert_eq!((a.sleeps(), a.from()), (false, 0), "everything is");
        a.only_from(4096);
        assert_eq!((a.sleeps(), a.from()), (true, 4096));
        a.only_from(0);
        assert_eq!((a.sleeps(), a.from()), (true, 1), "to sleep is not to be awake");
    }
}
