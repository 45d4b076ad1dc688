//! View 1: the ports of every process.
//!
//! On a wide screen one line per port; on a narrow one a second line holds command, totals and sparklines.

use super::list::{Column, column};
use super::theme::Theme;
use crate::columns::Col;
use crate::history::sparkline;
use crate::rows::Row;
use crate::units;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// From this width on, everything fits one line.
pub const WIDE: u16 = 160;

/// Columns; the first eleven make 80 cells.
pub const COLUMNS: &[Column] = &[
    column(Col::Host, 8, 16, 3),
    column(Col::Pid, 7, 7, 0),
    column(Col::Rank, 4, 6, 3),
    column(Col::Port, 10, 18, 1),
    column(Col::Qps, 5, 5, 8),
    column(Col::Send, 9, 9, 2),
    column(Col::SendLong, 9, 9, 13),
    column(Col::Recv, 9, 9, 5),
    column(Col::WrRate, 5, 5, 7),
    column(Col::Out, 5, 5, 4),
    column(Col::OutBytes, 7, 7, 6),
    column(Col::High, 5, 5, 9),
    column(Col::Errors, 4, 5, 10),
    column(Col::HighBytes, 7, 7, 15),
    column(Col::Sent, 7, 7, 14),
    column(Col::Received, 7, 7, 16),
    column(Col::OutSpark, 14, 19, 11),
    column(Col::RateSpark, 14, 19, 12),
    column(Col::Command, 12, u16::MAX, 13),
];

/// Lines per row at this width.
pub fn row_height(width: u16) -> u16 {
    if width < WIDE { 2 } else { 1 }
}

/// The second line of a row on a narrow screen.
pub fn second_line(area: Rect, buf: &mut Buffer, row: &Row, theme: Theme, over: Option<Style>) {
    let style = |s: Style| over.unwrap_or(s);
    let (l, width) = (row.line(), area.width);
    // Sparklines get what the text leaves, at most 16 cells each.
    let spark = usize::from((width * 3 / 20).min(16));
    let right = if width >= 40 { 2 * (spark as u16 + 4) } else { 0 };
    let left = Rect { width: width.saturating_sub(right), ..area };
    let mut totals = format!("sent {} ", units::bytes(l.send.bytes_completed));
    if l.recv.bytes_completed > 0 {
        totals += &format!("rcvd {} ", units::bytes(l.recv.bytes_completed));
    }
    let totals_width = if left.width >= 36 { totals.len() as u16 } else { 0 };
    let command = Rect { width: left.width.saturating_sub(totals_width + 1), ..left };
    super::put(buf, command, left.x.saturating_add(2), &Col::Command.text(row, 0), style(theme.label()));
    if totals_width > 0 {
        super::put(buf, left, left.right() - totals_width, &totals, style(theme.label()));
    }
    let (Some(h), true) = (row.process.history.get(row.position), right > 0) else { return };
    let mut x = left.right();
    for (word, values, s) in [("out ", &h.outstanding, theme.spark_out()), ("bw ", &h.bytes_per_s, theme.spark_rate())]
    {
        x = super::put(buf, area, x, word, style(theme.label()));
        x = super::put(buf, area, x, &sparkline(values, spark), style(s));
        x = x.saturating_add(1);
    }
}
