//! NCCL's profiler plugin: with `NCCL_PROFILER_PLUGIN=STATIC_PLUGIN` NCCL looks its symbols up in the whole process, and finds
//! these. They tell which collective the thread is about to post for ([`telereduce::attribution`]).
//!
//! Order of calls: for a send, NCCL records a step's state `SEND_PEER_WAIT`, posts, and records `SEND_WAIT`; for a receive it
//! starts the step, posts, and records `RECV_WAIT`; a flush is posted after `RECV_FLUSH_WAIT`. All of it happens on the thread
//! that posts. Whatever NCCL passes, these succeed: a plugin that fails is not to be a job that fails.

use crate::{guard, lookup, state};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use telereduce::attribution::{self, Key, Label, TABLES, Task};

/// Kinds of events, as bits.
mod kind {
    pub const COLL: u64 = 1 << 1;
    pub const P2P: u64 = 1 << 2;
    pub const PROXY_OP: u64 = 1 << 3;
    pub const PROXY_STEP: u64 = 1 << 4;
}

/// States of a step.
mod at {
    pub const SEND_WAIT: u32 = 9;
    pub const RECV_WAIT: u32 = 10;
    pub const RECV_FLUSH_WAIT: u32 = 11;
    pub const RECV_GPU_WAIT: u32 = 12;
    pub const SEND_PEER_WAIT: u32 = 20;
}

const SUCCESS: c_int = 0;

/// What begins, as far as we look at it. Version 4 has a byte where version 5 has eight for the kind; the rest stands at the
/// same place in both, and what version 5 has besides comes after it.
#[repr(C)]
struct Event {
    kind: u64,
    parent: *mut c_void,
    rank: c_int,
    of: Of,
}

#[repr(C)]
union Of {
    coll: Coll,
    p2p: P2p,
    proxy_op: ProxyOp,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Coll {
    sequence_number: u64,
    func: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct P2p {
    func: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ProxyOp {
    pid: libc::pid_t,
    channel: u8,
    peer: c_int,
    steps: c_int,
    chunk_bytes: c_int,
    is_send: c_int,
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Event, parent) == 8 && offset_of!(Event, rank) == 16 && offset_of!(Event, of) == 24);
    assert!(offset_of!(Coll, func) == 8 && offset_of!(P2p, func) == 0);
    assert!(offset_of!(ProxyOp, channel) == 4 && offset_of!(ProxyOp, peer) == 8 && offset_of!(ProxyOp, is_send) == 20);
};

type StartEvent = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *const Event) -> c_int;
type StopEvent = unsafe extern "C" fn(*mut c_void) -> c_int;
type RecordState = unsafe extern "C" fn(*mut c_void, u32, *const c_void) -> c_int;
type Finalize = unsafe extern "C" fn(*mut c_void) -> c_int;
type InitV4 =
    unsafe extern "C" fn(*mut *mut c_void, *mut c_int, *const c_char, u64, c_int, c_int, c_int, *const c_void) -> c_int;
type InitV5 =
    unsafe extern "C" fn(*mut *mut c_void, u64, *mut c_int, *const c_char, c_int, c_int, c_int, *const c_void) -> c_int;

/// What NCCL looks up.
#[repr(C)]
pub struct Plugin<Init> {
    name: *const c_char,
    init: Init,
    start_event: StartEvent,
    stop_event: StopEvent,
    record_event_state: RecordState,
    finalize: Finalize,
}

// SAFETY: functions and a name, all static.
unsafe impl<Init> Sync for Plugin<Init> {}

const fn plugin<Init: Copy>(init: Init, start_event: StartEvent) -> Plugin<Init> {
    Plugin { name: c"telereduce".as_ptr(), init, start_event, stop_event, record_event_state, finalize }
}

/// Of NCCL 2.26 to 2.27.
#[unsafe(no_mangle)]
pub static ncclProfiler_v4: Plugin<InitV4> = plugin(init_v4, start_v4);

/// Of NCCL 2.28 and newer.
#[unsafe(no_mangle)]
pub static ncclProfiler_v5: Plugin<InitV5> = plugin(init_v5, start_v5);

unsafe extern "C" fn init_v4(
    context: *mut *mut c_void,
    mask: *mut c_int,
    _name: *const c_char,
    id: u64,
    _nodes: c_int,
    _ranks: c_int,
    rank: c_int,
    _log: *const c_void,
) -> c_int {
    // SAFETY: NCCL's places.
    unsafe { init(context, mask, id, rank) }
}

unsafe extern "C" fn init_v5(
    context: *mut *mut c_void,
    id: u64,
    mask: *mut c_int,
    _name: *const c_char,
    _nodes: c_int,
    _ranks: c_int,
    rank: c_int,
    _log: *const c_void,
) -> c_int {
    // SAFETY: NCCL's places.
    unsafe { init(context, mask, id, rank) }
}

/// A communicator is made.
///
/// # Safety
/// The places are null or valid.
unsafe fn init(context: *mut *mut c_void, mask: *mut c_int, id: u64, rank: c_int) -> c_int {
    let on = guard::run(|| {
        if !lookup::is_counting() {
            return None;
        }
        attribution::activate();
        state::get().inspect(|s| s.telemetry.keep_labels());
        Some(TABLES.init(id, u32::try_from(rank).unwrap_or(u32::MAX)).unwrap_or(0))
    });
    let on = on.flatten();
    let wanted = kind::COLL | kind::P2P | kind::PROXY_OP | kind::PROXY_STEP;
    // SAFETY: the caller's promise.
    unsafe {
        put(context, on.unwrap_or(0));
        if let Some(mask) = mask.as_mut() {
            *mask = if on.is_some() { wanted as c_int } else { 0 };
        }
    }
    SUCCESS
}

unsafe extern "C" fn start_v4(context: *mut c_void, handle: *mut *mut c_void, event: *const Event) -> c_int {
    // SAFETY: NCCL's event, of version 4, or null.
    unsafe {
        let kind = if event.is_null() { 0 } else { u64::from(*event.cast::<u8>()) };
        start(context, handle, event, kind)
    }
}

unsafe extern "C" fn start_v5(context: *mut c_void, handle: *mut *mut c_void, event: *const Event) -> c_int {
    // SAFETY: NCCL's event, of version 5, or null.
    unsafe {
        let kind = if event.is_null() { 0 } else { (*event).kind };
        start(context, handle, event, kind)
    }
}

/// Something begins. What is not ours to know of gets a null handle, which NCCL does not come back with.
///
/// # Safety
/// The event is null, or valid and of this kind.
unsafe fn start(context: *mut c_void, handle: *mut *mut c_void, event: *const Event, kind: u64) -> c_int {
    let begun = guard::hot(|| {
        if event.is_null() {
            return 0;
        }
        let context = context as usize;
        // SAFETY: the caller's promise: of each kind, the part of the union that goes with it.
        unsafe {
            let parent = (&raw const (*event).parent).read() as usize;
            match kind {
                kind::COLL => {
                    let coll = (&raw const (*event).of.coll).read();
                    // NCCL counts from 0.
                    Task::new(text(coll.func), coll.sequence_number.wrapping_add(1)).handle()
                }
                kind::P2P => {
                    let func = text((&raw const (*event).of.p2p.func).read());
                    Task::new(func, TABLES.live(context).map_or(0, |c| TABLES.call(c, func == b"Send"))).handle()
                }
                kind::PROXY_OP => begin_op(context, parent, &(&raw const (*event).of.proxy_op).read()),
                kind::PROXY_STEP => begin_step(parent),
                _ => 0,
            }
        }
    });
    // SAFETY: NCCL's place.
    unsafe { put(handle, begun.unwrap_or(0)) };
    SUCCESS
}

/// Part of a collective for one peer and channel begins.
fn begin_op(context: usize, parent: usize, op: &ProxyOp) -> usize {
    // Of another process's (NCCL's PXN), the context is that process's.
    let comm = if op.pid as u32 == std::process::id() {
        match TABLES.live(context) {
            // A context of ours that is not there any more: nobody's.
            None if context != 0 => return 0,
            comm => comm,
        }
    } else {
        None
    };
    let peer = u32::try_from(op.peer).ok();
    let key = Key { comm, peer, channel: op.channel, sends: op.is_send != 0, func: None };
    TABLES.label(key, Task::of(parent).unwrap_or_default()).map_or(0, Label::op)
}

/// A transfer of such a part begins. That of a receive is posted at once.
fn begin_step(parent: usize) -> usize {
    let Some(label) = Label::of_op(parent) else { return 0 };
    if TABLES.receives(label) {
        attribution::set(label);
    }
    label.step()
}

unsafe extern "C" fn record_event_state(handle: *mut c_void, state: u32, _args: *const c_void) -> c_int {
    guard::hot(|| {
        if let Some(label) = Label::of_step(handle as usize) {
            match state {
                at::SEND_PEER_WAIT | at::RECV_FLUSH_WAIT => attribution::set(label),
                at::SEND_WAIT | at::RECV_WAIT | at::RECV_GPU_WAIT => attribution::leave(label),
                _ => {}
            }
        }
    });
    SUCCESS
}

unsafe extern "C" fn stop_event(handle: *mut c_void) -> c_int {
    guard::hot(|| Label::of_step(handle as usize).map(attribution::leave));
    SUCCESS
}

unsafe extern "C" fn finalize(context: *mut c_void) -> c_int {
    guard::run(|| TABLES.finalize(context as usize));
    SUCCESS
}

/// # Safety
/// The place is null or valid.
unsafe fn put(place: *mut *mut c_void, word: usize) {
    // SAFETY: the caller's promise. The word is never followed.
    if let Some(place) = unsafe { place.as_mut() } {
        *place = if word == 0 { null_mut() } else { core::ptr::without_provenance_mut(word) };
    }
}

/// # Safety
/// The name is null or valid and static.
unsafe fn text(name: *const c_char) -> &'static [u8] {
    // SAFETY: the caller's promise.
    if name.is_null() { b"" } else { unsafe { CStr::from_ptr(name) }.to_bytes() }
}
