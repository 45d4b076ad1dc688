//! The live view, and a replay, which is one of a recording: refresh, draw, obey keys, until it is told to stop.

use crate::app::App;
use crate::cli::LiveArgs;
use crate::error::{Failure, Outcome};
use crate::frame::{Frame, RowId};
use crate::sampler::Sampler;
use crate::ui::{self, theme::Theme};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The second refresh comes soon, so that there are rates to see.
const SECOND_REFRESH: Duration = Duration::from_millis(200);
/// A signal is noticed after at most this.
const PATIENCE: Duration = Duration::from_millis(250);

/// Runs the live view.
///
/// # Errors
/// Standard output is no terminal, or the terminal failed.
pub fn run(o: &LiveArgs) -> Outcome {
    needs_terminal("the live view", "trtop dump")?;
    let mut sampler = Sampler::new(&crate::inspect::directory(), &o.pid);
    let app = App::new(Duration::from_secs_f64(o.every), Theme::from_environment());
    show(&mut sampler, app)
}

/// Where frames come from.
pub trait Source {
    /// The next refresh, after `last`, with the details of the row that `app` wants; obeys what `app` has for the source.
    fn sample(&mut self, last: Frame, app: &mut App) -> Frame;
    /// `frame` with the details of row `want`.
    fn detail(&mut self, frame: Frame, want: Option<RowId>) -> Frame;
}

impl Source for Sampler {
    fn sample(&mut self, last: Frame, app: &mut App) -> Frame {
        Sampler::sample(self, last, app.wanted())
    }

    fn detail(&mut self, frame: Frame, want: Option<RowId>) -> Frame {
        Sampler::detail(self, frame, want)
    }
}

/// Whether there is a terminal to show `what` at.
///
/// # Errors
/// There is none.
pub fn needs_terminal(what: &str, instead: &str) -> Outcome {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::new(format!("{what} needs a terminal; to write counters elsewhere use: {instead}")))
}

/// Shows what comes from `source` until one quits.
///
/// # Errors
/// The terminal failed.
pub fn show(source: &mut dyn Source, mut app: App) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT] {
        // Without the handler the signal ends us at once, which is right too, but leaves the terminal as it is.
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    allow_many_files();
    // Also sets a panic hook that restores the terminal.
    let prepared = ratatui::try_init().and_then(|_| terminal(io::stdout()));
    let mut terminal = prepared.map_err(|e| Failure::new(format!("cannot use the terminal: {e}")))?;
    let result = watch(&mut terminal, source, &mut app, &stop);
    let restored = ratatui::try_restore();
    result.and(restored).map_err(|e| Failure::new(format!("the terminal failed: {e}")))
}

/// Where screens go.
pub type Screen<W> = Terminal<CrosstermBackend<BufWriter<W>>>;

/// A terminal that gets a whole screen with few writes.
///
/// # Errors
/// The terminal's size cannot be told.
pub fn terminal<W: Write>(to: W) -> io::Result<Screen<W>> {
    Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(1 << 16, to)))
}

fn watch(terminal: &mut Screen<Stdout>, source: &mut dyn Source, app: &mut App, stop: &AtomicBool) -> io::Result<()> {
    let mut frame = source.sample(Frame::default(), app);
    let mut next = Instant::now() + app.every.min(SECOND_REFRESH);
    let mut shown = None;
    loop {
        draw(terminal, app, &frame)?;
        // Only drawing tells which row is selected; its details come at once, not with the next refresh.
        if shown != app.wanted() {
            shown = app.wanted();
            frame = source.detail(frame, shown);
            draw(terminal, app, &frame)?;
        }
        let every = app.every;
        // Wait for keys or for the next refresh, whichever comes first.
        loop {
            if app.quit || stop.load(Relaxed) {
                return Ok(());
            }
            let left = if app.paused { PATIENCE } else { next.saturating_duration_since(Instant::now()).min(PATIENCE) };
            if obey(app, left)? || (!app.paused && Instant::now() >= next) {
                break;
            }
        }
        let now = Instant::now();
        if app.every != every {
            next = next.min(now + app.every);
        }
        let sought = !app.seeks.is_empty();
        if !app.quit && (sought || !app.paused && now >= next) {
            frame = source.sample(frame, app);
            next = if sought { now + app.every } else { (next + app.every).max(now) };
        }
    }
}

fn draw(terminal: &mut Screen<Stdout>, app: &mut App, frame: &Frame) -> io::Result<()> {
    terminal.draw(|f| ui::draw(f.area(), f.buffer_mut(), app, frame))?;
    Ok(())
}

/// Waits up to `patience` for events and obeys all that are there. Whether there were any.
fn obey(app: &mut App, patience: Duration) -> io::Result<bool> {
    if !wait_for_input(patience)? {
        app.quit = true;
        return Ok(true);
    }
    if !event::poll(Duration::ZERO)? {
        return Ok(false);
    }
    while event::poll(Duration::ZERO)? {
        match event::read()? {
            Event::Key(k) if k.kind != KeyEventKind::Release => app.key(k),
            _ => {}
        }
    }
    Ok(true)
}

/// Waits until there is input, a signal (a change of the window's size is one) or no more patience. False if the terminal
/// is gone: crossterm would try to read from it for ever.
pub(crate) fn wait_for_input(patience: Duration) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    match poll(&mut fds, Some(&patience)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    Ok(!fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
}

/// One open file per segment: as many as the system allows.
pub fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
