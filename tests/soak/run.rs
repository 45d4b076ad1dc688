//! `make soak`: eight threads make, use and destroy QPs, CQs and SRQs at random for SOAK_SECONDS (600), natively and then
//! under the library, while trtop dumps the segment every second. Ends with one line of counts, or says what is wrong.

use std::process::Command;
use std::time::Duration;
use telereduce_tests::compare::{assert_balanced, assert_details, assert_nothing_missed, assert_ports};
use telereduce_tests::run::{built, read_snapshot};
use telereduce_tests::{Counts, Dir, Live, Outcome, Run, Truth};

fn main() {
    let seconds: u64 = std::env::var("SOAK_SECONDS").map_or(600, |s| s.parse().expect("SOAK_SECONDS is a number"));
    let program = Run::program(&format!("soak --seconds {seconds}"));
    let start = |run: &Run| {
        let mut live = run.live();
        live.may_take(Duration::from_secs(seconds + 60));
        live
    };
    let native = start(&program).finish().silent();

    let dir = Dir::new();
    let mut live = start(&program.counted(&dir));
    let mut watched = Watched::default();
    while !live.has_ended() {
        std::thread::sleep(Duration::from_secs(1));
        watched.look(&dir, &live);
    }
    let o = live.finish().silent();
    assert_eq!(dir.names(), [""; 0], "the segment is removed");
    let s = dir.snapshot();
    let truth = Truth::parse(o.stdout.lines());
    assert_ports(&truth, &s);
    assert_balanced(&s);
    assert_details(&s);
    assert_nothing_missed(&s);

    let m = made(&o);
    println!(
        "soak: {seconds} s, {} QPs, {} CQs, {} SRQs, {} resets, {} sends, {} receives, all counted; {} dumps; \
         at most {} KB, {} KB at the end, natively {} KB",
        m.get("qps"),
        m.get("cqs"),
        m.get("srqs"),
        m.get("resets"),
        truth.total.get("send_wr_posted"),
        truth.total.get("recv_wr_posted"),
        watched.dumps,
        watched.largest_kb,
        m.get("rss_kb"),
        made(&native).get("rss_kb"),
    );
}

/// The figures of the line `soak ...`.
fn made(o: &Outcome) -> Counts {
    let line = o.stdout.lines().find_map(|l| l.strip_prefix("soak ")).expect("the last line");
    Counts::of_words(&line.split_whitespace().collect::<Vec<_>>())
}

#[derive(Default)]
struct Watched {
    dumps: u64,
    largest_kb: u64,
    posted: u64,
}

impl Watched {
    /// Dumps the segment, unless it is gone at the program's end; every dump balances, and nothing goes back.
    fn look(&mut self, dir: &Dir, live: &Live) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", live.pid())).unwrap_or_default();
        let rss = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        self.largest_kb = self.largest_kb.max(rss.unwrap_or(0));
        let file = dir.path().join("dump");
        let dump = Command::new(built("release/trtop"))
            .args(["dump", "--format", "json", "-o"])
            .arg(&file)
            .env("TELEREDUCE_DIR", dir.segment_dir())
            .output()
            .expect("trtop");
        if !dump.status.success() {
            assert!(dir.names().is_empty(), "trtop dump: {}", String::from_utf8_lossy(&dump.stderr));
            return;
        }
        let Some(s) = read_snapshot(&file).segments.into_iter().next() else { return };
        assert_nothing_missed(&s);
        let posted = s.ports.iter().map(|p| p.line.send.wr_posted).sum();
        assert!(posted >= self.posted, "sends posted: {} and later {posted}", self.posted);
        self.posted = posted;
        self.dumps += 1;
    }
}
