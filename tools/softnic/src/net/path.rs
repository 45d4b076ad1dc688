//! A path, from a source GID to a destination GID: when a packet that is handed to it leaves and arrives, if it does.

use super::draws::Draws;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a path does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behaviour {
    /// Bits per second; 0: as many as there are.
    pub rate_bps: u64,
    /// From leaving to arriving.
    pub delay_ns: u64,
    /// Up to so much more, evenly spread. Packets of one QP keep their order.
    pub jitter_ns: u64,
    /// Probability that a packet does not arrive.
    pub loss: f64,
    /// Probability that a packet, and what follows it on its QP, is held back ...
    pub reorder: f64,
    /// ... for up to so long.
    pub reorder_ns: u64,
    /// When nothing arrives.
    pub faults: Vec<Fault>,
}

/// A time in which a path carries nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Begins so long after the process began to use softnic ...
    pub after_ns: Option<u64>,
    /// ... or with this packet of the process's on the path, counted from 0.
    pub after_packets: Option<u64>,
    /// How long; `None`: for ever.
    pub for_ns: Option<u64>,
    /// How many packets, if it begins with a packet; `None`: see `for_ns`.
    pub for_packets: Option<u64>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// When its last bit leaves.
    pub departs: u64,
    /// When its last bit arrives; `None`: never.
    pub arrives: Option<u64>,
}

/// A path in use.
#[derive(Debug)]
pub struct Path {
    /// What it does.
    pub behaviour: Behaviour,
    /// When the process began.
    pub began: u64,
    packets: AtomicU64,
    /// When the first packet of a fault that begins with a packet was seen, for each.
    seen: Vec<AtomicU64>,
}

impl Path {
    /// A path that nothing was sent on.
    pub fn new(behaviour: Behaviour, began: u64) -> Path {
        let seen = behaviour.faults.iter().map(|_| AtomicU64::new(0)).collect();
        Path { behaviour, began, packets: AtomicU64::new(0), seen }
    }

    /// Whether packets arrive as they leave: at once, all, in order.
    pub fn is_ideal(&self) -> bool {
        self.behaviour == Behaviour::default()
    }

    /// The fate of a packet of so many bytes (0: too short to take any time), whose QP's last packet arrived at `order`.
    /// `free_at` is the clock that all senders on the path share.
    pub fn fate(&self, now: u64, bytes: u32, order: u64, draws: &mut Draws, free_at: &AtomicU64) -> Fate {
        let b = &self.behaviour;
        let departs = self.departure(now, bytes, free_at);
        // One draw of each kind per packet, whatever the others say: chances do not shift one another.
        let (lost, jitter) = (draws.happens(b.loss), draws.below(b.jitter_ns + 1));
        let held = if draws.happens(b.reorder) { draws.below(b.reorder_ns + 1) } else { 0 };
        let failed = self.has_failed(departs);
        let arrives = (departs + b.delay_ns + jitter + held).max(order);
        Fate { departs, arrives: (!lost && !failed).then_some(arrives) }
    }

    fn departure(&self, now: u64, bytes: u32, free_at: &AtomicU64) -> u64 {
        if self.behaviour.rate_bps == 0 || bytes == 0 {
            return now;
        }
        let takes = (u128::from(bytes.max(64)) * 8_000_000_000 / u128::from(self.behaviour.rate_bps)) as u64;
        let mut free = free_at.load(Relaxed);
        loop {
            let departs = free.max(now) + takes;
            match free_at.compare_exchange_weak(free, departs, Relaxed, Relaxed) {
                Ok(_) => return departs,
                Err(there) => free = there,
            }
        }
    }

    fn has_failed(&self, at: u64) -> bool {
        let packet = self.packets.fetch_add(1, Relaxed);
        self.behaviour.faults.iter().zip(&self.seen).any(|(f, seen)| {
            let from = match (f.after_packets, f.after_ns) {
                (Some(n), _) if packet < n => return false,
                (Some(n), _) if f.for_packets.is_some_and(|m| packet >= n + m) => return false,
                (Some(_), _) => seen.compare_exchange(0, at, Relaxed, Relaxed).map_or_else(|there| there, |_| at),
                (None, after) => self.began + after.unwrap_or(0),
            };
            at >= from && f.for_ns.is_none_or(|d| at < from + d)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(b: Behaviour) -> Path {
        Path::new(b, 1000)
    }

    #[test]
    fn an_ideal_path_does_nothing() {
        let p = path(Behaviour::default());
        assert!(p.is_ideal());
        let fate = p.fate(5, 1 << 20, 0, &mut Draws::new(1, 2), &AtomicU64::new(0));
        assert_eq!(fate, Fate { departs: 5, arrives: Some(5) });
    }

    #[test]
    fn a_rate_is_shared_by_all_who_send() {
        let p = path(Behaviour { rate_bps: 8_000_000_000, ..Behaviour::default() });
        let (free, mut d) = (AtomicU64::new(0), Draws::new(1, 2));
        // 1 byte a ns.
        assert_eq!(p.fate(100, 1000, 0, &mut d, &free).departs, 1100);
        assert_eq!(p.fate(100, 1000, 0, &mut d, &free).departs, 2100);
        assert_eq!(p.fate(9000, 1000, 0, &mut d, &free).departs, 10_000);
    }

    #[test]
    fn a_fault_swallows_what_is_sent_in_it() {
        let timed = Fault { after_ns: Some(500), after_packets: None, for_ns: Some(100), for_packets: None };
        let p = path(Behaviour { faults: vec![timed], ..Behaviour::default() });
        let (free, mut d) = (AtomicU64::new(0), Draws::new(1, 2));
        let mut arrives = |now| p.fate(now, 1, 0, &mut d, &free).arrives.is_some();
        assert_eq!([1499, 1500, 1599, 1600].map(&mut arrives), [true, false, false, true]);
        let counted = Fault { after_ns: None, after_packets: Some(2), for_ns: None, for_packets: Some(3) };
        let p = path(Behaviour { faults: vec![counted], ..Behaviour::default() });
        let mut arrives = |now| p.fate(now, 1, 0, &mut d, &free).arrives.is_some();
        assert_eq!([1, 2, 3, 4, 5, 6].map(&mut arrives), [true, true, false, false, false, true]);
    }

    proptest! {
        #[test]
        fn packets_of_a_qp_keep_their_order(seed: u64, jitter in 0u64..1_000_000, reorder in 0.0..1.0f64) {
            let b = Behaviour { jitter_ns: jitter, delay_ns: 100, reorder, reorder_ns: 500_000, ..Behaviour::default() };
            let (p, free, mut d) = (path(b), AtomicU64::new(0), Draws::new(seed, 0));
            let mut last = 0;
            for now in (0..10_000).step_by(100) {
                let fate = p.fate(now, 64, last, &mut d, &free);
                let arrives = fate.arrives.expect("no loss");
                prop_assert!(arrives >= last && arrives >= now + 100);
                last = arrives;
            }
        }

        #[test]
        fn the_same_seed_loses_the_same_packets(seed: u64) {
            let run = || {
                let p = path(Behaviour { loss: 0.3, ..Behaviour::default() });
                let (free, mut d) = (AtomicU64::new(0), Draws::new(seed, 7));
                (0..200).map(|now| p.fate(now, 64, 0, &mut d, &free).arrives.is_some()).collect::<Vec<_>>()
            };
            prop_assert_eq!(run(), run());
        }
    }
}
