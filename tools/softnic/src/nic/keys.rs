//! Memory keys: regions and windows. Keys are looked up in the segment of whoever owns the memory.

use super::peer::Peer;
use crate::shared::arena::Arena;
use crate::shared::layout::{KEYS, Key, PAGE};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// `IBV_ACCESS_LOCAL_WRITE`.
pub const LOCAL_WRITE: u32 = 1;
/// `IBV_ACCESS_REMOTE_WRITE`.
pub const REMOTE_WRITE: u32 = 2;
/// `IBV_ACCESS_REMOTE_READ`.
pub const REMOTE_READ: u32 = 4;
/// `IBV_ACCESS_REMOTE_ATOMIC`.
pub const REMOTE_ATOMIC: u32 = 8;
/// `IBV_ACCESS_MW_BIND`.
pub const MW_BIND: u32 = 16;
/// `IBV_ACCESS_ZERO_BASED`.
pub const ZERO_BASED: u32 = 32;

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where it is in the owner's memory.
    pub addr: u64,
    /// How long.
    pub len: u64,
    /// What WRs call the first byte.
    pub iova: u64,
    /// `IBV_ACCESS_*`.
    pub access: u32,
    /// Protection domain.
    pub pd: u32,
    /// 0 a region, 1 or 2 a window of this type.
    pub kind: u32,
    /// Windows of type 2: the QP.
    pub qp: u32,
}

/// A key in use: its owner's dereg_mr waits for it.
pub struct Held<'a> {
    key: &'a Key,
    /// What it stands for.
    pub range: Range,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.key.users.fetch_sub(1, SeqCst);
    }
}

impl Held<'_> {
    /// Where an address of a WR is, if so many bytes from there lie inside.
    pub fn place(&self, addr: u64, bytes: u64) -> Option<u64> {
        let into = addr.checked_sub(self.range.iova)?;
        (into.checked_add(bytes)? <= self.range.len).then(|| self.range.addr + into)
    }
}

fn entry(peer: &Peer, key: u32) -> Option<&Key> {
    let index = (key >> 8) as usize;
    let page = peer.header().keys.get(index / PAGE)?.load(Acquire);
    peer.mapping.array(page, PAGE).filter(|_| page != 0).map(|keys: &[Key]| &keys[index % PAGE])
}

/// Finds and holds a key.
pub fn hold(peer: &Peer, key: u32) -> Option<Held<'_>> {
    let k = entry(peer, key).filter(|_| key != 0)?;
    // SYNC POINT: pairs with `Keys::remove`: either it sees the user, or this sees that the key is gone.
    k.users.fetch_add(1, SeqCst);
    let held = Held { key: k, range: range(k) };
    (k.key.load(SeqCst) == key).then_some(held)
}

fn range(k: &Key) -> Range {
    Range {
        addr: k.addr.load(Relaxed),
        len: k.len.load(Relaxed),
        iova: k.iova.load(Relaxed),
        access: k.access.load(Relaxed),
        pd: k.pd.load(Relaxed),
        kind: k.kind.load(Relaxed),
        qp: k.qp.load(Relaxed),
    }
}

/// The own keys.
pub struct Keys {
    state: Mutex<State>,
}

struct State {
    /// Never used so far.
    next: usize,
    /// Used before: the longest ago first.
    free: VecDeque<u32>,
}

impl Default for Keys {
    fn default() -> Keys {
        // Key 0 does not exist.
        Keys { state: Mutex::new(State { next: 1, free: VecDeque::new() }) }
    }
}

impl Keys {
    /// A new key. It is valid at once.
    pub fn add(&self, me: &Peer, arena: &Arena, range: Range) -> io::Result<u32> {
        let mut s = self.state.lock();
        let key = if s.free.len() > 64 || (s.next == KEYS && !s.free.is_empty()) {
            let old = s.free.pop_front().expect("not empty");
            // The same entry by another name: who still has the old key is refused.
            old & !0xff | old.wrapping_add(1) & 0xff
        } else if s.next < KEYS {
            let page = &me.header().keys[s.next / PAGE];
            if page.load(Relaxed) == 0 {
                page.store(arena.take(&me.mapping, PAGE * size_of::<Key>())?, Release);
            }
            s.next += 1;
            (s.next as u32 - 1) << 8
        } else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        drop(s);
        set(me, key, range);
        Ok(key)
    }

    /// Changes what a key stands for, and perhaps its low byte.
    pub fn change(&self, me: &Peer, old: u32, new: u32, range: Range) {
        retire(me, old);
        set(me, new, range);
    }

    /// A key is no longer valid; waits until nobody uses it.
    pub fn remove(&self, me: &Peer, key: u32) {
        retire(me, key);
        self.state.lock().free.push_back(key);
    }
}

fn set(me: &Peer, key: u32, r: Range) {
    let Some(k) = entry(me, key) else { return };
    k.addr.store(r.addr, Relaxed);
    k.len.store(r.len, Relaxed);
    k.iova.store(r.iova, Relaxed);
    k.access.store(r.access, Relaxed);
    k.pd.store(r.pd, Relaxed);
    k.kind.store(r.kind, Relaxed);
    k.qp.store(r.qp, Relaxed);
    k.key.store(key, SeqCst);
}

/// A key becomes invalid, for the owner or for a peer that was asked to invalidate it.
pub fn invalidate(peer: &Peer, key: u32) -> bool {
    entry(peer, key).is_some_and(|k| k.key.compare_exchange(key, 0, SeqCst, SeqCst).is_ok())
}

fn retire(me: &Peer, key: u32) {
    let Some(k) = entry(me, key) else { return };
    let _ = k.key.compare_exchange(key, 0, SeqCst, SeqCst);
    // A peer that died while it copied never lets go: so long no copy takes.
    let until = Instant::now() + Duration::from_secs(2);
    while k.users.load(SeqCst) != 0 {
        if Instant::now() > until {
            k.users.store(0, SeqCst);
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}
