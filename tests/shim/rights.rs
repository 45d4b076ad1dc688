//! What a QP takes from its peer, its lanes take, too: it leaves those that it shared, for others that give what it gives.

use std::time::{Duration, Instant};
use telereduce_tests::run::LIMIT;
use telereduce_tests::{Dir, Run};

const LANES: u32 = 4;

#[test]
fn lanes_give_the_peer_no_more_than_the_qp_does_now() {
    let dir = Dir::new();
    let run = Run::program(&format!("rights --others {LANES}")).env("TELEREDUCE_PATHS", &LANES.to_string());
    let mut live = run.env("NULLVERBS_GIDS", "5").counted(&dir).in_private_network().live();
    live.wait_for("ready");
    // IBV_ACCESS_REMOTE_WRITE.
    assert!(live.said().contains("rights 2 2 2 2 0 0 0 0\n"), "{}", live.said());
    let start = Instant::now();
    loop {
        let s = dir.read(live.pid());
        let qp = s.qps[0].clone();
        let used: Vec<u32> = s.lanes.iter().filter(|l| l.live && l.qps > 0).map(|l| l.qp_num).collect();
        if qp.multipath.expect("multi-path is on").lanes == LANES && used.len() == LANES as usize {
            assert!(used.iter().all(|number| *number > qp.qp_num + LANES), "{used:?}");
            break;
        }
        assert!(start.elapsed() < LIMIT, "no new lanes");
        std::thread::sleep(Duration::from_millis(5));
    }
    live.finish().silent();
}
