//! Which process of this host owns a QP: what the segments of the other processes say.
//!
//! A process writes into its segment at which addresses its side channel listens, and which QPs it has. A QP is found by its
//! number and its GID, in the segments of this user and of this network namespace: elsewhere the same address is another's.
//! (A /dev/shm may be shared by containers that do not share a network.)
//!
//! What was read is kept, in eight bytes per QP, and is looked at again before it is told. What is not there is looked for
//! anew, but no more than one part in [`SHARE`] of the thread's time goes into that, however many ask. A wrong answer costs whoever gets
//! it a connection, never more: the process that is reached knows its own QPs.

use super::api::Directory;
use super::wire::QpAddr;
use crate::clock::realtime_ns;
use crate::shm::discover;
use crate::shm::layout::{AddressRecord, Life, QpRecord};
use crate::shm::model::gid_of;
use crate::shm::reader::{ReadError, Reader};
use core::cell::RefCell;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use rdma_sys::ibv_qp_type;
use std::collections::HashMap;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Processor time that one look at the segments may take; the rest is looked at the next time.
const BUDGET: Duration = Duration::from_millis(20);

/// Between two looks, at least this long,
const PAUSE: Duration = Duration::from_millis(20);

/// and so many times as long as the first of them took.
const SHARE: u32 = 4;

/// A segment that its process has not touched for so long when it was read is not read again until it is touched.
const SETTLED_NS: u64 = 1_000_000_000;

/// QPs that are known, of all processes together.
const MOST_QPS: usize = 1 << 20;

/// The segments of a folder.
pub struct Segments {
    dir: PathBuf,
    /// File of this process's own segment.
    own: PathBuf,
    uid: u32,
    network: u64,
    pace: Pace,
    seen: RefCell<Seen>,
}

/// How much is looked at and kept.
#[derive(Clone, Copy)]
struct Pace {
    budget: Duration,
    pause: Duration,
    share: u32,
    most_qps: usize,
}

/// What was read so far.
#[derive(Default)]
struct Seen {
    segments: HashMap<PathBuf, Known>,
    /// Files that are still to be looked at.
    left: Vec<PathBuf>,
    /// No look before.
    next: Option<Instant>,
}

/// Which life of which file: device and number, and when the process made it.
type Identity = (u64, u64, u64, u64);

/// A segment, as last read.
#[derive(Default)]
struct Known {
    identity: Identity,
    /// Last control call, and number of regions.
    state: (u64, u32),
    settled: bool,
    addresses: Vec<Listens>,
}

/// An address of a process, and the QPs that have it.
struct Listens {
    gid: [u8; 16],
    /// Index of the port's record.
    port: u32,
    own_port: u16,
    /// Numbers, and indices of their records; sorted.
    qps: Vec<(u32, u32)>,
}

/// Number of this thread's network namespace; 0 if it is not known.
pub fn network() -> u64 {
    std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |m| m.ino())
}

impl Segments {
    /// Those in `dir` of this user and of the network namespace `network`, but for `own`.
    pub fn new(dir: &Path, own: &Path, network: u64) -> Segments {
        // SAFETY: geteuid has no preconditions.
        let uid = unsafe { libc::geteuid() };
        let (dir, own) = (dir.into(), own.into());
        let pace = Pace { budget: BUDGET, pause: PAUSE, share: SHARE, most_qps: MOST_QPS };
        Segments { dir, own, uid, network, pace, seen: RefCell::default() }
    }

    /// The port of a QP that is known; each segment that is said to have it is asked once more.
    fn known(&self, seen: &mut Seen, qp: &QpAddr) -> Option<u16> {
        seen.segments.iter_mut().find_map(|(path, known)| {
            let (at, listens) = known.addresses.iter_mut().find_map(|l| Some((l.place_of(qp)?, l)))?;
            let (own_port, index) = (listens.own_port, listens.qps[at].1);
            match self.confirm(path, &known.identity, (listens.port, qp.qpn, index)) {
                Some(true) => return Some(own_port),
                // The number may be another process's by now.
                Some(false) => _ = listens.qps.remove(at),
                // Its process is gone; or it cannot be read just now, and will be read anew.
                None => (known.addresses, known.settled) = (Vec::new(), false),
            }
            None
        })
    }

    /// Whether a segment still has a QP, and its process lives (`None`: it does not).
    fn confirm(&self, path: &Path, identity: &Identity, (port, qpn, index): (u32, u32, u32)) -> Option<bool> {
        let mut look = Look::open(path).ok()?;
        look.reader.refresh_header().ok()?;
        if look.identity() != *identity || !look.is_alive() {
            return None;
        }
        let (index, mut found) = (index as usize, false);
        let shown = look.reader.show_qps(index..index + 1, |_, q| found = number_of(q) == Some((port, qpn)));
        shown.ok().map(|()| found)
    }

    /// Looks at the segments until the budget is used up.
    fn look(&self, seen: &mut Seen) {
        let start = processor_time();
        if seen.left.is_empty() {
            let listed = discover::list(&self.dir).unwrap_or_default();
            let others = listed.into_iter().filter(|f| f.uid == self.uid && f.path != self.own);
            let mut before = core::mem::take(&mut seen.segments);
            for path in others.map(|f| f.path) {
                seen.segments.extend(before.remove(&path).map(|known| (path.clone(), known)));
                seen.left.push(path);
            }
        }
        let mut qps: usize = seen.segments.values().map(Known::qps).sum();
        let mut took = Duration::ZERO;
        while took <= self.pace.budget
            && let Some(path) = seen.left.pop()
        {
            let before = seen.segments.remove(&path);
            qps -= before.as_ref().map_or(0, Known::qps);
            // What cannot be read now may be whole the next time.
            if let Ok(known) = self.read(&path, before, self.pace.most_qps.saturating_sub(qps)) {
                qps += known.qps();
                seen.segments.insert(path, known);
            }
            took = processor_time().saturating_sub(start);
        }
        seen.next = Instant::now().checked_add(self.pace.pause.max(took * self.pace.share));
    }

    /// Reads a segment, if it was touched since; at most so many QPs.
    fn read(&self, path: &Path, before: Option<Known>, room: usize) -> Result<Known, ReadError> {
        let mut look = Look::open(path)?;
        let now_ns = realtime_ns();
        look.reader.refresh_header()?;
        let header = look.reader.header();
        let heartbeat_ns = header.heartbeat_ns.load(Relaxed);
        let state = (heartbeat_ns, header.region_count.load(Relaxed));
        let identity = look.identity();
        if let Some(before) = before
            && before.settled
            && (before.identity, before.state) == (identity, state)
        {
            return Ok(before);
        }
        // A control call is noted before it changes anything, and what makes a QP be found is followed by another call.
        let settled = now_ns.saturating_sub(heartbeat_ns) > SETTLED_NS;
        let mut known = Known { identity, state, settled, addresses: Vec::new() };
        let foreign = header.network.load(Relaxed) != self.network || header.uid.load(Relaxed) != self.uid;
        if foreign {
            return Ok(known);
        }
        look.reader.refresh_addresses()?;
        known.addresses = look.reader.addresses.iter().filter_map(Listens::at).collect();
        if !known.addresses.is_empty() {
            let mut left = room;
            look.reader.show_qps(0..room, |index, q| {
                let Some((port, qpn)) = number_of(q) else { return };
                for l in known.addresses.iter_mut().filter(|l| l.port == port) {
                    if left > 0 {
                        left -= 1;
                        l.qps.push((qpn, index as u32));
                    }
                }
            })?;
        }
        for l in &mut known.addresses {
            l.qps.sort_unstable();
            l.qps.shrink_to_fit();
        }
        Ok(known)
    }
}

impl Directory for Segments {
    fn port_of(&self, qp: &QpAddr) -> Option<u16> {
        if self.network == 0 {
            return None;
        }
        let seen = &mut *self.seen.borrow_mut();
        self.known(seen, qp).or_else(|| {
            if seen.next.is_some_and(|at| Instant::now() < at) {
                return None;
            }
            self.look(seen);
            self.known(seen, qp)
        })
    }
}

impl Known {
    fn qps(&self) -> usize {
        self.addresses.iter().map(|l| l.qps.len()).sum()
    }
}

impl Listens {
    fn at(record: &AddressRecord) -> Option<Listens> {
        let own_port = u16::try_from(record.own_port.load(Relaxed)).ok().filter(|port| *port != 0);
        let used = record.used.load(Acquire) == 1;
        let listens =
            |own_port| Listens { gid: gid_of(&record.gid), port: record.port.load(Relaxed), own_port, qps: Vec::new() };
        own_port.filter(|_| used).map(listens)
    }

    /// Where among its QPs this one stands.
    fn place_of(&self, qp: &QpAddr) -> Option<usize> {
        (self.gid == qp.gid)
            .then(|| self.qps.partition_point(|q| q.0 < qp.qpn))
            .filter(|i| self.qps.get(*i).is_some_and(|q| q.0 == qp.qpn))
    }
}

/// Port record and number of an RC QP that exists; not while its record changes.
fn number_of(q: &QpRecord) -> Option<(u32, u32)> {
    let whole = q.seq.load(Relaxed).is_multiple_of(2) && q.life.load(Relaxed) == Life::Live as u32;
    let rc = q.qp_type.load(Relaxed) == ibv_qp_type::IBV_QPT_RC;
    (whole && rc).then(|| (q.port.load(Relaxed), q.qp_num.load(Relaxed)))
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec.unsigned_abs() as u32)
}

/// An open segment. The program may close what it did not open, and make something else of the number: it is closed only if
/// it still is the file.
struct Look {
    reader: ManuallyDrop<Reader>,
    file: Option<(u64, u64)>,
}

impl Look {
    fn open(path: &Path) -> Result<Look, ReadError> {
        let file = discover::open(path)?;
        let mut look = Look { reader: ManuallyDrop::new(Reader::unread(file)), file: None };
        look.file = look.numbers();
        Ok(look)
    }

    /// Device and number of what the descriptor stands for.
    fn numbers(&self) -> Option<(u64, u64)> {
        self.reader.file().metadata().ok().map(|m| (m.dev(), m.ino()))
    }

    fn is_still_it(&self) -> bool {
        self.file.is_some() && self.numbers() == self.file
    }

    /// Whether its process lives.
    fn is_alive(&self) -> bool {
        self.is_still_it() && self.reader.is_alive()
    }

    /// Of the header as last copied.
    fn identity(&self) -> Identity {
        let (header, (device, inode)) = (self.reader.header(), self.file.unwrap_or_default());
        (device, inode, header.created_ns.load(Relaxed), header.start_time_ticks.load(Relaxed))
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        let is_still_it = self.is_still_it();
        // SAFETY: taken once, here.
        let reader = unsafe { ManuallyDrop::take(&mut self.reader) };
        if is_still_it {
            drop(reader);
        } else {
            let _ = reader.into_file().into_raw_fd();
        }
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
