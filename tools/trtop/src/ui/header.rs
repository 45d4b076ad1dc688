//! The lines above and below the list: where and when, which list, totals; and the keys.

use super::{put, take_bottom, take_top};
use crate::app::{App, Hit};
use crate::frame::Frame;
use crate::keys::KEYS;
use crate::rows::View;
use crate::units;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Draws up to three lines, fewer on a low screen.
pub fn draw(rest: &mut Rect, buf: &mut Buffer, app: &mut App, frame: &Frame) {
    let lines = match rest.height {
        0..=3 => 0,
        4..=6 => 1,
        7..=9 => 2,
        _ => 3,
    };
    let mut area = take_top(rest, lines);
    let first = take_top(&mut area, 1);
    state(first, buf, app, frame);
    let second = take_top(&mut area, 1);
    views(second, buf, app);
    let third = take_top(&mut area, 1);
    totals(third, buf, app, frame);
}

fn spans(line: Rect, buf: &mut Buffer, parts: &[(String, Style)]) {
    let mut x = line.x;
    for (text, style) in parts {
        x = put(buf, line, x, text, *style);
    }
}

fn state(line: Rect, buf: &mut Buffer, app: &App, frame: &Frame) {
    let t = app.theme;
    let live = frame.processes.iter().filter(|p| p.alive).count();
    let dead = frame.processes.len() - live;
    let mut parts = vec![
        ("trtop ".to_string(), t.title()),
        (short(&frame.host, usize::from(line.width / 4)), t.plain()),
        (format!(" {} UTC", units::time_of_day(frame.realtime_ns)), t.plain()),
        (format!("  {live} live"), t.plain()),
    ];
    if dead > 0 {
        parts.push((format!("  {dead} dead"), t.warn()));
    }
    if !frame.broken.is_empty() {
        parts.push((format!("  {} unreadable", frame.broken.len()), t.bad()));
    }
    if frame.denied > 0 {
        parts.push((format!("  {} of other users", frame.denied), t.label()));
    }
    match &app.replay {
        Some(r) => parts.push((format!("  {}", r.text(line.width)), t.active())),
        None => parts.push((format!("  every {} s", app.every.as_secs_f64()), t.plain())),
    }
    if app.paused {
        parts.push(("  PAUSED".into(), t.warn()));
    }
    spans(line, buf, &parts);
}

fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// From this width on, tabs have whole names.
const WIDE: u16 = 110;

fn views(line: Rect, buf: &mut Buffer, app: &mut App) {
    let t = app.theme;
    let mut x = line.x;
    for view in app.views() {
        let style = if view == app.view { t.active() } else { t.plain() };
        let name = if line.width < WIDE { view.short() } else { view.title() };
        let start = x;
        x = put(buf, line, x, &format!(" {} {name} ", view as usize + 1), style);
        app.hits.push((Rect { x: start, width: x - start, ..line }, Hit::Tab(view)));
    }
    let mut parts = Vec::new();
    let sort = app.lists[app.view as usize].sort;
    let arrow = if sort.descending { "▼" } else { "▲" };
    if app.editing || !app.filter.is_empty() {
        parts.push(("  filter ".into(), t.label()));
        parts.push((app.filter.clone(), t.warn()));
        if app.editing {
            parts.push((" ".into(), t.selected()));
        }
    }
    let unsorted = super::columns(app.view).is_empty() || app.matrix && app.view == View::Peers;
    if !unsorted {
        parts.push(("  sort ".into(), t.label()));
        parts.push((format!("{}{arrow}", sort.by.title()), t.plain()));
    }
    spans(Rect { x, width: line.right().saturating_sub(x), ..line }, buf, &parts);
}

fn totals(line: Rect, buf: &mut Buffer, app: &App, frame: &Frame) {
    let t = app.theme;
    let (sum, rates) = frame.totals();
    let parts = [
        (" all  send ".to_string(), t.label()),
        (units::bits_per_s(rates.send_bytes), t.plain()),
        ("  recv ".into(), t.label()),
        (units::bits_per_s(rates.recv_bytes), t.plain()),
        ("  ".into(), t.label()),
        (units::per_s(rates.wr), t.plain()),
        (" WR/s  outstanding ".into(), t.label()),
        (units::count(sum.send.wr_outstanding), t.plain()),
        (" WR ".into(), t.label()),
        (units::bytes(sum.send.bytes_outstanding), t.plain()),
    ];
    spans(line, buf, &parts);
}

/// Draws the line of keys, if there is room for it.
pub fn footer(rest: &mut Rect, buf: &mut Buffer, app: &App) {
    if rest.height < 3 {
        return;
    }
    let line = take_bottom(rest, 1);
    let t = app.theme;
    let mut parts = Vec::new();
    let mut key = |key: &str, word: &str| {
        parts.push((key.to_string(), t.key()));
        parts.push((format!(" {word}  "), t.plain()));
    };
    if app.editing {
        key("Enter", "keep the filter");
        key("Esc", "clear it");
    } else if app.help.is_some() {
        key("Up Down", "scroll");
        key("any other key", "back");
    } else {
        for (k, word) in KEYS.iter().filter_map(|b| b.footer) {
            key(k, word);
        }
    }
    spans(line, buf, &parts);
}
