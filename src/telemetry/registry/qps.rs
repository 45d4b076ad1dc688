//! QPs in the registry: created, modified, reset, destroyed, and what becomes of their records.

use super::{Control, Device, QpChange, RETAINED, Telemetry};
use crate::attribution;
use crate::clock::realtime_ns;
use crate::multipath::single::Single;
use crate::shm::layout::{LabelRecord, Life, MultipathRecord, NONE, StallRecord, Totals, flags};
use crate::shm::segment::{bump, change_identity, put};
use crate::sync::OwnedGuard;
use crate::table::gone;
use crate::telemetry::cq::{Cq, LastQp};
use crate::telemetry::fold;
use crate::telemetry::labels;
use crate::telemetry::multipath;
use crate::telemetry::qp::{Qp, QpRecords, QpSpec};
use core::sync::atomic::{Ordering::Relaxed, Ordering::Release};
use rdma_sys::ibv_qp_type;
use std::sync::PoisonError;

const IBV_QPS_RESET: u32 = 0;

impl Telemetry {
    /// A QP was created at `address`.
    pub fn create_qp(&self, device: &'static Device, address: usize, spec: QpSpec) {
        // The number and the address are new, so a QP that still has one of them was destroyed behind our back.
        for old in [device.qps.get(spec.qp_num), self.objects.qps.get(address)].into_iter().flatten() {
            if device.qps.get(old.spec.qp_num).is_some_and(|q| core::ptr::eq(q, old)) {
                self.hide_qp(device, old);
                self.retire_qp(old);
            }
        }
        self.objects.qps.remove(address);
        let mut c = self.control();
        let Some(index) = self.qp_record(&mut c) else {
            return self.untracked();
        };
        let (record, detail) = (c.qps.get(index), c.details.get(index));
        let multipath = self.multipath_record(&mut c, index);
        let works_for = self.label_record(&mut c, index);
        works_for.inspect(|r| labels::clear(r));
        let stalls = self.stall_record(&mut c, index);
        change_identity(&record.seq, || {
            multipath.inspect(|m| begin_multipath(m));
            stalls.inspect(|s| begin_stalls(s, spec.send_cq));
            put(&record.qp_num, spec.qp_num);
            put(&record.dest_qp_num, 0);
            put(&record.port, NONE);
            put(&record.peer, NONE);
            put(&record.qp_type, spec.qp_type);
            put(&record.qp_state, IBV_QPS_RESET);
            put(&record.srq, spec.srq.map_or(NONE, |s| s.index));
            put(&record.max_send_wr, spec.max_send_wr);
            put(&record.max_recv_wr, spec.max_recv_wr);
            let sig = if spec.sig_all { flags::SIG_ALL } else { 0 };
            put(&record.flags, sig | if spec.opaque { flags::OPAQUE } else { 0 });
            record.created_ns.store(realtime_ns(), Relaxed);
            record.retired_ns.store(0, Relaxed);
            put(&record.life, Life::Live as u32);
        });
        let records = QpRecords { index, record, detail, multipath, works_for };
        let Some(qp) = Qp::new(spec, address, records, self.hot, &self.objects.handles) else {
            change_identity(&record.seq, || put(&record.life, Life::Free as u32));
            c.qps.release(index);
            return self.untracked();
        };
        bump(&self.hot.header.objects_opaque, u64::from(spec.opaque));
        spec.for_each_used(|users| users.one_more());
        let qp = gone::live(qp);
        drop(c);
        device.qps.set(spec.qp_num, Some(qp));
        self.objects.qps.insert(address, qp);
        if attribution::is_active() {
            qp.keep_labels();
        }
    }

    /// A record for a QP: an unused one, else that of the longest destroyed QP.
    fn qp_record(&self, c: &mut Control) -> Option<u32> {
        if c.qps.retired_count() >= RETAINED
            && let Some(i) = c.qps.oldest_retired()
        {
            self.give_away(c, i);
            return Some(i);
        }
        if let Some(i) = c.qps.take(&self.segment) {
            // Details grow in step; if they cannot, the record stays unused.
            return if c.details.reach(&self.segment, i) { Some(i) } else { None };
        }
        let i = c.qps.oldest_retired()?;
        self.give_away(c, i);
        Some(i)
    }

    /// The record of a QP's multi-path, if there is one.
    fn multipath_record(&self, c: &mut Control, i: u32) -> Option<&'static MultipathRecord> {
        let pool = c.multipath.as_mut()?;
        pool.reach(&self.segment, i).then(|| pool.get(i))
    }

    /// The record of whom a QP works for, if the segment has room.
    fn label_record(&self, c: &mut Control, i: u32) -> Option<&'static LabelRecord> {
        c.labels.reach(&self.segment, i).then(|| c.labels.get(i))
    }

    /// The record of a QP's stalls, if there is one.
    fn stall_record(&self, c: &mut Control, i: u32) -> Option<&'static StallRecord> {
        let pool = c.stalls.as_mut()?;
        pool.reach(&self.segment, i).then(|| pool.get(i))
    }

    /// Moves a retired QP's counters to its port and peer.
    fn give_away(&self, c: &Control, i: u32) {
        let (record, detail) = (c.qps.get(i), c.details.get(i));
        self.folding(|| {
            if let Some(p) = c.ports.find(record.port.load(Relaxed)) {
                fold::add_to_totals(record, detail, &p.retired);
                c.stalls_of(i).inspect(|s| fold::add_stalls(&s.counters, &p.retired_stalls));
                if let Some(m) = c.multipath.as_ref().and_then(|pool| pool.find(i)) {
                    fold::add_multipath(&m.counters, &p.retired_multipath);
                }
            }
            Telemetry::change_peer(c, record.peer.load(Relaxed), |p| {
                fold::add_to_totals(record, detail, &p.retired);
                c.stalls_of(i).inspect(|s| fold::add_stalls(&s.counters, &p.retired_stalls));
            });
            c.stalls_of(i).inspect(|s| fold::clear_stalls(s));
            put(&record.life, Life::Free as u32);
            fold::clear(record, detail);
        });
    }

    pub(super) fn folding(&self, change: impl FnOnce()) {
        let seq = &self.hot.header.fold_seq;
        seq.store(seq.load(Relaxed) + 1, Release);
        core::sync::atomic::fence(Release);
        change();
        seq.store(seq.load(Relaxed) + 1, Release);
    }

    /// The QP was modified.
    pub fn modify_qp(&self, device: &'static Device, qp: &'static Qp, change: QpChange) {
        if change.state == Some(IBV_QPS_RESET) {
            self.reset_qp(qp);
        }
        let mut c = self.control();
        let name = device.name.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(n) = change.port_num {
            let port = self.port(&mut c, &name, n);
            qp.port.store(port, Relaxed);
        }
        if let Some(a) = change.address {
            let peer = self.peer(&mut c, qp.port.load(Relaxed), a);
            qp.peer.store(peer, Relaxed);
        }
        let (port, peer) = (qp.port.load(Relaxed), qp.peer.load(Relaxed));
        qp.place.store(u64::from(peer) << 32 | u64::from(port.min(0xffff)) << 16, Relaxed);
        change_identity(&qp.record.seq, || {
            put(&qp.record.port, port);
            put(&qp.record.peer, peer);
            if let Some(n) = change.dest_qp_num {
                put(&qp.record.dest_qp_num, n);
            }
            if let Some(s) = change.state {
                put(&qp.record.qp_state, s);
            }
        });
    }

    /// RESET: what was in flight is dropped. The counters so far go to a retired record, since the QP's next life may be
    /// on another port and with another peer.
    fn reset_qp(&self, qp: &'static Qp) {
        let mut c = self.control();
        if fold::is_untouched(qp.record) {
            qp.multipath.inspect(|m| multipath::say(m, 0, Some(Single::Unconnected)));
            return drop(self.quiesce(qp));
        }
        // Before the locks: it may ask the file system for memory.
        let kept = self.qp_record(&mut c);
        let kept_multipath = kept.and_then(|i| self.multipath_record(&mut c, i));
        let kept_label = kept.and_then(|i| self.label_record(&mut c, i));
        let kept_stalls = kept.and_then(|i| self.stall_record(&mut c, i));
        let _locks = self.quiesce(qp);
        let from = (qp.record, qp.detail);
        self.folding(|| {
            if let Some(i) = kept {
                let to = (c.qps.get(i), c.details.get(i));
                fold::copy_identity(qp.record, to.0);
                fold::add_to_record(from.0, from.1, to);
                to.0.retired_ns.store(realtime_ns(), Relaxed);
                put(&to.0.life, Life::Retired as u32);
            } else {
                let add = |to: &Totals| fold::add_to_totals(from.0, from.1, to);
                c.ports.find(qp.port.load(Relaxed)).inspect(|p| add(&p.retired));
                Telemetry::change_peer(&c, qp.peer.load(Relaxed), |p| add(&p.retired));
            }
            fold::clear(from.0, from.1);
            if let Some(r) = qp.works_for {
                kept_label.inspect(|to| labels::copy(r, to));
                qp.labels_begin_anew();
                labels::clear(r);
            }
            if let Some(s) = c.stalls_of(qp.index) {
                let (port, peer) = (c.ports.find(qp.port.load(Relaxed)), c.peers.find(qp.peer.load(Relaxed)));
                let places = [port.map(|p| &p.retired_stalls), peer.map(|p| &p.retired_stalls)];
                match kept_stalls {
                    Some(to) => fold::add_stalls(&s.counters, &to.counters),
                    None => places.into_iter().flatten().for_each(|to| fold::add_stalls(&s.counters, to)),
                }
                fold::clear_stalls(s);
            }
            if let Some(m) = qp.multipath {
                let port = c.ports.find(qp.port.load(Relaxed));
                match (kept_multipath, port) {
                    (Some(to), _) => fold::copy_multipath(m, to),
                    (None, Some(p)) => fold::add_multipath(&m.counters, &p.retired_multipath),
                    (None, None) => {}
                }
                begin_multipath(m);
            }
        });
        if let Some(i) = kept {
            c.qps.retire(i);
        }
    }

    /// Takes the locks of both queues and CQs, and drops what is in flight.
    fn quiesce(&self, qp: &'static Qp) -> impl Drop + use<> {
        let (send, recv) = (qp.spec.send_cq, qp.spec.recv_cq);
        let mut cqs = [send, recv.filter(|r| !send.is_some_and(|s| core::ptr::eq(s, *r)))];
        // Always in the same order, whichever CQ is whose.
        cqs.sort_by_key(|cq| cq.map(|c| core::ptr::from_ref(c) as usize));
        let guards: [Option<OwnedGuard<'static, LastQp>>; 2] = cqs.map(|cq| cq.map(|c| c.lock.lock()));
        let r = qp.record;
        for (queue, post, done) in [(&qp.sends, &r.send_post, &r.send_done), (&qp.recvs, &r.recv_post, &r.recv_done)] {
            let _tail = queue.tail.lock();
            // SAFETY: the tail is locked, and so is the CQ that serves this queue.
            unsafe {
                queue.ring.datagrams.as_ref().inspect(|d| d.dropped(queue.ring.open_numbers()));
                queue.ring.clear();
            }
            fold::drop_outstanding(post, done);
        }
        Quiet(guards)
    }

    /// The QP is about to be destroyed: completions no longer find it.
    pub fn hide_qp(&self, device: &'static Device, qp: &'static Qp) {
        // Another QP may have its number or its address already, if its own destruction was not seen.
        if device.qps.get(qp.spec.qp_num).is_some_and(|q| core::ptr::eq(q, qp)) {
            device.qps.set(qp.spec.qp_num, None);
        }
        if self.objects.qps.get(qp.address).is_some_and(|q| core::ptr::eq(q, qp)) {
            self.objects.qps.remove(qp.address);
        }
        for cq in [qp.spec.send_cq, qp.spec.recv_cq].into_iter().flatten() {
            cq.lock.lock().forget(qp);
        }
        if qp.spec.qp_type == ibv_qp_type::IBV_QPT_XRC_RECV {
            // Any CQ of an XRC SRQ may bring its completions. One that had found it is done with it now.
            let _c = self.control();
            self.objects.cqs.for_each(|cq| {
                if cq.has_xrc_srqs() {
                    drop(cq.lock.lock())
                }
            });
        }
    }

    /// CQs whose completions do not tell of which QP they are need to know whether there is but one.
    pub fn look_for_only_qp(&self, spec: &QpSpec) {
        let untold = |cq: &&Cq| !cq.spec.tells_qp;
        for cq in spec.send_cq.into_iter().chain(spec.recv_cq).filter(untold) {
            let _c = self.control();
            cq.look_for_only_qp();
        }
    }

    /// The provider refused to destroy it.
    pub fn show_qp(&self, device: &'static Device, qp: &'static Qp) {
        device.qps.set(qp.spec.qp_num, Some(qp));
        self.objects.qps.insert(qp.address, qp);
    }

    /// A hidden QP is gone for good: what was in flight is dropped.
    pub fn retire_qp(&self, qp: &'static Qp) {
        let mut c = self.control();
        drop(self.quiesce(qp));
        if fold::is_untouched(qp.record) {
            change_identity(&qp.record.seq, || put(&qp.record.life, Life::Free as u32));
            c.qps.release(qp.index);
        } else {
            qp.record.retired_ns.store(realtime_ns(), Relaxed);
            change_identity(&qp.record.seq, || put(&qp.record.life, Life::Retired as u32));
            c.qps.retire(qp.index);
        }
        // Completions cannot find it any more, and those that had are done: it was hidden under its CQs' locks. Posts to a
        // QP that is being destroyed are the application's error; the delay makes even those harmless.
        // SAFETY: made live in `create_qp`, in no table, and retired once.
        unsafe { c.gone.qps.add(qp) };
        qp.spec.for_each_used(|users| users.one_less());
    }
}

struct Quiet([Option<OwnedGuard<'static, LastQp>>; 2]);

impl Drop for Quiet {
    fn drop(&mut self) {
        self.0 = [None, None];
    }
}

/// The record is a QP's that did nothing yet.
fn begin_stalls(record: &StallRecord, send_cq: Option<&Cq>) {
    fold::clear_stalls(record);
    put(&record.send_cq, send_cq.map_or(NONE, |cq| cq.index));
}

/// The record is a QP's that did nothing yet.
fn begin_multipath(record: &MultipathRecord) {
    fold::clear_multipath(record);
    multipath::say(record, 0, Some(Single::Unconnected));
}
