//! The live screen's loop. A thread of its own asks Prometheus, so that keys are obeyed however long that takes.

use super::client::{Client, PATIENCE};
use super::model::Fleet;
use super::screen::Screen;
use crate::error::{Failure, Outcome};
use crate::live::{terminal, wait_for_input};
use crate::ui::theme::Theme;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// An answer, a signal and the age on the screen are noticed after at most this.
const GLANCE: Duration = Duration::from_millis(100);

/// Shows the fleet until it is told to stop.
///
/// # Errors
/// Standard output is no terminal, or the terminal failed.
pub fn run(client: Client, every_s: f64) -> Outcome {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::new(
            "the live view needs a terminal; for scripts use: trtop fleet --format table, json or csv",
        ));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT] {
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    let (answers, received) = sync_channel(1);
    let every = Duration::from_secs_f64(every_s);
    // Ends with the process, or when nobody listens.
    std::thread::spawn(move || {
        loop {
            let start = Instant::now();
            if answers.send(Fleet::ask(&client, start + PATIENCE)).is_err() {
                return;
            }
            std::thread::sleep(every.saturating_sub(start.elapsed()));
        }
    });
    let prepared = ratatui::try_init().and_then(|_| terminal(io::stdout()));
    let mut terminal = prepared.map_err(|e| Failure::new(format!("cannot use the terminal: {e}")))?;
    let result = watch(&mut terminal, &received, &stop);
    let restored = ratatui::try_restore();
    result.and(restored).map_err(|e| Failure::new(format!("the terminal failed: {e}")))
}

fn watch(
    terminal: &mut crate::live::Screen<io::Stdout>,
    received: &Receiver<Result<Fleet, String>>,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut screen = Screen::new(Theme::from_environment());
    let mut known_since: Option<Instant> = None;
    let mut drawn: Option<Instant> = None;
    while !screen.quit && !stop.load(Relaxed) {
        let mut changed = drawn.is_none_or(|d| d.elapsed() >= Duration::from_secs(1));
        if !screen.paused
            && let Ok(answer) = received.try_recv()
        {
            known_since = if answer.is_ok() { Some(Instant::now()) } else { known_since };
            screen.set(answer);
            changed = true;
        }
        if changed {
            let old = known_since.map(|s| s.elapsed());
            terminal.draw(|f| screen.draw(f.area(), f.buffer_mut(), old))?;
            drawn = Some(Instant::now());
        }
        if !wait_for_input(None, GLANCE)? {
            return Ok(());
        }
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(k) if k.kind != KeyEventKind::Release => screen.key(k),
                _ => {}
            }
            drawn = None;
        }
    }
    Ok(())
}
