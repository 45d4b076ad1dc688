//! The pane below the list: all counters of the selected row, by opcode, errors by status, latency.

use super::{chart, put, take_top};
use crate::app::App;
use crate::frame::{Detail, Frame};
use crate::rows::{Item, Row};
use crate::units::{bits_per_s, bytes, count, exact, latency, time_of_day};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget, Wrap};
use telereduce::attribution::func_name;
use telereduce::shm::model::Counters;

/// Lines of text that are left without charts, and those that charts need.
const TEXT: u16 = 12;
const CHARTS: u16 = 6;

/// Lines of the pane; with charts, all but a few of the list's.
pub fn height(rest: Rect, whole: bool) -> u16 {
    if whole { rest.height.saturating_sub(6).max(rest.height / 2) } else { (rest.height / 2).min(TEXT) }
}

/// Draws the pane.
pub fn draw(area: Rect, buf: &mut Buffer, app: &App, frame: &Frame) {
    let t = app.theme;
    let mut rest = area;
    let top = take_top(&mut rest, 1);
    buf.set_style(top, t.selected());
    let Some(row) = app.wanted().and_then(|id| Row::find(frame, id)) else {
        put(buf, top, top.x, " no row is selected", t.selected());
        return;
    };
    put(buf, top, top.x, &title(&row), t.selected());
    let mut lines = vec![counters("send", &row.line().send), counters("recv", &row.line().recv)];
    lines.extend(paths(&row));
    lines.extend(nccl(&row));
    match frame.detail.as_ref().filter(|d| d.row == row.id()) {
        Some(d) => lines.extend(details(&row, d)),
        None => lines.push(("", "opcodes, errors and latency come with the next refresh".into())),
    }
    let text: Vec<Line> = (lines.into_iter())
        .map(|(label, text)| Line::from(vec![Span::styled(format!(" {label:<8}"), t.key()), Span::raw(text)]))
        .collect();
    let text = Paragraph::new(text).wrap(Wrap { trim: false });
    if app.whole && rest.height > CHARTS {
        // On a low screen the text gives way: the charts say what its last lines do.
        let lines = CHARTS.max(rest.height.saturating_sub(TEXT));
        let charts = super::take_bottom(&mut rest, lines);
        if let Some(d) = frame.detail.as_ref().filter(|d| d.row == row.id()) {
            draw_charts(charts, buf, app, d);
        }
    }
    text.render(rest, buf);
}

/// Latency to the left; what is outstanding and the bandwidth to the right.
fn draw_charts(area: Rect, buf: &mut Buffer, app: &App, d: &Detail) {
    let t = app.theme;
    let [left, mut right] = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas(area);
    chart::histogram(left, buf, &d.details.latency_post_to_poll, t);
    let half = right.height / 2;
    let upper = take_top(&mut right, half);
    chart::history(upper, buf, "outstanding WR", &d.history.outstanding, |v| count(v as u64), t, t.spark_out());
    chart::history(right, buf, "bandwidth", &d.history.bytes_per_s, bits_per_s, t, t.spark_rate());
}

fn title(row: &Row) -> String {
    let p = row.process;
    let rank = p.rank.map_or(String::new(), |r| format!(" rank {r}"));
    let what = match row.item {
        Item::Port(_) => row.port_name().to_string(),
        Item::Peer(_) => format!("{} -> {}", row.port_name(), row.peer_name()),
        Item::Lane(l) => {
            format!("lane {} on {}: {} -> {}", l.path, row.port_name(), row.local_name(), row.peer_name())
        }
        Item::Qp(q) => {
            format!("QP {} on {} -> {} QP {}", q.qp_num, row.port_name(), row.peer_name(), q.dest_qp_num)
        }
    };
    let dead = if p.alive { "" } else { " (dead)" };
    format!(" {what}  pid {}{dead}{rank} on {}  {}", p.pid, p.host, p.command)
}

/// Whom a QP works for.
fn nccl(row: &Row) -> Option<(&'static str, String)> {
    let mut parts: Vec<String> = row.peer_rank().map(|r| format!("rank {r} at the far end")).into_iter().collect();
    if let Some(a) = row.nccl() {
        let known = |name: &str, n: Option<u32>| n.map(|n| format!("{name} {n}"));
        parts.extend(a.group.map(|g| format!("NCCL communicator {g:#x}")));
        parts.extend([known("own rank", a.rank), known("peer's rank", a.peer_rank)].into_iter().flatten());
        parts.push(format!("channel {} {}", a.channel, if a.sends { "send" } else { "recv" }));
        parts.extend(a.func.and_then(func_name).map(String::from));
    }
    (!parts.is_empty()).then(|| ("for", parts.join(", ")))
}

/// What multi-path does to a QP.
fn paths(row: &Row) -> Option<(&'static str, String)> {
    let Item::Qp(q) = row.item else { return None };
    let m = row.process.multipath_of(q)?;
    let mut parts = Vec::new();
    if let Some(why) = m.single {
        parts.push(format!("one path, {}: {}", why.name(), why.advice()));
    }
    if m.lanes > 0 {
        parts.push(format!("{} lanes", m.lanes));
    }
    let c = &m.counts;
    if c.wr_split > 0 {
        parts.push(format!(
            "split {} WR {} into {} chunks ({} sent anew)",
            exact(c.wr_split),
            bytes(c.moved.bytes_split),
            exact(c.chunks),
            exact(c.chunks_replayed)
        ));
    }
    let large: u64 = c.large_passed.iter().fold(0, |sum, n| sum.saturating_add(*n));
    if large > 0 {
        parts.push(format!("{} large WR whole", exact(large)));
    }
    let failed = u64::from(m.lanes_failed_here) + u64::from(m.lanes_failed_there);
    if failed > 0 {
        parts.push(format!("{failed} lanes could not be made"));
    }
    Some(("paths", parts.join("; ")))
}

fn counters(label: &'static str, c: &Counters) -> (&'static str, String) {
    if *c == Counters::default() {
        return (label, "none".into());
    }
    let pair = |name: &str, wr: u64, b: u64| format!("{name} {} WR {}", exact(wr), bytes(b));
    let mut parts =
        vec![pair("posted", c.wr_posted, c.bytes_posted), pair("completed", c.wr_completed, c.bytes_completed)];
    if c.wr_failed > 0 {
        parts.push(pair("failed", c.wr_failed, c.bytes_failed));
    }
    if c.wr_dropped > 0 {
        parts.push(pair("dropped", c.wr_dropped, c.bytes_dropped));
    }
    parts.push(pair("outstanding", c.wr_outstanding, c.bytes_outstanding));
    parts.push(pair("most", c.wr_high_water, c.bytes_high_water));
    (label, parts.join(", "))
}

fn details(row: &Row, d: &Detail) -> Vec<(&'static str, String)> {
    let list = |parts: Vec<String>| if parts.is_empty() { "none".to_string() } else { parts.join(", ") };
    let opcodes = d.details.opcodes.iter().map(|(name, p)| format!("{name} {} WR {}", exact(p.wr), bytes(p.bytes)));
    let by_status = |e: &std::collections::BTreeMap<String, u64>, side: &str| -> Vec<String> {
        e.iter().map(|(name, n)| format!("{name} {}{side}", exact(*n))).collect()
    };
    let mut errors = by_status(&d.details.errors, "");
    errors.extend(by_status(&d.details.recv_errors, " (recv)"));
    let mut lines = vec![("opcodes", list(opcodes.collect())), ("errors", list(errors))];
    if let Some(e) = &d.last_error {
        let what =
            format!("{} vendor {:#x} wr_id {:#x} at {} UTC", e.status, e.vendor_err, e.wr_id, time_of_day(e.time_ns));
        let oldest = e.oldest_opcode.as_ref().map_or(String::new(), |o| format!(", the oldest {o}"));
        let then = format!("{} WR {} outstanding then{oldest}", exact(e.wr_outstanding), bytes(e.bytes_outstanding));
        lines.push(("last", format!("{what}, {then}")));
    }
    lines.push(("latency", latency_text(row.process.latency_every, d)));
    lines
}

fn latency_text(every: u32, d: &Detail) -> String {
    let l = &d.details.latency_post_to_poll;
    if every == 0 {
        return "not measured (TELEREDUCE_LATENCY=0)".into();
    }
    let part = |name: &str, v: Option<u64>| v.map(|ns| format!("{name} {}", latency(ns)));
    let values: Vec<String> = [
        part("mean", l.mean_ns),
        part("p50", l.p50_ns),
        part("p90", l.p90_ns),
        part("p99", l.p99_ns),
        part("p99.9", l.p999_ns),
        part("max", l.max_ns),
    ]
    .into_iter()
    .flatten()
    .collect();
    let values = if values.is_empty() { String::new() } else { format!(": {}", values.join(", ")) };
    format!("post-to-poll, 1 in {every}, {} samples{values}", exact(l.samples))
}
