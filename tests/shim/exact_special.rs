//! Programs whose truth needs a word of explanation, or whose nature it is that something cannot be counted.

use crate::exact::{alike, exact};
use telereduce::telemetry::registry::RETAINED;
use telereduce_tests::compare::{
    assert_balanced, assert_details, assert_exact, assert_nothing_missed, assert_ports, sum,
};
use telereduce_tests::{Dir, Run, Truth};

/// The device keeps the CQEs of destroyed QPs: 19 of 20 are polled when the number lives again. They are nobody's, and
/// the WRs they belong to were dropped with their QP.
#[test]
fn a_stale_cqe_is_not_the_new_owners() {
    let (o, s) = alike("qpn_reuse --stale", &[]);
    assert_exact(&Truth::parse(o.stdout.lines()), &s);
    assert_eq!(s.missed.completions_unmatched, 19);
}

/// A QP with an SRQ posts no receives itself: it counts those it takes, and the port has the rest, too.
#[test]
fn receives_of_a_shared_queue() {
    let (o, s) = alike("srq", &[]);
    let mut truth = Truth::parse(o.stdout.lines());
    for q in &mut truth.qps {
        let taken = q.counts.get("recv_wr_completed") + q.counts.get("recv_wr_failed");
        q.counts.0.insert("recv_wr_posted".into(), taken);
    }
    for c in truth.ports.iter_mut().map(|p| &mut p.2).chain([&mut truth.total]) {
        c.0.extend([("recv_wr_posted".into(), 43), ("recv_wr_discarded".into(), 6)]);
    }
    assert_exact(&truth, &s);
    assert_nothing_missed(&s);
    assert_eq!(s.srqs.len(), 1);
    let r = &s.srqs[0].recv;
    assert_eq!((r.wr_posted, r.wr_completed, r.wr_dropped, r.wr_outstanding), (43, 37, 6, 0));
    assert_eq!((r.bytes_posted, r.bytes_dropped, r.bytes_completed), (43 * 600, 6 * 600, 8770));
    assert_eq!(s.qps.iter().filter(|q| q.srq == Some(s.srqs[0].index)).count(), 3);
}

/// Per opcode, too: every `ibv_wr_*` call, and every way to say how many bytes a WR has.
#[test]
fn every_extended_operation_has_its_opcode_and_bytes() {
    let (o, s) = alike("extended_ops", &[]);
    assert_exact(&Truth::parse(o.stdout.lines()), &s);
    assert_nothing_missed(&s);
    let mut want = std::collections::BTreeMap::<String, (u64, u64)>::new();
    for line in o.stdout.lines().filter(|l| l.starts_with("opcode ")) {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        let (wr, bytes) = want.entry(telereduce::verbs::opcode_name(numbers[0] as u32)).or_default();
        (*wr, *bytes) = (*wr + 1, *bytes + numbers[1]);
    }
    let seen = &s.ports[0].details.opcodes;
    assert_eq!(seen.iter().map(|(name, p)| (name.clone(), (p.wr, p.bytes))).collect::<Vec<_>>(), Vec::from_iter(want));
    assert_eq!(seen.len(), 12);
}

/// A CQ of which the program asked nothing is made to tell us what we need; where the device cannot, its only QP is known,
/// but not how many bytes arrived.
#[test]
fn completions_that_tell_nothing_are_counted_all_the_same() {
    exact("extended --bare", &[]);
    let (o, s) = alike("extended --bare", &[("NULLVERBS_WC_FLAGS", "0")]);
    let mut truth = Truth::parse(o.stdout.lines());
    let counts = truth.qps.iter_mut().map(|q| &mut q.counts).chain(truth.ports.iter_mut().map(|p| &mut p.2));
    for c in counts.chain([&mut truth.total]) {
        c.0.insert("recv_bytes_completed".into(), 0);
    }
    assert_exact(&truth, &s);
    assert_nothing_missed(&s);
}

/// Whoever waits for the device in the wrong order hangs there.
#[test]
fn threads_that_build_post_read_and_poll_on_one_qp() {
    for threads in ["extended_threads", "extended_threads --threads 8 --count 1000"] {
        exact(threads, &[]);
    }
}

/// More QPs than records are kept for destroyed ones: the oldest leave their numbers to port and peer.
#[test]
fn more_qps_than_records_are_kept() {
    for program in ["qpn_reuse --rounds 2000", "reset --rounds 1500"] {
        let (o, s) = alike(program, &[]);
        assert_ports(&Truth::parse(o.stdout.lines()), &s);
        assert_balanced(&s);
        assert_details(&s);
        assert_nothing_missed(&s);
        let peers = sum(s.peers.iter().map(|p| &p.line));
        assert_eq!((s.ports[0].line.send, s.ports[0].line.recv), (peers.send, peers.recv), "{program}");
        assert!((RETAINED..RETAINED + 8).contains(&s.qps.len()), "{program}: {} QPs", s.qps.len());
    }
}

/// Those that live together all keep theirs.
#[test]
fn many_qps_at_once_are_all_listed() {
    let (o, s) = alike("many_qps --qps 5000 --rounds 2 --lines", &[]);
    assert_exact(&Truth::parse(o.stdout.lines()), &s);
    assert_nothing_missed(&s);
    assert_eq!(s.qps.len(), 5000);
}

/// Threads share out the QP numbers differently each time, so lines of QPs are compared without them.
#[test]
fn threads_with_qps_of_their_own_and_on_one_qp() {
    let without_numbers = |stdout: &str| {
        let mut lines: Vec<String> = (stdout.lines())
            .map(|l| if l.starts_with("qp ") { l.split_once(" send_wr").expect("counts").1.into() } else { l.into() })
            .collect();
        lines.sort();
        lines
    };
    for threads in ["threads", "threads --threads 16 --count 504"] {
        let dir = Dir::new();
        let native = Run::program(threads).run().silent();
        let o = Run::program(threads).counted(&dir).run().silent();
        assert_eq!(without_numbers(&native.stdout), without_numbers(&o.stdout));
        let s = dir.snapshot();
        assert_exact(&Truth::parse(o.stdout.lines()), &s);
        assert_nothing_missed(&s);
    }
}

/// A program that looks the calls up itself passes by the exported hooks; it works, and nothing is counted.
#[test]
fn a_program_that_looks_the_calls_up_is_unharmed() {
    for program in ["dlvsym", "dlvsym --dlsym"] {
        let dir = Dir::new();
        let native = Run::program(program).run().silent();
        let o = Run::program(program).counted(&dir).run().silent();
        assert_eq!(native.stdout, o.stdout);
        assert_eq!(dir.names(), [""; 0]);
    }
}
