//! Time for the hot path: the processor's time stamp counter, turned into ns.
//!
//! Reading the counter costs a third of `clock_gettime`. It is used where the processor says that it runs at a constant
//! rate through all power states; elsewhere [`stamp`] is CLOCK_MONOTONIC in ns and the rate is one. The rate is measured
//! between the library's load and the first device, and again at every anchor, about once a second while completions are
//! polled; the anchor also follows what NTP does to CLOCK_REALTIME.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

/// CLOCK_REALTIME, ns.
pub fn realtime_ns() -> u64 {
    gettime(libc::CLOCK_REALTIME)
}

fn gettime(id: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid pointer; these clocks always exist.
    unsafe { libc::clock_gettime(id, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: rdtsc exists on every x86-64; a kernel that forbids it to users (PR_TSC_SIGSEGV) is asked for explicitly.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "x86_64")]
fn counter_is_constant() -> bool {
    use core::arch::x86_64::__cpuid;
    let most = __cpuid(0x8000_0000).eax;
    most >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn counter_is_constant() -> bool {
    false
}

/// Fixed point of the rate: ns per tick times 2^32.
const ONE: u64 = 1 << 32;
/// A rate is taken from at least this long an interval.
const MIN_INTERVAL_NS: u64 = 1_000_000;

/// Converts stamps into ns. One for the process.
pub struct Clock {
    use_counter: AtomicBool,
    first_stamp: AtomicU64,
    first_mono_ns: AtomicU64,
    /// Ticks after which the anchor is renewed.
    renew_ticks: AtomicU64,
    // The anchor, a sequence lock: odd while it changes.
    seq: AtomicU64,
    anchor_stamp: AtomicU64,
    anchor_real_ns: AtomicU64,
    rate: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that counts in CLOCK_MONOTONIC until [`Clock::start`].
    pub const fn new() -> Clock {
        Clock {
            use_counter: AtomicBool::new(false),
            first_stamp: AtomicU64::new(0),
            first_mono_ns: AtomicU64::new(0),
            renew_ticks: AtomicU64::new(1_000_000_000),
            seq: AtomicU64::new(0),
            anchor_stamp: AtomicU64::new(0),
            anchor_real_ns: AtomicU64::new(0),
            rate: AtomicU64::new(ONE),
        }
    }

    /// Takes the first sample. Costs two clock reads; called when the library is loaded.
    pub fn warm_up(&self) {
        self.first_mono_ns.store(gettime(libc::CLOCK_MONOTONIC), Relaxed);
        self.first_stamp.store(counter(), Relaxed);
    }

    /// Sets rate and anchor; waits until [`Clock::warm_up`] is 1 ms ago. Called at the first device, by one thread.
    pub fn start(&self) {
        let usable = counter_is_constant() && self.first_stamp.load(Relaxed) != 0;
        if usable {
            while gettime(libc::CLOCK_MONOTONIC) - self.first_mono_ns.load(Relaxed) < MIN_INTERVAL_NS {
                core::hint::spin_loop();
            }
        }
        self.use_counter.store(usable, Relaxed);
        // In a forked child, the thread that was renewing the anchor does not exist.
        self.seq.fetch_and(!1, Relaxed);
        self.set_anchor();
    }

    /// Now, in ticks. 0 is never returned.
    #[inline(always)]
    pub fn stamp(&self) -> u64 {
        let now = if self.use_counter.load(Relaxed) { counter() } else { gettime(libc::CLOCK_MONOTONIC) };
        now | 1
    }

    /// Ticks as ns.
    #[inline]
    pub fn ticks_to_ns(&self, ticks: u64) -> u64 {
        scale(ticks, self.rate.load(Relaxed))
    }

    /// CLOCK_REALTIME at a stamp, ns. Renews the anchor when it is a second old.
    #[inline]
    pub fn real_ns(&self, stamp: u64) -> u64 {
        let Some((anchor, real, rate)) = self.read_anchor() else { return realtime_ns() };
        let age = stamp.wrapping_sub(anchor);
        if age as i64 > self.renew_ticks.load(Relaxed) as i64 {
            self.set_anchor();
            return realtime_ns();
        }
        if (age as i64) < 0 {
            return real.wrapping_sub(scale(age.wrapping_neg(), rate));
        }
        real.wrapping_add(scale(age, rate))
    }

    /// `None` while the anchor is renewed: who renews it may be preempted, even by the thread that asks.
    fn read_anchor(&self) -> Option<(u64, u64, u64)> {
        for _ in 0..64 {
            // SYNC POINT: pairs with set_anchor.
            let before = self.seq.load(Acquire);
            let got = (self.anchor_stamp.load(Relaxed), self.anchor_real_ns.load(Relaxed), self.rate.load(Relaxed));
            fence(Acquire);
            if before.is_multiple_of(2) && self.seq.load(Relaxed) == before {
                return Some(got);
            }
            core::hint::spin_loop();
        }
        None
    }

    #[cold]
    fn set_anchor(&self) {
        let seq = self.seq.load(Relaxed);
        // One renewer; others go on with the old anchor.
        if seq % 2 == 1 || self.seq.compare_exchange(seq, seq + 1, Acquire, Relaxed).is_err() {
            return;
        }
        fence(Release);
        let stamp = self.stamp();
        let real = realtime_ns();
        if self.use_counter.load(Relaxed) {
            let ticks = stamp.wrapping_sub(self.first_stamp.load(Relaxed));
            let ns = gettime(libc::CLOCK_MONOTONIC) - self.first_mono_ns.load(Relaxed);
            if ticks > 0 && ns > 0 {
                let rate = ((u128::from(ns) << 32) / u128::from(ticks)) as u64;
                self.rate.store(rate, Relaxed);
                self.renew_ticks.store((1_000_000_000 * (u128::from(ONE)) / u128::from(rate.max(1))) as u64, Relaxed);
            }
        }
        self.anchor_stamp.store(stamp, Relaxed);
        self.anchor_real_ns.store(real, Relaxed);
        // SYNC POINT: pairs with read_anchor.
        self.seq.store(seq + 2, Release);
    }
}

#[inline(always)]
fn scale(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> Clock {
        let c = Clock::new();
        c.warm_up();
        c.start();
        c
    }

    #[test]
    fn a_stamp_converts_to_realtime() {
        let c = started();
        let (before, stamp, after) = (realtime_ns(), c.stamp(), realtime_ns());
        let got = c.real_ns(stamp);
        // A millisecond of slack: the rate was measured over no more than that.
        assert!(got + 1_000_000 >= before && got <= after + 1_000_000, "{before} {got} {after}");
    }

    #[test]
    fn stamps_grow_and_are_never_zero() {
        let c = started();
        let a = c.stamp();
        assert!(a != 0 && c.stamp() >= a);
    }

    #[test]
    fn a_renewal_that_never_ends_stops_nobody() {
        let c = started();
        c.seq.fetch_add(1, Relaxed);
        assert!(c.real_ns(c.stamp()).abs_diff(realtime_ns()) < 1_000_000_000);
        c.start();
        assert_eq!(c.seq.load(Relaxed) % 2, 0);
        assert!(c.read_anchor().is_some());
    }

    #[test]
    fn a_clock_that_was_not_started_still_tells_time() {
        let c = Clock::new();
        assert!(c.real_ns(c.stamp()).abs_diff(realtime_ns()) < 1_000_000_000);
    }
}
