//! A real Prometheus scrapes two hosts, one of them over TLS with a password; `trtop fleet` shows both, and the alert of a
//! throttled path fires. Needs `prometheus` and `promtool`, which `make deps` unpacks into target/prometheus; without them it
//! says that it was skipped.

#[path = "support/server.rs"]
mod server;
mod support;

use serde_json::Value;
use server::{Served, web_config};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::{Made, carry, segment, who};

/// Some 10 s are needed on a machine that has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(180);
const FLEET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fleet");

/// `prometheus` or `promtool`.
fn program(name: &str) -> Option<PathBuf> {
    let unpacked = Path::new(FLEET).join("../../target/prometheus/usr/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(unpacked).chain(std::env::split_paths(&path)).map(|d| d.join(name)).find(|p| p.is_file())
}

struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A host whose only rank has port 10.0.0.RANK+1, and receives there.
struct Host {
    segments: tempfile::TempDir,
    sys: tempfile::TempDir,
    made: Made,
}

fn host(name: &str, rank: u64) -> Host {
    let (segments, sys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut identity = who(4000 + rank as u32, "train", Some(rank));
    identity.host = name.into();
    let made = segment(segments.path(), &identity, 2);
    let gids = sys.path().join(format!("class/infiniband/mlx5_0/ports/{}/gids", rank + 1));
    std::fs::create_dir_all(&gids).unwrap();
    std::fs::write(gids.join("0"), format!("0000:0000:0000:0000:0000:ffff:0a00:000{}\n", rank + 1)).unwrap();
    made.qps[rank as usize].recv_post.wr_posted.store(64, Relaxed);
    Host { segments, sys, made }
}

impl Host {
    fn serve(&self, more: &[&str]) -> Served {
        let sys = self.sys.path().to_str().unwrap();
        Served::new(self.segments.path(), &[&["--sysfs", sys], more].concat())
    }
}

fn trtop(url: &str, args: &[&str]) -> Output {
    let mut c = Command::new(env!("CARGO_BIN_EXE_trtop"));
    for proxy in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"] {
        c.env_remove(proxy);
    }
    c.args(["fleet", "--prometheus", url]).args(args).output().expect("trtop starts")
}

/// Asks until the fleet is as it is wanted.
fn until(url: &str, ca: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let o = trtop(url, &["--ca", ca, "--format", "json"]);
        let fleet: Value = serde_json::from_slice(&o.stdout).unwrap_or_default();
        if wanted(&fleet) {
            return fleet;
        }
        let said = String::from_utf8_lossy(&o.stderr);
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}\n{said}\n{fleet:#}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn checked(promtool: &Path, args: &[&str], input: &str) {
    use std::io::Write;
    let mut c = Command::new(promtool);
    c.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(FLEET);
    let mut child = c.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let o = child.wait_with_output().unwrap();
    let said = [o.stdout, o.stderr].concat();
    assert!(o.status.success(), "promtool {args:?}: {}", String::from_utf8_lossy(&said));
}

#[test]
fn two_hosts_are_shown_and_a_throttled_path_is_told_of() {
    let (Some(prometheus), Some(promtool)) = (program("prometheus"), program("promtool")) else {
        println!("skipped: there is no prometheus (make deps unpacks it into target/prometheus)");
        return;
    };
    let (a, b) = (host("node-a", 0), host("node-b", 1));
    let (lanes, dir) = (a.made.lanes(4), tempfile::tempdir().unwrap());
    let web = web_config(dir.path());
    let (web, ca) = (web.to_str().unwrap(), dir.path().join("web.crt"));
    let ca = ca.to_str().unwrap();
    let (served_a, served_b) = (a.serve(&[]), b.serve(&["--web-config", web]));

    checked(&promtool, &["check", "web-config", web], "");
    for per in [trtop::cli::Per::Port, trtop::cli::Per::Peer, trtop::cli::Per::Qp] {
        a.made.failure(0, 12, 0);
        let text = trtop::serve::metrics::Exposition::Text;
        let text = trtop::serve::scrape(a.segments.path(), a.sys.path(), per, text, |_, _| {}).unwrap();
        checked(&promtool, &["check", "metrics"], &text);
    }

    // The same rules, sooner: over 10 s, and for 5 s.
    let rules = std::fs::read_to_string(Path::new(FLEET).join("rules.yml")).unwrap();
    let sooner = rules.replace("[30s]", "[10s]").replace("for: 30s", "for: 5s");
    assert!(rules.contains("for: 30s") && rules.contains("[30s]"), "rules.yml says otherwise by now");
    std::fs::write(dir.path().join("rules.yml"), sooner).unwrap();
    let config = dir.path().join("prometheus.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: [ rules.yml ]
scrape_configs:
  - job_name: telereduce
    static_configs: [ targets: [ \"{}\", \"127.0.0.1:1\" ] ]
  - job_name: telereduce-tls
    scheme: https
    tls_config: {{ ca_file: {ca} }}
    basic_auth: {{ username: scraper, password: right }}
    static_configs: [ targets: [ \"{}\" ] ]
",
        served_a.address, served_b.address
    );
    std::fs::write(&config, text).unwrap();
    checked(&promtool, &["check", "config", config.to_str().unwrap()], "");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let _running = Stopped(
        Command::new(prometheus)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={free}"))
            .arg(format!("--web.config.file={web}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus starts"),
    );
    let url = format!("https://scraper:right@{free}");

    // 800 and 400 Mb/s, and four paths of which one is throttled later.
    let (stop, last_path) = (AtomicBool::new(false), AtomicU64::new(1_000_000));
    std::thread::scope(|s| {
        s.spawn(|| {
            let start = Instant::now();
            let mut rounds = 0;
            while !stop.load(Relaxed) {
                while rounds < start.elapsed().as_millis() / 100 {
                    a.made.traffic(1, 100, 100_000, 100, 3000);
                    b.made.traffic(0, 100, 50_000, 100, 3000);
                    lanes[..3].iter().for_each(|l| carry(l, 1_000_000));
                    carry(&lanes[3], last_path.load(Relaxed));
                    rounds += 1;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        // However this ends, the thread does.
        let watched = std::panic::catch_unwind(|| watch(&url, ca, &last_path));
        stop.store(true, Relaxed);
        if let Err(e) = watched {
            println!("{}", std::fs::read_to_string(dir.path().join("log")).unwrap_or_default());
            std::panic::resume_unwind(e);
        }
    });
}

fn watch(url: &str, ca: &str, last_path: &AtomicU64) {
    let near = |v: &Value, bits: f64| v.as_f64().is_some_and(|v| (v / bits - 1.0).abs() < 0.25);
    let fleet = until(url, ca, "the flows of both hosts", |f| {
        let m = &f["matrix"];
        m["from"] == serde_json::json!(["rank 0", "rank 1"])
            && m["to"] == m["from"]
            && near(&m["bits_per_s"][0][1], 800e6)
            && near(&m["bits_per_s"][1][0], 400e6)
    });
    let hosts: Vec<(&str, bool)> = fleet["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|h| (h["host"].as_str().unwrap_or(""), h["up"].as_bool().unwrap()))
        .collect();
    assert_eq!(hosts, [("", false), ("node-a", true), ("node-b", true)]);
    let slow = |f: &Value| {
        let alerts = f["alerts"].as_array().cloned().unwrap_or_default();
        alerts.into_iter().find(|a| a["name"] == "TelereduceSlowPath")
    };
    assert_eq!(slow(&fleet), None, "all paths are alike");
    last_path.store(100_000, Relaxed);
    let fleet = until(url, ca, "the alert of the slow path", |f| slow(f).is_some_and(|a| a["state"] == "firing"));
    let alert = slow(&fleet).unwrap();
    assert_eq!((&alert["labels"]["local"], &alert["labels"]["host"]), (&"10.1.0.4".into(), &"node-a".into()));
    let o = trtop(url, &["--ca", ca, "--format", "table"]);
    let text = String::from_utf8(o.stdout).unwrap();
    println!("{text}");
    assert!(text.contains("firing") && text.contains("DOWN") && text.contains("rank 1"), "{text}");
    // Who does not know the password is told so.
    let o = trtop(&url.replace("right", "wrong"), &["--ca", ca, "--format", "table"]);
    let said = String::from_utf8(o.stderr).unwrap();
    assert!(said.contains("wants another user or password (HTTP 401)") && !said.contains("wrong"), "{said}");
}
