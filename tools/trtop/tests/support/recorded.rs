//! A recording, and what its frames are to show.

#![allow(dead_code)] // Each test uses a part of it.

use crate::support::{Made, segment, who};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use telereduce::shm::reader::Reader;
use telereduce::shm::snapshot::{self, SegmentJson};
use trtop::recording::file;
use trtop::recording::live::Segments;
use trtop::recording::writer::Writer;

/// Frames of a recording are this far apart, in the tests' own time.
pub const EVERY_NS: u64 = 100_000_000;
pub const START_NS: u64 = 1_764_000_000_000_000_000;

pub fn about() -> file::About {
    trtop::record::about(Duration::from_nanos(EVERY_NS))
}

pub fn json(s: &SegmentJson) -> serde_json::Value {
    serde_json::to_value(s).unwrap()
}

/// What a reader of the segment says, as the recorder's copy has it.
pub fn now(path: &Path) -> SegmentJson {
    let mut r = Reader::open(path).unwrap();
    let mut s = snapshot::segment(&mut r, true).unwrap();
    s.events.clear();
    s
}

/// Two processes for a while; one comes later, the other dies and goes. With what each frame is to show.
pub fn record(dir: &Path, file: &Path) -> Vec<Vec<SegmentJson>> {
    let mut writer = Writer::open(file, &about(), false).unwrap();
    let mut segments = Segments::new(dir, &[], false);
    let mut a = segment(dir, &who(4000, "ib_write_bw, \"quoted\"", Some(3)), 3);
    let mut b: Option<Made> = None;
    let mut shown = Vec::new();
    for frame in 0..8u64 {
        match frame {
            2 => b = Some(segment(dir, &who(4001, "python train.py", None), 2)),
            // More than fits 53 bits, and than 8 GiB.
            4 => a.traffic(1, 3, 1 << 53 | 1, 3, 7000),
            5 => a.die(),
            7 => a.unlink(),
            _ => {}
        }
        if frame < 5 {
            a.traffic(0, 10 + frame, 65536, 9, 3000);
            a.failure(2, 12, 10);
        }
        b.iter().for_each(|b| b.traffic(1, 5, 4096, 4, 900));
        // Until what is not in every frame is in this one, too.
        while !segments.copy().unwrap() {
            std::thread::sleep(Duration::from_millis(5));
        }
        writer.write(START_NS + frame * EVERY_NS, &segments.images(), segments.denied, true).unwrap();
        let there = [&a.path].into_iter().chain(b.as_ref().map(|b| &b.path)).filter(|p| p.exists());
        shown.push(there.map(|p| now(p)).collect());
    }
    writer.finish().unwrap();
    shown
}

/// A recording and what its frames show.
pub fn good() -> &'static (Vec<u8>, Vec<Vec<SegmentJson>>) {
    static GOOD: OnceLock<(Vec<u8>, Vec<Vec<SegmentJson>>)> = OnceLock::new();
    GOOD.get_or_init(|| {
        let (dir, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = out.path().join("r");
        let shown = record(dir.path(), &file);
        (std::fs::read(&file).unwrap(), shown)
    })
}

pub fn written(dir: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join("recording");
    std::fs::write(&path, bytes).unwrap();
    path
}
