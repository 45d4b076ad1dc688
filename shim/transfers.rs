//! The thread that writes the log of transfers. There is none without `TELEREDUCE_LOG`.

use crate::alone::Watch;
use crate::state::State;
use crate::{exit, guard, log, own_thread};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Acquire, Ordering::Release};
use std::path::Path;
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};
use telereduce::log::feed::{self, Queues};
use telereduce::log::file::LogFile;
use telereduce::log::writer::Writer;

/// Between looks at the queues, and where much has come.
const EVERY: Duration = Duration::from_millis(10);
const SOON: Duration = Duration::from_millis(1);
/// Between looks whether the program's threads have all ended.
const ALONE_EVERY: Duration = Duration::from_secs(1);
/// How long the end of the process waits for the last lines.
const LAST_LINES_MS: u32 = 500;

/// The thread, as others see it.
struct Log {
    thread: Thread,
    ends: Arc<Ends>,
}

#[derive(Default)]
struct Ends {
    /// The process ends.
    wanted: AtomicBool,
    /// Everything that was in the queues then is written.
    reached: AtomicBool,
}

static LOG: AtomicPtr<Log> = AtomicPtr::new(core::ptr::null_mut());

/// Starts it, if there is to be a log.
pub fn start(s: &'static State) {
    let (Some(dir), Some(queues)) = (&s.config.log, s.telemetry.queues()) else { return };
    let writer = writer(s, dir, queues.clone());
    let ends = Arc::<Ends>::default();
    let seen = ends.clone();
    let started = own_thread::start("telereduce-log", move || _ = guard::hot(|| live(s, writer, &seen)));
    match started {
        Ok(thread) => {
            let log = Log { thread: thread.thread().clone(), ends };
            LOG.store(Box::into_raw(Box::new(log)), Release);
        }
        Err(e) => {
            queues.close();
            log::line(format_args!("there is no log of transfers: cannot start its thread: {e}"));
        }
    }
}

fn writer(s: &State, dir: &Path, queues: Arc<Queues>) -> Writer {
    let c = &s.config;
    // A host's name may be anything.
    let host = s.who.host.replace('/', "_");
    let stem = dir.join(format!("telereduce.{host}.{}", s.who.pid));
    let file = LogFile::new(&stem, c.log_format.extension(), c.log_format.head(), c.log_bytes);
    Writer::new(queues, file, c.log_format, c.window, Instant::now())
}

fn live(s: &State, mut writer: Writer, ends: &Ends) {
    let mut watch = Watch::every(ALONE_EVERY);
    loop {
        let last = ends.wanted.load(Acquire);
        let turn = writer.turn(&s.telemetry, Instant::now());
        if let Some((e, path)) = turn.problem {
            log::line(format_args!(
                "cannot write the log {}: {e}; transfers are not logged while that is so, and are counted",
                path.display()
            ));
        }
        if turn.more {
            continue;
        }
        if last {
            return ends.reached.store(true, Release);
        }
        watch.look();
        std::thread::park_timeout(if turn.transfers > feed::EVENTS / 64 { SOON } else { EVERY });
    }
}

/// The process ends: waits for the last lines, but not for long. Takes no lock.
pub fn finish() {
    // SAFETY: logs are leaked.
    let Some(log) = (unsafe { LOG.load(Acquire).as_ref() }) else { return };
    log.ends.wanted.store(true, Release);
    log.thread.unpark();
    exit::wait(LAST_LINES_MS, || log.ends.reached.load(Acquire));
}

/// In a forked child: there is no such thread.
pub fn after_fork() {
    LOG.store(core::ptr::null_mut(), Release);
}
