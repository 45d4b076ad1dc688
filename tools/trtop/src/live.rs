//! The live view, and a replay, which is one of a recording: draws the last refresh, obeys keys and mouse, asks for the next
//! refresh, until it is told to stop.

use crate::app::App;
use crate::cli::LiveArgs;
use crate::error::{Failure, Outcome};
use crate::feed::{Ask, Feed, Source, Want};
use crate::frame::Frame;
use crate::sampler::Sampler;
use crate::settings::{self, Settings};
use crate::ui::{self, theme::Theme};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture, Event, KeyEventKind};
use ratatui::crossterm::execute;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The second refresh comes soon, so that there are rates to see.
const SECOND_REFRESH: Duration = Duration::from_millis(200);
/// While a refresh is due and one is still being made, nobody is to wait in a busy loop.
const SHORTEST: Duration = Duration::from_millis(10);
/// A signal is noticed after at most this.
const PATIENCE: Duration = Duration::from_millis(250);

/// Runs the live view.
///
/// # Errors
/// Standard output is no terminal, or the terminal failed.
pub fn run(o: &LiveArgs) -> Outcome {
    needs_terminal("the live view", "trtop dump")?;
    let sampler = Sampler::new(&crate::inspect::directory(), &o.pid);
    show(sampler, App::new(Duration::from_secs(1), Theme::from_environment()), o.every)
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

/// Shows what comes from `source` until one quits; every so many seconds, or as often as last time.
///
/// # Errors
/// The terminal failed.
pub fn show(mut source: impl Source + Send + 'static, mut app: App, every: Option<f64>) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT] {
        // Without the handler the signal ends us at once, which is right too, but leaves the terminal as it is.
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    allow_many_files();
    let feed = Feed::start(move |ask, last| source.frame(ask, last));
    let mut feed = feed.map_err(|e| Failure::new(format!("cannot start a thread to read segments: {e}")))?;
    let file = settings::path(|name| std::env::var_os(name));
    let remembered = file.as_deref().map(settings::load);
    match &remembered {
        Some(Ok(s)) => s.apply(&mut app),
        Some(Err(why)) => app.message = Some(why.clone()),
        None => {}
    }
    if let Some(s) = every {
        app.every = Duration::from_secs_f64(s);
    }
    let started = Settings::of(&app);
    // Also sets a panic hook that restores the terminal.
    let prepared = ratatui::try_init().and_then(|_| terminal(io::stdout()));
    let mut terminal = prepared.map_err(|e| Failure::new(format!("cannot use the terminal: {e}")))?;
    let result = watch(&mut terminal, &mut feed, &mut app, &stop);
    // Should it fail, so does the restoration.
    let _ = execute!(io::stdout(), DisableMouseCapture);
    let restored = ratatui::try_restore();
    // A file that could not be read is left to whoever wrote it.
    let set = Settings::of(&app);
    if let (Some(file), Some(Ok(_))) = (file, remembered)
        && set != started
        && let Err(e) = settings::save(&file, &set)
    {
        eprintln!("trtop: settings not saved: {}: {e}", file.display());
    }
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

fn watch(terminal: &mut Screen<Stdout>, feed: &mut Feed, app: &mut App, stop: &AtomicBool) -> io::Result<()> {
    let mut frame = Frame { problem: Some("reading ...".into()), ..Frame::default() };
    let mut next = Instant::now();
    let mut shown = None;
    let mut captured = false;
    loop {
        if app.mouse != captured {
            captured = app.mouse;
            if captured {
                execute!(io::stdout(), EnableMouseCapture)
            } else {
                execute!(io::stdout(), DisableMouseCapture)
            }?;
        }
        draw(terminal, app, &frame)?;
        let every = app.every;
        // Wait for input, for a refresh that was asked for, or for the time of the next.
        loop {
            if app.quit || stop.load(Relaxed) {
                return Ok(());
            }
            // Only drawing tells which row is selected; its details come at once, not with the next refresh.
            let want = Want { row: app.wanted(), view: app.view, every: app.every };
            let now = Instant::now();
            // The first one also comes to who begins with a pause.
            let (first, sought) = (shown.is_none(), !app.seeks.is_empty());
            let due = first || !app.paused && now >= next;
            if (due || sought || shown != Some(want)) && feed.is_free() {
                feed.ask(match (due, sought) {
                    (_, true) => Ask::Seek(want, std::mem::take(&mut app.seeks)),
                    (true, false) => Ask::Sample(want),
                    (false, false) => Ask::Look(want),
                });
                match (first, sought) {
                    (true, _) => next = now + app.every.min(SECOND_REFRESH),
                    (false, true) => next = now + app.every,
                    (false, false) if due => next = (next + app.every).max(now),
                    (false, false) => {}
                }
                shown = Some(want);
            }
            let left = if app.paused { PATIENCE } else { next.saturating_duration_since(now).min(PATIENCE) };
            let obeyed =
                if wait_for_input(Some(feed.bell()), left.max(SHORTEST))? { obey(app)? } else { return Ok(()) };
            if let Some(f) = feed.take()? {
                app.replay.clone_from(&f.replay);
                frame = f;
                break;
            }
            if obeyed {
                break;
            }
        }
        if app.every != every {
            next = next.min(Instant::now() + app.every);
        }
    }
}

fn draw(terminal: &mut Screen<Stdout>, app: &mut App, frame: &Frame) -> io::Result<()> {
    terminal.draw(|f| ui::draw(f.area(), f.buffer_mut(), app, frame))?;
    Ok(())
}

/// Obeys all events that are there. Whether there were any.
fn obey(app: &mut App) -> io::Result<bool> {
    let mut any = false;
    while event::poll(Duration::ZERO)? {
        any = true;
        match event::read()? {
            Event::Key(k) if k.kind != KeyEventKind::Release => app.key(k),
            Event::Mouse(m) if app.mouse => app.click(m),
            _ => {}
        }
    }
    Ok(any)
}

/// Waits until there is input, the bell rings, a signal comes (a change of the window's size is one) or there is no more
/// patience. False if the terminal is gone: crossterm would try to read from it for ever.
pub(crate) fn wait_for_input(bell: Option<BorrowedFd<'_>>, patience: Duration) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdin = io::stdin();
    let mut fds = vec![PollFd::new(&stdin, PollFlags::IN)];
    fds.extend(bell.as_ref().map(|b| PollFd::new(b, PollFlags::IN)));
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
