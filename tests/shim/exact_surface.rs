//! The rest of the verbs' surface: what is counted of it, and what is said to be missing.

use crate::exact::{alike, exact};
use telereduce_tests::compare::{assert_exact, assert_nothing_missed};
use telereduce_tests::{Dir, Run, Truth};

/// A message names its SRQ, whose CQ gets the completion, of a QP that has no CQ. The SRQs have 20 receives, 17 are taken.
#[test]
fn xrc_receives_count_at_their_srq_and_at_the_qp() {
    let (o, s) = alike("xrc", &[]);
    let mut truth = Truth::parse(o.stdout.lines());
    for c in truth.ports.iter_mut().map(|p| &mut p.2).chain([&mut truth.total]) {
        c.0.extend([("recv_wr_posted".into(), 20), ("recv_wr_discarded".into(), 3)]);
    }
    assert_exact(&truth, &s);
    assert_nothing_missed(&s);
    let of = |i: usize| {
        let r = &s.srqs[i].recv;
        (r.wr_posted, r.wr_completed, r.wr_failed, r.wr_dropped, r.bytes_completed)
    };
    assert_eq!((of(0), of(1)), ((10, 8, 1, 1, 560), (10, 8, 0, 2, 640)));
}

/// Thread and parent domains, resized CQs, queries; and binding a memory window, which is a WR, in each of its three ways.
#[test]
fn domains_resized_cqs_and_memory_windows() {
    let (_, s) = exact("domains", &[]);
    let binds = s.ports[0].details.opcodes["BIND_MW"];
    assert_eq!((binds.wr, binds.bytes), (3 * 5 + 1 + 1 + 1, 0));
    assert_eq!(s.cqs[0].cqe, 79, "as it was resized");
}

/// Nobody sees the receives of work queues and of tag matching being posted: their completions are said to be missing, the
/// RSS QP is marked, and the QP beside them is counted as ever.
#[test]
fn what_is_received_elsewhere_is_said_to_be_missing() {
    let (o, s) = alike("elsewhere", &[]);
    assert_exact(&Truth::parse(o.stdout.lines()), &s);
    let n = o.stdout.lines().find_map(|l| l.strip_prefix("elsewhere ")).expect("a number");
    assert_eq!(s.missed.completions_unmatched, n.parse::<u64>().expect("a number"));
    assert_eq!((s.missed.objects_opaque, s.missed.wrs_unseen, s.missed.objects_untracked), (1, 0, 0));
}

/// Objects of providers' own calls are counted as far as verbs use them, and marked; bare queues are numbered.
#[test]
fn what_can_be_used_without_verbs_is_opaque() {
    for program in ["opaque", "opaque --dlsym", "opaque --dlvsym"] {
        let (truth, s) = exact(program, &[]);
        let opaque = |i: usize| s.qps.iter().find(|q| q.qp_num == truth.qps[i].qpn).expect("this QP").opaque;
        assert_eq!([0, 1, 2, 3, 4].map(opaque), [true, true, true, true, false], "{program}");
        assert!(s.cqs.len() == 2 && s.cqs.iter().all(|c| c.opaque), "{program}");
        assert_eq!(s.missed.objects_opaque, 4 + 2 + 2, "{program}");
    }
}

/// Where there is no such library, its calls are found no more than natively.
#[test]
fn calls_of_absent_libraries_stay_absent() {
    let dir = Dir::new();
    let native = Run::program("absent").run().silent();
    let o = Run::program("absent").counted(&dir).run().silent();
    assert_eq!(native.stdout, o.stdout);
    assert!(o.stdout.contains("mlx5dv_init_obj absent"), "{}", o.stdout);
}

/// A program that becomes another one: what it did before goes with it, and the other one has a segment of its own.
#[test]
fn a_program_that_is_replaced_begins_anew() {
    let dir = Dir::new();
    let native = Run::program("execs").run().silent();
    let o = Run::program("execs").counted(&dir).run().silent();
    assert_eq!(native.stdout, o.stdout);
    assert_exact(&Truth::parse(o.stdout.lines()), &dir.snapshot());
    assert_eq!(dir.names(), [""; 0], "neither left anything behind");
}
