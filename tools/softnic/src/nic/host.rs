//! This process in the network: its segment, its QPs, the processes that it knows.

use super::clock::now;
use super::engine::Engine;
use super::events::{ATTENTION, Event, Queue};
use super::keys::Keys;
use super::peer::{Peer, SEGMENT};
use super::qp::Qp;
use crate::config::Config;
use crate::net::gid::Gid;
use crate::net::path::Path;
use crate::shared::arena::Arena;
use crate::shared::layout::{self, Header, MAGIC, PAGE, Port};
use crate::shared::lock::Locked;
use crate::shared::mapping::Mapping;
use crate::shared::registry::Registry;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Once};

/// All that a process has.
pub struct Host {
    /// The settings.
    pub config: Config,
    /// The network's processes.
    pub registry: Registry,
    /// The own segment.
    pub me: Arc<Peer>,
    /// Memory in it.
    pub arena: Arena,
    /// Its memory keys.
    pub keys: Keys,
    /// When the process began to use softnic.
    pub began: u64,
    /// What is due later.
    pub engine: Engine,
    /// Where peers ask for attention.
    pub attention: Queue,
    /// Names of objects that events may be about.
    pub live: Mutex<HashSet<u64>>,
    /// Offsets of the ports, device by device.
    pub ports: Vec<Vec<u64>>,
    /// Contexts: device, and queue of events.
    pub contexts: Mutex<Vec<(usize, u32)>>,
    /// This process is a child of the one that it belongs to.
    inherited: AtomicBool,
    qps: RwLock<Numbers>,
    peers: Mutex<HashMap<usize, Arc<Peer>>>,
    paths: Mutex<HashMap<(Gid, Gid), Arc<Path>>>,
    next_queue: AtomicU32,
    next_domain: AtomicU32,
}

#[derive(Default)]
struct Numbers {
    qps: Vec<Option<Arc<Qp>>>,
    /// Used before, the longest ago first.
    free: VecDeque<u32>,
}

/// The process's membership; null before the first call, and in a forked child.
static HOST: AtomicPtr<Host> = AtomicPtr::new(core::ptr::null_mut());
/// Taken by whoever makes it. Why there is none is kept, so that it is said once.
static MAKING: Mutex<bool> = Mutex::new(false);

fn current() -> Option<&'static Host> {
    // SAFETY: null, or leaked.
    unsafe { HOST.load(Acquire).as_ref() }
}

/// In a child: what the parent has is not its own, and it may begin anew.
extern "C" fn forked() {
    if let Some(host) = current() {
        host.inherited.store(true, Relaxed);
        HOST.store(core::ptr::null_mut(), Release);
    }
}

extern "C" fn exiting() {
    if let Some(host) = current() {
        host.registry.leave();
    }
}

/// The process's membership. Why there is none is said once.
pub fn get() -> Option<&'static Host> {
    static HANDLERS: Once = Once::new();
    if let Some(host) = current() {
        return Some(host);
    }
    let mut failed = MAKING.lock();
    if *failed || current().is_some() {
        return current();
    }
    match Config::from_environment().and_then(|c| Host::new(c).map_err(|e| e.to_string())) {
        Ok(host) => {
            // SAFETY: handlers of the right kind, without demands.
            HANDLERS.call_once(|| unsafe {
                libc::pthread_atfork(None, None, Some(forked));
                libc::atexit(exiting);
            });
            HOST.store(Box::into_raw(Box::new(host)), Release);
        }
        Err(e) => {
            crate::say(format_args!("no devices: {e}"));
            *failed = true;
        }
    }
    current()
}

fn attention_queue(registry: &Registry) -> io::Result<Queue> {
    Queue::new(1, registry.file(registry.place, registry.turn, "events1"))
}

impl Host {
    fn new(config: Config) -> io::Result<Host> {
        let registry = Registry::join(&config.network)?;
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(registry.file(registry.place, registry.turn, "memory"))?;
        let mapping = Mapping::new(file, SEGMENT)?;
        let start = (size_of::<Header>() as u64).next_multiple_of(1 << 20);
        mapping.allocate(0, start)?;
        let arena = Arena::new(start);
        let header: &Header = mapping.at(0).expect("it was just allocated");
        header.pid.store(std::process::id(), Relaxed);
        // SAFETY: nobody knows of it yet.
        unsafe {
            Locked::init((&raw const header.atomics).cast_mut(), ());
            Locked::init((&raw const header.bounce.turn).cast_mut(), ());
        }
        let mut ports = vec![];
        for d in &config.devices {
            let mut offsets = vec![];
            for p in &d.ports {
                let offset = arena.take(&mapping, size_of::<Port>())?;
                let port: &Port = mapping.at(offset).expect("it was just taken");
                for (place, gid) in port.gid.iter().zip(&p.gids) {
                    place.iter().zip(gid.halves()).for_each(|(half, value)| half.store(value, Relaxed));
                }
                port.gids.store(p.gids.len() as u32, Relaxed);
                port.up.store(1, Relaxed);
                offsets.push(offset);
            }
            ports.push(offsets);
        }
        header.magic.store(MAGIC, Release);
        let attention = attention_queue(&registry)?;
        let me = Arc::new(Peer::new(registry.place, registry.turn, None, mapping, None));
        Ok(Host {
            me,
            arena,
            keys: Keys::default(),
            began: now(),
            engine: Engine::new()?,
            attention,
            live: Mutex::default(),
            ports,
            contexts: Mutex::default(),
            inherited: AtomicBool::new(false),
            qps: RwLock::default(),
            peers: Mutex::default(),
            paths: Mutex::default(),
            next_queue: AtomicU32::new(2),
            next_domain: AtomicU32::new(1),
            registry,
            config,
        })
    }

    /// Whether this process only inherited it: nothing may be done with it.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.inherited.load(Relaxed)
    }

    /// A new queue of events.
    pub fn queue(&self) -> io::Result<Queue> {
        let id = self.next_queue.fetch_add(1, Relaxed);
        Queue::new(id, self.registry.file(self.registry.place, self.registry.turn, &format!("events{id}")))
    }

    /// Tells one of the own queues.
    pub fn notify(&self, queue: u32, kind: u32, name: u64) {
        self.me.notify(&self.registry, queue, Event { kind, name });
    }

    /// A new protection domain.
    pub fn domain(&self) -> u32 {
        self.next_domain.fetch_add(1, Relaxed)
    }

    /// Gives a QP its number, and makes it known.
    pub fn add_qp(&self, limit: usize, make: impl FnOnce(u32) -> io::Result<Arc<Qp>>) -> io::Result<Arc<Qp>> {
        let mut numbers = self.qps.write();
        let fresh = numbers.qps.len();
        let index = match numbers.free.front() {
            Some(i) if numbers.free.len() > 1024 || fresh >= limit.min(layout::QPS) => *i,
            _ if fresh < limit.min(layout::QPS) => fresh as u32,
            _ => return Err(io::ErrorKind::OutOfMemory.into()),
        };
        let page = &self.me.header().qps[index as usize / PAGE];
        if page.load(Relaxed) == 0 {
            page.store(self.arena.take(&self.me.mapping, PAGE * 8)?, Release);
        }
        let qp = make((self.registry.place as u32) << 16 | index)?;
        if index as usize == fresh {
            numbers.qps.push(None);
        } else {
            numbers.free.pop_front();
        }
        numbers.qps[index as usize] = Some(qp.clone());
        self.entry(index).store(qp.offset, Release);
        Ok(qp)
    }

    fn entry(&self, index: u32) -> &core::sync::atomic::AtomicU64 {
        let page = self.me.header().qps[index as usize / PAGE].load(Acquire);
        &self.me.mapping.array(page, PAGE).expect("the page exists")[index as usize % PAGE]
    }

    /// Forgets a QP.
    pub fn remove_qp(&self, number: u32) {
        let index = number % layout::QPS as u32;
        let mut numbers = self.qps.write();
        self.entry(index).store(0, Release);
        numbers.qps[index as usize] = None;
        numbers.free.push_back(index);
    }

    /// The QP of an index.
    pub fn qp_at(&self, index: u32) -> Option<Arc<Qp>> {
        self.qps.read().qps.get(index as usize).cloned().flatten()
    }

    /// All QPs.
    pub fn qps(&self) -> Vec<Arc<Qp>> {
        self.qps.read().qps.iter().flatten().cloned().collect()
    }

    /// The process that has a QP of this number.
    pub fn peer(&self, number: u32) -> Option<Arc<Peer>> {
        let place = (number >> 16) as usize;
        if place == self.me.place {
            return Some(self.me.clone());
        }
        let mut peers = self.peers.lock();
        let (_, turn) = self.registry.owner(place)?;
        if let Some(p) = peers.get(&place).filter(|p| p.turn == turn) {
            return (!p.is_gone()).then(|| p.clone());
        }
        let peer = Arc::new(Peer::open(&self.registry, place).ok()?);
        peers.insert(place, peer.clone());
        drop(peers);
        // The thread watches it from now on.
        self.engine.ring();
        Some(peer)
    }

    /// The descriptors of all peers, and whose they are.
    pub fn watched(&self) -> (Vec<RawFd>, Vec<Arc<Peer>>) {
        let peers = self.peers.lock();
        peers.values().filter(|p| !p.is_gone()).filter_map(|p| Some((p.watch.as_ref()?.as_raw_fd(), p.clone()))).unzip()
    }

    /// A peer is gone.
    pub fn forget(&self, peer: &Peer) {
        let mut peers = self.peers.lock();
        if peers.get(&peer.place).is_some_and(|p| p.turn == peer.turn) {
            peers.remove(&peer.place);
        }
    }

    /// The path between two addresses.
    pub fn path(&self, from: Gid, to: Gid) -> Arc<Path> {
        let mut paths = self.paths.lock();
        let new = || Arc::new(Path::new(self.config.path(from, to), self.began));
        paths.entry((from, to)).or_insert_with(new).clone()
    }

    /// Looks after QPs that peers have put into error.
    pub fn attend(&'static self) {
        if self.me.header().attention.swap(0, Acquire) == 0 {
            return;
        }
        for qp in self.qps() {
            if qp.shared().fault.swap(0, Acquire) != 0 {
                qp.enter_error(self);
            }
        }
    }

    /// As [`Host::attend`], for somebody who polls.
    #[inline]
    pub fn attend_if_asked(&'static self) {
        if self.me.header().attention.load(Relaxed) != 0 {
            self.attend();
        }
    }

    /// Tells a process that one of its QPs was put into error.
    pub fn ask_for_attention(&self, peer: &Peer) {
        peer.header().attention.fetch_add(1, Release);
        peer.notify(&self.registry, 1, Event { kind: ATTENTION, name: 0 });
    }

    fn port(&self, device: usize, port: usize) -> &Port {
        self.me.mapping.at(self.ports[device][port]).expect("ports stay")
    }

    /// Whether a port is up now.
    pub fn is_up(&self, device: usize, port: usize) -> bool {
        self.port(device, port).up.load(Relaxed) != 0
    }

    fn faults(&self) -> impl Iterator<Item = (usize, usize, u64, u64)> {
        let ns = |ms: f64| (ms * 1e6) as u64;
        self.config.port_faults.iter().filter_map(move |f| {
            let device = self.config.devices.iter().position(|d| d.name == f.device)?;
            let port = usize::from(f.port).checked_sub(1).filter(|p| *p < self.ports[device].len())?;
            let from = self.began + ns(f.after_ms);
            Some((device, port, from, f.for_ms.map_or(u64::MAX, |d| from + ns(d))))
        })
    }

    /// When the next port changes.
    pub fn next_port_fault(&self, now: u64) -> u64 {
        self.faults().flat_map(|(_, _, from, to)| [from, to]).filter(|t| *t > now).min().unwrap_or(u64::MAX)
    }

    /// Makes ports go down and up, and says so.
    pub fn port_faults(&self, now: u64) {
        const PORT_ACTIVE: u32 = 9;
        const PORT_ERR: u32 = 10;
        for (device, port, ..) in self.faults() {
            let mine = self.faults().filter(|f| (f.0, f.1) == (device, port));
            let up = !mine.into_iter().any(|(_, _, from, to)| (from..to).contains(&now));
            let was = self.port(device, port).up.swap(u32::from(up), Relaxed) != 0;
            if up != was {
                let kind = if up { PORT_ACTIVE } else { PORT_ERR };
                let contexts: Vec<_> = self.contexts.lock().iter().filter(|c| c.0 == device).copied().collect();
                for (_, queue) in contexts {
                    self.notify(queue, kind, port as u64 + 1);
                }
            }
        }
    }
}
