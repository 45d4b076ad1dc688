//! Which lane takes the next piece: the first of what may become several ways.
//!
//! Equal turns. Every lane with room takes one piece per round, up to [`Settings::depth`](super::plan::Settings::depth)
//! in flight for this QP; a lane that is slow has no room, and so takes less by itself. The round goes on where it
//! stopped, so that messages of few pieces do not all meet on the first lane.

/// A lane, as one QP's engine sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lane {
    /// It takes new pieces.
    pub up: bool,
    /// Pieces of this QP in flight on it.
    pub live: u32,
}

/// Equal turns.
#[derive(Debug, Default)]
pub struct Turns {
    next: usize,
}

impl Turns {
    /// The lane for the next piece. `room[lane]`: places free on it; a lane without an entry has none.
    pub fn pick(
        &mut self,
        lanes: impl ExactSizeIterator<Item = Lane> + Clone,
        room: &[u32],
        depth: u32,
    ) -> Option<usize> {
        let n = lanes.len().min(room.len());
        let takes = |(i, l): &(usize, Lane)| l.up && l.live < depth && room[*i] > 0;
        let mut open = lanes.take(n).enumerate().filter(takes);
        let first = open.clone().find(|(i, _)| *i >= self.next).or_else(|| open.next())?.0;
        self.next = first + 1;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: Lane = Lane { up: true, live: 0 };

    #[test]
    fn turns_are_equal_and_skip_whoever_has_no_room() {
        let mut t = Turns::default();
        let mut room = [2, 0, 2, 9];
        let lanes = [UP, UP, UP, Lane { up: false, live: 0 }, UP];
        let mut taken = vec![];
        while let Some(l) = t.pick(lanes.iter().copied(), &room, 2) {
            room[l] -= 1;
            taken.push(l);
        }
        assert_eq!(taken, [0, 2, 0, 2], "lane 1 is full, 3 is down, 4 has no entry");
    }

    #[test]
    fn a_round_goes_on_where_it_stopped() {
        let mut t = Turns::default();
        let lanes = [UP; 3];
        let taken: Vec<_> = (0..4).map(|_| t.pick(lanes.iter().copied(), &[9; 3], 2).unwrap()).collect();
        assert_eq!(taken, [0, 1, 2, 0]);
    }

    #[test]
    fn no_lane_takes_more_than_its_depth() {
        let mut t = Turns::default();
        let lanes = [Lane { up: true, live: 2 }, Lane { up: true, live: 1 }];
        assert_eq!(t.pick(lanes.iter().copied(), &[9; 2], 2), Some(1));
        assert_eq!(t.pick(lanes[..1].iter().copied(), &[9; 2], 2), None);
    }
}
