//! The final snapshot: its name, its fields, and what happens if it cannot be written.

use serde_json::Value;
use telereduce_tests::run::{names, read_snapshot};
use telereduce_tests::{Dir, Run};

#[test]
fn the_name_has_pid_host_and_rank() {
    let dir = Dir::new();
    let template = dir.path().join("snapshots/%h.%p.r%r.%%x");
    let run = Run::program("no_close").counted(&dir).env("PMI_RANK", "12");
    let o = run.env("TELEREDUCE_SNAPSHOT", template.to_str().expect("UTF-8")).run().silent();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(names(&dir.path().join("snapshots")), [format!("{}.{}.r12.%x", host.trim_end(), o.pid)]);
    assert_eq!(dir.snapshot().rank, Some(12));
}

#[test]
fn an_old_file_of_the_name_is_replaced() {
    let dir = Dir::new();
    let file = dir.path().join("snapshots/s");
    std::fs::write(&file, "x".repeat(1 << 20)).expect("a new file");
    let run = Run::program("no_close").counted(&dir);
    run.env("TELEREDUCE_SNAPSHOT", file.to_str().expect("UTF-8")).run().silent();
    assert_eq!(read_snapshot(&file).segments.len(), 1);
}

#[test]
fn a_place_that_cannot_be_written_is_one_line_and_nothing_more() {
    // Over a device that moves nothing, `basic` fails a check of its own.
    for (program, mode, code) in [("no_close", "model", 0), ("basic", "null", 1)] {
        for name in ["/nonexistent/%p.json", "/proc/self/nothing", "/"] {
            let dir = Dir::new();
            let run = Run::program(program).env("NULLVERBS_MODE", mode);
            let native = run.run();
            let o = run.counted(&dir).env("TELEREDUCE_SNAPSHOT", name).run();
            assert_eq!((o.code, o.stdout), (Some(code), native.stdout));
            let ours: Vec<&str> = o.stderr.lines().filter(|l| l.starts_with("telereduce: ")).collect();
            let theirs: Vec<&str> = o.stderr.lines().filter(|l| !l.starts_with("telereduce: ")).collect();
            assert!(ours.len() == 1 && ours[0].contains("cannot write the snapshot"), "{}", o.stderr);
            assert_eq!(theirs, native.stderr.lines().collect::<Vec<_>>());
            assert_eq!(dir.names(), [""; 0], "the segment is removed all the same");
        }
    }
}

#[test]
fn a_full_disk_is_one_line() {
    let dir = Dir::new();
    let o = Run::program("no_close").counted(&dir).env("TELEREDUCE_SNAPSHOT", "/dev/full").run().ok();
    assert!(o.one_line().contains("cannot write the snapshot /dev/full"), "{}", o.stderr);
}

/// The documented fields are there by name, in the JSON itself.
#[test]
fn the_documented_fields_are_there() {
    let dir = Dir::new();
    Run::program("basic").counted(&dir).run().silent();
    let snapshots = dir.path().join("snapshots");
    let text = std::fs::read(snapshots.join(&names(&snapshots)[0])).expect("the snapshot");
    let json: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(json["schema"], "telereduce/1");
    let s = &json["segments"][0];
    for (field, ok) in [
        ("pid", s["pid"].is_u64()),
        ("command", s["command"].is_string()),
        ("host", s["host"].is_string()),
        ("rank", s["rank"].is_null()),
        ("alive", s["alive"] == Value::Bool(false)),
    ] {
        assert!(ok, "{field}");
    }
    let counters = ["posted", "completed", "outstanding"];
    for list in ["ports", "qps", "peers"] {
        let rows = s[list].as_array().expect("a list");
        assert!(!rows.is_empty(), "{list}");
        for row in rows {
            for name in counters.iter().flat_map(|c| [format!("wr_{c}"), format!("bytes_{c}")]) {
                assert!(row[&name].is_u64() && row["recv"][&name].is_u64(), "{list}: {name}");
            }
        }
    }
}
