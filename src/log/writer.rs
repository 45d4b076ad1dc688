//! The log's work: events become lines, lines go to the file.

use super::feed::Queues;
use super::file::{LogFile, Written};
use super::line::{Format, Transfer};
use crate::attribution::TABLES;
use crate::flows::table::{Done, FlowId, Flows, Outstanding};
use crate::shm::layout::NONE;
use crate::telemetry::event::Event;
use rustc_hash::FxHashMap as HashMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is destroyed is forgotten within this time.
const TIDY: Duration = Duration::from_secs(1);
/// Lines are handed to the file when they have this many bytes.
const PART: usize = 256 << 10;

/// Says how much is outstanding on a QP; `None`: it is gone.
pub type Left<'a> = &'a mut dyn FnMut(FlowId) -> Option<Outstanding>;

/// What the indices of an event stand for.
pub trait Names {
    /// Names and addresses.
    fn of(&self, id: FlowId) -> FlowNames;
    /// Calls `look` with what knows that now.
    fn outstanding(&self, look: &mut dyn FnMut(Left<'_>));
    /// So many transfers are not in the log.
    fn dropped(&self, transfers: u64);
}

/// Names and addresses of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowNames {
    /// Device.
    pub device: String,
    /// Its index among those of the process.
    pub device_index: u32,
    /// Its port.
    pub port: u32,
    /// Own address.
    pub source: Option<IpAddr>,
    /// The peer's.
    pub destination: Option<IpAddr>,
    /// Own rank.
    pub rank: Option<u64>,
    /// The QP sends datagrams: its peers are those of its WRs.
    pub is_datagram: bool,
}

/// What writes the log.
pub struct Writer {
    queues: Arc<Queues>,
    flows: Flows,
    names: HashMap<FlowId, FlowNames>,
    file: LogFile,
    format: Format,
    events: Vec<Event>,
    text: String,
    tidied: Instant,
}

/// What a turn did.
#[derive(Debug, Default)]
pub struct Turn {
    /// Transfers that came.
    pub transfers: usize,
    /// There are more.
    pub more: bool,
    /// What could not be written to, and why; told once.
    pub problem: Option<(io::Error, PathBuf)>,
}

impl Writer {
    /// A writer of what comes through `queues`; windows of `window` transfers.
    pub fn new(queues: Arc<Queues>, file: LogFile, format: Format, window: usize, now: Instant) -> Writer {
        Writer {
            queues,
            flows: Flows::new(window),
            names: HashMap::default(),
            file,
            format,
            events: Vec::new(),
            text: String::new(),
            tidied: now,
        }
    }

    /// Writes what has come.
    pub fn turn(&mut self, names: &impl Names, now: Instant) -> Turn {
        let mut turn = Turn::default();
        let mut events = core::mem::take(&mut self.events);
        turn.more = self.queues.take(&mut events);
        turn.transfers = events.len();
        let mut lines = 0;
        for e in events.drain(..) {
            self.line(names, &e);
            lines += 1;
            if self.text.len() >= PART {
                self.write(core::mem::take(&mut lines), now, &mut turn);
            }
        }
        self.write(lines, now, &mut turn);
        self.events = events;
        if now.saturating_duration_since(self.tidied) >= TIDY {
            self.tidied = now;
            let (flows, known) = (&mut self.flows, &mut self.names);
            names.outstanding(&mut |now| {
                flows.refresh(&mut *now);
                known.retain(|id, _| now(*id).is_some());
            });
        }
        names.dropped(self.queues.dropped());
        turn
    }

    fn line(&mut self, names: &impl Names, e: &Event) {
        let port = (e.place >> 16) as u16;
        let id = FlowId {
            port: if port == u16::MAX { NONE } else { u32::from(port) },
            peer: (e.place >> 32) as u32,
            qp: (e.qp >> 32) as u32,
            qp_num: e.qp as u32,
        };
        let status = (e.place >> 8) as u8;
        // Of a failure: the bytes of good WRs before it.
        let outstanding = Outstanding { wr: e.wr_outstanding, bytes: e.bytes_outstanding };
        let flow = self.names.entry(id).or_insert_with(|| names.of(id));
        let done = Done { end_ns: e.end_ns, bytes: e.bytes, outstanding, is_datagram: flow.is_datagram };
        let standing = self.flows.push(id, done);
        // Both ranks are the communicator's, or both the job's.
        let of = TABLES.find(e.label);
        let rank = of.and_then(|a| a.rank);
        let transfer = Transfer {
            end_ns: e.end_ns,
            device: &flow.device,
            port: flow.port,
            qp_num: id.qp_num,
            source: flow.source,
            destination: flow.destination,
            bytes: e.bytes,
            latency_ns: (e.latency_ns > 0 && status == 0).then_some(e.latency_ns),
            status,
            peer_bits_per_s: standing.peer.bits_per_s(),
            qp_bits_per_s: standing.qp.bits_per_s(),
            wr_outstanding: standing.port.wr,
            bytes_outstanding: standing.port.bytes,
            rank: rank.map_or(flow.rank, |r| Some(u64::from(r))),
            peer_rank: of.and_then(|a| a.peer_rank).map(u64::from),
            group: of.and_then(|a| a.group),
            channel: of.map(|a| a.channel),
            func: of.and_then(|a| a.func).map(u32::from),
            func_times: of.and_then(|a| a.times),
            peer_bandwidth: standing.peer,
            device_index: flow.device_index,
        };
        transfer.write(self.format, &mut self.text);
    }

    fn write(&mut self, lines: u64, now: Instant, turn: &mut Turn) {
        if lines == 0 {
            return;
        }
        match self.file.append(self.text.as_bytes(), now) {
            Written::All => {}
            Written::Failed(e, path) => {
                self.queues.drop_more(lines);
                turn.problem = Some((e, path));
            }
            Written::Still => self.queues.drop_more(lines),
        }
        self.text.clear();
        self.text.shrink_to(2 * PART);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::Label;
    use core::cell::{Cell, RefCell};

    #[derive(Default)]
    struct Fixed {
        gone: RefCell<Vec<u32>>,
        dropped: Cell<u64>,
        asked: Cell<u32>,
    }

    impl Names for Fixed {
        fn of(&self, id: FlowId) -> FlowNames {
            self.asked.set(self.asked.get() + 1);
            FlowNames {
                device: format!("dev{}", id.port),
                device_index: id.port,
                port: 1,
                source: None,
                destination: None,
                rank: Some(7),
                is_datagram: false,
            }
        }
        fn outstanding(&self, look: &mut dyn FnMut(Left<'_>)) {
            look(&mut |id| (!self.gone.borrow().contains(&id.qp_num)).then_some(Outstanding { wr: 4, bytes: 400 }));
        }
        fn dropped(&self, transfers: u64) {
            self.dropped.set(transfers);
        }
    }

    /// A transfer of 1000 bytes on a QP of port 2 that leaves `wr` outstanding.
    fn event(end_ns: u64, qp_num: u64, wr: u64, status: u64) -> Event {
        Event {
            end_ns,
            bytes: 1000,
            wr_outstanding: wr,
            bytes_outstanding: wr * 1000,
            latency_ns: 0,
            qp: qp_num << 32 | qp_num,
            place: 3 << 32 | 2 << 16 | status << 8,
            label: Label::NONE,
        }
    }

    fn lines(dir: &std::path::Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(dir.join("a.jsonl")).unwrap_or_default();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    /// A writer into `dir`, what it asks, and what takes events to it.
    fn writer(dir: &std::path::Path, start: Instant) -> (Writer, Fixed, impl Fn(Event)) {
        let queues = Arc::<Queues>::default();
        let file = LogFile::new(&dir.join("a"), "jsonl", String::new(), 1 << 30);
        let feed = queues.feed();
        // SAFETY: one thread.
        let put = move |e| unsafe { feed.put(e) };
        (Writer::new(queues, file, Format::Json, 50, start), Fixed::default(), put)
    }

    #[test]
    fn a_line_per_transfer_with_the_ports_sums() {
        let (dir, start) = (tempfile::tempdir().unwrap(), Instant::now());
        let (mut w, names, put) = writer(dir.path(), start);
        put(event(1000, 5, 2, 0));
        put(event(2000, 6, 1, 0));
        put(event(3000, 5, 1, 12));
        assert_eq!(w.turn(&names, start).transfers, 3);
        let all = lines(dir.path());
        let of = |field: &str| all.iter().map(|l| l[field].as_u64().unwrap()).collect::<Vec<_>>();
        assert_eq!((of("wr_outstanding"), of("bytes_outstanding")), (vec![2, 3, 2], vec![2000, 3000, 2000]));
        // 8000 bits in 1000 ns are 8 Gb/s. Of what failed, the bytes of good WRs before it are told.
        let peer = vec![0, 8_000_000_000, 8_000_000_000];
        assert_eq!((of("peer_bits_per_s"), of("qp_bits_per_s")), (peer, vec![0, 0, 4_000_000_000]));
        assert_eq!((of("status"), of("rank"), of("bytes")), (vec![0, 0, 12], vec![7; 3], vec![1000; 3]));
        assert_eq!((all[0]["device"].as_str(), names.asked.get(), names.dropped.get()), (Some("dev2"), 2, 0));
    }

    #[test]
    fn what_is_outstanding_is_looked_up_each_second() {
        let (dir, start) = (tempfile::tempdir().unwrap(), Instant::now());
        let (mut w, names, put) = writer(dir.path(), start);
        put(event(1000, 5, 9, 0));
        put(event(1000, 7, 9, 0));
        w.turn(&names, start);
        names.gone.borrow_mut().push(5);
        w.turn(&names, start + TIDY);
        put(event(2000, 6, 1, 0));
        w.turn(&names, start + TIDY);
        // QP 7's are 4 by now, which no transfer told.
        assert_eq!(lines(dir.path())[2]["wr_outstanding"], 5);
        assert_eq!((w.names.len(), w.flows.qp(FlowId { port: 2, peer: 3, qp: 5, qp_num: 5 }).bytes), (2, 0));
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        let start = Instant::now();
        let (mut w, names, put) = writer(std::path::Path::new("/nonexistent"), start);
        put(event(1000, 5, 9, 0));
        put(event(1001, 5, 9, 0));
        assert!(w.turn(&names, start).problem.is_some());
        put(event(1002, 5, 9, 0));
        assert!(w.turn(&names, start).problem.is_none());
        assert_eq!(names.dropped.get(), 3);
    }
}
