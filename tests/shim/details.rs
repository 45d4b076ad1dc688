//! Opcodes, latency samples and events.

use telereduce_tests::{Dir, Run};

fn snapshot(program: &str, env: &[(&str, &str)]) -> telereduce::shm::snapshot::SegmentJson {
    let dir = Dir::new();
    env.iter().fold(Run::program(program).counted(&dir), |r, (k, v)| r.env(k, v)).run().silent();
    dir.snapshot()
}

/// `basic` posts 100 WRITEs and a last one, 25 SENDs, 25 with immediate, 40 WRITEs with immediate, 30 READs and 20
/// atomics of 8 bytes.
#[test]
fn wrs_by_opcode() {
    let s = snapshot("basic", &[]);
    let of = |name: &str| s.ports[0].details.opcodes.get(name).map_or((0, 0), |p| (p.wr, p.bytes));
    assert_eq!(of("RDMA_WRITE").0, 101);
    assert_eq!((of("SEND").0, of("SEND_WITH_IMM").0, of("RDMA_WRITE_WITH_IMM").0), (25, 25, 40));
    assert_eq!(of("RDMA_READ"), (30, 30 * 4096));
    assert_eq!((of("ATOMIC_CMP_AND_SWP"), of("ATOMIC_FETCH_AND_ADD")), ((10, 80), (10, 80)));
    assert_eq!(s.ports[0].details.opcodes.len(), 7);
}

/// 3000 signaled READs and one signaled WRITE.
const SIGNALED: &str = "basic --writes 0 --sends 0 --imms 0 --atomics 0 --reads 3000 --signal-every 1";

#[test]
fn latency_is_sampled_as_often_as_told() {
    for (every, samples) in [("1", 3001), ("64", 47), ("1000", 4), ("0", 0)] {
        let s = snapshot(SIGNALED, &[("TELEREDUCE_LATENCY", every)]);
        let l = &s.ports[0].details.latency_post_to_poll;
        assert_eq!((l.samples, s.latency_every.to_string().as_str()), (samples, every));
        assert_eq!(l.buckets.iter().map(|b| b.1).sum::<u64>(), samples);
        assert_eq!(l.max_ns.is_some(), samples > 0);
        if samples > 0 {
            assert!(l.p50_ns <= l.p99_ns && l.p99_ns <= l.p999_ns && l.mean_ns <= l.max_ns);
        }
    }
}

#[test]
fn an_event_for_each_signaled_send() {
    let s = snapshot("no_close", &[("TELEREDUCE_LATENCY", "1")]);
    assert_eq!((s.events.len(), s.missed.events_overwritten), (10, 0));
    let qp = s.qps.iter().find(|q| q.line.send.wr_posted > 0).expect("the QP").qp_num;
    for e in &s.events {
        let place = (e.device.as_deref(), e.port, e.qp_num, e.peer.as_deref());
        assert_eq!(place, (Some("null0"), Some(1), qp, Some("192.0.2.1")));
        assert_eq!((e.bytes, e.wr_outstanding, e.bytes_outstanding), (4 * 4096, 0, 0));
        assert!(e.status == "SUCCESS" && e.latency_ns.is_some_and(|ns| ns > 0));
        assert!(s.created_ns <= e.end_ns && e.end_ns <= telereduce::clock::realtime_ns());
    }
    assert!(s.events.windows(2).all(|w| w[0].end_ns <= w[1].end_ns), "oldest first");
}

#[test]
fn errors_are_events_too() {
    let s = snapshot("errors", &[]);
    let failed: u64 = s.ports[0].line.send.wr_failed;
    assert_eq!(s.events.iter().filter(|e| e.status != "SUCCESS").count() as u64, failed);
}

#[test]
fn the_newest_events_overwrite_the_oldest_and_are_counted() {
    let s = snapshot(SIGNALED, &[]);
    // The last WRITE has 16 bytes, which is a control message by default.
    assert_eq!(s.events.len() as u64 + s.missed.events_overwritten, 3000);
    assert!(s.missed.events_overwritten > 0 && s.events.len() > 500);
}

#[test]
fn small_messages_make_no_event() {
    let events = |bytes: &str| snapshot("no_close", &[("TELEREDUCE_MIN_BYTES", bytes)]).events.len();
    assert_eq!((events("16383"), events("16384")), (10, 0));
    assert_eq!(snapshot("no_close", &[("TELEREDUCE_EVENTS", "off")]).events.len(), 0);
}
