//! The states of a QP: which changes there are, what each needs and allows, and what it does.

use super::ah::resolve;
use super::cq::Cq;
use super::qp::CQp;
use super::{errno, qp_ex};
use crate::core::requester::Settings;
use crate::core::responder::Responder;
use crate::core::rnr;
use crate::nic::qp::{kind, state};
use crate::nic::sender::Route;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use parking_lot::lock_api::RawMutex as _;
use rdma_sys::*;
use std::ffi::c_int;

const STATE: u32 = 1;
const CUR_STATE: u32 = 1 << 1;
const SQD_NOTIFY: u32 = 1 << 2;
const ACCESS: u32 = 1 << 3;
const PKEY: u32 = 1 << 4;
const PORT: u32 = 1 << 5;
const QKEY: u32 = 1 << 6;
const AV: u32 = 1 << 7;
const MTU: u32 = 1 << 8;
const TIMEOUT: u32 = 1 << 9;
const RETRY: u32 = 1 << 10;
const RNR_RETRY: u32 = 1 << 11;
const RQ_PSN: u32 = 1 << 12;
const MAX_READS: u32 = 1 << 13;
const ALT_PATH: u32 = 1 << 14;
const RNR_TIMER: u32 = 1 << 15;
const SQ_PSN: u32 = 1 << 16;
const MAX_DEST_READS: u32 = 1 << 17;
const MIGRATION: u32 = 1 << 18;
const DEST_QPN: u32 = 1 << 20;

/// What a change needs and what it allows besides; `None`: there is no such change.
fn masks(kind: u32, from: u32, to: u32) -> Option<(u32, u32)> {
    use state::*;
    let datagram = kind == kind::UD;
    // Which halves of a reliable connection it has.
    let (sends, answers) = match kind {
        kind::RC => (true, true),
        kind::XRC_SEND => (true, false),
        kind::XRC_RECV => (false, true),
        _ => (false, false),
    };
    let if_ = |yes: bool, mask: u32| if yes { mask } else { 0 };
    // What only the other half has use for is let pass: programs set up both alike.
    let xrc = matches!(kind, kind::XRC_SEND | kind::XRC_RECV);
    let live = if_(datagram, QKEY) | if_(!datagram, ACCESS | ALT_PATH | MIGRATION) | if_(answers, RNR_TIMER);
    let basic = PKEY | PORT | if_(datagram, QKEY) | if_(!datagram, ACCESS);
    Some(match (from, to) {
        (_, RESET | ERR) => (0, 0),
        (RESET, INIT) => (basic, 0),
        (INIT, INIT) => (0, basic),
        (INIT, RTR) if datagram => (0, PKEY | QKEY),
        (INIT, RTR) => {
            let answering = MAX_DEST_READS | RNR_TIMER;
            let besides = ALT_PATH | ACCESS | PKEY | if_(xrc, answering);
            (AV | MTU | DEST_QPN | RQ_PSN | if_(answers, answering), besides)
        }
        (RTR, RTS) => {
            let reliable = TIMEOUT | RETRY | RNR_RETRY | MAX_READS;
            (SQ_PSN | if_(sends, reliable) | if_(kind == kind::XRC_RECV, TIMEOUT), live | if_(xrc, reliable))
        }
        (RTS, RTS) => (0, live),
        (RTS, SQD) => (0, SQD_NOTIFY),
        (SQD, RTS) => (0, live),
        (SQD, SQD) if datagram => (0, PKEY | QKEY),
        (SQD, SQD) => {
            let timers = if_(sends, TIMEOUT | RETRY | RNR_RETRY | MAX_READS) | if_(answers, MAX_DEST_READS);
            (0, PORT | AV | PKEY | live | timers)
        }
        (SQE, RTS) if !sends => (0, live),
        _ => return None,
    })
}

fn check(q: &CQp, a: &ibv_qp_attr, mask: u32) -> Result<(u32, u32), c_int> {
    let now = q.core.state();
    let from = if mask & CUR_STATE != 0 { a.cur_qp_state } else { now };
    let to = if mask & STATE != 0 { a.qp_state } else { now };
    // A state that the program has not seen change is no mistake, if the change is to the same end.
    let stale = from != now && !(now == state::ERR && matches!(to, state::RESET | state::ERR));
    let (needed, allowed) = masks(q.core.plan.kind, now, to).filter(|_| !stale).ok_or(libc::EINVAL)?;
    if mask & needed != needed || mask & !(needed | allowed | STATE | CUR_STATE) != 0 {
        return Err(libc::EINVAL);
    }
    let limits = &q.host.config.devices[q.core.plan.device].limits;
    let wrong = [
        mask & PKEY != 0 && a.pkey_index != 0,
        mask & PORT != 0 && !(1..=q.host.ports[q.core.plan.device].len()).contains(&usize::from(a.port_num)),
        mask & MTU != 0 && !(1..=5).contains(&a.path_mtu),
        mask & MAX_READS != 0 && a.max_rd_atomic > limits.answers,
        mask & MAX_DEST_READS != 0 && a.max_dest_rd_atomic > limits.answers,
        mask & RETRY != 0 && a.retry_cnt > 7,
        mask & RNR_RETRY != 0 && a.rnr_retry > 7,
        mask & RNR_TIMER != 0 && a.min_rnr_timer > 31,
        mask & TIMEOUT != 0 && a.timeout > 31,
        mask & DEST_QPN != 0 && a.dest_qp_num > 0xff_ffff,
    ];
    if wrong.contains(&true) { Err(libc::EINVAL) } else { Ok((now, to)) }
}

fn remember(q: &CQp, a: &ibv_qp_attr, mask: u32) {
    let mut m = q.attr.lock();
    macro_rules! keep {
        ($($bit:ident => $($field:ident),+;)*) => { $( if mask & $bit != 0 { $( m.$field = a.$field; )+ } )* };
    }
    keep! {
        ACCESS => qp_access_flags;
        PKEY => pkey_index;
        PORT => port_num;
        QKEY => qkey;
        AV => ah_attr;
        MTU => path_mtu;
        TIMEOUT => timeout;
        RETRY => retry_cnt;
        RNR_RETRY => rnr_retry;
        RQ_PSN => rq_psn;
        MAX_READS => max_rd_atomic;
        ALT_PATH => alt_ah_attr, alt_pkey_index, alt_port_num, alt_timeout;
        RNR_TIMER => min_rnr_timer;
        SQ_PSN => sq_psn;
        MAX_DEST_READS => max_dest_rd_atomic;
        MIGRATION => path_mig_state;
        DEST_QPN => dest_qp_num;
        SQD_NOTIFY => en_sqd_async_notify;
    }
}

/// Tells peers and the two halves what was set.
unsafe fn apply(q: &CQp, mask: u32) -> Result<(), c_int> {
    let m = q.attributes();
    let shared = q.core.shared();
    shared.access.store(m.qp_access_flags, Relaxed);
    shared.qkey.store(m.qkey, Relaxed);
    if mask & PORT != 0 {
        shared.port.store(q.host.ports[q.core.plan.device][usize::from(m.port_num) - 1], Relaxed);
    }
    if mask & MAX_DEST_READS != 0 {
        shared.max_answers.store(m.max_dest_rd_atomic.into(), Relaxed);
    }
    if mask & RQ_PSN != 0 {
        shared.peer.store(m.dest_qp_num, Relaxed);
        shared.inward.lock().responder = Responder::new(m.rq_psn, m.min_rnr_timer);
    } else if mask & RNR_TIMER != 0 {
        shared.inward.lock().responder.rnr_timer = m.min_rnr_timer;
    }
    let mut sender = q.core.sender.lock();
    if mask & AV != 0 {
        // SAFETY: the caller's.
        let (from, to, _) = unsafe { resolve(q.ex.qp_base.context, &m.ah_attr)? };
        sender.set_route(q.host, q.core.number, Route { from, to, qp: m.dest_qp_num });
    }
    let mtu = if q.core.plan.kind == kind::UD { 4096 } else { 128 << m.path_mtu.clamp(1, 5) };
    let settings = Settings {
        mtu,
        segment: q.host.config.segment.max(mtu),
        window: q.host.config.window / mtu,
        max_answers: m.max_rd_atomic.into(),
        timeout_ns: rnr::ack_timeout_ns(m.timeout).filter(|_| !matches!(q.core.plan.kind, kind::UC | kind::UD)),
        retries: m.retry_cnt,
        rnr_retries: m.rnr_retry,
    };
    if mask & (MTU | TIMEOUT | RETRY | RNR_RETRY | MAX_READS | SQ_PSN) != 0 {
        sender.set(settings, (mask & SQ_PSN != 0).then_some(m.sq_psn));
    }
    Ok(())
}

unsafe fn purge(q: &CQp) {
    for cq in [q.init.send_cq, q.init.recv_cq] {
        // SAFETY: the caller's: null or live.
        let Some(c) = (unsafe { cq.cast::<Cq>().as_ref() }) else { continue };
        c.polling.lock();
        crate::nic::cq::purge(&q.host.me, c.shared, q.core.number, 0);
        // SAFETY: locked above.
        unsafe { c.polling.unlock() };
    }
}

/// Changes a QP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    errno(|| {
        // SAFETY: the caller's.
        let (q, a) = unsafe { (CQp::of(qp), &*attr) };
        let mask = mask.cast_unsigned();
        if q.host.is_inherited() {
            return Err(libc::EINVAL);
        }
        let (from, to) = check(q, a, mask)?;
        if mask & AV != 0 {
            // SAFETY: the caller's.
            unsafe { resolve(q.ex.qp_base.context, &a.ah_attr)? };
        }
        remember(q, a, mask);
        if to == state::RESET {
            q.core.reset(q.host);
            // SAFETY: the caller's; a plain C struct, of which zeros are a value.
            unsafe {
                purge(q);
                *q.attr.lock() = core::mem::zeroed();
            }
        } else if to == state::ERR {
            if from != state::ERR {
                q.core.enter_error(q.host);
            }
        } else {
            // SAFETY: the caller's.
            unsafe { apply(q, mask)? };
            // A peer may have put it into error meanwhile: that stays.
            let _ = q.core.shared().state.compare_exchange(from, to, SeqCst, SeqCst);
            if to == state::SQD || from == state::SQD {
                q.core.sender.lock().drain(to == state::SQD);
            }
            q.core.run(q.host);
        }
        // SAFETY: the caller's: no other thread changes the same QP.
        unsafe {
            (*qp).state = q.core.state();
            if q.builder.is_some() && matches!(to, state::RESET | state::RTS) {
                qp_ex::rearm(qp.cast());
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use state::*;

    #[test]
    fn a_connection_takes_the_three_steps() {
        let steps = [(RESET, INIT), (INIT, RTR), (RTR, RTS)];
        // As the kernel's table has it.
        let rc = steps.map(|(f, t)| masks(kind::RC, f, t).expect("a step").0);
        assert_eq!(rc, [0x38, 0x12_9180, 0x1_2e00]);
        let uc = steps.map(|(f, t)| masks(kind::UC, f, t).expect("a step").0);
        assert_eq!(uc, [0x38, 0x10_1180, 0x1_0000]);
        let ud = steps.map(|(f, t)| masks(kind::UD, f, t).expect("a step").0);
        assert_eq!(ud, [0x70, 0, 0x1_0000]);
    }

    #[test]
    fn there_is_no_way_but_through_them() {
        for (from, to) in [(RESET, RTR), (RESET, RTS), (INIT, RTS), (RTS, INIT), (RTR, INIT), (ERR, RTS), (ERR, INIT)] {
            assert_eq!(masks(kind::RC, from, to), None, "{from} to {to}");
        }
        for from in [RESET, INIT, RTR, RTS, SQD, ERR] {
            assert_eq!(masks(kind::RC, from, RESET), Some((0, 0)));
            assert_eq!(masks(kind::RC, from, ERR), Some((0, 0)));
        }
    }
}
