//! The moments at which a bandwidth became another: what one looks for first in a recording.

/// Points before and after a moment that are compared.
const WINDOW: usize = 5;
/// Less than half, or more than twice as much.
const RATIO: f64 = 2.0;
/// What is less than this part of the series' largest value is nothing.
const NOTHING: f64 = 0.02;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Time, in the unit of the points: the beginning of the first interval that has the new value.
    pub at: f64,
    /// Median before.
    pub before: f64,
    /// Median after.
    pub after: f64,
}

/// Finds them in values over time. A value is that of the interval which ends at its time.
pub fn changes(points: &[(f64, f64)]) -> Vec<Change> {
    let most = points.iter().map(|p| p.1).fold(0.0, f64::max);
    let differ = |a: f64, b: f64| {
        let (low, high) = if a < b { (a, b) } else { (b, a) };
        high > most * NOTHING && high > low * RATIO
    };
    let mut found = Vec::new();
    let mut i = WINDOW;
    while i + WINDOW <= points.len() {
        let (before, after) = (median(&points[i - WINDOW..i]), median(&points[i..i + WINDOW]));
        if !differ(before, after) {
            i += 1;
            continue;
        }
        // Within the two windows it is where the first value is nearer to what came than to what was.
        let near = |v: f64| (v - after).abs() < (v - before).abs();
        let first = (i - WINDOW..i + WINDOW).find(|k| points[*k..i + WINDOW].iter().all(|p| near(p.1))).unwrap_or(i);
        let at = if first > 0 { points[first - 1].0 } else { points[first].0 };
        found.push(Change { at, before, after });
        i = first.max(i) + WINDOW;
    }
    found
}

fn median(points: &[(f64, f64)]) -> f64 {
    let mut v: Vec<f64> = points.iter().map(|p| p.1).collect();
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps(values: &[(usize, f64)]) -> Vec<(f64, f64)> {
        let all = values.iter().flat_map(|(n, v)| std::iter::repeat_n(*v, *n));
        all.enumerate().map(|(i, v)| (i as f64 + 1.0, v)).collect()
    }

    #[test]
    fn a_path_that_is_throttled_and_freed_changes_twice() {
        let c = changes(&steps(&[(30, 40.0), (30, 4.0), (30, 40.0)]));
        assert_eq!(c.iter().map(|c| c.at).collect::<Vec<_>>(), [30.0, 60.0]);
        assert_eq!((c[0].before, c[0].after), (40.0, 4.0));
    }

    #[test]
    fn what_wavers_or_stutters_once_does_not_change() {
        let mut p = steps(&[(60, 40.0)]);
        p.iter_mut().step_by(2).for_each(|p| p.1 = 55.0);
        p[20].1 = 0.0;
        assert_eq!(changes(&p), []);
        assert_eq!(changes(&steps(&[(60, 0.0)])), []);
    }

    proptest! {
        #[test]
        fn a_change_is_found_where_it_is(n in 8usize..40, noise in proptest::collection::vec(-0.2f64..0.2, 80)) {
            let mut p = steps(&[(n, 100.0), (40, 10.0)]);
            for (p, n) in p.iter_mut().zip(noise) {
                p.1 *= 1.0 + n;
            }
            let c = changes(&p);
            prop_assert_eq!(c.len(), 1);
            prop_assert_eq!(c[0].at, n as f64);
        }
    }
}
