//! `trtop dump`: the counters of every segment as JSON, CSV or text, once or repeatedly.

use crate::cli::{DumpArgs, Format};
use crate::csv;
use crate::error::{Failure, Outcome};
use crate::inspect;
use crate::ranks::{self, Map};
use crate::text_table::TextTable;
use crate::units::{bytes, count};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use telereduce::shm::discover;
use telereduce::shm::model::Line;
use telereduce::shm::reader::{ReadError, Reader};
use telereduce::shm::snapshot::{self, SegmentJson, Snapshot};

/// Dumps.
///
/// # Errors
/// There is no segment, or the output cannot be written.
pub fn run(o: &DumpArgs) -> Outcome {
    let dir = inspect::directory();
    match o.every {
        None => once(&dir, o),
        Some(s) => repeat(&dir, o, Duration::from_secs_f64(s)),
    }
}

fn once(dir: &Path, o: &DumpArgs) -> Outcome {
    let s = take(dir, o, true)?;
    if s.segments.is_empty() {
        return Err(crate::ls::none(dir, &o.pid));
    }
    let mut text = match o.format {
        Format::Csv => csv::header(o.events),
        _ => String::new(),
    };
    text += &render(&s, o);
    match &o.output {
        None => crate::error::print(&text),
        Some(path) => write_whole(path, &text).map_err(|e| cannot_write(path, &e)),
    }
}

fn repeat(dir: &Path, o: &DumpArgs, every: Duration) -> Outcome {
    let mut out: Box<dyn Write> = match &o.output {
        None => Box::new(io::stdout()),
        Some(path) => Box::new(File::create(path).map_err(|e| cannot_write(path, &e))?),
    };
    let failed = |e: io::Error| match &o.output {
        None => Failure::output(&e),
        Some(path) => cannot_write(path, &e),
    };
    if o.format == Format::Csv {
        out.write_all(csv::header(o.events).as_bytes()).map_err(failed)?;
    }
    let mut seen = false;
    let mut next = Instant::now();
    let mut left = o.count;
    loop {
        let s = take(dir, o, left == o.count)?;
        seen |= !s.segments.is_empty();
        out.write_all(render(&s, o).as_bytes()).and_then(|()| out.flush()).map_err(failed)?;
        left = left.map(|n| n - 1);
        if left == Some(0) {
            break;
        }
        // A dump that took longer than the interval is followed by the next one, not by several.
        next = (next + every).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    if seen { Ok(()) } else { Err(crate::ls::none(dir, &o.pid)) }
}

/// Copies every segment. Files that cannot be read are named on stderr if `say`; other users' are only counted.
fn take(dir: &Path, o: &DumpArgs, say: bool) -> Result<Snapshot, Failure> {
    let map = o.ranks.as_deref().map_or(Ok(Map::default()), Map::read)?;
    let (mut segments, left) = copy(dir, &o.pid, |r| snapshot::segment(r, o.events))?;
    // The far ends of one process's QPs are in others' segments.
    let others = if o.pid.is_empty() { Vec::new() } else { copy(dir, &[], snapshot::counters)?.0 };
    ranks::fill(&mut segments, &others, &map);
    if say {
        left.broken.iter().for_each(|(path, why)| eprintln!("trtop: {}: {why}", path.display()));
        if left.denied > 0 {
            eprintln!("trtop: left out {} of other users", left.denied);
        }
    }
    Ok(snapshot::dump(segments))
}

/// Segments that were not copied.
#[derive(Debug, Default)]
pub struct Left {
    /// Other users'.
    pub denied: usize,
    /// Those that cannot be read, and why.
    pub broken: Vec<(PathBuf, ReadError)>,
}

/// Copies the segments in `dir`, those of processes `pids` only unless that is empty.
///
/// # Errors
/// The directory cannot be read.
pub fn copy(
    dir: &Path,
    pids: &[u32],
    describe: impl Fn(&mut Reader) -> Result<SegmentJson, ReadError>,
) -> Result<(Vec<SegmentJson>, Left), Failure> {
    let found = discover::list(dir).map_err(|e| Failure::new(format!("cannot read {}: {e}", dir.display())))?;
    let user = rustix::process::geteuid().as_raw();
    let (mut segments, mut left) = (Vec::new(), Left::default());
    for f in found.iter().filter(|f| pids.is_empty() || pids.contains(&f.pid)) {
        match Reader::open(&f.path).and_then(|mut r| describe(&mut r)) {
            Ok(s) => segments.push(s),
            Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::NotFound => {}
            Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::PermissionDenied && f.uid != user => left.denied += 1,
            Err(e) => left.broken.push((f.path.clone(), e)),
        }
    }
    Ok((segments, left))
}

fn render(s: &Snapshot, o: &DumpArgs) -> String {
    let json = |r: serde_json::Result<String>| r.expect("numbers and text always make JSON") + "\n";
    match o.format {
        Format::Json if o.every.is_some() => json(serde_json::to_string(s)),
        Format::Json => json(serde_json::to_string_pretty(s)),
        Format::Csv => csv::rows(s, o.events),
        Format::Table => s.segments.iter().map(|g| table(g, o.events)).collect(),
    }
}

fn cannot_write(path: &Path, e: &io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {e}", path.display()))
}

/// Writes a file that is there complete or not at all: a temporary one beside it takes its name when it is finished.
///
/// # Errors
/// As the system says.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    if path.exists() && !path.is_file() {
        // A pipe or a device is written, not replaced.
        return std::fs::write(path, text);
    }
    let name = path.file_name().ok_or_else(|| io::Error::other("not the name of a file"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    let temporary: PathBuf = path.with_file_name(hidden);
    let written = File::create(&temporary)
        .and_then(|mut f| f.write_all(text.as_bytes()).and_then(|()| f.sync_all()))
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// One process as text.
fn table(g: &SegmentJson, events: bool) -> String {
    let rank = g.rank.map_or(String::new(), |r| format!(" rank {r}"));
    let life = if g.alive { "live" } else { "dead" };
    let mut out = format!("pid {} {life}{rank} on {}: {}\n", g.pid, g.host, g.command);
    const NUMBERS: [&str; 9] = [">POSTED", ">DONE", ">OUT", ">SENT", ">OUT-B", ">RECVS", ">RCVD", ">ERR", ">P99"];
    let numbers = |l: &Line, d: &snapshot::Details| -> Vec<String> {
        vec![
            count(l.send.wr_posted),
            count(l.send.wr_completed),
            count(l.send.wr_outstanding),
            bytes(l.send.bytes_completed),
            bytes(l.send.bytes_outstanding),
            count(l.recv.wr_completed),
            bytes(l.recv.bytes_completed),
            count(l.send.wr_failed.saturating_add(l.recv.wr_failed)),
            d.latency_post_to_poll.p99_ns.map_or("-".into(), crate::units::latency),
        ]
    };
    let place = |device: Option<&String>, port: Option<u32>| match (device, port) {
        (Some(d), Some(p)) => format!("{d}:{p}"),
        (Some(d), None) => d.clone(),
        _ => "-".into(),
    };
    let dash = |s: &Option<String>| s.clone().unwrap_or_else(|| "-".into());
    let mut t = TextTable::new(&[&["PORT", ">QPS"][..], &NUMBERS].concat());
    for p in &g.ports {
        let id = vec![format!("{}:{}", p.device, p.port), p.qps_live.to_string()];
        t.row([id, numbers(&p.line, &p.details)].concat());
    }
    out += &t.text("  ");
    let mut t = TextTable::new(&[&["PEER", "PORT", ">QPS"][..], &NUMBERS].concat());
    for p in &g.peers {
        let name = p.ip.clone().or_else(|| p.gid.clone()).unwrap_or_else(|| format!("lid {}", p.lid));
        let id = vec![name, format!("{}:{}", p.device, p.port), p.qps_live.to_string()];
        t.row([id, numbers(&p.line, &p.details)].concat());
    }
    out += &t.text("  ");
    let paths: &[&str] = if g.qps.iter().any(|q| q.multipath.is_some()) { &[">LANES", "ONE PATH"] } else { &[] };
    let mut t = TextTable::new(&[&[">QP", "TYPE", "STATE", "PORT", "PEER", ">DEST"][..], &NUMBERS, paths].concat());
    for q in &g.qps {
        let id = vec![
            q.qp_num.to_string(),
            q.r#type.clone(),
            q.state.clone().unwrap_or_else(|| "gone".into()),
            place(q.device.as_ref(), q.port),
            dash(&q.peer),
            q.dest_qp_num.map_or("-".into(), |n| n.to_string()),
        ];
        let mut last = match &q.multipath {
            Some(m) => vec![m.lanes.to_string(), dash(&m.single_path)],
            None => vec!["-".into(), "-".into()],
        };
        last.truncate(paths.len());
        t.row([id, numbers(&q.line, &q.details), last].concat());
    }
    out += &t.text("  ");
    if events {
        let mut t = TextTable::new(&["END", ">QP", "PORT", "PEER", "STATUS", ">BYTES", ">OUT", ">LATENCY", ">WAITED"]);
        for e in &g.events {
            t.row(vec![
                e.end_ns.to_string(),
                e.qp_num.to_string(),
                place(e.device.as_ref(), e.port),
                dash(&e.peer),
                if e.waited_ns.is_some() { e.kind.clone() } else { e.status.clone() },
                e.bytes.to_string(),
                e.wr_outstanding.to_string(),
                e.latency_ns.map_or("-".into(), crate::units::latency),
                e.waited_ns.map_or("-".into(), crate::units::latency),
            ]);
        }
        out += &t.text("  ");
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        write_whole(&path, "first, and longer").unwrap();
        write_whole(&path, "second").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(write_whole(&dir.path().join("no/such/dir"), "").is_err());
    }

    #[test]
    fn a_device_is_written_and_stays_a_device() {
        write_whole(Path::new("/dev/null"), "text").unwrap();
        assert!(!Path::new("/dev/null").is_file());
    }
}
