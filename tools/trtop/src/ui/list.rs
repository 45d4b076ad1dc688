//! A list of rows in columns: chooses the columns that fit, keeps the selected row on the screen, draws what is seen.

use super::{columns, ports, put, take_bottom, take_top};
use crate::app::{App, Hit};
use crate::columns::Col;
use crate::frame::Frame;
use crate::keys::Move;
use crate::rows::{Row, Rows, View};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// A column of a list.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// What it shows.
    pub col: Col,
    /// Cells it needs.
    pub min: u16,
    /// Cells it can use.
    pub max: u16,
    /// On a narrow screen, columns of low number stay longest.
    pub order: u8,
}

/// A column, shortly.
pub const fn column(col: Col, min: u16, max: u16, order: u8) -> Column {
    Column { col, min, max, order }
}

/// A column that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// What it shows.
    pub col: Col,
    /// Its first cell.
    pub x: u16,
    /// Its cells.
    pub width: u16,
}

/// Chooses and places columns, one cell apart. The most important one is always there, cut if it must be.
pub fn place(all: &[Column], width: u16) -> Vec<Placed> {
    let mut by_order: Vec<usize> = (0..all.len()).collect();
    by_order.sort_by_key(|&i| all[i].order);
    let mut chosen = vec![false; all.len()];
    let mut used: u16 = 0;
    for &i in &by_order {
        let gap = u16::from(used > 0);
        if used == 0 || used + gap + all[i].min <= width {
            used += gap + all[i].min;
            chosen[i] = true;
        }
    }
    // What is left goes to those that can use it, again the important ones first.
    let mut spare = width.saturating_sub(used);
    let mut widths: Vec<u16> = all.iter().map(|c| c.min).collect();
    for &i in by_order.iter().filter(|&&i| chosen[i]) {
        let grow = spare.min(all[i].max - all[i].min);
        spare -= grow;
        widths[i] += grow;
    }
    let mut x = 0;
    let mut placed = Vec::new();
    for i in (0..all.len()).filter(|&i| chosen[i]) {
        let w = widths[i].min(width.saturating_sub(x));
        placed.push(Placed { col: all[i].col, x, width: w });
        x += w + 1;
    }
    placed
}

/// Draws the list of the current view, and below it what cannot be shown and why.
pub fn draw(area: Rect, buf: &mut Buffer, app: &mut App, frame: &Frame) {
    let mut rest = area;
    notes(&mut rest, buf, app, frame);
    if frame.processes.is_empty() {
        app.moves.clear();
        return nothing(rest, buf, app, frame);
    }
    let view = app.view;
    let all: Vec<Column> = columns(view)
        .iter()
        .copied()
        .filter(|c| fits_lines(view, c.col, area.width) && (app.paths || !of_paths(c.col)))
        .filter(|c| (app.labels || !of_labels(c.col)) && (app.ranks || c.col != Col::PeerRank))
        .filter(|c| (app.hosts || c.col != Col::Host) && !app.hidden[view as usize].contains(&c.col))
        .collect();
    let placed = place(&all, rest.width);
    let sort = app.list().sort;
    let heading = take_top(&mut rest, 1);
    for p in &placed {
        let style = if p.col == sort.by { app.theme.active() } else { app.theme.title() };
        cell(buf, heading, p, p.col.title(), style);
        if p.col.sortable() {
            app.hits.push((Rect { x: heading.x + p.x, width: p.width, ..heading }, Hit::Heading(p.col)));
        }
    }
    let height = if view == View::Ports { ports::row_height(area.width) } else { 1 };
    let shown = usize::from((rest.height / height).max(1));
    let mut rows = Rows::new(frame, view, &app.filter, sort);
    if app.by_rank {
        rows = rows.by_rank();
    }
    if rows.is_empty() {
        app.moves.clear();
        let why = match (app.filter.is_empty(), view) {
            (false, _) => "no row contains the filter's text",
            (true, View::Errors) => "no QP has failed, and none with sends outstanding has stood still for a second",
            (true, _) => "nothing here yet",
        };
        put(buf, rest, rest.x, why, app.theme.label());
        return;
    }
    let selected = select(app, &rows, shown);
    let offset = app.list().offset;
    let window = rows.window(offset, offset + shown);
    remember(app, &window, selected);
    for (i, row) in window.iter().enumerate() {
        let mut line = take_top(&mut rest, height);
        let on = offset + i == selected;
        let over = match (on, row.alive()) {
            (true, true) => Some(app.theme.selected()),
            (true, false) => Some(app.theme.selected().patch(app.theme.dead())),
            (false, false) => Some(app.theme.dead()),
            (false, true) => None,
        };
        app.hits.push((line, Hit::Row(row.id())));
        // What the row above says of the same process need not be said again.
        let again = app.by_rank && !on && i > 0 && window[i - 1].process.id == row.process.id;
        let placed: Vec<Placed> = placed.iter().copied().filter(|p| !again || !of_process(p.col)).collect();
        draw_row(take_top(&mut line, 1), buf, app, row, &placed, over, on);
        if line.height > 0 {
            ports::second_line(line, buf, row, app.theme, over.filter(|_| !on || !row.alive()));
        }
    }
}

/// These say the same of all rows of a process.
fn of_process(col: Col) -> bool {
    matches!(col, Col::Host | Col::Rank | Col::Pid | Col::Command)
}

/// Where multi-path is off, these say nothing.
fn of_paths(col: Col) -> bool {
    matches!(col, Col::Lanes | Col::Why)
}

/// Where NCCL says nothing, neither do these.
fn of_labels(col: Col) -> bool {
    matches!(col, Col::Comm | Col::Channel | Col::Func)
}

/// On a narrow screen the second line of a port has these.
fn fits_lines(view: View, col: Col, width: u16) -> bool {
    view != View::Ports
        || ports::row_height(width) == 1
        || !matches!(col, Col::Command | Col::OutSpark | Col::RateSpark | Col::Sent | Col::Received)
}

/// Obeys waiting moves, scrolls, and returns the place of the selected row.
fn select(app: &mut App, rows: &Rows, shown: usize) -> usize {
    let last = rows.len() - 1;
    let moves = std::mem::take(&mut app.moves);
    let list = app.list();
    // A row that is gone leaves the selection to the one that moved up into its place.
    let mut at = list.selected.map_or(0, |id| rows.rank(id).unwrap_or(list.position.min(last)));
    for m in &moves {
        at = match m {
            Move::Rows(n) => at.saturating_add_signed(*n),
            Move::Pages(n) => at.saturating_add_signed(n * shown as isize),
            Move::Home => 0,
            Move::End => last,
        }
        .min(last);
    }
    let lowest = (at + 1).saturating_sub(shown);
    list.offset = list.offset.clamp(lowest, at).min((last + 1).saturating_sub(shown));
    list.position = at;
    at
}

/// Notes which row is selected. At the top it is no row in particular, so that the view stays at the top.
fn remember(app: &mut App, window: &[Row], selected: usize) {
    let detail = app.detail;
    let id = window.get(selected - app.list().offset).map(Row::id);
    app.first = id;
    let list = app.list();
    list.selected = if selected == 0 && !detail { None } else { id };
}

fn draw_row(line: Rect, buf: &mut Buffer, app: &App, row: &Row, placed: &[Placed], over: Option<Style>, on: bool) {
    if on {
        buf.set_style(line, app.theme.selected());
    }
    for p in placed {
        let style = over.unwrap_or(match p.col {
            Col::Errors if crate::columns::errors(row) > 0 => app.theme.bad(),
            Col::Stuck | Col::Status => app.theme.warn(),
            Col::OutSpark => app.theme.spark_out(),
            Col::RateSpark => app.theme.spark_rate(),
            _ => app.theme.plain(),
        });
        cell(buf, line, p, &p.col.text(row, usize::from(p.width)), style);
    }
}

/// Writes `text` into its column: text to the left, numbers to the right.
pub fn cell(buf: &mut Buffer, line: Rect, p: &Placed, text: &str, style: Style) {
    let area = Rect { x: line.x + p.x, width: p.width.min(line.width.saturating_sub(p.x)), ..line };
    let length = if p.col.is_text() { area.width } else { (text.chars().count() as u16).min(area.width) };
    put(buf, area, area.x + (area.width - length), text, style);
}

/// Files that cannot be shown, and what was not counted; a few lines at the bottom.
fn notes(rest: &mut Rect, buf: &mut Buffer, app: &App, frame: &Frame) {
    let broken = frame.broken.iter().map(|b| {
        let name = b.path.file_name().unwrap_or(b.path.as_os_str());
        (format!("{}: {}", name.display(), b.why), app.theme.bad())
    });
    let missed = frame.processes.iter().flat_map(|p| {
        let pid = p.pid;
        p.notes().into_iter().map(move |n| (format!("pid {pid}: {n}"), app.theme.warn()))
    });
    let said = app.message.iter().map(|m| (m.clone(), app.theme.warn()));
    let mut lines: Vec<(String, Style)> = said.chain(broken).chain(missed).collect();
    let room = usize::from(rest.height / 3).min(6);
    if lines.len() > room && room > 0 {
        let more = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push((format!("and {more} more: trtop ls"), app.theme.warn()));
    }
    let mut area = take_bottom(rest, lines.len().min(room) as u16);
    for (text, style) in lines {
        let line = take_top(&mut area, 1);
        put(buf, line, line.x, &text, style);
    }
}

/// Says why there is nothing to show.
pub fn nothing(mut rest: Rect, buf: &mut Buffer, app: &App, frame: &Frame) {
    let lines = match &frame.problem {
        Some(p) => vec![p.clone()],
        None => vec![
            format!("No program under telereduce in {}.", frame.dir.display()),
            "Start one with: trtop run -- COMMAND".to_string(),
            "A segment appears when the program opens its first RDMA device.".to_string(),
        ],
    };
    take_top(&mut rest, 1);
    for l in lines {
        let line = take_top(&mut rest, 1);
        put(buf, line, line.x, &l, app.theme.plain());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_any_width_and_the_important_ones_stay() {
        for view in View::ALL.into_iter().filter(|v| !columns(*v).is_empty()) {
            let all = columns(view);
            let first = all.iter().min_by_key(|c| c.order).unwrap().col;
            for width in 1..300 {
                let placed = place(all, width);
                assert!(placed.iter().any(|p| p.col == first), "{view:?} at {width}");
                let end = placed.iter().map(|p| p.x + p.width).max().unwrap();
                assert!(end <= width, "{view:?} at {width}: {placed:?}");
            }
            assert_eq!(place(all, 1000).len(), all.len());
        }
    }

    #[test]
    fn ports_at_80_columns_show_everything_that_is_not_on_the_second_line() {
        let narrow: Vec<Column> = ports::COLUMNS
            .iter()
            .copied()
            .filter(|c| fits_lines(View::Ports, c.col, 80) && c.col != Col::Host)
            .collect();
        let cols: Vec<Col> = place(&narrow, 80).iter().map(|p| p.col).collect();
        assert_eq!(
            cols,
            [
                Col::Pid,
                Col::Rank,
                Col::Port,
                Col::Qps,
                Col::Send,
                Col::Recv,
                Col::WrRate,
                Col::Out,
                Col::OutBytes,
                Col::High,
                Col::Errors
            ]
        );
    }
}
