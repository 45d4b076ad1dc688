//! The pieces that are in flight on lanes, or lost and still able to arrive.

use super::op::Run;

/// One piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    /// Number of its WR; 0: that WR was forgotten by a RESET.
    pub seq: u64,
    /// Which units it has.
    pub run: Run,
    /// Bytes.
    pub bytes: u32,
    pub lane: usize,
    /// How often that lane had been replaced.
    pub age: u32,
    /// It is a READ.
    pub reads: bool,
    /// The status it was lost with; `None` while in flight.
    pub lost: Option<(u32, u32)>,
}

/// Slab of pieces. A token is a place and its generation, so that a completion that comes twice finds nothing.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    places: Vec<(u32, Option<Chunk>)>,
    free: Vec<u32>,
}

impl Chunks {
    /// Adds a piece; returns its token.
    pub fn insert(&mut self, chunk: Chunk) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[at as usize];
        place.1 = Some(chunk);
        u64::from(place.0) << 32 | u64::from(at)
    }

    fn place(&mut self, token: u64) -> Option<&mut (u32, Option<Chunk>)> {
        let place = self.places.get_mut(token as u32 as usize)?;
        (place.0 == (token >> 32) as u32).then_some(place)
    }

    /// Removes a piece.
    pub fn remove(&mut self, token: u64) -> Option<Chunk> {
        let place = self.place(token)?;
        let chunk = place.1.take()?;
        place.0 = place.0.wrapping_add(1);
        self.free.push(token as u32);
        Some(chunk)
    }

    /// A piece in flight.
    pub fn get_mut(&mut self, token: u64) -> Option<&mut Chunk> {
        self.place(token)?.1.as_mut()
    }

    /// Removes a lost piece of this lane.
    pub fn take_lost(&mut self, lane: usize) -> Option<Chunk> {
        let at = self.places.iter().position(|(_, c)| c.is_some_and(|c| c.lane == lane && c.lost.is_some()))?;
        self.remove(u64::from(self.places[at].0) << 32 | at as u64)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// The WRs are forgotten; pieces in flight still are.
    pub fn orphan(&mut self) {
        for c in self.places.iter_mut().filter_map(|p| p.1.as_mut()) {
            c.seq = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(lane: usize, lost: bool) -> Chunk {
        Chunk {
            seq: 1,
            run: Run { first: 0, count: 1 },
            bytes: 1,
            lane,
            age: 0,
            reads: false,
            lost: lost.then_some((12, 0)),
        }
    }

    #[test]
    fn a_token_serves_once() {
        let mut c = Chunks::default();
        let (a, b) = (c.insert(chunk(0, false)), c.insert(chunk(1, false)));
        assert!(c.remove(a).is_some() && c.remove(a).is_none());
        let again = c.insert(chunk(2, false));
        assert!(again != a && c.get_mut(a).is_none() && c.get_mut(again).is_some());
        assert!(c.remove(b).is_some() && c.remove(again).is_some() && c.is_empty());
        assert!(c.remove(77).is_none());
    }

    #[test]
    fn lost_pieces_are_found_by_lane() {
        let mut c = Chunks::default();
        for (lane, lost) in [(0, false), (1, true), (0, true), (1, true)] {
            c.insert(chunk(lane, lost));
        }
        assert!(c.take_lost(1).is_some() && c.take_lost(1).is_some() && c.take_lost(1).is_none());
        assert!(c.take_lost(0).is_some() && c.take_lost(0).is_none() && !c.is_empty());
    }
}
