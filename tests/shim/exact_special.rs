//! Programs whose truth needs a word of explanation, or whose nature it is that something cannot be counted.

use crate::exact::alike;
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

/// `ibv_wr_*` and `ibv_start_poll` are not counted yet, and the snapshot says for which objects. What was posted by the
/// plain call (3 WRs) is, and never completes as far as the library can see.
#[test]
fn what_is_not_counted_is_marked() {
    let (_, s) = alike("extended", &[]);
    assert!(!s.qps.is_empty() && s.qps.iter().all(|q| q.extended_sends));
    assert!(!s.cqs.is_empty() && s.cqs.iter().all(|c| c.extended));
    let p = &s.ports[0].line;
    assert_eq!((p.send.wr_posted, p.send.bytes_posted, p.send.wr_dropped), (3, 96, 3));
    assert_eq!((p.recv.wr_posted, p.recv.wr_dropped), (30, 30));
    assert_balanced(&s);
    assert_details(&s);
    assert_nothing_missed(&s);
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
