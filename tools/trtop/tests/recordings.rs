//! Recordings: what was recorded comes back exactly, however the file was hurt.

#[path = "support/recorded.rs"]
mod recorded;
mod support;

use proptest::prelude::*;
use recorded::{EVERY_NS, START_NS, about, good, json, written};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use support::{segment, who};
use telereduce::shm::snapshot::Snapshot;
use trtop::recording::file::{self, HEAD_BYTES};
use trtop::recording::live::Segments;
use trtop::recording::player::Player;
use trtop::recording::snapshots::Snapshots;
use trtop::recording::writer::Writer;

fn snapshots(path: &Path) -> (usize, Snapshots) {
    let player = Player::open(path).unwrap();
    (player.frames().len(), Snapshots::new(player))
}

#[test]
fn every_frame_comes_back_as_the_segments_were_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, shown) = good();
    let (count, mut s) = snapshots(&written(&dir, bytes));
    assert_eq!(count, shown.len());
    for i in (0..count).chain([3, 3, 0, 7, 1]) {
        let got: Snapshot = s.at(i, &[]).unwrap();
        assert_eq!(got.time_ns, START_NS + i as u64 * EVERY_NS);
        let (got, want): (Vec<_>, Vec<_>) =
            (got.segments.iter().map(json).collect(), shown[i].iter().map(json).collect());
        assert_eq!(got, want, "frame {i}");
    }
    assert_eq!(shown[4][0].qps[1].line.send.bytes_completed, 3 * (1 << 53 | 1));
    assert!(shown[4][0].alive && !shown[5][0].alive && shown[7].len() == 1);
}

#[test]
fn a_recording_cut_at_every_byte_shows_its_whole_frames_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, _) = good();
    let path = written(&dir, bytes);
    let all = file::index(&path, &std::fs::File::open(&path).unwrap()).unwrap();
    assert!(all.troubles.is_empty() && all.end == bytes.len() as u64);
    let ends: Vec<u64> = all.frames.iter().map(|f| f.offset + u64::from(f.bytes)).collect();
    let first = all.frames[0].offset - HEAD_BYTES as u64;
    for length in 0..bytes.len() as u64 {
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        file.set_len(0).unwrap();
        std::fs::write(&path, &bytes[..length as usize]).unwrap();
        match file::index(&path, &std::fs::File::open(&path).unwrap()) {
            Ok(i) => {
                let whole = ends.iter().filter(|e| **e <= length).count();
                assert_eq!(i.frames, all.frames[..whole], "{length}");
                let end = ends[..whole].last().copied().unwrap_or(first);
                assert_eq!((i.end, i.troubles.len()), (end, usize::from(end != length)), "{length}: {:?}", i.troubles);
                assert!(i.troubles.iter().all(|t| t.contains(&format!("at byte {end}"))), "{:?}", i.troubles);
            }
            Err(e) => assert!(length < first && !e.message.is_empty(), "{length}: {}", e.message),
        }
    }
    // And those frames can be shown.
    let middle = (ends[4] + 3) as usize;
    std::fs::write(&path, &bytes[..middle]).unwrap();
    let (count, mut s) = snapshots(&path);
    assert_eq!((count, json(&s.at(4, &[]).unwrap().segments[0])), (5, json(&good().1[4][0])));
}

#[test]
fn what_is_recorded_after_a_crash_follows_the_last_whole_frame() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, shown) = good();
    let path = written(&dir, &bytes[..bytes.len() - 5]);
    let live = tempfile::tempdir().unwrap();
    let made = segment(live.path(), &who(5000, "next", None), 1);
    made.traffic(0, 1, 7, 1, 1);
    let mut segments = Segments::new(live.path(), &[], false);
    let mut writer = Writer::open(&path, &about(), false).unwrap();
    let other = Writer::open(&path, &about(), false).err().expect("two recorders of one file");
    assert!(other.message.contains("another trtop"), "{}", other.message);
    segments.copy().unwrap();
    writer.write(START_NS + 100 * EVERY_NS, &segments.images(), 0, true).unwrap();
    drop(writer);
    let (count, mut s) = snapshots(&path);
    assert_eq!(count, 8, "seven of the first, one of the second");
    assert_eq!(json(&s.at(6, &[]).unwrap().segments[0]), json(&shown[6][0]));
    // The second recorder counts segments from one, too; they are others.
    assert_eq!(s.at(7, &[]).unwrap().segments.iter().map(|g| g.pid).collect::<Vec<_>>(), [5000]);
}

#[test]
fn damage_in_a_frame_leaves_those_before_it_and_from_the_next_key_frame_on() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, _) = good();
    let path = written(&dir, bytes);
    // A second recorder's key frame comes after the first one's.
    let live = tempfile::tempdir().unwrap();
    let _made = segment(live.path(), &who(5000, "next", None), 1);
    let mut segments = Segments::new(live.path(), &[], false);
    segments.copy().unwrap();
    let mut writer = Writer::open(&path, &about(), false).unwrap();
    writer.write(START_NS + 100 * EVERY_NS, &segments.images(), 0, true).unwrap();
    drop(writer);
    let all = file::index(&path, &std::fs::File::open(&path).unwrap()).unwrap().frames;
    let mut hurt = std::fs::read(&path).unwrap();
    hurt[all[3].offset as usize + 2] ^= 0x40;
    std::fs::write(&path, &hurt).unwrap();
    let i = file::index(&path, &std::fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(i.frames, [&all[..3], &all[8..]].concat());
    assert!(i.troubles.len() == 1 && i.troubles[0].contains("goes on with the next key frame"), "{:?}", i.troubles);
    let (_, mut s) = snapshots(&path);
    assert_eq!(s.at(3, &[]).unwrap().segments[0].pid, 5000);
}

/// Everything that reads a recording reads these bytes.
fn look(bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir, bytes);
    let Ok(player) = Player::open(&path) else { return };
    let count = player.frames().len();
    let mut s = Snapshots::new(player);
    for i in 0..count {
        if s.at(i, &[]).is_err() {
            break;
        }
    }
}

/// With frames' checksums made right again: what a frame says is not believed either.
fn with_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut at = 8;
    while let Some(head) = bytes.get(at..at + HEAD_BYTES) {
        let length = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
        let Some(body) = bytes.get(at + HEAD_BYTES..at + HEAD_BYTES + length) else { break };
        let mut sum = crc32fast::Hasher::new();
        sum.update(&head[..16]);
        sum.update(body);
        let sum = sum.finalize().to_le_bytes();
        bytes[at + 16..at + 20].copy_from_slice(&sum);
        at += HEAD_BYTES + length;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_changed(at in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut bytes = good().0.clone();
        for (i, b) in at {
            let i = i.index(bytes.len());
            bytes[i] = b;
        }
        look(&bytes);
        look(&with_checksums(bytes));
    }

    /// Frames whose bytes are whole after their compression, and nonsense before it.
    #[test]
    fn frames_of_nonsense(raw in proptest::collection::vec(any::<u8>(), 0..400), flip in any::<prop::sample::Index>(), to in any::<u8>()) {
        let (good, _) = good();
        let mut codec = trtop::recording::codec::Codec::default();
        let _ = codec.decode(true, &raw);
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir, good);
        let first = file::index(&path, &std::fs::File::open(&path).unwrap()).unwrap().frames[0];
        let bytes = &good[first.offset as usize..first.offset as usize + first.bytes as usize];
        let mut key = zstd::bulk::decompress(bytes, 1 << 24).unwrap();
        let at = flip.index(key.len());
        key[at] = to;
        let mut codec = trtop::recording::codec::Codec::default();
        let _ = codec.decode(true, &key);
        let _ = codec.decode(false, &raw);
    }
}

fn trtop(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trtop")).args(args).env("TELEREDUCE_DIR", dir).output().expect("trtop starts")
}

fn err(o: &Output) -> String {
    String::from_utf8(o.stderr.clone()).unwrap()
}

#[test]
fn record_stops_in_time_or_at_a_signal_and_spares_other_files() {
    let dir = tempfile::tempdir().unwrap();
    let _made = segment(dir.path(), &who(4000, "job", None), 2);
    let file = dir.path().join("r");
    let name = file.to_str().unwrap();
    let record = |more: &[&str]| trtop(dir.path(), &[&["record", "-o", name, "--every", "0.05"], more].concat());
    let o = record(&["--for", "0.3"]);
    assert!(o.status.success() && err(&o).contains("frames recorded"), "{}", err(&o));
    let frames = || Player::open(&file).unwrap().frames().len();
    let first = frames();
    assert!((2..=7).contains(&first), "{first}");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let mut c = Command::new(env!("CARGO_BIN_EXE_trtop"))
        .args(["record", "-o", name, "--every", "3600"])
        .env("TELEREDUCE_DIR", dir.path())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while frames() == first {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&c);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(c.wait().unwrap().success());
    assert_eq!(frames(), first + 1);

    std::fs::write(&file, "a letter").unwrap();
    let o = record(&["--for", "0.1"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("it is no recording") && err(&o).contains("--force"), "{}", err(&o));
    assert_eq!(std::fs::read(&file).unwrap(), b"a letter");
    assert!(record(&["--for", "0.1", "--force"]).status.success());
    assert!(frames() > 0);
    let o = trtop(dir.path(), &["record", "-o", "/dev/full"]);
    assert!(err(&o).contains("not a regular file"), "{}", err(&o));
}

#[test]
fn a_full_disk_is_said_and_leaves_whole_frames() {
    let dir = tempfile::tempdir().unwrap();
    let _made = segment(dir.path(), &who(4000, "job", None), 50);
    let file = dir.path().join("r");
    // A limit of the file's size stands for the disk's: `ulimit -f` counts KiB, and SIGXFSZ is not to end it.
    let script = "trap '' XFSZ; ulimit -f 4; exec \"$0\" record -o \"$1\" --every 0.01 --for 20";
    let o = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_trtop"), file.to_str().unwrap()])
        .env("TELEREDUCE_DIR", dir.path())
        .output()
        .unwrap();
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("cannot write") && err(&o).contains("it holds the"), "{}", err(&o));
    let i = file::index(&file, &std::fs::File::open(&file).unwrap()).unwrap();
    assert!(i.troubles.is_empty() && !i.frames.is_empty(), "{i:?}");
}

/// A path, to export to.
fn export(dir: &tempfile::TempDir, to: &str) -> Vec<u8> {
    let path = written(dir, &good().0);
    let out = dir.path().join(to);
    let o = trtop(dir.path(), &["export", "--from", path.to_str().unwrap(), "--to", to, "-o", out.to_str().unwrap()]);
    assert!(o.status.success() && o.stderr.is_empty(), "{}", err(&o));
    std::fs::read(&out).unwrap()
}

#[test]
fn json_is_the_documented_schema_frame_by_frame() {
    let dir = tempfile::tempdir().unwrap();
    let text = String::from_utf8(export(&dir, "json")).unwrap();
    let frames: Vec<Snapshot> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(frames.len(), 8);
    for (f, want) in frames.iter().zip(&good().1) {
        assert_eq!(f.segments.iter().map(json).collect::<Vec<_>>(), want.iter().map(json).collect::<Vec<_>>());
    }
    assert!(text.contains("\"bytes_completed\":27021597764222979"), "3 * (2^53 + 1), to the last digit");
}

#[test]
fn csv_has_one_first_line_and_the_rows_of_each_frame() {
    let dir = tempfile::tempdir().unwrap();
    let text = String::from_utf8(export(&dir, "csv")).unwrap();
    assert_eq!(text.lines().next().unwrap().to_string() + "\n", trtop::csv::header(true));
    assert_eq!(text.lines().filter(|l| l.starts_with("kind,")).count(), 1);
    let qps: usize = good().1.iter().flatten().map(|g| g.qps.len()).sum();
    assert_eq!(text.lines().filter(|l| l.starts_with("qp,")).count(), qps);
    let times = text.lines().filter(|l| l.starts_with("port,")).map(|l| l.split(',').nth(1).unwrap());
    assert_eq!(times.collect::<std::collections::BTreeSet<_>>().len(), 8);
}

#[test]
fn parquet_holds_the_rows_with_exact_numbers() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    let dir = tempfile::tempdir().unwrap();
    let reader = SerializedFileReader::new(bytes::Bytes::from(export(&dir, "parquet"))).unwrap();
    let want = good().1.iter().flatten();
    let rows: usize = want.map(|g| g.ports.len() + g.peers.len() + g.qps.len()).sum();
    assert_eq!(reader.metadata().file_metadata().num_rows(), rows as i64);
    let mut largest = 0;
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let cell = |name: &str| row.get_column_iter().find(|(n, _)| *n == name).unwrap().1.clone();
        assert!(matches!(cell("time_ns"), Field::ULong(t) if t >= START_NS));
        assert!(matches!(cell("command"), Field::Str(_)) && matches!(cell("alive"), Field::Bool(_)));
        if cell("kind") == Field::Str("qp".into()) {
            let Field::ULong(b) = cell("bytes_completed") else { panic!() };
            largest = largest.max(b);
        }
    }
    assert_eq!(largest, 3 * (1 << 53 | 1));
}

#[test]
fn a_perfetto_trace_names_processes_and_has_counters_errors_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let v: serde_json::Value = serde_json::from_slice(&export(&dir, "perfetto")).unwrap();
    let events = v["traceEvents"].as_array().unwrap();
    let of = |phase: &str, pid: u32, name: &str| -> Vec<&serde_json::Value> {
        events
            .iter()
            .filter(|e| e["ph"] == phase && e["pid"] == pid && e["name"].as_str().unwrap().contains(name))
            .collect()
    };
    let name = of("M", 4000, "process_name")[0]["args"]["name"].as_str().unwrap();
    assert_eq!(name, "rank 3 ib_write_bw, \"quoted\" on node7");
    // 4 WRs of 4 KiB in 0.1 s, from the frame after its first on.
    let rates = of("C", 4001, "QP 1001 send");
    assert_eq!((rates.len(), rates[0]["args"]["Gb/s"].as_f64()), (1, Some(4.0 * 4096.0 * 8.0 / 1e8)));
    assert_eq!(rates[0]["ts"], 200_000.0);
    // One more outstanding with each frame.
    assert_eq!(of("C", 4001, "QP 1001 outstanding").len(), 6);
    assert_eq!(of("i", 4000, "RETRY_EXC_ERR").len(), 5);
    assert_eq!(of("i", 4000, "the process ended").len(), 1);
    // What is gone does not go on.
    let port = of("C", 4000, "mlx5_0:1 outstanding");
    assert_eq!(port.last().unwrap()["args"]["WRs"], 0);
}

#[test]
fn a_report_is_one_page_that_needs_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir, &good().0);
    let out = dir.path().join("page.html");
    let o = trtop(dir.path(), &["report", path.to_str().unwrap(), "-o", out.to_str().unwrap()]);
    assert!(o.status.success(), "{}", err(&o));
    let html = std::fs::read_to_string(&out).unwrap();
    for text in
        ["<svg", "pid 4000 rank 3 on node7: ib_write_bw, &quot;quoted&quot;", "RETRY_EXC_ERR", "Sent", "p99", "ended"]
    {
        assert!(html.contains(text), "{text}");
    }
    for needs in ["<script", "src=", "href=", "url(", "@import"] {
        assert!(!html.contains(needs), "{needs}");
    }
    let urls = html.match_indices("http").filter(|(i, _)| !html[*i..].starts_with("http://www.w3.org/"));
    assert_eq!(urls.count(), 0);
}

#[test]
fn what_is_no_recording_is_named_with_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir, b"not one, at all");
    let name = path.to_str().unwrap();
    for args in [&["replay", name][..], &["export", "--from", name, "--to", "json"], &["report", name]] {
        let o = trtop(dir.path(), args);
        assert_eq!(o.status.code(), Some(1), "{args:?}");
        assert!(err(&o).contains(name) && err(&o).contains("no recording"), "{}", err(&o));
    }
    let mut other = good().0.clone();
    let layout = telereduce::shm::layout::ABI_VERSION.to_string();
    let at = other.windows(9).position(|w| w == b"\"layout\":").unwrap() + 9;
    other[at..at + layout.len()].fill(b'9');
    std::fs::write(&path, with_checksums(other)).unwrap();
    assert!(err(&trtop(dir.path(), &["report", name])).contains("layout version"));
}
