//! Drawing: the screen from a frame and the state of the view. One file per view.

pub mod chart;
pub mod detail;
pub mod doctor;
pub mod errors;
pub mod events;
pub mod header;
pub mod help;
pub mod latency;
pub mod list;
pub mod matrix;
pub mod paths;
pub mod peers;
pub mod ports;
pub mod qps;
pub mod theme;

use crate::app::App;
use crate::frame::Frame;
use crate::rows::View;
use list::Column;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use std::borrow::Cow;

/// Columns of a list.
pub fn columns(view: View) -> &'static [Column] {
    match view {
        View::Ports => ports::COLUMNS,
        View::Qps => qps::COLUMNS,
        View::Peers => peers::COLUMNS,
        View::Paths => paths::COLUMNS,
        View::Latency => latency::COLUMNS,
        View::Errors => errors::COLUMNS,
        View::Events | View::Doctor => &[],
    }
}

/// Draws the whole screen.
pub fn draw(area: Rect, buf: &mut Buffer, app: &mut App, frame: &Frame) {
    app.paths = frame.processes.iter().any(|p| p.now.multipath_on || !p.now.lanes.is_empty());
    app.hosts = frame.several_hosts();
    app.labels = frame.is_labelled();
    app.ranks = frame.processes.iter().any(|p| !p.ranks_of_qps.is_empty());
    app.hits.clear();
    if !app.views().any(|v| v == app.view) {
        app.view = View::Ports;
    }
    let mut rest = area;
    header::draw(&mut rest, buf, app, frame);
    header::footer(&mut rest, buf, app);
    if app.help.is_some() {
        return help::draw(rest, buf, app);
    }
    match app.view {
        View::Events => return events::draw(rest, buf, app, frame),
        View::Doctor => return doctor::draw(rest, buf, app, frame),
        View::Peers if app.matrix => return matrix::draw(rest, buf, app, frame),
        _ => {}
    }
    let pane = match (app.detail, app.view) {
        (true, _) => detail::height(rest, app.whole),
        (false, View::Latency) => latency::pane_height(rest),
        _ => 0,
    };
    let below = take_bottom(&mut rest, pane);
    list::draw(rest, buf, app, frame);
    if app.detail && pane > 0 {
        detail::draw(below, buf, app, frame);
    } else if pane > 0 {
        latency::pane(below, buf, app, frame);
    }
}

/// Cuts up to `height` lines off the top of `rest`.
pub fn take_top(rest: &mut Rect, height: u16) -> Rect {
    let h = height.min(rest.height);
    let top = Rect { height: h, ..*rest };
    rest.y += h;
    rest.height -= h;
    top
}

/// Cuts up to `height` lines off the bottom of `rest`.
pub fn take_bottom(rest: &mut Rect, height: u16) -> Rect {
    let h = height.min(rest.height);
    rest.height -= h;
    Rect { y: rest.y + rest.height, height: h, ..*rest }
}

/// Writes `text` at the start of line `y` of `area`, what does not fit ends in an ellipsis. Returns the column after it.
pub fn put(buf: &mut Buffer, area: Rect, x: u16, text: &str, style: Style) -> u16 {
    let end = area.x.saturating_add(area.width);
    if area.height == 0 || x >= end {
        return x;
    }
    let room = usize::from(end - x);
    let text = &*printable(text);
    let (after, _) = buf.set_stringn(x, area.y, text, room, style);
    let fits = text.len() <= room || ratatui::text::Span::raw(text).width() <= room;
    if !fits {
        // The left half of a wide character does not stay alone.
        if let Some(left) = end.checked_sub(2).filter(|left| *left >= x)
            && ratatui::text::Span::raw(buf[(left, area.y)].symbol()).width() > 1
        {
            buf[(left, area.y)].set_symbol(" ");
        }
        buf.set_stringn(end - 1, area.y, "…", 1, style);
        return end;
    }
    after
}

/// `text` with a `?` for each character that a terminal would obey instead of show: control characters, and those that
/// turn the direction of writing or have no width. They come from other programs' command lines and names.
pub fn printable(text: &str) -> Cow<'_, str> {
    let bad = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
            || matches!(c, '\u{e0000}'..='\u{e0fff}')
    };
    if text.contains(bad) { text.replace(bad, "?").into() } else { text.into() }
}
