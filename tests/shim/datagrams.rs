//! Datagrams: each send counts at the peer that its address handle leads to, whatever becomes of it.

use crate::exact::{alike, exact, symbolic};
use serde_json::Value;
use std::collections::BTreeMap;
use telereduce::shm::snapshot::{PeerJson, SegmentJson};
use telereduce_tests::compare::{Counts, assert_exact, assert_nothing_missed, sum};
use telereduce_tests::{Dir, Run, Truth};

/// What the program says of each peer.
fn said(stdout: &str) -> BTreeMap<String, Counts> {
    let lines = stdout.lines().filter_map(|l| l.strip_prefix("peer "));
    lines.map(|l| l.split_once(' ').expect("counts")).map(|(name, rest)| (name.into(), words(rest))).collect()
}

fn words(text: &str) -> Counts {
    Counts::of_words(&text.split(' ').collect::<Vec<_>>())
}

fn name(p: &PeerJson) -> String {
    p.ip.clone().unwrap_or_else(|| format!("lid_{}", p.lid))
}

/// Every number of every peer; what nobody knows is the port's alone.
fn assert_peers(stdout: &str, s: &SegmentJson) {
    let said = said(stdout);
    assert!(said.len() > 5, "{stdout}");
    let of_port_1: BTreeMap<String, &PeerJson> = s.peers.iter().filter(|p| p.port == 1).map(|p| (name(p), p)).collect();
    assert_eq!(of_port_1.len(), s.peers.iter().filter(|p| p.port == 1).count(), "a record for each");
    for (peer, counts) in said.iter().filter(|(peer, _)| *peer != "nobody") {
        let line = of_port_1.get(peer).map(|p| p.line).unwrap_or_default();
        counts.assert_same(&Counts::of_line(&line), peer);
    }
    let all = sum(s.peers.iter().map(|p| &p.line)).send;
    let port = s.ports[0].line.send;
    let nobody = &said["nobody"];
    assert_eq!(port.wr_posted - all.wr_posted, nobody.get("send_wr_posted"));
    assert_eq!(port.wr_completed - all.wr_completed, nobody.get("send_wr_completed"));
    assert_eq!(port.wr_failed - all.wr_failed, nobody.get("send_wr_failed"));
    assert_eq!(port.wr_dropped - all.wr_dropped, nobody.get("send_wr_discarded"));
    assert_eq!(port.wr_outstanding - all.wr_outstanding, nobody.get("send_wr_outstanding"));
    assert_eq!(port.bytes_completed - all.bytes_completed, nobody.get("send_bytes_completed"));
    assert_eq!(port.cqes - all.cqes, nobody.get("send_cqes"));
}

/// What the peers' timed sends took is what the port's did, but for those to nobody.
fn assert_latency(s: &SegmentJson) {
    let of_peers: u64 = s.peers.iter().map(|p| p.details.latency_post_to_poll.samples).sum();
    let of_port = s.ports[0].details.latency_post_to_poll.samples;
    assert!(of_peers > 0 && of_peers <= of_port, "{of_peers} of {of_port}");
}

macro_rules! peers {
    ($($test:ident: $program:literal $(, $env:expr)?;)*) => { $(
        #[test]
        fn $test() {
            #[allow(unused_mut, unused_assignments)]
            let mut env: Vec<(&str, &str)> = vec![("TELEREDUCE_LATENCY", "2")];
            $(env.push($env);)?
            let (outcome, s) = alike($program, &env);
            assert_exact(&Truth::parse(outcome.stdout.lines()), &s);
            assert_nothing_missed(&s);
            assert_peers(&outcome.stdout, &s);
            assert_latency(&s);
        }
    )* };
}

peers! {
    chains_refused_failed_flushed_and_reset: "datagrams";
    every_one_signaled: "datagrams --signal-every 1";
    hardly_any_signaled: "datagrams --signal-every 1000";
    built_by_wr_calls: "datagrams --extended";
    threads_with_the_same_handles: "datagrams --threads 4";
    threads_that_build_them: "datagrams --threads 4 --extended --rounds 3000";
    all_is_well: "datagrams --calm";
    a_handle_from_a_completion: "datagrams --answer";
    over_a_library_bound_to_itself: "datagrams --answer --extended", ("LD_LIBRARY_PATH", symbolic());
    with_multi_path: "datagrams --answer", ("TELEREDUCE_PATHS", "4");
}

#[test]
fn a_peer_has_what_one_handle_sends() {
    let (_, s) = exact("ud", &[]);
    assert_eq!((s.peers.len(), s.peers[0].line.send), (1, s.ports[0].line.send));
    assert_eq!(s.peers[0].line.recv, Default::default(), "who sent what arrives is not known");
    assert_eq!((s.peers[0].ip.as_deref(), s.peers[0].qps_live), (Some("192.0.2.1"), 0));
}

/// The program's lines of its log.
fn logged(program: &str, dir: &Dir) -> (String, Vec<Value>) {
    let place = dir.path().join("log");
    std::fs::create_dir_all(&place).expect("a new directory");
    let run = Run::program(program).counted(dir).env("TELEREDUCE_LOG", place.to_str().expect("UTF-8"));
    let o = run.env("TELEREDUCE_LOG_FORMAT", "json").env("TELEREDUCE_MIN_BYTES", "0").run().silent();
    let file = std::fs::read_dir(&place).unwrap().next().expect("a log").unwrap().path();
    let text = std::fs::read_to_string(file).unwrap();
    (o.stdout, text.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect())
}

fn number(line: &Value, field: &str) -> u64 {
    line[field].as_u64().unwrap_or_else(|| panic!("{field} of {line}"))
}

fn bits_per_s(lines: &[&Value]) -> u64 {
    let bytes: u64 = lines[1..].iter().map(|l| number(l, "bytes")).sum();
    let ns = number(lines[lines.len() - 1], "end_ns") - number(lines[0], "end_ns");
    if ns == 0 { 0 } else { u64::try_from(u128::from(bytes) * 8_000_000_000 / u128::from(ns)).unwrap() }
}

/// Windows are worked out here from the lines themselves, one for each destination and one for the QP. One LID and nobody have
/// no address, so they share nothing with anybody but cannot be told apart here.
#[test]
fn windows_do_not_mix_peers() {
    for program in ["datagrams --calm --signal-every 4", "datagrams --signal-every 3 --extended"] {
        let dir = Dir::new();
        let (stdout, lines) = logged(program, &dir);
        let (said, mut by_peer, mut by_qp) = (said(&stdout), BTreeMap::<_, Vec<&Value>>::new(), Vec::new());
        for line in &lines {
            by_qp.push(line);
            assert_eq!(number(line, "qp_bits_per_s"), bits_per_s(&by_qp[by_qp.len().saturating_sub(50)..]));
            let Some(to) = line["destination"].as_str() else { continue };
            let of_peer = by_peer.entry(to).or_default();
            of_peer.push(line);
            let window = &of_peer[of_peer.len().saturating_sub(50)..];
            assert_eq!(number(line, "peer_bits_per_s"), bits_per_s(window), "{to}, {}", of_peer.len());
        }
        assert_eq!(by_peer.len(), 5, "peers with a GID");
        for (peer, of_peer) in by_peer {
            let bytes: u64 = of_peer.iter().map(|l| number(l, "bytes")).sum();
            assert_eq!(bytes, said[peer].get("send_bytes_completed"), "every byte is in a line of its own peer");
            let failed = of_peer.iter().filter(|l| number(l, "status") != 0).count() as u64;
            assert_eq!(failed, said[peer].get("send_wr_failed"), "{peer}");
            assert!(of_peer.len() > 100, "{peer}");
        }
        let s = dir.snapshot();
        let last = s.events.iter().filter(|e| e.peer.is_some()).count();
        assert!(last > 0 && s.events.iter().any(|e| e.peer.as_deref() == Some("lid 77")), "events say it, too");
    }
}
