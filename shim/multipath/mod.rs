//! Multi-path in the application: the driver of [`telereduce::multipath`]'s engines and [`telereduce::control`]'s side channel.
//!
//! ```text
//! ibv_create_qp  -> flow     the QP gets an engine, and room in its queues for what the engine adds
//! ibv_modify_qp  -> world    in RTS: which pool of lanes it may use; the side channel looks for the peer's shim
//! paired         -> world    lanes are offered, accepted, connected (group)
//! ibv_post_send  -> flow     small: the provider; large: the engine, which posts pieces on lanes
//! ibv_wr_*       -> extended_send  as above, once the batch is complete
//! helper thread  -> world    polls the lanes; polls the application's CQs while an engine waits and nobody does
//! ibv_poll_cq    -> cq       which completions are the application's
//! ibv_start_poll -> extended_cq  as above, one by one
//!                -> lengths  how long a message was of which a receive's completion tells the tail
//! ```
//!
//! An engine with nothing to do sleeps: small WRs and their completions then go by it, as in [`crate::data_path`], until one
//! that may be split, an error or a change of state wakes it ([`telereduce::telemetry::attention`]).
//!
//! All of it is asleep unless `TELEREDUCE_PATHS` asks for more than one path.

pub mod cq;
pub mod events;
pub mod extended_cq;
pub mod extended_send;
pub mod flow;
mod group;
mod helper;
mod lengths;
mod pace;
mod provider;
mod telling;
mod verbs;
mod world;
mod wr;

use crate::{context, log, state};
use core::sync::atomic::{AtomicU8, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use flow::{Extended, Flow};
use rdma_sys::ibv_qp_type;
use rdma_sys::{ibv_context, ibv_gid, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_state};
use rdma_sys::{ibv_qp_init_attr_ex, ibv_qp_init_attr_mask};
use std::time::{Duration, Instant};
use telereduce::control::api::{OurQp, Qps};
use telereduce::control::directory::{Segments, network};
use telereduce::control::rendezvous::Rendezvous;
use telereduce::control::settings::Settings as SideSettings;
use telereduce::control::wire::{Psn, Psns, QpAddr, QpPair};
use telereduce::multipath::driver::State;

use telereduce::multipath::engine::{EXTRA_CQES, EXTRA_SEND_WRS, QpFacts};
use telereduce::multipath::paths::Paths;
use telereduce::multipath::single::Single;
use telereduce::sync::SpinLock;
use telereduce::telemetry::qp::Qp;

/// A QP that leaves RTS waits no longer than this for its pieces, and for its peer.
const LEAVE: Duration = Duration::from_millis(1000);

/// For so long after lanes were broken, something of theirs may be on its way still.
const SETTLE: Duration = Duration::from_millis(20);

/// For so long after its connection a QP expects lanes.
const EXPECT: Duration = Duration::from_millis(1000);

const UNTRIED: u8 = 0;
const RUNS: u8 = 1;
const FAILED: u8 = 2;
static PHASE: AtomicU8 = AtomicU8::new(UNTRIED);
static STARTING: SpinLock<()> = SpinLock::new(());

/// Whether more than one path is asked for.
pub fn is_on() -> bool {
    state::get().is_some_and(|s| s.config.paths != Paths::Single)
}

/// The helper, started if it never was.
fn helper() -> Option<&'static helper::Helper> {
    if PHASE.load(Acquire) == UNTRIED {
        let _one = STARTING.lock();
        if PHASE.load(Relaxed) == UNTRIED {
            let started = start();
            if let Err(why) = &started {
                log::line(format_args!("multi-path is off: {why}; the program runs on"));
            }
            PHASE.store(if started.is_ok() { RUNS } else { FAILED }, Release);
        }
    }
    helper::get()
}

fn start() -> Result<(), String> {
    let env = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    // SAFETY: numbers that are written before they are read.
    let descriptors = unsafe {
        let mut limit: libc::rlimit = core::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur
    };
    let settings = SideSettings::read(env, descriptors)?;
    let helper = helper::Helper::create().map_err(|e| e.to_string())?;
    let handler = Box::new(move |event| helper.event(event));
    let state = state::get().ok_or("there is no segment")?;
    let network = network();
    state.telemetry.is_in_network(network);
    let others = Segments::new(&state.config.dir, state.telemetry.segment().path(), network);
    let rendezvous = Rendezvous::start(settings, Box::new(Ours(helper)), Box::new(others), handler);
    helper.start(rendezvous.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
}

/// The QPs of this process, as the side channel asks for them.
struct Ours(&'static helper::Helper);

impl Qps for Ours {
    fn find(&self, qp: &QpAddr) -> Option<OurQp> {
        self.0.world().find(qp)
    }
}

/// As [`enlarged`], of a QP of `ibv_create_qp_ex`.
pub fn enlarged_extended(ctx: *mut ibv_context, attr: &ibv_qp_init_attr_ex) -> Option<ibv_qp_cap> {
    use ibv_qp_init_attr_mask as m;
    let known = m::IBV_QP_INIT_ATTR_PD.0 | m::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
    let operations = if attr.comp_mask & m::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0 == 0 { 0 } else { attr.send_ops_flags };
    let post_send = context::find(ctx)?.ops.data.post_send;
    let fits = attr.comp_mask & !known == 0 && provider::posts_plainly(post_send, operations);
    fits.then(|| enlarged(&attr.cap, attr.qp_type, attr.send_cq)).flatten()
}

/// What a QP is to be created with, so that its engine has room: one WR more than it would take natively. `None`: it gets no
/// engine. What it needs of the CQ is taken already: it is [`created`], or [`refused`].
pub fn enlarged(cap: &ibv_qp_cap, qp_type: u32, send_cq: *mut rdma_sys::ibv_cq) -> Option<ibv_qp_cap> {
    let fits = is_on() && qp_type == ibv_qp_type::IBV_QPT_RC && cap.max_send_wr > 0;
    let cq = fits.then(|| cq::find(send_cq)).flatten()?;
    // SAFETY: a CQ that is known.
    let post_send = context::find(unsafe { (*send_cq).context })?.ops.data.post_send;
    let max_send_wr = provider::send_queue(post_send, cap.max_send_wr).checked_add(EXTRA_SEND_WRS)?;
    helper()?;
    cq.reserve(EXTRA_CQES).then_some(ibv_qp_cap { max_send_wr, ..*cap })
}

/// A QP of this CQ comes to nothing with [`enlarged`] capabilities.
pub fn refused(send_cq: *mut rdma_sys::ibv_cq) {
    if let Some(cq) = cq::find(send_cq) {
        cq.give_back(EXTRA_CQES);
    }
}

/// A QP was created, which has no engine so far: why it has one path, as far as that is known already.
pub fn left_out(counted: &Qp, send_cq: *mut rdma_sys::ibv_cq) {
    if !is_on() {
        return;
    }
    let why = if counted.spec.qp_type != ibv_qp_type::IBV_QPT_RC {
        Single::QpType
    } else if counted.spec.max_send_wr == 0 {
        Single::NoSends
    } else if PHASE.load(Acquire) == FAILED {
        Single::Off
    } else if !cq::find(send_cq).is_some_and(|cq| cq.has_room(EXTRA_CQES)) {
        Single::Cq
    } else {
        Single::Extended
    };
    telling::tell_without_engine(counted, why);
}

/// The provider did not create the QP with [`enlarged`] capabilities.
pub fn not_enlarged(counted: &Qp) {
    telling::tell_without_engine(counted, Single::Queue);
}

/// The QP was created with [`enlarged`] capabilities, `surplus` WRs more than asked, and granted `cap`, the application's
/// share of it.
pub fn created(qp: *mut ibv_qp, counted: &'static Qp, cap: &ibv_qp_cap, surplus: u32, sq_sig_all: bool) {
    let make = || {
        // SAFETY: a QP that was just created.
        let (ctx, send_cq, recv_cq) = unsafe { ((*qp).context, (*qp).send_cq, (*qp).recv_cq) };
        let verbs = context::find(ctx).and_then(|c| verbs::Verbs::of(c.library));
        let (modify, state) = (verbs.ok_or(Single::Off)?.modify_qp, state::get().ok_or(Single::Off)?);
        let (cq, helper) = (cq::find(send_cq).ok_or(Single::Cq)?, helper().ok_or(Single::Off)?);
        let facts = QpFacts {
            max_send_wr: cap.max_send_wr + surplus - EXTRA_SEND_WRS,
            max_send_sge: cap.max_send_sge,
            max_inline_bytes: cap.max_inline_data,
            sq_sig_all,
        };
        let extended = match (counted.spec.extended, crate::extended_send::find(qp)) {
            (true, Some(h)) => Some(Extended::new(h, &facts, provider::refusal(counted.spec.real.post_send))),
            _ => None,
        };
        if counted.spec.opaque {
            // What it sends is not all seen.
            return Err(Single::Extended);
        }
        let receives = lengths::Receives::new(cq::find(recv_cq));
        match Flow::create(qp, counted, (modify, surplus), cq, (receives, extended), facts, state.config.split) {
            Some(flow) => helper.world().add(flow),
            None => return Err(Single::Memory),
        }
        Ok(())
    };
    if let Err(why) = make() {
        // SAFETY: as above.
        refused(unsafe { (*qp).send_cq });
        telling::tell_without_engine(counted, why);
    }
}

/// The new state that `ibv_modify_qp` is asked for, if any.
fn new_state(attr: &ibv_qp_attr, mask: u32) -> Option<u32> {
    (mask & ibv_qp_attr_mask::IBV_QP_STATE.0 != 0).then_some(attr.qp_state)
}

fn leaves(attr: &ibv_qp_attr, mask: u32) -> bool {
    matches!(new_state(attr, mask), Some(ibv_qp_state::IBV_QPS_RESET | ibv_qp_state::IBV_QPS_ERR))
}

/// Whether a connected QP is to give its peer other rights than its lanes do.
fn changes_rights(flow: &Flow, attr: &ibv_qp_attr, mask: u32) -> bool {
    let of_lanes = |flags: u32| flags & group::REMOTE_ACCESS.0;
    mask & ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0 != 0
        && flow
            .connection
            .lock()
            .is_ok_and(|c| c.pool.is_some() && of_lanes(c.given.0.qp_access_flags) != of_lanes(attr.qp_access_flags))
}

/// `ibv_modify_qp` is about to be called.
pub fn before_modify(qp: *mut ibv_qp, attr: &ibv_qp_attr, mask: u32) {
    if mask & (ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS).0 != 0
        && let Some(flow) = flow::find(qp)
        && (leaves(attr, mask) || changes_rights(flow, attr, mask))
    {
        leave(flow);
    }
}

/// It was called, and succeeded or not.
pub fn after_modify(qp: *mut ibv_qp, attr: &ibv_qp_attr, mask: u32, done: bool) {
    let Some(flow) = flow::find(qp) else { return };
    let (leaves, state) = (leaves(attr, mask), new_state(attr, mask));
    // It goes on, and looks for lanes that give the rights that it has now.
    let again = !leaves && changes_rights(flow, attr, mask);
    if done {
        note(flow, attr, mask);
    }
    if again || leaves && !done {
        flow.resume();
    }
    match state {
        // A QP that is only written to may stay here.
        Some(ibv_qp_state::IBV_QPS_RTR) if done => claim(flow, false),
        Some(ibv_qp_state::IBV_QPS_RTS) if done => {
            flow.state_changed(State::Ready);
            claim(flow, true);
        }
        Some(ibv_qp_state::IBV_QPS_RESET) if done => {
            flow.reset();
            if let Ok(mut c) = flow.connection.lock() {
                *c = flow::Connection::default();
            }
        }
        Some(ibv_qp_state::IBV_QPS_ERR) if done => flow.state_changed(State::Error),
        _ if again => {
            let sends = flow.connection.lock().is_ok_and(|c| c.psns.is_some_and(|p| p.send != Psn::UNKNOWN));
            flow.because(Single::Pending);
            claim(flow, sends);
        }
        _ => {}
    }
}

/// Takes what a lane is to have, too.
fn note(flow: &Flow, attr: &ibv_qp_attr, mask: u32) {
    use ibv_qp_attr_mask as m;
    let Ok(mut c) = flow.connection.lock() else { return };
    let has = |bit: ibv_qp_attr_mask| mask & bit.0 != 0;
    let g = &mut c.given.0;
    macro_rules! take {
        ($($bit:ident $field:ident;)*) => { $(if has(m::$bit) { g.$field = attr.$field; })* };
    }
    take! {
        IBV_QP_PORT port_num;
        IBV_QP_PKEY_INDEX pkey_index;
        IBV_QP_ACCESS_FLAGS qp_access_flags;
        IBV_QP_PATH_MTU path_mtu;
        IBV_QP_MAX_DEST_RD_ATOMIC max_dest_rd_atomic;
        IBV_QP_MAX_QP_RD_ATOMIC max_rd_atomic;
        IBV_QP_MIN_RNR_TIMER min_rnr_timer;
        IBV_QP_TIMEOUT timeout;
        IBV_QP_RETRY_CNT retry_cnt;
        IBV_QP_RNR_RETRY rnr_retry;
        IBV_QP_SQ_PSN sq_psn;
        IBV_QP_RQ_PSN rq_psn;
        IBV_QP_DEST_QPN dest_qp_num;
    }
    if has(m::IBV_QP_AV) {
        // SAFETY: plain data, copied.
        g.ah_attr = unsafe { core::ptr::read(&raw const attr.ah_attr) };
    }
}

/// The QP is in RTR or RTS: the peer's shim is looked for.
fn claim(flow: &'static Flow, sends: bool) {
    let go = || {
        let helper = helper().ok_or(Single::Off)?;
        let r = helper.rendezvous().ok_or(Single::Off)?;
        // SAFETY: the application's QP, which it is just modifying.
        let ctx = unsafe { (*flow.qp()).context };
        let mut c = flow.connection.lock().map_err(|_| Single::Other)?;
        let g = c.given.copy().0;
        if g.ah_attr.is_global == 0 {
            return Err(Single::NoAddress);
        }
        // SAFETY: every bit pattern of a GID is 16 bytes.
        let theirs = unsafe { g.ah_attr.grh.dgid.raw };
        let mine = gid_of(ctx, g.port_num, g.ah_attr.grh.sgid_index).ok_or(Single::NoAddress)?;
        let addr = |gid, qpn: u32| QpAddr { gid, qpn: qpn & 0xff_ffff };
        let pair = QpPair { mine: addr(mine, flow.qp_num()), yours: addr(theirs, g.dest_qp_num) };
        let send = if sends { Psn::new(g.sq_psn) } else { Psn::UNKNOWN };
        let psns = Psns { send, receive: Psn::new(g.rq_psn) };
        (c.pair, c.psns, c.left) = (Some(pair), Some(psns), false);
        let state = state::get().ok_or(Single::Off)?;
        let config = &state.config;
        // The world's lock comes before a connection's.
        drop(c);
        let mut world = helper.world();
        let pool = world.pool_of(config, flow)?;
        flow.connection.lock().map_err(|_| Single::Other)?.pool = Some(pool);
        let ports = r.listen(mine)?;
        flow.looking(!sends);
        world.expects(flow, pair, Instant::now() + EXPECT);
        drop(world);
        flow.expect_lanes(true);
        if let Some(device) = context::find(ctx).and_then(|c| c.device()) {
            state.telemetry.listens(device, g.port_num, mine, ports.own);
        }
        let claimed = r.claim(pair, psns);
        helper::wake();
        if claimed { Ok(()) } else { Err(Single::Closed) }
    };
    if let Err(why) = go() {
        flow.because(why);
    }
}

/// The GID at an index of a port.
pub fn gid_of(ctx: *mut ibv_context, port: u8, index: u8) -> Option<[u8; 16]> {
    let verbs = verbs::Verbs::of(context::find(ctx)?.library)?;
    // SAFETY: numbers, for which zero is valid.
    let mut gid: ibv_gid = unsafe { core::mem::zeroed() };
    // SAFETY: an open context, and room for the answer; every bit pattern of a GID is 16 bytes.
    unsafe { ((verbs.query_gid)(ctx, port, i32::from(index), &raw mut gid) == 0).then_some(gid.raw) }
}

/// The QP is about to leave RTS: nothing of it is on a lane, at both ends, when this returns, or the lanes are broken.
fn leave(flow: &'static Flow) {
    let Some(helper) = helper::get() else { return };
    let end = Instant::now() + LEAVE;
    flow.leave();
    let mut world = helper.world();
    // From now on nothing pairs it.
    let pair = flow.connection.lock().ok().and_then(|mut c| {
        c.left = true;
        c.pair
    });
    let (Some(r), Some(pair)) = (helper.rendezvous(), pair) else { return };
    let departure = world.going(r, flow, pair);
    if flow.lost_its_link() {
        // The peer cannot be asked, and may still write.
        world.break_lanes_of(flow, None);
    }
    // A peer that let an earlier departure wait is given no time.
    let end = if departure.as_ref().is_some_and(|d| world.is_mute(d.link)) { Instant::now() } else { end };
    drop(world);
    let answered = || departure.as_ref().and_then(|d| d.epoch).is_none_or(|e| flow.answered.load(Acquire) >= e);
    // A lane that ended here takes nothing any more, whatever the peer says.
    while !(flow.is_quiet() && (answered() || flow.lanes_ended())) {
        if Instant::now() >= end {
            let broken = helper.world().give_up(flow, departure.as_ref(), answered());
            helper::wake();
            std::thread::sleep((broken + SETTLE).saturating_duration_since(Instant::now()));
            break;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    r.forget(pair);
}

/// `ibv_destroy_qp` is about to be called. What [`destroyed`] needs.
pub fn before_destroy(qp: *mut ibv_qp) -> Option<&'static Flow> {
    let flow = flow::find(qp)?;
    leave(flow);
    flow.hide();
    if let Some(h) = helper::get() {
        h.world().remove(flow);
        // It may have been the last one on its lanes.
        helper::wake();
    }
    Some(flow)
}

/// It was called.
pub fn destroyed(flow: &'static Flow, done: bool) {
    if done {
        flow.cq.give_back(EXTRA_CQES);
        flow.forget();
    } else {
        flow.show();
        if let Some(h) = helper::get() {
            h.world().add(flow);
        }
        flow.resume();
    }
}

/// A PD is about to go.
pub fn pd_goes(pd: *mut ibv_pd) {
    if let Some(h) = helper::get() {
        h.world().pd_goes(h.rendezvous(), pd);
    }
}

/// A context is about to be closed.
pub fn context_goes(ctx: *mut ibv_context) {
    if let Some(h) = helper::get() {
        h.world().context_goes(h.rendezvous(), ctx);
    }
}

/// In a forked child.
///
/// # Safety
/// The process has one thread.
pub unsafe fn after_fork() {
    // SAFETY: the caller's promise.
    unsafe {
        STARTING.force_unlock();
        helper::after_fork();
        flow::after_fork();
        cq::after_fork();
    }
    PHASE.store(UNTRIED, Release);
}
