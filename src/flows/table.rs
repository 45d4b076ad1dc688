//! The windows of all flows of a process: per (port, peer), and per QP of each.

use super::window::{Bandwidth, Window};
use crate::shm::layout::NONE;
use rustc_hash::FxHashMap as HashMap;

/// Which flow a completion belongs to; records' indices in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId {
    /// Port.
    pub port: u32,
    /// Peer.
    pub peer: u32,
    /// QP.
    pub qp: u32,
    /// The QP's number, since records are used again.
    pub qp_num: u32,
}

/// A completed transfer.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// CLOCK_REALTIME at its end, ns.
    pub end_ns: u64,
    /// Bytes.
    pub bytes: u64,
    /// What is outstanding on the QP after it.
    pub outstanding: Outstanding,
    /// Its QP sends datagrams, to many peers.
    pub is_datagram: bool,
}

/// WRs and bytes posted and not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// WRs.
    pub wr: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The windows, and what is outstanding.
pub struct Flows {
    records: usize,
    ports: HashMap<u32, Outstanding>,
    peers: HashMap<(u32, u32), Window>,
    /// By the QP's record: as many as the segment holds.
    qps: HashMap<u32, Queue>,
}

struct Queue {
    id: FlowId,
    window: Window,
    outstanding: Outstanding,
}

/// What is known of a flow after a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Bandwidth of the port with the peer.
    pub peer: Bandwidth,
    /// Of the QP.
    pub qp: Bandwidth,
    /// Outstanding at the port: of each QP as its last completion left it.
    pub port: Outstanding,
}

impl Outstanding {
    fn replace(&mut self, old: Outstanding, new: Outstanding) {
        self.wr = self.wr.wrapping_sub(old.wr).wrapping_add(new.wr);
        self.bytes = self.bytes.wrapping_sub(old.bytes).wrapping_add(new.bytes);
    }
}

impl Flows {
    /// No flows yet; windows of `records`.
    pub fn new(records: usize) -> Flows {
        Flows { records, ports: HashMap::default(), peers: HashMap::default(), qps: HashMap::default() }
    }

    /// A completion.
    pub fn push(&mut self, id: FlowId, done: Done) -> Standing {
        let known = if done.is_datagram { FlowId { peer: NONE, ..id } } else { id };
        if self.qps.get(&id.qp).is_some_and(|q| q.id != known) {
            // Another QP in the same record, or the same one connected to another peer.
            self.forget(id.qp);
        }
        let window = || Window::new(self.records);
        let new = || Queue { id: known, window: window(), outstanding: Outstanding::default() };
        let qp = self.qps.entry(id.qp).or_insert_with(new);
        qp.window.push(done.end_ns, done.bytes);
        let port = self.ports.entry(id.port).or_default();
        port.replace(qp.outstanding, done.outstanding);
        qp.outstanding = done.outstanding;
        let peer = self.peers.entry((id.port, id.peer)).or_insert_with(window);
        peer.push(done.end_ns, done.bytes);
        Standing { peer: peer.bandwidth(), qp: qp.window.bandwidth(), port: *port }
    }

    /// What is outstanding on each QP `now`; `None`: it is gone.
    pub fn refresh(&mut self, mut now: impl FnMut(FlowId) -> Option<Outstanding>) {
        let mut gone = Vec::new();
        for q in self.qps.values_mut() {
            match (now(q.id), self.ports.get_mut(&q.id.port)) {
                (Some(outstanding), Some(port)) => {
                    port.replace(q.outstanding, outstanding);
                    q.outstanding = outstanding;
                }
                _ => gone.push(q.id.qp),
            }
        }
        gone.into_iter().for_each(|qp| self.forget(qp));
    }

    fn forget(&mut self, qp: u32) {
        if let Some(q) = self.qps.remove(&qp)
            && let Some(port) = self.ports.get_mut(&q.id.port)
        {
            port.replace(q.outstanding, Outstanding::default());
        }
    }

    /// Bandwidth of a port with a peer.
    pub fn peer(&self, port: u32, peer: u32) -> Bandwidth {
        self.peers.get(&(port, peer)).map_or(Bandwidth::default(), Window::bandwidth)
    }

    /// Bandwidth of a QP, if that is whose record it is; one that sends datagrams has no peer.
    pub fn qp(&self, id: FlowId) -> Bandwidth {
        self.qps.get(&id.qp).filter(|q| q.id == id).map_or(Bandwidth::default(), |q| q.window.bandwidth())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FlowId = FlowId { port: 0, peer: 0, qp: 0, qp_num: 17 };

    fn done(end_ns: u64, bytes: u64) -> Done {
        Done { end_ns, bytes, outstanding: Outstanding::default(), is_datagram: false }
    }

    fn left(wr: u64) -> Done {
        Done { outstanding: Outstanding { wr, bytes: wr * 100 }, ..done(1, 1) }
    }

    #[test]
    fn a_port_has_what_its_qps_have() {
        let second = FlowId { qp: 1, qp_num: 18, peer: 1, ..A };
        let elsewhere = FlowId { port: 1, qp: 2, qp_num: 19, ..A };
        let mut f = Flows::new(10);
        let mut port = |id, d| f.push(id, d).port.wr;
        assert_eq!((port(A, left(3)), port(second, left(4)), port(elsewhere, left(9))), (3, 7, 9));
        assert_eq!((port(A, left(0)), port(A, left(2))), (4, 6));
        assert_eq!(f.push(A, left(2)).port, Outstanding { wr: 6, bytes: 600 });
        // Another QP in the record of the second, on another port: nothing of the second is left.
        assert_eq!(f.push(FlowId { port: 1, qp_num: 20, ..second }, left(5)).port.wr, 14);
        assert_eq!(f.push(A, left(2)).port.wr, 2);
        f.refresh(|id| (id != elsewhere).then_some(Outstanding { wr: 5, bytes: 500 }));
        assert_eq!(f.push(FlowId { port: 1, qp_num: 20, ..second }, left(5)).port.wr, 5);
    }

    #[test]
    fn a_window_never_mixes_peers() {
        let other_peer = FlowId { peer: 1, qp: 1, qp_num: 18, ..A };
        let other_port = FlowId { port: 1, qp: 2, qp_num: 19, ..A };
        let mut f = Flows::new(50);
        for i in 0..100 {
            f.push(A, done(i * 100, 100));
            f.push(other_peer, done(i * 100 + 1, 300));
            f.push(other_port, done(i * 100 + 2, 500));
        }
        let bits = |port, peer| f.peer(port, peer).bits_per_s() / 8_000_000;
        assert_eq!((bits(0, 0), bits(0, 1), bits(1, 0)), (1000, 3000, 5000));
        assert_eq!(f.peer(1, 1), Bandwidth::default());
    }

    #[test]
    fn qps_of_one_peer_add_up() {
        let second = FlowId { qp: 1, qp_num: 18, ..A };
        let mut f = Flows::new(10);
        for i in 0..20 {
            f.push(A, done(i * 100, 100));
            f.push(second, done(i * 100 + 50, 100));
        }
        let sum = f.peer(0, 0).gb_per_s();
        assert_eq!((sum, f.qp(A).gb_per_s(), f.qp(second).gb_per_s()), (16.0, 8.0, 8.0));
    }

    #[test]
    fn a_qp_that_sends_datagrams_has_one_window_and_each_peer_its_own() {
        let mut f = Flows::new(50);
        let to = |peer| FlowId { peer, ..A };
        let mut all = 0;
        for i in 0..10 {
            for (peer, bytes) in [(0, 100), (1, 300), (NONE, 500)] {
                all = f.push(to(peer), Done { is_datagram: true, ..done(i * 100, bytes) }).qp.bytes;
            }
        }
        // The first of 30 is where the window begins.
        assert_eq!((all, f.qp(to(NONE)).bytes), (9000 - 100, 9000 - 100));
        assert_eq!([0, 1, NONE].map(|peer| f.peer(0, peer).bytes), [900, 2700, 4500]);
    }

    #[test]
    fn a_record_used_again_starts_anew() {
        let mut f = Flows::new(10);
        f.push(A, done(100, 1000));
        f.push(A, done(200, 1000));
        let again = FlowId { qp_num: 99, ..A };
        assert_eq!(f.push(again, done(300, 5)).qp, Bandwidth::default());
        assert_eq!(f.qp(A), Bandwidth::default());
        // The same QP, connected to another peer.
        let moved = FlowId { peer: 3, ..again };
        assert_eq!(f.push(moved, done(400, 5)).qp, Bandwidth::default());
    }
}
