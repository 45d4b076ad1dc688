//! The live view in a real terminal (tmux): every view by its key at two sizes, the mouse, colours, settings, a resize.

mod support;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::{Made, segment, who};

/// A tmux server of its own with trtop in its only window.
struct Terminal {
    socket: String,
    home: tempfile::TempDir,
    _made: Vec<Made>,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Terminal {
    fn new(width: u32, height: u32, environment: &[(&str, &str)]) -> Terminal {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("shm")).unwrap();
        Terminal::at(home, width, height, environment)
    }

    fn at(home: tempfile::TempDir, width: u32, height: u32, environment: &[(&str, &str)]) -> Terminal {
        let shm = home.path().join("shm");
        let made = vec![segment(&shm, &who(4000, "job", Some(1)), 30), segment(&shm, &who(4001, "job", Some(0)), 2)];
        made[0].traffic(0, 100, 65536, 90, 3000);
        made[0].failure(1, 12, 4096);
        let socket = format!("trtop-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let t = Terminal { socket, home, _made: made };
        t.start(width, height, environment, "");
        t.until("the view", |s| s[0].contains("2 live"));
        t
    }

    fn start(&self, width: u32, height: u32, environment: &[(&str, &str)], args: &str) {
        let mut shell = format!(
            "exec env -u NO_COLOR TELEREDUCE_DIR={0}/shm XDG_CONFIG_HOME={0}/config",
            self.home.path().display()
        );
        for (name, value) in environment {
            shell += &format!(" {name}={value}");
        }
        shell += &format!(" {} {args}", env!("CARGO_BIN_EXE_trtop"));
        let (w, h) = (width.to_string(), height.to_string());
        self.tmux(&["-f", "/dev/null", "new-session", "-d", "-s", "view", "-x", &w, "-y", &h, &shell]);
    }

    fn tmux(&self, args: &[&str]) -> Output {
        let o = Command::new("tmux").args(["-L", &self.socket]).args(args).output();
        o.expect("tmux makes the terminal (Debian: tmux)")
    }

    fn keys(&self, keys: &[&str]) {
        assert!(self.tmux(&[&["send-keys", "-t", "view"], keys].concat()).status.success());
    }

    /// Bytes as a terminal sends them.
    fn raw(&self, bytes: &str) {
        self.keys(&["-l", bytes]);
    }

    fn screen(&self) -> Vec<String> {
        let o = self.tmux(&["capture-pane", "-p", "-t", "view"]);
        String::from_utf8_lossy(&o.stdout).lines().map(str::to_string).collect()
    }

    /// With the escape sequences of its styles.
    fn styled(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-e", "-p", "-t", "view"]).stdout).into_owned()
    }

    fn until(&self, what: &str, done: impl Fn(&[String]) -> bool) -> Vec<String> {
        let start = Instant::now();
        loop {
            let s = self.screen();
            if !s.is_empty() && done(&s) {
                return s;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{what} did not come up:\n{}", s.join("\n"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn quit(&self) {
        self.keys(&["q"]);
        let start = Instant::now();
        while self.tmux(&["has-session", "-t", "view"]).status.success() {
            assert!(start.elapsed() < Duration::from_secs(60), "q did not end it");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn settings(&self) -> std::path::PathBuf {
        self.home.path().join("config/telereduce/trtop.toml")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

fn has(s: &[String], text: &str) -> bool {
    s.iter().any(|l| l.contains(text))
}

#[test]
fn every_view_comes_with_its_key_at_both_sizes() {
    for (w, h) in [(80, 24), (200, 60)] {
        let t = Terminal::new(w, h, &[]);
        for (key, text) in [
            ("1", "WR/s"),
            ("2", "RTS"),
            ("3", "10.0.0.2"),
            ("5", "P99.9"),
            ("6", "RETRY_EXC_ERR"),
            ("7", "no completed signaled send"),
            ("8", "everything on them is counted"),
            ("F1", "this help"),
            ("Escape", "everything on them is counted"),
            ("3", "10.0.0.2"),
            ("m", "sends to peers 1 to"),
            ("m", "OUT-B"),
            ("Enter", "opcodes"),
            ("Enter", "outstanding WR"),
        ] {
            t.keys(&[key]);
            let s = t.until(&format!("{text} after {key} at {w}x{h}"), |s| has(s, text));
            assert!(s.len() <= h as usize && s.iter().all(|l| l.chars().count() <= w as usize));
        }
        t.quit();
    }
}

#[test]
fn the_mouse_clicks_and_leaves_the_terminal_alone_when_it_is_told_to() {
    let t = Terminal::new(80, 24, &[]);
    // Cells count from 1: the tab of QPs, then the third row, then the same again.
    t.raw("\u{1b}[<0;13;2M");
    t.until("QPs", |s| has(s, "RTS"));
    t.raw("\u{1b}[<0;6;7M");
    t.raw("\u{1b}[<0;6;7M");
    t.until("details of the third row", |s| has(s, "posted") || has(s, " QP 100"));
    t.raw("\u{1b}[<65;6;7M");
    let flag = |name: &str| {
        let o = t.tmux(&["display-message", "-p", "-t", "view", &format!("#{{{name}}}")]);
        String::from_utf8_lossy(&o.stdout).trim().to_string()
    };
    assert_eq!(flag("mouse_any_flag"), "1");
    t.keys(&["M"]);
    t.until("no mouse", |_| flag("mouse_any_flag") == "0");
    t.quit();
}

#[test]
fn colours_are_the_terminals_sixteen_or_none() {
    let coloured = |s: &str| -> Vec<String> {
        let sequences =
            s.split('\u{1b}').skip(1).filter_map(|p| Some(p.strip_prefix('[')?.split_once('m')?.0.to_string()));
        let color = |c: &str| {
            let n = c.parse::<u32>().unwrap_or(0);
            (30..=38).contains(&n) || (40..=48).contains(&n) || (90..=107).contains(&n)
        };
        sequences.filter(|p| p.split(';').any(color)).collect()
    };
    let t = Terminal::new(80, 24, &[("TERM", "xterm-16color")]);
    let used = coloured(&t.styled());
    assert!(!used.is_empty(), "{}", t.styled());
    // Of the palette only the first sixteen: those that the user chose for the terminal.
    let beyond = |p: &String| match p.split_once("8;5;") {
        Some((_, n)) => n.split(';').next().and_then(|n| n.parse::<u32>().ok()).is_none_or(|n| n > 15),
        None => p.contains("38;") || p.contains("48;"),
    };
    assert!(!used.iter().any(beyond), "{used:?}");
    let t = Terminal::new(80, 24, &[("NO_COLOR", "1")]);
    assert_eq!(coloured(&t.styled()), [""; 0]);
    assert!(t.styled().contains('\u{1b}'), "bold and reverse tell things apart");
}

#[test]
fn what_was_set_is_there_the_next_time() {
    let t = Terminal::new(80, 24, &[]);
    t.keys(&["2"]);
    t.keys(&["x"]);
    t.keys(&["-"]);
    t.until("two seconds", |s| s[0].contains("every 2 s"));
    t.quit();
    let text = std::fs::read_to_string(t.settings()).unwrap();
    assert!(text.contains("view = \"qps\"") && text.contains("SEND"), "{text}");
    t.start(80, 24, &[], "");
    let s = t.until("QPs", |s| has(s, "RTS"));
    assert!(s[0].contains("every 2 s") && !s[3].contains("SEND"), "{}", s.join("\n"));
    t.quit();
}

#[test]
fn a_bad_file_of_settings_is_named_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("shm")).unwrap();
    std::fs::create_dir_all(home.path().join("config/telereduce")).unwrap();
    let file = home.path().join("config/telereduce/trtop.toml");
    std::fs::write(&file, "view = [").unwrap();
    let t = Terminal::at(home, 120, 24, &[]);
    t.until("what is wrong", |s| has(s, "settings ignored: ") && has(s, "line 1"));
    t.keys(&["2"]);
    t.until("QPs", |s| has(s, "RTS"));
    t.quit();
    assert_eq!(std::fs::read_to_string(Path::new(&file)).unwrap(), "view = [");
}

#[test]
fn a_resize_while_it_draws_leaves_a_whole_screen() {
    let t = Terminal::new(200, 60, &[]);
    t.keys(&["+", "+", "+", "2"]);
    for (w, h) in [("20", "5"), ("1", "1"), ("200", "60"), ("33", "9"), ("80", "24")] {
        assert!(t.tmux(&["resize-window", "-t", "view", "-x", w, "-y", h]).status.success());
    }
    let s = t.until("the whole screen", |s| s.len() >= 24 && s[23].starts_with("F1 help"));
    assert!(s[0].contains("2 live") && s[3].contains("PID") && s[22].contains("RTS"), "{}", s.join("\n"));
    t.quit();
}

#[test]
fn a_replay_goes_through_time_by_its_keys() {
    let t = Terminal::new(80, 24, &[]);
    t.quit();
    let file = t.home.path().join("recording");
    let recorded = Command::new(env!("CARGO_BIN_EXE_trtop"))
        .env("TELEREDUCE_DIR", t.home.path().join("shm"))
        .args(["record", "--every", "0.1", "--for", "1.5", "-o"])
        .arg(&file)
        .status();
    assert!(recorded.unwrap().success());
    t.start(80, 24, &[], &format!("replay {} --pause", file.display()));
    t.until("its first frame", |s| s[0].contains("2 live") && s[0].contains("REPLAY 0:00.0 of") && has(s, "WR/s"));
    t.keys(&["Right"]);
    t.until("a second on", |s| s[0].contains("REPLAY 0:01.0 of") && s[0].contains("PAUSED"));
    t.keys(&["6"]);
    t.until("errors of then", |s| has(s, "RETRY_EXC_ERR"));
    t.keys(&["8"]);
    t.until("why there is none", |s| has(s, "a recording holds counters"));
    t.keys(&["Home", ">", "Space"]);
    t.until("its end", |s| s[0].contains("x2 END") && !s[0].contains("PAUSED"));
    t.quit();
}
