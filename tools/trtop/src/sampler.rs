//! Copies all segments and makes a [`Frame`] of them.

use crate::doctor;
use crate::extra::Extra;
use crate::feed::{self, Ask};
use crate::frame::{Broken, Detail, Frame, Process, RowId, port_text};
use crate::history::History;
use crate::ranks;
use crate::rows::{Item, Row, View};
use core::sync::atomic::Ordering::Relaxed;
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use telereduce::shm::discover::{self, Found};
use telereduce::shm::model::{PeerView, QpView, gid_text};
use telereduce::shm::reader::{ReadError, Reader};
use telereduce::shm::snapshot::details;

/// Details are copied at most this often.
const DETAILS_EVERY: Duration = Duration::from_millis(500);
/// `trtop doctor` examines at most this often.
const DOCTOR_EVERY: Duration = Duration::from_secs(2);
/// A segment that its process has not finished creating is not worth a word before.
const CREATION: Duration = Duration::from_secs(2);

/// Reads segments, refresh by refresh.
pub struct Sampler {
    dir: PathBuf,
    pids: Vec<u32>,
    host: String,
    user: u32,
    next_id: u64,
    sources: HashMap<PathBuf, Source>,
    detail_copied: Option<(RowId, Duration)>,
    clock: Clock,
    /// What the view shows besides counters is read with each refresh.
    pub view: View,
    extra_copied: Option<(View, Duration)>,
    doctor: Option<doctor::Look>,
}

/// Whose time it is.
enum Clock {
    /// Ours, from here on.
    Live(Instant),
    /// A recording's, CLOCK_REALTIME in ns.
    Recorded(u64),
}

/// An open segment.
struct Source {
    id: u64,
    /// Device and inode: a file of the same name may be another.
    file: (u64, u64),
    reader: Reader,
    /// By the sampler's clock.
    copied: Duration,
}

impl Sampler {
    /// Looks at segments in `dir`, those of processes `pids` only unless that is empty.
    pub fn new(dir: &Path, pids: &[u32]) -> Sampler {
        Sampler {
            dir: dir.into(),
            pids: pids.into(),
            host: host(),
            user: rustix::process::geteuid().as_raw(),
            next_id: 1,
            sources: HashMap::new(),
            detail_copied: None,
            clock: Clock::Live(Instant::now()),
            view: View::Ports,
            extra_copied: None,
            doctor: None,
        }
    }

    /// As [`Sampler::new`], for segments of a recording of `host`: it is the time that [`Sampler::at`] says.
    pub fn of_recording(dir: &Path, pids: &[u32], host: &str) -> Sampler {
        Sampler { host: host.into(), clock: Clock::Recorded(0), ..Sampler::new(dir, pids) }
    }

    /// The time of the segments is now this, CLOCK_REALTIME in ns.
    pub fn at(&mut self, time_ns: u64) {
        self.clock = Clock::Recorded(time_ns);
    }

    fn now(&self) -> Duration {
        match self.clock {
            Clock::Live(start) => start.elapsed(),
            Clock::Recorded(ns) => Duration::from_nanos(ns),
        }
    }

    /// Whether what was copied at `at` still does. A recording may stand still, and each of its frames is shown as it was.
    fn is_fresh(&self, at: Duration, every: Duration) -> bool {
        match self.clock {
            Clock::Live(_) => self.now().saturating_sub(at) < every,
            Clock::Recorded(_) => self.now() == at,
        }
    }

    /// What a process is known by. In a recording the same at each look, from wherever one comes to it.
    fn id(&mut self, r: &Reader) -> u64 {
        let h = r.header();
        match self.clock {
            Clock::Live(_) => {
                self.next_id += 1;
                self.next_id - 1
            }
            Clock::Recorded(_) => h.created_ns.load(Relaxed).rotate_left(20) ^ u64::from(h.pid.load(Relaxed)),
        }
    }

    /// The next refresh. `last` is the one before, empty at first; `want` is the row whose details are shown.
    pub fn sample(&mut self, mut last: Frame, want: Option<RowId>) -> Frame {
        let mut frame = Frame {
            realtime_ns: match self.clock {
                Clock::Live(_) => telereduce::clock::realtime_ns(),
                Clock::Recorded(ns) => ns,
            },
            host: self.host.clone(),
            dir: self.dir.clone(),
            doctor: std::mem::take(&mut last.doctor),
            detail: last.detail.take(),
            ..Frame::default()
        };
        let found = match discover::list(&self.dir) {
            Ok(found) => found,
            Err(e) => {
                frame.problem = Some(format!("cannot read {}: {e}", self.dir.display()));
                Vec::new()
            }
        };
        let mut known: HashMap<u64, Process> = last.processes.drain(..).map(|p| (p.id, p)).collect();
        let mut sources = HashMap::with_capacity(self.sources.len());
        for f in &found {
            if !self.pids.is_empty() && !self.pids.contains(&f.pid) {
                continue;
            }
            match self.refresh(f, &mut known, frame.realtime_ns) {
                Ok((source, process)) => {
                    frame.processes.push(process);
                    sources.insert(f.path.clone(), source);
                }
                Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::NotFound => {}
                Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::PermissionDenied && f.uid != self.user => {
                    frame.denied += 1;
                }
                Err(ReadError::Unfinished) if age(&f.path) < CREATION => {}
                Err(e) => frame.broken.push(Broken { path: f.path.clone(), why: e.to_string() }),
            }
        }
        self.sources = sources;
        ranks::fill_frame(&mut frame);
        keep_history(&mut frame);
        self.detail(frame, want)
    }

    /// Copies one segment anew, opening it if need be.
    fn refresh(
        &mut self,
        f: &Found,
        known: &mut HashMap<u64, Process>,
        now_ns: u64,
    ) -> Result<(Source, Process), ReadError> {
        let meta = std::fs::symlink_metadata(&f.path)?;
        let file = (meta.dev(), meta.ino());
        match self.sources.remove(&f.path).filter(|s| s.file == file) {
            Some(mut s) => {
                s.reader.refresh()?;
                let mut p = known.remove(&s.id).unwrap_or_default();
                let now = self.now();
                p.interval_s = now.saturating_sub(s.copied).as_secs_f64();
                s.copied = now;
                update(&mut p, &s.reader, now_ns);
                p.past.note(now, &p.now);
                Ok((s, p))
            }
            None => {
                let opened = discover::open(&f.path)?;
                let meta = opened.metadata()?;
                let reader = Reader::from_file(opened)?;
                let id = self.id(&reader);
                let mut p = Process { id, ..Process::default() };
                let now = self.now();
                update(&mut p, &reader, now_ns);
                p.past.note(now, &p.now);
                Ok((Source { id, file: (meta.dev(), meta.ino()), reader, copied: now }, p))
            }
        }
    }

    /// `frame` with the details of row `want`.
    pub fn detail(&mut self, mut frame: Frame, want: Option<RowId>) -> Frame {
        self.fill_detail(&mut frame, want);
        self.fill_extra(&mut frame);
        frame
    }

    /// Reads what the view shows besides counters. What cannot be read is empty: the next refresh tells why.
    fn fill_extra(&mut self, frame: &mut Frame) {
        let every = if self.view == View::Doctor { DOCTOR_EVERY } else { DETAILS_EVERY };
        if self.extra_copied.is_some_and(|(view, at)| view == self.view && self.is_fresh(at, every)) {
            return;
        }
        self.extra_copied = Some((self.view, self.now()));
        // What a device is hooked by now says nothing of a recording.
        if self.view == View::Doctor && matches!(self.clock, Clock::Live(_)) {
            frame.doctor = self.examine();
            return;
        }
        let mut readers: HashMap<u64, &mut Reader> = self.sources.values_mut().map(|s| (s.id, &mut s.reader)).collect();
        for p in &mut frame.processes {
            let Some(r) = readers.get_mut(&p.id) else { continue };
            p.extra = match self.view {
                View::Latency if r.refresh_details().is_ok() => Extra::latency(r, &p.now),
                View::Errors if !p.troubled.is_empty() && r.refresh_details().is_ok() => Extra::errors(r, &p.now),
                View::Events if r.refresh_events().is_ok() => Extra::events(r),
                _ => Extra::default(),
            };
        }
    }

    fn examine(&mut self) -> Vec<String> {
        let lines = |text: &str| text.lines().map(str::to_string).collect();
        match doctor::look(&self.dir, &self.pids) {
            Ok(now) => {
                let report = doctor::report(self.doctor.as_ref().unwrap_or(&now), &now, &self.pids);
                self.doctor = Some(now);
                lines(&report.text)
            }
            Err(e) => lines(&e.message),
        }
    }

    fn fill_detail(&mut self, frame: &mut Frame, want: Option<RowId>) {
        let Some(row) = want else {
            frame.detail = None;
            self.detail_copied = None;
            return;
        };
        let fresh = self
            .detail_copied
            .is_some_and(|(shown, at)| shown.process == row.process && self.is_fresh(at, DETAILS_EVERY));
        if fresh && frame.detail.as_ref().is_some_and(|d| d.row == row) {
            return;
        }
        let history = frame.detail.take().filter(|d| d.row == row).map(|d| d.history).unwrap_or_default();
        let Some(p) = frame.process(row.process) else { return };
        let Some(s) = self.sources.values_mut().find(|s| s.id == row.process) else { return };
        if !fresh && s.reader.refresh_details().is_err() {
            return;
        }
        let (details, last_error) = details(&s.reader, &p.now, row.object);
        frame.detail = Some(Detail { row, details, last_error, history });
        if !fresh {
            self.detail_copied = Some((row, self.now()));
        }
    }
}

impl feed::Source for Sampler {
    fn frame(&mut self, ask: Ask, last: Frame) -> Frame {
        let want = ask.want();
        self.view = want.view;
        match ask {
            Ask::Look(_) => self.detail(last, want.row),
            Ask::Sample(_) | Ask::Seek(..) => self.sample(last, want.row),
        }
    }
}

/// The past of the row that is looked at goes on; that of a port is kept whoever looks.
fn keep_history(frame: &mut Frame) {
    let Some(mut d) = frame.detail.take() else { return };
    let row = Row::find(frame, d.row).map(|row| match row.item {
        Item::Port(_) => row.process.history.get(row.position).cloned().unwrap_or_default(),
        _ => {
            let mut history = std::mem::take(&mut d.history);
            history.push(row.line().send.wr_outstanding, row.rates().map(|r| r.send_bytes + r.recv_bytes));
            history
        }
    });
    if let Some(history) = row {
        d.history = history;
        frame.detail = Some(d);
    }
}

/// Takes the reader's copy into `p`.
fn update(p: &mut Process, r: &Reader, now_ns: u64) {
    let h = r.header();
    p.alive = r.is_alive();
    p.pid = h.pid.load(Relaxed);
    let rank = h.rank.load(Relaxed);
    p.rank = (rank != u64::MAX).then_some(rank);
    p.host = h.host.get();
    p.command = h.command.get();
    p.latency_every = h.latency_every.load(Relaxed);
    p.missed = h.into();
    std::mem::swap(&mut p.before, &mut p.now);
    p.now.refill(r);
    p.port_names = p.now.ports.iter().map(port_text).collect();
    p.peer_names = p.now.peers.iter().map(PeerView::name).collect();
    p.lane_names = p.now.lanes.iter().map(|l| (gid_text(l.local_gid), gid_text(l.remote_gid))).collect();
    let single = |q: &QpView| q.live && p.now.multipath_of(q.index).is_some_and(|m| m.single.is_some());
    let qps = if p.now.multipath_on { p.now.qps.as_slice() } else { &[] };
    p.single = (0..).zip(qps).filter(|(_, q)| single(q)).map(|(at, _)| at).collect();
    p.history.resize_with(p.now.ports.len(), History::default);
    for i in 0..p.history.len() {
        let rates = p.port_rates(i).map(|r| r.send_bytes + r.recv_bytes);
        p.history[i].push(p.now.ports[i].line.send.wr_outstanding, rates);
    }
    p.take_stock(now_ns);
}

/// Time since the file was last changed; no time if that cannot be known.
fn age(path: &Path) -> Duration {
    let changed = std::fs::symlink_metadata(path).and_then(|m| m.modified());
    changed.ok().and_then(|t| SystemTime::now().duration_since(t).ok()).unwrap_or_default()
}

/// This host's name.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
