//! A peer that is stopped holds nobody up: whoever leaves waits for it once, not once for each of its QPs; and nobody counts on
//! lanes that ended then.

use std::time::{Duration, Instant};
use telereduce_tests::run::LIMIT;
use telereduce_tests::{Dir, Live, Run};

fn start(line: &str, dir: &Dir) -> Live {
    let run = Run::program(line).env("TELEREDUCE_PATHS", "2").env("NULLVERBS_GIDS", "3");
    let mut live = run.counted(dir).in_private_network().live();
    live.wait_for("ready");
    live
}

/// Waits until so many QPs have so many lanes.
fn until(dir: &Dir, live: &Live, qps: usize, lanes: u32) {
    let start = Instant::now();
    let has = |m: &telereduce::shm::snapshot::QpMultipathJson| m.lanes == lanes;
    while dir.read(live.pid()).qps.iter().filter(|q| q.live && q.multipath.as_ref().is_some_and(has)).count() != qps {
        assert!(start.elapsed() < LIMIT / 2, "not {qps} with {lanes} lanes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn many_qps_leave_a_peer_that_is_stopped() {
    // More than there are seconds until the program is killed. Each has lanes of its own, since it has a PD of its own.
    const QPS: usize = 70;
    assert!(QPS as u64 > LIMIT.as_secs());
    let dir = Dir::new();
    let mut live = start(&format!("stopped_peer {QPS}"), &dir);
    until(&dir, &live, QPS, 2);
    live.may_take(LIMIT);
    live.finish().silent();
}

#[test]
fn all_who_share_lanes_that_end_do_without_them() {
    let dir = Dir::new();
    let mut live = start("stopped_peer 2 --one-pd", &dir);
    until(&dir, &live, 2, 2);
    live.tell("-");
    live.wait_for("left");
    until(&dir, &live, 1, 0);
    live.finish().silent();
}
