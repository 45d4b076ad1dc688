//! CSV of a dump: one row per port, peer, QP, lane and, if asked for, event (`event`, `stall`, `stall_end`). Columns are
//! named as the JSON's fields; a field inside another is named `outer.inner`. Lists and maps stay JSON inside their cell. An empty cell is null, or a field
//! that this kind of row does not have.

use serde_json::Value;
use telereduce::shm::snapshot::{SegmentJson, Snapshot};

/// Fields of the segment that start every row, after `kind` and `time_ns`.
const SEGMENT: [&str; 8] = ["pid", "uid", "host", "rank", "world_size", "job", "alive", "command"];
/// What the row is about.
const IDENTITY: [&str; 23] = [
    "device",
    "port",
    "qp_num",
    "type",
    "state",
    "live",
    "peer",
    "dest_qp_num",
    "source",
    "peer_rank",
    "gid",
    "ip",
    "lid",
    "qps_live",
    "srq",
    "max_send_wr",
    "max_recv_wr",
    "opaque",
    "created_ns",
    "last_error",
    "path",
    "local",
    "qps",
];
const COUNTERS: [&str; 13] = [
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
];
const DETAILS: [&str; 3] = ["opcodes", "errors", "recv_errors"];
const LATENCY: [&str; 9] =
    ["samples", "sum_ns", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns", "buckets"];
/// Where multi-path is on, of ports; QPs have those of [`PATHS`], too.
const MULTIPATH: [&str; 10] = [
    "wr_split",
    "wr_whole",
    "wr_held",
    "bytes_split",
    "bytes_on_lanes",
    "bytes_on_qp",
    "bytes_carried",
    "chunks",
    "chunks_replayed",
    "large_passed",
];
const READS: [&str; 3] = ["bytes_split", "bytes_on_lanes", "bytes_on_qp"];
const PATHS: [&str; 4] = ["single_path", "lanes", "lanes_failed_here", "lanes_failed_there"];
/// Where stalls are watched for, of ports, peers and QPs.
const STALL: [&str; 6] = ["oldest_ns", "stalled_ns", "cq_polls", "qps_stalled", "stalls", "longest_ns"];
/// Where NCCL says what WRs are for, of QPs.
const NCCL: [&str; 9] =
    ["group", "rank", "peer_rank", "channel", "direction", "func", "func_times", "wr_labelled", "changes"];
/// Fields that only events have, whose `kind` is the row's; `bytes_outstanding` and others they share.
const EVENT: [&str; 6] = ["end_ns", "status", "bytes", "latency_ns", "waited_ns", "vendor_err"];

/// Names of the columns after those of the segment.
pub fn fields(events: bool) -> Vec<String> {
    let own = |n: &[&str]| n.iter().map(|s| (*s).to_string()).collect::<Vec<_>>();
    let inner = |outer: &str, n: &[&str]| n.iter().map(|s| format!("{outer}.{s}")).collect::<Vec<_>>();
    let mut all = [
        own(&IDENTITY),
        own(&COUNTERS),
        inner("recv", &COUNTERS),
        own(&DETAILS),
        inner("latency_post_to_poll", &LATENCY),
        inner("multipath", &PATHS),
        inner("multipath", &MULTIPATH),
        inner("multipath.reads", &READS),
        inner("stall", &STALL),
        inner("nccl", &NCCL),
    ]
    .concat();
    if events {
        all.extend(own(&EVENT));
    }
    all
}

/// The first line.
pub fn header(events: bool) -> String {
    let mut names = vec!["kind".to_string(), "time_ns".to_string()];
    names.extend(SEGMENT.iter().map(|s| (*s).to_string()));
    names.extend(fields(events));
    names.join(",") + "\n"
}

/// All other lines.
pub fn rows(s: &Snapshot, events: bool) -> String {
    let names = fields(events);
    let mut out = String::new();
    let mut segment = (std::ptr::null(), String::new());
    each_row(s, events, |kind, g, row| {
        if !std::ptr::eq(segment.0, g) {
            segment = (g, segment_cells(g));
        }
        out += &format!("{kind},{},{}", s.time_ns, segment.1);
        for n in &names {
            out.push(',');
            out += &cell(find(row, n));
        }
        out.push('\n');
    });
    out
}

/// Shows each row: its kind, its segment, and the JSON that its cells are in.
pub fn each_row(s: &Snapshot, events: bool, mut show: impl FnMut(&str, &SegmentJson, &Value)) {
    for g in &s.segments {
        let mut show = |kind: &str, row: serde_json::Result<Value>| {
            show(kind, g, &row.expect("numbers and text always make JSON"));
        };
        g.ports.iter().for_each(|p| show("port", serde_json::to_value(p)));
        g.peers.iter().for_each(|p| show("peer", serde_json::to_value(p)));
        g.qps.iter().for_each(|q| show("qp", serde_json::to_value(q)));
        g.lanes.iter().for_each(|l| show("lane", serde_json::to_value(l)));
        if events {
            let kind = |kind: &str| if kind == "completion" { "event".into() } else { kind.to_string() };
            g.events.iter().for_each(|e| show(&kind(&e.kind), serde_json::to_value(e)));
        }
    }
}

fn segment_cells(g: &SegmentJson) -> String {
    let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
    [
        g.pid.to_string(),
        g.uid.to_string(),
        quoted(&g.host),
        number(g.rank),
        number(g.world_size),
        g.job.as_deref().map_or(String::new(), quoted),
        g.alive.to_string(),
        quoted(&g.command),
    ]
    .join(",")
}

/// The cell of this column, before it becomes text.
pub fn find<'a>(row: &'a Value, name: &str) -> Option<&'a Value> {
    name.split('.').try_fold(row, |v, part| v.get(part))
}

fn cell(v: Option<&Value>) -> String {
    match v {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(s)) => quoted(s),
        Some(Value::Object(o)) if o.is_empty() => String::new(),
        Some(Value::Array(a)) if a.is_empty() => String::new(),
        Some(v @ (Value::Object(_) | Value::Array(_))) => quoted(&v.to_string()),
        Some(v) => v.to_string(),
    }
}

/// Quoted where RFC 4180 asks for it.
fn quoted(s: &str) -> String {
    if s.contains([',', '"', '\n', '\r']) { format!("\"{}\"", s.replace('"', "\"\"")) } else { s.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_or_quotes_are_quoted() {
        assert_eq!(quoted("a b"), "a b");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(cell(Some(&serde_json::json!({"A": 1}))), "\"{\"\"A\"\":1}\"");
        assert_eq!(cell(Some(&serde_json::json!([]))), "");
    }

    #[test]
    fn no_column_comes_twice() {
        let names: Vec<String> = header(true).trim().split(',').map(String::from).collect();
        for (i, n) in names.iter().enumerate() {
            assert!(!names[..i].contains(n), "{n}");
        }
    }
}
