//! Address handles in the registry: which peer each of them leads to.

use super::{Address, Control, Device, Telemetry};
use crate::shm::layout::{NONE, PeerRecord};
use crate::telemetry::peer::Peer;
use std::sync::PoisonError;

/// Address handles that are known at a time; with them the table has 4 MB.
pub const MOST_HANDLES: usize = 1 << 17;
/// Peers that they lead to, each of some 2 KB in the segment.
pub const MOST_PEERS: usize = 1 << 13;

impl Telemetry {
    /// An address handle was created at `address`. If there is no room for it, its datagrams have no peer.
    pub fn create_handle(&self, device: &'static Device, address: usize, port_num: u8, to: Address) {
        // What had this address was destroyed behind our back.
        self.objects.handles.remove(address);
        let full = self.objects.handles.count() >= MOST_HANDLES;
        let mut c = self.control();
        let peer = if full || port_num == 0 { None } else { self.datagram_peer(&mut c, device, port_num, to) };
        match peer {
            // Under the registry's lock, so that it is there when its context is closed.
            Some(peer) => self.objects.handles.insert(address, peer),
            None => self.untracked(),
        }
    }

    /// Changes what retired QPs left to a peer.
    pub(super) fn change_peer(c: &Control, index: u32, change: impl FnOnce(&PeerRecord)) {
        let Some(peer) = c.peers.find(index) else { return };
        match c.peer_locks.get(&index) {
            Some(locks) => locks.hold(|| change(peer)),
            None => change(peer),
        }
    }

    fn datagram_peer(
        &self,
        c: &mut Control,
        device: &'static Device,
        port_num: u8,
        to: Address,
    ) -> Option<&'static Peer> {
        let name = device.name.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let port = Some(self.port(c, &name, port_num)).filter(|p| *p != NONE)?;
        let of_device = core::ptr::from_ref(device) as usize;
        if let Some(index) = c.peer_index.get(&(port, to))
            && let Some(peer) = c.datagram_peers.get(&(of_device, *index))
        {
            return Some(peer);
        }
        if c.datagram_peers.len() >= MOST_PEERS {
            return None;
        }
        let index = Some(self.peer(c, port, to)).filter(|p| *p != NONE)?;
        let locks = *c.peer_locks.entry(index).or_insert_with(|| Box::leak(Box::default()));
        let peer: &'static Peer = Box::leak(Box::new(Peer { index, port, device, record: c.peers.get(index), locks }));
        c.datagram_peers.insert((of_device, index), peer);
        Some(peer)
    }

    /// The address handle is about to be destroyed: posts no longer find it. What is in flight keeps its peer.
    pub fn hide_handle(&self, address: usize) -> Option<&'static Peer> {
        self.objects.handles.remove(address)
    }

    /// The provider refused to destroy it.
    pub fn show_handle(&self, address: usize, peer: &'static Peer) {
        self.objects.handles.insert(address, peer);
    }

    /// Address handles that a context still has are gone with it.
    pub(super) fn forget_handles(&self, device: &'static Device) {
        self.objects.handles.remove_all(|peer| core::ptr::eq(peer.device, device));
    }
}
