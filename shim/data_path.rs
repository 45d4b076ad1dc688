//! The hot hooks: posts and polls, reached through the context's operation table.
//!
//! Each finds the object, lets telemetry note the call, and makes the real call under the object's lock. An object that
//! is not known goes straight to the real call. If our part panics, the real call is made all the same, and only once.

use crate::state::OBJECTS;
use crate::{context, extended_poll, extended_send, guard};
use core::ffi::c_int;
use core::ops::DerefMut;
use rdma_sys::{ibv_context, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc};
use telereduce::aside::aside;
use telereduce::sync::{Entry, Gate, OwnerGuard};
use telereduce::telemetry::cq::{Cq, LastQp};
use telereduce::telemetry::inflight::Tail;
use telereduce::telemetry::qp::Qp;
use telereduce::verbs::DataPath;

/// Makes the real call inside our work, or after it failed.
macro_rules! guarded {
    ($rc:ident = $real:expr, $ours:block) => {{
        let mut $rc: Option<c_int> = None;
        guard::hot(|| $ours);
        match $rc {
            Some(rc) => rc,
            None => $real,
        }
    }};
}

pub(crate) use guarded;

/// The provider's operations, for an object that is not counted.
#[cold]
fn uncounted(ctx: *mut ibv_context) -> Option<&'static DataPath> {
    context::find(ctx).map(context::Context::for_unseen)
}

/// Hook of `ibv_post_send`.
pub unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the application passes a valid QP, chain and place for the refused WR, as ibv_post_send demands.
    unsafe {
        if !wr.is_null()
            && let Some(q) = OBJECTS.qps.get_first(qp as usize)
            && let Some(tail) = q.sends.tail.try_own()
        {
            let Some(one) = q.note_send(&tail, &*wr) else { return send_chain(tail, q, qp, wr, bad) };
            let answer = (q.spec.real.post_send)(qp, wr, bad);
            if answer == 0 {
                q.send_accepted(one);
            }
            return answer;
        }
        send_by_turns(qp, wr, bad)
    }
}

/// As `post_send`, of any chain on a queue that the thread owns.
#[inline(never)]
unsafe extern "C" fn send_chain(
    tail: OwnerGuard<'static, Tail>,
    q: &'static Qp,
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { send_on(tail, q, qp, wr, bad) }
}

/// As `post_send`, on a queue that several threads use, or one that is not found at once.
#[inline(never)]
unsafe extern "C" fn send_by_turns(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match OBJECTS.qps.get(qp as usize) {
            Some(q) if q.spec.extended => send_through_gate(q, qp, wr, bad),
            Some(q) => send_on(q.sends.tail.lock(), q, qp, wr, bad),
            None => uncounted((*qp).context).map_or(libc::ENODEV, |real| (real.post_send)(qp, wr, bad)),
        }
    }
}

/// As `post_send`, on a queue whose provider may be busy with a batch of `ibv_wr_*`.
unsafe fn send_through_gate(
    q: &'static Qp,
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let on_time = || unsafe { send_on(q.sends.tail.lock(), q, qp, wr, bad) };
    // SAFETY: as above.
    let real = || unsafe { (q.spec.real.post_send)(qp, wr, bad) };
    let late = |answer: c_int| {
        let mut tail = q.sends.tail.lock();
        // SAFETY: as above; the chain is valid until we return.
        unsafe {
            let noted = q.note_sends(&mut tail, wr);
            if answer == 0 {
                q.sends_accepted(noted);
            } else {
                q.sends_refused(noted, wr, *bad);
            }
        }
    };
    match extended_send::find(qp) {
        Some(h) => through(&h.gate, on_time, real, late),
        None => on_time(),
    }
}

/// Does what makes a real call and counts it inside the gate. If that is not to be had, makes the real call alone, and
/// counts it when it is through.
pub(crate) fn through(
    gate: &Gate,
    on_time: impl FnOnce() -> c_int,
    real: impl FnOnce() -> c_int,
    late: impl FnOnce(c_int),
) -> c_int {
    let entry = gate.enter();
    if entry == Entry::Late {
        let answer = real();
        guard::hot(|| late(answer));
        return answer;
    }
    let answer = on_time();
    if entry == Entry::Entered {
        gate.leave();
    }
    answer
}

/// Posts a chain of sends, and counts it.
///
/// # Safety
/// As ibv_post_send demands; `tail` is the QP's send queue's, locked.
#[inline(always)]
pub unsafe fn send_on(
    mut tail: impl DerefMut<Target = Tail>,
    q: &'static Qp,
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let real = || q.spec.real.post_send;
        guarded!(rc = real()(qp, wr, bad), {
            guard::fault_point("post_send");
            let noted = q.note_sends(&mut tail, wr);
            let answer = real()(qp, wr, bad);
            rc = Some(answer);
            if answer == 0 {
                q.sends_accepted(noted);
            } else {
                aside(move || q.sends_refused(noted, wr, *bad));
            }
        })
    }
}

/// Hook of `ibv_post_recv`.
pub unsafe extern "C" fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: as in `post_send`.
    unsafe {
        if let Some(q) = OBJECTS.qps.get_first(qp as usize)
            && let Some(tail) = q.recvs.tail.try_own()
        {
            return recv_on(tail, q, qp, wr, bad);
        }
        recv_by_turns(qp, wr, bad)
    }
}

/// As `post_recv`, on a queue that several threads use, or one that is not found at once.
#[inline(never)]
unsafe extern "C" fn recv_by_turns(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match OBJECTS.qps.get(qp as usize) {
            Some(q) => recv_on(q.recvs.tail.lock(), q, qp, wr, bad),
            None => uncounted((*qp).context).map_or(libc::ENODEV, |real| (real.post_recv)(qp, wr, bad)),
        }
    }
}

#[inline(always)]
unsafe fn recv_on(
    mut tail: impl DerefMut<Target = Tail>,
    q: &'static Qp,
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let real = || q.spec.real.post_recv;
        guarded!(rc = real()(qp, wr, bad), {
            guard::fault_point("post_recv");
            let noted = q.note_recvs(&mut tail, wr);
            let answer = real()(qp, wr, bad);
            rc = Some(answer);
            if answer == 0 {
                q.recvs_accepted(noted);
            } else {
                aside(move || q.recvs_refused(noted, wr, *bad));
            }
        })
    }
}

/// Hook of `ibv_post_srq_recv`.
pub unsafe extern "C" fn post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: as in `post_send`.
    unsafe {
        let Some(s) = OBJECTS.srqs.get(srq as usize) else {
            let real = uncounted((*srq).context).and_then(|real| real.post_srq_recv);
            return real.map_or(libc::ENODEV, |real| real(srq, wr, bad));
        };
        guarded!(rc = (s.real)(srq, wr, bad), {
            guard::fault_point("post_srq_recv");
            let posting = s.start(wr);
            let answer = (s.real)(srq, wr, bad);
            rc = Some(answer);
            if answer == 0 {
                posting.accepted();
            } else {
                aside(move || posting.refused_from(wr, *bad));
            }
        })
    }
}

/// Hook of `ibv_poll_cq`.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the application passes a valid CQ and room for `num_entries` completions, as ibv_poll_cq demands.
    unsafe {
        if let Some(c) = OBJECTS.cqs.get_first(cq as usize)
            && let Some(last) = c.lock.try_own()
        {
            let n = (c.spec.real)(cq, num_entries, wc);
            if n == 1 && c.completed_send(&last, &*wc) {
                return 1;
            }
            return count_poll(last, c, n, wc);
        }
        poll_by_turns(cq, num_entries, wc)
    }
}

/// As `poll_cq`, of a CQ that several threads use, or one that is not found at once.
#[inline(never)]
unsafe extern "C" fn poll_by_turns(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(c) = OBJECTS.cqs.get(cq as usize) else {
            return uncounted((*cq).context).map_or(-libc::ENODEV, |real| (real.poll_cq)(cq, num_entries, wc));
        };
        let locked = || {
            let last = c.lock.lock();
            let n = (c.spec.real)(cq, num_entries, wc);
            count_poll(last, c, n, wc)
        };
        // As in `send_through_gate`.
        match extended_poll::find(cq).filter(|_| c.spec.extended) {
            Some(h) => through(
                &h.gate,
                locked,
                || (c.spec.real)(cq, num_entries, wc),
                |n| {
                    count_poll(c.lock.lock(), c, n, wc);
                },
            ),
            None => locked(),
        }
    }
}

/// Counts what a poll returned.
///
/// # Safety
/// `last` is the CQ's, locked since before the poll, which wrote `n` completions to `wc`, or failed if it is negative.
#[inline(never)]
pub unsafe fn count_poll(
    mut last: impl DerefMut<Target = LastQp>,
    c: &'static Cq,
    n: c_int,
    wc: *const ibv_wc,
) -> c_int {
    guard::hot(|| {
        if n > 0 {
            guard::fault_point("poll_cq");
            // SAFETY: the caller's promise.
            c.completed(&mut last, unsafe { core::slice::from_raw_parts(wc, n as usize) });
        } else if n == 0 {
            c.empty();
        }
    });
    // As it was, but the compiler is not to know: this call is then its caller's last.
    core::hint::black_box(n)
}
