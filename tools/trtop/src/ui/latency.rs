//! View 5: latency from post to poll, a line per port and per peer, and the histogram of the selected one.

use super::chart;
use super::list::{Column, column};
use crate::app::App;
use crate::columns::Col;
use crate::frame::Frame;
use crate::rows::Row;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Columns.
pub const COLUMNS: &[Column] = &[
    column(Col::Host, 8, 16, 8),
    column(Col::Pid, 7, 7, 7),
    column(Col::Rank, 4, 6, 8),
    column(Col::Port, 8, 18, 2),
    column(Col::Peer, 13, 39, 1),
    column(Col::Samples, 5, 5, 6),
    column(Col::P50, 7, 7, 3),
    column(Col::P90, 7, 7, 5),
    column(Col::P99, 7, 7, 0),
    column(Col::P999, 7, 7, 5),
    column(Col::Max, 7, 7, 4),
    column(Col::Send, 9, 9, 9),
    column(Col::Out, 5, 5, 10),
    column(Col::Command, 12, u16::MAX, 11),
];

/// Lines of the histogram.
pub fn pane_height(rest: Rect) -> u16 {
    if rest.height < 10 { 0 } else { (rest.height / 3).min(16) }
}

/// The histogram of the selected row, else of the first.
pub fn pane(area: Rect, buf: &mut Buffer, app: &mut App, frame: &Frame) {
    let row = app.first.and_then(|id| Row::find(frame, id));
    if let Some(l) = row.as_ref().and_then(Row::latency) {
        chart::histogram(area, buf, l, app.theme);
    }
}
