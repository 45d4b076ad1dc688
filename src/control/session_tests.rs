//! Sessions in memory: two that talk to each other, and one that talks to nobody, to a mirror, or to rubbish.

use super::*;
use crate::control::testing::{Random, qp};
use crate::control::wire::{LaneId, LaneReady, QpGoing};
use proptest::prelude::*;

const SECRET: &str = "a secret of this test";
const OTHER: &str = "another secret, not the same";

fn setup(side: Side, secret: Option<&str>) -> Setup {
    let (dialler, listener) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let (my_ip, their_ip, n) = match side {
        Side::Dialler => (dialler, listener, 1),
        Side::Listener => (listener, dialler, 2),
    };
    let secret = secret.map(|s| Arc::new(Secret::new(s.as_bytes()).unwrap()));
    Setup { side, my_ip, their_ip, process: [n; 16], nonce: [n; 32], own_port: 100 + u16::from(n), secret }
}

fn session(side: Side, secret: Option<&str>) -> Session {
    Session::new(setup(side, secret), 0)
}

/// Moves what `from` has to say to `to`; what came of it.
fn deliver(from: &mut Session, to: &mut Session, now_ns: u64) -> Result<Vec<Event>, Reason> {
    let bytes = from.outgoing().to_vec();
    from.sent(bytes.len());
    let (mut input, mut events) = (&bytes[..], Vec::new());
    while let Some(event) = to.receive(&mut input, now_ns)? {
        events.push(event);
    }
    assert!(input.is_empty());
    Ok(events)
}

/// A session, and how it has ended, if it has.
type Met = (Session, Result<(), Reason>);

/// The dialler and the listener after all that they have to say to each other at the start, and how it ended for each.
fn meet(mut d: Session, mut l: Session) -> (Met, Met) {
    let (mut d_end, mut l_end) = (Ok(()), Ok(()));
    while !d.outgoing().is_empty() || !l.outgoing().is_empty() {
        l_end = deliver(&mut d, &mut l, 1).map(drop).and(l_end);
        d_end = deliver(&mut l, &mut d, 1).map(drop).and(d_end);
    }
    ((d, d_end), (l, l_end))
}

fn met(secret: Option<&str>) -> (Session, Session) {
    let ((d, d_end), (l, l_end)) = meet(session(Side::Dialler, secret), session(Side::Listener, secret));
    assert_eq!((d_end, l_end, d.is_ready(), l.is_ready()), (Ok(()), Ok(()), true, true));
    (d, l)
}

fn pair() -> QpPair {
    QpPair { mine: qp([10, 0, 0, 1], 17), yours: qp([10, 0, 0, 2], 18) }
}

/// Two sessions of which one has accepted a claim of the other.
fn proven() -> (Session, Session) {
    let (mut d, mut l) = met(None);
    let id = d.claim(pair(), Psns::UNKNOWN, 5, 1).unwrap().unwrap();
    let claim = Claim { id, pair: pair(), psns: Psns::UNKNOWN, pool: 5 };
    assert_eq!(deliver(&mut d, &mut l, 1), Ok(vec![Event::Claim(claim)]));
    l.answer(id, Answer::Accepted(Psns::UNKNOWN, 6)).unwrap();
    let answered = Event::Answered(id, Answer::Accepted(Psns::UNKNOWN, 6));
    assert_eq!(deliver(&mut l, &mut d, 1), Ok(vec![answered]));
    (d, l)
}

fn lane_message() -> Message {
    LaneReady { lane: LaneId { pds: 1, lane: 2, epoch: 3 } }.into()
}

#[test]
fn two_processes_meet_with_and_without_a_secret() {
    for secret in [None, Some(SECRET)] {
        let (d, l) = met(secret);
        assert_eq!(d.peer().map(|p| (p.process, p.own_port)), Some(([2; 16], 102)));
        assert_eq!(l.peer().map(|p| (p.process, p.own_port)), Some(([1; 16], 101)));
    }
}

#[test]
fn both_learn_why_they_cannot_meet() {
    for (dialler, listener, want) in [
        (Some(SECRET), None, Reason::SecretMissing),
        (None, Some(SECRET), Reason::SecretMissing),
        (Some(SECRET), Some(OTHER), Reason::Secret),
    ] {
        let ((d, d_end), (l, l_end)) = meet(session(Side::Dialler, dialler), session(Side::Listener, listener));
        assert_eq!((d_end, l_end), (Err(want), Err(want)));
        assert!(!d.is_ready() && !l.is_ready());
    }
}

#[test]
fn a_process_that_meets_itself_is_told() {
    let itself = Setup { process: [1; 16], ..setup(Side::Listener, None) };
    let ((_, d_end), (_, l_end)) = meet(session(Side::Dialler, None), Session::new(itself, 0));
    assert_eq!((d_end, l_end), (Err(Reason::Loopback), Err(Reason::Loopback)));
}

#[test]
fn another_version_is_named_on_both_sides() {
    let mut l = session(Side::Listener, None);
    let mut hello = session(Side::Dialler, None).outgoing().to_vec();
    hello[7] = 9;
    assert_eq!(l.receive(&mut &hello[..], 1), Err(Reason::Version));
    let mut d = session(Side::Dialler, None);
    d.sent(d.outgoing().len());
    assert_eq!(deliver(&mut l, &mut d, 1), Err(Reason::Version));
}

#[test]
fn who_sends_back_what_it_gets_proves_nothing() {
    // A mirror at the other end.
    let mut d = session(Side::Dialler, Some(SECRET));
    let bytes = d.outgoing().to_vec();
    assert_eq!(d.receive(&mut &bytes[..], 1), Err(Reason::Loopback));
    // A mirror with a name of its own, which sends the proof back.
    let mut d = session(Side::Dialler, Some(SECRET));
    let mut hello = d.outgoing().to_vec();
    d.sent(hello.len());
    hello[9] ^= 1;
    assert_eq!(d.receive(&mut &hello[..], 1), Ok(None));
    let proof = d.outgoing().to_vec();
    assert_eq!(d.receive(&mut &proof[..], 1), Err(Reason::Secret));
}

#[test]
fn who_lets_the_victim_answer_its_own_challenge_proves_nothing() {
    // The attacker was dialled by the victim and dials the victim itself, to let one connection answer for the other.
    let mut dialled = session(Side::Dialler, Some(SECRET));
    let mut listening = session(Side::Listener, Some(SECRET));
    let named = |mut hello: Vec<u8>| {
        hello[9..25].fill(7);
        hello
    };
    let hello = named(dialled.outgoing().to_vec());
    dialled.sent(usize::MAX);
    assert_eq!(listening.receive(&mut &hello[..], 1), Ok(None));
    let hello = named(listening.outgoing().to_vec());
    listening.sent(usize::MAX);
    assert_eq!(dialled.receive(&mut &hello[..], 1), Ok(None));
    assert_eq!(deliver(&mut dialled, &mut listening, 1), Err(Reason::Secret));
}

#[test]
fn a_listener_gives_no_proof_away() {
    let mut l = session(Side::Listener, Some(SECRET));
    assert_eq!(deliver(&mut session(Side::Dialler, Some(SECRET)), &mut l, 1), Ok(vec![]));
    let hello_bytes = session(Side::Dialler, None).outgoing().len();
    assert_eq!(l.outgoing().len(), hello_bytes, "its greeting and nothing else");
}

#[test]
fn lane_messages_need_a_claim_that_was_accepted() {
    let (mut d, mut l) = proven();
    d.send(&lane_message()).unwrap();
    l.send(&lane_message()).unwrap();
    assert_eq!(deliver(&mut d, &mut l, 1), Ok(vec![Event::Message(lane_message())]));
    assert_eq!(deliver(&mut l, &mut d, 1), Ok(vec![Event::Message(lane_message())]));
    let (mut d, mut l) = met(None);
    d.send(&QpGoing { pair: pair(), epoch: 1 }.into()).unwrap();
    assert_eq!(deliver(&mut d, &mut l, 1), Err(Reason::Order));
    assert_eq!(deliver(&mut l, &mut d, 1), Err(Reason::Order), "and the sender is told");
}

#[test]
fn messages_out_of_their_order_end_a_session() {
    let bytes = |m: Message| {
        let mut b = Vec::new();
        m.encode(&mut b);
        b
    };
    let (mut d, _) = met(None);
    assert_eq!(d.receive(&mut &bytes(setup_hello())[..], 1), Err(Reason::Order));
    let (mut d, _) = met(None);
    assert_eq!(
        d.receive(&mut &bytes(Accept { id: 0, psns: Psns::UNKNOWN, pool: 0 }.into())[..], 1),
        Err(Reason::Order)
    );
    let mut l = session(Side::Listener, None);
    assert_eq!(l.receive(&mut &bytes(lane_message())[..], 1), Err(Reason::Order));
    assert_eq!(session(Side::Listener, None).send(&lane_message()), Err(Reason::Order));
}

fn setup_hello() -> Message {
    let d = session(Side::Dialler, None);
    d.hello.into()
}

#[test]
fn a_refused_or_redirected_claim_is_no_proof() {
    let (mut d, mut l) = met(None);
    let ids: Vec<u32> = (0..2).map(|_| d.claim(pair(), Psns::UNKNOWN, 5, 1).unwrap().unwrap()).collect();
    deliver(&mut d, &mut l, 1).unwrap();
    l.answer(ids[1], Answer::Elsewhere(4)).unwrap();
    l.answer(ids[0], Answer::Refused(Reason::NotConnected)).unwrap();
    let want = vec![
        Event::Answered(ids[1], Answer::Elsewhere(4)),
        Event::Answered(ids[0], Answer::Refused(Reason::NotConnected)),
    ];
    assert_eq!(deliver(&mut l, &mut d, 1), Ok(want));
    assert!(!d.is_proven() && !l.is_proven());
}

#[test]
fn a_peer_that_falls_silent_is_given_up_at_every_stage() {
    // Never a word; half a greeting; a greeting but no proof.
    let mut silent = session(Side::Dialler, None);
    let mut half = session(Side::Listener, None);
    assert_eq!(half.receive(&mut &session(Side::Dialler, None).outgoing()[..20], 5), Ok(None));
    let mut no_proof = session(Side::Listener, Some(SECRET));
    assert_eq!(deliver(&mut session(Side::Dialler, Some(SECRET)), &mut no_proof, 5), Ok(vec![]));
    for s in [&mut silent, &mut half, &mut no_proof] {
        assert_eq!(s.deadline_ns(), Some(HANDSHAKE_NS), "one time for all of it");
        assert_eq!(s.expire(HANDSHAKE_NS - 1), Ok(None));
        assert_eq!(s.expire(HANDSHAKE_NS), Err(Reason::Silent));
        assert_eq!(s.deadline_ns(), None);
    }
    // No answer to a claim: the connection is useless if nothing was ever accepted, else the claim alone is.
    let (mut d, _) = met(None);
    d.claim(pair(), Psns::UNKNOWN, 5, 10).unwrap();
    assert_eq!(d.deadline_ns(), Some(10 + ANSWER_NS));
    assert_eq!(d.expire(10 + ANSWER_NS), Err(Reason::Silent));
    let (mut d, mut l) = proven();
    let id = d.claim(pair(), Psns::UNKNOWN, 5, 10).unwrap().unwrap();
    assert_eq!(d.expire(10 + ANSWER_NS), Ok(Some(Event::Answered(id, Answer::Refused(Reason::Silent)))));
    assert_eq!((d.expire(10 + ANSWER_NS), d.deadline_ns()), (Ok(None), None));
    // The answer comes after all: ignored.
    deliver(&mut d, &mut l, 1).unwrap();
    l.answer(id, Answer::Accepted(Psns::UNKNOWN, 6)).unwrap();
    assert_eq!(deliver(&mut l, &mut d, 1), Ok(vec![]));
}

#[test]
fn a_connection_that_nobody_needs_is_closed() {
    let (mut d, mut l) = met(None);
    assert_eq!(d.deadline_ns(), Some(1 + IDLE_NS));
    assert_eq!(d.expire(1 + IDLE_NS), Err(Reason::Idle));
    assert_eq!(deliver(&mut d, &mut l, 1), Err(Reason::Idle));
    let (d, l) = proven();
    assert_eq!((d.deadline_ns(), l.deadline_ns()), (None, None));
}

#[test]
fn only_so_many_claims_wait() {
    let (mut d, mut l) = met(None);
    for _ in 0..MAX_CLAIMS {
        assert!(d.claim(pair(), Psns::UNKNOWN, 5, 1).unwrap().is_some());
    }
    assert_eq!(d.claim(pair(), Psns::UNKNOWN, 5, 1), Ok(None));
    assert_eq!(deliver(&mut d, &mut l, 1).unwrap().len(), MAX_CLAIMS);
    l.answer(5, Answer::Refused(Reason::NotConnected)).unwrap();
    deliver(&mut l, &mut d, 1).unwrap();
    assert_eq!(d.claim(pair(), Psns::UNKNOWN, 5, 1), Ok(Some(MAX_CLAIMS as u32)));
}

#[test]
fn a_peer_that_does_not_read_ends_the_session_within_bounds() {
    let (mut d, _) = proven();
    let end = (0..MAX_OUTGOING_BYTES).find_map(|_| d.send(&lane_message()).err());
    assert_eq!(end, Some(Reason::Backlog));
    assert!(d.outgoing().len() <= MAX_OUTGOING_BYTES);
    assert_eq!(d.send(&lane_message()), Err(Reason::Backlog));
}

#[test]
fn a_farewell_says_why() {
    let (mut d, mut l) = proven();
    d.close(Reason::Closed);
    assert_eq!(deliver(&mut d, &mut l, 1), Err(Reason::Closed));
    assert!(l.outgoing().is_empty());
    assert_eq!(l.receive(&mut &b"x"[..], 1), Err(Reason::Closed));
}

/// One case: a session in some state gets a valid stream, mutated, or anything else, in pieces, and then no more.
fn anything(seed: u64) {
    let mut random = Random::new(seed);
    let secret = (random.below(2) == 0).then_some(SECRET);
    let mut s = match random.below(4) {
        0 => session(Side::Dialler, secret),
        1 => session(Side::Listener, secret),
        2 => met(secret).0,
        _ => proven().1,
    };
    s.sent(usize::MAX);
    let mut bytes = Vec::new();
    let mut other = setup(s.setup.side.other(), secret);
    other.nonce[0] = random.next() as u8;
    Message::from(Session::new(other, 0).hello).encode(&mut bytes);
    for _ in 0..random.below(30) {
        Message::sample(random.next() as usize, &mut || random.next()).encode(&mut bytes);
    }
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len());
        match random.below(3) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at + 1),
            _ => _ = bytes.splice(at..at, (0..random.below(20)).map(|_| random.next() as u8)).count(),
        }
    }
    let mut rest = &bytes[random.below(2) * random.below(bytes.len())..];
    let mut end = None;
    'all: while !rest.is_empty() {
        let (mut piece, after) = rest.split_at(1 + random.below(rest.len()));
        rest = after;
        loop {
            match s.receive(&mut piece, 2) {
                Ok(Some(Event::Claim(c))) => end = s.answer(c.id, Answer::Refused(Reason::UnknownQp)).err(),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(reason) => end = Some(reason),
            }
            if end.is_some() {
                break 'all;
            }
        }
    }
    assert!(s.outgoing().len() <= MAX_OUTGOING_BYTES);
    match end {
        Some(reason) => assert_eq!(s.receive(&mut &bytes[..], 3), Err(reason), "over for good"),
        // Nothing waits for ever.
        None => match s.deadline_ns() {
            Some(at) => assert!(s.expire(at).is_err()),
            None => assert!(s.is_proven() && s.is_ready()),
        },
    }
}

proptest! {
    #[test]
    fn whatever_arrives_ends_in_a_reason_or_a_deadline(seed: u64) {
        anything(seed);
    }
}

/// `cargo test -p telereduce --lib --release million -- --ignored`
#[test]
#[ignore = "a minute; the command stands above it"]
fn a_million_streams_end_in_a_reason_or_a_deadline() {
    (0..1_000_000).for_each(anything);
}
