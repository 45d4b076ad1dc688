//! `trtop report`: a page with charts of a recording.

mod changes;
mod charts;
mod page;
mod series;

use crate::cli::ReportArgs;
use crate::convert::into_file;
use crate::error::{Failure, Outcome};
use crate::recording::player::Player;
use crate::recording::snapshots::Snapshots;
use crate::units;
use changes::{Change, changes};
use charts::{Line, chart, color};
use page::Page;
use series::{All, Kind, Name, Series};
use std::io::{self, Write};

/// Points of a line: more than a chart has pixels.
const POINTS: usize = 1200;
/// Lines of a chart; those with the most bytes.
const LINES: usize = 12;
/// Changes listed.
const CHANGES: usize = 40;

/// Makes the page.
///
/// # Errors
/// The recording cannot be read, or the page not written.
pub fn run(o: &ReportArgs) -> Outcome {
    let player = Player::open(&o.file)?;
    let html = report(player, o)?;
    let failed = |e: io::Error| Failure::new(format!("cannot write {}: {e}", o.output.display()));
    into_file(&o.output, failed, |mut to| to.write_all(html.as_bytes()).and_then(|()| to.flush()).map_err(failed))
}

fn report(player: Player, o: &ReportArgs) -> Result<String, Failure> {
    let count = player.frames().len();
    let start_ns = player.frames()[0].time_ns;
    let about = player.index().about.clone();
    let troubles = player.index().troubles.clone();
    let mut all = All::default();
    let mut snapshots = Snapshots::new(player);
    let step = count.div_ceil(POINTS);
    let mut end = 0.0;
    for i in (0..count).step_by(step) {
        let s = snapshots.at(i, &o.pid)?;
        end = s.time_ns.saturating_sub(start_ns) as f64 / 1e9;
        all.add(&s, end);
    }
    let name = o.file.file_name().unwrap_or_default().to_string_lossy();
    let mut page = Page::new(&format!("telereduce: {name}"));
    page.text(&format!(
        "Recorded on {} from {} UTC, {count} frames, {:.1} s. Bandwidths are of completed transfers.",
        about.host,
        units::time_of_day(start_ns),
        end
    ));
    troubles.iter().for_each(|t| page.text(&format!("The recording is not whole: {t}.")));
    if step > 1 {
        page.note(&format!("One in {step} frames is drawn: bandwidths are over the time between two of them."));
    }
    processes(&mut page, &all);
    let found = moments(&all);
    changed(&mut page, &found, start_ns);
    for (kind, title) in [(Kind::Port, "Ports"), (Kind::Peer, "Peers"), (Kind::Path, "Paths")] {
        draw(&mut page, &all, kind, title, end, &found)
            .map_err(|e| Failure::new(format!("cannot draw a chart: {e}")))?;
    }
    errors(&mut page, &all);
    Ok(page.finish())
}

fn processes(page: &mut Page, all: &All) {
    page.heading("Processes");
    let rows: Vec<Vec<String>> = (all.processes.iter())
        .map(|((pid, created_ns), (called, alive))| {
            let ports =
                all.series.iter().filter(|(n, _)| n.kind == Kind::Port && (n.pid, n.created_ns) == (*pid, *created_ns));
            let (mut sent, mut received, mut failed) = (0u64, 0u64, 0u64);
            for (_, s) in ports {
                sent = sent.saturating_add(s.bytes.0);
                received = received.saturating_add(s.bytes.1);
                failed = failed.saturating_add(s.failed);
            }
            let state = if *alive { "live" } else { "ended" };
            vec![called.clone(), state.into(), units::bytes(sent), units::bytes(received), units::exact(failed)]
        })
        .collect();
    page.table(&["process", "at the end", ">sent", ">received", ">failed WRs"], &rows);
}

/// Changes of what was sent or received, the earliest first.
fn moments(all: &All) -> Vec<(String, &'static str, Kind, Change)> {
    let of = |n: &Name, s: &Series| {
        let name = format!("pid {}: {}", n.pid, n.text);
        let kind = n.kind;
        [("send", changes(&s.send)), ("recv", changes(&s.recv))].map(move |(word, c)| {
            let name = name.clone();
            c.into_iter().map(move |c| (name.clone(), word, kind, c)).collect::<Vec<_>>()
        })
    };
    let mut found: Vec<_> = all.series.iter().flat_map(|(n, s)| of(n, s).concat()).collect();
    found.sort_by(|a, b| a.3.at.total_cmp(&b.3.at));
    found
}

fn changed(page: &mut Page, found: &[(String, &'static str, Kind, Change)], start_ns: u64) {
    page.heading("When a bandwidth changed");
    if found.is_empty() {
        return page.text("Never to less than half or more than twice of what it was.");
    }
    let gbps = |v: f64| format!("{v:.3} Gb/s");
    let rows: Vec<Vec<String>> = (found.iter().take(CHANGES))
        .map(|(name, word, _, c)| {
            let time = units::time_of_day(start_ns.saturating_add((c.at * 1e9) as u64));
            vec![format!("{:.1} s", c.at), time, format!("{name} {word}"), gbps(c.before), gbps(c.after)]
        })
        .collect();
    page.table(&[">after", "UTC", "what", ">from", ">to"], &rows);
    if found.len() > CHANGES {
        page.note(&format!("And {} more, later.", found.len() - CHANGES));
    }
}

fn draw(
    page: &mut Page,
    all: &All,
    kind: Kind,
    title: &str,
    end: f64,
    found: &[(String, &'static str, Kind, Change)],
) -> Result<(), String> {
    let mut of_kind: Vec<(&Name, &Series)> = all.series.iter().filter(|(n, _)| n.kind == kind).collect();
    if of_kind.is_empty() {
        return Ok(());
    }
    page.heading(title);
    of_kind.sort_by_key(|(_, s)| std::cmp::Reverse(s.bytes.0.saturating_add(s.bytes.1)));
    if of_kind.len() > LINES {
        page.note(&format!("The {LINES} of {} with the most bytes are drawn.", of_kind.len()));
        of_kind.truncate(LINES);
    }
    let marks: Vec<f64> = found.iter().filter(|f| f.2 == kind).map(|f| f.3.at).collect();
    let called = |n: &Name| format!("pid {} {}", n.pid, n.text);
    let mut lines = |name: &str, unit: &str, marks: &[f64], of: &dyn Fn(&Series) -> &[(f64, f64)]| {
        let lines: Vec<Line> = of_kind.iter().map(|(n, s)| Line { name: called(n), points: of(s) }).collect();
        if lines.iter().all(|l| l.points.iter().all(|p| p.1 == 0.0)) {
            return Ok(());
        }
        add_chart(page, name, unit, &lines, end, marks)
    };
    lines("Sent", "Gb/s", &marks, &|s| &s.send)?;
    lines("Received", "Gb/s", &marks, &|s| &s.recv)?;
    lines("Send WRs outstanding", "WRs", &[], &|s| &s.outstanding)?;
    let shares: Vec<Vec<(f64, f64)>> = if kind == Kind::Path { shares(&of_kind) } else { Vec::new() };
    if !shares.is_empty() {
        let pairs = of_kind.iter().zip(&shares);
        let lines: Vec<Line> = pairs.map(|((n, _), p)| Line { name: called(n), points: p }).collect();
        add_chart(page, "Share of what all paths of the process carry", "%", &lines, end, &marks)?;
    }
    let latencies: Vec<[Vec<(f64, f64)>; 2]> = (of_kind.iter())
        .map(|(_, s)| [s.latency.iter().map(|l| (l.0, l.1)).collect(), s.latency.iter().map(|l| (l.0, l.2)).collect()])
        .collect();
    if latencies.iter().any(|[l, _]| !l.is_empty()) {
        let named = of_kind.iter().zip(&latencies).flat_map(|((n, _), [p50, p99])| {
            [("p50", p50), ("p99", p99)].map(|(q, points)| Line { name: format!("{} {q}", called(n)), points })
        });
        add_chart(page, "Latency, post to poll", "us", &named.collect::<Vec<_>>(), end, &[])?;
    }
    Ok(())
}

fn add_chart(page: &mut Page, name: &str, unit: &str, lines: &[Line], end: f64, marks: &[f64]) -> Result<(), String> {
    let svg = chart(unit, lines, end, marks)?;
    page.chart(name, &svg, lines.iter().enumerate().map(|(i, l)| (&*l.name, color(i))));
    Ok(())
}

/// Of each path in what all of its process carry, in percent, where they carry anything.
fn shares(paths: &[(&Name, &Series)]) -> Vec<Vec<(f64, f64)>> {
    let same = |a: &Name, b: &Name| (a.pid, a.created_ns) == (b.pid, b.created_ns);
    let sum_at = |n: &Name, at: f64| -> f64 {
        let of_process = paths.iter().filter(|(m, _)| same(n, m));
        of_process.filter_map(|(_, s)| s.send.iter().find(|p| p.0 == at)).map(|p| p.1).sum()
    };
    (paths.iter())
        .map(|(n, s)| {
            let share = |p: &(f64, f64)| Some((p.0, p.1 * 100.0 / Some(sum_at(n, p.0)).filter(|s| *s > 0.0)?));
            s.send.iter().filter_map(share).collect()
        })
        .collect()
}

fn errors(page: &mut Page, all: &All) {
    page.heading("Errors");
    if all.errors.is_empty() {
        return page.text("No completion failed.");
    }
    let row = |((peer, status), n): (&(String, String), &u64)| vec![peer.clone(), status.clone(), units::exact(*n)];
    let rows: Vec<Vec<String>> = all.errors.iter().map(row).collect();
    page.table(&["peer", "status", ">WRs"], &rows);
}
