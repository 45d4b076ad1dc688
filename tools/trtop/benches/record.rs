//! What `trtop record` costs: 1,000 QPs in one segment, all with traffic, recorded at 10 Hz for RECORD_SECONDS (65: with a key
//! frame among them). Each QP completes some 64 WRs of its own size a frame, at random, and has up to 16 outstanding; one in
//! 64 is timed. Prints the share of one core and the bytes, and fails over the limits of 2 % of a core and 50 MB an hour.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};
use telereduce::shm::segment::bump;
use trtop::recording::live::Segments;
use trtop::recording::writer::Writer;

const QPS: usize = 1_000;
const INTERVAL: Duration = Duration::from_millis(100);

/// Processor time of this thread, which records but does not write the counters while it is measured.
fn cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn main() {
    let seconds: u64 = std::env::var("RECORD_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(65);
    let dir = tempfile::Builder::new().prefix("trtop-bench.").tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let made = support::segment(dir.path(), &support::who(std::process::id(), "bench", Some(0)), QPS);
    let file = dir.path().join("recording");
    let mut writer = Writer::open(&file, &trtop::record::about(INTERVAL), false).expect("a recording");
    let mut segments = Segments::new(dir.path(), &[], false);
    let mut random = Random(7);
    let mut outstanding = vec![0u64; QPS];
    let (start, mut used, mut first) = (Instant::now(), Duration::ZERO, 0);
    let mut next = start;
    for frame in 0..seconds * 10 {
        for (i, out) in outstanding.iter_mut().enumerate() {
            let size = [65536, 1 << 20, 4096][i % 3];
            let posted = (56 + random.below(8) + random.below(8)).max(17);
            let after = random.below(17);
            let done = *out + posted - after;
            made.traffic(i, posted, size, done, 20_000 + random.below(40_000));
            bump(&made.qps[i].send_done.last_ns, 90_000_000 + random.below(20_000_000));
            *out = after;
        }
        next += INTERVAL;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let before = cpu();
        let restless = segments.copy().expect("segments");
        let time_ns = telereduce::clock::realtime_ns();
        writer.write(time_ns, &segments.images(), segments.denied, restless).expect("a frame");
        used += cpu() - before;
        if frame == 0 {
            first = writer.bytes();
        }
    }
    let took = start.elapsed().as_secs_f64();
    let share = used.as_secs_f64() / took * 100.0;
    // The first frame is a key frame of small numbers; one a minute comes with them, if it is measured for so long.
    let hour = (writer.bytes() - first) as f64 / took * 3600.0 / 1e6;
    println!("{QPS} QPs at 10 Hz for {took:.0} s: {share:.2} % of one core; {hour:.1} MB an hour");
    drop(dir);
    if share >= 2.0 || hour >= 50.0 {
        std::process::exit(1);
    }
}
