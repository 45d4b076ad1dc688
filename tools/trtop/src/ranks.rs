//! Which rank is at the far end of a QP: found where the far end is a QP of another process of this host, else in a map of
//! addresses.

use crate::error::Failure;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
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
    let mut ends = HashMap::new();
    for s in segments.iter().chain(others) {
        for (own, far) in s.qps.iter().filter_map(end) {
            ends.insert((own.0.to_string(), own.1, far.0.to_string(), far.1), s.rank);
        }
    }
    for s in segments.iter_mut() {
        for q in &mut s.qps {
            let here = end(q).and_then(|(own, far)| {
                *ends.get(&(far.0.to_string(), far.1, own.0.to_string(), own.1)).unwrap_or(&None)
            });
            q.peer_rank = here.or_else(|| map.find(q.peer.as_deref()?));
        }
        for p in &mut s.peers {
            let name = p.ip.as_deref().or(p.gid.as_deref());
            let of_peer = |q: &&QpJson| {
                q.live && q.peer.as_deref() == name && q.device.as_deref() == Some(&p.device) && q.port == Some(p.port)
            };
            let mut ranks: Vec<_> = s.qps.iter().filter(of_peer).map(|q| q.peer_rank).collect();
            ranks.dedup();
            // One alone, or none.
            p.peer_rank = match ranks[..] {
                [] => name.and_then(|n| map.find(n)),
                [rank] => rank,
                _ => None,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn segment(rank: u64, qp: (&str, u32), far: (&str, u32)) -> SegmentJson {
        let zeros: serde_json::Map<_, _> = [
            "wr_posted",
            "wr_completed",
            "wr_failed",
            "wr_dropped",
            "wr_outstanding",
            "bytes_posted",
            "bytes_completed",
            "bytes_failed",
            "bytes_dropped",
            "bytes_outstanding",
            "wr_high_water",
            "bytes_high_water",
            "cqes",
        ]
        .into_iter()
        .map(|n| (n.into(), json!(0)))
        .collect();
        let latency = json!({"samples": 0, "buckets": []});
        let mut rest = zeros.clone();
        rest.insert("recv".into(), zeros.into());
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
