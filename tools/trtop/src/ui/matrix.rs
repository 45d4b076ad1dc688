//! View 3 as a matrix: a line per port of a process, a column per peer, in each cell the rate of sends.
//!
//! A cell of less than half of what its line's cells have in the middle is marked: which pair is slow.

use super::list::nothing;
use super::{put, take_bottom, take_top};
use crate::app::App;
use crate::columns::{short_peer, short_port};
use crate::frame::{Frame, Process};
use crate::rows::Filter;
use crate::units;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::collections::BTreeMap;

/// Cells of a column.
const WIDTH: u16 = 11;

/// One line.
struct Line<'a> {
    process: &'a Process,
    port: &'a str,
    /// By peer, in the order of [`Matrix::peers`]; `None` = no such flow.
    rates: Vec<Option<f64>>,
}

/// All lines.
struct Matrix<'a> {
    peers: Vec<&'a str>,
    lines: Vec<Line<'a>>,
}

fn matrix<'a>(frame: &'a Frame, filter: &Filter) -> Matrix<'a> {
    let mut flows: BTreeMap<(&str, u64, u32, u32), BTreeMap<&str, f64>> = BTreeMap::new();
    let mut peers: BTreeMap<&str, ()> = BTreeMap::new();
    for (pi, p) in (0..).zip(&frame.processes) {
        for (i, peer) in p.now.peers.iter().enumerate() {
            let name = p.peer_names.get(i).map_or("-", String::as_str);
            if !(filter.is_empty() || filter.process_has(p) || filter.has(name) || filter.has(p.port_name(peer.port))) {
                continue;
            }
            let rate = p.peer_rates(i).map_or(0.0, |r| r.send_bytes);
            let line = flows.entry((p.host.as_str(), p.rank.unwrap_or(u64::MAX), pi, peer.port)).or_default();
            *line.entry(name).or_default() += rate;
            peers.insert(name, ());
        }
    }
    let peers: Vec<&str> = peers.into_keys().collect();
    let lines = flows.into_iter().map(|((_, _, pi, port), flows)| {
        let process = &frame.processes[pi as usize];
        Line { process, port: process.port_name(port), rates: peers.iter().map(|p| flows.get(p).copied()).collect() }
    });
    Matrix { lines: lines.collect(), peers }
}

/// What a line's cells are below when they are slow: half of the middle one of those that move.
fn slow_below(rates: &[Option<f64>]) -> f64 {
    let mut moving: Vec<f64> = rates.iter().copied().flatten().filter(|r| *r > 0.0).collect();
    moving.sort_by(f64::total_cmp);
    if moving.len() < 3 { 0.0 } else { moving[moving.len() / 2] / 2.0 }
}

/// Draws it.
pub fn draw(area: Rect, buf: &mut Buffer, app: &mut App, frame: &Frame) {
    if frame.processes.is_empty() {
        app.moves.clear();
        return nothing(area, buf, app, frame);
    }
    let t = app.theme;
    let m = matrix(frame, &Filter::new(&app.filter));
    if m.lines.is_empty() {
        app.moves.clear();
        put(buf, area, area.x, " no connected QP, or none that contains the filter's text", t.label());
        return;
    }
    let mut rest = area;
    let heading = take_top(&mut rest, 1);
    let foot = take_bottom(&mut rest, 1);
    let label = if app.hosts { 34 } else { 24 }.min(area.width / 2);
    let columns = usize::from((area.width - label) / (WIDTH + 1)).max(1);
    app.across = app.across.min(m.peers.len().saturating_sub(columns));
    let shown = app.across..(app.across + columns).min(m.peers.len());
    let at = |i: usize| area.x + label + (WIDTH + 1) * (i - shown.start) as u16;
    put(buf, heading, heading.x, "RANK    PID PORT", t.title());
    let right = |buf: &mut Buffer, line: Rect, i: usize, text: &str, style| {
        let cell = Rect { x: at(i), width: WIDTH.min(line.right().saturating_sub(at(i))), ..line };
        let pad = cell.width.saturating_sub(text.chars().count() as u16);
        put(buf, cell, cell.x + pad, text, style);
    };
    for i in shown.clone() {
        right(buf, heading, i, &short_peer(m.peers[i], usize::from(WIDTH)), t.title());
    }
    let first = app.scroll(m.lines.len(), usize::from(rest.height));
    for l in m.lines.iter().skip(first) {
        let line = take_top(&mut rest, 1);
        if line.height == 0 {
            break;
        }
        let p = l.process;
        let rank = p.rank.map_or("-".into(), |r| r.to_string());
        let host = if app.hosts { format!(" {}", p.host) } else { String::new() };
        let name = format!("{rank:>4} {:>6} {}{host}", p.pid, short_port(l.port, 11));
        let style = if p.alive { t.plain() } else { t.dead() };
        put(buf, Rect { width: label.saturating_sub(1), ..line }, line.x, &name, style);
        let below = slow_below(&l.rates);
        for i in shown.clone() {
            match l.rates[i] {
                None => right(buf, line, i, "·", t.label()),
                Some(r) if r < below => right(buf, line, i, &format!("!{}", units::bits_per_s(r)), t.warn()),
                Some(r) => right(buf, line, i, &units::bits_per_s(r), style),
            }
        }
    }
    let text = format!(
        " sends to peers {} to {} of {}, [ ] for more; ! = under half of its line's middle",
        shown.start + 1,
        shown.end,
        m.peers.len()
    );
    put(buf, foot, foot.x, &text, t.label());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_is_less_than_half_of_the_middle_of_three_or_more() {
        assert_eq!(slow_below(&[Some(10.0), Some(1.0)]), 0.0);
        assert_eq!(slow_below(&[Some(10.0), None, Some(8.0), Some(0.0), Some(3.0)]), 4.0);
    }
}
