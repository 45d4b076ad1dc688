//! Which QPs have several paths, which have one, and why.

use std::collections::BTreeMap;
use telereduce::multipath::single::Single;
use telereduce::shm::snapshot::SegmentJson;

/// QPs that are named, at most.
const NAMED: usize = 8;

/// A line per reason, after one for the QPs with several paths; none where multi-path is off. No reason is a fault: all bytes
/// are counted, and travel as without multi-path.
pub fn of_segment(s: &SegmentJson) -> Vec<String> {
    let mut several = 0u64;
    let mut single: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (q, m) in s.qps.iter().filter(|q| q.live).filter_map(|q| Some((q, q.multipath.as_ref()?))) {
        match &m.single_path {
            Some(why) => single.entry(why).or_default().push(q.qp_num),
            None => several += 1,
        }
    }
    let mut lines = Vec::new();
    if several > 0 {
        lines.push(format!("multi-path: {} of several paths", qps(several)));
    }
    for (why, numbers) in single {
        let mut named: Vec<String> = numbers.iter().take(NAMED).map(u32::to_string).collect();
        if numbers.len() > NAMED {
            named.push("...".into());
        }
        let advice = Single::from_name(why).map_or("a reason of another version", Single::advice);
        lines.push(format!(
            "multi-path: {} of one path, {why}: {advice} (QP {})",
            qps(numbers.len() as u64),
            named.join(", ")
        ));
    }
    lines
}

fn qps(n: u64) -> String {
    if n == 1 { "1 QP".into() } else { format!("{n} QPs") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A process with QPs of these reasons; `Some(None)` = several paths, `None` = multi-path is off.
    fn process(reasons: &[Option<Option<&str>>]) -> SegmentJson {
        let counters = json!({"wr_posted": 0, "wr_completed": 0, "wr_failed": 0, "wr_dropped": 0, "wr_outstanding": 0,
            "bytes_posted": 0, "bytes_completed": 0, "bytes_failed": 0, "bytes_dropped": 0, "bytes_outstanding": 0,
            "wr_high_water": 0, "bytes_high_water": 0, "cqes": 0});
        let moved = json!({"bytes_split": 0, "bytes_on_lanes": 0, "bytes_on_qp": 0});
        let with = |base: &serde_json::Value, more: serde_json::Value| {
            let mut all = base.clone();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        let qps: Vec<_> = (reasons.iter().enumerate())
            .map(|(i, why)| {
                let mut q = with(
                    &counters,
                    json!({"qp_num": 100 + i, "type": "RC", "state": "RTS", "live": true,
                    "device": "d", "port": 1, "peer": null, "dest_qp_num": 1, "srq": null, "max_send_wr": 1,
                    "max_recv_wr": 1, "opaque": false, "created_ns": 1, "recv": counters, "opcodes": {}, "errors": {},
                    "recv_errors": {}, "last_error": null, "latency_post_to_poll": {"samples": 0, "mean_ns": null,
                    "p50_ns": null, "p90_ns": null, "p99_ns": null, "p999_ns": null, "max_ns": null, "buckets": []}}),
                );
                if let Some(why) = why {
                    q["multipath"] = with(
                        &moved,
                        json!({"lanes": 0, "lanes_failed_here": 0, "lanes_failed_there": 0,
                        "single_path": why, "wr_split": 0, "wr_whole": 0, "wr_held": 0, "bytes_carried": 0,
                        "reads": moved, "chunks": 0, "chunks_replayed": 0, "large_passed": {}}),
                    );
                }
                q
            })
            .collect();
        let missed = json!({"objects_untracked": 0, "wrs_unseen": 0, "objects_opaque": 0, "completions_unmatched": 0,
            "panics": 0, "events_overwritten": 0});
        serde_json::from_value(json!({"pid": 1, "uid": 1, "start_time_ticks": 1, "command": "", "host": "", "rank": null,
            "world_size": null, "alive": true, "created_ns": 1, "heartbeat_ns": 1, "latency_every": 64, "missed": missed,
            "contexts": [], "ports": [], "peers": [], "qps": qps, "srqs": [], "cqs": []}))
        .unwrap()
    }

    #[test]
    fn where_multi_path_is_off_nothing_is_said() {
        assert!(of_segment(&process(&[None, None])).is_empty());
    }

    #[test]
    fn qps_are_counted_and_named_by_reason() {
        let mut reasons = vec![Some(Some("no_answer")); 10];
        reasons.extend([Some(None), Some(Some("later_version")), Some(None)]);
        let lines = of_segment(&process(&reasons));
        assert_eq!(lines[0], "multi-path: 2 QPs of several paths");
        assert_eq!(lines[1], "multi-path: 1 QP of one path, later_version: a reason of another version (QP 111)");
        assert!(
            lines[2].starts_with("multi-path: 10 QPs of one path, no_answer: the peer's host does not"),
            "{lines:?}"
        );
        assert!(lines[2].ends_with("(QP 100, 101, 102, 103, 104, 105, 106, 107, ...)"), "{lines:?}");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn what_is_gone_has_no_paths() {
        let mut s = process(&[Some(Some("no_answer"))]);
        s.qps[0].live = false;
        assert!(of_segment(&s).is_empty());
    }
}
