//! Lanes: the library's own QPs, one per path, shared by all QPs of a PD that are connected to one PD of another process.

use super::flow::{Flow, Given};
use super::pace::Pace;
use super::verbs::Verbs;
use super::{events, helper};
use crate::state;
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use rdma_sys::{
    ibv_access_flags, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_wc,
    ibv_wc_status,
};
use telereduce::control::api::LinkId;
use telereduce::control::wire::{LaneEnd, LaneId};
use telereduce::multipath::driver::LanePosting;
use telereduce::multipath::lengths::RECORD_BYTES;
use telereduce::multipath::paths::{MOST, Path};
use telereduce::multipath::patience;
use telereduce::multipath::schedule::Offer;
use telereduce::multipath::wr::{Fields, INLINE, SIGNALED, WrRef};
use telereduce::sync::SpinLock;
use telereduce::telemetry::lane::{Lane as Counted, LaneIdentity};
use telereduce::telemetry::registry::Device;
use telereduce::verbs::PostSend;

/// Pieces of all QPs that a lane takes at a time.
pub const ROOM: u32 = 4;
/// Elements of a piece's list.
const MAX_SGE: u32 = 30;

/// What became of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    Done,
    /// It is full.
    NotNow,
    /// The provider refused it.
    Never,
}

/// A piece in flight.
#[derive(Clone, Copy)]
struct Work {
    flow: &'static Flow,
    token: u64,
    bytes: u32,
    stamp: u64,
}

/// One end of a lane.
pub struct Lane {
    /// Its number in the group, and its path's.
    pub number: usize,
    /// Its number in this process: the upper bits of its WRs' ids.
    pub index: u64,
    /// Which use of the number.
    pub epoch: u64,
    /// Its own GID and label.
    pub path: Path,
    qp: AtomicPtr<ibv_qp>,
    post: PostSend,
    /// It takes inline data as long as a record.
    takes_records: bool,
    up: AtomicBool,
    /// Nothing arrives by it any more.
    ended: AtomicBool,
    /// Nor at the peer: it said so.
    ended_there: AtomicBool,
    /// Elements of a piece's list.
    max_sge: u32,
    in_flight: AtomicU32,
    pace: Pace,
    work: SpinLock<[Option<Work>; ROOM as usize]>,
    counted: SpinLock<Option<Counted>>,
}

/// The lanes between a PD here and one there.
pub struct Group {
    /// The connection over which they were agreed on.
    pub link: LinkId,
    /// This side's pool, and the other side's.
    pub pools: (u32, u32),
    /// As the wire has them.
    pub pds: u64,
    /// Its PD.
    pub pd: *mut ibv_pd,
    /// This side offered its lanes, and ends them.
    pub ours: bool,
    lanes: [AtomicPtr<Lane>; MOST],
    lost: AtomicBool,
    /// No QP is to join it any more.
    retired: AtomicBool,
}

// SAFETY: PDs and QPs may be used by any thread; all else is `Sync` by itself.
unsafe impl Sync for Group {}
// SAFETY: as above.
unsafe impl Send for Group {}

impl Group {
    /// Without lanes. It is never freed.
    pub fn create(link: LinkId, pools: (u32, u32), pds: u64, pd: *mut ibv_pd, ours: bool) -> &'static Group {
        let (lost, retired) = (AtomicBool::new(false), AtomicBool::new(false));
        Box::leak(Box::new(Group { link, pools, pds, pd, ours, lanes: Default::default(), lost, retired }))
    }

    /// No QP is to join it any more: nobody uses it, or others take its place.
    pub fn retire(&self) {
        self.retired.store(true, Release);
    }

    /// Whether that is so.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Acquire)
    }

    /// Whether its lanes have ended on both sides.
    pub fn is_over(&self) -> bool {
        self.lanes().all(Lane::is_over)
    }

    /// The connection is lost: nothing can be agreed on any more.
    pub fn lose(&self) {
        self.lost.store(true, Release);
    }

    /// Whether it is.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    /// Whether all its lanes have ended, at this side.
    pub fn has_ended(&self) -> bool {
        self.lanes().all(Lane::has_ended)
    }

    /// Elements of a piece's list that each of its lanes takes.
    pub fn max_sge(&self) -> u32 {
        self.lanes().map(|l| l.max_sge).min().unwrap_or(MAX_SGE)
    }

    /// The lane of this number.
    pub fn lane(&self, number: usize) -> Option<&'static Lane> {
        // SAFETY: lanes are leaked.
        unsafe { self.lanes.get(number)?.load(Acquire).as_ref() }
    }

    /// Puts a lane in its place.
    pub fn add(&self, lane: &'static Lane) {
        self.lanes[lane.number].store(core::ptr::from_ref(lane).cast_mut(), Release);
    }

    /// All lanes.
    pub fn lanes(&self) -> impl Iterator<Item = &'static Lane> {
        (0..MOST).filter_map(|i| self.lane(i))
    }

    /// Numbers of those that are up.
    pub fn up(&self) -> impl Iterator<Item = usize> {
        self.lanes().filter(|l| l.is_up()).map(|l| l.number)
    }

    /// Whether all of its lanes take records.
    pub fn takes_records(&self) -> bool {
        self.lanes().all(|l| l.takes_records)
    }

    /// What each offers now.
    pub fn offers(&self) -> [Offer; MOST] {
        let now = state::CLOCK.stamp();
        core::array::from_fn(|i| {
            let offer = |l: &'static Lane| l.pace.offer(ROOM.saturating_sub(l.in_flight.load(Relaxed)), now);
            self.lane(i).filter(|l| l.is_up()).map_or(Offer::default(), offer)
        })
    }

    /// Posts a piece. False: the lane takes nothing.
    pub fn post(&'static self, flow: &'static Flow, p: &LanePosting<'_>) -> bool {
        let Some(lane) = self.lane(p.lane) else { return false };
        let posted = lane.post(flow, p);
        if posted == Posted::Never {
            // It would not take it the next time either.
            lane.set_down();
            helper::revoke(self, 1 << p.lane);
        }
        posted == Posted::Done
    }

    /// Name of one of its lanes on the wire.
    pub fn id(&self, lane: &Lane) -> LaneId {
        LaneId { pds: self.pds, lane: lane.number as u16, epoch: lane.epoch }
    }
}

/// What a lane's QP is made of.
pub struct Making<'a> {
    /// Real functions.
    pub verbs: &'a Verbs,
    /// Real post.
    pub post: PostSend,
    /// Its PD.
    pub pd: *mut ibv_pd,
    /// Where its pieces complete.
    pub cq: *mut ibv_cq,
    /// What the application's QP was given.
    pub given: &'a Given,
}

/// Remote accesses that pieces need.
pub const REMOTE_ACCESS: ibv_access_flags =
    ibv_access_flags(ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0);

fn remote_access(given: &Given) -> u32 {
    given.0.qp_access_flags & REMOTE_ACCESS.0
}

impl Lane {
    /// A lane's end in INIT, and what the other end needs to know of it. Never freed.
    pub fn create(
        m: &Making<'_>,
        index: u64,
        (number, epoch): (usize, u64),
        path: Path,
    ) -> Option<(&'static Lane, LaneEnd)> {
        // SAFETY: numbers and pointers, for which zero is valid.
        let mut init: ibv_qp_init_attr = unsafe { core::mem::zeroed() };
        (init.send_cq, init.recv_cq) = (m.cq, m.cq);
        init.qp_type = ibv_qp_type::IBV_QPT_RC;
        init.qp_context = events::mark();
        // As it is wanted; then without records; then with what the device has.
        let mut qp = null_mut();
        let wanted = [(MAX_SGE, RECORD_BYTES as u32), (MAX_SGE, 0), (16, 0), (6, 0), (3, 0), (1, 0)];
        for (sges, inline) in wanted {
            (init.cap.max_send_wr, init.cap.max_recv_wr) = (ROOM + 4, 1);
            (init.cap.max_send_sge, init.cap.max_recv_sge) = (sges, 1);
            init.cap.max_inline_data = inline;
            // SAFETY: a PD and a CQ that exist.
            qp = unsafe { (m.verbs.create_qp)(m.pd, &raw mut init) };
            if !qp.is_null() {
                break;
            }
        }
        // SAFETY: null or a QP that was just created.
        let qp_num = unsafe { qp.as_ref() }?.qp_num;
        let mut attr = Given::default().0;
        attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
        (attr.pkey_index, attr.port_num) = (m.given.0.pkey_index, m.given.0.port_num);
        attr.qp_access_flags = remote_access(m.given);
        use ibv_qp_attr_mask as mask;
        let what = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        // SAFETY: our QP.
        if unsafe { (m.verbs.modify_qp)(qp, &raw mut attr, what.0 as c_int) } != 0 {
            // SAFETY: our QP, which nobody knows.
            unsafe { (m.verbs.destroy_qp)(qp) };
            return None;
        }
        let psn = (state::CLOCK.stamp() as u32).wrapping_mul(0x9E37_79B9) & 0xff_ffff;
        let end = LaneEnd {
            gid: path.gid.gid,
            qpn: qp_num,
            psn,
            mtu: m.given.0.path_mtu as u8,
            access: remote_access(m.given),
            timeout: m.given.0.timeout.min(31),
        };
        let lane = Box::leak(Box::new(Lane {
            number,
            index,
            epoch,
            path,
            qp: AtomicPtr::new(qp),
            post: m.post,
            takes_records: init.cap.max_inline_data >= RECORD_BYTES as u32,
            up: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            ended_there: AtomicBool::new(false),
            max_sge: init.cap.max_send_sge.min(MAX_SGE),
            in_flight: AtomicU32::new(0),
            pace: Pace::default(),
            work: SpinLock::new([None; ROOM as usize]),
            counted: SpinLock::new(None),
        }));
        Some((lane, end))
    }

    /// Connects it: INIT, RTR, RTS. `index`: of its GID, now.
    pub fn connect(&self, m: &Making<'_>, index: u32, mine: &LaneEnd, theirs: &LaneEnd) -> bool {
        let qp = self.qp.load(Relaxed);
        let mut attr = m.given.copy().0;
        attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
        attr.path_mtu = u32::from(mine.mtu.min(theirs.mtu));
        (attr.dest_qp_num, attr.rq_psn) = (theirs.qpn, theirs.psn);
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.dgid.raw = theirs.gid;
        attr.ah_attr.grh.sgid_index = index as u8;
        if let Some(label) = self.path.flow_label {
            attr.ah_attr.grh.flow_label = label;
        }
        use ibv_qp_attr_mask as mask;
        let to_rtr = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        let to_rts = mask::IBV_QP_STATE
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        // SAFETY: our QP.
        unsafe {
            if (m.verbs.modify_qp)(qp, &raw mut attr, to_rtr.0 as c_int) != 0 {
                return false;
            }
            attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
            (attr.timeout, attr.retry_cnt) = patience::of_lane(attr.timeout, attr.retry_cnt);
            attr.sq_psn = mine.psn;
            (m.verbs.modify_qp)(qp, &raw mut attr, to_rts.0 as c_int) == 0
        }
    }

    /// It takes pieces from now on.
    pub fn set_up(&self, device: &Device, mine: &LaneEnd, theirs: &LaneEnd, port_num: u8) {
        if let Some(s) = state::get() {
            let who = LaneIdentity {
                path: self.number as u32,
                port_num,
                qp_num: mine.qpn,
                dest_qp_num: theirs.qpn,
                local_gid: mine.gid,
                remote_gid: theirs.gid,
            };
            *self.counted.lock() = s.telemetry.create_lane(device, &who);
        }
        self.up.store(true, Release);
    }

    /// Whether it takes pieces.
    pub fn is_up(&self) -> bool {
        self.up.load(Acquire)
    }

    /// Whether this is the address of its QP.
    pub fn is_of(&self, qp: usize) -> bool {
        self.qp.load(Acquire) as usize == qp
    }

    /// It takes no more.
    pub fn set_down(&self) {
        self.up.store(false, Release);
    }

    /// It serves so many QPs.
    pub fn serves(&self, qps: u32) {
        if let Some(c) = &*self.counted.lock() {
            c.serves(qps);
        }
    }

    /// Whether nothing arrives by it any more.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    /// The peer's end takes nothing any more.
    pub fn end_there(&self) {
        self.ended_there.store(true, Release);
    }

    /// Whether it has ended here and there.
    pub fn is_over(&self) -> bool {
        self.has_ended() && self.ended_there.load(Acquire)
    }

    /// Whether nothing of it is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight.load(Acquire) == 0
    }

    /// Moves its QP to ERR: nothing arrives by it any more, and what it has in flight is flushed.
    pub fn break_off(&self, verbs: &Verbs) {
        self.set_down();
        let qp = self.qp.load(Acquire);
        if !qp.is_null() {
            let mut attr = Given::default().0;
            attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
            // SAFETY: our QP.
            unsafe { (verbs.modify_qp)(qp, &raw mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0 as c_int) };
        }
        self.ended.store(true, Release);
    }

    /// Destroys its QP. Nothing is in flight on it, or what is will not be heard of.
    pub fn destroy(&self, verbs: &Verbs) {
        self.set_down();
        let qp = self.qp.swap(null_mut(), Release);
        if !qp.is_null() {
            // Posts are made under this lock: those that had found it are over.
            drop(self.work.lock());
            // SAFETY: our QP, which nobody finds any more.
            unsafe { (verbs.destroy_qp)(qp) };
        }
        let counted = self.counted.lock().take();
        if let (Some(s), Some(c)) = (state::get(), counted) {
            s.telemetry.retire_lane(c);
        }
    }

    fn post(&self, flow: &'static Flow, p: &LanePosting<'_>) -> Posted {
        if !self.is_up() || p.sges.len() > self.max_sge as usize || !p.inline.is_empty() && !self.takes_records {
            return Posted::NotNow;
        }
        let mut work = self.work.lock();
        let qp = self.qp.load(Acquire);
        let Some(slot) = work.iter().position(Option::is_none).filter(|_| !qp.is_null()) else {
            return Posted::NotNow;
        };
        let fields = Fields {
            wr_id: self.index << 8 | slot as u64,
            opcode: p.opcode,
            flags: SIGNALED | if p.inline.is_empty() { 0 } else { INLINE },
            remote_addr: p.remote_addr,
            rkey: p.rkey,
            ..Fields::default()
        };
        work[slot] = Some(Work { flow, token: p.token, bytes: p.length, stamp: state::CLOCK.stamp() });
        let mut bad = null_mut();
        let wr = WrRef { fields, sges: p.sges, inline: p.inline };
        // SAFETY: our QP, and a chain of one WR.
        let answer = super::wr::with_c(&wr, |c| unsafe { (self.post)(qp, c, &raw mut bad) });
        if answer != 0 {
            work[slot] = None;
            let full = matches!(answer, libc::ENOMEM | libc::ENOSPC | libc::EAGAIN);
            return if full { Posted::NotNow } else { Posted::Never };
        }
        self.in_flight.fetch_add(1, Relaxed);
        if let Some(c) = &*self.counted.lock() {
            c.posted(u64::from(p.length));
        }
        Posted::Done
    }

    /// A completion of it: whose piece it was.
    pub fn completed(&self, wc: &ibv_wc) -> Option<(&'static Flow, u64)> {
        let work = self.work.lock().get_mut((wc.wr_id & 0xff) as usize)?.take()?;
        self.in_flight.fetch_sub(1, Relaxed);
        let now = state::CLOCK.stamp();
        // A record says nothing of a lane's speed.
        if wc.status == ibv_wc_status::IBV_WC_SUCCESS && work.bytes > RECORD_BYTES as u32 {
            self.pace.done(work.bytes, work.stamp, now);
        }
        if let Some(c) = &*self.counted.lock() {
            let bytes = u64::from(work.bytes);
            if wc.status == ibv_wc_status::IBV_WC_SUCCESS {
                let ns = state::CLOCK.ticks_to_ns(now.saturating_sub(work.stamp)).max(1);
                c.completed(bytes, ns, state::CLOCK.real_ns(now));
            } else {
                c.failed(bytes);
            }
        }
        Some((work.flow, work.token))
    }
}
