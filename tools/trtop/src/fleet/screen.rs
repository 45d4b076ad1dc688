//! The live screen of the fleet: draws what was last known; asks nothing, waits for nothing.

use super::matrix::Matrix;
use super::model::Fleet;
use super::text;
use crate::ui::theme::Theme;
use crate::units::age;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::Style;
use std::time::Duration;

/// What is shown below the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Who sends how much to whom.
    #[default]
    Matrix,
    /// The same as a list, the slowest first.
    Pairs,
    /// Hosts.
    Hosts,
    /// Alerts.
    Alerts,
}

const VIEWS: [(View, &str); 4] =
    [(View::Matrix, "Matrix"), (View::Pairs, "Pairs"), (View::Hosts, "Hosts"), (View::Alerts, "Alerts")];
const FOOTER: &str = "1-4 Tab view  arrows PgUp PgDn Home move  Space pause  q quit";
/// Cells of a column of the matrix, but for the gap.
const CELL: usize = 8;

/// Where one is, and what is known.
pub struct Screen {
    theme: Theme,
    /// What is shown.
    pub view: View,
    /// First row and column that are shown.
    at: (usize, usize),
    /// Rows of the last draw.
    page: usize,
    /// Whether it stands still.
    pub paused: bool,
    /// Whether to leave.
    pub quit: bool,
    fleet: Option<(Fleet, Matrix)>,
    /// Why there is nothing newer.
    error: Option<String>,
}

impl Screen {
    /// Nothing is known yet.
    pub fn new(theme: Theme) -> Screen {
        Screen { theme, view: View::Matrix, at: (0, 0), page: 1, paused: false, quit: false, fleet: None, error: None }
    }

    /// What Prometheus said. What was known before stays until there is something newer.
    pub fn set(&mut self, answer: Result<Fleet, String>) {
        match answer {
            Ok(f) => {
                let m = Matrix::of(&f.flows);
                (self.fleet, self.error) = (Some((f, m)), None);
            }
            Err(e) => self.error = Some(e),
        }
    }

    /// Obeys a key.
    pub fn key(&mut self, k: KeyEvent) {
        let view = VIEWS.iter().position(|v| v.0 == self.view).unwrap_or(0);
        let up = |n: usize, by: usize| n.saturating_sub(by);
        match k.code {
            KeyCode::Char('c') if k.modifiers.contains(KeyModifiers::CONTROL) => self.quit = true,
            KeyCode::Char('q') | KeyCode::Esc => self.quit = true,
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            KeyCode::Char(c @ '1'..='4') => self.show(c as usize - '1' as usize),
            KeyCode::Tab => self.show((view + 1) % VIEWS.len()),
            KeyCode::BackTab => self.show((view + VIEWS.len() - 1) % VIEWS.len()),
            KeyCode::Up | KeyCode::Char('k') => self.at.0 = up(self.at.0, 1),
            KeyCode::Down | KeyCode::Char('j') => self.at.0 += 1,
            KeyCode::Left | KeyCode::Char('h') => self.at.1 = up(self.at.1, 1),
            KeyCode::Right | KeyCode::Char('l') => self.at.1 += 1,
            KeyCode::PageUp => self.at.0 = up(self.at.0, self.page),
            KeyCode::PageDown => self.at.0 += self.page,
            KeyCode::Home => self.at = (0, 0),
            KeyCode::End => self.at.0 = usize::MAX / 2,
            _ => {}
        }
    }

    fn show(&mut self, view: usize) {
        (self.view, self.at) = (VIEWS[view].0, (0, 0));
    }

    /// Draws; what is known is that old.
    pub fn draw(&mut self, area: Rect, to: &mut Buffer, old: Option<Duration>) {
        let theme = self.theme;
        let mut y = area.y;
        let mut line = |text: &[(&str, Style)]| {
            let mut x = area.x;
            for (t, style) in text {
                if y < area.bottom() && x < area.right() {
                    x = to.set_stringn(x, y, t, usize::from(area.right() - x), *style).0;
                }
            }
            y += 1;
        };
        match &self.fleet {
            Some((f, _)) => {
                let (up, down) = f.up_and_down();
                let firing = f.firing();
                let old = old.map_or(0, |o| o.as_secs());
                let bad_if = |n: usize| if n > 0 { theme.bad() } else { theme.plain() };
                line(&[
                    ("trtop fleet", theme.title()),
                    (
                        &format!("  {}  {} ago{}  ", f.prometheus, age(old), if self.paused { ", paused" } else { "" }),
                        theme.label(),
                    ),
                    (&format!("{up} up  "), theme.plain()),
                    (&format!("{down} down  "), bad_if(down)),
                    (&format!("{firing} firing"), bad_if(firing)),
                ]);
            }
            None if self.error.is_none() => {
                line(&[("trtop fleet", theme.title()), ("  asking Prometheus", theme.label())])
            }
            None => line(&[("trtop fleet", theme.title())]),
        }
        for part in wrapped(self.error.as_deref().unwrap_or(""), usize::from(area.width)) {
            line(&[(part, theme.bad())]);
        }
        let mut tabs = Vec::new();
        for (i, (view, name)) in VIEWS.iter().enumerate() {
            tabs.push((format!("{} {name}", i + 1), if *view == self.view { theme.active() } else { theme.label() }));
            tabs.push(("  ".into(), theme.plain()));
        }
        line(&tabs.iter().map(|(t, s)| (t.as_str(), *s)).collect::<Vec<_>>());
        let top = y.min(area.bottom());
        let body = Rect { y: top, height: area.bottom().saturating_sub(top + 1), ..area };
        if let Some((fleet, matrix)) = &self.fleet {
            self.page = usize::from(body.height).saturating_sub(1).max(1);
            match self.view {
                View::Matrix if !matrix.from.is_empty() => draw_matrix(body, to, matrix, &mut self.at, theme),
                View::Matrix | View::Pairs => draw_lines(body, to, &text::pairs(matrix), &mut self.at, theme),
                View::Hosts => draw_lines(body, to, &text::hosts(&fleet.hosts, &fleet.flows), &mut self.at, theme),
                View::Alerts => draw_lines(body, to, &text::alerts(fleet), &mut self.at, theme),
            }
        }
        if area.height > 2 {
            to.set_stringn(area.x, area.bottom() - 1, FOOTER, usize::from(area.width), theme.label());
        }
    }
}

/// Pieces of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() && width > 0 {
        let end = rest.char_indices().nth(width).map_or(rest.len(), |(i, _)| i);
        // At a blank, if there is one.
        let end = if end < rest.len() { rest[..end].rfind(' ').map_or(end, |b| b + 1) } else { end };
        let (line, tail) = rest.split_at(end);
        out.push(line.trim_end());
        rest = tail;
    }
    out
}

/// A title and lines below it, from line `at.0`, cut at the left by `at.1`.
fn draw_lines(area: Rect, to: &mut Buffer, lines: &[String], at: &mut (usize, usize), theme: Theme) {
    let Some((title, rows)) = lines.split_first() else { return };
    let shown = usize::from(area.height).saturating_sub(1);
    at.0 = at.0.min(rows.len().saturating_sub(shown));
    at.1 = at.1.min(lines.iter().map(|l| l.chars().count()).max().unwrap_or(0).saturating_sub(1));
    let seen = std::iter::once((title, theme.title())).chain(rows[at.0..].iter().map(|r| {
        let bad = r.contains("DOWN") || r.starts_with("firing");
        (r, if bad { theme.bad() } else { theme.plain() })
    }));
    for ((text, style), y) in seen.zip(area.y..area.bottom()) {
        let text: String = text.chars().skip(at.1).collect();
        to.set_stringn(area.x, y, text, usize::from(area.width), style);
    }
}

/// Rows and columns from `at`; what is slower than half the median stands out.
fn draw_matrix(area: Rect, to: &mut Buffer, m: &Matrix, at: &mut (usize, usize), theme: Theme) {
    let names = m.from.iter().map(|n| n.chars().count()).max().unwrap_or(0).min(24);
    let columns = (usize::from(area.width).saturating_sub(names) / (CELL + 1)).max(1);
    let rows = usize::from(area.height).saturating_sub(1);
    at.0 = at.0.min(m.from.len().saturating_sub(rows));
    at.1 = at.1.min(m.to.len().saturating_sub(columns));
    let median = m.median();
    let put = |to: &mut Buffer, x: usize, y: u16, text: &str, style: Style| {
        if x < usize::from(area.width) && y < area.bottom() {
            to.set_stringn(area.x + x as u16, y, text, usize::from(area.width) - x, style);
        }
    };
    // Of a long name the end tells more.
    let last = |name: &str, n: usize| name.chars().skip(name.chars().count().saturating_sub(n)).collect::<String>();
    let seen = |i: usize| names + 1 + i * (CELL + 1);
    for (i, name) in m.to[at.1..].iter().take(columns).enumerate() {
        put(to, seen(i), area.y, &format!("{:>CELL$}", last(name, CELL)), theme.title());
    }
    for ((name, cells), y) in m.from.iter().zip(&m.bits_per_s).skip(at.0).zip(area.y + 1..area.bottom()) {
        put(to, 0, y, &last(name, names), theme.title());
        for (i, c) in cells[at.1..].iter().take(columns).enumerate() {
            let style = match c {
                Some(bits) if *bits < median / 2.0 => theme.bad(),
                Some(_) => theme.plain(),
                None => theme.label(),
            };
            put(to, seen(i), y, &format!("{:>CELL$}", text::cell(*c)), style);
        }
    }
}
