//! Which rank is at the far end of a QP: found where the far end is a QP of another process of this host, else in a map of
//! addresses.

use crate::error::Failure;
use crate::frame::{Frame, Process};
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use telereduce::shm::model::{QpView, index};
use telereduce::shm::snapshot::{QpJson, SegmentJson};

/// Ranks by address; `None`: the address has several.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Map(HashMap<String, Option<u64>>);

impl Map {
    /// Reads a file of lines `ADDRESS RANK`; what follows a `#` is left out.
    ///
    /// # Errors
    /// It cannot be read, or a line is not such a one.
    pub fn read(path: &Path) -> Result<Map, Failure> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
        Map::parse(&text)
            .map_err(|n| Failure::new(format!("{}:{n}: not `ADDRESS RANK`, such as `10.1.0.1 0`", path.display())))
    }

    /// The number of the first line that is wrong, if one is.
    fn parse(text: &str) -> Result<Map, usize> {
        let mut map = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let (address, rank) = match words[..] {
                [] => continue,
                [address, rank] => (address, rank.parse().map_err(|_| number)?),
                _ => return Err(number),
            };
            let known = map.entry(plain(address)).or_insert(Some(rank));
            *known = known.filter(|k| *k == rank);
        }
        Ok(Map(map))
    }

    fn find(&self, address: &str) -> Option<u64> {
        self.0.get(&plain(address)).copied().flatten()
    }
}

/// An address as trtop writes it.
fn plain(address: &str) -> String {
    address.parse::<IpAddr>().map_or_else(|_| address.into(), |ip| ip.to_canonical().to_string())
}

/// One end of a connection: the address and the number of its QP, and of the QP that it is connected to.
type End<'a> = ((&'a str, u32), (&'a str, u32));

fn end(q: &QpJson) -> Option<End<'_>> {
    let own = (q.source.as_deref()?, q.qp_num);
    Some((own, (q.peer.as_deref()?, q.dest_qp_num?))).filter(|_| q.live)
}

/// Fills in the ranks of peers. `others`: more segments of this host.
pub fn fill(segments: &mut [SegmentJson], others: &[SegmentJson], map: &Map) {
    let mut ranks = HashMap::new();
    for s in segments.iter().chain(others).filter(|s| s.rank.is_some()) {
        ranks.extend(s.qps.iter().filter_map(end).map(|own_and_far| (own_and_far, s.rank)));
    }
    let of = |q: &QpJson| {
        let here = end(q).and_then(|(own, far)| ranks.get(&(far, own)).copied().flatten());
        here.or_else(|| map.find(q.peer.as_deref()?))
    };
    let found: Vec<Vec<Option<u64>>> = segments.iter().map(|s| s.qps.iter().map(of).collect()).collect();
    for (s, found) in segments.iter_mut().zip(found) {
        s.qps.iter_mut().zip(found).for_each(|(q, rank)| q.peer_rank = rank);
        let mut of_peers: HashMap<(&str, &str, u32), Option<u64>> = HashMap::new();
        for q in s.qps.iter().filter(|q| q.live) {
            if let (Some(peer), Some(device), Some(port)) = (&q.peer, &q.device, q.port) {
                let known = of_peers.entry((peer, device, port)).or_insert(q.peer_rank);
                *known = common(*known, q.peer_rank);
            }
        }
        for p in &mut s.peers {
            let Some(name) = p.ip.as_deref().or(p.gid.as_deref()) else { continue };
            let of_qps = of_peers.get(&(name, &*p.device, p.port)).copied();
            p.peer_rank = of_qps.unwrap_or_else(|| map.find(name));
        }
    }
}

/// The rank of a peer of whose QPs some have the one, some the other.
fn common(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.filter(|_| one == other)
}

/// As [`End`], in bytes.
type Ends = (([u8; 16], u32), ([u8; 16], u32));

fn ends(p: &Process, at: usize, q: &QpView) -> Option<Ends> {
    let own = p.now.labels.get(at)?.local_gid?;
    let far = p.now.peers.get(index(q.peer)?)?.gid?;
    (q.live && q.dest_qp_num != 0).then_some(((own, q.qp_num), (far, q.dest_qp_num)))
}

/// Fills in the ranks of peers for a screen.
pub fn fill_frame(frame: &mut Frame) {
    let mut ranks: FxHashMap<Ends, u64> = FxHashMap::default();
    for p in &frame.processes {
        let Some(rank) = p.rank else { continue };
        ranks.extend(p.now.qps.iter().enumerate().filter_map(|(at, q)| Some((ends(p, at, q)?, rank))));
    }
    for p in &mut frame.processes {
        p.ranks_of_qps.clear();
        p.ranks_of_peers.clear();
        if ranks.is_empty() {
            continue;
        }
        let of = |(at, q)| ends(p, at, q).and_then(|(own, far)| ranks.get(&(far, own)).copied());
        p.ranks_of_qps = p.now.qps.iter().enumerate().map(of).collect();
        let mut of_peers: Vec<Option<Option<u64>>> = vec![None; p.now.peers.len()];
        for (q, rank) in p.now.qps.iter().zip(&p.ranks_of_qps).filter(|(q, _)| q.live) {
            if let Some(known) = index(q.peer).and_then(|i| of_peers.get_mut(i)) {
                *known = Some(common(known.unwrap_or(*rank), *rank));
            }
        }
        p.ranks_of_peers = of_peers.into_iter().map(Option::flatten).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use telereduce::shm::model::Line;

    fn segment(rank: u64, qp: (&str, u32), far: (&str, u32)) -> SegmentJson {
        let latency = json!({"samples": 0, "buckets": []});
        let serde_json::Value::Object(mut rest) = json!(Line::default()) else {
            unreachable!("counters are an object")
        };
        for n in ["opcodes", "errors", "recv_errors"] {
            rest.insert(n.into(), json!({}));
        }
        rest.insert("latency_post_to_poll".into(), latency);
        let with = |own: serde_json::Value| {
            let mut all = rest.clone();
            all.extend(own.as_object().unwrap().clone());
            serde_json::Value::from(all)
        };
        let q = with(json!({"qp_num": qp.1, "type": "RC", "live": true, "device": "d", "port": 1, "peer": far.0,
            "dest_qp_num": far.1, "source": qp.0, "max_send_wr": 1, "max_recv_wr": 1, "opaque": false, "created_ns": 1}));
        let p = with(json!({"device": "d", "port": 1, "ip": far.0, "lid": 0, "qps_live": 1}));
        serde_json::from_value(
            json!({"pid": rank, "uid": 0, "start_time_ticks": 0, "command": "", "host": "h", "rank": rank,
            "alive": true, "created_ns": 0, "heartbeat_ns": 0, "latency_every": 64, "missed": {"objects_untracked": 0,
            "wrs_unseen": 0, "objects_opaque": 0, "completions_unmatched": 0, "panics": 0, "events_overwritten": 0},
            "contexts": [], "ports": [], "peers": [p], "qps": [q], "srqs": [], "cqs": []}),
        )
        .unwrap()
    }

    #[test]
    fn both_ends_of_a_connection_name_each_other() {
        let mut s = [
            segment(3, ("10.1.0.1", 7), ("10.1.0.2", 8)),
            segment(5, ("10.1.0.2", 8), ("10.1.0.1", 7)),
            // The same numbers, but connected elsewhere.
            segment(6, ("10.1.0.3", 8), ("10.9.0.1", 7)),
        ];
        fill(&mut s, &[], &Map::default());
        let ranks =
            |s: &[SegmentJson]| s.iter().map(|s| (s.qps[0].peer_rank, s.peers[0].peer_rank)).collect::<Vec<_>>();
        assert_eq!(ranks(&s), [(Some(5), Some(5)), (Some(3), Some(3)), (None, None)]);
        fill(&mut s, &[], &Map::parse("10.9.0.1 12 # elsewhere\n10.1.0.1 99").unwrap());
        assert_eq!(ranks(&s)[1..], [(Some(3), Some(3)), (Some(12), Some(12))]);
    }

    #[test]
    fn a_map_says_what_it_knows_for_certain() {
        let m = Map::parse("# all\n\n10.1.0.1 0\n::ffff:10.1.0.2 1\nfd00:0::1 2\n10.1.0.4 4\n10.1.0.4 5").unwrap();
        assert_eq!(
            ["10.1.0.1", "10.1.0.2", "fd00::1", "10.1.0.4", "x"].map(|a| m.find(a)),
            [Some(0), Some(1), Some(2), None, None]
        );
        assert_eq!((Map::parse("a 1\nb"), Map::parse("a b"), Map::parse("a 1 2")), (Err(2), Err(1), Err(1)));
    }
}
