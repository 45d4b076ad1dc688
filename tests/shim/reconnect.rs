//! Lanes are there as long as QPs need them, and a little longer; who connects anew gets those, or new ones.

use std::time::{Duration, Instant};
use telereduce_tests::run::LIMIT;
use telereduce_tests::{Dir, Live, Run};

const LANES: usize = 4;

fn start(line: &str, dir: &Dir) -> Live {
    let run = Run::program(line).env("TELEREDUCE_PATHS", &LANES.to_string()).env("NULLVERBS_GIDS", "5");
    let mut live = run.counted(dir).in_private_network().live();
    live.wait_for("ready");
    live
}

/// Numbers of the lanes that live, of both processes, once their QPs have so many.
fn lanes(dir: &Dir, wanted: usize) -> Vec<u32> {
    let start = Instant::now();
    loop {
        let all: Vec<_> = dir.segments().into_iter().map(|f| dir.read(f.pid)).collect();
        let live = all.iter().flat_map(|s| &s.lanes).filter(|l| l.live);
        let mut numbers: Vec<u32> = live.clone().map(|l| l.qp_num).collect();
        let of_qps =
            all.iter().flat_map(|s| &s.qps).filter(|q| q.live).map(|q| q.multipath.as_ref().expect("on").lanes);
        let has_all = of_qps.eq([wanted as u32; 2]) && live.clone().all(|l| l.qps == 1);
        if has_all && numbers.len() == 2 * wanted {
            numbers.sort_unstable();
            return numbers;
        }
        assert!(start.elapsed() < LIMIT, "{wanted} were wanted, {numbers:?} are there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn lanes_end_some_time_after_their_last_qp_and_a_new_connection_has_new_ones() {
    let dir = Dir::new();
    let mut live = start("reconnect", &dir);
    let first = lanes(&dir, LANES);
    live.tell("-+");
    live.wait_for("+");
    assert_eq!(lanes(&dir, LANES), first, "at once: they are kept");
    live.tell("-");
    live.wait_for("-");
    assert!(lanes(&dir, 0).is_empty());
    live.tell("+");
    live.wait_for("+");
    assert!(lanes(&dir, LANES).iter().all(|number| !first.contains(number)));
    live.finish().silent();
}
