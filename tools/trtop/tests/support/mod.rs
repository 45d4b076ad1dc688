//! Segments for tests: written with the library's own writer, in a directory of the test's own.

#![allow(dead_code)] // Each test uses a part of it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use telereduce::shm::layout::{
    CqRecord, Header, Kind, LabelRecord, LaneRecord, Life, MultipathRecord, NONE, PeerRecord, PortRecord, QpDetail,
    QpRecord, RingRecord, SrqRecord, StallRecord,
};
use telereduce::shm::segment::{Identity, Segment, bump};

/// A segment that this process writes.
pub struct Made {
    segment: Option<Segment>,
    pub path: PathBuf,
    pub header: &'static Header,
    pub ports: &'static [PortRecord],
    pub peers: &'static [PeerRecord],
    pub qps: &'static [QpRecord],
    pub details: &'static [QpDetail],
    pub rings: &'static [RingRecord],
}

/// A lane posts and completes a chunk.
pub fn carry(lane: &LaneRecord, bytes: u64) {
    add(&lane.post.wr_posted, 1);
    add(&lane.post.bytes_posted, bytes);
    add(&lane.done.wr_retired, 1);
    add(&lane.done.bytes_retired, bytes);
}

/// Who the process is said to be.
pub fn who(pid: u32, command: &str, rank: Option<u64>) -> Identity {
    Identity {
        pid,
        uid: rustix::process::geteuid().as_raw(),
        start_time_ticks: 1,
        created_ns: telereduce::clock::realtime_ns(),
        host: "node7".into(),
        command: command.into(),
        rank,
        world_size: rank.map(|_| 8),
        job: None,
    }
}

/// A live segment with two ports, three peers and `qps` QPs in RTS, which all counters are still zero of.
pub fn segment(dir: &Path, who: &Identity, qps: usize) -> Made {
    let segment = Segment::create(dir, who, 64, 16).unwrap();
    let ports = segment.add_region::<PortRecord>(Kind::Port, 4).unwrap();
    let peers = segment.add_region::<PeerRecord>(Kind::Peer, 16).unwrap();
    let cqs = segment.add_region::<CqRecord>(Kind::Cq, 4).unwrap();
    segment.add_region::<SrqRecord>(Kind::Srq, 2).unwrap();
    let records = segment.add_region::<QpRecord>(Kind::Qp, qps).unwrap();
    let details = segment.add_region::<QpDetail>(Kind::QpDetail, qps).unwrap();
    let rings = segment.add_region::<RingRecord>(Kind::Ring, 1).unwrap();
    for (i, p) in ports[..2].iter().enumerate() {
        p.device.set("mlx5_0");
        p.port_num.store(i as u32 + 1, Relaxed);
        p.used.store(1, Relaxed);
    }
    for (i, p) in peers[..3].iter().enumerate() {
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, i as u8 + 1];
        for (word, half) in p.gid.iter().zip([&gid[..8], &gid[8..]]) {
            word.store(u64::from_ne_bytes(half.try_into().unwrap()), Relaxed);
        }
        p.is_global.store(1, Relaxed);
        p.port.store(i as u32 % 2, Relaxed);
        p.used.store(1, Relaxed);
    }
    cqs[0].life.store(Life::Live as u32, Relaxed);
    for (i, q) in records.iter().enumerate() {
        q.qp_num.store(1000 + i as u32, Relaxed);
        q.dest_qp_num.store(2000 + i as u32, Relaxed);
        q.port.store(i as u32 % 2, Relaxed);
        q.peer.store(i as u32 % 3, Relaxed);
        q.qp_type.store(2, Relaxed);
        q.qp_state.store(3, Relaxed);
        q.srq.store(NONE, Relaxed);
        q.created_ns.store(who.created_ns, Relaxed);
        q.life.store(Life::Live as u32, Relaxed);
    }
    segment.publish();
    let (path, header) = (segment.path().to_path_buf(), segment.header());
    Made { segment: Some(segment), path, header, ports, peers, qps: records, details, rings }
}

impl Made {
    /// QP `i` posts `wr` WRITEs of `bytes` each and completes `done` of what is outstanding, each timed at `ns`.
    pub fn traffic(&self, i: usize, wr: u64, bytes: u64, done: u64, ns: u64) {
        let (q, d) = (&self.qps[i], &self.details[i]);
        add(&q.send_post.wr_posted, wr);
        add(&q.send_post.bytes_posted, wr * bytes);
        add(&d.opcodes[0].wr, wr);
        add(&d.opcodes[0].bytes, wr * bytes);
        add(&q.send_done.wr_retired, done);
        add(&q.send_done.bytes_retired, done * bytes);
        add(&q.send_done.cqes, done);
        q.send_done.wr_high_water.fetch_max(wr, Relaxed);
        q.send_done.bytes_high_water.fetch_max(wr * bytes, Relaxed);
        if done > 0 {
            telereduce::telemetry::histogram::record(&d.latency, ns);
        }
    }

    /// One send of QP `i` fails with `status`.
    pub fn failure(&self, i: usize, status: u32, bytes: u64) {
        let (q, d) = (&self.qps[i], &self.details[i]);
        add(&q.send_done.wr_retired, 1);
        add(&q.send_done.bytes_retired, bytes);
        add(&q.send_done.wr_failed, 1);
        add(&q.send_done.bytes_failed, bytes);
        add(&d.send_errors.by_status[status as usize], 1);
        d.send_errors.last.store(u64::from(status) << 32 | 0x81, Relaxed);
        d.send_errors.last_wr_id.store(0xabc, Relaxed);
        d.send_errors.last_ns.store(telereduce::clock::realtime_ns(), Relaxed);
    }

    /// Multi-path is on: what it does to each QP.
    pub fn multipath(&self) -> &'static [MultipathRecord] {
        let segment = self.segment.as_ref().expect("a process that lives");
        segment.add_region(Kind::Multipath, self.qps.len()).unwrap()
    }

    /// One lane per path from 10.1.0.I to 10.2.0.I, all of port 1.
    pub fn lanes(&self, paths: usize) -> &'static [LaneRecord] {
        let segment = self.segment.as_ref().expect("a process that lives");
        let lanes = segment.add_region::<LaneRecord>(Kind::Lane, paths).unwrap();
        for (i, l) in lanes.iter().enumerate() {
            for (words, net) in [(&l.local_gid, 1), (&l.remote_gid, 2)] {
                let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, net, 0, i as u8 + 1];
                for (word, half) in words.iter().zip([&gid[..8], &gid[8..]]) {
                    word.store(u64::from_ne_bytes(half.try_into().unwrap()), Relaxed);
                }
            }
            l.path.store(i as u32, Relaxed);
            l.life.store(Life::Live as u32, Relaxed);
        }
        lanes
    }

    /// Whom each QP works for.
    pub fn labels(&self) -> &'static [LabelRecord] {
        let segment = self.segment.as_ref().expect("a process that lives");
        segment.add_region(Kind::Label, self.qps.len()).unwrap()
    }

    /// Stalls are watched for: what the watch saw of each QP.
    pub fn stalls(&self) -> &'static [StallRecord] {
        let segment = self.segment.as_ref().expect("a process that lives");
        segment.add_region(Kind::Stall, self.qps.len()).unwrap()
    }

    /// The process ends without removing its segment: its lock goes.
    pub fn die(&mut self) {
        self.segment = None;
        // A program that another test is just starting has the lock, too, until its exec.
        while telereduce::shm::discover::is_locked(&self.path) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Removes the file.
    pub fn unlink(&self) {
        std::fs::remove_file(&self.path).unwrap();
    }
}

/// Ranks 3 (pid 4000) and 5 (pid 4001): QP 1000 of each, of 10.0.0.1 and 10.0.0.2, is connected to the other's. Of rank 3's,
/// NCCL said whom it works for.
pub fn connected(dir: &Path) -> [Made; 2] {
    let pair = [(4000, 3), (4001, 5)].map(|(pid, rank)| segment(dir, &who(pid, "job", Some(rank)), 1));
    let labels = pair.each_ref().map(Made::labels);
    for (i, (made, labels)) in pair.iter().zip(labels).enumerate() {
        for (word, peers) in labels[0].local_gid.iter().zip(&pair[0].peers[i].gid) {
            word.store(peers.load(Relaxed), Relaxed);
        }
        made.qps[0].dest_qp_num.store(1000, Relaxed);
        made.qps[0].peer.store(1 - i as u32, Relaxed);
        made.qps[0].port.store(1 - i as u32, Relaxed);
        made.traffic(0, 10, 1000, 5, 1);
    }
    let l = &labels[0][0];
    l.known.store(31, Relaxed);
    l.group.store(0xabcd, Relaxed);
    l.rank.store(0, Relaxed);
    l.peer_rank.store(1, Relaxed);
    l.channel.store(7, Relaxed);
    l.func.store(4, Relaxed);
    pair
}

fn add(to: &AtomicU64, by: u64) {
    bump(to, by);
}
