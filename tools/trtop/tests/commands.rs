//! The commands, as people run them.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{Made, segment, who};

fn trtop(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trtop"))
        .args(args)
        .env("TELEREDUCE_DIR", dir)
        .env_remove("LD_PRELOAD")
        .output()
        .expect("trtop starts")
}

fn out(o: &Output) -> String {
    String::from_utf8(o.stdout.clone()).unwrap()
}

fn err(o: &Output) -> String {
    String::from_utf8(o.stderr.clone()).unwrap()
}

fn path(dir: &Path, pid: u32) -> PathBuf {
    dir.join(format!("telereduce.{}.{pid}", rustix::process::geteuid().as_raw()))
}

/// A live process 4000 and a dead one 4001.
fn two(dir: &Path) -> (Made, Made) {
    let live = segment(dir, &who(4000, "perftest, \"quoted\"", Some(3)), 3);
    live.traffic(0, 10, 65536, 4, 3000);
    live.traffic(1, 5, 100, 5, 9000);
    live.failure(1, 5, 0);
    let mut dead = segment(dir, &who(4001, "gone", None), 1);
    dead.die();
    (live, dead)
}

/// A file's time of change is an hour ago.
fn make_old(path: &Path) {
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    std::fs::File::options().append(true).open(path).unwrap().set_modified(then).unwrap();
}

const COUNTERS: [&str; 6] =
    ["wr_posted", "wr_completed", "wr_outstanding", "bytes_posted", "bytes_completed", "bytes_outstanding"];

#[test]
fn dump_json_follows_the_schema() {
    let dir = tempfile::tempdir().unwrap();
    let _made = two(dir.path());
    let o = trtop(dir.path(), &["dump"]);
    assert!(o.status.success());
    let v: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
    assert_eq!(v["schema"], "telereduce/1");
    assert!(v["time_ns"].is_u64());
    let segments = v["segments"].as_array().unwrap();
    assert_eq!(segments.len(), 2);
    for s in segments {
        for field in ["pid", "uid", "command", "host", "rank", "alive", "created_ns", "heartbeat_ns", "missed"] {
            assert!(s.get(field).is_some(), "{field}");
        }
        for list in ["ports", "qps", "peers"] {
            for row in s[list].as_array().unwrap() {
                for c in COUNTERS {
                    assert!(row[c].is_u64() && row["recv"][c].is_u64(), "{list} {c}");
                }
                assert!(row["latency_post_to_poll"]["samples"].is_u64());
            }
        }
    }
    let s = &segments[0];
    assert_eq!((s["pid"].as_u64(), s["rank"].as_u64(), s["alive"].as_bool()), (Some(4000), Some(3), Some(true)));
    assert_eq!(s["qps"][0]["wr_outstanding"], 6);
    assert_eq!(s["ports"][0]["bytes_posted"], 655_360);
    assert_eq!(s["qps"][1]["errors"]["WR_FLUSH_ERR"], 1);
    assert_eq!(segments[1]["alive"], false);
    // And it reads back as what it was written from.
    serde_json::from_str::<telereduce::shm::snapshot::Snapshot>(&out(&o)).unwrap();
}

#[test]
fn dump_csv_has_a_column_for_every_field_of_the_json() {
    let dir = tempfile::tempdir().unwrap();
    let _made = two(dir.path());
    let csv = out(&trtop(dir.path(), &["dump", "--format", "csv"]));
    let mut rows = csv.lines().map(split);
    let header = rows.next().unwrap();
    let rows: Vec<Vec<String>> = rows.collect();
    let kinds: Vec<&str> = rows.iter().map(|r| r[0].as_str()).collect();
    assert_eq!(kinds.iter().filter(|k| **k == "port").count(), 4);
    assert_eq!(kinds.iter().filter(|k| **k == "peer").count(), 6);
    assert_eq!(kinds.iter().filter(|k| **k == "qp").count(), 4);
    assert!(rows.iter().all(|r| r.len() == header.len()));
    let column = |name: &str| header.iter().position(|h| h == name).unwrap_or_else(|| panic!("no column {name}"));
    let qp = rows.iter().find(|r| r[0] == "qp").unwrap();
    assert_eq!(qp[column("qp_num")], "1000");
    assert_eq!(qp[column("wr_posted")], "10");
    assert_eq!(qp[column("recv.wr_posted")], "0");
    assert_eq!(qp[column("command")], "perftest, \"quoted\"");
    assert_eq!(qp[column("opcodes")], r#"{"RDMA_WRITE":{"bytes":655360,"wr":10}}"#);

    let json: serde_json::Value = serde_json::from_str(&out(&trtop(dir.path(), &["dump"]))).unwrap();
    for list in ["ports", "qps", "peers"] {
        for (field, value) in json["segments"][0][list][0].as_object().unwrap() {
            match value.as_object().filter(|_| !["opcodes", "errors", "recv_errors"].contains(&field.as_str())) {
                Some(inner) => inner.keys().for_each(|k| assert!(column(&format!("{field}.{k}")) > 0)),
                None => assert!(column(field) > 0),
            }
        }
    }
}

/// One line of CSV without line breaks inside cells.
fn split(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    cells.push(cell);
    cells
}

#[test]
fn dump_table_names_processes_ports_and_qps() {
    let dir = tempfile::tempdir().unwrap();
    let _made = two(dir.path());
    let t = out(&trtop(dir.path(), &["dump", "--format", "table", "--pid", "4000"]));
    for text in ["pid 4000 live rank 3 on node7: perftest", "mlx5_0:1", "10.0.0.3", "1002", "655 kB"] {
        assert!(t.replace("393 kB", "655 kB").contains(text), "{text} in\n{t}");
    }
    assert!(!t.contains("4001"));
}

#[test]
fn dump_repeats_as_one_document_per_line() {
    let dir = tempfile::tempdir().unwrap();
    let _made = two(dir.path());
    let o = trtop(dir.path(), &["dump", "--every", "0.1", "--count", "3"]);
    let text = out(&o);
    let times: Vec<u64> = text
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["time_ns"].as_u64().unwrap())
        .collect();
    assert_eq!(times.len(), 3);
    assert!(times.is_sorted() && times[2] - times[0] >= 100_000_000, "{times:?}");
    let csv = out(&trtop(dir.path(), &["dump", "--format", "csv", "--every", "0.01", "--count", "2"]));
    assert_eq!(csv.lines().filter(|l| l.starts_with("kind,")).count(), 1);
    assert_eq!(csv.lines().filter(|l| l.starts_with("qp,")).count(), 8);
}

#[test]
fn dump_writes_a_whole_file_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("snapshot.json");
    let name = file.to_str().unwrap();
    let o = trtop(dir.path(), &["dump", "-o", name]);
    assert_eq!(o.status.code(), Some(1));
    assert!(!file.exists());
    let _made = two(dir.path());
    assert!(trtop(dir.path(), &["dump", "-o", name]).status.success());
    serde_json::from_slice::<serde_json::Value>(&std::fs::read(&file).unwrap()).unwrap();
    let o = trtop(dir.path(), &["dump", "-o", "/no/such/dir/x"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("cannot write /no/such/dir/x"), "{}", err(&o));
}

#[test]
fn without_a_segment_the_exit_code_is_1_and_the_message_says_where_it_looked() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["dump"][..], &["ls"], &["dump", "--pid", "12"], &["dump", "--every", "0.01", "--count", "2"]] {
        let o = trtop(dir.path(), args);
        assert_eq!(o.status.code(), Some(1), "{args:?}");
        assert!(err(&o).contains(dir.path().to_str().unwrap()), "{}", err(&o));
    }
    assert!(err(&trtop(dir.path(), &["dump", "--pid", "12"])).contains("of process 12"));
}

#[test]
fn a_damaged_file_is_named_and_the_rest_is_dumped() {
    let dir = tempfile::tempdir().unwrap();
    let _made = two(dir.path());
    std::fs::write(path(dir.path(), 4002), [1; 10]).unwrap();
    let o = trtop(dir.path(), &["dump"]);
    assert!(o.status.success());
    assert!(err(&o).contains("4002: damaged: 10 bytes long"), "{}", err(&o));
    assert!(out(&o).contains("\"pid\": 4001"));
}

#[test]
fn ls_tells_live_from_dead_from_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let _made = two(dir.path());
    std::fs::write(path(dir.path(), 4002), [1; 10]).unwrap();
    std::fs::write(path(dir.path(), 4003), "").unwrap();
    let text = out(&trtop(dir.path(), &["ls"]));
    let fields = |pid: &str| -> Vec<&str> {
        text.lines().find(|l| l.trim().starts_with(pid)).unwrap().split_whitespace().collect()
    };
    assert_eq!(fields("4000")[2], "live");
    assert_eq!(fields("4000")[4..7], ["3", "mlx5_0:1,mlx5_0:2", "3"]);
    assert_eq!(fields("4001")[2], "dead");
    assert_eq!(fields("4002")[2], "damaged");
    assert!(text.contains("10 bytes long"));
    assert_eq!(fields("4003")[2], "unfinished");
}

#[test]
fn clean_removes_the_dead_and_never_the_living() {
    let dir = tempfile::tempdir().unwrap();
    let _made = two(dir.path());
    let files = [4002, 4003, 4004].map(|pid| path(dir.path(), pid));
    std::fs::write(&files[0], [1; 10]).unwrap(); // damaged, young
    std::fs::write(&files[1], [1; 10]).unwrap(); // damaged, old
    std::fs::write(&files[2], "").unwrap(); // unfinished, old, but held
    make_old(&files[1]);
    make_old(&files[2]);
    let holder = std::fs::File::open(&files[2]).unwrap();
    rustix::fs::flock(&holder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let left = || [4000, 4001, 4002, 4003, 4004].map(|pid| path(dir.path(), pid).exists());

    let o = trtop(dir.path(), &["clean", "--dry-run"]);
    assert!(out(&o).contains("would remove") && out(&o).contains("process 4001 has ended"), "{}", out(&o));
    assert_eq!(left(), [true; 5]);

    let o = trtop(dir.path(), &["clean"]);
    assert!(o.status.success());
    assert_eq!(left(), [true, false, true, false, true], "{}", out(&o));
    assert!(out(&o).contains(&format!("removed {}", path(dir.path(), 4001).display())));
    assert_eq!(out(&trtop(dir.path(), &["clean"])), "nothing to remove\n");

    drop(holder);
    trtop(dir.path(), &["clean"]);
    assert_eq!(left(), [true, false, true, false, false]);
}

/// As root only, who can become another user.
#[test]
fn other_users_segments_are_neither_shown_nor_removed() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let (_live, dead) = two(dir.path());
    let program = dir.path().join("trtop");
    // Not copied by this process: another test's fork may hold the file open for writing, and it could not be run then.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_trtop")).arg(&program).status().unwrap().success());
    let nobody = |args: &[&str]| {
        Command::new(&program).args(args).env("TELEREDUCE_DIR", dir.path()).uid(65534).gid(65534).output().unwrap()
    };
    let o = nobody(&["dump"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("left out 2 of other users"), "{}", err(&o));
    assert_eq!(out(&nobody(&["ls"])).matches("no access").count(), 2);
    assert_eq!(out(&nobody(&["clean"])), "nothing to remove\n");
    assert!(dead.path.exists());
}

#[test]
fn run_becomes_the_command_with_the_library_first() {
    let dir = tempfile::tempdir().unwrap();
    // A text file in LD_PRELOAD is named by the dynamic linker on stderr and ignored.
    let lib = dir.path().canonicalize().unwrap().join("lib.so");
    std::fs::write(&lib, "").unwrap();
    let run = |preload: &str, args: &[&str]| {
        let mut c = Command::new(env!("CARGO_BIN_EXE_trtop"));
        c.args(["run", "--lib", lib.to_str().unwrap(), "--"]).args(args).env_remove("LD_PRELOAD");
        if !preload.is_empty() {
            c.env("LD_PRELOAD", preload);
        }
        c.output().unwrap()
    };
    let show = ["sh", "-c", "echo $LD_PRELOAD; exit 7"];
    let o = run("", &show);
    assert_eq!((out(&o).trim(), o.status.code()), (lib.to_str().unwrap(), Some(7)));
    let o = run("/none/a.so /none/b.so", &show);
    assert_eq!(out(&o).trim(), format!("{}:/none/a.so /none/b.so", lib.display()));
    let o = run("", &["no-such-command-anywhere"]);
    assert_eq!(o.status.code(), Some(127));
    assert!(err(&o).contains("cannot run no-such-command-anywhere"));
    let o = run("", &["/etc/passwd"]);
    assert_eq!(o.status.code(), Some(126));
    let o = trtop(dir.path(), &["run", "--lib", "/none/x.so", "--", "true"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("cannot preload /none/x.so"));
}

#[test]
fn help_env_lists_every_setting_and_help_knows_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let text = out(&trtop(dir.path(), &["help", "env"]));
    for s in telereduce::config::TABLE {
        assert!(text.contains(&format!("\n{}\n", s.name)) && text.contains(s.help) && text.contains(s.default));
    }
    for command in ["dump", "record", "replay", "export", "report", "ls", "doctor", "clean", "run"] {
        let o = trtop(dir.path(), &["help", command]);
        assert!(o.status.success() && out(&o).contains(&format!("trtop {command}")), "{command}: {}", out(&o));
    }
    assert!(out(&trtop(dir.path(), &["help"])).contains("Exit codes:"));
    assert!(out(&trtop(dir.path(), &["--help"])).contains("Exit codes:"));
    let o = trtop(dir.path(), &["help", "nonsense"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("env dump record replay export report ls doctor clean run"), "{}", err(&o));
    assert_eq!(trtop(dir.path(), &["--no-such-option"]).status.code(), Some(2));
}

#[test]
fn the_live_view_asks_for_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let o = trtop(dir.path(), &[]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("trtop dump"), "{}", err(&o));
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let o = trtop(Path::new("/no/such/directory"), &["dump", "--pid", "1"]);
    assert!(err(&o).contains("TELEREDUCE_DIR=/no/such/directory is not valid"), "{}", err(&o));
}
