//! What the snapshot says is what the program did, number by number, and the program behaves as without the library.

use telereduce::shm::snapshot::SegmentJson;
use telereduce_tests::compare::{assert_exact, assert_nothing_missed};
use telereduce_tests::{Dir, Outcome, Run, Truth};

/// Runs a program natively and under the library; both end alike and say the same.
pub fn alike(program: &str, env: &[(&str, &str)]) -> (Outcome, SegmentJson) {
    let dir = Dir::new();
    let run = env.iter().fold(Run::program(program), |r, (k, v)| r.env(k, v));
    let native = run.run().silent();
    let counted = run.counted(&dir).run().silent();
    assert_eq!(without_pids(&native.stdout), without_pids(&counted.stdout));
    assert_eq!(dir.names(), [""; 0], "the segment is removed at exit");
    let s = dir.snapshot();
    assert_eq!((s.pid, s.alive), (counted.pid, false));
    (counted, s)
}

fn without_pids(stdout: &str) -> Vec<&str> {
    stdout.lines().filter(|l| !l.starts_with("pid ")).collect()
}

/// As [`alike`], and every number is right.
pub fn exact(program: &str, env: &[(&str, &str)]) -> (Truth, SegmentJson) {
    let (outcome, s) = alike(program, env);
    let truth = Truth::parse(outcome.stdout.lines());
    assert_exact(&truth, &s);
    assert_nothing_missed(&s);
    let cqes: u64 = s.cqs.iter().map(|c| c.cqes).sum();
    let t = |name| truth.total.get(name);
    assert_eq!(cqes, t("send_cqes") + t("recv_wr_completed") + t("recv_wr_failed"), "CQEs of all CQs");
    (truth, s)
}

macro_rules! exact {
    ($($test:ident: $program:literal $(, $env:expr)?;)*) => { $(
        #[test]
        fn $test() {
            let env: &[(&str, &str)] = &[$($env)?];
            exact($program, env);
        }
    )* };
}

exact! {
    every_kind_of_wr: "basic";
    every_wr_signaled: "basic --signal-every 1";
    hardly_any_signaled: "basic --signal-every 97 --writes 2000";
    large_messages: "basic --size 1048576";
    null_device: "basic --null";
    calls_bound_inside_the_library: "basic", ("LD_LIBRARY_PATH", symbolic());
    extended_sends_and_completions: "extended";
    extended_cqs_polled_by_the_plain_call: "extended --plain";
    extended_verbs_of_a_library_bound_to_itself: "extended", ("LD_LIBRARY_PATH", symbolic());
    a_child_goes_on_with_extended_objects: "extended_fork";
    partly_accepted_chains: "partial";
    a_queue_that_is_often_full: "full";
    reset_with_work_outstanding: "reset";
    reused_qp_numbers: "qpn_reuse";
    datagrams: "ud";
    unreliable_connections: "uc";
    one_cq_for_all_and_equal_ids: "shared_cq";
    completion_channels: "events";
    a_thousand_qps: "many_qps --qps 1000 --lines";
    devices_closed_in_odd_order: "odd_close";
    nothing_closed: "no_close";
    work_left_at_exit: "unpolled";
    a_thread_that_is_being_cancelled: "cancel";
    abi_without_extended_context: "abi old";
    abi_with_fewer_slots: "abi short";
    abi_with_more_slots: "abi future";
    abi_as_built: "abi now";
}

/// The device whose library binds its own calls to itself.
pub fn symbolic() -> &'static str {
    let path = telereduce_tests::run::built("nullverbs/symbolic");
    Box::leak(path.to_str().expect("a path in UTF-8").to_string().into_boxed_str())
}

#[test]
fn errors_by_status() {
    let (_, s) = exact("errors", &[]);
    let p = &s.ports[0].details;
    let expect = |d: &std::collections::BTreeMap<String, u64>, want: &[(&str, u64)]| {
        let want = want.iter().map(|(k, v)| ((*k).to_string(), *v)).collect();
        assert_eq!(*d, want);
    };
    let one_each = ["REM_OP_ERR", "REM_ACCESS_ERR", "LOC_PROT_ERR", "RNR_RETRY_EXC_ERR", "REM_INV_REQ_ERR"];
    let mut sends: Vec<(&str, u64)> = one_each.iter().map(|n| (*n, 1)).collect();
    sends.push(("WR_FLUSH_ERR", 10));
    expect(&p.errors, &sends);
    expect(&p.recv_errors, &[("LOC_LEN_ERR", 1), ("WR_FLUSH_ERR", 4)]);
    let scripted = s.qps.iter().filter_map(|q| q.last_error.as_ref()).find(|e| e.status == "REM_OP_ERR");
    let e = scripted.expect("the QP that was told to fail says so");
    assert_eq!((e.vendor_err, e.wr_id), (0x77, 5));
}

#[test]
fn devices_with_equal_qp_numbers() {
    let (_, s) = exact("two_devices", &[]);
    let mut peers: Vec<_> = (s.peers.iter())
        .map(|p| (p.device.as_str(), p.port, p.ip.as_deref().unwrap(), p.line.send.bytes_posted))
        .collect();
    peers.sort_unstable();
    let (a, b) = ("192.0.2.1", "192.0.2.3");
    assert_eq!(
        peers,
        [
            ("null0", 1, a, 3011),
            ("null0", 1, b, 2000),
            ("null0", 2, a, 0),
            ("null1", 1, a, 0),
            ("null1", 1, b, 70013),
            ("null1", 2, b, 6),
        ]
    );
}

/// Connected QPs all have a peer, so that the peers of a port add up to it; and rows name the peer's QP.
#[test]
fn peers_add_up_to_their_port() {
    for program in ["basic", "reset", "qpn_reuse", "two_devices", "errors", "odd_close"] {
        let (truth, s) = exact(program, &[]);
        for port in &s.ports {
            let of_port = |p: &&telereduce::shm::snapshot::PeerJson| (&p.device, p.port) == (&port.device, port.port);
            let sum = telereduce_tests::compare::sum(s.peers.iter().filter(of_port).map(|p| &p.line));
            assert_eq!((sum.send, sum.recv), (port.line.send, port.line.recv), "{program}: port {}", port.port);
        }
        for q in &s.qps {
            let dest = q.dest_qp_num.expect("a connected QP has a peer");
            // The truth knows only the last of a QP's peers.
            let several = ["reset", "odd_close"].contains(&program);
            let mut of = truth.qps.iter().filter(|t| Some(&t.device) == q.device.as_ref() && t.qpn == q.qp_num);
            assert!(several || of.any(|t| t.peer_qpn == dest), "{program}: QP {} to {dest}", q.qp_num);
        }
    }
}
