//! The control path: which objects exist, and which record of the segment belongs to each.
//!
//! A record outlives its object as long as there is room, so that `trtop` and the final snapshot still list a destroyed
//! QP. After [`RETAINED`] of them the oldest gives its record away, and its counters to its port and peer.

mod flows;
mod handles;
mod qps;
mod stalls;

pub use handles::{MOST_HANDLES, MOST_PEERS};
pub use stalls::{StallWatch, Stalled};

use super::Hot;
use super::address::Addresses;
use super::alarm::Alarm;
use super::cq::{Cq, CqSpec};
use super::datagrams::Handles;
use super::event::{OWN_RINGS, Outlet, Sink};
use super::fold;
use super::peer::{Locks, Peer};
use super::pool::Pool;
use super::qp::Qp;
use super::srq::Srq;
use super::users::Users;
use super::xrc::Srqs;
use crate::clock::{Clock, realtime_ns};
use crate::config::Config;
use crate::log::feed::Queues;
use crate::multipath::paths::Paths;
use crate::shm::layout::{
    ContextRecord, CqRecord, Hooked, Kind, LabelRecord, LaneRecord, Life, MultipathRecord, NONE, PeerRecord,
    PortRecord, QpDetail, QpRecord, RingRecord, SrqRecord, StallRecord, cq_flags, flags,
};
use crate::shm::segment::{Identity, Segment, bump, put, put_gid};
use crate::sync::{OwnedLock, SpinLock};
use crate::table::gone::{self, Gone};
use crate::table::{PtrMap, QpnTable};
use crate::verbs::PostSrqRecv;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::Release};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Destroyed QPs that keep their record; destroyed CQs likewise.
pub const RETAINED: usize = 1024;

/// One opened device context.
#[derive(Default)]
pub struct Device {
    /// Its QPs by number.
    pub qps: QpnTable<Qp>,
    name: Mutex<String>,
    /// Index of its record, or `NONE`.
    context: AtomicU32,
}

/// Where the hot path finds objects, by their addresses. One for the process, so that a fork or a panic can empty it.
pub struct Objects {
    /// QPs.
    pub qps: PtrMap<Qp>,
    /// CQs.
    pub cqs: PtrMap<Cq>,
    /// SRQs.
    pub srqs: PtrMap<Srq>,
    /// Peers, by their address handles.
    pub handles: Handles,
}

impl Objects {
    /// Nothing.
    #[expect(clippy::new_without_default, reason = "made once, in a static")]
    pub const fn new() -> Objects {
        Objects { qps: PtrMap::new(), cqs: PtrMap::new(), srqs: PtrMap::new(), handles: PtrMap::new() }
    }

    /// Takes everything out: what exists is no longer counted.
    pub fn forget_all(&self) {
        self.qps.clear();
        self.cqs.clear();
        self.srqs.clear();
        self.handles.clear();
    }

    /// In a forked child: as [`Objects::forget_all`], whoever held locks in the parent.
    ///
    /// # Safety
    /// The process has one thread.
    pub unsafe fn reset_after_fork(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.qps.reset_after_fork();
            self.cqs.reset_after_fork();
            self.srqs.reset_after_fork();
            self.handles.reset_after_fork();
        }
        self.forget_all();
    }
}

/// Where a QP's packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Remote GID, if the address is global.
    pub gid: Option<[u8; 16]>,
    /// Remote LID, 0 if none.
    pub lid: u16,
}

/// What `ibv_modify_qp` changed, as far as it matters.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpChange {
    /// New state, `enum ibv_qp_state`.
    pub state: Option<u32>,
    /// Port.
    pub port_num: Option<u8>,
    /// The peer's QP number.
    pub dest_qp_num: Option<u32>,
    /// The peer.
    pub address: Option<Address>,
}

/// All telemetry of this process.
pub struct Telemetry {
    segment: Segment,
    hot: &'static Hot,
    objects: &'static Objects,
    /// On their way to the log, where there is one.
    queues: Option<Arc<Queues>>,
    /// Whether CQs have rings.
    rings: bool,
    control: Mutex<Control>,
}

struct Control {
    contexts: Pool<ContextRecord>,
    ports: Pool<PortRecord>,
    peers: Pool<PeerRecord>,
    cqs: Pool<CqRecord>,
    srqs: Pool<SrqRecord>,
    /// Made with the first lane, which most processes never have.
    lanes: Option<Pool<LaneRecord>>,
    addresses: Addresses,
    qps: Pool<QpRecord>,
    details: Pool<QpDetail>,
    labels: Pool<LabelRecord>,
    /// Where multi-path is on.
    multipath: Option<Pool<MultipathRecord>>,
    /// Where stalls are watched for.
    stalls: Option<Pool<StallRecord>>,
    port_index: HashMap<(String, u8), u32>,
    peer_index: HashMap<(u32, Address), u32>,
    /// Those of datagrams, by device and index.
    datagram_peers: HashMap<(usize, u32), &'static Peer>,
    /// Of peers of datagrams, by index.
    peer_locks: HashMap<u32, &'static Locks>,
    own_rings: Vec<&'static RingRecord>,
    outlets_made: usize,
    shared_outlet: Option<&'static SpinLock<Outlet>>,
    /// Own addresses of QPs, by the index of their record.
    sources: HashMap<u32, (u32, [u8; 16])>,
    idle_devices: Vec<&'static Device>,
    gone: Ended,
}

/// States of destroyed objects, not freed yet. They are freed under the registry's lock, so under it every state that a
/// table names is there.
#[derive(Default)]
struct Ended {
    qps: Gone<Qp>,
    cqs: Gone<Cq>,
    srqs: Gone<Srq>,
}

impl Telemetry {
    /// Creates the segment.
    ///
    /// # Errors
    /// As [`Segment::create`] and [`Segment::add_region`] say; nothing is left behind.
    pub fn new(
        config: &Config,
        who: &Identity,
        clock: &'static Clock,
        objects: &'static Objects,
    ) -> io::Result<Telemetry> {
        let segment = Segment::create(&config.dir, who, config.latency_every, config.min_event_bytes)?;
        let hot = Hot {
            clock,
            header: segment.header(),
            latency_every: config.latency_every,
            events: config.events || config.log.is_some(),
            min_event_bytes: config.min_event_bytes,
            alarm: Alarm::default(),
        };
        let pools = (|| {
            Ok(Control {
                contexts: Pool::new(&segment, Kind::Context, 8)?,
                ports: Pool::new(&segment, Kind::Port, 4)?,
                peers: Pool::new(&segment, Kind::Peer, 16)?,
                cqs: Pool::new(&segment, Kind::Cq, 64)?,
                srqs: Pool::new(&segment, Kind::Srq, 8)?,
                lanes: None,
                addresses: Addresses::default(),
                qps: Pool::new(&segment, Kind::Qp, 32)?,
                details: Pool::new(&segment, Kind::QpDetail, 32)?,
                labels: Pool::new(&segment, Kind::Label, 32)?,
                multipath: match config.paths {
                    Paths::Single => None,
                    _ => Pool::new(&segment, Kind::Multipath, 32).ok(),
                },
                stalls: match config.stall_ms {
                    0 => None,
                    _ => Pool::new(&segment, Kind::Stall, 32).ok(),
                },
                port_index: HashMap::new(),
                peer_index: HashMap::new(),
                datagram_peers: HashMap::new(),
                peer_locks: HashMap::new(),
                own_rings: Vec::new(),
                outlets_made: 0,
                shared_outlet: None,
                sources: HashMap::new(),
                idle_devices: Vec::new(),
                gone: Ended::default(),
            })
        })();
        let control = pools.inspect_err(|_: &io::Error| segment.unlink())?;
        segment.publish();
        let queues = config.log.as_ref().map(|_| Arc::default());
        let hot = Box::leak(Box::new(hot));
        Ok(Telemetry { segment, hot, objects, queues, rings: config.events, control: Mutex::new(control) })
    }

    /// NCCL says what WRs are for: QPs keep it from now on.
    pub fn keep_labels(&self) {
        let _c = self.control();
        self.objects.qps.for_each(|qp| qp.keep_labels());
    }

    /// What is on its way to the log, where there is one.
    pub fn queues(&self) -> Option<&Arc<Queues>> {
        self.queues.as_ref()
    }

    /// The segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// What the hot path knows.
    pub fn hot(&self) -> &'static Hot {
        self.hot
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.hot.header.heartbeat_ns.store(realtime_ns(), Relaxed);
        self.unnoticed()
    }

    /// As [`Telemetry::control`], for threads of ours: they are no sign of life.
    fn unnoticed(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn untracked(&self) {
        bump(&self.hot.header.objects_untracked, 1);
    }

    /// A context of device `name` was opened. Its first port shows at once.
    pub fn open_device(&self, name: &str, hooked: Hooked) -> &'static Device {
        let mut c = self.control();
        let port = self.port(&mut c, name, 1);
        let index = c.contexts.take_or_reuse(&self.segment, RETAINED);
        if let Some(record) = index.and_then(|i| c.contexts.find(i)) {
            put(&record.port, port);
            put(&record.hooked, hooked as u32);
            record.opened_ns.store(realtime_ns(), Relaxed);
            record.life.store(Life::Live as u32, Release);
        }
        let device = c.idle_devices.pop().unwrap_or_else(|| Box::leak(Box::default()));
        *device.name.lock().unwrap_or_else(PoisonError::into_inner) = name.into();
        device.context.store(index.unwrap_or(NONE), Relaxed);
        device
    }

    /// The context was closed; QPs that it still had are gone with it.
    pub fn close_device(&self, device: &'static Device) {
        for (_, qp) in device.qps.entries() {
            self.hide_qp(device, qp);
            self.retire_qp(qp);
        }
        let (mut cqs, mut srqs) = (Vec::new(), Vec::new());
        let c = self.control();
        self.objects.cqs.for_each(|cq| cqs.extend(core::ptr::eq(cq.qps, &device.qps).then_some(cq.address)));
        self.objects.srqs.for_each(|srq| srqs.extend(core::ptr::eq(srq.device, device).then_some(srq.address)));
        self.forget_handles(device);
        drop(c);
        cqs.into_iter().filter_map(|a| self.hide_cq(a)).for_each(|cq| self.forget_cq(cq));
        srqs.into_iter().filter_map(|a| self.hide_srq(a)).for_each(|srq| self.forget_srq(srq));
        let mut c = self.control();
        let index = device.context.swap(NONE, Relaxed);
        if let Some(record) = c.contexts.find(index) {
            record.life.store(Life::Retired as u32, Relaxed);
            c.contexts.retire(index);
        }
        c.idle_devices.push(device);
    }

    fn port(&self, c: &mut Control, device: &str, port_num: u8) -> u32 {
        if let Some(&i) = c.port_index.get(&(device.to_string(), port_num)) {
            return i;
        }
        let Some(i) = c.ports.take(&self.segment) else {
            return NONE;
        };
        let r = c.ports.get(i);
        r.device.set(device);
        put(&r.port_num, u32::from(port_num));
        r.used.store(1, Release);
        c.port_index.insert((device.to_string(), port_num), i);
        i
    }

    fn peer(&self, c: &mut Control, port: u32, address: Address) -> u32 {
        if let Some(&i) = c.peer_index.get(&(port, address)) {
            return i;
        }
        let Some(i) = c.peers.take(&self.segment) else {
            return NONE;
        };
        let r = c.peers.get(i);
        put(&r.port, port);
        put(&r.lid, u32::from(address.lid));
        if let Some(gid) = address.gid {
            put_gid(&r.gid, gid);
            put(&r.is_global, 1);
        }
        r.used.store(1, Release);
        c.peer_index.insert((port, address), i);
        i
    }

    /// An unused record for a lane, and its index.
    pub(super) fn lane_record(&self) -> Option<(u32, &'static LaneRecord)> {
        let mut c = self.control();
        if c.lanes.is_none() {
            c.lanes = Pool::new(&self.segment, Kind::Lane, 16).ok();
        }
        let lanes = c.lanes.as_mut()?;
        let index = lanes.take_or_reuse(&self.segment, RETAINED)?;
        Some((index, lanes.get(index)))
    }

    pub(super) fn lane_record_retired(&self, index: u32) {
        if let Some(lanes) = &mut self.control().lanes {
            lanes.retire(index);
        }
    }

    /// The addresses of the side channel, to be changed.
    pub(super) fn with_addresses<T>(&self, change: impl FnOnce(&mut Addresses, &Segment) -> T) -> T {
        change(&mut self.control().addresses, &self.segment)
    }

    /// Index of the record of a device's port.
    pub(super) fn port_of(&self, device: &Device, port_num: u8) -> u32 {
        let name = device.name.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.port(&mut self.control(), &name, port_num)
    }

    /// A CQ was created at `address`.
    pub fn create_cq(&self, device: &'static Device, address: usize, spec: CqSpec) {
        // What had this address was destroyed behind our back.
        if let Some(old) = self.hide_cq(address) {
            self.forget_cq(old);
        }
        let mut c = self.control();
        let Some(index) = c.cqs.take_or_reuse(&self.segment, RETAINED) else {
            return self.untracked();
        };
        let record = c.cqs.get(index);
        for counter in [&record.polls_empty, &record.cqes, &record.last_ns] {
            counter.store(0, Relaxed);
        }
        put(&record.cqe, spec.cqe);
        put(&record.flags, if spec.opaque { cq_flags::OPAQUE } else { 0 });
        bump(&self.hot.header.objects_opaque, u64::from(spec.opaque));
        put(&record.port, self.first_port(&c, device));
        record.life.store(Life::Live as u32, Release);
        let sink = self.sink(&mut c);
        let lock = OwnedLock::default();
        let event_over = if self.hot.events { self.hot.min_event_bytes } else { u64::MAX };
        let cq = Cq {
            index,
            address,
            record,
            spec,
            only_qp: AtomicU32::new(NONE),
            xrc_srqs: Srqs::default(),
            users: Users::default(),
            qps: &device.qps,
            hot: self.hot,
            sink,
            event_over,
            sifts: AtomicU32::new(0),
            lock,
        };
        drop(c);
        self.objects.cqs.insert(address, gone::live(cq));
    }

    fn first_port(&self, c: &Control, device: &Device) -> u32 {
        let name = device.name.lock().unwrap_or_else(PoisonError::into_inner);
        c.port_index.get(&(name.clone(), 1)).copied().unwrap_or(NONE)
    }

    fn sink(&self, c: &mut Control) -> Sink {
        if !self.hot.events {
            return Sink::None;
        }
        let new_ring = || self.segment.add_region::<RingRecord>(Kind::Ring, 1).ok().map(|r| &r[0]);
        let new_feed = || self.queues.as_ref().map(|q| q.feed());
        if self.rings
            && let Some(ring) = c.own_rings.pop()
        {
            return Sink::Own(Outlet { ring: Some(ring), feed: new_feed() });
        }
        let outlet = || Outlet { ring: if self.rings { new_ring() } else { None }, feed: new_feed() };
        if c.outlets_made < OWN_RINGS {
            c.outlets_made += 1;
            return Sink::Own(outlet());
        }
        Sink::Shared(c.shared_outlet.get_or_insert_with(|| Box::leak(Box::new(SpinLock::new(outlet())))))
    }

    /// The CQ at `address` is about to be destroyed: polls no longer find it.
    pub fn hide_cq(&self, address: usize) -> Option<&'static Cq> {
        let cq = self.objects.cqs.remove(address)?;
        // A poll that found it before is over once the lock was ours.
        drop(cq.lock.lock());
        Some(cq)
    }

    /// The provider refused to destroy it.
    pub fn show_cq(&self, address: usize, cq: &'static Cq) {
        self.objects.cqs.insert(address, cq);
    }

    /// It is destroyed.
    pub fn forget_cq(&self, cq: &'static Cq) {
        let mut c = self.control();
        cq.record.life.store(Life::Retired as u32, Relaxed);
        match cq.sink {
            Sink::Own(Outlet { ring: Some(ring), .. }) => c.own_rings.push(ring),
            Sink::Own(Outlet { ring: None, .. }) => c.outlets_made -= 1,
            Sink::None | Sink::Shared(_) => {}
        }
        c.cqs.retire(cq.index);
        cq.forget_xrc_srqs();
        if cq.users.none() {
            // SAFETY: made live in `create_cq`, in no table and named by no state, and forgotten once. A poll of it now is the
            // application's error; the delay makes even that harmless.
            unsafe { c.gone.cqs.add(cq) };
        }
    }

    /// The QP can be used without verbs from now on.
    pub fn qp_is_opaque(&self, qp: &Qp) {
        self.mark(&qp.record.flags, flags::OPAQUE);
    }

    /// As [`Telemetry::qp_is_opaque`].
    pub fn cq_is_opaque(&self, cq: &Cq) {
        self.mark(&cq.record.flags, cq_flags::OPAQUE);
    }

    fn mark(&self, flags: &AtomicU32, bit: u32) {
        let _c = self.control();
        let before = flags.load(Relaxed);
        put(flags, before | bit);
        bump(&self.hot.header.objects_opaque, u64::from(before & bit == 0));
    }

    /// So many queues without a record can be used without verbs.
    pub fn others_are_opaque(&self, n: u64) {
        let _c = self.control();
        bump(&self.hot.header.objects_opaque, n);
    }

    /// An SRQ was created at `address`.
    pub fn create_srq(&self, device: &'static Device, address: usize, real: PostSrqRecv, max_wr: u32, max_sge: u32) {
        // As in `create_cq`.
        if let Some(old) = self.hide_srq(address) {
            self.forget_srq(old);
        }
        let mut c = self.control();
        let Some(index) = c.srqs.take_or_reuse(&self.segment, RETAINED) else {
            return self.untracked();
        };
        let record = c.srqs.get(index);
        if record.life.load(Relaxed) == Life::Retired as u32 {
            self.folding(|| {
                if let Some(p) = c.ports.find(record.port.load(Relaxed)) {
                    fold::add_srq_to_totals(record, &p.retired);
                }
                record.life.store(Life::Free as u32, Release);
                fold::clear_srq(record);
            });
        }
        let Some(srq) = Srq::new(index, (address, device), record, real, max_wr, max_sge) else {
            c.srqs.release(index);
            return self.untracked();
        };
        put(&record.max_wr, max_wr);
        put(&record.port, self.first_port(&c, device));
        record.life.store(Life::Live as u32, Release);
        drop(c);
        self.objects.srqs.insert(address, gone::live(srq));
    }

    /// The SRQ at `address` is about to be destroyed: posts no longer find it.
    pub fn hide_srq(&self, address: usize) -> Option<&'static Srq> {
        self.objects.srqs.remove(address)
    }

    /// The provider refused to destroy it.
    pub fn show_srq(&self, address: usize, srq: &'static Srq) {
        self.objects.srqs.insert(address, srq);
    }

    /// It is destroyed; receives that waited are dropped.
    pub fn forget_srq(&self, srq: &'static Srq) {
        let mut c = self.control();
        if !srq.users.none() {
            // Its completions can no longer come.
            self.objects.cqs.for_each(|cq| cq.remove_xrc_srq(srq));
        }
        srq.drop_waiting();
        srq.record.life.store(Life::Retired as u32, Relaxed);
        c.srqs.retire(srq.index);
        if srq.users.none() {
            // SAFETY: as in `forget_cq`.
            unsafe { c.gone.srqs.add(srq) };
        }
    }
}
