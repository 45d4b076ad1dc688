//! What the side channel's tests share.

use super::gid;
use super::wire::QpAddr;
use crate::seeded::splitmix64;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Numbers that look random and are the same for the same seed (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    /// A number under `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// A QP by the IPv4 address of its GID.
pub fn qp(ip: [u8; 4], qpn: u32) -> QpAddr {
    QpAddr { gid: gid::from_ip(ip.into()), qpn }
}

/// What is known of QPs, shared with those who ask.
pub struct Table<T>(Arc<Mutex<HashMap<QpAddr, T>>>);

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        Table(self.0.clone())
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table(Arc::default())
    }
}

impl<T: Copy> Table<T> {
    pub fn get(&self, qp: &QpAddr) -> Option<T> {
        self.0.lock().unwrap().get(qp).copied()
    }

    pub fn set(&self, qp: QpAddr, value: T) {
        self.0.lock().unwrap().insert(qp, value);
    }

    pub fn remove(&self, qp: &QpAddr) {
        self.0.lock().unwrap().remove(qp);
    }
}
