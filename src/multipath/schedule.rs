//! Which lane takes the next piece, and how much: the first of what may become several ways.
//!
//! Lanes take turns; each holds up to [`Settings::depth`](super::plan::Settings::depth) pieces of a QP, and takes another one
//! when it has room, so that a slow lane takes less by itself. A piece is a part of what the lane would carry of the rest,
//! by its speed: pieces are large while there is much left, and small when all lanes are to finish together. No piece takes
//! longer than [`PIECE_MS`], so that what other QPs have for the lane does not wait long, and none goes to a lane that would
//! need longer for it than the others for all that is left.

/// The longest that a piece should take on its lane, ms.
pub const PIECE_MS: u32 = 8;

/// Largest piece for a lane whose speed is not known yet, units.
const FIRST_UNITS: u64 = 4;

/// What a lane offers, as the driver sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Pieces that it takes now.
    pub room: u32,
    /// Its speed of late, kilobytes per second; 0: not known.
    pub speed: u32,
    /// Smaller pieces do not pay, bytes; see [`pace`](super::pace).
    pub least_bytes: u32,
}

/// A lane, as one QP's engine sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lane {
    /// It takes new pieces.
    pub up: bool,
    /// Pieces of this QP in flight on it.
    pub live: u32,
    /// Their bytes.
    pub live_bytes: u64,
}

/// What there is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Units of the message at hand that wait.
    pub units: u32,
    /// Bytes of a unit.
    pub unit_bytes: u32,
    /// Bytes that wait, those of later messages too if they may go now.
    pub bytes: u64,
    /// Largest piece, bytes.
    pub max_bytes: u32,
    /// Pieces that this QP keeps in flight on one lane.
    pub depth: u32,
}

/// Turns.
#[derive(Debug, Default)]
pub struct Turns {
    next: usize,
}

impl Turns {
    /// The lane for the next piece, and its units, at least 1. A lane without an offer has no room.
    pub fn pick(
        &mut self,
        lanes: impl ExactSizeIterator<Item = Lane> + Clone,
        offers: &[Offer],
        load: &Load,
    ) -> Option<(usize, u32)> {
        let n = lanes.len().min(offers.len());
        let up = || lanes.clone().take(n).enumerate().filter(|(_, l)| l.up);
        let (known, sum) = up().fold((0u32, 0u64), |(known, sum), (i, _)| {
            (known + u32::from(offers[i].speed > 0), sum + u64::from(offers[i].speed))
        });
        // A lane whose speed is not known counts as the average one.
        let average = sum.checked_div(u64::from(known)).unwrap_or(1).max(1);
        let speed = |i: usize| if offers[i].speed > 0 { u64::from(offers[i].speed) } else { average };
        let (mut all, mut live, mut count) = (0u64, 0u64, 0u32);
        for (i, l) in up() {
            (all, live, count) = (all + speed(i), live + l.live_bytes, count + 1);
        }
        let units = |i: usize| {
            let known = offers[i].speed > 0;
            let share = u128::from(load.units) * u128::from(speed(i)) / u128::from(all.max(1));
            let part = (share / u128::from(2 * load.depth)) as u64;
            let unit = u64::from(load.unit_bytes.max(1));
            let longest = if known { speed(i) * u64::from(PIECE_MS) / unit } else { FIRST_UNITS };
            let least = u64::from(offers[i].least_bytes) / unit;
            let most = longest.max(least).min(u64::from(load.max_bytes) / unit).max(1);
            part.clamp(least.clamp(1, most), most).min(u64::from(load.units.max(1))) as u32
        };
        // When a lane would be done with another piece; the soonest is late for nothing, or nobody might take the last one.
        let done = |i: usize, l: &Lane| {
            (l.live_bytes + u64::from(units(i)) * u64::from(load.unit_bytes)) as f64 / speed(i) as f64
        };
        let soonest = up().map(|(i, l)| done(i, &l)).fold(f64::INFINITY, f64::min);
        let is_late = |i: usize, l: &Lane| {
            let (mine, others) = (done(i, l), all - speed(i));
            let theirs = (load.bytes + live - l.live_bytes) as f64 / others.max(1) as f64;
            known == count && count > 1 && mine > theirs.max(soonest)
        };
        let takes = |(i, l): &(usize, Lane)| l.live < load.depth && offers[*i].room > 0 && !is_late(*i, l);
        let first = up().filter(takes).find(|(i, _)| *i >= self.next).or_else(|| up().find(takes))?.0;
        self.next = first + 1;
        Some((first, units(first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UP: Lane = Lane { up: true, live: 0, live_bytes: 0 };
    const LOAD: Load = Load { units: 100, unit_bytes: 1000, bytes: 100_000, max_bytes: 1000, depth: 2 };

    fn open(room: u32) -> Offer {
        Offer { room, ..Offer::default() }
    }

    #[test]
    fn turns_are_equal_and_skip_whoever_has_no_room() {
        let mut t = Turns::default();
        let mut offers = [2, 0, 2, 9].map(open);
        let lanes = [UP, UP, UP, Lane { up: false, ..UP }, UP];
        let mut taken = vec![];
        while let Some((l, 1)) = t.pick(lanes.iter().copied(), &offers, &LOAD) {
            offers[l].room -= 1;
            taken.push(l);
        }
        assert_eq!(taken, [0, 2, 0, 2], "lane 1 is full, 3 is down, 4 has no entry");
    }

    #[test]
    fn a_round_goes_on_where_it_stopped() {
        let mut t = Turns::default();
        let taken: Vec<_> = (0..4).map(|_| t.pick([UP; 3].into_iter(), &[open(9); 3], &LOAD).unwrap().0).collect();
        assert_eq!(taken, [0, 1, 2, 0]);
    }

    #[test]
    fn no_lane_takes_more_than_its_depth() {
        let mut t = Turns::default();
        let lanes = [Lane { live: 2, ..UP }, Lane { live: 1, ..UP }];
        assert_eq!(t.pick(lanes.iter().copied(), &[open(9); 2], &LOAD), Some((1, 1)));
        assert_eq!(t.pick(lanes[..1].iter().copied(), &[open(9); 2], &LOAD), None);
    }

    #[test]
    fn pieces_are_parts_of_a_lanes_share_and_take_no_longer_than_they_may() {
        let of = |speeds: [u32; 2], units: u32| {
            let load = Load { units, bytes: u64::from(units) * 1000, max_bytes: 1 << 20, ..LOAD };
            let offers = speeds.map(|speed| Offer { room: 9, speed, least_bytes: 0 });
            let mut t = Turns::default();
            [(); 2].map(|()| t.pick([UP; 2].into_iter(), &offers, &load).map(|(_, units)| units))
        };
        // A quarter of three quarters, and of one, of 800 units; 8 ms of 30,000 KB/s are 240.
        assert_eq!(of([30_000, 10_000], 800), [Some(150), Some(50)]);
        assert_eq!(of([30_000, 10_000], 16_000), [Some(240), Some(80)]);
        assert_eq!(of([0, 0], 16_000), [Some(4), Some(4)], "a speed that is not known is found out with little");
        assert_eq!(of([0, 10_000], 16), [Some(2), Some(2)], "one that is not known counts as the average");
    }

    #[test]
    fn the_last_pieces_do_not_go_where_they_would_be_late() {
        let offers = [1000, 10].map(|speed| Offer { room: 9, speed, least_bytes: 0 });
        let mut t = Turns { next: 1 };
        let few = Load { units: 10, bytes: 10_000, ..LOAD };
        assert_eq!(t.pick([UP; 2].into_iter(), &offers, &few), Some((0, 1)), "1 unit there takes as long as 100 here");
        let mut t = Turns { next: 1 };
        let many = Load { units: 1000, bytes: 1_000_000, ..LOAD };
        assert_eq!(t.pick([UP; 2].into_iter(), &offers, &many), Some((1, 1)));
        let full = [Offer { room: 0, ..offers[0] }, offers[1]];
        assert_eq!(t.pick([UP; 2].into_iter(), &full, &few), None, "it waits for the fast one");
    }

    #[test]
    fn the_last_piece_of_all_goes_though_one_lane_is_slower_than_the_others_together() {
        let last = Load { units: 1, bytes: 999, ..LOAD };
        let picked = |speeds: [u32; 4]| {
            Turns::default().pick(
                [UP; 4].into_iter(),
                &speeds.map(|speed| Offer { room: 4, speed, least_bytes: 0 }),
                &last,
            )
        };
        assert_eq!(picked([5000; 4]), Some((0, 1)), "all are idle, and no event would come");
        assert_eq!(picked([5000, 5001, 4999, 5000]), Some((1, 1)), "the fastest");
    }

    proptest! {
        /// Whatever they are: all alike, and idle, too.
        #[test]
        fn some_lane_is_never_late(
            speeds in prop::collection::vec(prop_oneof![Just(5000), 4990u32..5010, 0u32..=u32::MAX], 1..16),
            units in prop_oneof![1u32..4, 1u32..70_000],
            live in prop_oneof![Just(vec![0; 16]), prop::collection::vec(prop_oneof![Just(0), 0u64..1 << 40], 16)],
            unit in 1u32..1 << 24, least_bytes in prop_oneof![Just(0), 0u32..2 << 20]
        ) {
            let offers: Vec<Offer> = speeds.iter().map(|s| Offer { room: 1, speed: *s, least_bytes }).collect();
            let lanes: Vec<Lane> = live.iter().take(speeds.len()).map(|b| Lane { live_bytes: *b, ..UP }).collect();
            let load = Load { units, unit_bytes: unit, bytes: u64::from(units) * u64::from(unit), max_bytes: 1 << 20, depth: 2 };
            let picked = Turns::default().pick(lanes.iter().copied(), &offers, &load);
            let (lane, n) = picked.expect("all have room");
            prop_assert!(lane < speeds.len() && n >= 1 && n <= units);
        }
    }
}
