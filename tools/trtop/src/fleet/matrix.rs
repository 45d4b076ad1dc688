//! Flows as a matrix: rank by rank where both ranks of a flow are known, else host by host, or by the peer's address.

use super::model::Flow;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// An end of a flow. Ranks come first, by number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// With its host, or without, where that is not known.
    Rank(u64, String),
    Host(String),
}

/// Who sends how much to whom, bits per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Matrix {
    /// Rows.
    pub from: Vec<String>,
    /// Columns.
    pub to: Vec<String>,
    /// By row and column; none where there is no flow.
    pub bits_per_s: Vec<Vec<Option<f64>>>,
}

impl Matrix {
    /// Of all flows; those between the same two ends add up.
    pub fn of(flows: &[Flow]) -> Matrix {
        let mut ends: Vec<(End, End, f64)> = flows
            .iter()
            .map(|f| {
                let (a, b) = ends_of(f);
                (a, b, f.bits_per_s)
            })
            .collect();
        let places = places(&ends);
        let mut sums: BTreeMap<(End, End), f64> = BTreeMap::new();
        for (from, to, bits) in &mut ends {
            for end in [&mut *from, &mut *to] {
                settle(end, &places);
            }
            *sums.entry((from.clone(), to.clone())).or_default() += *bits;
        }
        let from: BTreeSet<&End> = sums.keys().map(|(f, _)| f).collect();
        let to: BTreeSet<&End> = sums.keys().map(|(_, t)| t).collect();
        let cell = |f: &End, t: &End| sums.get(&(f.clone(), t.clone())).copied();
        Matrix {
            bits_per_s: from.iter().map(|f| to.iter().map(|t| cell(f, t)).collect()).collect(),
            from: from.iter().map(|e| e.name(&places)).collect(),
            to: to.iter().map(|e| e.name(&places)).collect(),
        }
    }

    /// Pairs with a flow, the slowest first.
    pub fn pairs(&self) -> Vec<(&str, &str, f64)> {
        let row = |(f, cells): (usize, &Vec<Option<f64>>)| {
            let cells: Vec<_> = cells.iter().enumerate().filter_map(|(t, c)| Some((f, t, (*c)?))).collect();
            cells
        };
        let mut all: Vec<_> = self.bits_per_s.iter().enumerate().flat_map(row).collect();
        all.sort_by(|a, b| a.2.total_cmp(&b.2));
        all.into_iter().map(|(f, t, bits)| (self.from[f].as_str(), self.to[t].as_str(), bits)).collect()
    }

    /// The median of the flows that move, by which slow ones are known; none moves: 0.
    pub fn median(&self) -> f64 {
        let mut all: Vec<f64> = self.bits_per_s.iter().flatten().flatten().copied().filter(|b| *b > 0.0).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }
}

fn ends_of(f: &Flow) -> (End, End) {
    let peer_host = f.peer_host.clone();
    match (f.rank, f.peer_rank) {
        (Some(a), Some(b)) => (End::Rank(a, f.host.clone()), End::Rank(b, peer_host.unwrap_or_default())),
        _ => {
            let peer = if f.peer.is_empty() { "(no peer)" } else { &f.peer };
            (End::Host(f.host.clone()), End::Host(peer_host.unwrap_or_else(|| peer.into())))
        }
    }
}

type Places = BTreeMap<u64, BTreeSet<String>>;

/// Hosts of each rank: more than one, if several jobs run.
fn places(ends: &[(End, End, f64)]) -> Places {
    let mut places = Places::new();
    for end in ends.iter().flat_map(|(a, b, _)| [a, b]) {
        if let End::Rank(rank, host) = end
            && !host.is_empty()
        {
            places.entry(*rank).or_default().insert(host.clone());
        }
    }
    places
}

/// A rank whose host was not said is that of this number, if there is but one.
fn settle(end: &mut End, places: &Places) {
    if let End::Rank(rank, host) = end
        && host.is_empty()
        && let Some(only) = places.get(rank).filter(|p| p.len() == 1).and_then(|p| p.first())
    {
        host.clone_from(only);
    }
}

impl End {
    fn name(&self, places: &Places) -> String {
        match self {
            End::Rank(rank, host) if !host.is_empty() && places.get(rank).is_some_and(|p| p.len() > 1) => {
                format!("rank {rank} {host}")
            }
            End::Rank(rank, _) => format!("rank {rank}"),
            End::Host(host) => host.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow(host: &str, rank: Option<u64>, peer: (&str, Option<&str>, Option<u64>), bits_per_s: f64) -> Flow {
        let (peer, peer_host, peer_rank) = (peer.0.into(), peer.1.map(Into::into), peer.2);
        Flow { host: host.into(), rank, peer, peer_host, peer_rank, bits_per_s, ..Flow::default() }
    }

    #[test]
    fn ranks_where_both_are_known_else_hosts_else_addresses() {
        let m = Matrix::of(&[
            flow("b", Some(10), ("10.1.0.1", Some("a"), Some(9)), 3.0),
            flow("a", Some(9), ("10.1.0.2", Some("b"), Some(10)), 1.0),
            flow("a", Some(9), ("10.1.0.3", Some("b"), Some(10)), 1.5),
            flow("a", None, ("10.1.0.2", Some("b"), Some(10)), 4.0),
            flow("a", Some(9), ("10.1.0.9", None, None), 5.0),
        ]);
        assert_eq!(m.from, ["rank 9", "rank 10", "a"]);
        assert_eq!(m.to, ["rank 9", "rank 10", "10.1.0.9", "b"]);
        let row = |i: usize| m.bits_per_s[i].clone();
        assert_eq!(row(0), [None, Some(2.5), None, None]);
        assert_eq!(row(1), [Some(3.0), None, None, None]);
        assert_eq!(row(2), [None, None, Some(5.0), Some(4.0)]);
        assert_eq!(m.pairs()[0], ("rank 9", "rank 10", 2.5));
    }

    #[test]
    fn ranks_of_two_jobs_are_told_apart() {
        let m = Matrix::of(&[
            flow("a", Some(0), ("10.1.0.2", Some("b"), Some(1)), 1.0),
            flow("c", Some(0), ("10.1.0.4", None, Some(1)), 2.0),
        ]);
        assert_eq!(m.from, ["rank 0 a", "rank 0 c"]);
        // Rank 1 has one known host only.
        assert_eq!(m.to, ["rank 1"]);
    }

    proptest! {
        #[test]
        fn no_bit_is_lost(all in prop::collection::vec((0u8..4, 0u8..5, 0u8..4, 0u8..5, any::<bool>(), 0u32..1000), 0..60)) {
            let rank = |r: u8| (r < 4).then_some(u64::from(r));
            let flows: Vec<Flow> = all.iter().map(|(h, r, ph, pr, known, bits)| {
                let (peer, peer_host) = (format!("10.1.0.{ph}"), format!("h{ph}"));
                flow(&format!("h{h}"), rank(*r), (&peer, known.then_some(&*peer_host), rank(*pr)), f64::from(*bits))
            }).collect();
            let m = Matrix::of(&flows);
            let sum: f64 = m.bits_per_s.iter().flatten().flatten().sum();
            prop_assert_eq!(sum, flows.iter().map(|f| f.bits_per_s).sum::<f64>());
            prop_assert_eq!(m.bits_per_s.len(), m.from.len());
            prop_assert!(m.bits_per_s.iter().all(|r| r.len() == m.to.len() && r.iter().any(Option::is_some)));
            let names: BTreeSet<&String> = m.from.iter().collect();
            prop_assert_eq!(names.len(), m.from.len());
        }
    }
}
