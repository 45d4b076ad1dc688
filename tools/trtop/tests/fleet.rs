//! `trtop fleet`, with something that answers as a Prometheus does, or not.

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use trtop::fleet::client::Client;
use trtop::fleet::model::{FLOWS, Fleet};
use trtop::fleet::screen::{Screen, View};
use trtop::ui::theme::Theme;

fn vector(samples: &[(&str, f64)]) -> String {
    let all: Vec<String> = samples
        .iter()
        .map(|(labels, v)| format!("{{\"metric\":{{{labels}}},\"value\":[1700000000.5,\"{v}\"]}}"))
        .collect();
    success(&format!("{{\"resultType\":\"vector\",\"result\":[{}]}}", all.join(",")))
}

fn success(data: &str) -> String {
    format!("{{\"status\":\"success\",\"data\":{data}}}")
}

/// Serves what `answer` says to a path with its query (status and body), on a thread, for ever.
fn serve(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            while !request.windows(4).any(|w| w == b"\r\n\r\n") {
                let n = socket.read(&mut buffer).unwrap_or(0);
                if n == 0 {
                    break;
                }
                request.extend(&buffer[..n]);
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let (status, body) = answer(request.split(' ').nth(1).unwrap_or(""));
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = socket.write_all((head + &body).as_bytes());
        }
    });
    url
}

/// A cluster: node1 and node2 send to each other, node3 is down.
fn cluster(path: &str) -> (u16, String) {
    let flow = |host: &str, rank: &str, peer_host: &str, peer_rank: &str| {
        format!(
            "\"host\":\"{host}\",\"pid\":\"7\",\"rank\":\"{rank}\",\"device\":\"mlx5_0\",\"port\":\"1\",\"peer\":\"10.1.0.9\",\
             \"peer_host\":\"{peer_host}\",\"peer_rank\":\"{peer_rank}\""
        )
    };
    let body = if path.contains("query=telereduce%3Aflow_send_bits") {
        vector(&[
            (&flow("node1", "0", "node2", "1"), 92.3e9),
            (&flow("node2", "1", "node1", "0"), 9.1e9),
            (&flow("node1", "2", "node2", "3"), 88e9),
            (&flow("node1", "", "\\u001b[2Jnode9", ""), 0.0),
        ])
    } else if path.contains("query=up") {
        vector(&[
            ("\"instance\":\"node1:9719\"", 1.0),
            ("\"instance\":\"node2:9719\"", 1.0),
            ("\"instance\":\"node3:9719\"", 0.0),
        ])
    } else if path.contains("telereduce_process_up") {
        vector(&[
            ("\"instance\":\"node1:9719\",\"host\":\"node1\"", 2.0),
            ("\"instance\":\"node2:9719\",\"host\":\"node2\"", 1.0),
            ("\"instance\":\"node3:9719\",\"host\":\"node3\"", 0.0),
        ])
    } else if path.contains("telereduce_outstanding_bytes") {
        vector(&[("\"instance\":\"node1:9719\",\"host\":\"node1\"", 65536.0)])
    } else if path == "/api/v1/alerts" {
        let alert = |name: &str, state: &str| {
            format!(
                "{{\"labels\":{{\"alertname\":\"{name}\",\"severity\":\"warning\"}},\"annotations\":{{\"summary\":\"slow, it is\"}},\
                 \"state\":\"{state}\",\"activeAt\":\"2026-11-30T10:20:30.123Z\",\"value\":\"1\"}}"
            )
        };
        let all =
            [alert("TelereduceStall", "pending"), alert("TelereduceSlowPath", "firing"), alert("Other", "firing")];
        success(&format!("{{\"alerts\":[{}]}}", all.join(",")))
    } else {
        return (404, "no".into());
    };
    (200, body)
}

fn trtop(url: &str, args: &[&str]) -> Output {
    let mut c = Command::new(env!("CARGO_BIN_EXE_trtop"));
    for proxy in ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"] {
        c.env_remove(proxy);
    }
    c.args(["fleet", "--prometheus", url]).args(args).output().expect("trtop starts")
}

fn written(url: &str, format: &str) -> String {
    let o = trtop(url, &["--format", format]);
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8(o.stdout).unwrap()
}

fn refused(url: &str) -> String {
    let o = trtop(url, &["--format", "table"]);
    assert_eq!((o.status.code(), o.stdout.as_slice()), (Some(1), &b""[..]));
    String::from_utf8(o.stderr).unwrap()
}

#[test]
fn the_table_has_hosts_matrix_and_alerts() {
    let text = written(&serve(cluster), "table");
    let expected = "\
HOSTS
  HOST   INSTANCE    STATE  PROCESSES      SENDS  OUTSTANDING
  node3  node3:9719  DOWN           -          -            -
  node1  node1:9719  up             2   180 Gb/s      65.5 kB
  node2  node2:9719  up             1  9.10 Gb/s          0 B
MATRIX
  bandwidth from row to column, bits per second
          rank 0  rank 1  rank 3  \u{fffd}[2Jnode9
  rank 0       .   92.3G       .          .
  rank 1   9.10G       .       .          .
  rank 2       .       .   88.0G          .
  node1        .       .       .          0
ALERTS
  STATE    SINCE                SEVERITY  ALERT               SUMMARY
  firing   2026-11-30T10:20:30  warning   TelereduceSlowPath  slow, it is
  pending  2026-11-30T10:20:30  warning   TelereduceStall     slow, it is
";
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn json_and_csv_have_every_flow() {
    let url = serve(cluster);
    let json: serde_json::Value = serde_json::from_str(&written(&url, "json")).unwrap();
    assert_eq!((&json["schema"], &json["prometheus"]), (&"telereduce-fleet/1".into(), &url.as_str().into()));
    assert_eq!(json["flows"][1]["bits_per_s"], 9.1e9);
    assert_eq!((&json["flows"][1]["rank"], &json["flows"][3]["rank"]), (&1.into(), &serde_json::Value::Null));
    assert_eq!((&json["hosts"][0]["host"], &json["hosts"][0]["up"]), (&"node3".into(), &false.into()));
    assert_eq!(json["matrix"]["from"][0], "rank 0");
    assert_eq!(json["alerts"][0]["labels"]["alertname"], "TelereduceSlowPath");
    let csv = written(&url, "csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "host,pid,rank,device,port,peer,peer_host,peer_rank,bits_per_s");
    assert_eq!(lines[1], "node1,7,0,mlx5_0,1,10.1.0.9,node2,1,92300000000");
    assert_eq!((lines[4], lines.len()), ("node1,7,,mlx5_0,1,10.1.0.9,\u{fffd}[2Jnode9,,0", 5));
}

#[test]
fn what_is_wrong_is_said_and_where() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = refused(&format!("http://{free}"));
    assert!(
        said.starts_with(&format!("trtop: cannot ask Prometheus at http://{free}: ")) && said.contains("refused"),
        "{said}"
    );

    let url = serve(|_| (200, "<html>hello</html>".into()));
    assert_eq!(
        refused(&url),
        format!("trtop: {url}/api/v1/query does not answer as a Prometheus does (HTTP 200): is it the URL of one?\n")
    );
    let url = serve(|_| (401, "no".into()));
    assert!(refused(&url).contains("wants another user or password (HTTP 401)"));
    let url = serve(|_| (422, r#"{"status":"error","errorType":"execution","error":"query timed out"}"#.into()));
    assert_eq!(refused(&url), format!("trtop: Prometheus at {url} says: query timed out\n"));

    // A Prometheus that knows nothing of ours, one without the rules, and one where nobody sends anything.
    let empty = |path: &str| {
        let body = if path.starts_with("/api/v1/rules") { success("{\"groups\":[]}") } else { vector(&[]) };
        (200, body)
    };
    assert!(refused(&serve(empty)).contains("scrapes no `trtop serve`"));
    let no_rules = move |path: &str| if path.contains("query=up") { cluster(path) } else { empty(path) };
    let said = refused(&serve(no_rules));
    assert!(said.contains(&format!("does not record {FLOWS}: load tools/fleet/rules.yml")), "{said}");
    let idle = move |path: &str| match path {
        p if p.starts_with("/api/v1/rules") => {
            (200, success(&format!("{{\"groups\":[{{\"rules\":[{{\"name\":\"{FLOWS}\"}}]}}]}}")))
        }
        p if p.contains("flow_send_bits") => (200, vector(&[])),
        p => cluster(p),
    };
    assert!(written(&serve(idle), "table").contains("MATRIX\n  nobody sends anything"));
}

/// Whatever it does: what it is given ends the question.
#[test]
fn one_who_never_ends_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let drips = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        while socket.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let client = Client::new(&url, None).unwrap();
    let said = Fleet::ask(&client, Instant::now() + Duration::from_millis(300)).unwrap_err();
    assert!(said.contains("no answer within"), "{said}");
    drop(client);
    // It sees that nobody listens any more.
    drips.join().unwrap();
}

fn known(answer: Result<Fleet, String>) -> Screen {
    let mut s = Screen::new(Theme::new(false));
    s.set(answer);
    s
}

fn drawn(s: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    s.draw(area, &mut buf, Some(Duration::from_secs(3)));
    let line = |y| (0..width).map(|x| buf[(x, y)].symbol()).collect::<String>().trim_end().to_string();
    (0..height).map(line).collect()
}

fn press(s: &mut Screen, code: KeyCode) {
    s.key(KeyEvent::new(code, KeyModifiers::NONE));
}

fn asked() -> Fleet {
    let client = Client::new(&serve(cluster), None).unwrap();
    Fleet::ask(&client, Instant::now() + Duration::from_secs(30)).unwrap()
}

#[test]
fn each_view_has_its_screen() {
    let mut s = known(Ok(asked()));
    for (width, height) in [(80, 24), (200, 60)] {
        press(&mut s, KeyCode::Char('1'));
        let text = drawn(&mut s, width, height);
        assert!(text[0].ends_with("3s ago  2 up  1 down  1 firing"), "{text:#?}");
        assert_eq!(text[1], "1 Matrix  2 Pairs  3 Hosts  4 Alerts");
        assert_eq!(text[2], "         rank 0   rank 1   rank 3 [2Jnode9", "{text:#?}");
        assert_eq!(text[3], "rank 0        .    92.3G        .        .");
        for (key, line) in [
            ('2', "rank 0  rank 1     92.3 Gb/s      105 %"),
            ('3', "node3  node3:9719  DOWN           -          -            -"),
            ('4', "firing   2026-11-30T10:20:30  warning   TelereduceSlowPath  slow, it is"),
        ] {
            press(&mut s, KeyCode::Char(key));
            let text = drawn(&mut s, width, height);
            assert!(text.iter().any(|l| l == line), "{text:#?}");
        }
    }
    press(&mut s, KeyCode::Tab);
    assert_eq!(s.view, View::Matrix);
    press(&mut s, KeyCode::Char('q'));
    assert!(s.quit);
}

#[test]
fn an_error_is_shown_above_what_was_known() {
    let mut s = known(Ok(asked()));
    s.set(Err("cannot ask Prometheus at http://10.1.0.1:9090: Connection refused".into()));
    let text = drawn(&mut s, 40, 24).join("\n");
    assert!(
        text.contains("cannot ask Prometheus at\nhttp://10.1.0.1:9090: Connection refused") && text.contains("92.3G"),
        "{text}"
    );
    let text = drawn(&mut known(Err("nothing".into())), 80, 24).join("\n");
    assert!(text.contains("nothing"), "{text}");
}

/// 600 ranks: every size is drawn, and every place can be reached.
#[test]
fn a_large_matrix_is_moved_through() {
    let mut fleet = asked();
    let one = fleet.flows[0].clone();
    fleet.flows = (0..600)
        .flat_map(|r| [1, 7].map(|by| (r, (r + by) % 600)))
        .map(|(r, p)| trtop::fleet::model::Flow { rank: Some(r), peer_rank: Some(p), peer_host: None, ..one.clone() })
        .collect();
    let mut s = known(Ok(fleet));
    for view in 1..=4u8 {
        press(&mut s, KeyCode::Char(char::from(b'0' + view)));
        for (width, height) in [(1, 1), (2, 3), (7, 5), (30, 4), (80, 24), (300, 100)] {
            drawn(&mut s, width, height);
        }
    }
    press(&mut s, KeyCode::Char('1'));
    press(&mut s, KeyCode::End);
    (0..1000).for_each(|_| press(&mut s, KeyCode::Right));
    let text = drawn(&mut s, 80, 24);
    assert!(text[2].ends_with("rank 599") && text[22].starts_with("rank 599"), "{text:#?}");
    press(&mut s, KeyCode::Up);
    assert!(drawn(&mut s, 80, 24)[22].starts_with("rank 598"));
    press(&mut s, KeyCode::Home);
    assert!(drawn(&mut s, 80, 24)[3].starts_with("rank 0"));
}

/// A tmux of the test's own.
struct Tmux(String);

impl Tmux {
    fn run(&self, args: &[&str]) -> String {
        let o = Command::new("tmux").args(["-L", &self.0, "-f", "/dev/null"]).args(args).output();
        String::from_utf8_lossy(&o.expect("tmux (Debian: tmux)").stdout).into_owned()
    }

    fn until(&self, wanted: &str) -> String {
        let start = Instant::now();
        loop {
            let screen = self.run(&["capture-pane", "-p"]);
            if screen.contains(wanted) {
                return screen;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no {wanted:?} in\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn in_a_terminal_it_is_live_and_obeys_keys() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    for (width, height) in [("80", "24"), ("200", "60")] {
        let broken = Arc::new(AtomicBool::new(false));
        let is_broken = broken.clone();
        let url = serve(move |p| if is_broken.load(Relaxed) { (500, "oh".into()) } else { cluster(p) });
        let tmux = Tmux(format!("trtop-fleet-{}-{width}", std::process::id()));
        let trtop = format!("env PROMETHEUS_URL={url} {} fleet --every 0.2", env!("CARGO_BIN_EXE_trtop"));
        tmux.run(&["new-session", "-d", "-x", width, "-y", height, &trtop]);
        let screen = tmux.until("92.3G");
        assert!(screen.contains("2 up  1 down  1 firing"), "{screen}");
        tmux.run(&["send-keys", "3"]);
        tmux.until("node3:9719  DOWN");
        broken.store(true, Relaxed);
        // What was known stays.
        assert!(tmux.until("does not answer").contains("node3:9719  DOWN"));
        broken.store(false, Relaxed);
        tmux.run(&["send-keys", "BTab"]);
        let start = Instant::now();
        while tmux.until("92.3 Gb/s").contains("does not answer") {
            assert!(start.elapsed() < Duration::from_secs(60), "the error stays");
        }
        tmux.run(&["send-keys", "q"]);
        while !tmux.run(&["list-sessions"]).is_empty() {
            assert!(start.elapsed() < Duration::from_secs(60), "q does not end it");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
