use super::*;
use crate::clock::Clock;
use crate::config::Config;
use crate::multipath::paths::Paths;
use crate::multipath::plan::{PASSES, Pass};
use crate::shm::layout::{Hooked, PASS_REASONS};
use crate::shm::reader::Reader;
use crate::shm::segment::Identity;
use crate::shm::snapshot::{self, SegmentJson};
use crate::telemetry::qp::Qp;
use crate::telemetry::registry::{Device, Objects, QpChange, Telemetry};
use crate::telemetry::testing::qp_spec;
use rdma_sys::ibv_qp_type;

const _: () = assert!(PASSES <= PASS_REASONS);

struct Bench {
    telemetry: Telemetry,
    objects: &'static Objects,
    device: &'static Device,
    _dir: tempfile::TempDir,
}

fn bench(paths: Paths) -> Bench {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = Config { dir: dir.path().into(), paths, ..Config::default() };
    let clock: &'static Clock = Box::leak(Box::new(Clock::new()));
    let objects: &'static Objects = Box::leak(Box::new(Objects::new()));
    let who = Identity { pid: std::process::id(), ..Identity::default() };
    let telemetry = Telemetry::new(&config, &who, clock, objects).unwrap();
    let device = telemetry.open_device("null0", Hooked::Linked);
    Bench { telemetry, objects, device, _dir: dir }
}

impl Bench {
    fn qp(&self, n: u32) -> &'static Qp {
        let address = 4096 + n as usize * 64;
        self.telemetry.create_qp(self.device, address, qp_spec(n, ibv_qp_type::IBV_QPT_RC));
        let qp = self.objects.qps.get(address).unwrap();
        let change = QpChange { port_num: Some(1), ..QpChange::default() };
        self.telemetry.modify_qp(self.device, qp, change);
        qp
    }

    fn destroy(&self, qp: &'static Qp) {
        self.telemetry.hide_qp(self.device, qp);
        self.telemetry.retire_qp(qp);
    }

    /// WRs split, and why there is one path, of a record.
    fn read_one(&self, index: u32) -> (u64, Option<Single>) {
        let r = Reader::open(self.telemetry.segment().path()).unwrap();
        let m = &r.multipath[index as usize];
        (m.counters.wr_split.load(Relaxed), Single::from_code(m.single.load(Relaxed)))
    }

    fn read(&self) -> SegmentJson {
        snapshot::segment(&mut Reader::open(self.telemetry.segment().path()).unwrap(), false).unwrap()
    }
}

/// An engine's numbers, `n` times each.
fn stats(n: u64) -> Stats {
    let mut s = Stats { parted: 2 * n, given_up: n, held: 3 * n, chunks: 8 * n, replayed: n, ..Stats::default() };
    s.moved = Moved { split: 2000 * n, on_lanes: 2100 * n, on_qp: 10 * n };
    s.moved_reads = Moved { split: 1000 * n, on_lanes: 1050 * n, on_qp: 5 * n };
    s.large_passed[Pass::Inline as usize] = 7 * n;
    s
}

/// The QP posted this many bytes.
fn posted(qp: &Qp, bytes: u64) {
    bump(&qp.record.send_post.wr_posted, 1);
    bump(&qp.record.send_post.bytes_posted, bytes);
}

#[test]
fn where_multi_path_is_off_nothing_is_said_of_it() {
    let b = bench(Paths::Single);
    let qp = b.qp(7);
    assert!(qp.multipath.is_none());
    let s = b.read();
    assert!(s.qps[0].multipath.is_none() && s.ports[0].multipath.is_none());
    let json = serde_json::to_string(&s).unwrap();
    assert!(!json.contains("multipath") && !json.contains("single_path"));
}

#[test]
fn what_is_told_is_read_back_beside_what_was_posted() {
    let b = bench(Paths::First(4));
    let qp = b.qp(7);
    let m = b.read().qps[0].multipath.clone().unwrap();
    assert_eq!((m.lanes, m.single_path.as_deref()), (0, Some("unconnected")));
    let mut telling = Multipath::new(qp.multipath.unwrap());
    posted(qp, 5000);
    telling.tell(&stats(1), 4, None);
    telling.tell(&stats(2), 3, None);
    telling.lane_failed(true);
    telling.lane_failed(false);
    telling.lane_failed(false);
    let s = b.read();
    let m = s.qps[0].multipath.clone().unwrap();
    assert_eq!((m.lanes, m.lanes_failed_here, m.lanes_failed_there, m.single_path), (3, 1, 2, None));
    let w = m.work;
    assert_eq!((w.wr_split, w.wr_whole, w.wr_held, w.chunks, w.chunks_replayed), (4, 2, 6, 16, 2));
    assert_eq!((w.moved.bytes_split, w.moved.bytes_on_lanes, w.moved.bytes_on_qp), (4000, 4200, 20));
    assert_eq!((w.reads.bytes_split, w.reads.bytes_on_lanes, w.reads.bytes_on_qp), (2000, 2100, 10));
    assert_eq!(w.large_passed.into_iter().collect::<Vec<_>>(), [("inline".to_string(), 14)]);
    assert_eq!(w.bytes_carried, 1000 + 4220);
    assert_eq!(s.ports[0].multipath.as_ref().unwrap().bytes_carried, 1000 + 4220);
    assert_eq!(s.ports[0].line.send.bytes_posted, 5000, "what was posted is another number");

    telling.tell(&stats(2), 0, Some(Single::LinkLost));
    assert_eq!(b.read().qps[0].multipath.as_ref().unwrap().single_path.as_deref(), Some("link_lost"));
    // What was read comes back from its text, and so does a snapshot from before there was any of this.
    let text = serde_json::to_string(&b.read()).unwrap();
    let again: SegmentJson = serde_json::from_str(&text).unwrap();
    assert_eq!(again.qps[0].multipath, b.read().qps[0].multipath);
    let mut old: serde_json::Value = serde_json::from_str(&text).unwrap();
    for part in ["qps", "ports"] {
        old[part][0].as_object_mut().unwrap().remove("multipath").unwrap();
    }
    assert!(serde_json::from_value::<SegmentJson>(old).unwrap().qps[0].multipath.is_none());
}

#[test]
fn a_reset_leaves_the_first_life_s_numbers_to_a_record_of_its_own() {
    let b = bench(Paths::Auto);
    let qp = b.qp(7);
    let mut telling = Multipath::new(qp.multipath.unwrap());
    posted(qp, 5000);
    telling.tell(&stats(1), 4, None);
    b.telemetry.modify_qp(b.device, qp, QpChange { state: Some(0), ..QpChange::default() });
    posted(qp, 2000);
    telling.tell(&stats(3), 0, Some(Single::NoAnswer));
    let s = b.read();
    let of = |live| {
        let q = s.qps.iter().find(|q| q.live == live).unwrap();
        let m = q.multipath.clone().unwrap();
        (m.single_path, m.lanes, m.work.wr_split, m.work.moved.bytes_split)
    };
    assert_eq!(of(false), (None, 4, 2, 2000));
    assert_eq!(of(true), (Some("no_answer".into()), 0, 4, 4000));
    assert_eq!(s.ports[0].multipath.as_ref().unwrap().moved.bytes_split, 6000);
}

#[test]
fn what_records_that_are_given_away_held_stays_with_the_port() {
    let b = bench(Paths::Auto);
    for i in 1..=1500u32 {
        let qp = b.qp(i);
        let m = b.read_one(qp.index);
        assert_eq!(m, (0, Some(Single::Unconnected)), "a record's next QP starts anew");
        posted(qp, 2000);
        Multipath::new(qp.multipath.unwrap()).tell(&stats(1), 2, None);
        b.destroy(qp);
    }
    let s = b.read();
    assert!(s.qps.len() < 1200);
    let port = s.ports[0].multipath.as_ref().unwrap();
    assert_eq!((port.wr_split, port.chunks, port.moved.bytes_split), (3000, 12_000, 3_000_000));
    assert_eq!(port.bytes_carried, s.ports[0].line.send.bytes_posted + 1500 * 110);
}
