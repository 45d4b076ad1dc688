//! View 7: completions and stalls of all processes, the newest on top.

use super::list::{Placed, cell, nothing};
use super::{put, take_top};
use crate::app::App;
use crate::columns::{Col, short_peer};
use crate::frame::{Frame, Process};
use crate::rows::Filter;
use crate::units;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use telereduce::shm::layout::EventKind;
use telereduce::shm::reader::Event;
use telereduce::verbs;

/// Headings, cells, whether to the right, and the screen width from which they are there.
const COLUMNS: [(&str, u16, bool, u16); 12] = [
    ("TIME UTC", 15, false, 0),
    ("HOST", 10, false, 140),
    ("PID", 7, true, 0),
    ("RANK", 4, true, 120),
    ("QP", 8, true, 0),
    ("PORT", 10, false, 90),
    ("PEER", 15, false, 0),
    ("STATUS", 13, false, 0),
    ("BYTES", 7, true, 0),
    ("OUT", 5, true, 0),
    ("OUT-B", 7, true, 100),
    ("LATENCY", 7, true, 130),
];

fn cells(p: &Process, e: &Event) -> [String; 12] {
    [
        format!("{}.{:06}", units::time_of_day(e.end_ns), e.end_ns / 1000 % 1_000_000),
        p.host.clone(),
        p.pid.to_string(),
        p.rank.map_or("-".into(), |r| r.to_string()),
        e.qp_num.to_string(),
        p.port_name(e.port_index).to_string(),
        short_peer(p.peer_name(e.peer_index), 15),
        status(e),
        units::bytes(e.bytes),
        units::count(e.wr_outstanding),
        units::bytes(e.bytes_outstanding),
        e.latency_ns.map_or("-".into(), units::latency),
    ]
}

/// How it completed; of a stall, for how long nothing did.
fn status(e: &Event) -> String {
    let waited = || units::latency(e.waited_ns.unwrap_or(0));
    match e.kind {
        EventKind::Completion => verbs::status_name(u32::from(e.status)),
        EventKind::Stall => format!("STALL {}", waited()),
        EventKind::StallEnd => format!("ENDED {}", waited()),
    }
}

/// Draws the events from the one that it was scrolled to.
pub fn draw(area: Rect, buf: &mut Buffer, app: &mut App, frame: &Frame) {
    if frame.processes.is_empty() {
        app.moves.clear();
        return nothing(area, buf, app, frame);
    }
    let filter = Filter::new(&app.filter);
    let mut events: Vec<(&Process, &Event)> = frame
        .processes
        .iter()
        .flat_map(|p| p.extra.events.iter().map(move |e| (p, e)))
        .filter(|(p, e)| filter.is_empty() || filter.process_has(p) || cells(p, e).iter().any(|c| filter.has(c)))
        .collect();
    events.sort_by_key(|(_, e)| std::cmp::Reverse(e.end_ns));
    let mut rest = area;
    let heading = take_top(&mut rest, 1);
    let mut placed = Vec::new();
    let mut x = 0;
    for (i, (title, width, right, from)) in COLUMNS.iter().enumerate() {
        if area.width >= *from {
            // The column's kind says to which side it stands.
            let p = Placed { col: if *right { Col::Out } else { Col::Peer }, x, width: *width };
            cell(buf, heading, &p, title, app.theme.title());
            placed.push((i, p));
            x += width + 1;
        }
    }
    let written: u64 = frame.processes.iter().fold(0, |sum, p| sum.saturating_add(p.extra.events_written));
    if events.is_empty() {
        app.moves.clear();
        let why = match written {
            0 => " no completed signaled send yet (TELEREDUCE_MIN_BYTES, TELEREDUCE_EVENTS)",
            _ => " no event contains the filter's text",
        };
        put(buf, rest, rest.x, why, app.theme.label());
        return;
    }
    let foot = super::take_bottom(&mut rest, 1);
    let first = app.scroll(events.len(), usize::from(rest.height));
    for (p, e) in events.iter().skip(first) {
        let line = take_top(&mut rest, 1);
        if line.height == 0 {
            break;
        }
        let good = e.status == 0 && e.kind != EventKind::Stall;
        let style = if good { app.theme.plain() } else { app.theme.bad() };
        let texts = cells(p, e);
        for (i, place) in &placed {
            cell(buf, line, place, &texts[*i], style);
        }
    }
    let text = format!(" the newest {} of {} events; Space holds them", events.len(), units::exact(written));
    put(buf, foot, foot.x, &text, app.theme.label());
}
