//! How each context is reached is said, by the snapshot and by `trtop doctor`.

use std::process::Command;
use telereduce_tests::run::built;
use telereduce_tests::{Dir, Run};

fn ways(program: &str, env: &[(&str, &str)]) -> Vec<(String, bool)> {
    let dir = Dir::new();
    env.iter().fold(Run::program(program), |r, (k, v)| r.env(k, v)).counted(&dir).run();
    dir.snapshot().contexts.into_iter().map(|c| (c.hooked, c.live)).collect()
}

#[test]
fn the_way_to_each_context_is_known() {
    let one = |way: &str, live| vec![(way.to_string(), live)];
    assert_eq!(ways("basic", &[]), one("linked", false));
    assert_eq!(ways("no_close", &[]), one("linked", true));
    assert_eq!(ways("dlvsym", &[]), one("looked_up", false));
    // Its end is not seen either.
    assert_eq!(ways("dlvsym", &[("TELEREDUCE_DLSYM", "off")]), one("unseen", true));
    assert_eq!(ways("two_devices", &[]).len(), 2);
}

/// Exit code and report of `trtop doctor`.
fn doctor(dir: &Dir, args: &[&str]) -> (Option<i32>, String) {
    let o = Command::new(built("release/trtop"))
        .args(["doctor", "--seconds", "0.01"])
        .args(args)
        .env("TELEREDUCE_DIR", dir.segment_dir())
        .output()
        .expect("trtop, which `make build` makes");
    (o.status.code(), String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr))
}

#[test]
fn a_program_that_is_seen_is_well() {
    let dir = Dir::new();
    let mut live = Run::program("hold_live").counted(&dir).live();
    live.wait_for("ready");
    let (code, report) = doctor(&dir, &["--pid", &live.pid().to_string()]);
    assert_eq!(code, Some(0), "{report}");
    for part in ["1 open, calls seen: the program is linked", "everything on them is counted", "null0:1"] {
        assert!(report.contains(part), "no '{part}' in: {report}");
    }
    live.finish();
}

#[test]
fn a_program_without_the_library_is_told_apart() {
    let dir = Dir::new();
    let mut live = Run::program("hold_live").live();
    live.wait_for("ready");
    let (code, report) = doctor(&dir, &["--pid", &live.pid().to_string()]);
    assert_eq!(code, Some(1));
    assert!(report.contains("the library is not loaded") && report.contains("trtop run -- COMMAND"), "{report}");
    live.finish();
}
