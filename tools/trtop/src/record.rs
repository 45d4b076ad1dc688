//! `trtop record`: every segment, frame by frame, to a file.

use crate::cli::RecordArgs;
use crate::error::{Failure, Outcome};
use crate::recording::file::About;
use crate::recording::live::Segments;
use crate::recording::writer::Writer;
use crate::{inspect, units};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use telereduce::shm::layout::ABI_VERSION;

/// A signal is noticed after at most this.
const PATIENCE: Duration = Duration::from_millis(100);

/// Records until it is told to stop.
///
/// # Errors
/// The file is another one already, or cannot be written; or no segment was there all the time.
pub fn run(o: &RecordArgs) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT] {
        // Without the handler the signal ends us at once: the recording holds every whole frame even then.
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    crate::live::allow_many_files();
    let dir = inspect::directory();
    let every = Duration::from_secs_f64(o.every);
    let writer = Writer::open(&o.output, &about(every), o.force)?;
    let until = o.seconds.map_or("until Ctrl-C".into(), |s| format!("for {s} s, or until Ctrl-C"));
    eprintln!("trtop: recording to {} every {} s, {until}", o.output.display(), o.every);
    let mut segments = Segments::new(&dir, &o.pid, o.events);
    record(writer, &mut segments, &dir, o, every, &stop)
}

/// Who records here.
pub fn about(every: Duration) -> About {
    About {
        host: crate::sampler::host(),
        layout: ABI_VERSION,
        version: env!("CARGO_PKG_VERSION").into(),
        every_ns: every.as_nanos() as u64,
    }
}

fn record(
    mut writer: Writer,
    segments: &mut Segments,
    dir: &Path,
    o: &RecordArgs,
    every: Duration,
    stop: &AtomicBool,
) -> Outcome {
    let start = Instant::now();
    let end = o.seconds.map(|s| start + Duration::from_secs_f64(s));
    let (mut next, mut seen) = (start, false);
    loop {
        let time_ns = telereduce::clock::realtime_ns();
        let restless = segments.copy().map_err(|e| Failure::new(format!("cannot read {}: {e}", dir.display())))?;
        let images = segments.images();
        seen |= !images.is_empty();
        writer.write(time_ns, &images, segments.denied, restless)?;
        // A frame that took longer than the interval is followed by the next one, not by several.
        next = (next + every).max(Instant::now());
        let until = end.map_or(next, |e| e.min(next));
        while Instant::now() < until && !stop.load(Relaxed) {
            std::thread::sleep(until.saturating_duration_since(Instant::now()).min(PATIENCE));
        }
        if stop.load(Relaxed) || end.is_some_and(|e| Instant::now() >= e) {
            break;
        }
    }
    let (frames, bytes) = (writer.frames, writer.bytes());
    writer.finish()?;
    eprintln!("trtop: {frames} frames recorded; {} is {} long", o.output.display(), units::bytes(bytes));
    if seen { Ok(()) } else { Err(crate::ls::none(dir, &o.pid)) }
}
