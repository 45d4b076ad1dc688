//! A trace in the JSON format that ui.perfetto.dev opens: counters per port, peer, path and QP, and what happened when.
//!
//! Times are us since the first frame. A rate stands where its interval begins, so that a change is at most a frame from
//! where it was. Counters that stay as they are are not written again.

use super::{Out, Target};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use telereduce::shm::model::Counters;
use telereduce::shm::snapshot::{EventJson, QpJson, SegmentJson, Snapshot};

/// A trace that is written.
pub struct Trace {
    to: Out,
    start_ns: u64,
    begun: bool,
    /// Time of the frame before.
    last_ns: Option<u64>,
    /// By process number: it lived.
    processes: HashMap<u32, bool>,
    /// Processes with the numbers of QPs that have a name.
    threads: HashSet<(u32, u32)>,
    /// Bytes and counters of each track as the frame before had them.
    bytes: HashMap<(u32, String), u64>,
    failed: HashMap<(u32, u32, u64), u64>,
    written: HashMap<(u32, String), Value>,
    /// Tracks of this frame.
    seen: HashSet<(u32, String)>,
    transfers: u64,
}

impl Trace {
    /// Of a recording that starts then.
    pub fn new(to: Out, start_ns: u64) -> Trace {
        Trace {
            to,
            start_ns,
            begun: false,
            last_ns: None,
            processes: HashMap::new(),
            threads: HashSet::new(),
            bytes: HashMap::new(),
            failed: HashMap::new(),
            written: HashMap::new(),
            seen: HashSet::new(),
            transfers: 0,
        }
    }

    fn begin(&mut self) -> io::Result<()> {
        if self.begun {
            return Ok(());
        }
        self.begun = true;
        let start = json!({"recording_start_ns": self.start_ns.to_string(), "made_by": concat!("trtop ", env!("CARGO_PKG_VERSION"))});
        // Each event after it is led by a comma.
        let first = json!({"ph": "M", "name": "trace", "pid": 0, "args": {}});
        write!(self.to, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{start},\"traceEvents\":[{first}")
    }

    fn event(&mut self, phase: &str, pid: u32, ns: u64, name: &str, more: Value) -> io::Result<()> {
        let since = ns.saturating_sub(self.start_ns);
        let name = Value::from(name);
        write!(
            self.to,
            ",\n{{\"ph\":\"{phase}\",\"pid\":{pid},\"ts\":{}.{:03},\"name\":{name}",
            since / 1000,
            since % 1000
        )?;
        for (k, v) in more.as_object().into_iter().flatten() {
            write!(self.to, ",{}:{v}", Value::from(k.as_str()))?;
        }
        write!(self.to, "}}")
    }

    fn counter(&mut self, pid: u32, ns: u64, track: &str, unit: &str, value: Value) -> io::Result<()> {
        let key = (pid, track.to_string());
        self.seen.insert(key.clone());
        if self.written.get(&key) == Some(&value) {
            return Ok(());
        }
        self.event("C", pid, ns, track, json!({"args": {unit: value}}))?;
        self.written.insert(key, value);
        Ok(())
    }

    /// Bandwidth since the frame before, if there was one; and WRs outstanding.
    fn direction(&mut self, pid: u32, ns: u64, what: &str, c: &Counters, word: &str) -> io::Result<()> {
        let track = format!("{what} {word}");
        self.seen.insert((pid, track.clone()));
        let before = self.bytes.insert((pid, track.clone()), c.bytes_completed);
        if let (Some(last), Some(before)) = (self.last_ns.filter(|l| *l < ns), before) {
            // Bytes * 8 / ns is Gb/s.
            let rate = c.bytes_completed.saturating_sub(before) as f64 * 8.0 / (ns - last) as f64;
            self.counter(pid, last, &track, "Gb/s", json!(rate))?;
        }
        if word == "send" {
            self.counter(pid, ns, &format!("{what} outstanding"), "WRs", c.wr_outstanding.into())?;
        }
        Ok(())
    }

    fn segment(&mut self, g: &SegmentJson, ns: u64) -> io::Result<()> {
        let before = self.processes.insert(g.pid, g.alive);
        if before.is_none() {
            let rank = g.rank.map_or(String::new(), |r| format!("rank {r} "));
            let name = format!("{rank}{} on {}", g.command, g.host);
            self.event("M", g.pid, ns, "process_name", json!({"args": {"name": name}}))?;
        }
        if before == Some(true) && !g.alive {
            self.event("i", g.pid, ns, "the process ended", json!({"s": "p"}))?;
        }
        for p in &g.ports {
            let what = format!("{}:{}", p.device, p.port);
            self.direction(g.pid, ns, &what, &p.line.send, "send")?;
            self.direction(g.pid, ns, &what, &p.line.recv, "recv")?;
        }
        for p in &g.peers {
            let name = p.ip.clone().or_else(|| p.gid.clone()).unwrap_or_else(|| format!("lid {}", p.lid));
            let what = format!("{}:{} -> {name}", p.device, p.port);
            self.direction(g.pid, ns, &what, &p.line.send, "send")?;
            self.direction(g.pid, ns, &what, &p.line.recv, "recv")?;
        }
        for l in &g.lanes {
            let what = format!("path {} {} -> {} QP {}", l.path, l.local, l.peer, l.qp_num);
            self.direction(g.pid, ns, &what, &l.chunks, "send")?;
        }
        for q in &g.qps {
            let what = format!("QP {}", q.qp_num);
            self.direction(g.pid, ns, &what, &q.line.send, "send")?;
            self.direction(g.pid, ns, &what, &q.line.recv, "recv")?;
            self.failures(g.pid, ns, q)?;
        }
        g.events.iter().try_for_each(|e| self.transfer(g.pid, e))
    }

    fn thread(&mut self, pid: u32, ns: u64, qp_num: u32) -> io::Result<()> {
        if self.threads.insert((pid, qp_num)) {
            let name = format!("QP {qp_num}");
            self.event("M", pid, ns, "thread_name", json!({"tid": qp_num, "args": {"name": name}}))?;
        }
        Ok(())
    }

    /// An instant where completions in error came since the frame before.
    fn failures(&mut self, pid: u32, ns: u64, q: &QpJson) -> io::Result<()> {
        let failed = q.line.send.wr_failed.saturating_add(q.line.recv.wr_failed);
        let before = self.failed.insert((pid, q.qp_num, q.created_ns), failed).unwrap_or(0);
        if failed <= before {
            return Ok(());
        }
        let (status, at) = q.last_error.as_ref().map_or(("failed", ns), |e| (e.status.as_str(), e.time_ns));
        // The error itself is as old as the last look at details.
        let at = if self.last_ns.is_some_and(|last| at > last && at <= ns) { at } else { ns };
        self.thread(pid, ns, q.qp_num)?;
        let name = format!("{} WR {status}", failed - before);
        self.event(
            "i",
            pid,
            at,
            &name,
            json!({"tid": q.qp_num, "s": "p", "args": {"peer": q.peer, "qp_num": q.qp_num}}),
        )
    }

    /// A transfer from its post to its poll, where that was timed; else the moment of its poll.
    fn transfer(&mut self, pid: u32, e: &EventJson) -> io::Result<()> {
        if e.end_ns < self.start_ns {
            return Ok(());
        }
        self.thread(pid, e.end_ns, e.qp_num)?;
        let name = if e.status == "SUCCESS" { "transfer" } else { e.status.as_str() };
        let args = json!({"bytes": e.bytes, "status": e.status, "peer": e.peer, "wr_outstanding": e.wr_outstanding});
        let tid = e.qp_num;
        let Some(latency) = e.latency_ns else {
            return self.event("i", pid, e.end_ns, name, json!({"tid": tid, "s": "t", "args": args}));
        };
        self.transfers += 1;
        // They overlap: a pair of events with an id does not mind.
        let id = self.transfers;
        let start = e.end_ns.saturating_sub(latency);
        self.event("b", pid, start, name, json!({"tid": tid, "cat": "transfer", "id": id, "args": args}))?;
        self.event("e", pid, e.end_ns, name, json!({"tid": tid, "cat": "transfer", "id": id}))
    }
}

impl Target for Trace {
    fn frame(&mut self, s: &Snapshot) -> io::Result<()> {
        self.begin()?;
        self.seen.clear();
        s.segments.iter().try_for_each(|g| self.segment(g, s.time_ns))?;
        // Of what is gone nothing goes on.
        let seen = std::mem::take(&mut self.seen);
        let goes_on = |v: &Value| v.as_f64() != Some(0.0);
        let gone = self.written.iter().filter(|(k, v)| !seen.contains(*k) && goes_on(v)).map(|(k, _)| k.clone());
        for (pid, track) in gone.collect::<Vec<_>>() {
            let unit = if track.ends_with(" outstanding") { "WRs" } else { "Gb/s" };
            self.counter(pid, s.time_ns, &track, unit, 0.into())?;
        }
        self.last_ns = Some(s.time_ns);
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        self.begin()?;
        writeln!(self.to, "]}}")?;
        self.to.flush()
    }
}
