//! Pieces cover the message once, at the right places, whatever its size, address and list.

use super::super::wr::{Fields, SIGNALED, Sge, sublist};
use super::*;
use proptest::prelude::*;

fn settings(min_split: u32, unit: u32, tail: u32) -> Settings {
    Settings { min_split_bytes: min_split, unit_bytes: unit, tail_bytes: tail, ..Settings::default() }
}

fn wr(opcode: u32, flags: u32, remote_addr: u64, sges: &[Sge]) -> WrRef<'_> {
    WrRef { fields: Fields { opcode, flags, remote_addr, ..Fields::default() }, sges, inline: &[] }
}

fn pieces(c: &Cut) -> Vec<Piece> {
    (0..c.units()).map(|i| c.body(i, 1)).chain([c.tail()]).collect()
}

/// The promises that every cut keeps.
fn check(c: &Cut, remote_addr: u64, length: u32, s: &Settings) {
    let all = pieces(c);
    assert!(all.len() >= 3);
    let mut next = 0;
    for (i, p) in all.iter().enumerate() {
        assert_eq!(p.offset, next, "pieces follow each other");
        assert!(p.length >= 1);
        assert!(i == 0 || (remote_addr + u64::from(p.offset)).is_multiple_of(u64::from(ALIGN)), "cut off a boundary");
        if i + 1 < all.len() {
            assert!(p.length <= round_up(s.unit_bytes));
        }
        next += p.length;
    }
    assert_eq!(next, length);
    let n = c.units();
    for (first, count) in [(0, 1), (0, n), (n / 2, n - n / 2), (1, n - 1)] {
        let (run, one, last) = (c.body(first, count), c.body(first, 1), c.body(first + count - 1, 1));
        assert_eq!((run.offset, run.offset + run.length), (one.offset, last.offset + last.length));
    }
    let tail = c.tail().length;
    assert!(tail >= s.tail_bytes.max(1) && tail < s.tail_bytes.max(1) + ALIGN, "tail of {tail} bytes");
}

#[test]
fn exact_cuts() {
    let s = settings(512, 256, 1);
    let cut_of = |addr, len| match plan(&wr(WRITE, 0, addr, &[Sge { addr: 9, length: len, lkey: 1 }]), &s, true) {
        Plan::Split(c) => pieces(&c).iter().map(|p| (p.offset, p.length)).collect::<Vec<_>>(),
        Plan::Pass(p) => panic!("{}", p.name()),
    };
    assert_eq!(cut_of(0, 1024), [(0, 256), (256, 256), (512, 256), (768, 128), (896, 128)]);
    assert_eq!(cut_of(1, 1024), [(0, 255), (255, 256), (511, 256), (767, 256), (1023, 1)]);
    assert_eq!(cut_of(127, 1024), [(0, 129), (129, 256), (385, 256), (641, 256), (897, 127)]);
    assert_eq!(cut_of(0, 513), [(0, 256), (256, 256), (512, 1)]);
}

#[test]
fn every_reason_to_pass_has_its_name() {
    let s = settings(512, 256, 1);
    let list = [Sge { addr: 0, length: 1024, lkey: 0 }];
    let small = [Sge { addr: 0, length: 511, lkey: 0 }];
    let huge = [Sge { addr: 0, length: u32::MAX, lkey: 0 }];
    let of = |w: WrRef<'_>, lanes| match plan(&w, &s, lanes) {
        Plan::Pass(p) => p.name(),
        Plan::Split(_) => "split",
    };
    assert_eq!(of(wr(WRITE, SIGNALED, 0, &list), true), "split");
    assert_eq!(of(wr(WRITE_WITH_IMM, 0, 0, &list), true), "split");
    assert_eq!(of(wr(READ, 0, 0, &list), true), "split");
    for opcode in [2, 3, 5, 6, 7, 8, 9, 10, 14, 15, 77] {
        assert_eq!(of(wr(opcode, 0, 0, &list), true), "opcode");
    }
    assert_eq!(of(wr(WRITE, 0, 0, &small), true), "small");
    assert_eq!(of(wr(WRITE, 0, 0, &[]), true), "small");
    assert_eq!(of(wr(WRITE, INLINE, 0, &list), true), "inline");
    assert_eq!(of(wr(WRITE, 0, 0, &huge), true), "too_long");
    assert_eq!(of(wr(WRITE, 0, u64::MAX - 1000, &list), true), "wraps");
    assert_eq!(of(wr(WRITE, 0, 0, &list), false), "no_lane");
    let without_imm = Settings { split_imm: false, ..s };
    assert_eq!(plan(&wr(WRITE_WITH_IMM, 0, 0, &list), &without_imm, true), Plan::Pass(Pass::Imm));
    let s = settings(1, 4096, 1);
    assert_eq!(plan(&wr(WRITE, 0, 0, &list), &s, true), Plan::Pass(Pass::FewPieces));
    for (i, p) in Pass::ALL.iter().enumerate() {
        assert_eq!(*p as usize, i);
    }
}

#[test]
fn all_alignments_of_all_short_lengths() {
    for past in 0..u64::from(ALIGN) {
        for length in 1..700 {
            for tail in [1, 100, 128, 200] {
                let s = settings(1, 128, tail);
                if let Some(c) = cut(0x1000 + past, length, &s) {
                    check(&c, 0x1000 + past, length, &s);
                } else {
                    assert!(length <= 2 * ALIGN + tail + ALIGN, "{length} bytes at {past} are enough for two bodies");
                }
            }
        }
    }
}

#[test]
fn the_longest_message_and_the_worst_settings() {
    for past in [0u64, 1, 127] {
        let length = LONGEST as u32;
        for (unit, tail) in [(0, 0), (1 << 20, 1), (u32::MAX, 1), (0, 5)] {
            let s = settings(1, unit, tail);
            if let Some(c) = cut((1 << 63) + past, length, &s) {
                let (n, last) = (c.units(), c.body(c.units() - 1, 1));
                assert_eq!(c.body(0, n), Piece { offset: 0, length: c.tail().offset });
                assert_eq!(last.offset + last.length, c.tail().offset, "{n} pieces");
                assert_eq!(c.tail().offset + c.tail().length, length);
            }
        }
    }
    assert_eq!(cut(0, 100, &settings(1, 0, u32::MAX)), None);
}

/// A list whose bytes each have an address of their own.
fn list() -> impl Strategy<Value = Vec<Sge>> {
    proptest::collection::vec(prop_oneof![1 => Just(0u32), 5 => 1u32..900], 1..12).prop_map(|lengths| {
        let of = |(i, length)| Sge { addr: ((i as u64 + 1) << 32) + 7 * i as u64, length, lkey: i as u32 };
        lengths.into_iter().enumerate().map(of).collect()
    })
}

/// Address and key of each byte.
fn bytes_of(list: &[Sge]) -> Vec<(u64, u32)> {
    list.iter().flat_map(|s| (0..u64::from(s.length)).map(|b| (s.addr + b, s.lkey))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn each_remote_byte_meets_its_local_byte(
        sges in list(), remote in 0u64..100_000, unit in 1u32..400, tail in 0u32..300
    ) {
        let s = settings(1, unit, tail);
        let whole = bytes_of(&sges);
        if let Plan::Split(c) = plan(&wr(WRITE, 0, remote, &sges), &s, true) {
            check(&c, remote, whole.len() as u32, &s);
            for p in pieces(&c) {
                let mut part = Vec::new();
                sublist(&sges, p.offset, p.length, &mut part);
                prop_assert!(part.iter().all(|s| s.length > 0) && part.len() <= sges.len());
                prop_assert_eq!(bytes_of(&part), &whole[p.offset as usize..(p.offset + p.length) as usize]);
            }
        }
    }

    #[test]
    fn large_messages_are_covered_too(
        length in 1u32..=1 << 31, remote in any::<u32>(), unit in 1u32..1 << 22
    ) {
        let s = settings(1, unit, 1);
        if let Some(c) = cut(u64::from(remote), length, &s) {
            let n = c.units();
            let some: Vec<u32> = (0..n.min(50)).chain(n.saturating_sub(50)..n).collect();
            for i in some {
                let p = c.body(i, 1);
                let next = if i + 1 < n { c.body(i + 1, 1).offset } else { c.tail().offset };
                prop_assert!(p.length >= 1 && p.offset + p.length == next);
            }
            prop_assert_eq!(c.tail().offset + c.tail().length, length);
        }
    }
}
