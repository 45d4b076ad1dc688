//! Bringing a packet to a QP of whomever: the sender's thread does what the receiver's NIC would do, in memory that both
//! share, and moves the payload from the one process to the other.

use super::bounce::{self, Way};
use super::copy::{self, CopyError, Pieces};
use super::cq;
use super::events::Event;
use super::host::Host;
use super::keys::{self, Held};
use super::peer::Peer;
use super::qp::{event, kind, state, status};
use super::receives;
use crate::core::packet::{Extra, Op, Packet, Refusal, Reply};
use crate::core::responder::{Memory, Trouble};
use crate::net::gid::Gid;
use crate::shared::layout::{Completion, MAX_SGE, Port, Qp, Receive, Srq};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use std::sync::Once;

/// Bytes of the header that a datagram begins with.
pub const GRH: u32 = 40;

/// Who sends.
#[derive(Clone, Copy)]
pub struct From<'a> {
    /// Number of the QP.
    pub qp: u32,
    /// `IBV_QPT_*`.
    pub kind: u32,
    /// Source address.
    pub gid: Gid,
    /// Destination address.
    pub to: Gid,
    /// XRC: number of the SRQ.
    pub srq: u32,
    /// Datagrams: the key.
    pub qkey: u32,
    /// The packet's bytes, or where they go.
    pub ours: &'a Pieces,
}

/// Whether a port has an address and is up.
fn listens(port: &Port, gid: Gid) -> bool {
    let n = port.gids.load(Relaxed) as usize;
    port.up.load(Relaxed) != 0
        && port.gid.iter().take(n).any(|g| Gid::from_halves([g[0].load(Relaxed), g[1].load(Relaxed)]) == gid)
}

fn fits(ours: u32, theirs: u32) -> bool {
    ours == theirs || (ours == kind::XRC_SEND && theirs == kind::XRC_RECV)
}

/// Brings a packet. `None`: it went nowhere, or nothing is said about it.
pub fn deliver(host: &Host, peer: &Peer, number: u32, from: &From, packet: &Packet) -> Option<Reply> {
    let (qp_offset, qp) = peer.qp_at(number).filter(|_| !peer.is_gone())?;
    let port: &Port = peer.mapping.at(qp.port.load(Relaxed))?;
    let mut inward = qp.inward.lock();
    let inward = &mut *inward;
    let st = qp.state.load(Acquire);
    if qp.number.load(Acquire) != number || !matches!(st, state::RTR | state::RTS | state::SQD) {
        return None;
    }
    if !fits(from.kind, qp.kind.load(Relaxed)) || !listens(port, from.to) {
        return None;
    }
    let mut bringing =
        Bringing { host, peer, qp, qp_offset, from, current: &mut inward.current, srq: None, trouble: status::FLUSHED };
    if from.kind == kind::UD {
        if from.qkey == qp.qkey.load(Relaxed) {
            bringing.datagram(packet);
        }
        return None;
    }
    if qp.peer.load(Relaxed) != from.qp {
        return None;
    }
    if from.kind == kind::UC {
        inward.responder.on_unreliable(packet, &mut bringing);
        return None;
    }
    let fresh = !inward.responder.established;
    let reply = inward.responder.on_packet(packet, &mut bringing);
    let (trouble, receives) = (bringing.trouble, bringing.taken_from());
    if fresh && inward.responder.established && st == state::RTR {
        tell(host, peer, qp, event::COMM_EST);
    }
    if let Some(Reply::Refused { why, .. }) = reply {
        qp.state.store(state::ERR, SeqCst);
        if inward.responder.drop_receive() {
            let id = inward.current.id;
            let c = Completion { id, status: trouble, qp: number, opcode: 128, receives, ..Completion::default() };
            cq::append(host, peer, qp.recv_cq.load(Relaxed), c, true);
        }
        tell(
            host,
            peer,
            qp,
            match why {
                Refusal::Access => event::QP_ACCESS_ERR,
                Refusal::InvalidRequest => event::QP_REQ_ERR,
                Refusal::Operation => event::QP_FATAL,
            },
        );
        qp.fault.store(1, Release);
        host.ask_for_attention(peer);
    }
    reply
}

fn tell(host: &Host, peer: &Peer, qp: &Qp, kind: u32) {
    peer.notify(&host.registry, qp.events.load(Relaxed), Event { kind, name: qp.name.load(Relaxed) });
}

struct Bringing<'a> {
    host: &'a Host,
    peer: &'a Peer,
    qp: &'a Qp,
    qp_offset: u64,
    from: &'a From<'a>,
    current: &'a mut Receive,
    /// Where the receive was taken from.
    srq: Option<&'a Srq>,
    /// Status of the receive, if it fails.
    trouble: u32,
}

const ACCESS: Trouble = Trouble::Refused(Refusal::Access);
const INVALID: Trouble = Trouble::Refused(Refusal::InvalidRequest);
const OPERATION: Trouble = Trouble::Refused(Refusal::Operation);

impl<'a> Bringing<'a> {
    fn srq(&self) -> Result<Option<&'a Srq>, Trouble> {
        let offset = self.srq_offset();
        if offset == 0 {
            return Ok(None);
        }
        let srq: &Srq = self.peer.mapping.at(offset).ok_or(INVALID)?;
        let wrong = self.from.srq != 0 && srq.number.load(Acquire) != self.from.srq;
        if wrong { Err(INVALID) } else { Ok(Some(srq)) }
    }

    /// Offset of the receives that the current one was taken from.
    fn taken_from(&self) -> u64 {
        match self.srq_offset() {
            0 => self.qp_offset + offset_of!(Qp, receives) as u64,
            srq => srq + offset_of!(Srq, receives) as u64,
        }
    }

    fn srq_offset(&self) -> u64 {
        if self.from.srq != 0 { u64::from(self.from.srq) << 6 } else { self.qp.srq.load(Relaxed) }
    }

    /// Bytes of the current receive, from an offset on, for writing; `skip`: what came before the message.
    fn place(&mut self, offset: u32, bytes: u32) -> Result<Pieces, Trouble> {
        let (mut skip, mut left) = (u64::from(offset), u64::from(bytes));
        let pd = self.srq.map_or(self.qp.pd.load(Relaxed), |s| s.pd.load(Relaxed));
        let mut pieces = Pieces::new();
        for e in &self.current.elements[..(self.current.n as usize).min(MAX_SGE)] {
            let n = u64::from(e.bytes).saturating_sub(skip).min(left);
            let begin = e.addr.wrapping_add(skip.min(u64::from(e.bytes)));
            skip = skip.saturating_sub(u64::from(e.bytes));
            if n == 0 {
                continue;
            }
            let held = keys::hold(self.peer, e.key);
            let at = held
                .filter(|h| h.range.pd == pd && h.range.access & keys::LOCAL_WRITE != 0)
                .and_then(|h| h.place(begin, n));
            let Some(at) = at else {
                self.trouble = status::LOC_PROT;
                return Err(OPERATION);
            };
            pieces.push(at, n as usize);
            left -= n;
        }
        if left > 0 {
            self.trouble = status::LOC_LEN;
            return Err(INVALID);
        }
        Ok(pieces)
    }

    /// The remote memory of a packet.
    fn remote(&self, p: &Packet, need: u32) -> Result<(Held<'a>, u64), Trouble> {
        let held = keys::hold(self.peer, p.rkey).ok_or(ACCESS)?;
        let r = &held.range;
        let allowed = r.access & need != 0 && self.qp.access.load(Relaxed) & need != 0;
        // XRC: the domain is that of the SRQ which the WR names.
        let pd = match self.srq()?.filter(|_| self.from.srq != 0) {
            Some(srq) => srq.pd.load(Relaxed),
            None => self.qp.pd.load(Relaxed),
        };
        let ours = r.pd == pd && (r.kind != 2 || r.qp == self.qp.number.load(Relaxed));
        if !allowed || !ours {
            return Err(ACCESS);
        }
        held.place(p.addr, u64::from(p.total)).ok_or(ACCESS)?;
        let at = held.place(p.addr + u64::from(p.offset), u64::from(p.bytes)).ok_or(ACCESS)?;
        Ok((held, at))
    }

    /// Copies to the receiver.
    unsafe fn put(&self, theirs: &Pieces, ours: &Pieces) -> Result<(), CopyError> {
        // SAFETY: the caller's promise.
        unsafe {
            self.either(
                || copy::write(self.peer.pid, theirs, ours),
                || bounce::transfer(self.peer, Way::There, theirs, ours),
            )
        }
    }

    /// Copies from the receiver.
    unsafe fn get(&self, theirs: &Pieces, ours: &Pieces) -> Result<(), CopyError> {
        // SAFETY: the caller's promise.
        unsafe {
            self.either(
                || copy::read(self.peer.pid, theirs, ours),
                || bounce::transfer(self.peer, Way::Here, theirs, ours),
            )
        }
    }

    /// Directly, where that is allowed.
    fn either(
        &self,
        direct: impl FnOnce() -> Result<(), CopyError>,
        bounced: impl FnOnce() -> Result<(), CopyError>,
    ) -> Result<(), CopyError> {
        let other = self.peer.pid.is_some();
        if other && (!self.host.config.direct || self.peer.denied.load(Relaxed)) {
            return bounced();
        }
        let done = direct();
        if done == Err(CopyError::Denied) {
            self.peer.denied.store(true, Relaxed);
            return bounced();
        }
        done
    }

    fn moved(&self, r: Result<(), CopyError>, fault: Trouble) -> Result<(), Trouble> {
        r.map_err(|e| match e {
            CopyError::Fault => fault,
            CopyError::Gone => {
                self.peer.gone.store(true, Relaxed);
                Trouble::Lost
            }
            CopyError::Denied => {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    crate::say(format_args!("the system does not allow copying between processes; set direct = false"));
                });
                Trouble::Lost
            }
        })
    }

    fn datagram(&mut self, p: &Packet) {
        if self.take_receive().is_err() {
            return;
        }
        let mut header = [0u8; GRH as usize];
        header[0] = 0x60;
        header[4..6].copy_from_slice(&(p.total as u16).to_be_bytes());
        header[6] = 0x1b;
        header[7] = 64;
        header[8..24].copy_from_slice(&self.from.gid.0);
        header[24..40].copy_from_slice(&self.from.to.0);
        let ours = Pieces::one(header.as_mut_ptr() as u64, header.len());
        let r = self.place(0, GRH).and_then(|theirs| {
            // SAFETY: the receive's memory, and the header above.
            self.moved(unsafe { self.put(&theirs, &ours) }, OPERATION)
        });
        let r = r.and_then(|()| self.place(GRH, p.bytes)).and_then(|theirs| {
            // SAFETY: the receive's memory, and the sender's.
            self.moved(unsafe { self.put(&theirs, self.from.ours) }, OPERATION)
        });
        let status = if r.is_ok() { status::SUCCESS } else { self.trouble };
        self.receive_done(p, status, GRH);
    }

    fn receive_done(&mut self, p: &Packet, status: u32, header: u32) {
        const WITH_GRH: u32 = 1;
        const WITH_IMM: u32 = 2;
        const WITH_INV: u32 = 8;
        let (flags, extra) = match p.extra {
            Extra::None => (0, 0),
            Extra::Immediate(i) => (WITH_IMM, i),
            Extra::Invalidate(k) => (WITH_INV, k),
        };
        let c = Completion {
            id: self.current.id,
            status,
            opcode: if p.op == Op::Write { 129 } else { 128 },
            vendor_err: 0,
            bytes: p.total + header,
            extra,
            qp: self.qp.number.load(Relaxed),
            source: self.from.qp,
            flags: flags | if header > 0 { WITH_GRH } else { 0 },
            time: super::clock::now(),
            sends: 0,
            receives: self.taken_from(),
        };
        let xrc = self.srq().ok().flatten().filter(|_| self.from.srq != 0);
        let to = xrc.map_or(self.qp.recv_cq.load(Relaxed), |s| s.cq.load(Relaxed));
        cq::append(self.host, self.peer, to, c, p.solicited);
    }
}

impl Memory for Bringing<'_> {
    fn take_receive(&mut self) -> Result<(), Trouble> {
        self.srq = self.srq()?;
        let Some(srq) = self.srq else {
            let taken = receives::take(self.peer, &self.qp.receives, self.current);
            return if taken { Ok(()) } else { Err(Trouble::NotReady) };
        };
        let _taking = srq.taking.lock();
        if !receives::take(self.peer, &srq.receives, self.current) {
            return Err(Trouble::NotReady);
        }
        let limit = srq.limit.load(Relaxed);
        if limit > 0 && receives::len(&srq.receives) < u64::from(limit) {
            srq.limit.store(0, Relaxed);
            let told = Event { kind: event::SRQ_LIMIT_REACHED, name: srq.name.load(Relaxed) };
            self.peer.notify(&self.host.registry, srq.events.load(Relaxed), told);
        }
        Ok(())
    }

    fn fill_receive(&mut self, p: &Packet) -> Result<(), Trouble> {
        if self.srq.is_none() {
            // It may have been taken with an earlier packet.
            self.srq = self.srq()?;
        }
        let theirs = self.place(p.offset, p.bytes)?;
        // SAFETY: memory of the receive that was taken, and of the WR.
        let r = self.moved(unsafe { self.put(&theirs, self.from.ours) }, OPERATION);
        if r == Err(OPERATION) {
            self.trouble = status::LOC_PROT;
        }
        r
    }

    fn write(&mut self, p: &Packet) -> Result<(), Trouble> {
        if p.total == 0 {
            return Ok(());
        }
        let (_held, at) = self.remote(p, keys::REMOTE_WRITE)?;
        // SAFETY: registered memory, held for so long, and the WR's.
        self.moved(unsafe { self.put(&Pieces::one(at, p.bytes as usize), self.from.ours) }, ACCESS)
    }

    fn read(&mut self, p: &Packet) -> Result<(), Trouble> {
        if p.total == 0 {
            return Ok(());
        }
        let (_held, at) = self.remote(p, keys::REMOTE_READ)?;
        // SAFETY: as above.
        self.moved(unsafe { self.get(&Pieces::one(at, p.bytes as usize), self.from.ours) }, ACCESS)
    }

    fn atomic(&mut self, p: &Packet) -> Result<u64, Trouble> {
        let (_held, at) = self.remote(p, keys::REMOTE_ATOMIC)?;
        if !at.is_multiple_of(8) {
            return Err(INVALID);
        }
        let changed = |old: u64| match p.op {
            Op::CompareSwap => (old == p.operands[0]).then_some(p.operands[1]),
            _ => Some(old.wrapping_add(p.operands[0])),
        };
        let _alone = self.peer.header().atomics.lock();
        if self.peer.pid.is_none() {
            // SAFETY: registered memory of this process, aligned.
            let there = unsafe { AtomicU64::from_ptr(at as *mut u64) };
            return Ok(there.fetch_update(SeqCst, SeqCst, changed).unwrap_or_else(|old| old));
        }
        let (mut old, theirs) = (0u64, Pieces::one(at, 8));
        // SAFETY: registered memory, held for so long, and a local variable.
        let got = unsafe { self.get(&theirs, &Pieces::one(&raw mut old as u64, 8)) };
        self.moved(got, ACCESS)?;
        if let Some(mut new) = changed(old) {
            // SAFETY: as above.
            let put = unsafe { self.put(&theirs, &Pieces::one(&raw mut new as u64, 8)) };
            self.moved(put, ACCESS)?;
        }
        Ok(old)
    }

    fn answer_atomic(&mut self, _p: &Packet, mut value: u64) -> Result<(), Trouble> {
        // SAFETY: the WR's memory, and a local variable.
        self.moved(unsafe { copy::write(None, self.from.ours, &Pieces::one(&raw mut value as u64, 8)) }, OPERATION)
    }

    fn invalidate(&mut self, key: u32) -> Result<(), Trouble> {
        let allowed = keys::hold(self.peer, key).is_some_and(|h| {
            let bound = h.range.qp == self.qp.number.load(Relaxed);
            h.range.kind == 2 && h.range.pd == self.qp.pd.load(Relaxed) && bound
        });
        if allowed && keys::invalidate(self.peer, key) { Ok(()) } else { Err(ACCESS) }
    }

    fn complete_receive(&mut self, p: &Packet) {
        self.receive_done(p, status::SUCCESS, 0);
    }
}
