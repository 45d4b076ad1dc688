//! Since when each QP has had sends outstanding of which none completed: what a stall looks like from outside.

use telereduce::shm::model::QpView;

/// A QP that has not moved for this long is listed, ns.
pub const LISTED_NS: u64 = 1_000_000_000;

/// What was seen of one QP.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    created_ns: u64,
    retired: u64,
    since_ns: u64,
}

/// What was seen of the QPs of one process, by index.
#[derive(Clone, Debug, Default)]
pub struct Watch(Vec<Seen>);

impl Watch {
    /// Takes a refresh at `now_ns`. A QP that is seen for the first time, has nothing outstanding or has retired anything
    /// since the refresh before starts at now.
    pub fn note(&mut self, qps: &[QpView], now_ns: u64) {
        let Some(last) = qps.last() else { return self.0.clear() };
        self.0.resize(last.index as usize + 1, Seen::default());
        for q in qps {
            let c = &q.line.send;
            let retired = c.wr_completed.wrapping_add(c.wr_failed).wrapping_add(c.wr_dropped);
            let seen = &mut self.0[q.index as usize];
            let same = seen.since_ns != 0 && (seen.created_ns, seen.retired) == (q.created_ns, retired);
            if !same || c.wr_outstanding == 0 {
                *seen = Seen { created_ns: q.created_ns, retired, since_ns: now_ns };
            }
        }
    }

    /// For how long the QP has not moved with sends outstanding, ns.
    pub fn stuck_ns(&self, q: &QpView, now_ns: u64) -> u64 {
        if q.line.send.wr_outstanding == 0 || !q.live {
            return 0;
        }
        self.0.get(q.index as usize).map_or(0, |s| now_ns.saturating_sub(s.since_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Process;
    use telereduce::shm::model::Line;
    use telereduce::shm::stall::Stalls;

    fn qp(index: u32, posted: u64, completed: u64) -> QpView {
        let mut line = Line::default();
        line.send.wr_completed = completed;
        line.send.wr_outstanding = posted - completed;
        QpView { index, qp_num: 100 + index, live: true, created_ns: 7, line, ..QpView::default() }
    }

    #[test]
    fn where_the_process_watches_its_stalls_it_knows_better() {
        let mut p = Process { alive: true, ..Process::default() };
        p.now.qps = vec![qp(0, 5, 1)];
        p.take_stock(1000);
        p.take_stock(5000);
        let said = |oldest_ns, stalled_ns| {
            let stalls = Stalls { oldest_ns, stalled_ns, ..Stalls::default() };
            p.stuck_ns(&QpView { stalls: Some(stalls), ..qp(0, 5, 1) })
        };
        assert_eq!(p.stuck_ns(&qp(0, 5, 1)), 4000);
        assert_eq!(said(Some(100), Some(200)), 4800, "before we looked");
        assert_eq!(said(Some(4500), None), 500, "the oldest was posted since");
        assert_eq!(said(Some(100), None), 4000);
        assert_eq!(said(None, None), 0, "none waits");
    }

    #[test]
    fn only_what_is_outstanding_and_does_not_complete_grows_old() {
        let mut w = Watch::default();
        // One that stands still, one that moves, one that has nothing to do.
        w.note(&[qp(0, 5, 1), qp(3, 5, 1), qp(4, 5, 5)], 1000);
        let next = [qp(0, 9, 1), qp(3, 9, 2), qp(4, 5, 5)];
        w.note(&next, 2000);
        let stuck = |w: &Watch, now| next.iter().map(|q| w.stuck_ns(q, now)).collect::<Vec<_>>();
        assert_eq!(stuck(&w, 2500), [1500, 500, 0]);
        // Another QP in the record of the first.
        w.note(&[QpView { created_ns: 8, ..qp(0, 9, 1) }], 3000);
        assert_eq!(w.stuck_ns(&qp(0, 9, 1), 3000), 0);
        w.note(&[], 4000);
        assert_eq!(w.stuck_ns(&qp(0, 9, 1), 5000), 0);
    }
}
