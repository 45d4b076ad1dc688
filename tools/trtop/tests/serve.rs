//! `trtop serve`: what Prometheus gets.

#[path = "support/server.rs"]
mod server;
mod support;

use server::Served;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use support::{segment, who};
use trtop::cli::Per;
use trtop::serve::metrics::Exposition;
use trtop::serve::rests::Rests;

fn scrape(dir: &Path, per: Per) -> Result<String, String> {
    trtop::serve::scrape(dir, Path::new("/nonexistent"), per, Exposition::OpenMetrics, |_, _| {})
}

/// The samples by `name{labels}`; labels as they are written.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    text.lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| {
            let (series, value) = l.rsplit_once(' ').expect("a value");
            (series, value.parse().expect("a number"))
        })
        .collect()
}

/// What all samples of `name` with all of `labels` add up to; there are some.
fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    let all = samples(text);
    let has = |s: &str| s.split('{').next() == Some(name) && labels.iter().all(|l| s.contains(l));
    let mut some = all.iter().filter(|(s, _)| has(s)).map(|(_, v)| *v).peekable();
    assert!(some.peek().is_some(), "no {name} with {labels:?} in\n{text}");
    some.sum()
}

/// A rank with traffic on two QPs to two peers, and a dead process.
fn two(dir: &Path) -> (support::Made, support::Made) {
    let live = segment(dir, &who(4000, "job \"x\"\\y\nz", Some(3)), 3);
    live.traffic(0, 10, 65536, 4, 3000);
    live.traffic(1, 5, 100, 5, 9000);
    live.failure(1, 5, 0);
    let mut dead = segment(dir, &who(4001, "gone", None), 1);
    dead.traffic(0, 2, 1000, 2, 100);
    dead.die();
    (live, dead)
}

#[test]
fn the_same_sums_however_fine() {
    let dir = tempfile::tempdir().unwrap();
    let _made = two(dir.path());
    for per in [Per::Port, Per::Peer, Per::Qp] {
        let text = scrape(dir.path(), per).unwrap();
        let of = |name: &str| sum(&text, &format!("telereduce_{name}"), &["pid=\"4000\"", "direction=\"send\""]);
        assert_eq!((of("wrs_posted_total"), of("wrs_completed_total"), of("wrs_failed_total")), (15.0, 9.0, 1.0));
        assert_eq!((of("posted_bytes_total"), of("completed_bytes_total")), (655_860.0, 262_644.0));
        assert_eq!((of("wrs_outstanding"), of("outstanding_bytes")), (6.0, 393_216.0), "{per:?}");
        assert!(text.ends_with("# EOF\n"));
    }
}

#[test]
fn labels_say_whose_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let _made = two(dir.path());
    let text = scrape(dir.path(), Per::Peer).unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let owner = format!("host=\"node7\",uid=\"{uid}\",pid=\"4000\",rank=\"3\"");
    let all = samples(&text);
    let at = |s: &str| *all.get(s).unwrap_or_else(|| panic!("no {s} in\n{text}"));
    let series = format!(
        "telereduce_posted_bytes_total{{{owner},device=\"mlx5_0\",peer=\"10.0.0.1\",port=\"1\",direction=\"send\"}}"
    );
    assert_eq!(at(&series), 655_360.0);
    assert_eq!(at(&format!("telereduce_process_up{{{owner}}}")), 1.0);
    assert_eq!(at(&format!("telereduce_process_up{{host=\"node7\",uid=\"{uid}\",pid=\"4001\",rank=\"\"}}")), 0.0);
    let info = format!("telereduce_process_info{{{owner},command=\"job \\\"x\\\"\\\\y\u{fffd}z\",world_size=\"8\"}}");
    assert_eq!(at(&info), 1.0);
    let failed = sum(&text, "telereduce_completion_errors_total", &["peer=\"10.0.0.2\"", "status=\"WR_FLUSH_ERR\""]);
    assert_eq!(failed, 1.0);
    assert_eq!(at("telereduce_segments_unreadable"), 0.0);
    let qp = scrape(dir.path(), Per::Qp).unwrap();
    assert_eq!(sum(&qp, "telereduce_posted_bytes_total", &["qp_num=\"1001\"", "peer=\"10.0.0.2\""]), 500.0);
}

#[test]
fn a_peer_of_this_host_has_its_rank() {
    let dir = tempfile::tempdir().unwrap();
    let _made = support::connected(dir.path());
    for per in [Per::Peer, Per::Qp] {
        let text = scrape(dir.path(), per).unwrap();
        for (rank, peer) in [(3, 5), (5, 3)] {
            let labels = [format!("rank=\"{rank}\""), format!("peer_rank=\"{peer}\"")];
            assert_eq!(sum(&text, "telereduce_posted_bytes_total", &[&labels[0], &labels[1]]), 10_000.0, "{per:?}");
        }
    }
    assert!(!scrape(dir.path(), Per::Port).unwrap().contains("peer_rank"));
}

#[test]
fn stalls_are_there_where_they_are_watched_for() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _dead) = two(dir.path());
    assert!(!scrape(dir.path(), Per::Peer).unwrap().contains("stall"));
    let seen = live.stalls();
    let minute_ago = telereduce::clock::realtime_ns() - 60_000_000_000;
    seen[1].oldest_ns.store(minute_ago, Relaxed);
    seen[1].stalled_ns.store(minute_ago, Relaxed);
    seen[1].counters.stalls.store(3, Relaxed);
    live.peers[1].retired_stalls.stalls.store(2, Relaxed);
    live.ports[1].retired_stalls.stalls.store(2, Relaxed);
    for (per, stalls) in [(Per::Port, 5.0), (Per::Peer, 5.0), (Per::Qp, 3.0)] {
        let text = scrape(dir.path(), per).unwrap();
        let of = |name: &str, label: &str| sum(&text, &format!("telereduce_{name}"), &["pid=\"4000\"", label]);
        assert_eq!(of("stalls_total", ""), stalls, "{per:?}");
        assert_eq!((of("qps_stalled", ""), of("qps_stalled", "port=\"1\"")), (1.0, 0.0));
        let age = of("oldest_outstanding_seconds", "port=\"2\"");
        assert!((60.0..1000.0).contains(&age), "{age}");
        assert_eq!(of("oldest_outstanding_seconds", "port=\"1\""), 0.0);
        assert!(!text.lines().any(|l| l.starts_with("telereduce_qps_stalled") && l.contains("pid=\"4001\"")));
    }
    let text = scrape(dir.path(), Per::Peer).unwrap();
    assert_eq!(sum(&text, "telereduce_stalls_total", &["peer=\"10.0.0.2\""]), 5.0);
}

#[test]
fn latencies_are_a_histogram_in_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let _made = two(dir.path());
    let text = scrape(dir.path(), Per::Port).unwrap();
    let of =
        |name: &str, label: &str| sum(&text, &format!("telereduce_latency_seconds_{name}"), &["pid=\"4000\"", label]);
    // One sample of 3 us on port 1, one of 9 us on port 2.
    assert_eq!((of("count", "port=\"1\""), of("sum", "port=\"1\"")), (1.0, 3e-6));
    assert_eq!((of("count", "port=\"2\""), of("sum", "port=\"2\"")), (1.0, 9e-6));
    let uid = rustix::process::geteuid().as_raw();
    let below = |bound: &str| {
        of(
            "bucket",
            &format!(
                "le=\"{bound}\",host=\"node7\",uid=\"{uid}\",pid=\"4000\",rank=\"3\",device=\"mlx5_0\",port=\"1\""
            ),
        )
    };
    assert_eq!((below("0.000002048"), below("0.000004096"), below("+Inf")), (0.0, 1.0, 1.0), "{text}");
}

#[test]
fn damaged_segments_are_counted_and_the_rest_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let _made = two(dir.path());
    let uid = rustix::process::geteuid().as_raw();
    std::fs::write(dir.path().join(format!("telereduce.{uid}.4002")), [0xffu8; 20_000]).unwrap();
    let text = scrape(dir.path(), Per::Port).unwrap();
    assert_eq!(samples(&text)["telereduce_segments_unreadable"], 1.0);
    assert_eq!(sum(&text, "telereduce_process_up", &[]), 1.0);
}

/// Nobody waits for what a dead process has outstanding; some minutes later it is not served any more.
#[test]
fn of_the_dead_there_are_counters_only_and_not_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let mut made = segment(dir.path(), &who(4005, "killed", None), 1);
    made.traffic(0, 9, 1000, 2, 100);
    made.die();
    let text = scrape(dir.path(), Per::Port).unwrap();
    assert_eq!(sum(&text, "telereduce_wrs_posted_total", &["pid=\"4005\""]), 9.0);
    assert!(!text.contains("telereduce_wrs_outstanding{") && !text.contains("telereduce_qps{"), "{text}");
    let hour_ago = telereduce::clock::realtime_ns() - 3_600_000_000_000;
    made.header.heartbeat_ns.store(hour_ago, std::sync::atomic::Ordering::Relaxed);
    made.header.created_ns.store(hour_ago, std::sync::atomic::Ordering::Relaxed);
    assert!(!scrape(dir.path(), Per::Port).unwrap().contains("4005"));
}

/// What no peer has: here, a QP that was never connected, with an error.
#[test]
fn what_has_no_peer_has_series_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let made = segment(dir.path(), &who(4006, "datagrams", None), 2);
    made.qps[1].peer.store(telereduce::shm::layout::NONE, std::sync::atomic::Ordering::Relaxed);
    made.traffic(0, 7, 100, 7, 100);
    made.traffic(1, 5, 100, 4, 100);
    made.failure(1, 12, 100);
    let r = &made.qps[1].recv_post;
    r.wr_posted.store(64, std::sync::atomic::Ordering::Relaxed);
    let text = scrape(dir.path(), Per::Peer).unwrap();
    let of = |name: &str, labels: &[&str]| sum(&text, &format!("telereduce_{name}"), labels);
    assert_eq!(of("wrs_posted_total", &["device=\"mlx5_0\",port=\"2\"", "direction=\"send\""]), 5.0);
    assert_eq!(of("completion_errors_total", &["device=\"mlx5_0\",port=\"2\"", "status=\"RETRY_EXC_ERR\""]), 1.0);
    // 64 receives wait: when their QP is connected they are the peer's.
    assert_eq!(of("wrs_posted_total", &["device=\"mlx5_0\",port=\"2\"", "direction=\"recv\""]), 0.0);
    assert_eq!(of("wrs_outstanding", &["device=\"mlx5_0\",port=\"2\"", "direction=\"recv\""]), 64.0);
}

/// Datagrams count at their QP and at their peer, of which a scrape copies one a little later than the other.
#[test]
fn what_no_peer_has_never_goes_down() {
    use std::sync::atomic::Ordering::Relaxed;
    let dir = tempfile::tempdir().unwrap();
    let made = segment(dir.path(), &who(4008, "datagrams", None), 1);
    made.qps[0].peer.store(telereduce::shm::layout::NONE, Relaxed);
    let peer = &made.peers[0].retired.send_post;
    let mut rests = Rests::default();
    let mut posted = |qp: u64, at_peer: u64| {
        made.qps[0].send_post.wr_posted.store(qp, Relaxed);
        peer.wr_posted.store(at_peer, Relaxed);
        let sys = Path::new("/nonexistent");
        let text =
            trtop::serve::scrape_after(&mut rests, dir.path(), sys, Per::Peer, Exposition::OpenMetrics, |_, _| {});
        let text = text.unwrap();
        let of = |labels: &[&str]| sum(&text, "telereduce_wrs_posted_total", labels);
        let port = ["port=\"1\"", "direction=\"send\""];
        (of(&port), of(&[&port[..], &["peer=\"10.0.0.1\""]].concat()))
    };
    // All, and the peer's.
    assert_eq!(posted(107, 100), (107.0, 100.0));
    assert_eq!(posted(203, 200), (207.0, 200.0));
    assert_eq!(posted(300, 310), (317.0, 310.0));
    assert_eq!(posted(420, 410), (420.0, 410.0));
}

#[test]
fn a_sparse_file_does_not_take_all_memory() {
    let dir = tempfile::tempdir().unwrap();
    let made = segment(dir.path(), &who(4007, "sparse", None), 1);
    std::fs::File::options().write(true).open(&made.path).unwrap().set_len(4 << 30).unwrap();
    assert_eq!(samples(&scrape(dir.path(), Per::Port).unwrap())["telereduce_segments_unreadable"], 1.0);
}

#[test]
fn no_segments_are_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let text = scrape(dir.path(), Per::Peer).unwrap();
    assert_eq!(samples(&text)["telereduce_segments_unreadable"], 0.0);
    assert!(scrape(Path::new("/nonexistent"), Per::Peer).is_err());
}

#[test]
fn it_is_served_over_http() {
    let dir = tempfile::tempdir().unwrap();
    let made = two(dir.path());
    let server = Served::new(dir.path(), &[]);
    let answer = server.ask("GET /metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.to_lowercase().contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(answer.contains("telereduce_process_up"));
    // The next scrape sees what happened since.
    made.0.traffic(0, 1, 1, 0, 0);
    let posted = |answer: &str| {
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        let lines: Vec<&str> = body.lines().filter(|l| l.starts_with('#') || l.starts_with("telereduce_")).collect();
        sum(&lines.join("\n"), "telereduce_wrs_posted_total", &["pid=\"4000\""])
    };
    assert_eq!(posted(&server.ask("GET /metrics?x=1")), 16.0);
    assert!(server.ask("GET /").contains("href=\"/metrics\""));
    assert!(server.ask("GET /else").starts_with("HTTP/1.1 404"));
    assert!(server.ask("POST /metrics").starts_with("HTTP/1.1 405"));
    // Clients that say nothing, or nonsense, keep nobody else waiting.
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    TcpStream::connect(&server.address).unwrap().write_all(&[0xff; 4096]).unwrap();
    assert!(server.ask("GET /metrics").starts_with("HTTP/1.1 200"));
    drop(silent);
}

/// The older format has the same series.
#[test]
fn clients_that_know_no_openmetrics_get_text() {
    assert_eq!(Exposition::accepted("text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), Exposition::Text);
    assert_eq!(Exposition::accepted(""), Exposition::Text);
    let dir = tempfile::tempdir().unwrap();
    let _made = two(dir.path());
    let (open, text) = (Exposition::OpenMetrics, Exposition::Text);
    let of = |e| trtop::serve::scrape(dir.path(), Path::new("/nonexistent"), Per::Peer, e, |_, _| {}).unwrap();
    let (open, text) = (of(open), of(text));
    // Labels may be in another order.
    let values = |t: &str| {
        let own = samples(t).into_iter().filter(|(s, _)| !s.contains("scrape_duration"));
        own.map(|(s, v)| (s.split('{').next().unwrap().to_string(), v.to_bits())).collect::<Vec<_>>()
    };
    let sorted = |mut v: Vec<_>| {
        v.sort_unstable();
        v
    };
    assert_eq!(sorted(values(&open)), sorted(values(&text)));
    assert!(text.contains("# TYPE telereduce_wrs_posted_total counter\n"), "{text}");
}

#[test]
fn an_address_in_use_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let o = Command::new(env!("CARGO_BIN_EXE_trtop")).args(["serve", "--listen", &at]).output().unwrap();
    assert_eq!(o.status.code(), Some(1));
    let said = String::from_utf8(o.stderr).unwrap();
    assert!(said.starts_with(&format!("trtop: cannot listen at {at}: ")), "{said}");
}
