//! Hubs on a network in memory: who finds whom, and what happens when they do not.

use super::*;
use crate::control::api::{LinkId, OurQp};
use crate::control::session::{HANDSHAKE_NS, IDLE_NS};
use crate::control::sim::{BASE, Net, SECOND};
use crate::control::testing::{Random, Table, qp};
use crate::control::wire::{LaneId, LaneReady, Psn, QpAddr};

const LIMITS: Limits = Limits { links: 100, unproven: 20, claims: 1000 };

/// Two hosts with a process each, and a pair of QPs.
fn two() -> (Net, QpPair) {
    two_named(1, 2)
}

fn two_named(a: u8, b: u8) -> (Net, QpPair) {
    let mut net = Net::default();
    for (name, host) in [(a, 1), (b, 2)] {
        net.add(name, host, 0, &Table::default(), LIMITS);
    }
    let pair = net.connect((0, 17), (1, 18));
    (net, pair)
}

#[test]
fn a_claim_pairs_both_sides_and_tells_psns() {
    let (mut net, pair) = two();
    let psns = |send, receive| Psns { send: Psn::new(send), receive: Psn::new(receive) };
    net.nodes[0].qps.set(pair.mine, OurQp { peer: Some(pair.yours), psns: psns(5, 6), pool: 1 });
    net.nodes[1]
        .qps
        .set(pair.yours, OurQp { peer: Some(pair.mine), psns: Psns { send: Psn::UNKNOWN, ..psns(6, 5) }, pool: 2 });
    net.claim(0, pair);
    net.settle();
    let link = LinkId(1);
    let told = Psns { send: Psn::UNKNOWN, receive: Psn::new(5) };
    let want = Event::Paired { pair, link, process: [2; 16], psns: told, pool: 2 };
    assert_eq!(net.nodes[0].events, [want]);
    let want = Event::Paired { pair: pair.swapped(), link, process: [1; 16], psns: psns(5, 6), pool: 1 };
    assert_eq!(net.nodes[1].events, [want]);
    // Once is enough.
    net.claim(0, pair);
    net.claim(1, pair.swapped());
    net.pass(60 * SECOND);
    assert_eq!((net.nodes[0].events.len(), net.nodes[1].events.len(), net.dials), (1, 1, 1));
}

#[test]
fn one_link_serves_all_pairs_of_two_processes() {
    let (mut net, _) = two();
    for i in 0..200 {
        let pair = net.connect((0, 100 + i), (1, 300 + i));
        net.claim(0, pair);
        net.claim(1, pair.swapped());
    }
    net.settle();
    assert_eq!((net.nodes[0].hub.links.len(), net.nodes[1].hub.links.len()), (1, 1));
    assert_eq!((net.nodes[0].hub.pairs.len(), net.nodes[1].hub.pairs.len()), (200, 200));
}

#[test]
fn a_claim_before_the_peer_is_connected_waits_for_the_peer_s() {
    let (mut net, pair) = two();
    net.nodes[1].qps.set(pair.yours, OurQp { peer: None, psns: Psns::UNKNOWN, pool: 7 });
    net.claim(0, pair);
    net.settle();
    assert!(net.nodes[0].events.is_empty() && net.nodes[1].events.is_empty(), "not yet, and no failure");
    net.connect((0, 17), (1, 18));
    net.claim(1, pair.swapped());
    net.settle();
    assert_eq!((net.paired(0, pair).len(), net.paired(1, pair.swapped()).len()), (1, 1));
    net.pass(60 * SECOND);
    assert_eq!((net.nodes[0].events.len(), net.nodes[1].events.len()), (1, 1));
}

#[test]
fn a_claim_that_came_too_early_is_tried_again() {
    let (mut net, pair) = two();
    net.nodes[1].qps.set(pair.yours, OurQp { peer: None, psns: Psns::UNKNOWN, pool: 7 });
    net.claim(0, pair);
    net.pass(SECOND / 10);
    net.connect((0, 17), (1, 18));
    net.pass(SECOND);
    assert_eq!((net.paired(0, pair).len(), net.paired(1, pair.swapped()).len()), (1, 1));
}

#[test]
fn what_is_not_connected_to_exactly_the_claimant_is_refused() {
    let (mut net, pair) = two();
    net.nodes[1].qps.set(pair.yours, OurQp { peer: Some(qp([10, 0, 0, 1], 99)), psns: Psns::UNKNOWN, pool: 7 });
    net.claim(0, pair);
    net.pass(60 * SECOND);
    assert_eq!(net.failures(0, pair), [Reason::NotConnected]);
    net.nodes[1].qps.remove(&pair.yours);
    net.claim(0, pair);
    net.pass(60 * SECOND);
    assert_eq!(net.failures(0, pair), [Reason::NotConnected, Reason::UnknownQp]);
    assert!(net.nodes[1].events.is_empty());
    assert!(Tally::get(&net.nodes[1].tally.refused, Reason::NotConnected) > 1);
    assert_eq!(Tally::get(&net.nodes[0].tally.failed, Reason::UnknownQp), 1);
}

#[test]
fn psns_of_another_connection_are_refused() {
    let (mut net, pair) = two();
    let psns = Psns { send: Psn::new(1), receive: Psn::UNKNOWN };
    net.nodes[0].qps.set(pair.mine, OurQp { peer: Some(pair.yours), psns, pool: 7 });
    let psns = Psns { send: Psn::UNKNOWN, receive: Psn::new(2) };
    net.nodes[1].qps.set(pair.yours, OurQp { peer: Some(pair.mine), psns, pool: 7 });
    net.claim(0, pair);
    net.pass(60 * SECOND);
    assert_eq!((net.failures(0, pair), net.nodes[1].events.len()), (vec![Reason::Epoch], 0));
}

#[test]
fn nobody_claims_for_another_host() {
    let (mut net, pair) = two();
    net.disguise = Some((net.nodes[0].ip, [10, 0, 0, 66].into()));
    net.claim(0, pair);
    net.settle();
    assert_eq!((net.failures(0, pair), net.nodes[1].events.len()), (vec![Reason::Address], 0));
}

#[test]
fn gids_without_ip_and_own_qps_fail_at_once() {
    let (mut net, pair) = two();
    let link_local = QpAddr { gid: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], qpn: 3 };
    let pair = QpPair { yours: link_local, ..pair };
    net.claim(0, pair);
    assert_eq!(net.failures(0, pair), [Reason::NoIp]);
    let own = net.connect((0, 40), (0, 41));
    net.claim(0, own);
    assert_eq!((net.failures(0, own), net.dials), (vec![Reason::Loopback], 0));
}

#[test]
fn a_qp_that_is_connected_to_one_of_its_own_process_finds_that_out_when_that_one_is_connected() {
    for early in [false, true] {
        let (mut net, _) = two();
        let own = net.connect((0, 40), (0, 41));
        let theirs = net.nodes[0].qps.find(&own.yours).unwrap();
        net.nodes[0].qps.remove(&own.yours);
        net.claim(0, own);
        if !early {
            net.pass(SECOND / 100);
        }
        net.nodes[0].qps.set(own.yours, theirs);
        net.pass(SECOND);
        assert_eq!(net.failures(0, own), [Reason::Loopback], "early: {early}");
    }
}

#[test]
fn the_owner_behind_a_shared_port_is_found_by_redirect() {
    let (mut net, directory) = (Net::default(), Table::default());
    let a = net.add(1, 1, 0, &Table::default(), LIMITS);
    let owners: Vec<usize> = (0..20).map(|i| net.add(10 + i, 2, 0, &directory, LIMITS)).collect();
    let mut pairs = Vec::new();
    for (i, owner) in owners.iter().enumerate() {
        directory.set(net.qp((*owner, 500 + i as u32)), net.nodes[*owner].own_port);
        pairs.push(net.connect((a, 100 + i as u32), (*owner, 500 + i as u32)));
        net.claim(a, pairs[i]);
    }
    net.settle();
    for (pair, owner) in pairs.iter().zip(&owners) {
        assert_eq!((net.paired(a, *pair).len(), net.paired(*owner, pair.swapped()).len()), (1, 1));
    }
    assert!(net.dials <= 22, "one to each, and one or two to whoever answered: {}", net.dials);
    // From the same host, the directory alone is enough.
    let pair = net.connect((owners[0], 900), (owners[1], 901));
    directory.set(pair.yours, net.nodes[owners[1]].own_port);
    let before = net.dials;
    net.claim(owners[0], pair);
    net.settle();
    assert_eq!((net.paired(owners[0], pair).len(), net.dials), (1, before + 1));
}

#[test]
fn two_processes_of_one_address_find_each_other_though_each_reaches_itself() {
    let (mut net, directory) = (Net::default(), Table::default());
    let b = net.add(2, 1, 0, &directory, LIMITS);
    let a = net.add(1, 1, 0, &directory, LIMITS);
    let pair = net.connect((a, 17), (b, 18));
    net.claim(a, pair);
    net.pass(SECOND / 10);
    assert!(Tally::get(&net.nodes[a].tally.ended, Reason::Loopback) > 0, "it reached itself");
    assert!(net.nodes[a].events.is_empty(), "which says nothing");
    directory.set(pair.yours, net.nodes[b].own_port);
    net.pass(SECOND);
    assert_eq!((net.paired(a, pair).len(), net.paired(b, pair.swapped()).len()), (1, 1));
}

#[test]
fn processes_that_send_on_in_a_circle_are_left() {
    let mut net = Net::default();
    let (to_c, to_b) = (Table::default(), Table::default());
    let a = net.add(1, 1, 0, &Table::default(), LIMITS);
    let b = net.add(2, 2, 0, &to_c, LIMITS);
    let c = net.add(3, 2, 1, &to_b, LIMITS);
    let pair = QpPair { mine: net.qp((a, 1)), yours: net.qp((b, 2)) };
    net.nodes[a].qps.set(pair.mine, OurQp { peer: Some(pair.yours), psns: Psns::UNKNOWN, pool: 7 });
    to_c.set(pair.yours, net.nodes[c].own_port);
    to_b.set(pair.yours, net.nodes[b].own_port);
    net.claim(a, pair);
    net.settle();
    assert_eq!(net.failures(a, pair), [Reason::Redirects]);
}

#[test]
fn another_user_s_processes_are_found_at_the_next_port() {
    let mut net = Net::default();
    let a = net.add(1, 1, 0, &Table::default(), LIMITS);
    net.add(2, 2, 0, &Table::default(), LIMITS);
    let c = net.add(3, 2, 1, &Table::default(), LIMITS);
    let pair = net.connect((a, 1), (c, 2));
    net.claim(a, pair);
    net.settle();
    assert_eq!((net.paired(a, pair).len(), net.dials), (1, 2));
}

#[test]
fn without_a_shim_there_all_ports_are_tried_and_a_bounded_number_of_times() {
    let (mut net, pair) = two();
    net.listeners.clear();
    net.claim(0, pair);
    net.pass(60 * SECOND);
    assert_eq!((net.failures(0, pair), net.dials), (vec![Reason::Refused], 40));
    assert_eq!(net.nodes[0].delays, [Reason::Refused; 4], "each time it is said why it has to wait");
    assert_eq!(
        (net.nodes[0].hub.links.len(), net.nodes[0].hub.routes.len(), net.nodes[0].hub.deadline_ns()),
        (0, 0, None)
    );
}

#[test]
fn connecting_at_once_from_both_ends_leaves_one_link() {
    for names in [(1, 2), (2, 1)] {
        let (mut net, pair) = two_named(names.0, names.1);
        let more = net.connect((0, 27), (1, 28));
        for p in [pair, more] {
            net.claim(0, p);
            net.claim(1, p.swapped());
        }
        assert_eq!(net.dials, 2);
        net.pass(IDLE_NS);
        assert_eq!((net.nodes[0].hub.links.len(), net.nodes[1].hub.links.len()), (1, 1), "{names:?}");
        for p in [pair, more] {
            let (a, b) = (net.paired(0, p), net.paired(1, p.swapped()));
            assert_eq!((a.len(), b.len()), (1, 1));
            assert_eq!(net.other_end(0, a[0]), Some((1, b[0])), "the same link");
        }
        assert_eq!(net.nodes[0].events.len() + net.nodes[1].events.len(), 4, "nothing failed, nothing was lost");
    }
}

#[test]
fn a_second_connection_is_closed_and_its_claims_go_over_the_first() {
    for names in [(1, 2), (2, 1)] {
        let (mut net, pair) = two_named(names.0, names.1);
        net.claim(1, pair.swapped());
        net.settle();
        // The first process knows the second by its own port, not at the well-known one.
        let more = net.connect((0, 27), (1, 28));
        net.claim(0, more);
        net.settle();
        assert_eq!((net.paired(0, more).len(), net.dials, net.nodes[0].hub.links.len()), (1, 2, 1));
        assert_eq!(net.paired(0, more), net.paired(0, pair));
        let third = net.connect((0, 37), (1, 38));
        net.claim(0, third);
        net.settle();
        assert_eq!((net.paired(0, third).len(), net.dials), (1, 2), "and now it knows");
    }
}

#[test]
fn a_lost_link_loses_its_pairs_on_both_sides_and_can_be_made_again() {
    let (mut net, pair) = two();
    net.claim(0, pair);
    net.settle();
    net.break_one(&mut Random::new(1));
    let lost = |pair| Event::Lost { link: LinkId(1), reason: Reason::Lost, pairs: vec![pair] };
    assert_eq!((&net.nodes[0].events[1], &net.nodes[1].events[1]), (&lost(pair), &lost(pair.swapped())));
    net.claim(0, pair);
    net.settle();
    assert_eq!(net.paired(0, pair), [LinkId(1), LinkId(2)]);
}

#[test]
fn closing_tells_every_peer() {
    let (mut net, pair) = two();
    net.claim(0, pair);
    net.settle();
    let now_ns = net.now_ns;
    net.nodes[0].hub.close(now_ns);
    net.send(0, LinkId(1), LaneReady { lane: LaneId { pds: 0, lane: 0, epoch: 0 } }.into());
    net.settle();
    let want = Event::Lost { link: LinkId(1), reason: Reason::Closed, pairs: vec![pair.swapped()] };
    assert_eq!(net.nodes[1].events[1], want);
}

#[test]
fn a_qp_that_goes_is_told_of_and_none_else_can_send_it_away() {
    let (mut net, pair) = two();
    net.claim(0, pair);
    net.settle();
    let going = |pair, epoch| Message::from(QpGoing { pair, epoch });
    let quiet = |pair, epoch| Message::from(QpQuiet { pair, epoch });
    // A pair that the peer does not have: nothing there uses it, and it says so by itself.
    let other = QpPair { mine: qp([10, 0, 0, 1], 1), yours: qp([10, 0, 0, 2], 2) };
    net.send(0, LinkId(1), going(other, 5));
    net.settle();
    assert_eq!(net.nodes[0].events[1], Event::Message { link: LinkId(1), message: quiet(other.swapped(), 5) });
    assert_eq!(net.nodes[1].events.len(), 1);
    // A pair that it has: its shim is told, and answers.
    net.send(0, LinkId(1), going(pair, 6));
    net.settle();
    assert_eq!(net.nodes[1].events[1], Event::Message { link: LinkId(1), message: going(pair, 6) });
    assert!(net.nodes[1].hub.pairs.is_empty());
    net.send(1, LinkId(1), quiet(pair.swapped(), 6));
    net.settle();
    assert_eq!(net.nodes[0].events[2], Event::Message { link: LinkId(1), message: quiet(pair.swapped(), 6) });
    // Connected anew after that: paired anew.
    net.nodes[0].hub.forget(&pair);
    net.claim(0, pair);
    net.settle();
    assert_eq!((net.paired(0, pair).len(), net.paired(1, pair.swapped()).len()), (2, 2));
}

#[test]
fn a_claim_that_is_forgotten_before_its_answer_leaves_no_pair_at_the_peer() {
    let (mut net, pair) = two();
    net.claim(0, pair);
    net.nodes[0].hub.forget(&pair);
    net.claim(0, pair);
    net.settle();
    assert_eq!((net.paired(0, pair).len(), net.nodes[1].hub.pairs.len()), (1, 1), "forgotten and claimed again");
    let second = net.connect((0, 27), (1, 28));
    net.claim(0, second);
    net.nodes[0].hub.forget(&second);
    net.settle();
    assert!(net.paired(0, second).is_empty());
    assert!(!net.nodes[1].hub.pairs.contains_key(&second.swapped()));
}

#[test]
fn an_address_full_of_silent_connections_loses_its_own_oldest() {
    let (mut net, pair) = two();
    let (mine, attacker) = (net.nodes[1].ip, [10, 0, 0, 66].into());
    let hub = &mut net.nodes[1].hub;
    let first = hub.accepted(mine, attacker, [0; 32], 0).unwrap();
    let honest = hub.accepted(mine, [10, 0, 0, 7].into(), [0; 32], 0).unwrap();
    for _ in 0..500 {
        hub.accepted(mine, attacker, [0; 32], 0).unwrap();
    }
    assert_eq!(hub.links.len(), LIMITS.unproven);
    assert!(hub.links.contains_key(&honest) && !hub.links.contains_key(&first));
    // A real peer finds its way all the same.
    net.claim(0, pair);
    net.settle();
    assert_eq!(net.paired(0, pair).len(), 1);
    net.pass(HANDSHAKE_NS);
    assert_eq!(net.nodes[1].hub.links.len(), 1, "the silent ones are gone");
}

#[test]
fn limits_hold_and_say_so() {
    let mut net = Net::default();
    let limits = Limits { links: 1, unproven: 1, claims: 2 };
    let a = net.add(1, 1, 0, &Table::default(), limits);
    let (b, c) = (net.add(2, 2, 0, &Table::default(), limits), net.add(3, 3, 0, &Table::default(), limits));
    let pair = net.connect((a, 1), (b, 1));
    net.claim(a, pair);
    net.settle();
    assert!(net.nodes[a].hub.accepted([10, 0, 0, 1].into(), [10, 0, 0, 9].into(), [0; 32], 0).is_err());
    let others = [2, 3, 4].map(|n| net.connect((a, n), (c, n)));
    others.iter().for_each(|p| net.claim(a, *p));
    assert_eq!(net.failures(a, others[2]), [Reason::Limit], "too many claims");
    net.pass(60 * SECOND);
    assert_eq!(net.failures(a, others[0]), [Reason::Limit], "no link left");
}

#[test]
fn an_answer_to_an_earlier_question_does_not_count() {
    let (mut net, pair) = two();
    let ours = |n| OurQp { peer: Some(pair.yours), psns: Psns { send: Psn::new(n), receive: Psn::UNKNOWN }, pool: 7 };
    let theirs = OurQp { peer: Some(pair.mine), psns: Psns { send: Psn::UNKNOWN, receive: Psn::new(2) }, pool: 7 };
    net.nodes[1].qps.set(pair.yours, theirs);
    net.nodes[0].qps.set(pair.mine, ours(1));
    net.claim(0, pair);
    while net.nodes[0].hub.links[&LinkId(1)].asked.is_empty() {
        assert!(net.deliver_one());
    }
    // Connected anew while the question is on its way.
    net.nodes[0].hub.forget(&pair);
    net.nodes[0].qps.set(pair.mine, ours(2));
    net.claim(0, pair);
    net.settle();
    assert_eq!((net.failures(0, pair), net.paired(0, pair).len()), (vec![], 1));
    assert_eq!(Tally::get(&net.nodes[1].tally.refused, Reason::Epoch), 1);
    assert!(net.nodes[1].hub.pairs.contains_key(&pair.swapped()));
}

#[test]
fn a_link_that_only_one_side_knows_to_be_lost_is_not_taken_over() {
    for names in [(1, 2), (2, 1)] {
        let (mut net, pair) = two_named(names.0, names.1);
        net.claim(0, pair);
        net.settle();
        net.lose(0, LinkId(1));
        net.claim(0, pair);
        net.pass(SECOND);
        assert_eq!(net.paired(1, pair.swapped()).len(), 1, "the old one stands");
        net.lose(1, LinkId(1));
        net.pass(20 * SECOND);
        let (a, b) = (net.paired(0, pair), net.paired(1, pair.swapped()));
        assert_eq!((a.len(), b.len(), net.other_end(0, a[1])), (2, 2, Some((1, b[1]))));
    }
}

#[test]
fn a_host_that_does_not_answer_is_named_and_not_asked_for_every_qp() {
    let (mut net, pair) = two();
    net.deaf = true;
    net.claim(0, pair);
    let pairs: Vec<QpPair> = (0..50).map(|n| net.connect((0, 100 + n), (1, 200 + n))).collect();
    pairs.iter().for_each(|p| net.claim(0, *p));
    net.pass(60 * SECOND);
    assert_eq!((net.failures(0, pair), net.failures(0, pairs[49])), (vec![Reason::NoAnswer], vec![Reason::NoAnswer]));
    assert_eq!(net.dials, 5);
    // Those who come a moment later do not dial again.
    net.deaf = false;
    net.listeners.clear();
    net.dials = 0;
    for p in &pairs {
        net.claim(0, *p);
        net.pass(SECOND / 1000);
    }
    assert_eq!(net.dials, 8);
}

#[test]
fn at_the_limit_a_link_that_serves_nothing_makes_room() {
    let mut net = Net::default();
    let limits = Limits { links: 1, ..LIMITS };
    let a = net.add(1, 1, 0, &Table::default(), limits);
    let (b, c) = (net.add(2, 2, 0, &Table::default(), LIMITS), net.add(3, 3, 0, &Table::default(), LIMITS));
    let (to_b, to_c) = (net.connect((a, 1), (b, 1)), net.connect((a, 2), (c, 2)));
    net.claim(a, to_b);
    net.settle();
    net.nodes[a].hub.forget(&to_b);
    net.claim(a, to_c);
    net.settle();
    assert_eq!(net.paired(a, to_c).len(), 1);
    let want = Event::Lost { link: LinkId(1), reason: Reason::Idle, pairs: vec![] };
    assert_eq!(net.nodes[a].events[1], want, "its lanes are lost");
}

/// One random life of five processes on three hosts. In the end, both sides of every pair agree.
fn life(seed: u64) {
    let mut random = Random::new(seed);
    let mut net = Net::default();
    net.secret = (random.below(2) == 0).then(|| Arc::new(Secret::new(b"the secret of all of them").unwrap()));
    let directories = [(); 4].map(|()| Table::default());
    for (i, host) in [1u8, 1, 2, 2, 3].into_iter().enumerate() {
        let name = random.next() as u8 & 0xf8 | i as u8;
        net.add(name, host, u16::from(i == 3 && random.below(2) == 0), &directories[usize::from(host)], LIMITS);
    }
    let mut pairs = Vec::new();
    for step in 0..random.below(80) as u32 {
        match random.below(8) {
            0..3 => {
                let a = random.below(5);
                let b = (a + 1 + random.below(4)) % 5;
                let pair = net.connect((a, 2 * step), (b, 2 * step + 1));
                for (node, qp) in [(a, pair.mine), (b, pair.yours)] {
                    let host = net.nodes[node].ip.to_string().bytes().last().unwrap() - b'0';
                    directories[usize::from(host)].set(qp, net.nodes[node].own_port);
                }
                pairs.push((a, b, pair));
                net.claim(a, pair);
                if random.below(2) == 0 {
                    net.claim(b, pair.swapped());
                }
            }
            3 => net.break_one(&mut random),
            4 if !pairs.is_empty() => {
                // The QP goes: the peer is told, and both forget.
                let (a, b, pair) = pairs.swap_remove(random.below(pairs.len()));
                net.nodes[a].qps.remove(&pair.mine);
                if let Some(link) = net.nodes[a].hub.pairs.get(&pair).map(|p| p.0) {
                    net.send(a, link, QpGoing { pair, epoch: 1 }.into());
                }
                net.nodes[a].hub.forget(&pair);
                net.nodes[b].qps.remove(&pair.yours);
                net.nodes[b].hub.forget(&pair.swapped());
            }
            5 => net.pass(random.next() % (2 * SECOND)),
            _ => {
                for _ in 0..random.below(12) {
                    net.reorder(&mut random);
                    net.deliver_one();
                }
            }
        }
    }
    net.pass(60 * SECOND);
    for (a, b, pair) in pairs {
        for _ in 0..2 {
            net.claim(a, pair);
            net.pass(60 * SECOND);
        }
        let (x, y) = (net.nodes[a].hub.pairs.get(&pair), net.nodes[b].hub.pairs.get(&pair.swapped()));
        let (x, y) = (x.map(|p| (a, p.0)), y.map(|p| (b, p.0)));
        assert!(x.is_some(), "seed {seed}: {pair:?} {:?}", net.failures(a, pair));
        assert_eq!(x.and_then(|(n, l)| net.other_end(n, l)), y, "seed {seed}: {pair:?}");
    }
    for n in &net.nodes {
        let h = &n.hub;
        assert_eq!(h.pursuits.len(), 0, "seed {seed}");
        assert!(h.routes.values().all(|l| h.links.contains_key(l)), "seed {seed}");
        let of_links: usize = h.links.values().map(|l| l.pairs.len()).sum();
        assert_eq!(of_links, h.pairs.len(), "seed {seed}");
        assert!(h.links.values().all(|l| l.asked.is_empty() && l.waiting.is_empty()), "seed {seed}");
    }
}

#[test]
fn whatever_happens_both_sides_agree_in_the_end() {
    (0..300).for_each(life);
}

/// `cargo test -p telereduce --lib --release lives -- --ignored`
#[test]
#[ignore = "a minute; the command stands above it"]
fn whatever_happens_in_many_lives_both_sides_agree_in_the_end() {
    (0..30_000).for_each(life);
}

#[test]
fn the_well_known_port_is_the_documented_one() {
    assert_eq!(BASE, crate::control::settings::DEFAULT_PORT);
}
