//! Peers of datagrams, at random, against lists.

use super::*;
use std::collections::BTreeMap;
use telereduce::telemetry::registry::{MOST_HANDLES, MOST_PEERS};

const UD: u32 = 4;
const QPS: usize = 3;
const HANDLES: usize = 8;
const PEERS: usize = 4;

fn handle_address(i: usize) -> usize {
    0x70_0000 + i * 0x20
}

fn to(peer: usize) -> Address {
    match peer {
        0 => Address { gid: None, lid: 9 },
        _ => Address { gid: Some([peer as u8; 16]), lid: 0 },
    }
}

#[derive(Clone, Copy)]
struct Datagram {
    wr: Wr,
    peer: Option<usize>,
}

/// UD QPs of port 1, and a connected QP with one of their peers, which comes and goes.
struct Senders {
    world: World,
    /// To which peer of which port each handle leads, if it exists.
    handles: [Option<(usize, u8)>; HANDLES],
    open: [VecDeque<Datagram>; QPS],
    broken: [bool; QPS],
    peers: BTreeMap<usize, Counters>,
    nobody: Counters,
    connected: u64,
}

impl Senders {
    fn new(dir: &Dir, seed: u64) -> Senders {
        let mut s = Senders {
            world: World::new(dir, seed),
            handles: [None; HANDLES],
            open: Default::default(),
            broken: [false; QPS],
            peers: BTreeMap::new(),
            nobody: Counters::default(),
            connected: 0,
        };
        (0..QPS).for_each(|q| s.create(q, UD));
        s
    }

    fn below(&mut self, n: usize) -> usize {
        self.world.random.below(n)
    }

    fn create(&mut self, slot: usize, qp_type: u32) {
        let at = |i: usize| self.world.objects.cqs.get(cq_address(i));
        // Two over one CQ.
        let cq = at(slot % CQS);
        let spec = QpSpec {
            real: DataPath { post_send: no_send, post_recv: no_recv, post_srq_recv: None, poll_cq: no_poll },
            qp_num: 100 + slot as u32,
            qp_type,
            sig_all: false,
            max_send_wr: DEPTH as u32,
            max_recv_wr: 1,
            max_send_sge: 2,
            max_recv_sge: 2,
            extended: false,
            opaque: false,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
        };
        self.world.t.create_qp(self.world.device, address(slot), spec);
        self.to_rts(slot, None);
    }

    fn to_rts(&self, slot: usize, address: Option<Address>) {
        let change = QpChange { state: Some(3), port_num: Some(1), dest_qp_num: None, address };
        self.world.t.modify_qp(self.world.device, self.world.qp(slot), change);
    }

    fn counters(&mut self, peer: Option<usize>) -> &mut Counters {
        peer.map_or(&mut self.nobody, |p| self.peers.entry(p).or_default())
    }

    fn handle(&mut self) {
        let i = self.below(HANDLES);
        // Sometimes its end is not seen.
        if self.handles[i].is_some() && self.below(3) > 0 {
            let hidden = self.world.t.hide_handle(handle_address(i)).expect("a handle");
            if self.below(4) == 0 {
                self.world.t.show_handle(handle_address(i), hidden);
                return;
            }
            self.handles[i] = None;
            if self.below(2) == 0 {
                return;
            }
        }
        let (peer, port) = (self.below(PEERS), if self.below(6) == 0 { 2 } else { 1 });
        self.world.t.create_handle(self.world.device, handle_address(i), port, to(peer));
        self.handles[i] = Some((peer, port));
    }

    fn post(&mut self, q: usize) {
        let n = 1 + self.below(6);
        let wrs = self.world.wrs(n);
        let chosen: Vec<usize> = (0..n).map(|_| self.below(HANDLES)).collect();
        let room = DEPTH.saturating_sub(self.open[q].len()).min(n);
        let accepted = if self.below(4) == 0 { self.below(room + 1) } else { room };
        let peers: Vec<Option<usize>> =
            chosen.iter().map(|h| self.handles[*h].filter(|(_, port)| *port == 1).map(|(peer, _)| peer)).collect();
        let qp = self.world.qp(q);
        let mut sges: Vec<ibv_sge> = wrs.iter().map(|w| ibv_sge { addr: 0, length: w.bytes, lkey: 0 }).collect();
        // SAFETY: an all-zero WR is a valid value.
        let mut chain: Vec<ibv_send_wr> = wrs.iter().map(|_| unsafe { core::mem::zeroed() }).collect();
        for i in 0..n {
            (chain[i].wr_id, chain[i].sg_list, chain[i].num_sge) = (wrs[i].id, &mut sges[i], 1);
            (chain[i].opcode, chain[i].send_flags) = (2 + (i as u32 % 2), if wrs[i].signaled { 2 } else { 0 });
            chain[i].wr.ud.ah = core::ptr::without_provenance_mut(handle_address(chosen[i]));
        }
        let start = chain.as_mut_ptr();
        // SAFETY: the chain and its lists outlive the calls.
        unsafe {
            (1..n).for_each(|i| (*start.add(i - 1)).next = start.add(i));
            let mut tail = qp.sends.tail.lock();
            assert!(qp.note_send(&tail, &*start).is_none(), "no datagram is an everyday WR");
            let noted = qp.note_sends(&mut tail, start);
            if accepted == n {
                qp.sends_accepted(noted);
            } else {
                qp.sends_refused(noted, start, start.add(accepted));
            }
        }
        for (wr, peer) in wrs.into_iter().zip(peers).take(accepted) {
            self.open[q].push_back(Datagram { wr, peer });
            let c = self.counters(peer);
            c.wr_posted += 1;
            c.bytes_posted += u64::from(wr.bytes);
        }
    }

    fn completed(&mut self, q: usize, count: usize) {
        for _ in 0..count {
            let d = self.open[q].pop_front().expect("as many");
            let c = self.counters(d.peer);
            c.wr_completed += 1;
            c.bytes_completed += u64::from(d.wr.bytes);
        }
    }

    fn polled(&self, q: usize, wcs: &[ibv_wc]) {
        self.world.polled(q % CQS, wcs);
    }

    fn complete(&mut self, q: usize) {
        let mut wcs = Vec::new();
        for _ in 0..self.below(4) {
            let Some(at) = self.open[q].iter().position(|d| d.wr.signaled) else { break };
            let last = self.open[q][at];
            self.completed(q, at + 1);
            self.counters(last.peer).cqes += 1;
            wcs.push(self.world.wc(q, last.wr.id, ibv_wc_status::IBV_WC_SUCCESS, false));
        }
        self.polled(q, &wcs);
    }

    fn fail(&mut self, q: usize) {
        let mut wcs = Vec::new();
        for i in 0..1 + self.below(5) {
            let signaled = self.open[q].iter().position(|d| d.wr.signaled).unwrap_or(self.open[q].len());
            let good = if i == 0 && !self.broken[q] { self.below(signaled + 1) } else { 0 };
            if good >= self.open[q].len() {
                break;
            }
            self.completed(q, good);
            let d = self.open[q].pop_front().expect("one more");
            let c = self.counters(d.peer);
            c.wr_failed += 1;
            c.bytes_failed += u64::from(d.wr.bytes);
            c.cqes += 1;
            let status = if i == 0 { ibv_wc_status::IBV_WC_LOC_LEN_ERR } else { ibv_wc_status::IBV_WC_WR_FLUSH_ERR };
            wcs.push(self.world.wc(q, d.wr.id, status, false));
            self.broken[q] = true;
        }
        // A receive of this QP could have failed, too, for all that these say: the id tells.
        self.polled(q, &wcs);
    }

    fn drop_all(&mut self, q: usize) {
        while let Some(d) = self.open[q].pop_front() {
            let c = self.counters(d.peer);
            c.wr_dropped += 1;
            c.bytes_dropped += u64::from(d.wr.bytes);
        }
        self.broken[q] = false;
    }

    fn reset(&mut self, q: usize) {
        self.world.t.modify_qp(self.world.device, self.world.qp(q), QpChange { state: Some(0), ..QpChange::default() });
        self.drop_all(q);
        self.to_rts(q, None);
    }

    fn again(&mut self, q: usize) {
        let qp = self.world.qp(q);
        self.world.t.hide_qp(self.world.device, qp);
        self.world.t.retire_qp(qp);
        self.drop_all(q);
        self.create(q, UD);
    }

    /// A connected QP sends one WR to peer 1, which is dropped with it.
    fn come_and_go(&mut self) {
        let slot = QPS;
        self.create(slot, 2);
        self.to_rts(slot, Some(to(1)));
        let qp = self.world.qp(slot);
        let mut sge = ibv_sge { addr: 0, length: 50, lkey: 0 };
        // SAFETY: an all-zero WR is a valid value; it outlives the calls.
        unsafe {
            let mut wr: ibv_send_wr = core::mem::zeroed();
            (wr.sg_list, wr.num_sge) = (&mut sge, 1);
            let mut tail = qp.sends.tail.lock();
            let noted = qp.note_sends(&mut tail, &wr);
            qp.sends_accepted(noted);
        }
        self.world.t.hide_qp(self.world.device, qp);
        self.world.t.retire_qp(qp);
        let c = self.counters(Some(1));
        (c.wr_posted, c.bytes_posted) = (c.wr_posted + 1, c.bytes_posted + 50);
        (c.wr_dropped, c.bytes_dropped) = (c.wr_dropped + 1, c.bytes_dropped + 50);
        self.connected += 1;
    }

    fn step(&mut self) {
        let q = self.below(QPS);
        let broken = self.broken[q];
        match self.below(60) {
            0..5 => self.handle(),
            5..30 if !broken => self.post(q),
            30..48 if !broken => self.complete(q),
            48..52 => self.fail(q),
            52..55 => self.reset(q),
            55 => self.again(q),
            56 => self.come_and_go(),
            _ if broken => self.fail(q),
            _ => {}
        }
    }

    fn check(&self) {
        let mut reader = Reader::open(self.world.t.segment().path()).expect("our segment");
        let s = snapshot::segment(&mut reader, true).expect("our segment");
        let mut all = self.nobody;
        for (peer, want) in &self.peers {
            let address = to(*peer);
            let is_it = |p: &&snapshot::PeerJson| {
                let gid = p.gid.as_ref().map(|g| g.parse::<std::net::Ipv6Addr>().expect("an address").octets());
                p.port == 1 && (gid, p.lid) == (address.gid, u32::from(address.lid))
            };
            let got = s.peers.iter().find(is_it).expect("a peer").line.send;
            assert_same(got, *want, &format!("peer {peer}"));
            all.add(want);
        }
        // Connected QPs' completions are none.
        assert_same(s.ports.iter().find(|p| p.port == 1).expect("port 1").line.send, all, "port");
        assert!(s.peers.iter().filter(|p| p.port == 2).all(|p| p.line.send.wr_posted == 0));
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
        self.world.t.segment().unlink();
    }
}

fn assert_same(mut got: Counters, mut want: Counters, what: &str) {
    want.wr_outstanding = want.wr_posted - want.wr_completed - want.wr_failed - want.wr_dropped;
    want.bytes_outstanding = want.bytes_posted - want.bytes_completed - want.bytes_failed - want.bytes_dropped;
    (got.wr_high_water, got.bytes_high_water) = (0, 0);
    assert_eq!(got, want, "{what}");
}

#[test]
fn peers_add_up_in_any_order_of_events() {
    TestRunner::new(Cases { cases: 48, failure_persistence: None, ..Cases::default() })
        .run(&(1u64.., 1usize..800), |(seed, steps)| {
            Senders::new(&Dir::new(), seed).live(steps, 11);
            Ok(())
        })
        .expect("every life adds up");
}

/// Records of connected QPs are given away to a peer that datagrams go to.
#[test]
fn peers_add_up_when_records_are_used_again() {
    let dir = Dir::new();
    let mut s = Senders::new(&dir, 0x0ddba11);
    s.live(150_000, 5000);
    assert!(s.connected > 1500 && s.peers.values().all(|c| c.wr_failed > 100 && c.wr_dropped > 100));
    assert!(s.nobody.wr_completed > 1000);
}

#[test]
fn handles_that_find_no_room_leave_the_peer_unknown() {
    let dir = Dir::new();
    let mut s = Senders::new(&dir, 7);
    let missed = |s: &Senders| {
        let mut reader = Reader::open(s.world.t.segment().path()).expect("our segment");
        snapshot::segment(&mut reader, false).expect("our segment").missed.objects_untracked
    };
    let handles = &s.world.objects.handles;
    for i in 0..MOST_HANDLES + 5 {
        s.world.t.create_handle(s.world.device, handle_address(i), 1, to(1 + i % 3));
    }
    assert_eq!((handles.count(), missed(&s)), (MOST_HANDLES, 5));
    assert!(handles.get_near(handle_address(0)).is_some() && handles.get_near(handle_address(MOST_HANDLES)).is_none());
    assert!(s.world.t.hide_handle(handle_address(3)).is_some());
    s.world.t.create_handle(s.world.device, handle_address(MOST_HANDLES), 1, to(1));
    assert_eq!((handles.count(), missed(&s)), (MOST_HANDLES, 5));
    // Closing the context forgets those that were not destroyed.
    s.world.t.close_device(s.world.device);
    assert_eq!(handles.count(), 0);
    s.world.device = s.world.t.open_device("model0", Hooked::Linked);
    for i in 0..MOST_PEERS + 20 {
        let gid = core::array::from_fn(|b| if b < 4 { (i as u32).to_ne_bytes()[b] } else { 0x77 });
        s.world.t.create_handle(s.world.device, handle_address(0), 1, Address { gid: Some(gid), lid: 0 });
    }
    // Three were there before.
    assert_eq!(missed(&s), 5 + 20 + 3);
    assert!(handles.get_near(handle_address(0)).is_none(), "the last of them has no room");
    s.world.t.segment().unlink();
}

/// Another context of the device has handles of its own.
#[test]
fn handles_belong_to_their_context() {
    let dir = Dir::new();
    let s = Senders::new(&dir, 7);
    let (t, handles) = (&s.world.t, &s.world.objects.handles);
    let other = t.open_device("model0", Hooked::Linked);
    t.create_handle(s.world.device, handle_address(0), 1, to(1));
    t.create_handle(other, handle_address(1), 1, to(1));
    t.close_device(other);
    assert!(handles.get(handle_address(0)).is_some() && handles.get(handle_address(1)).is_none());
    t.close_device(s.world.device);
    assert_eq!(handles.count(), 0);
    t.segment().unlink();
}
