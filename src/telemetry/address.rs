//! Where this process listens for other processes' side channels, in the segment: what their directories look for.

use super::pool::Pool;
use super::registry::{Device, Telemetry};
use crate::shm::layout::{AddressRecord, Kind, NONE};
use crate::shm::segment::{put, put_gid};
use core::sync::atomic::Ordering::{Relaxed, Release};
use std::collections::HashSet;

/// Records of the segment, and what they say.
#[derive(Default)]
pub(super) struct Addresses {
    /// Made with the first.
    pool: Option<Pool<AddressRecord>>,
    known: HashSet<(u32, [u8; 16])>,
}

impl Telemetry {
    /// The side channel lives in this network namespace, as [`crate::control::directory::network`] names it.
    pub fn is_in_network(&self, network: u64) {
        self.segment().header().network.store(network, Relaxed);
    }

    /// QPs of a device's port and GID are found at `own_port` of the GID's address. Saying it again does nothing. If the
    /// segment has no room, other processes of this host do not find them.
    pub fn listens(&self, device: &Device, port_num: u8, gid: [u8; 16], own_port: u16) {
        let port = self.port_of(device, port_num);
        self.with_addresses(|addresses, segment| {
            if port == NONE || !addresses.known.insert((port, gid)) {
                return;
            }
            if addresses.pool.is_none() {
                addresses.pool = Pool::new(segment, Kind::Address, 16).ok();
            }
            let Some(pool) = &mut addresses.pool else { return };
            let Some(record) = pool.take(segment).map(|i| pool.get(i)) else { return };
            put(&record.port, port);
            put(&record.own_port, u32::from(own_port));
            put_gid(&record.gid, gid);
            record.used.store(1, Release);
        });
    }
}
