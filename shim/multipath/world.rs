//! What exists on the multi-path side: pools, groups of lanes, the CQs of lanes, the QPs that use them; and what the side
//! channel's events do to it. One lock, held by the helper thread while it works, and by hooks of control calls.

use super::events;
use super::flow::{Flow, Given};
use super::group::{Group, Lane, Making, ROOM};
use super::verbs::Verbs;
use crate::context;
use core::cell::Cell;
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{Ordering::SeqCst, fence};
use rdma_sys::{ibv_comp_channel, ibv_context, ibv_cq, ibv_gid_entry, ibv_pd, ibv_wc, ibv_wc_status};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use telereduce::config::Config;
use telereduce::control::Reason;
use telereduce::control::api::{Event, LinkId, OurQp};
use telereduce::control::rendezvous::Rendezvous;
use telereduce::control::wire::{
    LaneAccept, LaneEnd, LaneId, LaneOffer, LaneReady, LaneRefuse, LaneRevoked, Message, QpAddr, QpGoing, QpPair,
    QpQuiet, RevokeLane, WantRing,
};
use telereduce::multipath::paths::{self, Gid, Path};
use telereduce::multipath::single::Single;
use telereduce::telemetry::registry::Device;
use telereduce::verbs::DataPath;

mod reasons;

/// Entries of a lanes' CQ: as many as there are for it.
const LANE_CQE: [c_int; 3] = [16_384, 4096, 1024];
/// Completions polled at once.
const BATCH: usize = 16;
/// Lanes of a connection that lives are kept for so long when no pair needs them any more.
const UNUSED: Duration = Duration::from_secs(2);

/// A PD of this process on one port: QPs of it that are alike share lanes.
struct Pool {
    ctx: *mut ibv_context,
    pd: *mut ibv_pd,
    given: Given,
    /// Of its lanes, in order.
    paths: Vec<Path>,
}

/// A context that has lanes.
struct LaneCq {
    ctx: *mut ibv_context,
    verbs: Verbs,
    data: DataPath,
    device: &'static Device,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
}

/// A QP that the peer, or this side, wants to be quiet.
struct Leaving {
    flow: &'static Flow,
    link: LinkId,
    pair: QpPair,
    epoch: u64,
}

/// A QP of this side leaves a pair.
pub struct Departure {
    /// Where the peer was told.
    pub link: LinkId,
    /// Number of the answer to wait for; `None`: none will come.
    pub epoch: Option<u64>,
    pools: (u32, u32),
}

/// Everything.
#[derive(Default)]
pub struct World {
    pools: Vec<Pool>,
    groups: Vec<&'static Group>,
    lanes: Vec<(&'static Lane, &'static Group)>,
    cqs: Vec<LaneCq>,
    flows: Vec<&'static Flow>,
    /// The last one that claimed to have an address.
    owners: HashMap<QpAddr, &'static Flow>,
    /// QPs that expect lanes, until when.
    expecting: Vec<(&'static Flow, Instant)>,
    /// The QP that is fed first.
    turn: usize,
    /// The lanes' ends that were made, by their name.
    ends: HashMap<(LinkId, LaneId), LaneEnd>,
    /// The peers' ends of those that they offered.
    offered: HashMap<(LinkId, LaneId), LaneEnd>,
    /// Pairs that are agreed on: their link, and the pools of both sides.
    pairs: HashMap<QpPair, (LinkId, (u32, u32))>,
    leaving: Vec<Leaving>,
    /// Groups of ours that no pair needs, and when they end.
    unused: Vec<(&'static Group, Instant)>,
    /// Pairs or their QPs came or went since these were looked for.
    changed: Cell<bool>,
    /// Links over which a departure was not answered in time, and nothing came since; when lanes of each were last broken.
    mute: HashMap<LinkId, Instant>,
    epochs: u64,
}

// SAFETY: contexts, PDs and CQs may be used by any thread.
unsafe impl Send for World {}

impl World {
    /// A QP that may be split was created.
    pub fn add(&mut self, flow: &'static Flow) {
        self.flows.push(flow);
    }

    /// It is about to be destroyed.
    pub fn remove(&mut self, flow: &'static Flow) {
        self.flows.retain(|f| !core::ptr::eq(*f, flow));
        self.leaving.retain(|l| !core::ptr::eq(l.flow, flow));
        self.owners.retain(|_, f| !core::ptr::eq(*f, flow));
        self.expecting.retain(|(f, _)| !core::ptr::eq(*f, flow));
        self.reap();
        self.count_users();
    }

    /// Destroys lanes of connections that are lost, and those that have ended on both sides, once no QP counts on them and
    /// nothing is in flight.
    fn reap(&mut self) {
        if !self.groups.iter().any(|g| g.is_lost() || g.is_over()) {
            return;
        }
        let over = |g: &Group| g.is_over() && (g.is_retired() || !self.is_paired(g));
        let dead = |g: &&&'static Group| (g.is_lost() || over(g)) && self.users(g).next().is_none();
        let dead: Vec<&'static Group> = self.groups.iter().filter(dead).copied().collect();
        for g in dead {
            let Some(c) = self.cq_of(g) else { continue };
            g.lanes().filter(|l| !l.has_ended()).for_each(|l| l.break_off(&c.verbs));
            if g.lanes().all(Lane::is_idle) {
                g.lanes().for_each(|l| l.destroy(&c.verbs));
                self.groups.retain(|other| !core::ptr::eq(*other, g));
                for at in g.lanes().map(|l| (g.link, g.id(l))) {
                    self.ends.remove(&at);
                    self.offered.remove(&at);
                }
            }
        }
    }

    /// A QP is connected, and expects lanes until `end`.
    pub fn expects(&mut self, flow: &'static Flow, pair: QpPair, end: Instant) {
        self.owners.insert(pair.mine, flow);
        self.expecting.retain(|(f, _)| !core::ptr::eq(*f, flow));
        self.expecting.push((flow, end));
    }

    /// QPs that expected lanes in vain do not any more. When to look again.
    pub fn give_up_expecting(&mut self, now: Instant) -> Option<Instant> {
        self.expecting.retain(|(flow, end)| {
            if *end <= now {
                flow.expect_lanes(false);
            }
            *end > now
        });
        self.expecting.iter().map(|(_, end)| *end).min()
    }

    /// Ends lanes that no pair has needed for [`UNUSED`]: this side does, where it offered them. A pair that comes later, or is
    /// just coming, gets others: what this side offers, it offers after the end of all that it offered before for the same
    /// pools, and the peer takes it so. When to look again.
    pub fn retire_unused(&mut self, r: &Rendezvous, now: Instant) -> Option<Instant> {
        if self.changed.take() || self.unused.iter().any(|(_, end)| *end <= now) {
            let end_of = |g: &Group| self.unused.iter().find(|(u, _)| core::ptr::eq(*u, g)).map(|(_, end)| *end);
            let is_unused = |g: &&&'static Group| g.ours && !g.is_retired() && !g.is_lost() && !self.is_paired(g);
            let all = self.groups.iter().filter(is_unused).copied();
            let (quiet, busy): (Vec<_>, Vec<_>) = all.partition(|g| self.users(g).all(|f| f.is_quiet()));
            // Their pieces' completions lead here again.
            self.changed.set(!busy.is_empty());
            let all = quiet.into_iter().map(|g| (g, end_of(g).unwrap_or(now + UNUSED)));
            let (due, later): (Vec<_>, Vec<_>) = all.partition(|(_, end)| *end <= now);
            self.unused = later;
            due.into_iter().for_each(|(g, _)| self.retire(r, g));
        }
        self.unused.iter().map(|(_, end)| *end).min()
    }

    fn retire(&self, r: &Rendezvous, group: &'static Group) {
        let Some(c) = self.cq_of(group) else { return };
        group.retire();
        for lane in group.lanes() {
            lane.break_off(&c.verbs);
            r.send(group.link, RevokeLane { lane: group.id(lane) }.into());
            self.users(group).for_each(|f| f.lane_down(lane.number, false));
        }
    }

    /// The peer offers new lanes in place of these, of which it has ended its own ends.
    fn replace(&self, group: &'static Group) {
        let Some(c) = self.cq_of(group) else { return };
        group.retire();
        for lane in group.lanes() {
            lane.break_off(&c.verbs);
            lane.end_there();
        }
        self.users(group).for_each(Flow::lanes_replaced);
    }

    /// Whether there are QPs that may use lanes of a group, now or soon.
    fn is_paired(&self, group: &Group) -> bool {
        self.pairs.values().any(|at| *at == (group.link, group.pools))
    }

    fn expects_no_more(&mut self, pair: &QpPair) {
        if let Some(flow) = self.flow(pair) {
            self.expecting.retain(|(f, _)| !core::ptr::eq(*f, flow));
            flow.expect_lanes(false);
        }
    }

    /// A QP by its address, for the side channel.
    pub fn find(&self, qp: &QpAddr) -> Option<OurQp> {
        let c = self.owners.get(qp)?.connection.lock().ok()?;
        let (pair, psns, pool) = (c.pair.filter(|p| p.mine == *qp && !c.left)?, c.psns?, c.pool?);
        Some(OurQp { peer: Some(pair.yours), psns, pool })
    }

    fn flow(&self, pair: &QpPair) -> Option<&'static Flow> {
        self.owners.get(&pair.mine).copied().filter(|f| f.connection.lock().is_ok_and(|c| c.pair == Some(*pair)))
    }

    /// The pool of a QP that is about to be in RTS: number, from 0.
    ///
    /// # Errors
    /// Why it has one path only.
    pub fn pool_of(&mut self, config: &Config, flow: &Flow) -> Result<u32, Single> {
        let connection = flow.connection.lock().map_err(|_| Single::Other)?;
        // SAFETY: the application's QP, which it is just modifying.
        let (ctx, pd) = unsafe { ((*flow.qp()).context, (*flow.qp()).pd) };
        let own = connection.pair.ok_or(Single::Unconnected)?.mine.gid;
        let g = &connection.given.0;
        let alike = |p: &Pool| {
            let o = &p.given.0;
            (p.ctx, p.pd, o.port_num, o.qp_access_flags) == (ctx, pd, g.port_num, g.qp_access_flags)
                && p.paths.iter().any(|x| x.gid.gid == own)
        };
        if let Some(at) = self.pools.iter().position(alike) {
            return Ok(at as u32);
        }
        let verbs = context::find(ctx).and_then(|c| Verbs::of(c.library)).ok_or(Single::Off)?;
        let table = gid_table(&verbs, ctx, g.port_num);
        let paths = paths::paths(&config.paths, config.path_key, std::process::id(), &table, &own)?;
        self.pools.push(Pool { ctx, pd, given: connection.given.copy(), paths });
        Ok(self.pools.len() as u32 - 1)
    }

    fn lane_cq(&mut self, ctx: *mut ibv_context) -> Option<usize> {
        if let Some(at) = self.cqs.iter().position(|c| c.ctx == ctx) {
            return Some(at);
        }
        let known = context::find(ctx)?;
        let (verbs, device) = (Verbs::of(known.library)?, known.device()?);
        // SAFETY: an open context.
        let channel = unsafe { (verbs.create_comp_channel)(ctx) };
        if channel.is_null() {
            return None;
        }
        // SAFETY: as above; the channel is ours.
        let cq = unsafe {
            let fd = (*channel).fd;
            libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK);
            LANE_CQE.iter().map(|cqe| (verbs.create_cq)(ctx, *cqe, events::mark(), channel, 0)).find(|cq| !cq.is_null())
        }
        .unwrap_or(null_mut());
        if cq.is_null() {
            // SAFETY: ours.
            unsafe { (verbs.destroy_comp_channel)(channel) };
            return None;
        }
        arm(cq);
        self.cqs.push(LaneCq { ctx, verbs, data: known.ops.data, device, channel, cq });
        Some(self.cqs.len() - 1)
    }

    /// Descriptors that become readable when pieces complete.
    pub fn descriptors(&self, all: &mut Vec<libc::pollfd>) {
        for c in &self.cqs {
            // SAFETY: a channel that exists.
            let fd = unsafe { (*c.channel).fd };
            all.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        }
    }

    /// Takes the completions of all lanes, and what follows from them. Whether pieces wait for lanes still.
    pub fn poll_lanes(&mut self, r: &Rendezvous) -> bool {
        // SAFETY: numbers, for which zero is valid.
        let mut wc: [ibv_wc; BATCH] = unsafe { core::mem::zeroed() };
        for c in &self.cqs {
            let (mut cq, mut own) = (null_mut(), null_mut());
            // SAFETY: our channel and CQ.
            unsafe {
                while (c.verbs.get_cq_event)(c.channel, &raw mut cq, &raw mut own) == 0 {
                    (c.verbs.ack_cq_events)(cq, 1);
                }
            }
            arm(c.cq);
            loop {
                // SAFETY: as above.
                let n = unsafe { (c.data.poll_cq)(c.cq, BATCH as c_int, wc.as_mut_ptr()) };
                if n <= 0 {
                    break;
                }
                for wc in &wc[..n as usize] {
                    let Some((lane, group)) = self.lanes.get((wc.wr_id >> 8) as usize) else { continue };
                    let Some((flow, token)) = lane.completed(wc) else { continue };
                    let fell = wc.status != ibv_wc_status::IBV_WC_SUCCESS && lane.is_up();
                    if fell {
                        lane.set_down();
                    }
                    flow.chunk_completed(token, wc.status, wc.vendor_err);
                    if fell {
                        // All that share it must know that they cannot count on it.
                        self.users(group).for_each(|f| f.lane_down(lane.number, false));
                    }
                }
            }
        }
        // After the lanes gave room back, as `Flow::with_locked` says.
        fence(SeqCst);
        // Not always the same one first.
        self.turn = (self.turn + 1) % self.flows.len().max(1);
        let (early, late) = self.flows.split_at(self.turn.min(self.flows.len()));
        let waits = late.iter().chain(early).fold(false, |waits, f| f.feed() | waits);
        self.answer_the_quiet(r);
        self.reap();
        waits
    }

    /// Polls the CQs of QPs whose engines wait for completions there. Whether there are any.
    pub fn draw(&self) -> bool {
        let mut any = false;
        for f in &self.flows {
            if f.waits() {
                any = true;
                f.cq.draw();
                f.retry();
            }
        }
        any
    }

    fn answer_the_quiet(&mut self, r: &Rendezvous) {
        self.leaving.retain(|l| {
            let quiet = l.flow.is_quiet();
            if quiet {
                r.send(l.link, QpQuiet { pair: l.pair, epoch: l.epoch }.into());
                l.flow.part();
            }
            !quiet
        });
    }

    /// The QPs that use the lanes of a group.
    fn users<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = &'static Flow> + 'a {
        self.flows.iter().copied().filter(|f| f.is_of(group))
    }

    fn group(&self, link: LinkId, pools: (u32, u32)) -> Option<&'static Group> {
        self.groups.iter().find(|g| g.link == link && g.pools == pools && !g.is_retired()).copied()
    }

    /// That of a lane, if it is not another's of this number by now.
    fn group_of(&self, link: LinkId, id: LaneId) -> Option<&'static Group> {
        let this = |g: &&&'static Group| {
            g.link == link && g.pds == id.pds && g.lane(usize::from(id.lane)).is_some_and(|l| l.epoch == id.epoch)
        };
        self.groups.iter().find(this).copied()
    }

    /// The side channel's event.
    pub fn event(&mut self, r: &Rendezvous, event: Event) {
        if let Event::Paired { link, .. } | Event::Message { link, .. } | Event::Lost { link, .. } = &event {
            self.mute.remove(link);
        }
        match event {
            Event::Paired { pair, link, process, pool, .. } => {
                let here = |f: &&'static Flow| f.connection.lock().is_ok_and(|c| !c.left);
                let Some(flow) = self.flow(&pair).filter(here) else {
                    // It has left since: nobody waits for the answer, but the peer is to stop.
                    r.send(link, QpGoing { pair, epoch: 0 }.into());
                    return r.forget(pair);
                };
                flow.forget_ring();
                let Some(mine) = flow.connection.lock().ok().and_then(|c| c.pool) else { return };
                self.pairs.insert(pair, (link, (mine, pool)));
                flow.because(Single::LanesPending);
                match self.group(link, (mine, pool)) {
                    Some(group) => flow.join(group),
                    None if r.process() < process => self.offer(r, link, (mine, pool)),
                    None => {}
                }
                self.count_users();
            }
            Event::Message { link, message } => self.message(r, link, message),
            Event::Lost { link, pairs, reason } => {
                for g in self.groups.iter().filter(|g| g.link == link) {
                    g.lose();
                    for l in g.lanes() {
                        l.set_down();
                        self.users(g).for_each(|f| f.lane_down(l.number, true));
                    }
                }
                for pair in pairs {
                    self.expects_no_more(&pair);
                    self.pairs.remove(&pair);
                    // Nobody will answer.
                    if let Some(f) = self.flow(&pair) {
                        f.because(reason.into());
                        f.answered.store(u64::MAX, core::sync::atomic::Ordering::Release);
                    }
                }
                self.count_users();
            }
            Event::Delayed { pair, reason } => self.not_found(&pair, reason),
            Event::Failed { pair, reason } => {
                self.not_found(&pair, reason);
                self.expects_no_more(&pair);
            }
            Event::Stopped => {}
        }
    }

    /// Makes this side's ends of all lanes between two pools, and offers them.
    fn offer(&mut self, r: &Rendezvous, link: LinkId, pools: (u32, u32)) {
        let Some(pool) = self.pools.get(pools.0 as usize) else { return };
        let (pd, paths) = (pool.pd, pool.paths.clone());
        let pds = u64::from(pools.0) << 32 | u64::from(pools.1);
        let group = Group::create(link, pools, pds, pd, true);
        self.groups.push(group);
        self.epochs += 1;
        let (epoch, all) = (self.epochs, paths.len());
        for (number, path) in paths.into_iter().enumerate() {
            let Some((lane, end)) = self.make(group, (number, epoch), path) else {
                return self.lanes_failed(link, pools, (all - number) as u32, true);
            };
            r.send(link, LaneOffer { lane, end }.into());
        }
    }

    fn make(&mut self, group: &'static Group, (number, epoch): (usize, u64), path: Path) -> Option<(LaneId, LaneEnd)> {
        let ctx = self.pools.get(group.pools.0 as usize)?.ctx;
        let at = self.lane_cq(ctx)?;
        let (c, pool) = (&self.cqs[at], &self.pools[group.pools.0 as usize]);
        let index = self.lanes.len() as u64;
        let of_ctx = |g: &&&'static Group| self.pools.get(g.pools.0 as usize).is_some_and(|p| p.ctx == ctx);
        let lanes = self.groups.iter().filter(of_ctx).map(|g| g.lanes().count()).sum::<usize>() + 1;
        // SAFETY: our CQ.
        if lanes * ROOM as usize > unsafe { (*c.cq).cqe }.max(0) as usize {
            return None;
        }
        let (lane, end) = Lane::create(&making(c, pool), index, (number, epoch), path)?;
        self.lanes.push((lane, group));
        group.add(lane);
        let id = group.id(lane);
        self.ends.insert((group.link, id), end);
        Some((id, end))
    }

    /// Connects this side's end of a lane.
    fn connect(&self, group: &'static Group, id: LaneId, theirs: &LaneEnd) -> bool {
        let connect = || {
            let lane = group.lane(usize::from(id.lane)).filter(|l| l.epoch == id.epoch)?;
            let (pool, c) = (self.pools.get(group.pools.0 as usize)?, self.cq_of(group)?);
            let mine = self.ends.get(&(group.link, id))?;
            // Its index may have changed since.
            let table = gid_table(&c.verbs, pool.ctx, pool.given.0.port_num);
            let gid = table.iter().find(|g| g.gid == lane.path.gid.gid && g.roce_v2)?;
            lane.connect(&making(c, pool), gid.index, mine, theirs).then_some(())
        };
        connect().is_some()
    }

    fn set_up(&self, group: &'static Group, id: LaneId, theirs: &LaneEnd) {
        let made = |l: &&'static Lane| l.epoch == id.epoch && !l.is_up() && !l.has_ended();
        let Some(lane) = group.lane(usize::from(id.lane)).filter(made) else { return };
        let (Some(pool), Some(c)) = (self.pools.get(group.pools.0 as usize), self.cq_of(group)) else { return };
        let Some(mine) = self.ends.get(&(group.link, id)) else { return };
        lane.set_up(c.device, mine, theirs, pool.given.0.port_num);
        for (pair, (link, pools)) in &self.pairs {
            if (*link, *pools) == (group.link, group.pools)
                && let Some(flow) = self.flow(pair)
            {
                flow.join(group);
            }
        }
        self.count_users();
    }

    fn message(&mut self, r: &Rendezvous, link: LinkId, message: Message) {
        match message {
            Message::LaneOffer(o) if self.accept(r, link, &o) => {}
            Message::LaneOffer(o) => {
                r.send(link, LaneRefuse { lane: o.lane, reason: Reason::Lane }.into());
                self.lanes_failed(link, pools_of(o.lane), 1, true);
            }
            Message::LaneRefuse(l) => {
                if let Some(group) = self.group_of(link, l.lane) {
                    self.lanes_failed(link, group.pools, 1, false);
                }
            }
            Message::LaneAccept(a) => {
                let Some(group) = self.group_of(link, a.lane) else { return };
                if self.connect(group, a.lane, &a.end) {
                    r.send(link, LaneReady { lane: a.lane }.into());
                    self.set_up(group, a.lane, &a.end);
                } else {
                    self.lanes_failed(link, group.pools, 1, true);
                }
            }
            Message::LaneReady(l) => {
                if let Some(group) = self.group_of(link, l.lane)
                    && let Some(theirs) = self.offered.get(&(link, l.lane)).copied()
                {
                    self.set_up(group, l.lane, &theirs);
                }
            }
            Message::RevokeLane(l) => {
                self.broken(link, l.lane, true);
                r.send(link, LaneRevoked { lane: l.lane }.into());
            }
            Message::LaneRevoked(l) => {
                if let Some(group) = self.group_of(link, l.lane) {
                    let number = usize::from(l.lane.lane);
                    group.lane(number).into_iter().for_each(Lane::end_there);
                    self.users(group).for_each(|f| f.lane_revoked(number));
                }
            }
            Message::QpGoing(g) => {
                let pair = g.pair.swapped();
                self.pairs.remove(&pair);
                match self.flow(&pair) {
                    Some(flow) => {
                        flow.stop();
                        self.leaving.push(Leaving { flow, link, pair, epoch: g.epoch });
                        self.answer_the_quiet(r);
                    }
                    None => _ = r.send(link, QpQuiet { pair, epoch: g.epoch }.into()),
                }
                self.count_users();
            }
            Message::QpQuiet(q) => {
                if let Some(flow) = self.flow(&q.pair.swapped()) {
                    flow.answered.fetch_max(q.epoch, core::sync::atomic::Ordering::AcqRel);
                }
            }
            Message::WantRing(w) => {
                if let Some(flow) = self.paired(link, w.pair.swapped())
                    && let Some(ring) = flow.offer_ring(&w)
                {
                    r.send(link, ring.into());
                }
            }
            Message::LengthRing(ring) => {
                if let Some(flow) = self.paired(link, ring.pair.swapped()) {
                    flow.ring_is(&ring);
                }
            }
            _ => {}
        }
    }

    /// The QP of a pair that is agreed on over this link.
    fn paired(&self, link: LinkId, pair: QpPair) -> Option<&'static Flow> {
        self.pairs.get(&pair).filter(|p| p.0 == link).and_then(|_| self.flow(&pair))
    }

    /// A QP, if it still is one, wants the peer's ring of lengths.
    pub fn want_ring(&mut self, r: &Rendezvous, flow: &'static Flow) {
        if !self.flows.iter().any(|f| core::ptr::eq(*f, flow)) {
            return;
        }
        let Some(pair) = flow.connection.lock().ok().and_then(|c| c.pair) else { return };
        let Some((link, pools)) = self.pairs.get(&pair).copied() else { return };
        if self.group(link, pools).is_some_and(Group::takes_records) {
            self.epochs += 1;
            flow.ring_asked(self.epochs);
            r.send(link, WantRing { pair, id: self.epochs }.into());
        }
    }

    fn accept(&mut self, r: &Rendezvous, link: LinkId, o: &LaneOffer) -> bool {
        let pools = pools_of(o.lane);
        let number = usize::from(o.lane.lane);
        let earlier = |g: &&'static Group| g.lane(number).is_some_and(|l| l.epoch != o.lane.epoch);
        if let Some(group) = self.group(link, pools).filter(earlier) {
            self.replace(group);
        }
        let Some(pool) = self.pools.get(pools.0 as usize) else { return false };
        // Only who has a QP of that pool connected to one of ours may have lanes to it.
        if !self.pairs.values().any(|p| *p == (link, pools)) {
            return false;
        }
        let Some(path) = pool.paths.get(number).copied() else { return false };
        let pd = pool.pd;
        let group = self.group(link, pools).unwrap_or_else(|| {
            let group = Group::create(link, pools, o.lane.pds, pd, false);
            self.groups.push(group);
            group
        });
        if group.lane(number).is_some() {
            return false;
        }
        let Some((id, end)) = self.make(group, (number, o.lane.epoch), path) else { return false };
        if !self.connect(group, id, &o.end) {
            return false;
        }
        // The offerer's end, for when it says that it is ready.
        self.offered.insert((link, id), o.end);
        r.send(link, LaneAccept { lane: id, end }.into());
        true
    }

    /// A lane is not to be used any more.
    fn broken(&self, link: LinkId, id: LaneId, by_peer: bool) {
        let Some(group) = self.group_of(link, id) else { return };
        let number = usize::from(id.lane);
        let Some(lane) = group.lane(number).filter(|l| l.epoch == id.epoch) else { return };
        lane.set_down();
        if by_peer && let Some(c) = self.cq_of(group) {
            lane.break_off(&c.verbs);
            lane.end_there();
        }
        self.users(group).for_each(|f| f.lane_down(number, false));
    }

    fn cq_of(&self, group: &Group) -> Option<&LaneCq> {
        let ctx = self.pools.get(group.pools.0 as usize)?.ctx;
        self.cqs.iter().find(|c| c.ctx == ctx)
    }

    /// Engines want these lanes of a group revoked.
    pub fn revoke(&self, r: &Rendezvous, group: &'static Group, lanes: u32) {
        for number in (0..32).filter(|n| lanes >> n & 1 == 1) {
            let Some(lane) = group.lane(number) else { continue };
            if let Some(c) = self.cq_of(group) {
                lane.break_off(&c.verbs);
            }
            if self.pairs.values().any(|(link, _)| *link == group.link) {
                r.send(group.link, RevokeLane { lane: group.id(lane) }.into());
            } else {
                // Nobody is there to be asked.
                self.users(group).for_each(|f| f.lane_down(number, true));
            }
        }
    }

    /// The QP at this address, of a lane if it still is one, broke.
    pub fn broke(&self, qp: usize) {
        for (lane, group) in self.lanes.iter().filter(|(lane, _)| lane.is_of(qp)) {
            let Some(c) = self.cq_of(group) else { continue };
            lane.break_off(&c.verbs);
            self.users(group).for_each(|f| f.lane_down(lane.number, false));
        }
    }

    /// A QP is about to leave RTS: tells the peer, if it has one.
    pub fn going(&mut self, r: &Rendezvous, flow: &Flow, pair: QpPair) -> Option<Departure> {
        let (link, pools) = self.pairs.remove(&pair)?;
        self.changed.set(true);
        self.epochs += 1;
        // What an earlier departure came to says nothing of this one.
        flow.answered.store(0, core::sync::atomic::Ordering::Release);
        let epoch = r.send(link, QpGoing { pair, epoch: self.epochs }.into()).then_some(self.epochs);
        Some(Departure { link, epoch, pools })
    }

    /// Ends, here, all lanes by which pieces of a QP, or of its peer, may still come. Whether any had not ended.
    pub fn break_lanes_of(&self, flow: &Flow, departure: Option<&Departure>) -> bool {
        // The peer may use lanes that this side's QP has not joined yet.
        let of_pair = |g: &Group| departure.is_some_and(|d| (d.link, d.pools) == (g.link, g.pools));
        let mut any = false;
        for g in self.groups.iter().filter(|g| of_pair(g) || flow.is_of(g)) {
            let Some(c) = self.cq_of(g) else { continue };
            for l in g.lanes().filter(|l| !l.has_ended()) {
                l.break_off(&c.verbs);
                any = true;
                self.users(g).for_each(|f| f.lane_down(l.number, false));
            }
        }
        any
    }

    /// Whether the peer let a departure wait for its answer, and has said nothing since.
    pub fn is_mute(&self, link: LinkId) -> bool {
        self.mute.contains_key(&link)
    }

    /// A QP did not become quiet in time, or the peer did not answer: its lanes end, here. When the last of them did.
    pub fn give_up(&mut self, flow: &Flow, departure: Option<&Departure>, answered: bool) -> Instant {
        let (broke, now) = (self.break_lanes_of(flow, departure), Instant::now());
        let Some(d) = departure.filter(|_| !answered) else { return now };
        let last = self.mute.entry(d.link).or_insert(now);
        if broke {
            *last = now;
        }
        *last
    }

    /// Destroys all lanes of a PD that no QP uses any more, and tells the peers.
    pub fn pd_goes(&mut self, r: Option<&Rendezvous>, pd: *mut ibv_pd) {
        // SAFETY: QPs of the application that exist.
        if self.flows.iter().any(|f| unsafe { (*f.qp()).pd } == pd) {
            return;
        }
        let (gone, kept): (Vec<_>, Vec<_>) = self.groups.iter().partition(|g| g.pd == pd);
        for g in gone {
            let Some(verbs) = self.cq_of(g).map(|c| c.verbs) else { continue };
            for l in g.lanes() {
                l.destroy(&verbs);
                let id = g.id(l);
                self.ends.remove(&(g.link, id));
                self.offered.remove(&(g.link, id));
                if let Some(r) = r.filter(|_| !g.is_lost()) {
                    r.send(g.link, RevokeLane { lane: id }.into());
                }
            }
        }
        (self.groups, self.changed) = (kept, Cell::new(true));
        // Numbers of pools stay as they are.
        self.pools.iter_mut().filter(|p| p.pd == pd).for_each(|p| {
            (p.pd, p.ctx) = (null_mut(), null_mut());
            p.paths.clear();
        });
    }

    /// Destroys all that is ours in a context.
    pub fn context_goes(&mut self, r: Option<&Rendezvous>, ctx: *mut ibv_context) {
        let pds: Vec<_> = self.pools.iter().filter(|p| p.ctx == ctx).map(|p| p.pd).collect();
        pds.into_iter().for_each(|pd| self.pd_goes(r, pd));
        self.cqs.retain(|c| {
            let goes = c.ctx == ctx;
            if goes {
                // SAFETY: ours; what used them is destroyed.
                unsafe {
                    (c.verbs.destroy_cq)(c.cq);
                    (c.verbs.destroy_comp_channel)(c.channel);
                }
            }
            !goes
        });
    }

    fn count_users(&self) {
        self.changed.set(true);
        for g in &self.groups {
            let users = self.users(g).count() as u32;
            g.lanes().for_each(|l| l.serves(users));
        }
    }
}

/// The pools of a lane that the peer offers: this side's, and the other side's.
fn pools_of(offered: LaneId) -> (u32, u32) {
    (offered.pds as u32, (offered.pds >> 32) as u32)
}

fn making<'a>(c: &'a LaneCq, pool: &'a Pool) -> Making<'a> {
    Making { verbs: &c.verbs, post: c.data.post_send, pd: pool.pd, cq: c.cq, given: &pool.given }
}

/// Asks for an event at the next completion.
fn arm(cq: *mut ibv_cq) {
    // SAFETY: a CQ of ours.
    unsafe {
        if let Some(req) = (*(*cq).context).ops.req_notify_cq {
            req(cq, 0);
        }
    }
}

/// The GID table of a port.
fn gid_table(verbs: &Verbs, ctx: *mut ibv_context, port: u8) -> Vec<Gid> {
    const ROCE_V2: u32 = 2;
    // SAFETY: numbers, for which zero is valid.
    let mut all: Vec<ibv_gid_entry> = (0..512).map(|_| unsafe { core::mem::zeroed() }).collect();
    // SAFETY: an open context, and room for so many entries.
    let n = unsafe { (verbs.query_gid_table)(ctx, all.as_mut_ptr(), all.len(), 0, size_of::<ibv_gid_entry>()) };
    all.truncate(usize::try_from(n).unwrap_or(0));
    all.iter()
        .filter(|e| e.port_num == u32::from(port))
        .map(|e| Gid {
            index: e.gid_index,
            // SAFETY: every bit pattern of a GID is 16 bytes.
            gid: unsafe { e.gid.raw },
            roce_v2: e.gid_type == ROCE_V2,
            netdev: e.ndev_ifindex,
        })
        .collect()
}
