//! `trtop doctor`: what is seen of each process, what is not, and what to do about it.

mod advice;
mod coverage;
mod paths;
mod process;

use crate::cli::DoctorArgs;
use crate::error::{Failure, Outcome, print};
use crate::inspect::{self, State};
use crate::ls;
use crate::text_table::TextTable;
use coverage::PortBytes;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use telereduce::shm::reader::Reader;
use telereduce::shm::snapshot::{self, SegmentJson};

/// Examines every live process with a segment, then those that use RDMA devices without one.
///
/// # Errors
/// Something is not seen (exit code 1, as the report says), or there is nothing to examine.
pub fn run(o: &DoctorArgs) -> Outcome {
    let dir = inspect::directory();
    let before = look(&dir, &o.pid)?;
    std::thread::sleep(Duration::from_secs_f64(o.seconds));
    let after = look(&dir, &o.pid)?;
    let report = report(&before, &after, &o.pid);
    if report.nobody {
        return Err(ls::none(&dir, &o.pid));
    }
    print(&report.text)?;
    if report.whole { Ok(()) } else { Err(Failure { code: 1, message: String::new() }) }
}

/// All segments, and what the ports counted, at one moment.
pub struct Look {
    segments: Vec<SegmentJson>,
    wires: Ports<PortBytes>,
    at: Instant,
}

/// Looks.
///
/// # Errors
/// The directory cannot be read.
pub fn look(dir: &Path, pids: &[u32]) -> Result<Look, Failure> {
    let segments = segments(dir, pids)?;
    let wires = ports_of(&segments).map(|p| coverage::port_counters(Path::new("/sys"), p));
    Ok(Look { segments, wires, at: Instant::now() })
}

/// What was found.
pub struct Report {
    /// In words.
    pub text: String,
    /// Everything is seen.
    pub whole: bool,
    /// There is no process to speak of.
    pub nobody: bool,
}

/// Examines what was seen last; `before` is for what moved meanwhile.
pub fn report(before: &Look, now: &Look, pids: &[u32]) -> Report {
    let seconds = (now.at - before.at).as_secs_f64();
    let (before, after, wire_before) = (&before.segments, &now.segments, &before.wires);
    let strangers = process::strangers(Path::new("/proc"), pids, &after.iter().map(|s| s.pid).collect::<Vec<_>>());
    let mut text = String::new();
    let mut whole = true;
    for s in after {
        let facts = process::facts(Path::new("/proc"), s.pid);
        let findings = advice::of_segment(s, &facts);
        whole &= findings.is_empty();
        text += &about(s, &findings);
    }
    for p in &strangers {
        whole = false;
        text += &format!("{} {}\n  ! {}\n", p.pid, p.command, advice::of_stranger(p));
    }
    let rows = ports_of(after).map(|p| {
        let moved = PortBytes::of(after, p).since(&PortBytes::of(before, p));
        let wire = now.wires.get(p).cloned().unwrap_or_default().since(wire_before.get(p));
        (p.to_string(), moved, wire)
    });
    text += &coverage_table(&rows, seconds);
    Report { text, whole, nobody: after.is_empty() && strangers.is_empty() }
}

fn segments(dir: &Path, pids: &[u32]) -> Result<Vec<SegmentJson>, Failure> {
    let files = inspect::all(dir, pids).map_err(|e| Failure::new(format!("cannot read {}: {e}", dir.display())))?;
    let live = files.filter(|f| f.state == State::Live).filter_map(|f| f.file);
    Ok(live.filter_map(|f| snapshot::segment(&mut Reader::from_file(f).ok()?, false).ok()).collect())
}

/// Ports by name, `device:number`; not the port 0 of QPs that never had one.
struct Ports<T>(BTreeMap<String, T>);

impl<T> Ports<T> {
    fn map<U>(&self, f: impl Fn(&str) -> U) -> Ports<U> {
        Ports(self.0.keys().map(|k| (k.clone(), f(k))).collect())
    }

    fn get(&self, port: &str) -> Option<&T> {
        self.0.get(port)
    }
}

fn ports_of(segments: &[SegmentJson]) -> Ports<()> {
    let ports = segments.iter().flat_map(|s| &s.ports).filter(|p| p.port != 0);
    Ports(ports.map(|p| (format!("{}:{}", p.device, p.port), ())).collect())
}

fn about(s: &SegmentJson, findings: &[String]) -> String {
    let rank = s.rank.map_or_else(String::new, |r| format!("  rank {r}"));
    let mut text = format!("{} {}{rank}\n", s.pid, s.command);
    let mut ways: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for c in s.contexts.iter().filter(|c| c.live) {
        *ways.entry((c.device.as_deref().unwrap_or("?"), &c.hooked)).or_default() += 1;
    }
    for ((device, hooked), n) in ways {
        text += &format!("    {device}: {n} open, {}\n", advice::of_way(hooked));
    }
    for f in findings {
        text += &format!("  ! {f}\n");
    }
    if findings.is_empty() {
        text += "    everything on them is counted\n";
    }
    for line in paths::of_segment(s) {
        text += &format!("    {line}\n");
    }
    text
}

fn coverage_table(rows: &Ports<(String, PortBytes, PortBytes)>, seconds: f64) -> String {
    if rows.0.is_empty() {
        return String::new();
    }
    let titles = ["PORT", ">SENT", ">BY PORT", ">COVERED", ">RECEIVED", ">BY PORT", ">COVERED", "PORT COUNTS"];
    let mut t = TextTable::new(&titles);
    for (port, moved, wire) in rows.0.values() {
        let mut row = vec![port.clone()];
        for (seen, all) in [(moved.sent, wire.sent), (moved.received, wire.received)] {
            let bytes = |b: Option<u64>| b.map_or_else(|| "-".into(), |b| b.to_string());
            row.extend([bytes(seen), bytes(all), coverage::percent(seen, all)]);
        }
        row.push(wire.source.into());
        t.row(row);
    }
    format!(
        "\nBytes in {seconds:.1} s: seen by the library, chunks of multi-path for what they are, and by the port's own counters, which hold headers, too, and whatever \
         other\nprocesses and peers' one-sided transfers moved\n{}",
        t.text("  ")
    )
}
