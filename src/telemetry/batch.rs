//! The WRs that a program builds with `ibv_wr_*`, between `ibv_wr_start` and `ibv_wr_complete`.
//!
//! They are the queue's only when the provider has taken them all, so until then they are kept here. There is no lock:
//! who builds holds the provider's.

use super::peer::Peer;
use crate::verbs::SendFacts;

/// WRs of one batch, in order; as many as the queue can hold.
pub struct Batch {
    wrs: Box<[SendFacts]>,
    len: usize,
    /// Bytes of the newest WR that are not in its scatter/gather list.
    besides: u64,
    /// WRs for which there was no room: more than the provider said that it can take.
    left_out: u64,
    /// Of a UD QP: where they go, up to the last of which that was said.
    peers: Vec<Option<&'static Peer>>,
}

impl Batch {
    /// An empty one for a queue of this depth.
    pub fn new(max_send_wr: u32) -> Batch {
        // Providers round up; memory that is never written is never there.
        let room = (max_send_wr.clamp(8, 1 << 20) as usize).next_power_of_two() * 2;
        Batch {
            wrs: vec![SendFacts::default(); room].into_boxed_slice(),
            len: 0,
            besides: 0,
            left_out: 0,
            peers: Vec::new(),
        }
    }

    /// As [`Batch::new`], of a UD QP.
    pub fn of_datagrams(max_send_wr: u32) -> Batch {
        let batch = Batch::new(max_send_wr);
        Batch { peers: Vec::with_capacity(batch.wrs.len()), ..batch }
    }

    /// Forgets what is in it.
    #[inline(always)]
    pub fn clear(&mut self) {
        (self.len, self.left_out) = (0, 0);
        self.peers.clear();
    }

    /// A WR begins. Its bytes are those that do not come from a list: a TSO header, an ATOMIC_WRITE's operand.
    #[inline(always)]
    pub fn add(&mut self, wr: SendFacts) {
        match self.wrs.get_mut(self.len) {
            Some(place) => {
                *place = wr;
                self.len += 1;
                self.besides = wr.bytes;
            }
            None => self.left_out += 1,
        }
    }

    /// The list or the inline data of the newest WR has so many bytes.
    #[inline(always)]
    pub fn set_bytes(&mut self, bytes: u64) {
        if self.left_out == 0
            && let Some(newest) = self.len.checked_sub(1).and_then(|i| self.wrs.get_mut(i))
        {
            newest.bytes = self.besides.wrapping_add(bytes);
        }
    }

    /// The newest WR goes there.
    pub fn set_peer(&mut self, peer: Option<&'static Peer>) {
        if self.left_out == 0 && (1..=self.peers.capacity()).contains(&self.len) {
            self.peers.resize(self.len, None);
            if let Some(newest) = self.peers.last_mut() {
                *newest = peer;
            }
        }
    }

    /// Where its WRs go, as far as it was said: those behind the last go nowhere known.
    pub fn peers(&self) -> &[Option<&'static Peer>] {
        &self.peers
    }

    /// Its WRs.
    #[inline(always)]
    pub fn wrs(&self) -> &[SendFacts] {
        self.wrs.get(..self.len).unwrap_or_default()
    }

    /// How many are not in it.
    #[inline(always)]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::testing::peer;

    fn wr(wr_id: u64, bytes: u64) -> SendFacts {
        SendFacts { wr_id, bytes, ..SendFacts::default() }
    }

    #[test]
    fn the_newest_wr_has_what_was_set_last() {
        let mut b = Batch::new(4);
        b.set_bytes(5);
        b.add(wr(1, 0));
        b.set_bytes(10);
        b.add(wr(2, 54));
        b.set_bytes(7);
        b.set_bytes(1000);
        assert_eq!(b.wrs(), [wr(1, 10), wr(2, 1054)]);
        b.clear();
        assert_eq!(b.wrs(), []);
    }

    #[test]
    fn the_newest_wr_goes_where_it_was_said_last() {
        let (p, q) = (peer(1), peer(2));
        let of = |b: &Batch| b.peers().iter().map(|p| p.map(|p| p.index)).collect::<Vec<_>>();
        let mut b = Batch::of_datagrams(4);
        b.set_peer(Some(p));
        assert_eq!(of(&b), []);
        b.add(wr(1, 0));
        b.add(wr(2, 0));
        b.set_peer(Some(p));
        b.set_peer(Some(q));
        b.add(wr(3, 0));
        assert_eq!(of(&b), [None, Some(2)]);
        b.add(wr(4, 0));
        b.set_peer(Some(p));
        assert_eq!(of(&b), [None, Some(2), None, Some(1)]);
        (5..30).for_each(|i| b.add(wr(i, 0)));
        b.set_peer(Some(q));
        assert_eq!(of(&b), [None, Some(2), None, Some(1)], "the newest had no room");
        b.clear();
        assert_eq!(of(&b), []);
        b.add(wr(1, 0));
        b.set_peer(None);
        assert_eq!(of(&b), [None]);
        let mut connected = Batch::new(4);
        connected.add(wr(1, 0));
        connected.set_peer(Some(p));
        assert_eq!(of(&connected), [], "no memory is taken for a QP with one peer");
    }

    #[test]
    fn what_has_no_room_is_counted_and_changes_nothing() {
        let mut b = Batch::new(1);
        for i in 0..20 {
            b.add(wr(i, i));
        }
        b.set_bytes(99);
        assert_eq!((b.wrs().len(), b.wrs()[15], b.left_out()), (16, wr(15, 15), 4));
    }
}
