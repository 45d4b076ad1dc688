//! Receives of a QP that may be split: how long messages were of which a WRITE_WITH_IMM's tail alone is told. The ring of
//! their lengths lies in memory of our own, registered in the QP's PD when the peer's shim first asks for it.

use super::cq::CqState;
use super::verbs::Verbs;
use crate::state::CLOCK;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use rdma_sys::{ibv_access_flags, ibv_mr, ibv_pd, ibv_wc};
use telereduce::control::wire::{LengthRing, WantRing};
use telereduce::multipath::lengths::{Arrival, Receives as Core, SLOT_BYTES, slots};
use telereduce::sync::SpinLock;

/// The receives of one QP.
pub struct Receives {
    /// Where they complete, if the polls there are hooked. Each passes [`Receives::completed`], under that CQ's lock.
    pub cq: Option<&'static CqState>,
    inner: SpinLock<Inner>,
}

struct Inner {
    core: Core,
    ring: Option<Memory>,
}

// SAFETY: MRs may be used by any thread, and the memory is only read here.
unsafe impl Send for Inner {}

/// Registered memory.
struct Memory {
    mr: *mut ibv_mr,
    start: *mut AtomicU64,
    bytes: usize,
    slots: u32,
    deregister: unsafe extern "C" fn(*mut ibv_mr) -> c_int,
}

impl Receives {
    /// Of a QP in RESET whose receives complete there.
    pub fn new(cq: Option<&'static CqState>) -> Receives {
        let mut core = Core::default();
        core.restart(new_tag());
        Receives { cq, inner: SpinLock::new(Inner { core, ring: None }) }
    }

    /// A receive of it completed: `byte_len` becomes what it must be.
    #[inline]
    pub fn completed(&self, wc: &mut ibv_wc) {
        if wc.status != 0 {
            return;
        }
        // SAFETY: a number, whichever member of the union was set.
        let imm = unsafe { wc.imm_data_invalidated_rkey_union.imm_data };
        let arrival = Arrival { opcode: wc.opcode, byte_len: wc.byte_len, imm };
        let Inner { core, ring } = &mut *self.inner.lock();
        let read = |slot| ring.as_ref().map_or([0; 3], |ring| ring.read(slot));
        if let Some(bytes) = core.received(&arrival, read) {
            wc.byte_len = bytes;
        }
    }

    /// The peer's shim asks for the ring. `unpolled`: completions of the QP that may wait; `ahead`: what the peer may be
    /// ahead of what is done. `None`: it gets none.
    pub fn offer(
        &self,
        asked: &WantRing,
        (unpolled, ahead): (u32, u32),
        (verbs, pd): (&Verbs, *mut ibv_pd),
    ) -> Option<LengthRing> {
        self.cq?;
        let slots = slots(unpolled, ahead)?;
        if self.inner.lock().ring.is_none() {
            // Not under the lock, since it takes long. Only the helper does this.
            let ring = Memory::register(verbs, pd, slots)?;
            self.inner.lock().ring = Some(ring);
        }
        let Inner { core, ring } = &mut *self.inner.lock();
        let ring = ring.as_ref()?;
        // The ring stays as it is for the QP's life, though its CQ may grow.
        let tag = core.offer(ring.slots).filter(|_| ring.slots >= slots)?;
        // SAFETY: a registered region.
        let rkey = unsafe { (*ring.mr).rkey };
        let (pair, addr) = (asked.pair.swapped(), ring.start as u64);
        Some(LengthRing { pair, id: asked.id, tag, addr, rkey, slots_log2: ring.slots.trailing_zeros() as u8 })
    }

    /// The QP is in RESET. `drawn`: what its old connection left was seen, so that it is not taken for the next one's.
    pub fn restart(&self, drawn: bool) {
        let mut inner = self.inner.lock();
        inner.core.restart(new_tag());
        if !drawn {
            inner.core.lose_count();
        }
    }

    /// The QP is destroyed: no completion of it is seen any more, and nothing can be written for it.
    pub fn forget(&self) {
        let ring = self.inner.lock().ring.take();
        if let Some(ring) = ring {
            ring.deregister();
        }
    }
}

/// A name that no other connection of this process has.
fn new_tag() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Relaxed).wrapping_add(CLOCK.stamp() as u32)
}

impl Memory {
    /// Pages of its own, so that nothing else is pinned with them, or lost to a child.
    fn register(verbs: &Verbs, pd: *mut ibv_pd, slots: u32) -> Option<Memory> {
        let bytes = slots as usize * SLOT_BYTES as usize;
        let (prot, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new pages.
        let start = unsafe { libc::mmap(null_mut(), bytes, prot, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        // SAFETY: our pages, and a PD that exists.
        let mr = unsafe {
            // A child has no use for them, and must not make us copy them.
            libc::madvise(start, bytes, libc::MADV_DONTFORK);
            (verbs.reg_mr)(pd, start, bytes, access.0 as c_int)
        };
        let memory = Memory { mr, start: start.cast(), bytes, slots, deregister: verbs.dereg_mr };
        if mr.is_null() {
            memory.unmap();
            return None;
        }
        Some(memory)
    }

    /// The words of a slot, which the device writes.
    fn read(&self, slot: u32) -> [u64; 3] {
        let words = SLOT_BYTES as usize / size_of::<u64>();
        let first = (slot & (self.slots - 1)) as usize * words;
        // SAFETY: within our pages, which live as long as this. A completion was seen that comes after the write.
        core::array::from_fn(|i| unsafe { (*self.start.add(first + i)).load(Relaxed) })
    }

    fn deregister(self) {
        // SAFETY: our region; if it is not given up, its pages stay.
        if unsafe { (self.deregister)(self.mr) } == 0 {
            self.unmap();
        }
    }

    fn unmap(self) {
        // SAFETY: our pages, which nothing uses any more.
        unsafe { libc::munmap(self.start.cast::<c_void>(), self.bytes) };
    }
}
