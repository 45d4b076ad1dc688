//! From a QP number to our state of the QP: two array look-ups. QP numbers have 24 bits; pages of 4,096 are made as
//! numbers come up and kept.

use crate::sync::atomic::AtomicPtr;
use core::ptr::null_mut;
use core::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// For loom, numbers have 2 bits: it would look at every place.
const PAGE_BITS: u32 = if cfg!(loom) { 1 } else { 12 };
const PAGE: usize = 1 << PAGE_BITS;

type Page<T> = [AtomicPtr<T>; PAGE];

/// A map from QP numbers of one device context to `'static` states.
pub struct QpnTable<T: 'static> {
    pages: Box<[AtomicPtr<Page<T>>; PAGE]>,
}

impl<T> Default for QpnTable<T> {
    fn default() -> Self {
        QpnTable { pages: Box::new(core::array::from_fn(|_| AtomicPtr::new(null_mut()))) }
    }
}

impl<T> QpnTable<T> {
    /// The state of QP `qpn`; numbers over 24 bits are never found.
    #[inline(always)]
    pub fn get(&self, qpn: u32) -> Option<&'static T> {
        let page = self.pages.get((qpn >> PAGE_BITS) as usize)?.load(Acquire);
        // SAFETY: pages are published whole and never freed while the table lives.
        let page = unsafe { page.as_ref()? };
        // SYNC POINT: pairs with the Release in `set`.
        let state = page[qpn as usize % PAGE].load(Acquire);
        // SAFETY: only `'static` references are stored.
        unsafe { state.as_ref() }
    }

    /// Sets or, with `None`, clears; returns what was there. False numbers (over 24 bits) are ignored.
    pub fn set(&self, qpn: u32, state: Option<&'static T>) -> Option<&'static T> {
        let slot = self.pages.get((qpn >> PAGE_BITS) as usize)?;
        let mut page = slot.load(Acquire);
        if page.is_null() {
            state?;
            let fresh = Box::into_raw(Box::new(core::array::from_fn(|_| AtomicPtr::new(null_mut()))));
            match slot.compare_exchange(null_mut(), fresh, Release, Acquire) {
                Ok(_) => page = fresh,
                Err(other) => {
                    // SAFETY: we just made it and nobody has seen it.
                    drop(unsafe { Box::from_raw(fresh) });
                    page = other;
                }
            }
        }
        let new = state.map_or(null_mut(), |s| core::ptr::from_ref(s).cast_mut());
        // SAFETY: as in `get`.
        let cell = unsafe { &(*page)[qpn as usize % PAGE] };
        // SYNC POINT: pairs with the Acquire in `get`.
        let old = cell.swap(new, AcqRel);
        // SAFETY: only `'static` references are stored.
        unsafe { old.as_ref() }
    }

    /// Every state in the table with its number.
    pub fn entries(&self) -> Vec<(u32, &'static T)> {
        let mut all = Vec::new();
        for (high, page) in self.pages.iter().enumerate() {
            // SAFETY: as in `get`.
            let Some(page) = (unsafe { page.load(Acquire).as_ref() }) else {
                continue;
            };
            for (low, cell) in page.iter().enumerate() {
                // SAFETY: only `'static` references are stored.
                if let Some(s) = unsafe { cell.load(Acquire).as_ref() } {
                    all.push(((high << PAGE_BITS | low) as u32, s));
                }
            }
        }
        all
    }
}

impl<T> Drop for QpnTable<T> {
    fn drop(&mut self) {
        for p in self.pages.iter() {
            let page = p.load(Relaxed);
            if !page.is_null() {
                // SAFETY: made by Box::into_raw in `set`; `&mut self` means no reader.
                drop(unsafe { Box::from_raw(page) });
            }
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;

    /// While numbers are set, cleared and set again, and their page is made: a QP that stays is found, one that comes or
    /// goes is found or not, and no number finds another number's QP.
    #[test]
    fn lookups_meet_whole_states() {
        static STATES: [u32; 4] = [0, 1, 2, 20];
        loom::model(|| {
            let t = Arc::new(QpnTable::<u32>::default());
            t.set(1, Some(&STATES[1]));
            let reader = loom::thread::spawn({
                let t = t.clone();
                move || {
                    assert_eq!(t.get(1), Some(&1));
                    assert!(matches!(t.get(0), None | Some(0)));
                    assert!(matches!(t.get(2), None | Some(2 | 20)));
                    assert_eq!(t.get(3), None);
                }
            });
            let writer = loom::thread::spawn({
                let t = t.clone();
                move || _ = t.set(0, Some(&STATES[0]))
            });
            t.set(2, Some(&STATES[2]));
            t.set(2, None);
            t.set(2, Some(&STATES[3]));
            writer.join().unwrap();
            reader.join().unwrap();
            assert_eq!((t.get(0), t.get(1), t.get(2)), (Some(&0), Some(&1), Some(&20)));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_and_go() {
        let t = QpnTable::<u32>::default();
        let (a, b): (&'static u32, &'static u32) = (Box::leak(Box::new(1)), Box::leak(Box::new(2)));
        assert_eq!(t.get(17), None);
        assert_eq!(t.set(17, Some(a)), None);
        assert_eq!(t.set(0xff_ffff, Some(b)), None);
        assert_eq!((t.get(17), t.get(0xff_ffff), t.get(18)), (Some(&1), Some(&2), None));
        assert_eq!(t.set(17, Some(b)), Some(&1));
        assert_eq!(t.set(17, None), Some(&2));
        assert_eq!(t.entries(), [(0xff_ffff, b)]);
    }

    #[test]
    fn numbers_beyond_24_bits_are_never_found() {
        let t = QpnTable::<u32>::default();
        assert_eq!(t.set(1 << 24, Some(Box::leak(Box::new(1)))), None);
        assert_eq!((t.get(1 << 24), t.get(u32::MAX)), (None, None));
    }
}
