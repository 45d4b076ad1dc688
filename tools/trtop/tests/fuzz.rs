//! A segment is untrusted: whatever is in the file, reading gives an error or numbers, and both can be drawn and dumped.

mod support;

use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;
use support::{segment, who};
use telereduce::shm::layout::{HEADER_BYTES, Kind, RingRecord};
use telereduce::shm::reader::Reader;
use telereduce::shm::snapshot;
use trtop::app::App;
use trtop::csv;
use trtop::frame::Frame;
use trtop::keys::Move;
use trtop::rows::View;
use trtop::sampler::Sampler;
use trtop::ui::{self, theme::Theme};

/// Bytes of a whole segment with traffic.
fn good() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let made = segment(dir.path(), &who(7, "app --with arguments", Some(1)), 6);
        for i in 0..6 {
            made.traffic(i, 100, 4096, 60, 5000);
        }
        made.failure(1, 12, 4096);
        std::fs::read(&made.path).unwrap()
    })
}

/// Everything that looks at a segment looks at this one.
fn look(dir: &Path, bytes: &[u8]) {
    let uid = rustix::process::geteuid().as_raw();
    let path = dir.join(format!("telereduce.{uid}.7"));
    std::fs::write(&path, bytes).unwrap();
    let mut sampler = Sampler::new(dir, &[]);
    let mut frame = sampler.sample(Frame::default(), None);
    let mut app = App::new(Duration::from_secs(1), Theme::new(true));
    app.detail = true;
    for view in View::ALL {
        app.view = view;
        app.whole ^= true;
        app.matrix ^= true;
        sampler.view = view;
        app.moves.push(Move::Rows(1));
        draw(&mut app, &frame, 80, 24);
        frame = sampler.sample(frame, app.wanted());
        app.filter = "1".into();
        draw(&mut app, &frame, 170, 20);
        app.filter.clear();
    }
    if let Ok(mut r) = Reader::open(&path)
        && let Ok(s) = snapshot::segment(&mut r, true)
    {
        let dump = snapshot::dump(vec![s]);
        assert!(serde_json::to_string(&dump).is_ok());
        csv::rows(&dump, true);
    }
}

fn draw(app: &mut App, frame: &Frame, width: u16, height: u16) {
    let area = Rect::new(0, 0, width, height);
    ui::draw(area, &mut Buffer::empty(area), app, frame);
}

#[test]
fn a_file_cut_at_any_line_of_64_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = good();
    // Every cut within the header; beyond it, cuts within one ring look the same.
    let ring = bytes.len() - size_of::<RingRecord>();
    for end in (0..ring).step_by(64).chain((ring..bytes.len()).step_by(4096)) {
        look(dir.path(), &bytes[..end]);
    }
}

#[test]
fn a_file_that_shrinks_and_grows_while_it_is_watched() {
    let dir = tempfile::tempdir().unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let path = dir.path().join(format!("telereduce.{uid}.7"));
    let bytes = good();
    std::fs::write(&path, bytes).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let mut sampler = Sampler::new(dir.path(), &[]);
    let mut frame = sampler.sample(Frame::default(), None);
    assert_eq!(frame.processes.len(), 1);
    for size in [bytes.len() as u64 / 2, 9000, 8192, 100, 0] {
        file.set_len(size).unwrap();
        frame = sampler.sample(frame, None);
        assert_eq!(frame.processes.len(), 0, "{size}");
    }
    std::fs::write(&path, bytes).unwrap();
    frame = sampler.sample(frame, None);
    assert_eq!((frame.processes.len(), frame.broken.len()), (1, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..20_000)) {
        look(tempfile::tempdir().unwrap().path(), &bytes);
    }

    /// The header's magic and version stay, so that the rest is looked at.
    #[test]
    fn header_bytes_changed(at in proptest::collection::vec((12usize..HEADER_BYTES, any::<u8>()), 1..40)) {
        let mut bytes = good().to_vec();
        for (i, b) in at {
            bytes[i] = b;
        }
        look(tempfile::tempdir().unwrap().path(), &bytes);
    }

    /// Entries of the region directory with plausible and extreme numbers.
    #[test]
    fn region_directory_changed(
        slot in 0usize..8, word in 0usize..6, value in prop_oneof![0u32..10, any::<u32>(), Just(u32::MAX)], count in 0u32..250,
    ) {
        let mut bytes = good().to_vec();
        let directory = core::mem::offset_of!(telereduce::shm::layout::Header, regions);
        let at = directory + slot * 32 + word * 4;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let regions = core::mem::offset_of!(telereduce::shm::layout::Header, region_count);
        bytes[regions..regions + 4].copy_from_slice(&count.min(Kind::ALL.len() as u32 + slot as u32).to_le_bytes());
        look(tempfile::tempdir().unwrap().path(), &bytes);
    }

    /// Whole records of noise behind a good header.
    #[test]
    fn records_filled_with_random_words(seed in any::<u64>(), every in 1usize..40) {
        let mut bytes = good().to_vec();
        let mut x = seed | 1;
        for (i, word) in bytes[HEADER_BYTES..].chunks_exact_mut(8).enumerate() {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            if i % every == 0 {
                word.copy_from_slice(&x.to_le_bytes());
            }
        }
        look(tempfile::tempdir().unwrap().path(), &bytes);
    }
}
