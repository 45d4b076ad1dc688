//! Two processes: what travels arrives whole, whatever the path does; and what happens when a path, a port or the other
//! process fails.

mod common;

use common::verbs::*;
use common::{Mail, play};
use rdma_sys::{ibv_qp_type, ibv_wc_status::*, ibv_wr_opcode::*};
use softnic::net::draws::Draws;
use std::time::{Duration, Instant};

const IDEAL: &str = "";
const DIRTY: &str = "
segment = 4096
window = 65536
[[path]]
delay_us = 3.0
jitter_us = 20.0
loss = 0.02
reorder = 0.1
reorder_us = 50.0
";

/// Connects to the other part.
fn meet(mail: &Mail, me: usize, d: &Dev, s: &Shape) -> (Q, Name) {
    let q = Q::new(d, s);
    q.init(s);
    mail.put(&format!("name{me}"), &q.name(d, s).text());
    let peer = Name::parse(&mail.get(&format!("name{}", 1 - me)));
    q.connect(s, &peer);
    together(mail, me, "connected");
    (q, peer)
}

/// Waits until both are here.
fn together(mail: &Mail, me: usize, step: &str) {
    mail.put(&format!("{step}{me}"), "");
    mail.get(&format!("{step}{}", 1 - me));
}

/// The byte that belongs there.
fn pattern(round: u64, at: usize) -> u8 {
    (round as usize * 31 + at * 7 + (at >> 8) + (at >> 16)) as u8
}

fn fill(buf: &mut [u8], round: u64) {
    buf.iter_mut().enumerate().for_each(|(i, b)| *b = pattern(round, i));
}

fn check(buf: &[u8], round: u64, what: &str) {
    if let Some(i) = (0..buf.len()).find(|i| buf[*i] != pattern(round, *i)) {
        panic!("round {round}, {what}: byte {i} of {} is {}, not {}", buf.len(), buf[i], pattern(round, i));
    }
}

const HALF: usize = 1 << 21;

/// One side sends all kinds of messages of all sizes, the other checks each byte.
fn mixture(mail: &Mail, me: usize, rounds: u64) {
    let d = Dev::open(2 * HALF);
    let s = Shape { timeout: 9, retries: 7, ..Shape::default() };
    let (q, peer) = meet(mail, me, &d, &s);
    let mut dice = Draws::new(4711, 0);
    let here = d.addr();
    for round in 0..rounds {
        // Both throw the same dice.
        let kind = dice.below(5);
        let bytes = [dice.below(200), dice.below(5000), dice.below(HALF as u64)][dice.below(3) as usize] as usize;
        let cut = dice.below(bytes as u64 + 1) as u32;
        let offset = dice.below((HALF - bytes) as u64 + 1) as usize;
        let there = peer.addr + offset as u64;
        let mut list = [sge(here, cut, d.key()), sge(here + u64::from(cut), bytes as u32 - cut, d.key())];
        if me == 0 {
            fill(&mut d.buf[..bytes], round);
            if kind == 3 {
                // The peer has the data; it is read to the second half.
                list.iter_mut().for_each(|e| e.addr += HALF as u64);
            }
            if kind != 1 {
                // Else the message may come before its receive, and waits.
                mail.get(&format!("ready{round}"));
            }
            let inline = if bytes <= 128 && kind < 3 { INLINE } else { 0 };
            let flags = SIGNALED | inline;
            let mut w = match kind {
                0 | 1 => immediate(wr(round, IBV_WR_SEND_WITH_IMM, flags, &mut list), round as u32),
                2 => immediate(
                    rdma(wr(round, IBV_WR_RDMA_WRITE_WITH_IMM, flags, &mut list), there, peer.key),
                    round as u32,
                ),
                3 => rdma(wr(round, IBV_WR_RDMA_READ, SIGNALED, &mut list), there, peer.key),
                _ => rdma(wr(round, IBV_WR_RDMA_WRITE, flags, &mut list), there, peer.key),
            };
            assert_eq!(q.post(&mut w), 0);
            let c = q.sent();
            assert_eq!((c.wr_id, c.status), (round, IBV_WC_SUCCESS), "round {round}, kind {kind}, {bytes} bytes");
            if kind == 3 {
                check(&d.buf[HALF..HALF + bytes], round, "read");
            }
            if matches!(kind, 3 | 4) {
                mail.put(&format!("done{round}"), "");
            }
        } else {
            d.buf[..HALF].iter_mut().skip(offset).take(bytes).for_each(|b| *b = 0xee);
            match kind {
                0..3 => {
                    let mut into = [sge(here + offset as u64, bytes as u32, d.key())];
                    assert_eq!(q.receive(round, if kind == 2 { &mut [] } else { &mut into }), 0);
                    mail.put(&format!("ready{round}"), "");
                    let c = q.received();
                    assert_eq!((c.wr_id, c.status, imm_of(&c)), (round, IBV_WC_SUCCESS, round as u32));
                    assert_eq!(c.byte_len as usize, bytes);
                }
                3 => {
                    fill(&mut d.buf[offset..offset + bytes], round);
                    mail.put(&format!("ready{round}"), "");
                    mail.get(&format!("done{round}"));
                }
                _ => {
                    mail.put(&format!("ready{round}"), "");
                    mail.get(&format!("done{round}"));
                }
            }
            check(
                &d.buf[offset..offset + bytes],
                round,
                ["send", "send", "write with immediate", "read", "write"][kind as usize],
            );
        }
    }
    together(mail, me, "end");
}

#[test]
fn every_byte_arrives() {
    play("every_byte_arrives", IDEAL, &[&|m| mixture(m, 0, 300), &|m| mixture(m, 1, 300)]);
}

#[test]
fn every_byte_arrives_over_a_path_that_loses_delays_and_reorders() {
    let name = "every_byte_arrives_over_a_path_that_loses_delays_and_reorders";
    play(name, DIRTY, &[&|m| mixture(m, 0, 60), &|m| mixture(m, 1, 60)]);
}

#[test]
fn every_byte_arrives_where_memory_is_not_reached_directly() {
    let name = "every_byte_arrives_where_memory_is_not_reached_directly";
    play(name, "direct = false\n", &[&|m| mixture(m, 0, 100), &|m| mixture(m, 1, 100)]);
}

#[test]
fn atomics_count_where_memory_is_not_reached_directly() {
    let name = "atomics_count_where_memory_is_not_reached_directly";
    play(name, "direct = false\n", &[&|m| counting(m, 0), &|m| counting(m, 1)]);
}

/// Many WRs at once, of which each adds one: none is lost, none is done twice.
fn counting(mail: &Mail, me: usize) {
    let d = Dev::open(4096);
    let s = Shape { timeout: 9, reads: 8, ..Shape::default() };
    let (q, peer) = meet(mail, me, &d, &s);
    let mut back = [sge(d.addr() + 64 + me as u64 * 64, 8, d.key())];
    // Both add to the word of part 0.
    let word = if me == 0 { (d.addr(), d.key()) } else { (peer.addr, peer.key) };
    let own = Q::new(&d, &s);
    own.init(&s);
    own.connect(&s, &own.name(&d, &s));
    let adder = if me == 0 { own } else { q };
    let patiently = |mut w| {
        while adder.post(&mut w) != 0 {
            assert_eq!(adder.sent().status, IBV_WC_SUCCESS);
        }
    };
    for i in 0..500 {
        let add = wr(i, IBV_WR_ATOMIC_FETCH_AND_ADD, SIGNALED, &mut back);
        patiently(atomic(add, word.0, word.1, 1, 0));
    }
    patiently(rdma(wr(1000, IBV_WR_RDMA_WRITE, SIGNALED | FENCE, &mut []), word.0, word.1));
    while adder.sent().wr_id != 1000 {}
    together(mail, me, "added");
    if me == 0 {
        assert_eq!(u64::from_ne_bytes(d.buf[..8].try_into().expect("8 bytes")), 1000);
    }
    together(mail, me, "end");
}

#[test]
fn atomics_of_two_processes_all_count() {
    play("atomics_of_two_processes_all_count", IDEAL, &[&|m| counting(m, 0), &|m| counting(m, 1)]);
}

#[test]
fn atomics_over_a_path_that_loses_count_once() {
    play("atomics_over_a_path_that_loses_count_once", DIRTY, &[&|m| counting(m, 0), &|m| counting(m, 1)]);
}

/// Part 1 dies while part 0 writes to it.
fn survivor(mail: &Mail, me: usize) {
    let d = Dev::open(1 << 20);
    let s = Shape { timeout: 8, retries: 2, ..Shape::default() };
    let (q, peer) = meet(mail, me, &d, &s);
    if me == 1 {
        mail.get("writing");
        eprintln!("meant to die");
        std::process::abort();
    }
    let mut list = [sge(d.addr(), 1 << 20, d.key())];
    let mut status = IBV_WC_SUCCESS;
    let until = Instant::now() + Duration::from_secs(20);
    for i in 0.. {
        assert!(Instant::now() < until, "it noticed nothing");
        // Such as need the peer's memory, and such as only need its receives.
        let mut w = if i % 2 == 0 {
            rdma(wr(i, IBV_WR_RDMA_WRITE, SIGNALED, &mut list), peer.addr, peer.key)
        } else {
            rdma(wr(i, IBV_WR_RDMA_WRITE, SIGNALED, &mut []), peer.addr, peer.key)
        };
        assert_eq!(q.post(&mut w), 0);
        status = q.sent().status;
        if i == 10 {
            mail.put("writing", "");
        }
        if status != IBV_WC_SUCCESS {
            break;
        }
    }
    assert_eq!((status, q.state()), (IBV_WC_RETRY_EXC_ERR, 6));
}

#[test]
fn a_peer_that_dies_answers_no_more() {
    play("a_peer_that_dies_answers_no_more", IDEAL, &[&|m| survivor(m, 0), &|m| survivor(m, 1)]);
}

/// How many WRs went through before one failed.
fn until_failure(mail: &Mail, me: usize) {
    let d = Dev::open(4096);
    let s = Shape { timeout: 5, retries: 0, ..Shape::default() };
    let (q, peer) = meet(mail, me, &d, &s);
    if me == 0 {
        let mut n = 0;
        while n < 100_000 {
            let mut list = [sge(d.addr(), 8, d.key())];
            assert_eq!(q.post(&mut rdma(wr(n, IBV_WR_RDMA_WRITE, SIGNALED, &mut list), peer.addr, peer.key)), 0);
            if q.sent().status != IBV_WC_SUCCESS {
                break;
            }
            n += 1;
        }
        mail.put("result", &n.to_string());
    }
    together(mail, me, "end");
}

#[test]
fn the_same_seed_makes_the_same_failures() {
    let name = "the_same_seed_makes_the_same_failures";
    let run = |seed: u64| {
        let config = format!("seed = {seed}\n[[path]]\ndelay_us = 1.0\nloss = 0.002\n");
        play(name, &config, &[&|m| until_failure(m, 0), &|m| until_failure(m, 1)])
    };
    // A part plays once, and there is nothing to compare.
    let Some(first) = run(1) else { return };
    let others = [1, 2, 3].map(|seed| run(seed).expect("a result"));
    assert_eq!(first, others[0]);
    assert!(first != others[1] || first != others[2], "{first}, {others:?}");
}

const FAULT: &str = "
[[path]]
to = ['127.0.0.2']
[[path.fault]]
after_packets = 10
for_packets = 3
[[path]]
to = ['127.0.0.3']
[[path.fault]]
after_packets = 10
";

/// A short failure is bridged by retries, a long one is not.
fn faulty(mail: &Mail, me: usize) {
    let d = Dev::open(4096);
    for (gid, ends) in [(2, IBV_WC_SUCCESS), (3, IBV_WC_RETRY_EXC_ERR)] {
        // There and back are two paths, of which only the first fails.
        let s = Shape { timeout: 8, retries: 5, gid: if me == 0 { 1 } else { gid }, ..Shape::default() };
        let q = Q::new(&d, &s);
        q.init(&s);
        mail.put(&format!("name{gid}{me}"), &q.name(&d, &s).text());
        let peer = Name::parse(&mail.get(&format!("name{gid}{}", 1 - me)));
        q.connect(&s, &peer);
        together(mail, me, &format!("connected{gid}"));
        if me == 0 {
            for i in 0..20 {
                let mut list = [sge(d.addr(), 8, d.key())];
                assert_eq!(q.post(&mut rdma(wr(i, IBV_WR_RDMA_WRITE, SIGNALED, &mut list), peer.addr, peer.key)), 0);
                let c = q.sent();
                let expected = if i < 10 { IBV_WC_SUCCESS } else { ends };
                assert_eq!((c.wr_id, c.status), (i, expected), "GID {gid}");
                if expected != IBV_WC_SUCCESS {
                    break;
                }
            }
        }
        together(mail, me, &format!("end{gid}"));
    }
}

#[test]
fn a_peer_that_dies_answers_no_more_where_memory_is_not_reached_directly() {
    let name = "a_peer_that_dies_answers_no_more_where_memory_is_not_reached_directly";
    play(name, "direct = false\n", &[&|m| survivor(m, 0), &|m| survivor(m, 1)]);
}

#[test]
fn a_path_fails_at_its_packet() {
    play("a_path_fails_at_its_packet", FAULT, &[&|m| faulty(m, 0), &|m| faulty(m, 1)]);
}

/// Part 0 breaks a rule; part 1, which never polls, is told by an event, and its sends are flushed.
fn told(mail: &Mail, me: usize) {
    let d = Dev::open(4096);
    let s = Shape::default();
    let (q, peer) = meet(mail, me, &d, &s);
    if me == 0 {
        let mut list = [sge(d.addr(), 8, d.key())];
        assert_eq!(q.post(&mut rdma(wr(1, IBV_WR_RDMA_WRITE, SIGNALED, &mut list), peer.addr, peer.key + 3)), 0);
        assert_eq!(q.sent().status, IBV_WC_REM_ACCESS_ERR);
    } else {
        assert_eq!(q.receive(44, &mut []), 0);
        assert_eq!(d.event(), 3);
        let c = q.received();
        assert_eq!((c.wr_id, c.status, q.state()), (44, IBV_WC_WR_FLUSH_ERR, 6));
    }
    together(mail, me, "end");
}

#[test]
fn the_owner_of_a_qp_in_error_is_told() {
    play("the_owner_of_a_qp_in_error_is_told", IDEAL, &[&|m| told(m, 0), &|m| told(m, 1)]);
}

/// Part 1 sleeps at its channel's descriptor until a completion is there.
fn asleep(mail: &Mail, me: usize) {
    use softnic::capi::cq::*;
    let d = Dev::open(4096);
    let s = Shape::default();
    // SAFETY: live objects.
    let (channel, q) = unsafe {
        let channel = ibv_create_comp_channel(d.ctx);
        let recv_cq = ibv_create_cq(d.ctx, 16, std::ptr::null_mut(), channel, 0);
        (channel, Q::on(&d, &s, d.cq(16), recv_cq))
    };
    q.init(&s);
    mail.put(&format!("name{me}"), &q.name(&d, &s).text());
    q.connect(&s, &Name::parse(&mail.get(&format!("name{}", 1 - me))));
    for round in 0..50u64 {
        if me == 0 {
            mail.get(&format!("armed{round}"));
            assert_eq!(q.post(&mut wr(round, IBV_WR_SEND, SIGNALED, &mut [])), 0);
            assert_eq!(q.sent().status, IBV_WC_SUCCESS);
            continue;
        }
        assert_eq!(q.receive(round, &mut []), 0);
        assert_eq!(unsafe_notify(q.recv_cq), 0);
        mail.put(&format!("armed{round}"), "");
        // SAFETY: live objects.
        unsafe {
            let mut fd = libc::pollfd { fd: (*channel).fd, events: libc::POLLIN, revents: 0 };
            assert_eq!(libc::poll(&raw mut fd, 1, 20_000), 1, "round {round}");
            let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
            assert_eq!(ibv_get_cq_event(channel, &raw mut cq, &raw mut context), 0);
            assert_eq!(cq, q.recv_cq);
            ibv_ack_cq_events(cq, 1);
            // One request, one event.
            assert_eq!(libc::poll(&raw mut fd, 1, 0), 0);
        }
        assert_eq!(q.received().wr_id, round);
    }
    together(mail, me, "end");
}

fn unsafe_notify(cq: *mut rdma_sys::ibv_cq) -> i32 {
    // SAFETY: a live CQ.
    unsafe { (*(*cq).context).ops.req_notify_cq.expect("it can")(cq, 0) }
}

#[test]
fn who_sleeps_is_woken() {
    play("who_sleeps_is_woken", IDEAL, &[&|m| asleep(m, 0), &|m| asleep(m, 1)]);
}

#[test]
fn a_port_goes_down_and_comes_back() {
    let config = "[[port_fault]]\ndevice = 'soft0'\nport = 1\nafter_ms = 50.0\nfor_ms = 100.0\n";
    // Not a name of the default device's: the settings give none, so the default stays.
    play(
        "a_port_goes_down_and_comes_back",
        config,
        &[&|_| {
            let d = Dev::open(4096);
            let s = Shape { timeout: 10, retries: 7, ..Shape::default() };
            let q = Q::new(&d, &s);
            q.init(&s);
            q.connect(&s, &q.name(&d, &s));
            assert_eq!(d.event(), 10);
            let short = Shape { retries: 1, timeout: 1, ..s };
            let lost = Q::new(&d, &short);
            lost.init(&short);
            lost.connect(&short, &lost.name(&d, &short));
            assert_eq!(lost.post(&mut rdma(wr(1, IBV_WR_RDMA_WRITE, SIGNALED, &mut []), d.addr(), d.key())), 0);
            assert_eq!(lost.sent().status, IBV_WC_RETRY_EXC_ERR);
            assert_eq!(d.event(), 9);
            assert_eq!(q.post(&mut rdma(wr(1, IBV_WR_RDMA_WRITE, SIGNALED, &mut []), d.addr(), d.key())), 0);
            assert_eq!(q.sent().status, IBV_WC_SUCCESS);
        }],
    );
}

/// Of an unreliable connection some messages are lost, but none arrives in part.
fn unreliable(mail: &Mail, me: usize) {
    const N: u64 = 400;
    let d = Dev::open(1 << 20);
    let s = Shape { kind: ibv_qp_type::IBV_QPT_UC, rq: 512, access: 2, ..Shape::default() };
    let (q, _) = meet(mail, me, &d, &s);
    const BYTES: usize = 20_000;
    if me == 0 {
        mail.get("posted");
        for i in 0..N {
            fill(&mut d.buf[..BYTES], i);
            let mut list = [sge(d.addr(), BYTES as u32, d.key())];
            let w = wr(i, IBV_WR_SEND_WITH_IMM, SIGNALED, &mut list);
            assert_eq!(q.post(&mut immediate(w, i as u32)), 0);
            assert_eq!(q.sent().status, IBV_WC_SUCCESS);
            // The wire takes the bytes as they are when they arrive.
            std::thread::sleep(Duration::from_micros(150));
        }
        mail.put("sent", "");
    } else {
        for i in 0..48 {
            assert_eq!(q.receive(i, &mut [sge(d.addr() + i * BYTES as u64, BYTES as u32, d.key())]), 0);
        }
        mail.put("posted", "");
        let (mut got, mut last) = (0, None);
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until && last != Some(N as u32 - 1) {
            let Some(c) = poll(q.recv_cq) else {
                std::thread::yield_now();
                if std::fs::exists(
                    std::path::Path::new(&std::env::var("SOFTNIC_TEST_MAIL").expect("a folder")).join("sent"),
                )
                .is_ok_and(|e| e)
                {
                    std::thread::sleep(Duration::from_millis(5));
                    if poll(q.recv_cq).is_none() {
                        break;
                    }
                    got += 1;
                }
                continue;
            };
            let at = c.wr_id as usize * BYTES;
            assert_eq!((c.status, c.byte_len as usize), (IBV_WC_SUCCESS, BYTES));
            assert!(last.is_none_or(|l| imm_of(&c) > l), "in order");
            last = Some(imm_of(&c));
            check(&d.buf[at..at + BYTES], u64::from(imm_of(&c)), "message");
            got += 1;
            let again = &mut [sge(d.addr() + at as u64, BYTES as u32, d.key())];
            assert_eq!(q.receive(c.wr_id, again), 0);
        }
        // Five segments of each, of which 2 % are lost: some 9 in 100 messages, and more if this process is slow.
        assert!((10..N - 1).contains(&got), "{got} of {N}");
    }
    together(mail, me, "end");
}

#[test]
fn unreliable_messages_are_whole_or_not_at_all() {
    let name = "unreliable_messages_are_whole_or_not_at_all";
    play(name, "segment = 4096\n[[path]]\nloss = 0.02\n", &[&|m| unreliable(m, 0), &|m| unreliable(m, 1)]);
}
