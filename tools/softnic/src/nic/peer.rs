//! A process of the network, as seen from this one. The own process is one, too.

use super::events::{Appender, Event};
use crate::shared::layout::{Header, MAGIC, PAGE, Qp};
use crate::shared::mapping::Mapping;
use crate::shared::registry::Registry;
use crate::shared::{alive, layout};
use core::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes that a segment may have.
pub const SEGMENT: usize = 1 << 34;

/// A process.
pub struct Peer {
    /// Its place in the registry.
    pub place: usize,
    /// Which owner of that place it is.
    pub turn: u64,
    /// Its pid; `None`: it is this process.
    pub pid: Option<u32>,
    /// Its segment.
    pub mapping: Mapping,
    /// It was seen to be gone.
    pub gone: AtomicBool,
    /// Whether its memory cannot be reached directly.
    pub denied: AtomicBool,
    /// Readable when it ends.
    pub watch: Option<OwnedFd>,
    appenders: Mutex<HashMap<u32, Arc<Appender>>>,
}

impl Peer {
    /// A process by its segment.
    pub fn new(place: usize, turn: u64, pid: Option<u32>, mapping: Mapping, watch: Option<OwnedFd>) -> Peer {
        Peer {
            place,
            turn,
            pid,
            mapping,
            gone: AtomicBool::new(false),
            denied: AtomicBool::new(false),
            watch,
            appenders: Mutex::default(),
        }
    }

    /// The process that has a place now.
    pub fn open(registry: &Registry, place: usize) -> io::Result<Peer> {
        let (pid, turn) = registry.owner(place).ok_or(io::ErrorKind::NotFound)?;
        let watch = alive::watch(pid);
        let file = std::fs::OpenOptions::new().read(true).write(true).open(registry.file(place, turn, "memory"))?;
        let mapping = Mapping::new(file, SEGMENT)?;
        let header: &Header = mapping.at(0).ok_or(io::ErrorKind::InvalidData)?;
        if header.magic.load(Acquire) != MAGIC || header.pid.load(Relaxed) != pid {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if watch.is_none() && alive::start_time(pid) == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Peer::new(place, turn, Some(pid), mapping, watch))
    }

    /// Whether it is gone.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        self.mapping.at(0).expect("a segment has a header")
    }

    /// Its QP of this number.
    pub fn qp(&self, number: u32) -> Option<&Qp> {
        self.qp_at(number).map(|(_, qp)| qp)
    }

    /// The same, and where it is.
    pub fn qp_at(&self, number: u32) -> Option<(u64, &Qp)> {
        let index = number as usize % layout::QPS;
        let page = self.header().qps[index / PAGE].load(Acquire);
        let offsets: &[core::sync::atomic::AtomicU64] = self.mapping.array(page, PAGE).filter(|_| page != 0)?;
        let offset = offsets[index % PAGE].load(Acquire);
        let qp: &Qp = self.mapping.at(offset).filter(|_| offset != 0)?;
        (qp.number.load(Acquire) == number).then_some((offset, qp))
    }

    /// Appends to one of its queues of events.
    pub fn notify(&self, registry: &Registry, queue: u32, event: Event) {
        let appender = {
            let mut known = self.appenders.lock();
            match known.get(&queue) {
                Some(a) => a.clone(),
                None => {
                    let path = registry.file(self.place, self.turn, &format!("events{queue}"));
                    // Its owner may just be removing it.
                    let Ok(a) = Appender::open(&path) else { return };
                    let a = Arc::new(a);
                    known.insert(queue, a.clone());
                    a
                }
            }
        };
        appender.append(event);
    }
}
