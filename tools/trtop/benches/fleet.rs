//! What a fleet costs its Prometheus: HOSTS hosts of eight ranks each, a port per rank, eight peers per port, as `trtop serve`
//! writes them, scraped by a real Prometheus with the rules of tools/fleet. Prints series and memory per host, and
//! how long the rules take.
//!
//! `cargo bench -p trtop --bench fleet -- [HOSTS [SECONDS [INTERVAL]]] [bare]`; 200 hosts for 120 s, scraped every 15 s, if nothing is
//! said; bare: no rules.

#[path = "../tests/support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use support::{segment, who};
use trtop::cli::Per;
use trtop::serve::metrics::Exposition;

const RANKS: usize = 8;
const PEERS: usize = 8;

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let number = |i: usize, default| *numbers.get(i).unwrap_or(&default);
    let (hosts, seconds, interval_s) = (number(0, 200) as usize, number(1, 120), number(2, 15));
    let dir = tempfile::tempdir().expect("a directory");
    let template = Arc::new(template(dir.path()));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    let start = Instant::now();
    let serving = template.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let template = serving.clone();
            std::thread::spawn(move || answer(socket, &template, hosts, start.elapsed()));
        }
    });
    let text = render(&template, 0, hosts, Duration::ZERO);
    let series = text.lines().filter(|l| !l.starts_with('#')).count();
    println!("a host: {RANKS} ranks with {PEERS} peers each: {series} series, {} bytes a scrape", text.len());

    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number");
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fleet/rules.yml");
    let rules = if std::env::args().any(|a| a == "bare") { String::new() } else { rules.display().to_string() };
    let mut config = format!(
        "global: {{ scrape_interval: {interval_s}s, evaluation_interval: {interval_s}s }}\nrule_files: [ {rules} ]\n\
         scrape_configs:\n  - job_name: telereduce\n    static_configs:\n"
    );
    for n in 0..hosts {
        let _ = writeln!(
            config,
            "      - {{ targets: [ \"{address}\" ], labels: {{ instance: node{n}, __metrics_path__: /{n} }} }}"
        );
    }
    std::fs::write(dir.path().join("prometheus.yml"), config).expect("a file");
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/prometheus/usr/bin/prometheus");
    let program = if unpacked.exists() { unpacked } else { "prometheus".into() };
    let mut prometheus = Command::new(program)
        .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
        .arg(format!("--web.listen-address={free}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus (make deps)");
    std::thread::sleep(Duration::from_secs(seconds));
    let own = own_metrics(&format!("http://{free}/metrics"));
    let _ = prometheus.kill();
    let _ = prometheus.wait();
    println!("{hosts} hosts for {seconds} s, every {interval_s} s:");
    report(&own, hosts as f64, seconds as f64);
}

fn report(own: &str, hosts: f64, seconds: f64) {
    let of = |name: &str| {
        let line = own.lines().find(|l| l.starts_with(name) && l[name.len()..].starts_with([' ', '{']));
        line.and_then(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or(f64::NAN)
    };
    let (series, memory) = (of("prometheus_tsdb_head_series"), of("process_resident_memory_bytes"));
    println!(
        "{series} series with the recorded ones, {:.0} a host; memory {:.0} MB, \
         {:.2} MB a host, {:.1} kB a series; processor {:.0} % of a core; rules in {:.2} s",
        series / hosts,
        memory / 1e6,
        memory / 1e6 / hosts,
        memory / 1e3 / series,
        of("process_cpu_seconds_total") / seconds * 100.0,
        of("prometheus_rule_group_last_duration_seconds"),
    );
    println!("2,000 hosts, in proportion: {:.2} M series, {:.1} GB", series / hosts * 2e-3, memory / hosts * 2e-6);
}

fn own_metrics(url: &str) -> String {
    let config = ureq::Agent::config_builder().proxy(None).timeout_global(Some(Duration::from_secs(60)));
    let mut answer = config.build().new_agent().get(url).call().expect("prometheus answers");
    answer.body_mut().read_to_string().expect("its own metrics")
}

/// A piece of what a host says.
enum Piece {
    Text(String),
    /// Its name.
    Host,
    /// Of port `.1` of the host that is `.0` further on.
    Address(usize, usize),
    /// A counter, which grows.
    Counter(f64),
}

/// What `trtop serve` says of one host.
fn template(dir: &Path) -> Vec<Piece> {
    let (segments, sys) = (dir.join("segments"), dir.join("sys"));
    std::fs::create_dir(&segments).expect("a directory");
    let _made: Vec<_> = (0..RANKS).map(|rank| process(&segments, &sys, rank)).collect();
    let text = trtop::serve::scrape(&segments, &sys, Per::Peer, Exposition::OpenMetrics, |_, _| {}).expect("a scrape");
    let mut pieces = Vec::new();
    for line in text.lines() {
        let (labels, value) = line.rsplit_once(' ').unwrap_or((line, ""));
        let name = labels.split('{').next().unwrap_or("");
        let grows = ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end));
        pieces_of(labels, &mut pieces);
        match value.parse() {
            Ok(v) if grows && !line.starts_with('#') => pieces.extend([Piece::Text(" ".into()), Piece::Counter(v)]),
            _ if value.is_empty() => {}
            _ => pieces.push(Piece::Text(format!(" {value}"))),
        }
        pieces.push(Piece::Text("\n".into()));
    }
    pieces
}

fn pieces_of(labels: &str, to: &mut Vec<Piece>) {
    let mut rest = labels;
    while let Some(at) = ["node7", "10.253."].iter().filter_map(|t| rest.find(t)).min() {
        to.push(Piece::Text(rest[..at].into()));
        rest = &rest[at..];
        match rest.strip_prefix("10.253.") {
            None => (to.push(Piece::Host), rest = &rest["node7".len()..]),
            Some(numbers) => {
                let end = numbers.find('"').expect("a label ends");
                let (further, port) = numbers[..end].split_once('.').expect("two numbers");
                (
                    to.push(Piece::Address(further.parse().expect("one"), port.parse().expect("one"))),
                    rest = &numbers[end..],
                )
            }
        };
    }
    to.push(Piece::Text(rest.into()));
}

/// A rank with a port of its own, sends and receives with each peer.
fn process(segments: &Path, sys: &Path, rank: usize) -> support::Made {
    let made = segment(segments, &who(4000 + rank as u32, "python train.py", Some(rank as u64)), 2 * PEERS);
    let gids = sys.join(format!("class/infiniband/mlx5_{rank}/ports/1/gids"));
    std::fs::create_dir_all(&gids).expect("a directory");
    std::fs::write(gids.join("0"), format!("::ffff:10.253.0.{rank}\n")).expect("a file");
    made.ports[0].device.set(&format!("mlx5_{rank}"));
    made.ports[1].used.store(0, Relaxed);
    for (i, p) in made.peers[..PEERS].iter().enumerate() {
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 253, i as u8 + 1, rank as u8];
        for (word, half) in p.gid.iter().zip([&gid[..8], &gid[8..]]) {
            word.store(u64::from_ne_bytes(half.try_into().expect("8 bytes")), Relaxed);
        }
        p.is_global.store(1, Relaxed);
        p.port.store(0, Relaxed);
        p.used.store(1, Relaxed);
    }
    for (i, q) in made.qps.iter().enumerate() {
        q.port.store(0, Relaxed);
        q.peer.store((i % PEERS) as u32, Relaxed);
        q.recv_post.wr_posted.store(64, Relaxed);
        made.traffic(i, 100, 65536, 97, 3000 << (i % 6));
    }
    made
}

fn render(template: &[Piece], n: usize, hosts: usize, since: Duration) -> String {
    let mut out = String::with_capacity(1 << 19);
    let seconds = since.as_secs_f64();
    for p in template {
        let _ = match p {
            Piece::Text(t) => write!(out, "{t}"),
            Piece::Host => write!(out, "node{n}"),
            Piece::Address(further, port) => {
                let host = (n + further) % hosts;
                write!(out, "10.{}.{}.{}", port + 1, host / 256, host % 256)
            }
            Piece::Counter(v) => write!(out, "{}", (v * (1.0 + seconds * (1.0 + n as f64 / 1000.0))).round()),
        };
    }
    out
}

fn answer(mut socket: TcpStream, template: &[Piece], hosts: usize, since: Duration) {
    let mut request = [0; 4096];
    let n = socket.read(&mut request).unwrap_or(0);
    let text = String::from_utf8_lossy(&request[..n]);
    let host = text.split(['/', ' ']).nth(2).and_then(|h| h.parse().ok()).unwrap_or(0);
    let body = render(template, host, hosts, since);
    let kind = Exposition::OpenMetrics.content_type();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = socket.write_all((head + &body).as_bytes());
}
