//! Whole side channels over real sockets, of the loopback network only. Waits have generous ends and no test needs one to
//! be short.

use super::*;
use crate::control::api::{Limits, OurQp};
use crate::control::secret::Secret;
use crate::control::testing::{Random, Table};
use crate::control::wire::{LaneId, LaneReady, QpAddr};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc;

/// Longest time that anything here may take.
const LONG: Duration = Duration::from_secs(30);

const LIMITS: Limits = Limits { links: 300, unproven: 40, claims: 10_000 };

/// One process's worth of side channel.
struct Process {
    rendezvous: Rendezvous,
    events: mpsc::Receiver<Event>,
    qps: Table<OurQp>,
    gid: Gid,
    ports: Ports,
}

impl Process {
    fn start(ip: [u8; 4], base_port: u16) -> Process {
        Process::with(ip, base_port, None, &Table::default())
    }

    fn with(ip: [u8; 4], base_port: u16, secret: Option<&str>, directory: &Table<u16>) -> Process {
        let secret = secret.map(|s| Secret::new(s.as_bytes()).unwrap());
        let (qps, (sender, events), gid) = (Table::default(), mpsc::channel(), gid::from_ip(ip.into()));
        let handler: Handler = Box::new(move |event| _ = sender.send(event));
        let settings = Settings { base_port, secret, limits: LIMITS };
        let (asked, directory) = (Box::new(qps.clone()), Box::new(directory.clone()));
        let rendezvous = Rendezvous::start(settings, asked, directory, handler).unwrap();
        let ports = rendezvous.listen(gid).unwrap();
        Process { rendezvous, events, qps, gid, ports }
    }

    fn qp(&self, qpn: u32) -> QpAddr {
        QpAddr { gid: self.gid, qpn }
    }

    /// Connects a QP of this process to one of another, as both applications do.
    fn connect(&self, qpn: u32, peer: &Process, peer_qpn: u32) -> QpPair {
        let pair = QpPair { mine: self.qp(qpn), yours: peer.qp(peer_qpn) };
        self.qps.set(pair.mine, OurQp { peer: Some(pair.yours), psns: Psns::UNKNOWN, pool: 7 });
        peer.qps.set(pair.yours, OurQp { peer: Some(pair.mine), psns: Psns::UNKNOWN, pool: 7 });
        pair
    }

    fn claim(&self, pair: QpPair) {
        self.rendezvous.claim(pair, Psns::UNKNOWN);
    }

    fn next(&self) -> Event {
        loop {
            match self.events.recv_timeout(LONG).expect("an event in time") {
                // It takes as long as it takes.
                Event::Delayed { .. } => {}
                event => return event,
            }
        }
    }

    /// The link of the next event, which says that the pair is paired.
    fn paired(&self, pair: QpPair) -> LinkId {
        match self.next() {
            Event::Paired { pair: p, link, .. } if p == pair => link,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until connections that ended for this reason are so many.
    fn ended(&self, reason: Reason, count: u64) {
        let start = Instant::now();
        while Tally::get(&self.rendezvous.tally().ended, reason) < count {
            assert!(start.elapsed() < LONG, "{reason}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let ended = self.rendezvous.close(LONG);
        assert!(ended || std::thread::panicking());
    }
}

/// Held while ports are probed, and while a child of the process may hold copies of what probes them.
static PROBING: Mutex<()> = Mutex::new(());

/// Eight consecutive ports that nobody uses at these addresses, out of the range that the kernel chooses from.
fn base_port(ips: &[[u8; 4]]) -> u16 {
    let _alone = lock(&PROBING);
    let mut random = Random::new(u64::from_le_bytes(random().unwrap()));
    let is_free = |port| ips.iter().all(|ip| TcpListener::bind((IpAddr::from(*ip), port)).is_ok());
    let mut bases = core::iter::repeat_with(|| 10_000 + random.below(2500) as u16 * BASE_PORTS);
    bases.find(|base| (0..BASE_PORTS).all(|slot| is_free(base + slot))).unwrap()
}

fn message(lane: u16) -> Message {
    LaneReady { lane: LaneId { pds: 1, lane, epoch: 2 } }.into()
}

const A: [u8; 4] = [127, 0, 0, 1];
const B: [u8; 4] = [127, 0, 0, 2];

#[test]
fn two_processes_find_each_other_talk_and_say_goodbye() {
    let base = base_port(&[A, B]);
    let (a, b) = (Process::start(A, base), Process::start(B, base));
    let pair = a.connect(17, &b, 18);
    a.claim(pair);
    let (at_a, at_b) = (a.paired(pair), b.paired(pair.swapped()));
    for lane in 0..500 {
        a.rendezvous.send(at_a, message(lane));
        b.rendezvous.send(at_b, message(lane + 1000));
    }
    for lane in 0..500 {
        assert_eq!(b.next(), Event::Message { link: at_b, message: message(lane) });
        assert_eq!(a.next(), Event::Message { link: at_a, message: message(lane + 1000) });
    }
    assert!(a.rendezvous.close(LONG));
    assert_eq!(a.next(), Event::Lost { link: at_a, reason: Reason::Closed, pairs: vec![pair] });
    assert_eq!(a.next(), Event::Stopped);
    assert_eq!(b.next(), Event::Lost { link: at_b, reason: Reason::Closed, pairs: vec![pair.swapped()] });
    assert_eq!(a.rendezvous.0.registry.held(), 1, "nothing is left but the handle's own end");
    assert!(a.rendezvous.close(LONG), "again");
}

#[test]
fn two_hundred_owners_behind_one_port_are_found() {
    let owners = if may_open(4000) { 200 } else { 20 };
    let base = base_port(&[A, B]);
    let (a, directory) = (Process::start(A, base), Table::default());
    let owners: Vec<Process> = (0..owners).map(|_| Process::with(B, base, None, &directory)).collect();
    assert!(owners.iter().all(|o| o.ports.well_known == Some(base)), "they share it");
    let mut missing = HashMap::new();
    for (i, owner) in owners.iter().enumerate() {
        directory.set(owner.qp(1000 + i as u32), owner.ports.own);
        let pair = a.connect(i as u32, owner, 1000 + i as u32);
        missing.insert(pair, owner);
        a.claim(pair);
    }
    while !missing.is_empty() {
        match a.next() {
            Event::Paired { pair, process, .. } => {
                let owner = missing.remove(&pair).unwrap();
                assert_eq!(process, owner.rendezvous.process());
                owner.paired(pair.swapped());
            }
            other => panic!("{other:?}, {} missing", missing.len()),
        }
    }
}

/// Whether so many descriptors may be open; raises the limit as far as it goes.
fn may_open(count: u64) -> bool {
    // SAFETY: an all-zero rlimit is a valid value, which the calls read and write.
    unsafe {
        let mut limit: libc::rlimit = core::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_cur.max(limit.rlim_max.min(count));
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= count
    }
}

#[test]
fn connecting_at_once_from_both_ends_leaves_one_link() {
    let base = base_port(&[A, B]);
    for _ in 0..10 {
        let (a, b) = (Process::start(A, base), Process::start(B, base));
        let pairs: Vec<QpPair> = (0..20).map(|i| a.connect(i, &b, 100 + i)).collect();
        let (ra, rb) = (&a.rendezvous, &b.rendezvous);
        std::thread::scope(|s| {
            s.spawn(|| pairs.iter().for_each(|p| assert!(ra.claim(*p, Psns::UNKNOWN))));
            s.spawn(|| pairs.iter().for_each(|p| assert!(rb.claim(p.swapped(), Psns::UNKNOWN))));
        });
        let links = |of: &Process| -> std::collections::HashSet<LinkId> {
            let link = |event| match event {
                Event::Paired { link, .. } => link,
                other => panic!("{other:?}"),
            };
            pairs.iter().map(|_| link(of.next())).collect()
        };
        assert_eq!((links(&a).len(), links(&b).len()), (1, 1));
    }
}

#[test]
fn silent_attackers_are_dropped_and_delay_nobody() {
    let base = base_port(&[A, B]);
    let (a, b) = (Process::start(A, base), Process::start(B, base));
    let ports = [b.ports.own, base];
    let mut silent: Vec<TcpStream> =
        (0..100).map(|i| TcpStream::connect((IpAddr::from(B), ports[i % 2])).unwrap()).collect();
    let pair = a.connect(17, &b, 18);
    a.claim(pair);
    b.paired(pair.swapped());
    // Most are crowded out, the others too slow; each hears it.
    for stream in &mut silent {
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        let bye = [1, 0, 15];
        assert_eq!(said[..3], bye);
        assert!([Reason::Crowded, Reason::Silent].contains(&Reason::from_code(said[3])));
    }
    a.paired(pair);
}

#[test]
fn random_bytes_are_refused_and_delay_nobody() {
    let base = base_port(&[A, B]);
    let (a, b) = (Process::start(A, base), Process::start(B, base));
    let (pair, port) = (a.connect(17, &b, 18), b.ports.own);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut random = Random::new(3);
            for _ in 0..200 {
                let mut stream = TcpStream::connect((IpAddr::from(B), port)).unwrap();
                let bytes: Vec<u8> = (0..random.below(3000)).map(|_| random.next() as u8).collect();
                let _ = stream.write_all(&bytes);
            }
        });
        a.claim(pair);
        a.paired(pair);
        b.paired(pair.swapped());
    });
    a.rendezvous.send(LinkId(1), message(1));
    assert!(matches!(b.next(), Event::Message { .. }));
}

#[test]
fn a_closed_port_is_refused_and_tried_again() {
    let base = base_port(&[A, B]);
    let a = Process::start(A, base);
    let pair = QpPair { mine: a.qp(17), yours: QpAddr { gid: gid::from_ip(B.into()), qpn: 18 } };
    a.claim(pair);
    a.ended(Reason::Refused, u64::from(BASE_PORTS));
    let b = Process::start(B, base);
    assert_eq!(a.connect(17, &b, 18), pair);
    a.paired(pair);
    b.paired(pair.swapped());
}

#[test]
fn a_peer_that_dies_in_the_handshake_is_left_for_the_next_port() {
    let base = base_port(&[A, B]);
    let dies = TcpListener::bind((IpAddr::from(B), base)).unwrap();
    let (a, b) = (Process::start(A, base), Process::start(B, base));
    assert_eq!(b.ports.well_known, Some(base + 1), "the first is another's");
    let pair = a.connect(17, &b, 18);
    std::thread::scope(|s| {
        s.spawn(|| {
            let (mut stream, _) = dies.accept().unwrap();
            stream.read_exact(&mut [0; 20]).unwrap();
        });
        a.claim(pair);
        a.paired(pair);
        b.paired(pair.swapped());
    });
    a.ended(Reason::Lost, 1);
}

#[test]
fn a_peer_that_accepts_and_stays_silent_is_left_for_the_next_port() {
    let base = base_port(&[A, B]);
    let _silent = TcpListener::bind((IpAddr::from(B), base)).unwrap();
    let (a, b) = (Process::start(A, base), Process::start(B, base));
    let pair = a.connect(17, &b, 18);
    a.claim(pair);
    a.paired(pair);
    a.ended(Reason::Silent, 1);
}

#[test]
fn secrets_must_agree() {
    let base = base_port(&[A, B]);
    let start = |ip, secret| Process::with(ip, base, secret, &Table::default());
    let (one, other) = (Some("the secret of these tests"), Some("quite another secret"));
    for (sa, sb, want) in [
        (one, one, None),
        (one, other, Some(Reason::Secret)),
        (one, None, Some(Reason::SecretMissing)),
        (None, one, Some(Reason::SecretMissing)),
    ] {
        let (a, b) = (start(A, sa), start(B, sb));
        let pair = a.connect(17, &b, 18);
        a.claim(pair);
        match want {
            None => _ = a.paired(pair),
            Some(reason) => assert_eq!(a.next(), Event::Failed { pair, reason }),
        }
    }
}

#[test]
fn it_listens_at_the_gid_s_address_alone() {
    let base = base_port(&[A, B]);
    let a = Process::start(A, base);
    assert_eq!(a.rendezvous.listen(a.gid), Ok(a.ports), "once");
    for port in [a.ports.own, base] {
        assert!(TcpStream::connect((IpAddr::from(A), port)).is_ok());
        assert!(TcpStream::connect((IpAddr::from(B), port)).is_err());
    }
    assert_eq!(a.rendezvous.listen([0; 16]), Err(Reason::NoIp));
    assert_eq!(a.rendezvous.listen(gid::from_ip([192, 0, 2, 1].into())), Err(Reason::Local), "no address of this host");
}

#[test]
fn the_thread_takes_no_signals() {
    let a = Process::start(A, base_port(&[A]));
    // Once it answers, it runs under its own name.
    let pair = QpPair { mine: a.qp(1), yours: QpAddr { gid: [0; 16], qpn: 2 } };
    a.claim(pair);
    assert_eq!(a.next(), Event::Failed { pair, reason: Reason::NoIp });
    let mut found = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        if status.starts_with("Name:\ttelereduce-side\n") {
            let blocked = status.lines().find_map(|l| l.strip_prefix("SigBlk:\t")).unwrap();
            let blocked = u64::from_str_radix(blocked, 16).unwrap();
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGCHLD, libc::SIGUSR1, libc::SIGALRM, libc::SIGPROF] {
                assert_ne!(blocked & (1 << (signal - 1)), 0, "{signal}");
            }
            found += 1;
        }
    }
    assert!(found > 0);
}

#[test]
fn a_shim_that_panics_ends_the_side_channel_and_nothing_else() {
    let settings = Settings { base_port: base_port(&[A]), secret: None, limits: LIMITS };
    let (sender, events) = mpsc::channel();
    let handler: Handler = Box::new(move |event| {
        sender.send(event.clone()).unwrap();
        assert_eq!(event, Event::Stopped, "on purpose");
    });
    let (qps, directory) = (Box::new(Table::<OurQp>::default()), Box::new(Table::<u16>::default()));
    let rendezvous = Rendezvous::start(settings, qps, directory, handler).unwrap();
    let ports = rendezvous.listen(gid::from_ip(A.into())).unwrap();
    let nobody = QpAddr { gid: [0; 16], qpn: 1 };
    assert!(rendezvous.claim(QpPair { mine: nobody, yours: nobody }, Psns::UNKNOWN));
    assert!(matches!(events.recv_timeout(LONG), Ok(Event::Failed { reason: Reason::NoIp, .. })));
    assert_eq!(events.recv_timeout(LONG), Ok(Event::Stopped));
    assert!(rendezvous.close(LONG));
    assert!(TcpStream::connect((IpAddr::from(A), ports.own)).is_err());
    assert!(!rendezvous.send(LinkId(1), message(1)), "it takes no more");
    assert_eq!(rendezvous.listen(gid::from_ip(B.into())), Err(Reason::Closed));
}

#[test]
fn a_forked_child_forgets_everything_and_its_parent_nothing() {
    let base = base_port(&[A, B]);
    let (a, b) = (Process::start(A, base), Process::start(B, base));
    let pair = a.connect(17, &b, 18);
    a.claim(pair);
    let (at_a, at_b) = (a.paired(pair), b.paired(pair.swapped()));
    let fds: Vec<i32> = {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let numbers = all.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
        numbers.filter(|fd| a.rendezvous.0.registry.holds(*fd)).collect()
    };
    assert_eq!(fds.len(), 5, "two ends to wake, two listeners, one link");
    let (stay, mut go) = std::io::pipe().unwrap();
    let (mut said, say) = std::io::pipe().unwrap();
    let alone = lock(&PROBING);
    // SAFETY: the child makes system calls, takes no lock, allocates nothing, and ends itself.
    let child = unsafe { libc::fork() };
    if child == 0 {
        a.rendezvous.forget_in_child();
        a.rendezvous.claim(pair, Psns::UNKNOWN);
        // SAFETY: numbers only, and one byte each way; ends the child.
        unsafe {
            let closed = fds.iter().all(|fd| libc::fcntl(*fd, libc::F_GETFD) == -1);
            // What it has of other tests goes, too.
            (3..20_000)
                .filter(|fd| ![stay.as_raw_fd(), say.as_raw_fd()].contains(fd))
                .for_each(|fd| _ = libc::close(fd));
            libc::write(say.as_raw_fd(), [1u8].as_ptr().cast(), 1);
            // Stays until the parent's connection has gone.
            libc::read(stay.as_raw_fd(), [0u8; 1].as_mut_ptr().cast(), 1);
            libc::_exit(if closed && a.rendezvous.close(Duration::ZERO) { 0 } else { 1 });
        }
    }
    said.read_exact(&mut [0]).unwrap();
    drop(alone);
    assert!(child > 0);
    a.rendezvous.send(at_a, message(7));
    assert_eq!(b.next(), Event::Message { link: at_b, message: message(7) });
    a.rendezvous.close(LONG);
    assert!(matches!(b.next(), Event::Lost { reason: Reason::Closed, .. }), "though the child lives");
    go.write_all(b"x").unwrap();
    let mut status = 0;
    // SAFETY: writes the status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn a_child_that_forgets_nothing_keeps_no_port_open() {
    let a = Process::start(A, base_port(&[A]));
    let (stay, go) = std::io::pipe().unwrap();
    let _alone = lock(&PROBING);
    // SAFETY: the child makes system calls, takes no lock, allocates nothing, and ends itself.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the child's own descriptors; ends when the parent closes its end.
        unsafe {
            libc::close(go.as_raw_fd());
            libc::read(stay.as_raw_fd(), [0u8; 1].as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
    }
    assert!(child > 0);
    assert!(a.rendezvous.close(LONG));
    assert!(TcpStream::connect((IpAddr::from(A), a.ports.own)).is_err());
    drop(go);
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) }, child);
}

#[test]
fn a_program_that_makes_files_of_its_descriptors_finds_nothing_in_them() {
    let base = base_port(&[A, B]);
    let (a, b) = (Process::start(A, base), Process::start(B, base));
    let pair = a.connect(17, &b, 18);
    a.claim(pair);
    let link = a.paired(pair);
    let file = tempfile::tempfile().unwrap();
    let ours: Vec<i32> = (3..2000).filter(|fd| a.rendezvous.0.registry.holds(*fd)).collect();
    // SAFETY: descriptors of this side channel, which is what the program is about to break.
    ours.iter().for_each(|fd| assert!(unsafe { libc::dup2(file.as_raw_fd(), *fd) } >= 0));
    for lane in 0..20 {
        a.rendezvous.send(link, message(lane));
    }
    assert!(a.rendezvous.close(LONG), "it still ends");
    assert_eq!(file.metadata().unwrap().len(), 0);
    // SAFETY: the copies made above, which are still open.
    ours.iter().for_each(|fd| assert_eq!(unsafe { libc::close(*fd) }, 0));
    drop(b);
}
