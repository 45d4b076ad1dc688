//! Comparing a program's truth with a snapshot, number by number.

use crate::truth::Truth;
use std::collections::BTreeMap;
use telereduce::shm::model::{Counters, Line};
use telereduce::shm::snapshot::{Details, SegmentJson};

/// Named numbers, as the programs print them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<String, u64>);

impl Counts {
    /// From `name number name number ...`.
    ///
    /// # Panics
    /// They are not pairs.
    pub fn of_words(words: &[&str]) -> Counts {
        let pair = |p: &[&str]| (p[0].to_string(), p[1].parse().unwrap_or_else(|_| panic!("not a number: {p:?}")));
        Counts(words.chunks(2).map(pair).collect())
    }

    /// From a line of a snapshot.
    pub fn of_line(l: &Line) -> Counts {
        let (s, r) = (&l.send, &l.recv);
        let pairs = [
            ("send_wr_posted", s.wr_posted),
            ("send_bytes_posted", s.bytes_posted),
            ("send_wr_completed", s.wr_completed),
            ("send_bytes_completed", s.bytes_completed),
            ("send_wr_failed", s.wr_failed),
            ("send_bytes_failed", s.bytes_failed),
            ("send_wr_discarded", s.wr_dropped),
            ("send_bytes_discarded", s.bytes_dropped),
            ("send_wr_outstanding", s.wr_outstanding),
            ("send_bytes_outstanding", s.bytes_outstanding),
            ("send_cqes", s.cqes),
            ("recv_wr_posted", r.wr_posted),
            ("recv_wr_completed", r.wr_completed),
            ("recv_bytes_completed", r.bytes_completed),
            ("recv_wr_failed", r.wr_failed),
            ("recv_wr_discarded", r.wr_dropped),
            ("recv_wr_outstanding", r.wr_outstanding),
        ];
        Counts(pairs.into_iter().map(|(k, v)| (k.to_string(), v)).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of them, 0 if it is not there.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Adds each.
    pub fn add(&mut self, o: &Counts) {
        for (k, v) in &o.0 {
            *self.0.entry(k.clone()).or_default() += v;
        }
    }

    /// Whether all are 0.
    pub fn is_zero(&self) -> bool {
        self.0.values().all(|v| *v == 0)
    }

    /// Each number of `self` stands in `snapshot`, too.
    ///
    /// # Panics
    /// One does not.
    pub fn assert_same(&self, snapshot: &Counts, what: &str) {
        let differ: Vec<String> = (self.0.iter())
            .filter(|(k, v)| snapshot.get(k) != **v)
            .map(|(k, v)| format!("{k}: program {v}, snapshot {}", snapshot.get(k)))
            .collect();
        assert!(differ.is_empty(), "{what}: {}", differ.join("; "));
    }
}

/// Adds up lines.
pub fn sum<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Line {
    let mut total = Line::default();
    lines.into_iter().for_each(|l| total.add(l));
    total
}

/// Everything that the program knows stands in the snapshot: per QP number, per port, in all.
///
/// # Panics
/// Something does not.
pub fn assert_exact(truth: &Truth, s: &SegmentJson) {
    assert_qps(truth, s);
    assert_ports(truth, s);
    assert_balanced(s);
    assert_details(s);
}

/// Per device and QP number; several lives of one number are added up.
///
/// # Panics
/// A number differs.
pub fn assert_qps(truth: &Truth, s: &SegmentJson) {
    assert!(!truth.qps.is_empty(), "a program without QPs");
    let (mut said, mut seen) = (BTreeMap::<_, Counts>::new(), BTreeMap::<_, Counts>::new());
    for q in &truth.qps {
        said.entry((q.device.clone(), q.qpn)).or_default().add(&q.counts);
    }
    for q in &s.qps {
        let device = q.device.clone().unwrap_or_else(|| panic!("QP {} without a device", q.qp_num));
        seen.entry((device, q.qp_num)).or_default().add(&Counts::of_line(&q.line));
    }
    for (key, counts) in &said {
        counts.assert_same(seen.get(key).unwrap_or(&Counts::default()), &format!("QP {key:?}"));
    }
    for (key, counts) in &seen {
        assert!(said.contains_key(key), "QP {key:?} is nobody's: {counts:?}");
    }
    for q in &s.qps {
        let same = |t: &&crate::truth::QpTruth| Some(&t.device) == q.device.as_ref() && t.qpn == q.qp_num;
        let kind = q.r#type.to_lowercase();
        assert!(truth.qps.iter().filter(same).any(|t| t.kind == kind && Some(t.port) == q.port), "QP {}", q.qp_num);
    }
}

/// Per device and port, and in all.
///
/// # Panics
/// A number differs.
pub fn assert_ports(truth: &Truth, s: &SegmentJson) {
    for (device, port, counts) in &truth.ports {
        let found = s.ports.iter().find(|p| &p.device == device && p.port == *port);
        let line = found.unwrap_or_else(|| panic!("no port {device}/{port}")).line;
        counts.assert_same(&Counts::of_line(&line), &format!("port {device}/{port}"));
    }
    for p in &s.ports {
        let known = truth.ports.iter().any(|(d, n, _)| d == &p.device && *n == p.port);
        assert!(known || Counts::of_line(&p.line).is_zero(), "port {}/{} is nobody's", p.device, p.port);
    }
    let total = sum(s.ports.iter().map(|p| &p.line));
    truth.total.assert_same(&Counts::of_line(&total), "total");
}

/// posted = completed + failed + dropped + outstanding, for every line there is.
///
/// # Panics
/// It is not.
pub fn assert_balanced(s: &SegmentJson) {
    let mut lines: Vec<(String, Line)> = Vec::new();
    lines.extend(s.ports.iter().map(|p| (format!("port {}/{}", p.device, p.port), p.line)));
    lines.extend(s.peers.iter().map(|p| (format!("peer {:?}", p.gid), p.line)));
    lines.extend(s.qps.iter().map(|q| (format!("QP {}", q.qp_num), q.line)));
    lines.extend(s.srqs.iter().map(|q| (format!("SRQ {}", q.index), Line { recv: q.recv, ..Line::default() })));
    let wrs = |c: &Counters| c.wr_completed + c.wr_failed + c.wr_dropped + c.wr_outstanding;
    for (what, l) in lines {
        assert_eq!(l.send.wr_posted, wrs(&l.send), "{what}, sends");
        assert_eq!(l.recv.wr_posted, wrs(&l.recv), "{what}, receives");
        let s = &l.send;
        let bytes = s.bytes_completed + s.bytes_failed + s.bytes_dropped + s.bytes_outstanding;
        assert_eq!(s.bytes_posted, bytes, "{what}, bytes sent");
        // Of receives, what arrived differs from what the buffers hold, so only one side of the sum is known.
        assert!(l.recv.bytes_posted >= l.recv.bytes_failed + l.recv.bytes_dropped + l.recv.bytes_outstanding, "{what}");
    }
}

/// Opcodes add up to what was posted, errors to what failed.
///
/// # Panics
/// They do not.
pub fn assert_details(s: &SegmentJson) {
    let check = |what: String, l: &Line, d: &Details| {
        let (wr, bytes) = d.opcodes.values().fold((0, 0), |(w, b), p| (w + p.wr, b + p.bytes));
        assert_eq!((wr, bytes), (l.send.wr_posted, l.send.bytes_posted), "{what}: opcodes");
        assert_eq!(d.errors.values().sum::<u64>(), l.send.wr_failed, "{what}: errors of sends");
        assert_eq!(d.recv_errors.values().sum::<u64>(), l.recv.wr_failed, "{what}: errors of receives");
    };
    s.ports.iter().for_each(|p| check(format!("port {}/{}", p.device, p.port), &p.line, &p.details));
    s.peers.iter().for_each(|p| check(format!("peer {:?}", p.gid), &p.line, &p.details));
    s.qps.iter().for_each(|q| check(format!("QP {}", q.qp_num), &q.line, &q.details));
}

/// Nothing was missed.
///
/// # Panics
/// Something was.
pub fn assert_nothing_missed(s: &SegmentJson) {
    let m = &s.missed;
    assert_eq!((m.objects_untracked, m.wrs_unseen, m.completions_unmatched, m.panics), (0, 0, 0, 0), "missed");
}
