//! The thread that looks for stalls and writes the flight recorder's files. There is none unless `TELEREDUCE_STALL_MS` or
//! `TELEREDUCE_DUMP_DIR` asks for it.

use crate::alone::Watch;
use crate::state::State;
use crate::{exit, guard, log, own_thread, usr2};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Acquire, Ordering::Release};
use std::io;
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};
use telereduce::flight::{Cause, Reason, Recorded, Recorder};
use telereduce::shm::segment::largest_file;
use telereduce::shm::snapshot::{self, CauseJson};
use telereduce::telemetry::registry::StallWatch;

/// Between looks at the queues, at most; a stall is seen within an eighth of what makes it one.
const EVERY_MS: u64 = 100;
/// Between looks whether the program's threads have all ended.
const ALONE_EVERY: Duration = Duration::from_secs(1);
/// How long the end of the process waits for a file about its last failure.
const LAST_FILE_MS: u32 = 500;

/// The thread, as others see it.
struct Flight {
    thread: Thread,
    ends: Arc<Ends>,
    state: &'static State,
}

#[derive(Default)]
struct Ends {
    /// The process ends.
    wanted: AtomicBool,
    /// A file is being written, or is to be.
    busy: AtomicBool,
    /// What had happened by then is recorded.
    reached: AtomicBool,
}

static FLIGHT: AtomicPtr<Flight> = AtomicPtr::new(core::ptr::null_mut());

/// Starts it, if there is to be one.
pub fn start(s: &'static State) {
    let c = &s.config;
    if c.stall_ms == 0 && c.dump_dir.is_none() {
        return;
    }
    // A host's name may be anything.
    let stem = format!("telereduce.{}.{}", s.who.host.replace('/', "_"), s.who.pid);
    let recorder = c.dump_dir.as_ref().map(|dir| Recorder::new(dir, stem));
    let ends = Arc::<Ends>::default();
    let seen = ends.clone();
    match own_thread::start("telereduce-dump", move || _ = guard::hot(|| live(s, recorder, &seen))) {
        Ok(thread) => {
            let thread = thread.thread().clone();
            if c.dump_dir.is_some() {
                s.telemetry.hot().alarm.wakes(thread.clone());
                usr2::listen();
            }
            FLIGHT.store(Box::into_raw(Box::new(Flight { thread, ends, state: s })), Release);
        }
        Err(e) => {
            log::line(format_args!("stalls are not looked for, and nothing is recorded: cannot start the thread: {e}"))
        }
    }
}

fn live(s: &State, mut recorder: Option<Recorder>, ends: &Ends) {
    let after = Duration::from_millis(s.config.stall_ms);
    let every = match s.config.stall_ms {
        0 => Duration::from_millis(EVERY_MS),
        ms => Duration::from_millis((ms / 8).clamp(1, EVERY_MS)),
    };
    let mut stalls = StallWatch::new(&s.telemetry, after, Instant::now());
    let mut alone = Watch::every(ALONE_EVERY);
    loop {
        let last = ends.wanted.load(Acquire);
        let now = Instant::now();
        let began = stalls.as_mut().map_or(Vec::new(), |watch| watch.look(&s.telemetry, now));
        if let Some(recorder) = &mut recorder {
            ends.busy.store(true, Release);
            if !began.is_empty() {
                recorder.note(Reason::Stall, began.iter().map(|q| q.qp_num));
            }
            if let Some((_, qp_num)) = s.telemetry.hot().alarm.take() {
                recorder.note(Reason::Error, [qp_num]);
            }
            if usr2::was_asked() {
                recorder.note(Reason::Signal, []);
            }
            if let Some(cause) = recorder.due(now, last) {
                record(s, recorder, &cause);
            }
            ends.busy.store(recorder.has_some(), Release);
        }
        if last {
            return ends.reached.store(true, Release);
        }
        alone.look();
        std::thread::park_timeout(every);
    }
}

fn record(s: &State, recorder: &mut Recorder, cause: &Cause) {
    let content = match content(s, cause, recorder.files_left()) {
        Ok(content) => content,
        Err(e) => return log::line_once(format_args!("flight recorder: cannot read the segment: {e}")),
    };
    match recorder.write(cause, &content) {
        Recorded::File(_) | Recorded::StillFull => {}
        Recorded::Full => log::line(format_args!("flight recorder: this process has written all files that it may")),
        Recorded::Failed(e, path) => {
            failed_once(format_args!("flight recorder: cannot write {}: {e}; it will be tried again", path.display()));
        }
    }
}

fn failed_once(message: core::fmt::Arguments<'_>) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Release) {
        log::line(message);
    }
}

fn content(s: &State, cause: &Cause, files_left: u32) -> io::Result<Vec<u8>> {
    let mut reader = exit::read_back(s)?;
    let segment = snapshot::segment(&mut reader, true).map_err(io::Error::other)?;
    let mut dump = snapshot::dump(vec![segment]);
    dump.cause = Some(CauseJson {
        reason: cause.reason().map_or("none", Reason::word).into(),
        qp_nums: cause.qp_nums(),
        files_left: files_left.saturating_sub(1),
    });
    let mut json = serde_json::to_vec_pretty(&dump).map_err(io::Error::other)?;
    json.push(b'\n');
    if json.len() as u64 > largest_file() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    Ok(json)
}

/// The process ends: waits until a failure just before it is recorded, but not for long. Takes no lock.
pub fn finish() {
    // SAFETY: leaked.
    let Some(flight) = (unsafe { FLIGHT.load(Acquire).as_ref() }) else { return };
    let waits = flight.state.config.dump_dir.is_some()
        && (flight.ends.busy.load(Acquire) || flight.state.telemetry.hot().alarm.is_raised() || usr2::is_asked());
    if !waits {
        return;
    }
    flight.ends.wanted.store(true, Release);
    flight.thread.unpark();
    exit::wait(LAST_FILE_MS, || flight.ends.reached.load(Acquire));
}

/// In a forked child: there is no such thread.
pub fn after_fork() {
    FLIGHT.store(core::ptr::null_mut(), Release);
    usr2::after_fork();
}
