//! View 8: what `trtop doctor` says, anew every two seconds.

use super::{list, put, take_top};
use crate::app::App;
use crate::frame::Frame;
use crate::rows::Filter;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Draws the report from the line that it was scrolled to.
pub fn draw(area: Rect, buf: &mut Buffer, app: &mut App, frame: &Frame) {
    if frame.doctor.is_empty() {
        app.moves.clear();
        if app.replay.is_some() {
            let text = " a recording holds counters, not this: use trtop doctor where programs run";
            put(buf, area, area.x, text, app.theme.label());
            return;
        }
        return match frame.processes.is_empty() {
            true => list::nothing(area, buf, app, frame),
            false => drop(put(buf, area, area.x, " comes with the next refresh", app.theme.label())),
        };
    }
    let filter = Filter::new(&app.filter);
    let lines: Vec<&String> = frame.doctor.iter().filter(|l| filter.has(l)).collect();
    let first = app.scroll(lines.len(), usize::from(area.height));
    let mut rest = area;
    for text in lines.into_iter().skip(first) {
        let line = take_top(&mut rest, 1);
        if line.height == 0 {
            break;
        }
        let trimmed = text.trim_start();
        let style = match trimmed.starts_with("! ") {
            true => app.theme.warn(),
            false if trimmed.len() == text.len() => app.theme.title(),
            false => app.theme.plain(),
        };
        // What is wrong is said in whole: on as many lines as it takes.
        let indent = (text.len() - trimmed.len()) as u16;
        let room = usize::from(line.width.saturating_sub(indent)).max(1);
        let mut line = line;
        let mut left = trimmed;
        loop {
            let cut = wrap(left, room);
            put(buf, line, line.x.saturating_add(indent), left[..cut].trim_end(), style);
            left = left[cut..].trim_start();
            if left.is_empty() {
                break;
            }
            line = take_top(&mut rest, 1);
            if line.height == 0 {
                return;
            }
        }
    }
}

/// Where a line of at most `room` characters ends: after a blank, if there is one.
fn wrap(text: &str, room: usize) -> usize {
    let Some((end, _)) = text.char_indices().nth(room) else { return text.len() };
    match text[..end].rfind(' ') {
        Some(blank) if blank > 0 => blank + 1,
        _ => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_after_words() {
        assert_eq!(wrap("two words", 20), 9);
        assert_eq!(wrap("two words", 6), 4);
        assert_eq!(wrap("onelongword", 6), 6);
        assert_eq!(wrap("äöü", 2), 4);
    }
}
