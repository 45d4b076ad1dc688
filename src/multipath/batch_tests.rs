//! Whatever passes and whatever is kept, together they are the program's WRs, in order.

use super::super::wr::{READ, SIGNALED, WRITE};
use super::*;
use proptest::prelude::*;

const SEND: u32 = 2;
const LONG: u32 = 512;

/// A WR as a program builds it.
#[derive(Clone, Debug)]
enum Data {
    None,
    List(Vec<u32>),
    Inline(Vec<u8>),
}

type Built = (u64, u32, Vec<Sge>, Vec<u8>);

/// What a provider and the batch get, as the shim hands it out.
struct Hands {
    batch: WrBatch,
    provider: Vec<Built>,
}

impl Hands {
    fn begin(&mut self, wr_id: u64, opcode: u32) {
        self.begin_waiting();
        let fields = Fields { wr_id, opcode, flags: SIGNALED, ..Fields::default() };
        if !self.batch.passes() {
            self.batch.keep(fields);
        } else if opcode == SEND {
            self.provider.push((wr_id, opcode, vec![], vec![]));
        } else {
            self.batch.wait(Waiting { wr_id, opcode, flags: SIGNALED, ..Waiting::default() });
        }
    }

    fn begin_waiting(&mut self) {
        if let Some(w) = self.batch.take_waiting() {
            self.provider.push((w.wr_id, w.opcode, vec![], vec![]));
        }
    }

    fn set(&mut self, data: &Data) {
        let list = |l: &Vec<u32>| -> Vec<Sge> { l.iter().map(|n| Sge { addr: 9, length: *n, lkey: 1 }).collect() };
        let long = matches!(data, Data::List(l) if l.iter().sum::<u32>() >= LONG);
        if long && self.batch.is_waiting() {
            self.batch.keep_waiting();
        }
        self.begin_waiting();
        match data {
            Data::None => {}
            Data::List(l) if self.batch.keeps() => self.batch.set_sges(&list(l)),
            Data::Inline(b) if self.batch.keeps() => self.batch.set_inline(b.chunks(3)),
            Data::List(l) => self.provider.last_mut().unwrap().2 = list(l),
            Data::Inline(b) => self.provider.last_mut().unwrap().3 = b.clone(),
        }
    }

    fn all(&self) -> Vec<Built> {
        let kept =
            self.batch.kept().map(|w| (w.fields.wr_id, w.fields.opcode, w.sges.to_vec(), w.inline.to_vec())).collect();
        [self.provider.clone(), kept].concat()
    }
}

fn wr() -> impl Strategy<Value = (u32, Data)> {
    let data = prop_oneof![
        Just(Data::None),
        prop::collection::vec(0..400u32, 0..4).prop_map(Data::List),
        prop::collection::vec(any::<u8>(), 0..16).prop_map(Data::Inline),
    ];
    (prop::sample::select(&[READ, WRITE, SEND][..]), data)
}

proptest! {
    #[test]
    fn nothing_is_lost_nor_overtaken(batches in prop::collection::vec(prop::collection::vec(wr(), 0..8), 1..4), quota in 0..20u32) {
        let mut h = Hands { batch: WrBatch::new(4, 16), provider: vec![] };
        h.batch.set_quota(quota);
        let mut passed = 0;
        for wrs in batches {
            h.batch.start();
            h.provider.clear();
            let mut want = vec![];
            for (i, (opcode, data)) in wrs.iter().enumerate() {
                h.begin(i as u64, *opcode);
                h.set(data);
                let (list, bytes) = match data {
                    Data::None => (vec![], vec![]),
                    Data::List(l) => (l.iter().map(|n| Sge { addr: 9, length: *n, lkey: 1 }).collect(), vec![]),
                    Data::Inline(b) => (vec![], b.clone()),
                };
                want.push((i as u64, *opcode, list, bytes));
            }
            h.begin_waiting();
            prop_assert_eq!(h.all(), want);
            prop_assert!(!h.batch.is_refused());
            prop_assert_eq!(h.batch.passed(), h.provider.len());
            passed += h.batch.passed() as u32;
            prop_assert_eq!(h.batch.quota() + passed, quota);
            let long = |d: &Data| matches!(d, Data::List(l) if l.iter().sum::<u32>() >= LONG);
            let first = wrs.iter().position(|(o, d)| *o != SEND && long(d)).unwrap_or(wrs.len());
            prop_assert!(h.batch.passed() <= first);
            prop_assert!(h.batch.kept().len() == 0 || h.batch.passed() == first || h.batch.quota() == 0);
        }
    }
}

fn kept(b: &WrBatch) -> Vec<(u32, usize, Vec<u8>)> {
    b.kept().map(|w| (w.fields.flags, w.sges.len(), w.inline.to_vec())).collect()
}

#[test]
fn what_is_set_last_counts_and_says_whether_data_is_inline() {
    let one = Sge { addr: 1, length: 5, lkey: 2 };
    let mut b = WrBatch::new(2, 8);
    b.start();
    b.set_sges(&[one]);
    b.keep(Fields { flags: INLINE | SIGNALED, ..Fields::default() });
    assert_eq!(kept(&b), [(SIGNALED, 0, vec![])]);
    b.set_inline([&[1, 2][..], &[3]].into_iter());
    assert_eq!(kept(&b), [(INLINE | SIGNALED, 0, vec![1, 2, 3])]);
    b.set_sges(&[one, one]);
    assert_eq!(kept(&b), [(SIGNALED, 2, vec![])]);
    b.keep(Fields::default());
    b.set_inline([&[][..]].into_iter());
    assert_eq!(kept(&b)[1], (0, 0, vec![]));
    assert!(!b.is_refused());
}

#[test]
fn what_a_qp_does_not_take_refuses_the_whole_batch() {
    let one = Sge { addr: 1, length: 5, lkey: 2 };
    let mut b = WrBatch::new(2, 8);
    let mut refused = |set: fn(&mut WrBatch, &[Sge])| {
        b.start();
        b.keep(Fields::default());
        set(&mut b, &[one; 3]);
        b.is_refused()
    };
    assert!(!refused(|b, s| b.set_sges(&s[..2])));
    assert!(refused(|b, s| b.set_sges(s)));
    assert!(!refused(|b, _| b.set_inline([&[0; 8][..]].into_iter())));
    assert!(refused(|b, _| b.set_inline([&[0; 8][..], &[0]].into_iter())));
}
