//! `ibv_start_poll` and so on, of CQs that may serve engines: the pointers that such a CQ has.
//!
//! Once a CQ serves engines, each completion is taken out of the provider alone, by the real ibv_poll_cq, and only then
//! shown to the program. So nothing of the provider's is held over the program's code, where the program may well wait for
//! what only the CQ's next completion sets off; and the helper can always poll. A poll of the program's excludes others of
//! the program's, as it would natively, by the gate.
//!
//! Timestamps and the like are only to be had by ibv_start_poll, which writes to the CQ. The helper leaves a CQ that was
//! asked for these alone while the program stands at a completion.
//!
//! A CQ that never served an engine is polled as the program polls it.

use super::cq::{CqState, Kept};
use crate::extended_poll::{self, Hooked};
use crate::guard;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use rdma_sys::{ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc, ibv_wc_status};
use telereduce::sync::Entry;

/// Polled at once by the helper.
const BATCH: usize = 64;

/// Fields of a completion that `ibv_wc` has no room for.
#[derive(Clone, Copy, Default)]
pub struct More {
    slid: u32,
    completion_ts: u64,
    wallclock_ns: u64,
    flow_tag: u32,
    cvlan: u16,
}

/// `IBV_WC_STANDARD_FLAGS`: what `ibv_poll_cq` tells.
const STANDARD: u64 = 0x7f;
const BYTE_LEN: u64 = 1 << 0;
const IMM: u64 = 1 << 1;
const QP_NUM: u64 = 1 << 2;
const SRC_QP: u64 = 1 << 3;
const SLID: u64 = 1 << 4;
const SL: u64 = 1 << 5;
const DLID: u64 = 1 << 6;
const COMPLETION_TS: u64 = 1 << 7;
const CVLAN: u64 = 1 << 8;
const FLOW_TAG: u64 = 1 << 9;
const TM_INFO: u64 = 1 << 10;
const WALLCLOCK: u64 = 1 << 11;

/// Nobody polls.
const SHUT: u8 = 0;
/// The provider stands at a completion, and holds its lock.
const REAL: u8 = 1;
/// The program stands at [`Extended::current`].
const COPY: u8 = 2;
/// The program has seen all, and is to end its poll.
const ENDED: u8 = 3;

/// What a CQ has that is polled in this way.
pub struct Extended {
    hooked: &'static Hooked,
    readers: Readers,
    /// `wc_flags` of the program's beyond [`STANDARD`], and then [`STANDARD`].
    special: u64,
    /// Soft-RoCE: an ibv_next_poll that finds nothing has ended the poll.
    ends_when_empty: bool,
    /// Of the program's poll: [`SHUT`], [`REAL`], [`COPY`] or [`ENDED`]. [`REAL`] only begins under the CQ's lock.
    mode: AtomicU8,
    /// That of who holds the gate.
    current: UnsafeCell<(ibv_wc, More)>,
}

/// Declares the pointers that read a field, and the hook of each.
macro_rules! readers {
    ($($name:ident -> $type:ty, |$wc:ident, $more:ident| $value:expr;)*) => {
        /// The provider's functions, 0 where there is none.
        #[derive(Default)]
        struct Readers { $($name: AtomicUsize,)* }

        impl Readers { $(
            /// # Safety
            /// The CQ stands at a completion.
            #[inline(always)]
            unsafe fn $name(&self, cq: *mut ibv_cq_ex) -> $type {
                let real = self.$name.load(Acquire);
                if real == 0 {
                    return Default::default();
                }
                // SAFETY: the provider's pointer of this name, whose type this is.
                unsafe {
                    let real: unsafe extern "C" fn(*mut ibv_cq_ex) -> $type = core::mem::transmute(real);
                    real(cq)
                }
            }
        )* }

        $(unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            let Some(x) = found(cq) else { return Default::default() };
            if x.mode.load(Relaxed) == COPY {
                // SAFETY: the program's poll, which holds the gate.
                let ($wc, $more) = unsafe { &*x.current.get() };
                let _ = ($wc, $more);
                return $value;
            }
            // SAFETY: as the program's call demands.
            unsafe { x.readers.$name(cq) }
        })*

        /// Calls `f` with each pointer that reads a field, its cell and its hook.
        ///
        /// # Safety
        /// `cq` is an extended CQ.
        unsafe fn each(cq: *mut ibv_cq_ex, readers: &Readers, f: impl Fn(&AtomicUsize, &AtomicUsize, usize)) {
            // SAFETY: the caller's promise.
            unsafe { $(
                f(slot(cq, offset_of!(ibv_cq_ex, $name)), &readers.$name, $name as *const () as usize);
            )* }
        }
    };
}

readers! {
    read_opcode -> u32, |wc, more| wc.opcode;
    read_vendor_err -> u32, |wc, more| wc.vendor_err;
    read_byte_len -> u32, |wc, more| wc.byte_len;
    // SAFETY: a number.
    read_imm_data -> u32, |wc, more| unsafe { wc.imm_data_invalidated_rkey_union.imm_data };
    read_qp_num -> u32, |wc, more| wc.qp_num;
    read_src_qp -> u32, |wc, more| wc.src_qp;
    read_wc_flags -> u32, |wc, more| wc.wc_flags;
    read_slid -> u32, |wc, more| more.slid;
    read_sl -> u8, |wc, more| wc.sl;
    read_dlid_path_bits -> u8, |wc, more| wc.dlid_path_bits;
    read_completion_ts -> u64, |wc, more| more.completion_ts;
    read_cvlan -> u16, |wc, more| more.cvlan;
    read_flow_tag -> u32, |wc, more| more.flow_tag;
    read_completion_wallclock_ns -> u64, |wc, more| more.wallclock_ns;
}

/// # Safety
/// `cq` is an extended CQ that has a pointer there.
unsafe fn slot<'a>(cq: *mut ibv_cq_ex, offset: usize) -> &'a AtomicUsize {
    // SAFETY: the caller's promise: aligned, and as large as a pointer.
    unsafe { AtomicUsize::from_ptr(cq.byte_add(offset).cast()) }
}

fn found(cq: *mut ibv_cq_ex) -> Option<&'static Extended> {
    extended_poll::find(cq)?.state()?.extended.as_ref()
}

/// The CQ, if its completions may be engines'.
#[inline(always)]
fn find(cq: *mut ibv_cq_ex) -> Option<(&'static CqState, &'static Extended)> {
    let state = extended_poll::find(cq).filter(|h| !h.is_inherited())?.state()?;
    Some((state, state.extended.as_ref()?))
}

/// What a CQ is to be created with, so that it can serve engines: room, and the fields that are needed. `None`: it serves
/// none.
pub fn enlarged(attr: &ibv_cq_init_attr_ex, extra: u32) -> Option<ibv_cq_init_attr_ex> {
    /// `IBV_CQ_INIT_ATTR_MASK_FLAGS`.
    const FLAGS: u32 = 1;
    /// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`: the helper must not poll it.
    const SINGLE_THREADED: u32 = 1;
    // A CQ of a parent domain may have no lock either.
    let fits = super::is_on()
        && attr.cqe > 0
        && attr.comp_mask & !FLAGS == 0
        && (attr.comp_mask & FLAGS == 0 || attr.flags & SINGLE_THREADED == 0)
        // A CQ of a shared receive queue that matches tags, which no engine sends to.
        && attr.wc_flags & TM_INFO == 0;
    let cqe = attr.cqe.checked_add(extra)?;
    let needed = if attr.wc_flags & !STANDARD == 0 { BYTE_LEN | QP_NUM } else { STANDARD };
    fits.then_some(ibv_cq_init_attr_ex { cqe, wc_flags: attr.wc_flags | needed, ..*attr })
}

impl Extended {
    /// That of a CQ that was created as [`enlarged`] says. `None`: its pointers are not as expected.
    ///
    /// # Safety
    /// `cq` was just created, and nobody else knows it yet.
    pub unsafe fn new(cq: *mut ibv_cq, asked: u64) -> Option<Extended> {
        let hooked = extended_poll::find(cq)?;
        // SAFETY: an extended CQ, since it is hooked.
        let x = unsafe { &*cq.cast::<ibv_cq_ex>() };
        x.read_qp_num?;
        x.read_byte_len?;
        x.read_opcode?;
        x.read_vendor_err?;
        // SAFETY: numbers, for which zero is valid.
        let current = UnsafeCell::new((unsafe { core::mem::zeroed() }, More::default()));
        Some(Extended {
            hooked,
            readers: Readers::default(),
            special: if asked & !STANDARD == 0 { 0 } else { asked | STANDARD },
            ends_when_empty: super::provider::is_soft_roce(hooked.start_poll as *const () as usize),
            mode: AtomicU8::new(SHUT),
            current,
        })
    }

    /// Puts our readers where there are the provider's.
    ///
    /// # Safety
    /// `cq` is the CQ that this was made for.
    pub unsafe fn show(&self, cq: *mut ibv_cq) {
        // SAFETY: the caller's promise.
        unsafe {
            each(cq.cast(), &self.readers, |slot, real, ours| {
                let there = slot.load(Relaxed);
                if there != 0 && there != ours {
                    real.store(there, Release);
                    slot.store(ours, Release);
                }
            });
        }
    }

    /// Puts the provider's readers back.
    ///
    /// # Safety
    /// As [`show`](Extended::show).
    pub unsafe fn hide(&self, cq: *mut ibv_cq) {
        // SAFETY: the caller's promise.
        unsafe {
            each(cq.cast(), &self.readers, |slot, real, ours| {
                if slot.load(Relaxed) == ours {
                    slot.store(real.load(Relaxed), Release);
                }
            });
        }
    }

    /// What the provider says of the completion at which it stands: these fields, and those that say whose it is.
    ///
    /// # Safety
    /// It stands at one.
    unsafe fn read(&self, cq: *mut ibv_cq_ex, fields: u64) -> (ibv_wc, More) {
        // SAFETY: numbers, for which zero is valid.
        let mut wc: ibv_wc = unsafe { core::mem::zeroed() };
        let (mut more, r) = (More::default(), &self.readers);
        // SAFETY: the caller's promise.
        unsafe {
            (wc.wr_id, wc.status) = ((*cq).wr_id, (*cq).status);
            wc.qp_num = r.read_qp_num(cq);
            if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
                // Nothing else is defined.
                wc.vendor_err = r.read_vendor_err(cq);
                return (wc, more);
            }
            wc.opcode = r.read_opcode(cq);
            wc.byte_len = r.read_byte_len(cq);
            let has = |field: u64| fields & field != 0;
            if fields != 0 {
                wc.wc_flags = r.read_wc_flags(cq);
            }
            if has(IMM) {
                wc.imm_data_invalidated_rkey_union.imm_data = r.read_imm_data(cq);
            }
            if has(SRC_QP) {
                wc.src_qp = r.read_src_qp(cq);
            }
            if has(SLID) {
                more.slid = r.read_slid(cq);
                wc.slid = more.slid as u16;
            }
            if has(SL) {
                wc.sl = r.read_sl(cq);
            }
            if has(DLID) {
                wc.dlid_path_bits = r.read_dlid_path_bits(cq);
            }
            if fields & !STANDARD != 0 {
                self.read_rest(cq, fields, &mut more);
            }
        }
        (wc, more)
    }

    /// # Safety
    /// As [`read`](Extended::read).
    #[cold]
    unsafe fn read_rest(&self, cq: *mut ibv_cq_ex, fields: u64, more: &mut More) {
        let (has, r) = (|field: u64| fields & field != 0, &self.readers);
        // SAFETY: the caller's promise.
        unsafe {
            if has(COMPLETION_TS) {
                more.completion_ts = r.read_completion_ts(cq);
            }
            if has(WALLCLOCK) {
                more.wallclock_ns = r.read_completion_wallclock_ns(cq);
            }
            if has(CVLAN) {
                more.cvlan = r.read_cvlan(cq);
            }
            if has(FLOW_TAG) {
                more.flow_tag = r.read_flow_tag(cq);
            }
        }
    }

    /// Takes one completion out of the provider.
    ///
    /// # Errors
    /// As ibv_start_poll's: `ENOENT` if there is none.
    ///
    /// # Safety
    /// The CQ exists, its lock is held, and the provider stands nowhere; if its fields are special, nor does the program.
    unsafe fn pull(&self, state: &CqState, cq: *mut ibv_cq_ex) -> Result<(ibv_wc, More), c_int> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.special != 0 {
                let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
                return match (self.hooked.start_poll)(cq, &raw mut attr) {
                    0 => {
                        let all = self.read(cq, self.special);
                        (self.hooked.end_poll)(cq);
                        Ok(all)
                    }
                    error => Err(error),
                };
            }
            // SAFETY: numbers, for which zero is valid.
            let mut wc: ibv_wc = core::mem::zeroed();
            match (state.counted.spec.real)(cq.cast(), 1, &raw mut wc) {
                1 => {
                    let slid = u32::from(wc.slid);
                    Ok((wc, More { slid, ..More::default() }))
                }
                0 => Err(libc::ENOENT),
                _ => Err(libc::EIO),
            }
        }
    }

    /// The program is to stand at its next completion; its own fields say which that is. Else, the provider's answer.
    ///
    /// # Safety
    /// As [`pull`](Extended::pull), of a CQ that serves engines; the program polls it.
    unsafe fn next(&self, state: &CqState, cq: *mut ibv_cq_ex) -> c_int {
        loop {
            let first = state.next_kept();
            let kept = match first {
                Some(kept) => kept,
                // SAFETY: the caller's promise.
                None => match unsafe { self.pull(state, cq) } {
                    Err(error) => return error,
                    Ok((mut wc, more)) => match state.judge(&mut wc, false) {
                        Some(told) => Kept { wc, more, told },
                        None => continue,
                    },
                },
            };
            kept.deliver();
            // SAFETY: the program's CQ; its poll has the gate.
            unsafe {
                ((*cq).wr_id, (*cq).status) = (kept.wc.wr_id, kept.wc.status);
                *self.current.get() = (kept.wc, kept.more);
            }
            self.mode.store(COPY, Relaxed);
            return 0;
        }
    }

    /// Polls for the program, which may not. How many; below 0: not now. The CQ's lock is held.
    pub fn draw(&self, state: &CqState, cq: *mut ibv_cq) -> c_int {
        let mode = self.mode.load(Relaxed);
        if mode == REAL || mode == COPY && self.special != 0 {
            return -1;
        }
        for n in 0..BATCH {
            // SAFETY: a CQ that exists, as in `CqState::draw`; for the rest see above.
            let (mut wc, more) = match unsafe { self.pull(state, cq.cast()) } {
                Ok(pulled) => pulled,
                Err(libc::ENOENT) => return n as c_int,
                Err(_) => return -1,
            };
            if let Some(told) = state.judge(&mut wc, false) {
                state.keep(Kept { wc, more, told });
            }
        }
        BATCH as c_int
    }

    /// Does a plain poll of the program's, with all others of its shut out.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let entered = self.hooked.gate.enter_patiently() == Entry::Entered;
        let result = work();
        if entered {
            self.hooked.gate.leave();
        }
        result
    }
}

/// Hook of `ibv_start_poll`.
pub unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the program's CQ and attributes, as ibv_start_poll demands.
    unsafe {
        let Some((state, x)) = find(cq) else { return extended_poll::start_poll(cq, attr) };
        let c = state.counted;
        c.lock.share();
        // As long as it takes: that is how long the provider's lock would take.
        let entry = x.hooked.gate.enter_patiently();
        let work = || {
            let mut last = c.lock.lock();
            let answer = if !state.has_served() {
                let answer = (x.hooked.start_poll)(cq, attr);
                if answer == 0 {
                    x.mode.store(REAL, Relaxed);
                    *x.current.get() = x.read(cq, 0);
                }
                answer
            } else if (*attr).comp_mask != 0 {
                libc::EINVAL
            } else {
                x.next(state, cq)
            };
            match answer {
                0 => c.completed(&mut last, core::slice::from_ref(&(*x.current.get()).0)),
                libc::ENOENT => c.empty(),
                _ => {}
            }
            answer
        };
        let answer = guard::hot(work).unwrap_or(libc::EIO);
        if answer != 0 && (x.mode.swap(SHUT, Relaxed) != SHUT || entry == Entry::Entered) {
            x.hooked.gate.leave();
        }
        answer
    }
}

/// Hook of `ibv_next_poll`.
pub unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: as in `start_poll`.
    unsafe {
        let Some((state, x)) = find(cq) else { return extended_poll::next_poll(cq) };
        let (c, mode) = (state.counted, x.mode.load(Relaxed));
        match mode {
            REAL | COPY => {}
            SHUT if !state.has_served() => return (x.hooked.next_poll)(cq),
            _ => return libc::ENOENT,
        }
        let work = || {
            let mut last = c.lock.lock();
            let answer = if mode == REAL && !state.has_served() {
                let answer = (x.hooked.next_poll)(cq);
                if answer == 0 {
                    *x.current.get() = x.read(cq, 0);
                }
                answer
            } else {
                if mode == REAL {
                    // It serves engines since this poll began.
                    (x.hooked.end_poll)(cq);
                    x.mode.store(ENDED, Relaxed);
                }
                let answer = x.next(state, cq);
                if answer != 0 {
                    x.mode.store(ENDED, Relaxed);
                }
                answer
            };
            if answer == 0 {
                c.completed(&mut last, core::slice::from_ref(&(*x.current.get()).0));
            }
            answer
        };
        let answer = guard::hot(work).unwrap_or(libc::EIO);
        if answer == libc::ENOENT && x.ends_when_empty {
            x.mode.store(SHUT, Relaxed);
            x.hooked.gate.leave();
        }
        answer
    }
}

/// Hook of `ibv_end_poll`.
pub unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: as in `start_poll`.
    unsafe {
        let Some((state, x)) = find(cq) else {
            // The parent stood at a copy when it forked: the provider knows nothing of it.
            if !found(cq).is_some_and(|x| matches!(x.mode.swap(SHUT, Relaxed), COPY | ENDED)) {
                extended_poll::end_poll(cq);
            }
            return;
        };
        let mode = x.mode.swap(SHUT, Relaxed);
        if mode == REAL || mode == SHUT && !state.has_served() {
            (x.hooked.end_poll)(cq);
        }
        if mode != SHUT {
            x.hooked.gate.leave();
        }
    }
}
