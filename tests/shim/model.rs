//! Random lives of QPs, driven straight through the registry without hooks, against the dullest model there is: lists.
//!
//! QP numbers and addresses come from a small set, so that both are used again at once, and far more QPs are destroyed
//! than records are kept for. After every few steps each port's sums must be the model's.

mod datagrams;
mod records;

use proptest::test_runner::{Config as Cases, TestRunner};
use rdma_sys::{ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc, ibv_wc_status};
use std::collections::VecDeque;
use telereduce::clock::Clock;
use telereduce::config::Config;
use telereduce::shm::layout::Hooked;
use telereduce::shm::model::Counters;
use telereduce::shm::reader::Reader;
use telereduce::shm::segment::Identity;
use telereduce::shm::snapshot;
use telereduce::telemetry::cq::CqSpec;
use telereduce::telemetry::qp::{Qp, QpSpec};
use telereduce::telemetry::registry::{Address, Device, Objects, QpChange, RETAINED, Telemetry};
use telereduce::verbs::DataPath;
use telereduce_tests::Dir;
use telereduce_tests::compare::{assert_balanced, assert_details, assert_nothing_missed};

const SLOTS: usize = 6;
const CQS: usize = 2;
const DEPTH: usize = 20;

unsafe extern "C" fn no_send(_: *mut rdma_sys::ibv_qp, _: *mut ibv_send_wr, _: *mut *mut ibv_send_wr) -> i32 {
    unreachable!()
}
unsafe extern "C" fn no_recv(_: *mut rdma_sys::ibv_qp, _: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> i32 {
    unreachable!()
}
unsafe extern "C" fn no_post(
    _: *mut rdma_sys::ibv_srq,
    _: *mut ibv_recv_wr,
    _: *mut *mut ibv_recv_wr,
) -> core::ffi::c_int {
    0
}

unsafe extern "C" fn no_poll(_: *mut rdma_sys::ibv_cq, _: i32, _: *mut ibv_wc) -> i32 {
    unreachable!()
}

const CQ_SPEC: CqSpec = CqSpec { real: no_poll, cqe: 64, extended: false, tells_qp: true, opaque: false };

/// xorshift: one seed, one life.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }
}

#[derive(Clone, Copy)]
struct Wr {
    id: u64,
    bytes: u32,
    signaled: bool,
}

/// A QP of the model.
struct Life {
    port: usize,
    cq: usize,
    connected: bool,
    broken: bool,
    sends: VecDeque<Wr>,
    recvs: VecDeque<Wr>,
}

/// Sums of a port in the model.
#[derive(Clone, Copy, Default)]
struct Sums {
    send: Counters,
    recv: Counters,
    /// Buffer bytes of receives that completed well.
    capacity: u64,
}

struct World {
    t: Telemetry,
    objects: &'static Objects,
    device: &'static Device,
    random: Random,
    lives: [Option<Life>; SLOTS],
    ports: [Sums; 2],
    next_id: u64,
    destroyed: usize,
}

fn address(slot: usize) -> usize {
    0x1000 + slot * 0x100
}

fn cq_address(i: usize) -> usize {
    0x90_0000 + i * 0x100
}

impl World {
    fn new(dir: &Dir, seed: u64) -> World {
        let config = Config { dir: dir.segment_dir(), latency_every: 3, ..Config::default() };
        // SAFETY: no preconditions.
        let uid = unsafe { libc::geteuid() };
        let who = Identity { pid: std::process::id(), uid, command: "model".into(), ..Identity::default() };
        let clock: &'static Clock = Box::leak(Box::new(Clock::new()));
        clock.start();
        let objects: &'static Objects = Box::leak(Box::new(Objects::new()));
        let t = Telemetry::new(&config, &who, clock, objects).expect("a segment");
        let device = t.open_device("model0", Hooked::Linked);
        for i in 0..CQS {
            t.create_cq(device, cq_address(i), CQ_SPEC);
        }
        World {
            t,
            objects,
            device,
            random: Random(seed | 1),
            lives: [const { None }; SLOTS],
            ports: [Sums::default(); 2],
            next_id: 0,
            destroyed: 0,
        }
    }

    fn qp(&self, slot: usize) -> &'static Qp {
        self.objects.qps.get(address(slot)).expect("a QP at this address")
    }

    fn create(&mut self, slot: usize) {
        let cq = self.random.below(CQS);
        let at = |i: usize| self.objects.cqs.get(cq_address(i));
        let spec = QpSpec {
            real: DataPath { post_send: no_send, post_recv: no_recv, post_srq_recv: None, poll_cq: no_poll },
            qp_num: 100 + slot as u32,
            qp_type: 2,
            sig_all: false,
            max_send_wr: DEPTH as u32,
            max_recv_wr: DEPTH as u32,
            max_send_sge: 2,
            max_recv_sge: 2,
            extended: false,
            opaque: false,
            send_cq: at(cq),
            recv_cq: at(cq),
            srq: None,
        };
        self.t.create_qp(self.device, address(slot), spec);
        let port = self.random.below(2);
        let (sends, recvs) = (VecDeque::new(), VecDeque::new());
        self.lives[slot] = Some(Life { port, cq, connected: false, broken: false, sends, recvs });
    }

    fn connect(&mut self, slot: usize) {
        let peer = self.random.below(3) as u8;
        let life = self.lives[slot].as_mut().expect("alive");
        life.connected = true;
        let change = QpChange {
            state: Some(3),
            port_num: Some(life.port as u8 + 1),
            dest_qp_num: Some(7),
            address: Some(Address { gid: Some([peer; 16]), lid: 0 }),
        };
        self.t.modify_qp(self.device, self.qp(slot), change);
    }

    /// What was in flight is dropped.
    fn drop_all(&mut self, slot: usize) {
        let life = self.lives[slot].as_mut().expect("alive");
        let sums = &mut self.ports[life.port];
        for w in life.sends.drain(..) {
            sums.send.wr_dropped += 1;
            sums.send.bytes_dropped += u64::from(w.bytes);
        }
        for w in life.recvs.drain(..) {
            sums.recv.wr_dropped += 1;
            sums.recv.bytes_dropped += u64::from(w.bytes);
        }
        (life.connected, life.broken) = (false, false);
    }

    fn reset(&mut self, slot: usize) {
        self.drop_all(slot);
        self.t.modify_qp(self.device, self.qp(slot), QpChange { state: Some(0), ..QpChange::default() });
        // The next life may be on the other port.
        let port = self.random.below(2);
        self.lives[slot].as_mut().expect("alive").port = port;
    }

    fn destroy(&mut self, slot: usize) {
        self.drop_all(slot);
        let qp = self.qp(slot);
        self.t.hide_qp(self.device, qp);
        // Sometimes the provider says no at first.
        if self.random.below(8) == 0 {
            self.t.show_qp(self.device, qp);
            self.t.hide_qp(self.device, qp);
        }
        self.t.retire_qp(qp);
        self.lives[slot] = None;
        self.destroyed += 1;
    }

    fn wrs(&mut self, n: usize) -> Vec<Wr> {
        (0..n)
            .map(|_| {
                self.next_id += 1;
                let (bytes, signaled) = (self.random.below(5000) as u32, self.random.below(3) == 0);
                Wr { id: self.next_id, bytes, signaled }
            })
            .collect()
    }

    /// A chain, of which the provider may refuse the end.
    fn post(&mut self, slot: usize, receives: bool) {
        let n = 1 + self.random.below(5);
        let wrs = self.wrs(n);
        let refuses = self.random.below(4) == 0;
        let life = self.lives[slot].as_ref().expect("alive");
        let queue = if receives { life.recvs.len() } else { life.sends.len() };
        let room = (DEPTH - queue.min(DEPTH)).min(n);
        let accepted = if refuses { self.random.below(room + 1) } else { room };
        let qp = self.qp(slot);
        let opcode = [0, 2, 4][self.random.below(3)];
        let mut sges: Vec<ibv_sge> = wrs.iter().map(|w| ibv_sge { addr: 0, length: w.bytes, lkey: 0 }).collect();
        if receives {
            // SAFETY: an all-zero WR is a valid value.
            let mut chain: Vec<ibv_recv_wr> = wrs.iter().map(|_| unsafe { core::mem::zeroed() }).collect();
            for i in 0..n {
                (chain[i].wr_id, chain[i].sg_list, chain[i].num_sge) = (wrs[i].id, &mut sges[i], 1);
            }
            let start = chain.as_mut_ptr();
            // SAFETY: the chain and its lists outlive the calls.
            unsafe {
                (1..n).for_each(|i| (*start.add(i - 1)).next = start.add(i));
                let mut tail = qp.recvs.tail.lock();
                let noted = qp.note_recvs(&mut tail, start);
                if accepted == n {
                    qp.recvs_accepted(noted);
                } else {
                    qp.recvs_refused(noted, start, start.add(accepted));
                }
            }
        } else {
            // SAFETY: as above.
            let mut chain: Vec<ibv_send_wr> = wrs.iter().map(|_| unsafe { core::mem::zeroed() }).collect();
            for i in 0..n {
                (chain[i].wr_id, chain[i].sg_list, chain[i].num_sge) = (wrs[i].id, &mut sges[i], 1);
                (chain[i].opcode, chain[i].send_flags) = (opcode, if wrs[i].signaled { 2 } else { 0 });
            }
            let start = chain.as_mut_ptr();
            // SAFETY: as above.
            unsafe {
                (1..n).for_each(|i| (*start.add(i - 1)).next = start.add(i));
                let mut tail = qp.sends.tail.lock();
                // As the hook does.
                if let Some(one) = qp.note_send(&tail, &*start) {
                    assert_eq!(n, 1);
                    if accepted == 1 {
                        qp.send_accepted(one);
                    }
                } else {
                    let noted = qp.note_sends(&mut tail, start);
                    if accepted == n {
                        qp.sends_accepted(noted);
                    } else {
                        qp.sends_refused(noted, start, start.add(accepted));
                    }
                }
            }
        }
        let life = self.lives[slot].as_mut().expect("alive");
        let sums = &mut self.ports[life.port];
        let (queue, sums) =
            if receives { (&mut life.recvs, &mut sums.recv) } else { (&mut life.sends, &mut sums.send) };
        for w in &wrs[..accepted] {
            queue.push_back(*w);
            sums.wr_posted += 1;
            sums.bytes_posted += u64::from(w.bytes);
        }
    }

    fn polled(&self, cq: usize, wcs: &[ibv_wc]) {
        let cq = self.objects.cqs.get(cq_address(cq)).expect("a CQ");
        let mut last = cq.lock.lock();
        // As the hook does.
        if wcs.len() != 1 || !cq.completed_send(&last, &wcs[0]) {
            cq.completed(&mut last, wcs);
        }
    }

    fn wc(&mut self, slot: usize, id: u64, status: u32, receive: bool) -> ibv_wc {
        // SAFETY: an all-zero completion is a valid value.
        let mut wc: ibv_wc = unsafe { core::mem::zeroed() };
        (wc.wr_id, wc.status, wc.qp_num) = (id, status, 100 + slot as u32);
        wc.opcode = if receive { 128 } else { 0 };
        if status != ibv_wc_status::IBV_WC_SUCCESS {
            // Only wr_id, status, qp_num and vendor_err are valid then.
            (wc.opcode, wc.byte_len) = (self.random.below(256) as u32, u32::MAX);
        }
        wc
    }

    /// Some signaled sends and some receives complete well.
    fn complete(&mut self, slot: usize) {
        let mut wcs = Vec::new();
        let cq = self.lives[slot].as_ref().expect("alive").cq;
        for _ in 0..self.random.below(4) {
            let life = self.lives[slot].as_mut().expect("alive");
            let Some(at) = life.sends.iter().position(|w| w.signaled) else { break };
            let sums = &mut self.ports[life.port].send;
            let mut id = 0;
            for w in life.sends.drain(..=at) {
                sums.wr_completed += 1;
                sums.bytes_completed += u64::from(w.bytes);
                id = w.id;
            }
            sums.cqes += 1;
            wcs.push(self.wc(slot, id, ibv_wc_status::IBV_WC_SUCCESS, false));
        }
        for _ in 0..self.random.below(4) {
            let Some(w) = self.lives[slot].as_mut().expect("alive").recvs.pop_front() else { break };
            let mut wc = self.wc(slot, w.id, ibv_wc_status::IBV_WC_SUCCESS, true);
            wc.byte_len = self.random.below(w.bytes as usize + 1) as u32;
            let sums = &mut self.ports[self.lives[slot].as_ref().expect("alive").port];
            sums.recv.wr_completed += 1;
            sums.recv.bytes_completed += u64::from(wc.byte_len);
            sums.capacity += u64::from(w.bytes);
            sums.recv.cqes += 1;
            wcs.push(wc);
        }
        self.polled(cq, &wcs);
    }

    /// A send fails, signaled or not; the ones before it that are unsignaled were good, some after it are flushed.
    fn fail(&mut self, slot: usize) {
        self.complete(slot);
        let life = self.lives[slot].as_ref().expect("alive");
        let cq = life.cq;
        let first_signaled = life.sends.iter().position(|w| w.signaled).unwrap_or(life.sends.len().saturating_sub(1));
        if life.sends.is_empty() {
            return;
        }
        let at = if life.broken { 0 } else { self.random.below(first_signaled + 1) };
        let mut wcs = Vec::new();
        let flushed = self.random.below(6);
        for i in 0..=flushed {
            let life = self.lives[slot].as_mut().expect("alive");
            let sums = &mut self.ports[life.port].send;
            let before = if i == 0 { at } else { 0 };
            for w in life.sends.drain(..before) {
                sums.wr_completed += 1;
                sums.bytes_completed += u64::from(w.bytes);
            }
            let Some(w) = life.sends.pop_front() else { break };
            sums.wr_failed += 1;
            sums.bytes_failed += u64::from(w.bytes);
            sums.cqes += 1;
            let status = if i == 0 && !life.broken { ibv_wc_status::IBV_WC_REM_OP_ERR } else { 5 };
            wcs.push(self.wc(slot, w.id, status, false));
        }
        for _ in 0..self.random.below(3) {
            let life = self.lives[slot].as_mut().expect("alive");
            let Some(w) = life.recvs.pop_front() else { break };
            let sums = &mut self.ports[life.port].recv;
            sums.wr_failed += 1;
            sums.bytes_failed += u64::from(w.bytes);
            sums.cqes += 1;
            wcs.push(self.wc(slot, w.id, ibv_wc_status::IBV_WC_WR_FLUSH_ERR, true));
        }
        self.lives[slot].as_mut().expect("alive").broken = true;
        self.polled(cq, &wcs);
    }

    fn close(&mut self) {
        for slot in 0..SLOTS {
            if self.lives[slot].is_some() {
                self.drop_all(slot);
                self.lives[slot] = None;
                self.destroyed += 1;
            }
        }
        self.t.close_device(self.device);
        self.device = self.t.open_device("model0", Hooked::Linked);
        for i in 0..CQS {
            self.t.create_cq(self.device, cq_address(i), CQ_SPEC);
        }
    }

    fn step(&mut self) {
        let slot = self.random.below(SLOTS);
        let Some(life) = &self.lives[slot] else { return self.create(slot) };
        if !life.connected {
            return if self.random.below(20) == 0 { self.destroy(slot) } else { self.connect(slot) };
        }
        let broken = life.broken;
        match self.random.below(40) {
            0..14 => self.post(slot, false),
            14..20 => self.post(slot, true),
            20..32 if !broken => self.complete(slot),
            32..34 => self.fail(slot),
            34..37 => self.reset(slot),
            37..40 => self.destroy(slot),
            _ => self.fail(slot),
        }
        if self.random.below(3000) == 0 {
            self.close();
        }
    }

    fn check(&self) {
        let mut reader = Reader::open(self.t.segment().path()).expect("our segment");
        let s = snapshot::segment(&mut reader, true).expect("our segment");
        for (i, model) in self.ports.iter().enumerate() {
            let line = s.ports.iter().find(|p| p.port == i as u32 + 1).map(|p| p.line).unwrap_or_default();
            let mut want = *model;
            want.send.wr_outstanding =
                want.send.wr_posted - want.send.wr_completed - want.send.wr_failed - want.send.wr_dropped;
            want.send.bytes_outstanding =
                want.send.bytes_posted - want.send.bytes_completed - want.send.bytes_failed - want.send.bytes_dropped;
            want.recv.wr_outstanding =
                want.recv.wr_posted - want.recv.wr_completed - want.recv.wr_failed - want.recv.wr_dropped;
            want.recv.bytes_outstanding =
                want.recv.bytes_posted - want.capacity - want.recv.bytes_failed - want.recv.bytes_dropped;
            for (mut got, want) in [(line.send, want.send), (line.recv, want.recv)] {
                (got.wr_high_water, got.bytes_high_water) = (0, 0);
                assert_eq!(got, want, "port {}", i + 1);
            }
        }
        assert_balanced(&s);
        assert_details(&s);
        assert_nothing_missed(&s);
    }

    fn live(&mut self, steps: usize, check_every: usize) {
        for i in 0..steps {
            self.step();
            if i % check_every == 0 {
                self.check();
            }
        }
        self.check();
        self.t.segment().unlink();
    }
}

#[test]
fn ports_add_up_in_any_order_of_events() {
    TestRunner::new(Cases { cases: 48, failure_persistence: None, ..Cases::default() })
        .run(&(1u64.., 1usize..600), |(seed, steps)| {
            World::new(&Dir::new(), seed).live(steps, 7);
            Ok(())
        })
        .expect("every life adds up");
}

#[test]
fn ports_add_up_when_records_are_used_again() {
    let dir = Dir::new();
    let mut world = World::new(&dir, 0x5eed);
    world.live(60_000, 2000);
    assert!(world.destroyed > 2 * RETAINED, "{}", world.destroyed);
}
