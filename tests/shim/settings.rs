//! Settings: a bad value is named in one line and its default is used.

use telereduce::config::TABLE;
use telereduce_tests::{Dir, Run};

#[test]
fn each_bad_value_is_named_once_and_the_program_runs_on() {
    let native = Run::program("no_close").run().silent();
    // Those of the side channel are read by itself, when multi-path is on.
    let elsewhere = ["TELEREDUCE_SNAPSHOT", "TELEREDUCE_PORT", "TELEREDUCE_SECRET_FILE"];
    for s in TABLE.iter().filter(|s| !elsewhere.contains(&s.name)) {
        let dir = Dir::new();
        // Later settings win; without TELEREDUCE_DIR the segment goes to the default directory, and is removed as well.
        let o = Run::program("no_close").counted(&dir).env(s.name, "7 of 9").run().ok();
        let line = o.one_line();
        assert!(line.contains(&format!("{}=7 of 9 ", s.name)) && line.contains(s.values), "{line}");
        assert!(line.ends_with(&format!("using {}", s.default)), "{line}");
        assert_eq!(o.stdout, native.stdout);
        let segment = format!("/dev/shm/{}", telereduce::shm::segment::file_name(dir.snapshot().uid, o.pid));
        assert!(!std::path::Path::new(&segment).exists());
    }
}

#[test]
fn several_bad_values_are_all_named() {
    let dir = Dir::new();
    let run = Run::program("no_close").counted(&dir);
    let o = run.env("TELEREDUCE_LATENCY", "often").env("TELEREDUCE_EVENTS", "some").run().ok();
    assert_eq!(o.stderr.lines().count(), 2);
    assert_eq!(dir.snapshot().latency_every, 64);
}
