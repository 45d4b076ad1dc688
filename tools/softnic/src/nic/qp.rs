//! A queue pair, for its owner.

use super::host::Host;
use super::sender::Sender;
use super::{cq, receives};
use crate::core::responder::Responder;
use crate::shared::layout::{self, Completion, Element, Inward, Port, Receive};
use crate::shared::lock::Locked;
use core::mem::offset_of;
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use parking_lot::Mutex;
use std::io;

/// `IBV_QPS_*`.
pub mod state {
    #![allow(missing_docs, reason = "named as in the verbs")]
    pub const RESET: u32 = 0;
    pub const INIT: u32 = 1;
    pub const RTR: u32 = 2;
    pub const RTS: u32 = 3;
    pub const SQD: u32 = 4;
    pub const SQE: u32 = 5;
    pub const ERR: u32 = 6;
}

/// `IBV_QPT_*`.
pub mod kind {
    #![allow(missing_docs, reason = "named as in the verbs")]
    pub const RC: u32 = 2;
    pub const UC: u32 = 3;
    pub const UD: u32 = 4;
    pub const XRC_SEND: u32 = 9;
    pub const XRC_RECV: u32 = 10;
}

/// `IBV_WC_*` statuses.
pub mod status {
    #![allow(missing_docs, reason = "named as in the verbs")]
    pub const SUCCESS: u32 = 0;
    pub const LOC_LEN: u32 = 1;
    pub const LOC_QP_OP: u32 = 2;
    pub const LOC_PROT: u32 = 4;
    pub const FLUSHED: u32 = 5;
    pub const REM_INV_REQ: u32 = 9;
    pub const REM_ACCESS: u32 = 10;
    pub const REM_OP: u32 = 11;
    pub const RETRY_EXC: u32 = 12;
    pub const RNR_RETRY_EXC: u32 = 13;
}

/// `IBV_EVENT_*`.
pub mod event {
    #![allow(missing_docs, reason = "named as in the verbs")]
    pub const QP_FATAL: u32 = 1;
    pub const QP_REQ_ERR: u32 = 2;
    pub const QP_ACCESS_ERR: u32 = 3;
    pub const COMM_EST: u32 = 4;
    pub const SQ_DRAINED: u32 = 5;
    pub const SRQ_LIMIT_REACHED: u32 = 15;
    pub const LAST_WQE_REACHED: u32 = 16;
}

/// What a QP is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// `IBV_QPT_*`.
    pub kind: u32,
    /// Place of the device in the settings.
    pub device: usize,
    /// Protection domain.
    pub pd: u32,
    /// Offset of the CQ of sends.
    pub send_cq: u64,
    /// Offset of the CQ of receives.
    pub recv_cq: u64,
    /// Offset of the SRQ, or 0.
    pub srq: u64,
    /// Its context's queue of events.
    pub events: u32,
    /// What the program calls it.
    pub name: u64,
    /// Sends and receives that it holds.
    pub wrs: [u32; 2],
    /// Elements of each.
    pub elements: [u32; 2],
    /// Bytes of inline data.
    pub inline: u32,
    /// All WRs are signaled.
    pub all_signaled: bool,
}

/// A queue pair.
pub struct Qp {
    /// Its number.
    pub number: u32,
    /// Where it is in the segment.
    pub offset: u64,
    /// What it is made of.
    pub plan: Plan,
    /// Its sends.
    pub sender: Mutex<Sender>,
    shared: &'static layout::Qp,
    posting: Mutex<()>,
}

impl Qp {
    /// Makes a QP in RESET.
    pub fn new(host: &'static Host, number: u32, plan: Plan) -> io::Result<Qp> {
        let mapping = &host.me.mapping;
        let offset = host.arena.take(mapping, size_of::<layout::Qp>())?;
        let shared: &'static layout::Qp = mapping.at(offset).expect("it was just taken");
        let inward = Inward { responder: Responder::new(0, 0), current: Receive::EMPTY };
        // SAFETY: nobody knows of it yet.
        unsafe { Locked::init((&raw const shared.inward).cast_mut(), inward) };
        let own = if plan.srq == 0 { plan.wrs[1] } else { 0 };
        receives::create(&host.me, &host.arena, &shared.receives, own, plan.elements[1])?;
        shared.kind.store(plan.kind, Relaxed);
        shared.pd.store(plan.pd, Relaxed);
        shared.events.store(plan.events, Relaxed);
        shared.recv_cq.store(plan.recv_cq, Relaxed);
        shared.srq.store(plan.srq, Relaxed);
        shared.name.store(plan.name, Relaxed);
        shared.number.store(number, Release);
        Ok(Qp { number, offset, plan, sender: Mutex::new(Sender::new(&plan, shared)), shared, posting: Mutex::new(()) })
    }

    /// What peers see of it.
    pub fn shared(&self) -> &'static layout::Qp {
        self.shared
    }

    /// `IBV_QPS_*`.
    pub fn state(&self) -> u32 {
        self.shared.state.load(Acquire)
    }

    /// Its port's addresses.
    pub fn port<'a>(&self, host: &'a Host) -> Option<&'a Port> {
        host.me.mapping.at(self.shared.port.load(Relaxed))
    }

    /// Offset of its own receives.
    pub fn receives(&self) -> u64 {
        self.offset + offset_of!(layout::Qp, receives) as u64
    }

    /// Does what is due, and what can be done.
    pub fn run(&self, host: &'static Host) {
        self.sender.lock().run(self, host);
    }

    /// Appends a receive.
    pub fn post_receive(&self, host: &'static Host, id: u64, elements: &[Element]) -> Result<(), i32> {
        let state = self.state();
        if state == state::RESET || self.plan.srq != 0 || elements.len() > self.plan.elements[1] as usize {
            return Err(libc::EINVAL);
        }
        {
            let _posting = self.posting.lock();
            if !receives::post(&host.me, &self.shared.receives, id, elements) {
                return Err(libc::ENOMEM);
            }
        }
        // The state may have changed meanwhile: either the flush saw the receive, or this sees the state.
        if self.shared.state.load(core::sync::atomic::Ordering::SeqCst) == state::ERR {
            self.flush_receives(host);
        }
        Ok(())
    }

    /// Goes to error: all that is queued is flushed.
    pub fn enter_error(&self, host: &'static Host) {
        if host.is_inherited() {
            return;
        }
        self.shared.state.store(state::ERR, core::sync::atomic::Ordering::SeqCst);
        self.sender.lock().fail(self, host);
    }

    /// Completes what waits to receive, as flushed.
    pub fn flush_receives(&self, host: &'static Host) {
        let srq = self.plan.srq;
        let receives = if srq != 0 { srq + offset_of!(layout::Srq, receives) as u64 } else { self.receives() };
        let flushed = |id| Completion {
            id,
            status: status::FLUSHED,
            opcode: 128,
            qp: self.number,
            receives,
            ..Completion::default()
        };
        let mut inward = self.shared.inward.lock();
        if inward.responder.drop_receive() {
            cq::append(host, &host.me, self.plan.recv_cq, flushed(inward.current.id), true);
        }
        if self.plan.srq != 0 {
            return;
        }
        let mut receive = Receive::EMPTY;
        while receives::take(&host.me, &self.shared.receives, &mut receive) {
            cq::append(host, &host.me, self.plan.recv_cq, flushed(receive.id), true);
        }
    }

    /// Forgets all that was posted.
    pub fn reset(&self, host: &'static Host) {
        if host.is_inherited() {
            return;
        }
        let mut sender = self.sender.lock();
        let inward = &mut *self.shared.inward.lock();
        self.shared.state.store(state::RESET, Release);
        self.shared.fault.store(0, Relaxed);
        *sender = Sender::new(&self.plan, self.shared);
        inward.responder = Responder::new(0, 0);
        receives::clear(&self.shared.receives);
        self.shared.sends_polled.store(0, Release);
    }

    /// Gives back what it had in the segment; peers find it no more.
    pub fn destroy(&self, host: &'static Host) {
        if host.is_inherited() {
            return;
        }
        self.reset(host);
        self.shared.number.store(0, Release);
        host.remove_qp(self.number);
        // A peer may have found it just before: it checks the number again once it holds the lock.
        drop(self.shared.inward.lock());
        receives::destroy(&host.arena, &self.shared.receives);
        host.arena.give_back(self.offset, size_of::<layout::Qp>());
    }
}
