//! The side channel's thread: sockets and the clock for the `hub`, and the handle that the shim holds.
//!
//! The handle's calls leave a note for the thread and return; nothing that the network does can make them wait. The thread
//! sleeps in poll until bytes, a note or a deadline wake it. It listens at the addresses of the devices' GIDs and nowhere
//! else, at each on two ports: a well-known one that all processes of a user share (SO_REUSEPORT; another user's take the
//! next of eight), and one of its own, where it is sent those who look for its QPs.

use super::Reason;
use super::api::{Directory, Event, LinkId, Qps, Tally};
use super::gid::{self, Gid};
use super::hub::{Action, Hub, Parts};
use super::net::{Registry, Socket, poll};
use super::pursuit::BASE_PORTS;
use super::secret::random;
use super::settings::Settings;
use super::wire::{Message, ProcessId, Psns, QpPair};
use core::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Notes that may wait for the thread; more are refused.
const MAX_NOTES: usize = 131_072;

/// Connections taken from one port before others get their turn.
const ACCEPT_BATCH: usize = 16;

/// Bytes taken from one connection before others get their turn.
const READ_BYTES: usize = 16 << 10;

/// How long nobody is let in after descriptors or memory ran out.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// Longest sleep, should the program close the very sockets that wake the thread while it sleeps.
const SLEEP_NS: u64 = 2_000_000_000;

/// How often the thread looks for notes once the program has closed what wakes it.
const UNWOKEN_NS: u64 = 100_000_000;

/// Stack of the thread.
const STACK_BYTES: usize = 256 << 10;

/// Descriptors beside those of connections.
const OTHER_DESCRIPTORS: usize = 256;

/// What gets the events, on the side channel's thread. It must not block; it may call the handle.
pub type Handler = Box<dyn FnMut(Event) + Send>;

/// Where this process listens at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Alone: what a [`Directory`] of other processes has to name for QPs of GIDs of this address.
    pub own: u16,
    /// Together with other processes of this user; `None` if all the well-known ports are others'. Then this process can
    /// find its peers, but not be found.
    pub well_known: Option<u16>,
}

enum Note {
    Listen { ip: IpAddr, ports: Ports, sockets: Vec<Socket> },
    Claim(QpPair, Psns),
    Forget(QpPair),
    Send(LinkId, Message),
    Close,
}

#[derive(Default)]
struct Notes {
    waiting: VecDeque<Note>,
    /// The thread has ended, and takes no more.
    ended: bool,
}

struct Shared {
    base_port: u16,
    process: ProcessId,
    registry: Arc<Registry>,
    notes: Mutex<Notes>,
    ended: Condvar,
    /// Whether the thread was woken and has not looked yet.
    woken: AtomicBool,
    wake: Socket,
    listening: Mutex<HashMap<IpAddr, Ports>>,
    tally: Arc<Tally>,
}

/// The side channel of this process. Copies are the same one.
#[derive(Clone)]
pub struct Rendezvous(Arc<Shared>);

/// A lock whose holders do not panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rendezvous {
    /// Starts the thread, with all signals blocked. It listens nowhere yet.
    ///
    /// # Errors
    /// No descriptors, no thread, or no random numbers.
    pub fn start(
        settings: Settings,
        qps: Box<dyn Qps>,
        directory: Box<dyn Directory>,
        handler: Handler,
    ) -> io::Result<Rendezvous> {
        let registry = Registry::new(settings.limits.links + OTHER_DESCRIPTORS);
        let (wake, woken) = Socket::pair(&registry)?;
        let tally = Arc::new(Tally::default());
        let process = random()?;
        let hub = Hub::new(Parts {
            process,
            base_port: settings.base_port,
            secret: settings.secret.map(Arc::new),
            limits: settings.limits,
            qps,
            directory,
            tally: tally.clone(),
        });
        let shared = Arc::new(Shared {
            base_port: settings.base_port,
            process,
            registry,
            notes: Mutex::default(),
            ended: Condvar::new(),
            woken: AtomicBool::new(false),
            wake,
            listening: Mutex::default(),
            tally,
        });
        let driver = Driver {
            shared: shared.clone(),
            hub,
            wakes: Some(woken),
            listeners: Vec::new(),
            wires: BTreeMap::new(),
            start: Instant::now(),
            accept_from_ns: 0,
            closing: false,
        };
        without_signals(|| {
            let thread = std::thread::Builder::new().name("telereduce-side".into()).stack_size(STACK_BYTES);
            thread.spawn(move || driver.live(handler))
        })?;
        Ok(Rendezvous(shared))
    }

    /// Listens at the address of a device's GID, if it does not yet.
    ///
    /// # Errors
    /// [`Reason::NoIp`]; [`Reason::Local`]: not this host's address, or no descriptors; [`Reason::Closed`].
    pub fn listen(&self, gid: Gid) -> Result<Ports, Reason> {
        let ip = gid::ip(gid)?;
        if !self.0.registry.is_owner() {
            return Err(Reason::Closed);
        }
        let mut listening = lock(&self.0.listening);
        if let Some(ports) = listening.get(&ip) {
            return Ok(*ports);
        }
        let (ports, sockets) = self.bind(ip).map_err(|_| Reason::Local)?;
        if !self.note(Note::Listen { ip, ports, sockets }) {
            return Err(Reason::Closed);
        }
        listening.insert(ip, ports);
        Ok(ports)
    }

    fn bind(&self, ip: IpAddr) -> io::Result<(Ports, Vec<Socket>)> {
        let own = Socket::tcp(&self.0.registry, ip)?;
        own.listen(SocketAddr::new(ip, 0), false)?;
        let mut ports = Ports { own: own.local()?.port(), well_known: None };
        let mut sockets = vec![own];
        for port in (0..BASE_PORTS).filter_map(|slot| self.0.base_port.checked_add(slot)) {
            let shared = Socket::tcp(&self.0.registry, ip)?;
            if shared.listen(SocketAddr::new(ip, port), true).is_ok() {
                ports.well_known = Some(port);
                sockets.push(shared);
                break;
            }
        }
        Ok((ports, sockets))
    }

    /// As [`Hub::claim`]: finds the shim of the peer of a QP that was connected just now. False: the side channel has
    /// ended, or too much waits for its thread; nothing will come of it.
    pub fn claim(&self, pair: QpPair, psns: Psns) -> bool {
        self.note(Note::Claim(pair, psns))
    }

    /// As [`Hub::forget`]: the pair is no more.
    pub fn forget(&self, pair: QpPair) {
        self.note(Note::Forget(pair));
    }

    /// As [`Hub::send`]: a message about lanes or QPs of a link. False: as for a claim, the message will not be sent.
    pub fn send(&self, link: LinkId, message: Message) -> bool {
        self.note(Note::Send(link, message))
    }

    /// Says goodbye to all peers, closes everything and ends the thread; waits for that, but no longer than `wait`.
    /// Whether it has ended. Not to be waited for on the side channel's own thread.
    pub fn close(&self, wait: Duration) -> bool {
        if !self.0.registry.is_owner() {
            return true;
        }
        self.note(Note::Close);
        let shared = &self.0;
        let notes = shared.ended.wait_timeout_while(lock(&shared.notes), wait, |notes| !notes.ended);
        notes.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// In a forked child: closes the child's copies of all descriptors, without a word to the parent's peers. From then on
    /// the child's handle does nothing; a child that uses verbs starts its own. Takes no lock and allocates nothing.
    pub fn forget_in_child(&self) {
        self.0.registry.close_in_child();
    }

    /// Random name of this process.
    pub fn process(&self) -> ProcessId {
        self.0.process
    }

    /// What happened so far.
    pub fn tally(&self) -> &Tally {
        &self.0.tally
    }

    fn note(&self, note: Note) -> bool {
        if !self.0.registry.is_owner() {
            return false;
        }
        let mut notes = lock(&self.0.notes);
        if notes.ended || notes.waiting.len() >= MAX_NOTES && !matches!(note, Note::Close | Note::Forget(_)) {
            return false;
        }
        notes.waiting.push_back(note);
        drop(notes);
        // SYNC POINT: the thread clears it before it looks at the notes.
        if !self.0.woken.swap(true, AcqRel) {
            let _ = self.0.wake.send(&[1]);
        }
        true
    }
}

/// Runs `work` with all signals blocked, which threads started by it inherit.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: all-zero signal sets are valid values; the calls write only these, and change this thread's mask alone.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
        result
    }
}

/// A connection's socket.
struct Wire {
    socket: Socket,
    connecting: bool,
}

struct Driver {
    shared: Arc<Shared>,
    hub: Hub,
    /// What wakes the thread; `None` once the program has closed it.
    wakes: Option<Socket>,
    listeners: Vec<(IpAddr, Socket)>,
    wires: BTreeMap<LinkId, Wire>,
    start: Instant,
    /// Nobody is let in before.
    accept_from_ns: u64,
    closing: bool,
}

impl Driver {
    fn live(mut self, mut handler: Handler) {
        // If either panics, everything is closed all the same.
        let _ = catch_unwind(AssertUnwindSafe(|| self.run(&mut handler)));
        let shared = self.shared.clone();
        drop(self);
        let _ = catch_unwind(AssertUnwindSafe(|| handler(Event::Stopped)));
        drop(handler);
        let mut notes = lock(&shared.notes);
        let rest = core::mem::take(&mut notes.waiting);
        notes.ended = true;
        shared.ended.notify_all();
        drop((notes, rest));
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn run(&mut self, handler: &mut Handler) {
        let mut buffer = vec![0; READ_BYTES];
        let mut fds = Vec::new();
        loop {
            self.take_notes();
            let now_ns = self.now_ns();
            self.hub.tick(now_ns);
            self.act();
            while let Some(event) = self.hub.take_event() {
                handler(event);
            }
            if self.closing {
                return;
            }
            self.wait(&mut fds);
            self.serve(&fds, &mut buffer);
        }
    }

    fn take_notes(&mut self) {
        // SYNC POINT: cleared before the notes are taken, so that a later one wakes the thread again.
        self.shared.woken.store(false, Release);
        let notes = core::mem::take(&mut lock(&self.shared.notes).waiting);
        let now_ns = self.now_ns();
        for note in notes {
            match note {
                Note::Listen { ip, ports, sockets } => {
                    self.hub.set_own_port(ip, ports.own);
                    self.listeners.extend(sockets.into_iter().map(|s| (ip, s)));
                }
                Note::Claim(pair, psns) => self.hub.claim(pair, psns, now_ns),
                Note::Forget(pair) => self.hub.forget(&pair),
                Note::Send(link, message) => self.hub.send(link, &message, now_ns),
                Note::Close => {
                    self.hub.close(now_ns);
                    self.closing = true;
                    return;
                }
            }
        }
    }

    /// Does what the hub wants, and sends what it has to say.
    fn act(&mut self) {
        loop {
            while let Some(action) = self.hub.take_action() {
                match action {
                    Action::Dial { link, from, to } => self.dial(link, from, to),
                    Action::Close { link, last } => {
                        if let Some(wire) = self.wires.remove(&link)
                            && !wire.connecting
                        {
                            let _ = wire.socket.send(&last);
                        }
                    }
                }
            }
            let failed = self.flush();
            if failed.is_empty() {
                return;
            }
            let now_ns = self.now_ns();
            failed.into_iter().for_each(|link| self.hub.lost(link, Reason::Lost, now_ns));
        }
    }

    fn dial(&mut self, link: LinkId, from: IpAddr, to: SocketAddr) {
        let made = Socket::tcp(&self.shared.registry, to.ip()).and_then(|s| s.connect(from, to).map(|()| s));
        match made {
            Ok(socket) => _ = self.wires.insert(link, Wire { socket, connecting: true }),
            Err(e) => self.hub.lost(link, reason_of(&e), self.now_ns()),
        }
    }

    /// Sends as much as goes without waiting; the links that are broken.
    fn flush(&mut self) -> Vec<LinkId> {
        let mut failed = Vec::new();
        for (link, wire) in self.wires.iter().filter(|(_, w)| !w.connecting) {
            while !self.hub.outgoing(*link).is_empty() {
                match wire.socket.send(self.hub.outgoing(*link)) {
                    Ok(bytes) => self.hub.sent(*link, bytes),
                    Err(e) if would_block(&e) => break,
                    Err(_) => {
                        failed.push(*link);
                        break;
                    }
                }
            }
        }
        failed
    }

    /// Sleeps until there is something to do. Order of `fds`: the wake-up, the listeners, the links.
    fn wait(&mut self, fds: &mut Vec<libc::pollfd>) {
        let now_ns = self.now_ns();
        let paused = now_ns < self.accept_from_ns;
        self.wakes = self.wakes.take().filter(Socket::is_ours);
        let poll_for = |fd, events| libc::pollfd { fd, events, revents: 0 };
        fds.clear();
        // A negative number is skipped.
        fds.push(poll_for(self.wakes.as_ref().map_or(-1, Socket::fd), libc::POLLIN));
        fds.extend(self.listeners.iter().map(|(_, s)| poll_for(if paused { -1 } else { s.fd() }, libc::POLLIN)));
        for (link, wire) in &self.wires {
            let out = if wire.connecting || !self.hub.outgoing(*link).is_empty() { libc::POLLOUT } else { 0 };
            fds.push(poll_for(wire.socket.fd(), libc::POLLIN | out));
        }
        let sleep_ns = if self.wakes.is_some() { SLEEP_NS } else { UNWOKEN_NS };
        let deadlines = [self.hub.deadline_ns(), paused.then_some(self.accept_from_ns)];
        let at_ns = deadlines.into_iter().flatten().fold(now_ns.saturating_add(sleep_ns), u64::min);
        poll(fds, Duration::from_nanos(at_ns.saturating_sub(now_ns)));
    }

    fn serve(&mut self, fds: &[libc::pollfd], buffer: &mut [u8]) {
        let ready = |i: usize| fds.get(i).is_some_and(|f| f.revents != 0);
        if ready(0) {
            while self.wakes.as_ref().is_some_and(|s| s.receive(buffer).is_ok_and(|n| n > 0)) {}
        }
        let links: Vec<LinkId> = self.wires.keys().copied().collect();
        let first_link = 1 + self.listeners.len();
        for (i, link) in links.into_iter().enumerate().filter(|(i, _)| ready(first_link + i)) {
            self.serve_link(link, fds[first_link + i].revents, buffer);
        }
        for i in (0..self.listeners.len()).filter(|i| ready(1 + i)) {
            self.accept(i);
        }
        self.listeners.retain(|(_, s)| s.is_ours());
    }

    fn serve_link(&mut self, link: LinkId, revents: i16, buffer: &mut [u8]) {
        let now_ns = self.now_ns();
        let Some(wire) = self.wires.get_mut(&link) else { return };
        if wire.connecting {
            if let Err(e) = wire.socket.connected() {
                return self.hub.lost(link, reason_of(&e), now_ns);
            }
            if revents & libc::POLLOUT == 0 {
                return;
            }
            wire.connecting = false;
            self.hub.connected(link);
        }
        // What came before an error is read first: it may say why.
        if revents & !libc::POLLOUT != 0 {
            match wire.socket.receive(buffer) {
                Ok(0) => self.hub.lost(link, Reason::Lost, now_ns),
                Ok(bytes) => self.hub.received(link, &buffer[..bytes], now_ns),
                Err(e) if would_block(&e) => {}
                Err(_) => self.hub.lost(link, Reason::Lost, now_ns),
            }
        }
    }

    fn accept(&mut self, listener: usize) {
        let now_ns = self.now_ns();
        for _ in 0..ACCEPT_BATCH {
            let (ip, socket) = &self.listeners[listener];
            match socket.accept() {
                Ok((socket, from)) => {
                    let Ok(nonce) = random() else { return };
                    match self.hub.accepted(*ip, from.ip(), nonce, now_ns) {
                        Ok(link) => _ = self.wires.insert(link, Wire { socket, connecting: false }),
                        Err(last) => _ = socket.send(&last),
                    }
                }
                Err(e) => {
                    let no_room = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
                    if e.raw_os_error().is_some_and(|e| no_room.contains(&e)) {
                        self.accept_from_ns = now_ns.saturating_add(ACCEPT_PAUSE_NS);
                    }
                    return;
                }
            }
        }
    }
}

fn would_block(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Why connecting failed.
fn reason_of(e: &io::Error) -> Reason {
    match e.raw_os_error().unwrap_or(0) {
        libc::ECONNREFUSED => Reason::Refused,
        libc::ETIMEDOUT => Reason::NoAnswer,
        libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN | libc::EACCES | libc::EPERM => {
            Reason::Unreachable
        }
        libc::ECONNRESET | libc::EPIPE => Reason::Lost,
        _ => Reason::Local,
    }
}

#[cfg(test)]
#[path = "rendezvous_tests.rs"]
mod tests;
