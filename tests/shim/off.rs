//! `TELEREDUCE=off`: nothing is made, said or counted.

use telereduce_tests::{Dir, Run};

#[test]
fn nothing_is_made_and_nothing_is_said() {
    for value in ["off", "0", "no", "OFF"] {
        for program in ["basic", "srq", "fork_noexec", "odd_close"] {
            let dir = Dir::new();
            let run = Run::program(program).counted(&dir).env("TELEREDUCE", value);
            let run = run.env("TELEREDUCE_LATENCY", "a bad value, which does not matter then");
            let counted = run.run().silent();
            let words = |s: &str| s.lines().filter(|l| !l.starts_with("child ")).map(String::from).collect::<Vec<_>>();
            assert_eq!(words(&counted.stdout), words(&Run::program(program).run().silent().stdout));
            assert_eq!((dir.names(), dir.snapshots().len()), (vec![], 0));
        }
    }
}

#[test]
fn the_devices_own_operations_stay_in_place() {
    let dir = Dir::new();
    let mut live = Run::program("hold_live").counted(&dir).env("TELEREDUCE", "off").live();
    live.wait_for("ready");
    assert_eq!(dir.names(), [""; 0]);
    live.finish().silent();
}
