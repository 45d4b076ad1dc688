//! The help screen, made from the table of keys and the columns of the list.

use super::{columns, put, take_top};
use crate::app::App;
use crate::keys::KEYS;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Draws help from line `app.help` on.
pub fn draw(area: Rect, buf: &mut Buffer, app: &mut App) {
    let t = app.theme;
    let mut lines: Vec<(String, String, Style)> = vec![("Keys".into(), String::new(), t.title())];
    lines.extend(KEYS.iter().map(|b| (b.keys.into(), b.help.into(), t.key())));
    lines.push((
        "a click".into(),
        "on a tab or row: goes there; on a heading: sorts; on the selected row: as Enter".into(),
        t.key(),
    ));
    lines.push((String::new(), String::new(), t.plain()));
    lines.push(("Columns".into(), "of this list; a wider screen shows more of them".into(), t.title()));
    lines.extend(columns(app.view).iter().map(|c| (c.col.title().into(), c.col.meaning().into(), t.key())));
    lines.push((String::new(), String::new(), t.plain()));
    lines.push(("Units".into(), "decimal: 1 kB = 1000 bytes, 1 Gb/s = 10^9 bits per second".into(), t.title()));
    lines.push((String::new(), "Rates are differences between two refreshes.".into(), t.plain()));

    let last = lines.len().saturating_sub(usize::from(area.height));
    let first = app.help.unwrap_or(0).min(last);
    app.help = Some(first);
    let mut rest = area;
    for (key, text, style) in lines.iter().skip(first) {
        let line = take_top(&mut rest, 1);
        if line.height == 0 {
            break;
        }
        put(buf, line, line.x.saturating_add(1), key, *style);
        put(buf, line, line.x.saturating_add(22), text, t.plain());
    }
}
