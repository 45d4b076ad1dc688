//! What a lane of multi-path counts: its chunks, apart from the application's WRs.

use super::fold;
use super::histogram;
use super::registry::{Device, Telemetry};
use crate::clock::realtime_ns;
use crate::shm::layout::{LaneRecord, Life};
use crate::shm::segment::{bump, change_identity, put, put_gid, raise};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Who a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneIdentity {
    /// Which path of its port it takes, from 0.
    pub path: u32,
    /// Port number.
    pub port_num: u8,
    /// The QP's number.
    pub qp_num: u32,
    /// The peer's QP number.
    pub dest_qp_num: u32,
    /// The path's own GID.
    pub local_gid: [u8; 16],
    /// The peer's GID.
    pub remote_gid: [u8; 16],
}

/// A lane's counters. One caller at a time.
pub struct Lane {
    record: &'static LaneRecord,
    index: u32,
}

impl Telemetry {
    /// A lane came into being. `None`: the segment has no room, and it is not counted.
    pub fn create_lane(&self, device: &Device, who: &LaneIdentity) -> Option<Lane> {
        let (index, record) = self.lane_record()?;
        let port = self.port_of(device, who.port_num);
        change_identity(&record.seq, || {
            fold::clear_lane(record);
            put(&record.path, who.path);
            put(&record.port, port);
            put(&record.qp_num, who.qp_num);
            put(&record.dest_qp_num, who.dest_qp_num);
            put(&record.qps, 0);
            record.created_ns.store(realtime_ns(), Relaxed);
            put_gid(&record.local_gid, who.local_gid);
            put_gid(&record.remote_gid, who.remote_gid);
            put(&record.life, Life::Live as u32);
        });
        Some(Lane { record, index })
    }

    /// The lane is gone. Chunks of it that are still out are dropped.
    pub fn retire_lane(&self, lane: Lane) {
        fold::drop_outstanding(&lane.record.post, &lane.record.done);
        change_identity(&lane.record.seq, || {
            put(&lane.record.qps, 0);
            put(&lane.record.life, Life::Retired as u32);
        });
        self.lane_record_retired(lane.index);
    }
}

impl Lane {
    /// A chunk was posted.
    pub fn posted(&self, bytes: u64) {
        bump(&self.record.post.wr_posted, 1);
        bump(&self.record.post.bytes_posted, bytes);
    }

    /// A chunk was completed, so many ns after it was posted, at `end_ns` of CLOCK_REALTIME.
    pub fn completed(&self, bytes: u64, latency_ns: u64, end_ns: u64) {
        self.ended(bytes);
        histogram::record(&self.record.latency, latency_ns);
        self.record.done.last_ns.store(end_ns, Relaxed);
    }

    /// A chunk was completed in error.
    pub fn failed(&self, bytes: u64) {
        self.ended(bytes);
        bump(&self.record.done.wr_failed, 1);
        bump(&self.record.done.bytes_failed, bytes);
    }

    fn ended(&self, bytes: u64) {
        let (post, done) = (&self.record.post, &self.record.done);
        let out = |posted: &AtomicU64, retired: &AtomicU64| posted.load(Relaxed).saturating_sub(retired.load(Relaxed));
        raise(&done.wr_high_water, out(&post.wr_posted, &done.wr_retired));
        raise(&done.bytes_high_water, out(&post.bytes_posted, &done.bytes_retired));
        bump(&done.cqes, 1);
        bump(&done.wr_retired, 1);
        bump(&done.bytes_retired, bytes);
    }

    /// It serves so many of the application's QPs now.
    pub fn serves(&self, qps: u32) {
        put(&self.record.qps, qps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::shm::layout::Hooked;
    use crate::shm::reader::Reader;
    use crate::shm::segment::Identity;
    use crate::shm::snapshot;
    use crate::telemetry::registry::Objects;

    #[test]
    fn lanes_are_read_back_and_stand_beside_the_ports() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let config = Config { dir: dir.path().into(), ..Config::default() };
        let clock: &'static Clock = Box::leak(Box::new(Clock::new()));
        let objects: &'static Objects = Box::leak(Box::new(Objects::new()));
        let who = Identity { pid: std::process::id(), ..Identity::default() };
        let t = Telemetry::new(&config, &who, clock, objects).unwrap();
        let device = t.open_device("null0", Hooked::Linked);
        let mut identity = LaneIdentity {
            path: 3,
            port_num: 1,
            qp_num: 77,
            dest_qp_num: 78,
            local_gid: core::array::from_fn(|i| i as u8),
            remote_gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 2, 0, 4],
        };
        let lane = t.create_lane(device, &identity).unwrap();
        (0..5).for_each(|_| lane.posted(1000));
        lane.serves(2);
        lane.completed(1000, 500, 42);
        lane.completed(1000, 700, 43);
        lane.failed(1000);

        let mut r = Reader::open(t.segment().path()).unwrap();
        let read = |r: &mut Reader| snapshot::segment(r, false).unwrap();
        let s = read(&mut r);
        let l = &s.lanes[0];
        assert_eq!((l.path, l.qp_num, l.dest_qp_num, l.qps, l.live), (3, 77, 78, 2, true));
        assert_eq!((l.device.as_deref(), l.port, l.peer.as_str()), (Some("null0"), Some(1), "10.2.0.4"));
        assert_eq!(l.local, "1:203:405:607:809:a0b:c0d:e0f");
        let c = &l.chunks;
        assert_eq!((c.wr_posted, c.wr_completed, c.wr_failed, c.wr_outstanding), (5, 2, 1, 2));
        assert_eq!((c.bytes_completed, c.bytes_outstanding, c.wr_high_water, c.cqes), (2000, 2000, 5, 3));
        assert_eq!((l.latency_post_to_poll.samples, l.latency_post_to_poll.max_ns), (2, Some(700)));
        assert_eq!(s.ports[0].line.send.wr_posted, 0, "chunks are not the application's WRs");

        t.retire_lane(lane);
        let s = read(&mut r);
        assert_eq!((s.lanes[0].live, s.lanes[0].chunks.wr_dropped, s.lanes[0].chunks.wr_outstanding), (false, 2, 0));

        // Retired ones stay until there are many; then the oldest gives its record to the next.
        for i in 0..2000 {
            identity.qp_num = 1000 + i;
            let lane = t.create_lane(device, &identity).unwrap();
            t.retire_lane(lane);
        }
        let s = read(&mut r);
        assert!(s.lanes.len() < 1200 && s.lanes.iter().all(|l| !l.live));
        assert_eq!(s.lanes.iter().map(|l| l.qp_num).max(), Some(2999));
        assert!(s.lanes.iter().all(|l| l.chunks.wr_posted == 0), "a record's next lane starts at zero");
    }
}
