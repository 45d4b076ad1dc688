//! From an object's address to our state of it: open addressing, lock-free reads.
//!
//! An application that looks an object up while it destroys it breaks the rules of verbs; it gets either state then.
//! A removed key leaves a tombstone, so that readers never lose a key that stands behind it; tombstones at the end of a
//! run are cleared at once and others are used again by the next insert. When live keys fill half of the array, a larger
//! one is published; the old one is never freed, since a reader may still be in it: all old ones together are smaller
//! than the newest.

use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicPtr, AtomicUsize, const_new};
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

const EMPTY: usize = 0;
const TOMB: usize = 1;
/// A key is hardly ever farther from its first slot.
const NEAR: usize = 64;
const FIRST_CAPACITY: usize = if cfg!(loom) { 2 } else { 64 };

struct Slot {
    key: AtomicUsize,
    value: AtomicPtr<()>,
}

impl Slot {
    const_new! {
        pub fn new() -> Slot {
            Slot { key: AtomicUsize::new(EMPTY), value: AtomicPtr::new(null_mut()) }
        }
    }
}

struct Array {
    mask: usize,
    slots: &'static [Slot],
}

/// What every map starts with, so that a lookup need not ask whether there is an array.
#[cfg(not(loom))]
const fn nothing() -> *mut Array {
    static NOTHING: Array = Array { mask: 0, slots: &NO_SLOTS };
    static NO_SLOTS: [Slot; 1] = [Slot::new()];
    (&raw const NOTHING).cast_mut()
}

/// Loom's atomics cannot be static.
#[cfg(loom)]
fn nothing() -> *mut Array {
    core::ptr::from_ref(Array::leak(1)).cast_mut()
}

impl Array {
    fn leak(capacity: usize) -> &'static Array {
        let slots: Box<[Slot]> = (0..capacity).map(|_| Slot::new()).collect();
        Box::leak(Box::new(Array { mask: capacity - 1, slots: Box::leak(slots) }))
    }

    #[inline(always)]
    fn start(&self, key: usize) -> usize {
        // Fibonacci hashing: every bit of the address has a say in the upper half of the product.
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) & self.mask
    }
}

/// A map from addresses to `'static` states.
pub struct PtrMap<T: 'static> {
    array: AtomicPtr<Array>,
    live: SpinLock<usize>,
    /// Values are `&'static T`.
    values: PhantomData<&'static T>,
}

impl<T: Sync> Default for PtrMap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Sync> PtrMap<T> {
    const_new! {
        /// An empty map that owns no memory yet.
        pub fn new() -> Self {
            PtrMap { array: AtomicPtr::new(nothing()), live: SpinLock::new(0), values: PhantomData }
        }
    }

    #[inline(always)]
    fn current(&self) -> &'static Array {
        // SYNC POINT: pairs with the Release in `grow`.
        let a = self.array.load(Acquire);
        // SAFETY: arrays are published whole and never freed.
        unsafe { &*a }
    }

    /// The value of a slot that has a key.
    ///
    /// # Safety
    /// The slot is one of this map's, and its key was seen.
    #[inline(always)]
    unsafe fn value(slot: &Slot) -> &'static T {
        let value = slot.value.load(Relaxed).cast::<T>();
        // SAFETY: only `put` stores values, `'static` references, and before the key.
        unsafe {
            #[cfg(loom)]
            assert!(!value.is_null());
            // The compiler would test for null, which is `None`.
            core::hint::assert_unchecked(!value.is_null());
            &*value
        }
    }

    /// The state of the object at `key`, if it stands in its first slot, as nearly every one does. `key` is not null:
    /// that is the key of a free slot. For the hot path: no calls, nothing to keep across them.
    ///
    /// # Safety
    /// `key` is an object's address: not null.
    #[inline(always)]
    pub unsafe fn get_first(&self, key: usize) -> Option<&'static T> {
        let a = self.current();
        // SAFETY: `start` masks, and the mask is one less than the number of slots.
        let slot = unsafe { a.slots.get_unchecked(a.start(key)) };
        // SYNC POINT: pairs with the Release in `put`: a key that is seen has its value.
        if slot.key.load(Acquire) != key {
            return None;
        }
        // SAFETY: the key was seen.
        Some(unsafe { Self::value(slot) })
    }

    /// The state of the object at `key`; nothing is at null.
    pub fn get(&self, key: usize) -> Option<&'static T> {
        // The keys of slots without values.
        if key <= TOMB {
            return None;
        }
        let a = self.current();
        let mut i = a.start(key);
        // At most half of the slots are live, but tombstones may fill the rest: stop after one round.
        for _ in 0..=a.mask {
            let slot = &a.slots[i];
            // SYNC POINT: as in `get_first`.
            match slot.key.load(Acquire) {
                // SAFETY: the key was seen.
                k if k == key => return Some(unsafe { Self::value(slot) }),
                EMPTY => return None,
                _ => i = (i + 1) & a.mask,
            }
        }
        None
    }

    /// As [`PtrMap::get`], looking at no more than [`NEAR`] slots: for a map that many objects come to and go from, in which
    /// what is not there must not take long, either.
    pub fn get_near(&self, key: usize) -> Option<&'static T> {
        if key <= TOMB {
            return None;
        }
        let a = self.current();
        let start = a.start(key);
        for step in 0..=a.mask.min(NEAR - 1) {
            let slot = &a.slots[(start + step) & a.mask];
            // SYNC POINT: as in `get_first`.
            match slot.key.load(Acquire) {
                // SAFETY: the key was seen.
                k if k == key => return Some(unsafe { Self::value(slot) }),
                EMPTY => return None,
                _ => {}
            }
        }
        None
    }

    /// How many objects are in it.
    pub fn count(&self) -> usize {
        *self.live.lock()
    }

    /// As [`PtrMap::get`].
    pub fn find<P>(&self, object: *const P) -> Option<&'static T> {
        self.get(object as usize)
    }

    /// Adds or replaces.
    pub fn insert(&self, key: usize, value: &'static T) {
        assert!(key > TOMB, "not an address");
        let mut live = self.live.lock();
        let a = match self.current() {
            a if (*live + 1) * 2 <= a.mask + 1 => a,
            old => self.grow(old),
        };
        if Self::put(a, key, value) {
            *live += 1;
        }
    }

    /// True if the key is new.
    fn put(a: &Array, key: usize, value: &'static T) -> bool {
        let value = core::ptr::from_ref(value).cast_mut().cast();
        let (mut i, mut free) = (a.start(key), None);
        for _ in 0..=a.mask {
            match a.slots[i].key.load(Relaxed) {
                k if k == key => {
                    a.slots[i].value.store(value, Release);
                    return false;
                }
                TOMB => free = free.or(Some(i)),
                EMPTY => {
                    free = free.or(Some(i));
                    break;
                }
                _ => {}
            }
            i = (i + 1) & a.mask;
        }
        let slot = &a.slots[free.expect("at least half of the slots are not live")];
        slot.value.store(value, Release);
        // SYNC POINT: pairs with the Acquire in `get_first` and `get`.
        slot.key.store(key, Release);
        true
    }

    fn grow(&self, old: &'static Array) -> &'static Array {
        let new = Array::leak(((old.mask + 1) * 2).max(FIRST_CAPACITY));
        for slot in old.slots {
            let key = slot.key.load(Relaxed);
            if key > TOMB {
                // SAFETY: the key was seen.
                Self::put(new, key, unsafe { Self::value(slot) });
            }
        }
        // SYNC POINT: pairs with the Acquire in `current`.
        self.array.store(core::ptr::from_ref(new).cast_mut(), Release);
        new
    }

    /// Takes an object out; a reader that found it just before still has its reference.
    pub fn remove(&self, key: usize) -> Option<&'static T> {
        if key <= TOMB {
            return None;
        }
        let mut live = self.live.lock();
        let a = self.current();
        let mut i = a.start(key);
        for _ in 0..=a.mask {
            match a.slots[i].key.load(Relaxed) {
                k if k == key => {
                    // SAFETY: the key was seen.
                    let v = unsafe { Self::value(&a.slots[i]) };
                    a.slots[i].key.store(TOMB, Release);
                    *live -= 1;
                    Self::clear_run(a, i);
                    return Some(v);
                }
                EMPTY => return None,
                _ => i = (i + 1) & a.mask,
            }
        }
        None
    }

    /// Tombstones directly before an empty slot guard nothing.
    fn clear_run(a: &Array, mut i: usize) {
        if a.slots[(i + 1) & a.mask].key.load(Relaxed) != EMPTY {
            return;
        }
        while a.slots[i].key.load(Relaxed) == TOMB {
            a.slots[i].key.store(EMPTY, Release);
            i = i.wrapping_sub(1) & a.mask;
        }
    }

    /// Calls `f` with every state in the map, in no order; concurrent changes may or may not be seen. Allocates nothing.
    pub fn for_each(&self, mut f: impl FnMut(&'static T)) {
        for slot in self.current().slots {
            if slot.key.load(Acquire) > TOMB {
                // SAFETY: the key was seen.
                f(unsafe { Self::value(slot) });
            }
        }
    }

    /// Takes out all that `which` says.
    pub fn remove_all(&self, which: impl Fn(&'static T) -> bool) {
        let mut live = self.live.lock();
        for slot in self.current().slots {
            // SAFETY: the key was seen.
            if slot.key.load(Relaxed) > TOMB && which(unsafe { Self::value(slot) }) {
                slot.key.store(TOMB, Release);
                *live -= 1;
            }
        }
    }

    /// Takes everything out. Allocates nothing: a forked child of a program with threads may not be able to.
    pub fn clear(&self) {
        let mut live = self.live.lock();
        for slot in self.current().slots {
            // Nothing live is left, so no tombstone is needed. The value stays: a reader may have seen its key.
            slot.key.store(EMPTY, Release);
        }
        *live = 0;
    }

    /// In a forked child: the writer that held the lock does not exist here.
    ///
    /// # Safety
    /// The process has one thread.
    pub unsafe fn reset_after_fork(&self) {
        // SAFETY: the caller's promise. A half-done insert is not visible, a half-done removal leaves a tombstone.
        unsafe { self.live.force_unlock() };
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;

    static A: u64 = 1;
    static B: u64 = 2;
    static STAYS: u64 = 7;

    /// Runs `change` beside a reader. What stays is found at any moment, also behind a key that goes, and in an array that
    /// is being replaced by a larger one; what comes or goes is found or not.
    // Loom remembers one access per place: the reader comes last, so that each of its loads meets the writer's stores.
    fn beside_a_reader(change: fn(&PtrMap<u64>)) {
        let tried: &core::sync::atomic::AtomicUsize = Box::leak(Box::default());
        loom::model(move || {
            tried.fetch_add(1, Relaxed);
            let map = Arc::new(PtrMap::new());
            map.insert(16, &A);
            map.insert(32, &STAYS);
            let reader = loom::thread::spawn({
                let map = map.clone();
                move || {
                    assert_eq!(map.get(32), Some(&STAYS));
                    assert!(matches!(map.get(16), None | Some(1 | 2)));
                    // SAFETY: not null.
                    assert!(matches!(unsafe { map.get_first(32) }, None | Some(7)));
                    assert!(matches!(map.get(64), None | Some(2)));
                }
            });
            change(&map);
            reader.join().unwrap();
            assert_eq!(map.get(32), Some(&STAYS));
        });
        assert!(tried.load(Relaxed) > 10, "loom tried hardly any order");
    }

    #[test]
    fn an_address_is_used_again() {
        beside_a_reader(|map| {
            assert_eq!(map.remove(16), Some(&A));
            map.insert(16, &B);
            assert_eq!(map.get(16), Some(&B));
        });
    }

    #[test]
    fn the_place_of_a_key_that_went_is_used_again() {
        beside_a_reader(|map| {
            map.remove(16);
            map.insert(48, &B);
            assert_eq!((map.get(16), map.get(48)), (None, Some(&B)));
        });
    }

    #[test]
    fn the_array_grows() {
        beside_a_reader(|map| {
            map.insert(48, &B);
            map.insert(64, &B);
            assert_eq!((map.get(16), map.get(48), map.get(64)), (Some(&A), Some(&B), Some(&B)));
        });
    }

    #[test]
    fn two_writers() {
        loom::model(|| {
            let map = Arc::new(PtrMap::new());
            let other = loom::thread::spawn({
                let map = map.clone();
                move || map.insert(16, &A)
            });
            map.insert(32, &B);
            map.remove(32);
            other.join().unwrap();
            assert_eq!((map.get(16), map.get(32)), (Some(&A), None));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn leak(v: u64) -> &'static u64 {
        Box::leak(Box::new(v))
    }

    #[test]
    fn nothing_is_at_null_nor_at_what_marks_a_slot() {
        let map = PtrMap::new();
        for key in [EMPTY, TOMB] {
            assert_eq!((map.get(key), map.find(key as *const u8), map.remove(key)), (None, None, None));
        }
        map.insert(16, leak(1));
        map.insert(32, leak(2));
        map.remove(32);
        for key in [EMPTY, TOMB] {
            assert_eq!((map.get(key), map.find(key as *const u8), map.remove(key)), (None, None, None));
        }
        assert_eq!(map.get(16), Some(&1));
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_hash_map(ops in proptest::collection::vec((0u8..3, 1usize..200), 0..600)) {
            let (map, mut model) = (PtrMap::new(), HashMap::new());
            for (i, (op, k)) in ops.into_iter().enumerate() {
                let key = k * 16;
                match op {
                    0 => {
                        map.insert(key, leak(i as u64));
                        model.insert(key, i as u64);
                    }
                    1 => prop_assert_eq!(map.remove(key).copied(), model.remove(&key)),
                    _ => prop_assert_eq!(map.get(key).copied(), model.get(&key).copied()),
                }
            }
            let mut values = Vec::new();
            map.for_each(|v| values.push(*v));
            let mut expected: Vec<u64> = model.into_values().collect();
            values.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(values, expected);
        }
    }

    #[test]
    fn what_is_near_is_found_and_what_is_not_there_is_not_looked_for_long() {
        let map = PtrMap::new();
        for k in 1..=1000 {
            map.insert(k * 16, leak(k as u64));
        }
        let found = (1..=1000).filter(|k| map.get_near(k * 16) == Some(&(*k as u64))).count();
        assert_eq!((found, map.count()), (1000, 1000));
        map.remove_all(|v| v % 4 != 0);
        assert_eq!(map.count(), 250);
        for k in 1..=1000 {
            let there = (k % 4 == 0).then_some(k as u64);
            assert_eq!((map.get_near(k * 16), map.get(k * 16)), (there.as_ref(), there.as_ref()));
        }
        assert_eq!((map.get_near(EMPTY), map.get_near(TOMB), map.get_near(16 * 1001)), (None, None, None));
        map.insert(16, leak(7));
        assert_eq!((map.get_near(16), map.count()), (Some(&7), 251));
    }

    #[test]
    fn null_is_never_found() {
        let map = PtrMap::new();
        for k in 1..60 {
            map.insert(k * 16, leak(0));
        }
        for k in 1..60 {
            map.remove(k * 16);
            assert_eq!(map.find::<u8>(core::ptr::null()), None);
        }
        map.insert(16, leak(0));
        map.clear();
        assert_eq!(map.get(16), None);
        map.insert(16, leak(3));
        assert_eq!(map.find(core::ptr::without_provenance::<u8>(16)), Some(&3));
    }

    #[test]
    fn coming_and_going_for_ever_does_not_grow_it() {
        let map = PtrMap::new();
        for i in 0..100_000usize {
            map.insert(4096 + i * 160, leak(0));
            assert!(map.remove(4096 + i * 160).is_some());
        }
        assert_eq!(map.current().mask + 1, FIRST_CAPACITY);
    }

    #[test]
    fn readers_always_find_what_stays() {
        let map = PtrMap::new();
        map.insert(16, leak(7));
        std::thread::scope(|s| {
            let churn = s.spawn(|| {
                for i in 0..30_000usize {
                    map.insert(32 + (i % 50) * 16, leak(1));
                    map.remove(32 + ((i + 25) % 50) * 16);
                }
            });
            while !churn.is_finished() {
                assert_eq!(map.get(16), Some(&7));
            }
        });
    }
}
