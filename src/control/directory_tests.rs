//! Segments as real processes write them, all of this one process.

use super::*;
use crate::clock::Clock;
use crate::config::Config;
use crate::control::gid;
use crate::shm::layout::{ABI_VERSION, Header, Hooked};
use crate::shm::segment::Identity as Who;
use crate::telemetry::registry::{Device, Objects, QpChange, Telemetry};
use crate::telemetry::testing::qp_spec;
use core::mem::offset_of;
use std::fs;
use std::os::unix::fs::FileExt;

const HERE: u64 = 4_026_531_840;
const ELSEWHERE: u64 = 4_026_532_177;
const RC: u32 = ibv_qp_type::IBV_QPT_RC;

const EAGER: Pace = Pace { budget: BUDGET, pause: Duration::ZERO, share: 0, most_qps: MOST_QPS };
const HOUR: Duration = Duration::from_secs(3600);

/// A QP by the last byte of its address.
fn qp(ip: u8, qpn: u32) -> QpAddr {
    QpAddr { gid: gid::from_ip([10, 0, 0, ip].into()), qpn }
}

fn own_uid() -> u32 {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() }
}

/// A folder of segments.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Host {
        Host(tempfile::tempdir_in("/dev/shm").unwrap())
    }

    /// A directory that may look as often as it is asked.
    fn eager(&self) -> Segments {
        Segments { pace: EAGER, ..Segments::new(self.0.path(), Path::new("/none"), HERE) }
    }

    /// A process of this user, here.
    fn process(&self, pid: u32) -> Process {
        self.any_process(own_uid(), pid, HERE)
    }

    fn any_process(&self, uid: u32, pid: u32, network: u64) -> Process {
        let config = Config { dir: self.0.path().into(), ..Config::default() };
        let clock: &'static Clock = Box::leak(Box::default());
        let objects: &'static Objects = Box::leak(Box::new(Objects::new()));
        let who = Who { pid, uid, created_ns: realtime_ns(), ..Who::default() };
        let telemetry = Telemetry::new(&config, &who, clock, objects).unwrap();
        telemetry.is_in_network(network);
        let device = telemetry.open_device("null0", Hooked::Linked);
        Process { telemetry, device, objects }
    }
}

/// Where a QP could be.
fn address_of(qpn: u32) -> usize {
    4096 + 64 * qpn as usize
}

/// A process whose port 1 has the address 10.0.0.1, port 2 has 10.0.0.2, and so on; its own ports are 7000 + process id.
struct Process {
    telemetry: Telemetry,
    device: &'static Device,
    objects: &'static Objects,
}

impl Process {
    fn own_port(&self) -> u16 {
        7000 + self.header().pid.load(Relaxed) as u16
    }

    fn header(&self) -> &'static Header {
        self.telemetry.segment().header()
    }

    fn path(&self) -> &Path {
        self.telemetry.segment().path()
    }

    fn create(&self, qp_num: u32, qp_type: u32) {
        self.telemetry.create_qp(self.device, address_of(qp_num), qp_spec(qp_num, qp_type));
    }

    fn connect(&self, qpn: u32, port: u8) {
        let q = self.objects.qps.get(address_of(qpn)).unwrap();
        let change = QpChange { port_num: Some(port), ..QpChange::default() };
        self.telemetry.modify_qp(self.device, q, change);
        self.telemetry.listens(self.device, port, qp(port, 0).gid, self.own_port());
    }

    /// An RC QP that is connected, at 10.0.0.`port`.
    fn has(self, qpn: u32, port: u8) -> Process {
        self.create(qpn, RC);
        self.connect(qpn, port);
        self
    }

    fn destroy(&self, qpn: u32) {
        let q = self.objects.qps.get(address_of(qpn)).unwrap();
        self.telemetry.hide_qp(self.device, q);
        self.telemetry.retire_qp(q);
    }

    /// As if it had been touched last so many ns ago.
    fn last_touched(&self, ns_ago: u64) {
        self.header().heartbeat_ns.store(realtime_ns() - ns_ago, Relaxed);
    }
}

#[test]
fn a_qp_is_found_by_its_number_and_its_address() {
    let host = Host::new();
    let (a, b) = (host.process(1).has(17, 1).has(18, 2), host.process(2).has(19, 1).has(17, 2));
    let d = host.eager();
    for (qp, owner) in [(qp(1, 17), &a), (qp(2, 18), &a), (qp(1, 19), &b), (qp(2, 17), &b)] {
        assert_eq!(d.port_of(&qp), Some(owner.own_port()), "{qp:?}");
    }
    for nobodys in [qp(1, 18), qp(2, 19), qp(3, 17), qp(1, 20), qp(1, 0)] {
        assert_eq!(d.port_of(&nobodys), None, "{nobodys:?}");
    }
}

#[test]
fn qps_that_may_have_no_lanes_are_nobody_s() {
    let host = Host::new();
    let a = host.process(1).has(17, 1);
    a.create(18, ibv_qp_type::IBV_QPT_UC);
    a.connect(18, 1);
    a.create(19, RC);
    let d = host.eager();
    assert_eq!((d.port_of(&qp(1, 17)), d.port_of(&qp(1, 18)), d.port_of(&qp(1, 19))), (Some(7001), None, None));
    a.connect(19, 1);
    assert_eq!(d.port_of(&qp(1, 19)), Some(7001), "its port is known now");
}

#[test]
fn the_same_address_in_another_network_is_another() {
    let host = Host::new();
    let _other = host.any_process(own_uid(), 1, ELSEWHERE).has(17, 1);
    let _unknown = host.any_process(own_uid(), 2, 0).has(17, 1);
    let d = host.eager();
    assert_eq!(d.port_of(&qp(1, 17)), None);
    let _ours = host.process(3).has(17, 1);
    assert_eq!(d.port_of(&qp(1, 17)), Some(7003));
    let there = Segments { network: ELSEWHERE, ..host.eager() };
    assert_eq!(there.port_of(&qp(1, 17)), Some(7001));
    let nowhere = Segments { network: 0, ..host.eager() };
    assert_eq!(nowhere.port_of(&qp(1, 17)), None, "who does not know where it is, trusts no segment");
}

#[test]
fn other_users_and_one_s_own_segment_are_left_out() {
    let host = Host::new();
    let _other_user = host.any_process(own_uid() + 1, 1, HERE).has(17, 1);
    let own = host.process(2).has(17, 1);
    let d = Segments { own: own.path().into(), ..host.eager() };
    assert_eq!(d.port_of(&qp(1, 17)), None);
    assert_eq!(host.eager().port_of(&qp(1, 17)), Some(7002));
}

#[test]
fn the_dead_are_not_told() {
    let host = Host::new();
    let d = host.eager();
    let a = host.process(1).has(17, 1);
    assert_eq!(d.port_of(&qp(1, 17)), Some(7001));
    drop(a);
    assert_eq!(discover::list(host.0.path()).unwrap().len(), 1, "a crash leaves it");
    assert_eq!(d.port_of(&qp(1, 17)), None);
    assert_eq!(host.eager().port_of(&qp(1, 17)), None);
    // Its number is used again.
    let again = host.process(1).has(18, 1);
    assert_eq!((d.port_of(&qp(1, 17)), d.port_of(&qp(1, 18))), (None, Some(7001)));
    // Another process gets the dead one's QP number.
    let b = host.process(2).has(17, 1);
    assert_eq!(d.port_of(&qp(1, 17)), Some(7002));
    again.telemetry.segment().unlink();
    b.telemetry.segment().unlink();
    assert_eq!((d.port_of(&qp(1, 17)), d.port_of(&qp(1, 18))), (None, None), "gone");
}

#[test]
fn a_number_that_moved_is_found_where_it_is() {
    let host = Host::new();
    let (a, b) = (host.process(1).has(17, 1), host.process(2).has(99, 1));
    let d = host.eager();
    assert_eq!(d.port_of(&qp(1, 17)), Some(7001));
    a.destroy(17);
    let b = b.has(17, 1);
    assert_eq!(d.port_of(&qp(1, 17)), Some(7002));
    b.destroy(17);
    let _a = a.has(17, 1);
    assert_eq!(d.port_of(&qp(1, 17)), Some(7001));
}

#[test]
fn what_is_not_there_is_looked_for_again_but_not_at_once() {
    let host = Host::new();
    let d = Segments { pace: Pace { pause: HOUR, ..EAGER }, ..host.eager() };
    assert_eq!(d.port_of(&qp(1, 17)), None);
    let _a = host.process(1).has(17, 1);
    assert_eq!(d.port_of(&qp(1, 17)), None, "however many ask");
    // The time has come.
    d.seen.borrow_mut().next = None;
    assert_eq!(d.port_of(&qp(1, 17)), Some(7001));
    assert_eq!(d.port_of(&qp(1, 17)), Some(7001), "known now");
}

#[test]
fn a_host_full_of_processes_is_looked_at_in_parts() {
    let host = Host::new();
    let all: Vec<Process> = (1..=40).map(|pid| host.process(pid).has(pid, 1)).collect();
    // No budget: one segment at a time.
    let d = Segments { pace: Pace { budget: Duration::ZERO, ..EAGER }, ..host.eager() };
    (0..40).for_each(|_| assert_eq!(d.port_of(&qp(1, 99)), None));
    assert_eq!(d.seen.borrow().segments.len(), 40, "one with each question");
    let patient = Segments { pace: Pace { pause: HOUR, ..EAGER }, ..d };
    for p in &all {
        assert_eq!(patient.port_of(&qp(1, u32::from(p.own_port()) - 7000)), Some(p.own_port()));
    }
}

#[test]
fn what_is_kept_has_a_bound() {
    let host = Host::new();
    let a = host.process(1);
    let a = (0..300).fold(a, |a, qpn| a.has(qpn, 1));
    let d = Segments { pace: Pace { most_qps: 200, ..EAGER }, ..host.eager() };
    assert_eq!((d.port_of(&qp(1, 3)), d.port_of(&qp(1, 299))), (Some(a.own_port()), None));
    assert_eq!(d.seen.borrow().segments.values().map(Known::qps).sum::<usize>(), 200);
    let _b = host.process(2).has(500, 1);
    assert!(d.port_of(&qp(1, 500)).is_none() || d.port_of(&qp(1, 3)).is_none());
}

#[test]
fn a_segment_is_read_again_when_it_was_touched() {
    let host = Host::new();
    let a = host.process(1).has(17, 1);
    a.last_touched(5 * SETTLED_NS);
    let d = host.eager();
    assert_eq!((d.port_of(&qp(1, 17)), d.port_of(&qp(1, 18))), (Some(7001), None));
    let before = a.header().heartbeat_ns.load(Relaxed);
    let a = a.has(18, 1);
    let now = a.header().heartbeat_ns.swap(before, Relaxed);
    assert_eq!(d.port_of(&qp(1, 18)), None, "it seems to be untouched");
    a.header().heartbeat_ns.store(now, Relaxed);
    assert_eq!(d.port_of(&qp(1, 18)), Some(7001));
    // Not settled yet: the call that was noted may go on.
    a.last_touched(0);
    assert_eq!(d.port_of(&qp(1, 19)), None);
    let before = a.header().heartbeat_ns.load(Relaxed);
    let a = a.has(19, 1);
    a.header().heartbeat_ns.store(before, Relaxed);
    assert_eq!(d.port_of(&qp(1, 19)), Some(7001));
}

#[test]
fn a_record_that_changes_is_not_told() {
    let host = Host::new();
    let a = host.process(1).has(17, 1);
    let d = host.eager();
    assert_eq!(d.port_of(&qp(1, 17)), Some(7001));
    let seq = &a.objects.qps.get(address_of(17)).unwrap().record.seq;
    seq.store(seq.load(Relaxed) + 1, Relaxed);
    assert_eq!(d.port_of(&qp(1, 17)), None);
    seq.store(seq.load(Relaxed) + 1, Relaxed);
    assert_eq!(d.port_of(&qp(1, 17)), Some(7001));
}

#[test]
fn files_that_are_no_whole_segment_hurt_nobody() {
    let host = Host::new();
    let file = |pid: u32| host.0.path().join(format!("telereduce.{}.{pid}", own_uid()));
    let whole = host.process(1).has(17, 1);
    let bytes = fs::read(whole.path()).unwrap();
    let version = offset_of!(Header, version);
    for (pid, cut) in [(2, 0), (3, 1), (4, 8191), (5, 8192), (6, bytes.len() / 2), (7, bytes.len() - 1)] {
        fs::write(file(pid), &bytes[..cut]).unwrap();
    }
    let mut other = bytes.clone();
    other[version..version + 4].copy_from_slice(&(ABI_VERSION + 1).to_le_bytes());
    fs::write(file(8), &other).unwrap();
    fs::write(file(9), vec![0xa5; 100_000]).unwrap();
    std::os::unix::fs::symlink("/dev/zero", file(10)).unwrap();
    fs::create_dir(file(11)).unwrap();
    let fifo = std::ffi::CString::new(file(12).to_str().unwrap()).unwrap();
    // SAFETY: a name that ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    let mut random = crate::control::testing::Random::new(1);
    for pid in 20..60 {
        let mut bytes = bytes.clone();
        (0..50).for_each(|_| bytes[random.below(9000)] = random.next() as u8);
        fs::write(file(pid), bytes).unwrap();
    }
    let d = host.eager();
    for _ in 0..3 {
        assert_eq!((d.port_of(&qp(1, 17)), d.port_of(&qp(1, 99))), (Some(7001), None));
    }
    // One that becomes whole is found, one that is cut short is not any more.
    let late = host.process(13).has(18, 1);
    let magic = late.header().magic.swap(0, Relaxed);
    assert_eq!(d.port_of(&qp(1, 18)), None);
    late.header().magic.store(magic, Relaxed);
    assert_eq!(d.port_of(&qp(1, 18)), Some(7013));
    fs::OpenOptions::new().write(true).open(late.path()).unwrap().write_at(&[0; 8], 0).unwrap();
    assert_eq!(d.port_of(&qp(1, 18)), None);
    assert_eq!(d.port_of(&qp(1, 17)), Some(7001));
}

#[test]
fn no_folder_is_no_error_and_this_network_has_a_number() {
    let d = Segments::new(Path::new("/nonexistent"), Path::new("/none"), network());
    assert_eq!(d.port_of(&qp(1, 17)), None);
    assert_ne!(network(), 0);
    assert_eq!(network(), fs::metadata("/proc/self/ns/net").unwrap().ino());
}
