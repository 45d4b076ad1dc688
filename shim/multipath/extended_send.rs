//! `ibv_wr_*` on a QP that may be split: the pointers that such a QP has.
//!
//! What becomes of the WRs of a batch is [`WrBatch`]'s to say: they begin at the provider at once, or they are kept for the
//! engine, which gets them at `wr_complete`, after the provider has taken what began there.
//!
//! The provider holds its lock of the QP from `wr_start` to `wr_complete` or `wr_abort`, and the engine posts on the QP,
//! under its own lock, for whoever polls. Were they to wait for each other, both would for ever. So whoever builds holds
//! the gate all the while, as does whoever posts; who has the engine's lock only tries the gate, and leaves what was to be
//! posted to who holds it. Who holds it may wait for the engine's lock: nobody who has that waits for the provider then.

use super::flow::{Flow, Held};
use crate::extended_send::{self, Hooked, find};
use crate::guard;
use crate::send_ops;
use core::ffi::{c_int, c_void};
use rdma_sys::{ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge, ibv_wr_opcode};
use telereduce::multipath::batch::{Waiting, WrBatch};
use telereduce::multipath::wr::{Fields, Sge};

/// The QP, if it may be split, and a batch is being built: its state, and what becomes of its WRs.
///
/// # Safety
/// The caller is the one who builds, and holds one result at a time.
#[inline(always)]
unsafe fn building<'a>(qp: *mut ibv_qp_ex) -> Option<(&'static Hooked, &'static Flow, &'a mut WrBatch)> {
    let h = find(qp)?;
    let flow = h.flow()?;
    // SAFETY: the gate is held by who builds.
    if h.is_open() { Some((h, flow, unsafe { flow.batch()? })) } else { None }
}

/// A WR that waited begins at the provider, with the id and flags that it was begun with.
///
/// # Safety
/// The QP's builder calls.
#[inline(always)]
unsafe fn begin_late(h: &Hooked, qp: *mut ibv_qp_ex, w: Waiting) {
    // SAFETY: the caller's promise.
    unsafe {
        let now = ((*qp).wr_id, (*qp).wr_flags);
        ((*qp).wr_id, (*qp).wr_flags) = (w.wr_id, w.flags);
        match w.opcode {
            ibv_wr_opcode::IBV_WR_RDMA_READ => h.real.wr_rdma_read(qp, w.rkey, w.remote_addr),
            ibv_wr_opcode::IBV_WR_RDMA_WRITE => h.real.wr_rdma_write(qp, w.rkey, w.remote_addr),
            _ => h.real.wr_rdma_write_imm(qp, w.rkey, w.remote_addr, w.imm),
        }
        ((*qp).wr_id, (*qp).wr_flags) = now;
    }
}

/// A WR begins. True: at the provider, at once or once its length is known.
///
/// # Safety
/// As [`begin_late`].
#[inline(always)]
unsafe fn passes(h: &Hooked, flow: &'static Flow, b: &mut WrBatch, qp: *mut ibv_qp_ex) -> bool {
    if let Some(w) = b.take_waiting() {
        // SAFETY: the caller's promise.
        unsafe { begin_late(h, qp, w) };
    }
    if b.quota() == 0 && !b.keeps() {
        flow.look_for_room(b);
    }
    b.passes()
}

/// The hooks of what begins a WR that may be split, and of what begins any other.
macro_rules! begin {
    (
        splits { $($split:ident = $split_opcode:ident, |$r:ident, $a:ident $(, $i:ident)?|;)* }
        whole { $($whole:ident($($arg:ident: $type:ty),*) = $opcode:ident, { $($field:ident: $value:expr),* };)* }
    ) => {
        $(
            /// Hook of the pointer of this name.
            pub unsafe extern "C" fn $split(qp: *mut ibv_qp_ex, $r: u32, $a: u64 $(, $i: u32)?) {
                const OPCODE: u32 = ibv_wr_opcode::$split_opcode;
                // SAFETY: the program's QP, on which it builds.
                unsafe {
                    let Some((h, flow, b)) = building(qp) else { return send_ops::$split(qp, $r, $a $(, $i)?) };
                    h.begin(qp, OPCODE, 0);
                    let imm = [0 $(, $i)?];
                    let w = Waiting {
                        wr_id: (*qp).wr_id, flags: (*qp).wr_flags, opcode: OPCODE,
                        rkey: $r, remote_addr: $a, imm: imm[imm.len() - 1],
                    };
                    if !passes(h, flow, b, qp) {
                        b.keep(w.fields());
                    } else if flow.splits() {
                        b.wait(w);
                    } else {
                        h.real.$split(qp, $r, $a $(, $i)?);
                    }
                }
            }
        )*
        $(
            /// Hook of the pointer of this name.
            pub unsafe extern "C" fn $whole(qp: *mut ibv_qp_ex $(, $arg: $type)*) {
                // SAFETY: the program's QP, on which it builds.
                unsafe {
                    let Some((h, flow, b)) = building(qp) else { return send_ops::$whole(qp $(, $arg)*) };
                    h.begin(qp, ibv_wr_opcode::$opcode, 0);
                    if passes(h, flow, b, qp) {
                        h.real.$whole(qp $(, $arg)*);
                    } else {
                        b.keep(Fields {
                            wr_id: (*qp).wr_id, flags: (*qp).wr_flags, opcode: ibv_wr_opcode::$opcode,
                            $($field: $value,)* ..Fields::default()
                        });
                    }
                }
            }
        )*
    };
}

begin! {
    splits {
        wr_rdma_read = IBV_WR_RDMA_READ, |rkey, addr|;
        wr_rdma_write = IBV_WR_RDMA_WRITE, |rkey, addr|;
        wr_rdma_write_imm = IBV_WR_RDMA_WRITE_WITH_IMM, |rkey, addr, imm|;
    }
    whole {
        wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) = IBV_WR_ATOMIC_CMP_AND_SWP,
            { rkey: rkey, remote_addr: addr, compare_add: compare, swap: swap };
        wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) = IBV_WR_ATOMIC_FETCH_AND_ADD,
            { rkey: rkey, remote_addr: addr, compare_add: add };
        wr_bind_mw(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) = IBV_WR_BIND_MW,
            { extra: binding(mw, rkey, info) };
        wr_local_inv(rkey: u32) = IBV_WR_LOCAL_INV, { imm: rkey };
        wr_send() = IBV_WR_SEND, {};
        wr_send_imm(imm: u32) = IBV_WR_SEND_WITH_IMM, { imm: imm };
        wr_send_inv(rkey: u32) = IBV_WR_SEND_WITH_INV, { imm: rkey };
    }
}

/// As [`super::wr::read`] has it.
unsafe fn binding(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) -> [u64; 6] {
    // SAFETY: as ibv_wr_bind_mw demands.
    let i = unsafe { &*info };
    [mw as u64, u64::from(rkey), i.mr as u64, i.addr, i.length, u64::from(i.mw_access_flags)]
}

/// Hook of the pointer of this name: no QP that may be split has it.
pub unsafe extern "C" fn wr_send_tso(qp: *mut ibv_qp_ex, header: *mut c_void, bytes: u16, mss: u16) {
    let Some(h) = find(qp) else { return };
    h.begin(qp, ibv_wr_opcode::IBV_WR_TSO, u64::from(bytes));
    // SAFETY: the caller's promise, passed on.
    unsafe { h.real.wr_send_tso(qp, header, bytes, mss) }
}

/// Whether the newest WR is at the provider, which is to get its data. `bytes`: of data in a list.
///
/// # Safety
/// As [`begin_late`].
#[inline(always)]
unsafe fn is_there(h: &Hooked, flow: &'static Flow, b: &mut WrBatch, qp: *mut ibv_qp_ex, bytes: u64) -> bool {
    if b.is_waiting() {
        if bytes < flow.threshold_bytes() {
            if let Some(w) = b.take_waiting() {
                // SAFETY: the caller's promise.
                unsafe { begin_late(h, qp, w) };
            }
        } else {
            b.keep_waiting();
        }
    }
    !b.keeps()
}

/// Hook of the pointer of this name.
pub unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, bytes: u32) {
    // SAFETY: the program's QP, on which it builds.
    unsafe {
        let Some((h, flow, b)) = building(qp) else { return send_ops::wr_set_sge(qp, lkey, addr, bytes) };
        h.set_bytes(u64::from(bytes));
        if is_there(h, flow, b, qp, u64::from(bytes)) {
            h.real.wr_set_sge(qp, lkey, addr, bytes);
        } else {
            let one = [Sge { addr, length: bytes, lkey }];
            b.set_sges(if bytes == 0 { &[] } else { &one });
        }
    }
}

/// Hook of the pointer of this name.
pub unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, n: usize, list: *const ibv_sge) {
    // SAFETY: the program's QP, on which it builds, and a list of its own.
    unsafe {
        let Some((h, flow, b)) = building(qp) else { return send_ops::wr_set_sge_list(qp, n, list) };
        let bytes = send_ops::list_bytes(n, list);
        h.set_bytes(bytes);
        if is_there(h, flow, b, qp, bytes) {
            h.real.wr_set_sge_list(qp, n, list);
        } else if n == 0 || list.is_null() {
            b.set_sges(&[]);
        } else {
            // The layouts are the same.
            b.set_sges(core::slice::from_raw_parts(list.cast(), n));
        }
    }
}

/// Hook of the pointer of this name.
pub unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, data: *mut c_void, bytes: usize) {
    // SAFETY: the program's QP, on which it builds, and data of its own.
    unsafe {
        let Some((h, flow, b)) = building(qp) else { return send_ops::wr_set_inline_data(qp, data, bytes) };
        h.set_bytes(bytes as u64);
        if is_there(h, flow, b, qp, 0) {
            h.real.wr_set_inline_data(qp, data, bytes);
        } else {
            b.set_inline(core::iter::once(piece(data, bytes)));
        }
    }
}

/// Hook of the pointer of this name.
pub unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, n: usize, list: *const ibv_data_buf) {
    // SAFETY: the program's QP, on which it builds, and a list of its own.
    unsafe {
        let Some((h, flow, b)) = building(qp) else { return send_ops::wr_set_inline_data_list(qp, n, list) };
        h.set_bytes(send_ops::inline_bytes(n, list));
        if is_there(h, flow, b, qp, 0) {
            h.real.wr_set_inline_data_list(qp, n, list);
        } else {
            let list = if n == 0 || list.is_null() { &[] } else { core::slice::from_raw_parts(list, n) };
            b.set_inline(list.iter().map(|d| piece(d.addr, d.length)));
        }
    }
}

unsafe fn piece<'a>(data: *mut c_void, bytes: usize) -> &'a [u8] {
    // SAFETY: data of the program's, if there is any.
    if bytes == 0 || data.is_null() { &[] } else { unsafe { core::slice::from_raw_parts(data.cast(), bytes) } }
}

/// Hook of `ibv_wr_start`.
pub unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the program's QP, as ibv_wr_start demands.
    unsafe {
        let Some((h, flow)) = find(qp).and_then(|h| Some((h, h.flow()?))) else { return extended_send::wr_start(qp) };
        flow.counted().sends.tail.share();
        // As long as it takes: that is how long the provider's lock would take.
        h.gate.enter_patiently();
        if let Some(real) = h.real.wr_start() {
            real(qp);
        }
        h.open();
        if let Some(b) = flow.batch() {
            b.start();
        }
    }
}

/// The provider's half of a batch: to be ended once, in one way or the other.
struct Native {
    h: &'static Hooked,
    qp: *mut ibv_qp_ex,
    ended: bool,
}

impl Native {
    /// What began at the provider is posted.
    fn complete(&mut self) -> c_int {
        self.ended = true;
        // SAFETY: the program's QP, on which it has built; what waited has begun.
        self.h.real.wr_complete().map_or(libc::ENODEV, |real| unsafe { real(self.qp) })
    }

    /// It is not.
    fn abort(&mut self) {
        if !core::mem::replace(&mut self.ended, true)
            && let Some(real) = self.h.real.wr_abort()
        {
            // SAFETY: as above.
            unsafe { real(self.qp) };
        }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Hook of `ibv_wr_abort`.
pub unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: as in `wr_start`; the gate is held from there on.
    unsafe {
        let Some((h, flow, b)) = building(qp) else { return extended_send::wr_abort(qp) };
        h.shut();
        b.set_quota(0);
        drop(Native { h, qp, ended: false });
        guard::hot(|| drop(flow.hold(&h.gate)));
    }
}

/// Hook of `ibv_wr_complete`.
pub unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: as in `wr_abort`.
    unsafe {
        let Some((h, flow, b)) = building(qp) else { return extended_send::wr_complete(qp) };
        h.shut();
        if let Some(w) = b.take_waiting() {
            begin_late(h, qp, w);
        }
        let work = || {
            let mut held = flow.hold(&h.gate);
            let native = Native { h, qp, ended: false };
            if b.keeps() { with_rest(native, flow, b, &mut held) } else { plain(native, flow, b, &mut held) }
        };
        guard::hot(work).unwrap_or(libc::EIO)
    }
}

/// All WRs of the batch have begun at the provider.
///
/// # Safety
/// The gate is held.
#[inline(always)]
unsafe fn plain(mut native: Native, flow: &'static Flow, b: &mut WrBatch, held: &mut Held<'_>) -> c_int {
    let q = flow.counted();
    // SAFETY: the caller's promise.
    let facts = unsafe { native.h.batch() };
    let mut tail = q.sends.tail.lock();
    // SAFETY: the tail is locked.
    let noted = unsafe { q.note_batch(&mut tail, facts.wrs()) };
    let answer = native.complete();
    // All or none: a provider that fails has posted nothing.
    if answer == 0 {
        q.batch_accepted(noted, facts.wrs());
        facts.wrs().iter().for_each(|f| held.engine().note_passed(f.opcode, f.signaled != 0));
    } else {
        b.set_quota(0);
    }
    answer
}

/// The last WRs of the batch are the engine's.
///
/// # Safety
/// As [`plain`].
#[inline(never)]
unsafe fn with_rest(mut native: Native, flow: &'static Flow, b: &mut WrBatch, held: &mut Held<'_>) -> c_int {
    let q = flow.counted();
    // SAFETY: the caller's promise.
    let facts = unsafe { native.h.batch() };
    let (first, rest) = (b.passed(), b.kept().len());
    if b.is_refused() || facts.left_out() != 0 || !held.engine().has_room_for(first + rest) {
        b.set_quota(0);
        return flow.refusal();
    }
    let mut tail = q.sends.tail.lock();
    // SAFETY: the tail is locked.
    let noted = unsafe { q.note_batch(&mut tail, facts.wrs()) };
    if first == 0 {
        native.abort();
    } else {
        let answer = native.complete();
        if answer != 0 {
            b.set_quota(0);
            return answer;
        }
    }
    q.batch_accepted(noted, facts.wrs());
    facts.wrs().iter().take(first).for_each(|f| held.engine().note_passed(f.opcode, f.signaled != 0));
    // From now on the engine holds something, or has less room.
    b.set_quota(0);
    b.kept().for_each(|wr| held.take(&wr));
    0
}
