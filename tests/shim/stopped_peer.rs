//! A peer that is stopped holds nobody up: whoever leaves waits for it once, not once for each of its QPs.

use std::time::{Duration, Instant};
use telereduce_tests::run::LIMIT;
use telereduce_tests::{Dir, Run};

/// More than there are seconds until the program is killed. Each has lanes of its own, since it has a PD of its own.
const QPS: usize = 70;

#[test]
fn many_qps_leave_a_peer_that_is_stopped() {
    assert!(QPS as u64 > LIMIT.as_secs());
    let dir = Dir::new();
    let run = Run::program(&format!("stopped_peer {QPS}")).env("TELEREDUCE_PATHS", "2").env("NULLVERBS_GIDS", "3");
    let mut live = run.counted(&dir).in_private_network().live();
    live.wait_for("ready");
    let pid = live.pid();
    let start = Instant::now();
    while dir.read(pid).qps.iter().filter(|q| q.multipath.as_ref().is_some_and(|m| m.lanes == 2)).count() < QPS {
        assert!(start.elapsed() < LIMIT / 2, "not all have lanes");
        std::thread::sleep(Duration::from_millis(5));
    }
    live.may_take(LIMIT);
    live.finish().silent();
}
