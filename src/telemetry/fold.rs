//! Moving a retired QP's counters: into its port and peer, or into a record that keeps them for readers to list.
//!
//! The record has no writer any more, the receiving side has one at a time (the registry's lock).

use crate::shm::layout::{
    DoneCounters, ErrorCounters, LaneRecord, LatencyCounters, MovedCounters, MultipathCounters, MultipathRecord,
    OpcodeCounters, PostCounters, QpDetail, QpRecord, SrqRecord, StallCounters, StallRecord, Totals,
};
use crate::shm::segment::{bump, raise};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn sum(from: &AtomicU64, to: &AtomicU64) {
    bump(to, from.load(Relaxed));
}

fn max(from: &AtomicU64, to: &AtomicU64) {
    raise(to, from.load(Relaxed));
}

fn post(from: &PostCounters, to: &PostCounters) {
    sum(&from.wr_posted, &to.wr_posted);
    sum(&from.bytes_posted, &to.bytes_posted);
}

fn done(from: &DoneCounters, to: &DoneCounters) {
    sum(&from.wr_retired, &to.wr_retired);
    sum(&from.bytes_retired, &to.bytes_retired);
    sum(&from.wr_failed, &to.wr_failed);
    sum(&from.bytes_failed, &to.bytes_failed);
    sum(&from.wr_dropped, &to.wr_dropped);
    sum(&from.bytes_dropped, &to.bytes_dropped);
    sum(&from.bytes_arrived, &to.bytes_arrived);
    sum(&from.cqes, &to.cqes);
    max(&from.wr_high_water, &to.wr_high_water);
    max(&from.bytes_high_water, &to.bytes_high_water);
    max(&from.last_ns, &to.last_ns);
}

fn errors(from: &ErrorCounters, to: &ErrorCounters) {
    for (f, t) in from.by_status.iter().zip(&to.by_status) {
        sum(f, t);
    }
    if from.last_ns.load(Relaxed) > to.last_ns.load(Relaxed) {
        to.last.store(from.last.load(Relaxed), Relaxed);
        to.last_wr_id.store(from.last_wr_id.load(Relaxed), Relaxed);
        to.last_ns.store(from.last_ns.load(Relaxed), Relaxed);
        let (from, to) = (&from.last_outstood, &to.last_outstood);
        for (f, t) in [(&from.wr, &to.wr), (&from.bytes, &to.bytes), (&from.opcode, &to.opcode)] {
            t.store(f.load(Relaxed), Relaxed);
        }
    }
}

fn latency(from: &LatencyCounters, to: &LatencyCounters) {
    sum(&from.count, &to.count);
    sum(&from.sum_ns, &to.sum_ns);
    max(&from.max_ns, &to.max_ns);
    for (f, t) in from.buckets.iter().zip(&to.buckets) {
        sum(f, t);
    }
}

fn opcodes(from: &[OpcodeCounters], to: &[OpcodeCounters]) {
    for (f, t) in from.iter().zip(to) {
        sum(&f.wr, &t.wr);
        sum(&f.bytes, &t.bytes);
    }
}

fn detail(from: &QpDetail, to: &QpDetail) {
    opcodes(&from.opcodes, &to.opcodes);
    errors(&from.send_errors, &to.send_errors);
    errors(&from.recv_errors, &to.recv_errors);
    latency(&from.latency, &to.latency);
}

/// Adds a QP's counters to its port's or peer's.
pub fn add_to_totals(record: &QpRecord, details: &QpDetail, to: &Totals) {
    post(&record.send_post, &to.send_post);
    post(&record.recv_post, &to.recv_post);
    done(&record.send_done, &to.send_done);
    done(&record.recv_done, &to.recv_done);
    detail(details, &to.detail);
}

/// Adds a QP's counters to another record's.
pub fn add_to_record(record: &QpRecord, details: &QpDetail, to: (&QpRecord, &QpDetail)) {
    post(&record.send_post, &to.0.send_post);
    post(&record.recv_post, &to.0.recv_post);
    done(&record.send_done, &to.0.send_done);
    done(&record.recv_done, &to.0.recv_done);
    detail(details, to.1);
}

/// Adds what multi-path did for a QP to another's, or to a port's.
pub fn add_multipath(from: &MultipathCounters, to: &MultipathCounters) {
    sum(&from.wr_split, &to.wr_split);
    sum(&from.wr_whole, &to.wr_whole);
    sum(&from.wr_held, &to.wr_held);
    sum(&from.chunks, &to.chunks);
    sum(&from.chunks_replayed, &to.chunks_replayed);
    moved(&from.moved, &to.moved);
    moved(&from.moved_reads, &to.moved_reads);
    for (f, t) in from.large_passed.iter().zip(&to.large_passed) {
        sum(f, t);
    }
}

fn moved(from: &MovedCounters, to: &MovedCounters) {
    sum(&from.bytes_split, &to.bytes_split);
    sum(&from.bytes_on_lanes, &to.bytes_on_lanes);
    sum(&from.bytes_on_qp, &to.bytes_on_qp);
}

/// Adds a QP's stalls to another's, or to a port's or peer's.
pub fn add_stalls(from: &StallCounters, to: &StallCounters) {
    sum(&from.stalls, &to.stalls);
    max(&from.longest_ns, &to.longest_ns);
}

/// Empties what the watch saw of a QP.
pub fn clear_stalls(record: &StallRecord) {
    let c = &record.counters;
    for word in [&record.oldest_ns, &record.stalled_ns, &record.cq_polls, &c.stalls, &c.longest_ns] {
        word.store(0, Relaxed);
    }
}

/// Makes a record say what another one does.
pub fn copy_multipath(from: &MultipathRecord, to: &MultipathRecord) {
    clear_multipath(to);
    for (f, t) in [
        (&from.single, &to.single),
        (&from.lanes, &to.lanes),
        (&from.lanes_failed_here, &to.lanes_failed_here),
        (&from.lanes_failed_there, &to.lanes_failed_there),
    ] {
        t.store(f.load(Relaxed), Relaxed);
    }
    add_multipath(&from.counters, &to.counters);
}

/// Empties what multi-path did for a QP.
pub fn clear_multipath(record: &MultipathRecord) {
    record.lanes_failed_here.store(0, Relaxed);
    record.lanes_failed_there.store(0, Relaxed);
    // SAFETY: as in `clear`.
    unsafe { zero(&record.counters) };
}

/// Empties a QP's counters.
pub fn clear(record: &QpRecord, details: &QpDetail) {
    // SAFETY: these parts are repr(C) and consist of AtomicU64 alone, which the sizes' being multiples of 8 and the
    // layout's definition say.
    unsafe {
        zero(&record.send_post);
        zero(&record.recv_post);
        zero(&record.send_done);
        zero(&record.recv_done);
        zero(details);
    }
}

/// # Safety
/// `T` is repr(C) and holds nothing but `AtomicU64`.
unsafe fn zero<T>(part: &T) {
    // SAFETY: the caller's promise.
    let words: &[AtomicU64] =
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(part).cast(), size_of::<T>() / 8) };
    for w in words {
        w.store(0, Relaxed);
    }
}

/// Empties a lane's counters.
pub fn clear_lane(record: &LaneRecord) {
    // SAFETY: as in `clear`.
    unsafe {
        zero(&record.post);
        zero(&record.done);
        zero(&record.latency);
    }
}

/// Empties an SRQ's counters.
pub fn clear_srq(record: &SrqRecord) {
    // SAFETY: as in `clear`.
    unsafe {
        zero(&record.post);
        zero(&record.done);
    }
}

/// Adds to a port's totals what an SRQ that is gone has besides its QPs': the receives that were dropped.
pub fn add_srq_to_totals(srq: &SrqRecord, to: &Totals) {
    let done = &srq.done;
    for (from, to) in [
        (&done.wr_dropped, [&to.recv_post.wr_posted, &to.recv_done.wr_retired, &to.recv_done.wr_dropped]),
        (&done.bytes_dropped, [&to.recv_post.bytes_posted, &to.recv_done.bytes_retired, &to.recv_done.bytes_dropped]),
    ] {
        to.iter().for_each(|t| sum(from, t));
    }
}

/// Copies a QP's identity.
pub fn copy_identity(from: &QpRecord, to: &QpRecord) {
    for (f, t) in [
        (&from.qp_num, &to.qp_num),
        (&from.dest_qp_num, &to.dest_qp_num),
        (&from.port, &to.port),
        (&from.peer, &to.peer),
        (&from.qp_type, &to.qp_type),
        (&from.qp_state, &to.qp_state),
        (&from.srq, &to.srq),
        (&from.max_send_wr, &to.max_send_wr),
        (&from.max_recv_wr, &to.max_recv_wr),
        (&from.flags, &to.flags),
    ] {
        t.store(f.load(Relaxed), Relaxed);
    }
    to.created_ns.store(from.created_ns.load(Relaxed), Relaxed);
}

/// What is outstanding leaves the queue without completions.
pub fn drop_outstanding(post: &PostCounters, done: &DoneCounters) {
    for (posted, retired, dropped) in [
        (&post.wr_posted, &done.wr_retired, &done.wr_dropped),
        (&post.bytes_posted, &done.bytes_retired, &done.bytes_dropped),
    ] {
        let all = posted.load(Relaxed);
        bump(dropped, all.wrapping_sub(retired.load(Relaxed)));
        retired.store(all, Relaxed);
    }
}

/// Whether a QP never did anything.
pub fn is_untouched(r: &QpRecord) -> bool {
    [&r.send_post.wr_posted, &r.recv_post.wr_posted, &r.send_done.cqes, &r.recv_done.cqes]
        .iter()
        .all(|c| c.load(Relaxed) == 0)
}
