//! Every message comes back under any split; nothing that arrives can do harm.

use super::*;
use crate::control::testing::Random;
use proptest::prelude::*;

/// Decodes `bytes` in pieces of the sizes that `split` gives; the messages, and the error that ended it.
fn decode(bytes: &[u8], mut split: impl FnMut() -> usize) -> (Vec<Message>, Option<Reason>) {
    let (mut decoder, mut messages) = (Decoder::default(), Vec::new());
    let mut rest = bytes;
    while !rest.is_empty() {
        let (mut piece, after) = rest.split_at(split().clamp(1, rest.len()));
        rest = after;
        loop {
            let before = piece.len();
            match decoder.next(&mut piece) {
                Ok(Some(m)) => messages.push(m),
                Ok(None) => break,
                Err(e) => {
                    assert_eq!(decoder.next(&mut &b"more"[..]), Err(e), "an error is the end");
                    return (messages, Some(e));
                }
            }
            assert!(piece.len() < before, "a message takes bytes");
        }
        assert!(piece.is_empty(), "all is taken");
        assert!(decoder.held() <= MAX_FRAME_BYTES);
    }
    (messages, None)
}

fn encode(messages: &[Message]) -> Vec<u8> {
    let mut out = Vec::new();
    messages.iter().for_each(|m| m.encode(&mut out));
    out
}

fn samples(random: &mut Random, count: usize) -> Vec<Message> {
    (0..count)
        .map(|_| {
            let kind = random.next() as usize;
            Message::sample(kind, &mut || random.next())
        })
        .collect()
}

/// One case of everything that may arrive: valid, mutated, or random bytes, in random pieces.
fn anything(seed: u64) {
    let mut random = Random::new(seed);
    let count = 1 + random.below(6);
    let messages = samples(&mut random, count);
    let mut bytes = encode(&messages);
    let valid = bytes.clone();
    match random.below(4) {
        0 => {}
        1 => {
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
        2 => {
            let (at, len) = (random.below(bytes.len()), random.below(64));
            match random.below(3) {
                0 => bytes.truncate(at),
                1 => _ = bytes.drain(at..(at + len).min(valid.len())),
                _ => _ = bytes.splice(at..at, (0..len).map(|_| random.next() as u8)).count(),
            }
        }
        _ => bytes = (0..random.below(5000)).map(|_| random.next() as u8).collect(),
    }
    let widest = 1 + random.below(300);
    let (decoded, error) = decode(&bytes, || 1 + random.below(widest));
    if bytes == valid {
        assert_eq!((&decoded, error), (&messages, None));
    }
    // What was understood is what was there: it encodes to the very bytes, but for reasons that are not known.
    let other = |m: &Message| {
        matches!(
            m,
            Message::Bye(Bye { reason: Reason::Other })
                | Message::Refuse(Refuse { reason: Reason::Other, .. })
                | Message::LaneRefuse(LaneRefuse { reason: Reason::Other, .. })
        )
    };
    assert!(decoded.iter().any(other) || bytes.starts_with(&encode(&decoded)));
}

#[test]
fn every_message_comes_back() {
    let mut random = Random::new(1);
    for kind in 0..Message::KINDS.len() {
        for _ in 0..50 {
            let m = Message::sample(kind, &mut || random.next());
            let bytes = encode(&[m]);
            assert_eq!(bytes[2], Message::KINDS[kind]);
            assert!(bytes.len() <= MAX_FRAME_BYTES);
            assert_eq!(decode(&bytes, || 1), (vec![m], None));
            assert_eq!(decode(&bytes[..bytes.len() - 1], || usize::MAX), (vec![], None), "more is needed");
        }
    }
}

#[test]
fn the_layout_is_little_endian_without_padding() {
    let bytes = encode(&[Redirect { id: 0x0102_0304, port: 0x4854 }.into(), Bye { reason: Reason::Version }.into()]);
    assert_eq!(bytes, [6, 0, 6, 4, 3, 2, 1, 0x54, 0x48, 1, 0, 15, 8]);
}

#[test]
fn what_is_wrong_is_named() {
    let hello = |mark: u32, version: u16, body: u16| {
        let mut b = Vec::new();
        body.put(&mut b);
        b.push(HELLO);
        mark.put(&mut b);
        version.put(&mut b);
        b.resize(HEAD_BYTES + usize::from(body), 0);
        b
    };
    let size = Hello::BYTES as u16;
    for (bytes, want) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), Reason::Kind),
        (vec![0, 0, 0], Reason::Kind),
        (vec![2, 0, 15, 0, 0], Reason::Length),
        (vec![0xff, 0xff, 1], Reason::Length),
        (hello(MARK, VERSION - 1, size), Reason::Version),
        (hello(MARK, VERSION + 1, size + 40), Reason::Version),
        (hello(MARK, VERSION, size + 40), Reason::Length),
        (hello(7, 7, size), Reason::NotShim),
        (hello(7, 7, size - 1), Reason::NotShim),
        (vec![6, 0, 6, 0, 0, 0, 0, 0, 0], Reason::Value),
    ] {
        assert_eq!(decode(&bytes, || 1), (vec![], Some(want)), "{bytes:?}");
    }
    assert_eq!(decode(&[1, 0, 15, 250], || 1).0, [Bye { reason: Reason::Other }.into()], "a later version's reason");
}

#[test]
fn a_ring_that_cannot_be_is_no_value() {
    let mut random = Random::new(3);
    let qp = |r: &mut Random| QpAddr { gid: [r.next() as u8; 16], qpn: 7 };
    let pair = QpPair { mine: qp(&mut random), yours: qp(&mut random) };
    let ring = LengthRing { pair, id: 1, tag: 2, addr: u64::MAX - (32 << 12), rkey: 3, slots_log2: 12 };
    let error = |ring: LengthRing| decode(&encode(&[ring.into()]), || 1).1;
    assert_eq!(error(ring), None);
    assert_eq!(error(LengthRing { addr: ring.addr + 1, ..ring }), Some(Reason::Value), "past the end");
    assert_eq!(error(LengthRing { addr: 0, slots_log2: 13, ..ring }), Some(Reason::Value));
}

#[test]
fn an_error_is_found_as_soon_as_the_head_is_there() {
    assert_eq!(decode(b"SSH", || 1).1, Some(Reason::Kind));
}

proptest! {
    #[test]
    fn any_messages_come_back_under_any_split(seed: u64, splits in prop::collection::vec(1usize..200, 1..40)) {
        let messages = samples(&mut Random::new(seed), 12);
        let mut splits = splits.iter().cycle();
        prop_assert_eq!(decode(&encode(&messages), || *splits.next().unwrap()), (messages, None));
    }

    #[test]
    fn random_bytes_end_in_an_error_or_wait_within_bounds(bytes in prop::collection::vec(any::<u8>(), 0..6000), piece in 1usize..5000) {
        decode(&bytes, || piece);
    }

    #[test]
    fn whatever_arrives_is_bounded_and_never_misread(seed: u64) {
        anything(seed);
    }
}

/// `cargo test -p telereduce --lib --release million -- --ignored`
#[test]
#[ignore = "a minute; the command stands above it"]
fn a_million_streams_are_bounded_and_never_misread() {
    (0..1_000_000).for_each(anything);
}
