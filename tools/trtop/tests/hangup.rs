//! The terminal goes away: trtop ends, even where SIGHUP is ignored, instead of reading from nothing for ever.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn it_ends_when_its_terminal_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let typescript = dir.path().join("screen");
    let shell = format!("trap '' HUP; echo $$ >{}; exec {}", pid_file.display(), env!("CARGO_BIN_EXE_trtop"));
    let mut terminal = Command::new("script")
        .args(["--quiet", "--flush", "--command", &shell])
        .arg(&typescript)
        .env("TELEREDUCE_DIR", dir.path())
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("`script` of util-linux makes the terminal (Debian: bsdutils)");
    // The first thing that the view writes switches to the alternate screen.
    until("the view came up", || std::fs::read(&typescript).is_ok_and(|s| s.windows(8).any(|w| w == b"\x1b[?1049h")));
    let pid = std::fs::read_to_string(&pid_file).unwrap().trim().to_string();
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    let running = || {
        let state = std::fs::read_to_string(Path::new("/proc").join(&pid).join("stat")).unwrap_or_default();
        state.contains("(trtop)") && !state.contains(") Z ")
    };
    until("trtop ended", || !running());
}
