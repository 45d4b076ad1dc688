//! Drawing: the screen from a frame and the state of the view. One file per view.

pub mod detail;
pub mod header;
pub mod help;
pub mod list;
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

/// Columns of a list.
pub fn columns(view: View) -> &'static [Column] {
    match view {
        View::Ports => ports::COLUMNS,
        View::Qps => qps::COLUMNS,
        View::Peers => peers::COLUMNS,
        View::Paths => paths::COLUMNS,
    }
}

/// Draws the whole screen.
pub fn draw(area: Rect, buf: &mut Buffer, app: &mut App, frame: &Frame) {
    app.paths = frame.processes.iter().any(|p| p.now.multipath_on || !p.now.lanes.is_empty());
    if !app.views().contains(&app.view) {
        app.view = View::Ports;
    }
    let mut rest = area;
    header::draw(&mut rest, buf, app, frame);
    header::footer(&mut rest, buf, app);
    if app.help.is_some() {
        return help::draw(rest, buf, app);
    }
    let pane = if app.detail { detail::height(rest) } else { 0 };
    let below = take_bottom(&mut rest, pane);
    list::draw(rest, buf, app, frame);
    if pane > 0 {
        detail::draw(below, buf, app, frame);
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
    let (after, _) = buf.set_stringn(x, area.y, text, room, style);
    let fits = text.len() <= room || ratatui::text::Span::raw(text).width() <= room;
    if !fits {
        buf.set_stringn(end - 1, area.y, "…", 1, style);
    }
    after
}
