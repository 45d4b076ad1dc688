//! Asynchronous events of lanes are the library's own: the program gets those of its own objects, as if there were no others.

use std::time::{Duration, Instant};
use telereduce_tests::run::LIMIT;
use telereduce_tests::{Dir, Run};

const LANES: u32 = 4;

#[test]
fn a_program_does_not_see_events_of_lanes_and_broken_lanes_take_nothing() {
    let dir = Dir::new();
    let run = Run::program(&format!("lane_events --others {LANES}")).env("TELEREDUCE_PATHS", &LANES.to_string());
    let mut live = run.env("NULLVERBS_GIDS", "5").counted(&dir).in_private_network().live();
    live.wait_for("ready");
    let start = Instant::now();
    // The device said that each of them broke.
    while lanes_of_the_first(&dir) != 0 {
        assert!(start.elapsed() < LIMIT, "broken lanes are still in use");
        std::thread::sleep(Duration::from_millis(5));
    }
    live.finish().silent();
}

/// How many lanes the QP of the process has that gets the events.
fn lanes_of_the_first(dir: &Dir) -> u32 {
    let all = dir.segments().into_iter().map(|f| dir.read(f.pid));
    let qp = all.flat_map(|s| s.qps).min_by_key(|q| q.qp_num).expect("the QP");
    qp.multipath.expect("multi-path is on").lanes
}

#[test]
fn without_lanes_it_is_as_natively() {
    let dir = Dir::new();
    let native = Run::program("lane_events").run().silent();
    for paths in ["1", "4"] {
        let o = Run::program("lane_events").env("TELEREDUCE_PATHS", paths).counted(&dir).run().silent();
        assert_eq!(o.stdout, native.stdout);
    }
}
