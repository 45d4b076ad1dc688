//! What the viewer costs: 10,000 QPs in one segment whose counters change, sampled and drawn at 10 Hz for five seconds,
//! each list in turn; then scrapes for Prometheus. Prints the share of one core, and what a refresh with its redraw takes:
//! processor time, and by the clock, which includes what other programs of the machine took. Fails over the limits of 5 %
//! of a core, 20 ms of processor time (50 for the doctor), and 100 ms of processor time for the median scrape.
//!
//! `cargo bench -p trtop -- feed DIR SECONDS` only writes such a segment, with fewer QPs, to look at with trtop.

#[path = "../tests/support/mod.rs"]
mod support;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use std::io::BufWriter;
use std::path::Path;
use std::time::{Duration, Instant};
use support::Made;
use trtop::app::App;
use trtop::cli::Per;
use trtop::frame::Frame;
use trtop::rows::View;
use trtop::sampler::Sampler;
use trtop::serve::metrics::Exposition;
use trtop::serve::scrape;
use trtop::ui::{self, theme::Theme};

const QPS: usize = 10_000;
const SECONDS: u64 = 5;
const INTERVAL: Duration = Duration::from_millis(100);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|a| a == "feed") {
        return feed(Path::new(&args[at + 1]), args[at + 2].parse().expect("seconds"));
    }
    let dir = tempfile::Builder::new().prefix("trtop-bench.").tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let made = support::segment(dir.path(), &support::who(std::process::id(), "bench", Some(0)), QPS);
    let mut ok = true;
    for view in View::ALL {
        ok &= measure(dir.path(), &made, view);
    }
    for per in [Per::Peer, Per::Qp] {
        ok &= measure_scrape(dir.path(), per);
    }
    // exit() runs no destructors.
    drop(dir);
    if !ok {
        std::process::exit(1);
    }
}

/// Processor time of this thread, which samples and draws but does not write the counters.
fn cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn measure(dir: &Path, made: &Made, view: View) -> bool {
    let mut sampler = Sampler::new(dir, &[]);
    let mut app = App::new(INTERVAL, Theme::new(true));
    app.view = view;
    sampler.view = view;
    // The real backend, buffered as the live view is, into nowhere: escape sequences are made, too.
    let nowhere = std::fs::File::create("/dev/null").expect("/dev/null");
    let viewport = ratatui::Viewport::Fixed(ratatui::layout::Rect::new(0, 0, 200, 60));
    let mut terminal = Terminal::with_options(
        CrosstermBackend::new(BufWriter::with_capacity(1 << 16, nowhere)),
        ratatui::TerminalOptions { viewport },
    )
    .expect("terminal");
    let mut frame = Frame::default();
    let mut redraws = Vec::new();
    let (start, mut used) = (Instant::now(), Duration::ZERO);
    let mut next = start;
    for round in 0..SECONDS * 10 {
        for i in 0..QPS {
            made.traffic(i, 1 + (i as u64 * 7 + round) % 13, 65536, 1 + (i as u64 + round) % 5, 3000);
        }
        next += INTERVAL;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let (before, at) = (cpu(), Instant::now());
        frame = sampler.sample(frame, app.wanted());
        // As the thread that samples hands it over.
        let shown = frame.clone();
        terminal.draw(|f| ui::draw(f.area(), f.buffer_mut(), &mut app, &shown)).expect("draw");
        let own = cpu() - before;
        redraws.push((own, at.elapsed()));
        used += own;
    }
    let share = used.as_secs_f64() / start.elapsed().as_secs_f64() * 100.0;
    let (own, clock): (Vec<Duration>, Vec<Duration>) = redraws.into_iter().unzip();
    let (own_median, own_most) = median_and_most(own);
    let (clock_median, clock_most) = median_and_most(clock);
    println!(
        "{view:?}: {QPS} QPs at 10 Hz, 200x60: {share:.2} % of one core; refresh and redraw: median {own_median:.2} ms, \
         most {own_most:.2} ms of processor time; {clock_median:.2} ms, {clock_most:.2} ms by the clock"
    );
    // What the doctor looks at, it reads whole, every two seconds.
    share < 5.0 && own_most < if view == View::Doctor { 50.0 } else { 20.0 }
}

/// `trtop serve`: one scrape of all QPs.
fn measure_scrape(dir: &Path, per: Per) -> bool {
    let mut bytes = 0;
    let scrapes = (0..20).map(|_| {
        let (before, at) = (cpu(), Instant::now());
        bytes = scrape(dir, Path::new("/sys"), per, Exposition::OpenMetrics, |_, _| {}).expect("a scrape").len();
        (cpu() - before, at.elapsed())
    });
    let (own, clock): (Vec<Duration>, Vec<Duration>) = scrapes.unzip();
    let (own_median, own_most) = median_and_most(own);
    let (clock_median, clock_most) = median_and_most(clock);
    println!(
        "scrape of {QPS} QPs, a series per {per:?}: {bytes} bytes; median {own_median:.1} ms, most {own_most:.1} ms of processor \
         time; {clock_median:.1} ms, {clock_most:.1} ms by the clock"
    );
    own_median < 100.0
}

/// In ms.
fn median_and_most(mut d: Vec<Duration>) -> (f64, f64) {
    d.sort_unstable();
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    (ms(d[d.len() / 2]), ms(d[d.len() - 1]))
}

/// Three processes with traffic, one dead and one damaged file, until the time is over.
fn feed(dir: &Path, seconds: u64) {
    let made: Vec<Made> = (0..3u32)
        .map(|i| {
            let who = support::who(4000 + i, &format!("ib_write_bw -d mlx5_0 -s 65536 node{i}"), Some(u64::from(i)));
            support::segment(dir, &who, 4 + 40 * i as usize)
        })
        .collect();
    let mut dead = support::segment(dir, &support::who(4100, "python train.py", None), 2);
    dead.traffic(0, 100, 1 << 20, 60, 5000);
    dead.failure(0, 12, 1 << 20);
    dead.die();
    let uid = rustix::process::geteuid().as_raw();
    std::fs::write(dir.join(format!("telereduce.{uid}.4200")), vec![7; 5000]).expect("a file");
    let start = Instant::now();
    let mut round = 0u64;
    while start.elapsed() < Duration::from_secs(seconds) {
        for (p, m) in made.iter().enumerate() {
            for i in 0..m.qps.len() {
                let depth = 8 + ((round as f64 / 100.0).sin() * 7.0) as u64;
                m.traffic(
                    i,
                    depth,
                    65536,
                    depth - u64::from(round.is_multiple_of(997)),
                    2000 + 100 * p as u64 + round % 700,
                );
            }
        }
        round += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    for m in &made {
        m.unlink();
    }
}
