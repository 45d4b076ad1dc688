//! What the log says of a flow besides its transfers: names and addresses of what the segment's records stand for.

use super::Telemetry;
use crate::flows::table::{FlowId, Outstanding};
use crate::log::writer::{FlowNames, Left, Names};
use crate::shm::layout::Life;
use crate::shm::model::{gid_ip, gid_of};
use crate::shm::segment::{change_identity, put_gid};
use crate::telemetry::qp::Qp;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rdma_sys::ibv_qp_type;

impl Telemetry {
    /// The QP sends from this address.
    pub fn sends_from(&self, qp: &Qp, gid: [u8; 16]) {
        if let Some(r) = qp.works_for {
            let _c = self.control();
            change_identity(&r.seq, || put_gid(&r.local_gid, gid));
        }
        self.control().sources.insert(qp.index, (qp.spec.qp_num, gid));
    }
}

impl Names for Telemetry {
    fn of(&self, id: FlowId) -> FlowNames {
        let c = self.unnoticed();
        let port = c.ports.find(id.port);
        let device = port.map_or_else(|| "unknown".into(), |p| p.device.get());
        let mut devices = Vec::new();
        for name in (0..).map_while(|i| c.ports.find(i)).map(|p| p.device.get()) {
            if !name.is_empty() && !devices.contains(&name) {
                devices.push(name);
            }
        }
        FlowNames {
            device_index: devices.iter().position(|d| *d == device).map_or(0, |i| i as u32),
            device,
            port: port.map_or(0, |p| p.port_num.load(Relaxed)),
            source: c.sources.get(&id.qp).filter(|(qp_num, _)| *qp_num == id.qp_num).and_then(|(_, gid)| gid_ip(*gid)),
            destination: (c.peers.find(id.peer))
                .filter(|p| p.is_global.load(Relaxed) != 0)
                .and_then(|p| gid_ip(gid_of(&p.gid))),
            rank: self.rank(),
            is_datagram: c.qps.find(id.qp).is_some_and(|q| q.qp_type.load(Relaxed) == ibv_qp_type::IBV_QPT_UD),
        }
    }

    fn outstanding(&self, look: &mut dyn FnMut(Left<'_>)) {
        let c = self.unnoticed();
        look(&mut |id| {
            let q = c.qps.find(id.qp)?;
            let is_it = q.life.load(Relaxed) == Life::Live as u32 && q.qp_num.load(Relaxed) == id.qp_num;
            let left = |posted: &AtomicU64, gone: &AtomicU64| posted.load(Relaxed).saturating_sub(gone.load(Relaxed));
            let (post, done) = (&q.send_post, &q.send_done);
            is_it.then(|| Outstanding {
                wr: left(&post.wr_posted, &done.wr_retired),
                bytes: left(&post.bytes_posted, &done.bytes_retired),
            })
        });
    }

    fn dropped(&self, transfers: u64) {
        self.hot.header.log_dropped.store(transfers, Relaxed);
    }
}

impl Telemetry {
    fn rank(&self) -> Option<u64> {
        let rank = self.hot.header.rank.load(Relaxed);
        (rank != u64::MAX).then_some(rank)
    }
}
