//! What the tests share: children that play a scenario's parts, and the verbs in a form that tests can read.

#![allow(dead_code, reason = "each test uses its part")]

pub mod verbs;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "SOFTNIC_TEST_ROLE";
const MAIL: &str = "SOFTNIC_TEST_MAIL";

/// How the parts of a scenario talk: files in a folder, each written once.
pub struct Mail(PathBuf);

impl Mail {
    /// Leaves something for the other part.
    pub fn put(&self, name: &str, text: &str) {
        let draft = self.0.join(format!("{name}.draft"));
        std::fs::write(&draft, text).expect("a file");
        std::fs::rename(draft, self.0.join(name)).expect("the same folder");
    }

    /// Waits for what the other part leaves.
    pub fn get(&self, name: &str) -> String {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Ok(text) = std::fs::read_to_string(self.0.join(name)) {
                return text;
            }
            assert!(Instant::now() < until, "{name} never came");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Plays a scenario: each part in a process of its own, with these settings, on a network of their own. `name` is the
/// test's own name: the children run the same test, and find their part. Returns what a part left as `result`; in a part,
/// nothing.
pub fn play(name: &str, config: &str, parts: &[&dyn Fn(&Mail)]) -> Option<String> {
    if let Ok(role) = std::env::var(ROLE) {
        let mail = Mail(std::env::var_os(MAIL).expect("a folder").into());
        parts[role.parse::<usize>().expect("a part")](&mail);
        return None;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let settings = dir.path().join("softnic.toml");
    std::fs::write(&settings, config).expect("a file");
    let children: Vec<_> = (0..parts.len())
        .map(|i| {
            Command::new(std::env::current_exe().expect("this test"))
                .args([name, "--exact", "--nocapture", "--test-threads=1"])
                .env(ROLE, i.to_string())
                .env(MAIL, dir.path())
                .env("SOFTNIC_CONFIG", &settings)
                .env("SOFTNIC_NETWORK", format!("test-{}-{name}", std::process::id()))
                .env_remove("SOFTNIC_SEED")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("a child")
        })
        .collect();
    let mut wrong = String::new();
    for (i, child) in children.into_iter().enumerate() {
        let out = child.wait_with_output().expect("a child");
        let text = String::from_utf8_lossy(&out.stderr);
        // A part may mean to die.
        let meant = text.contains("meant to die");
        if !out.status.success() && !meant {
            wrong += &format!("part {i}: {}\n{text}{}", out.status, String::from_utf8_lossy(&out.stdout));
        } else if !meant && !String::from_utf8_lossy(&out.stdout).contains("1 passed") {
            wrong += &format!("part {i} is not a test of the name {name}");
        }
    }
    let user = std::fs::metadata(dir.path()).map(|m| std::os::unix::fs::MetadataExt::uid(&m)).expect("a folder");
    let network = format!("/dev/shm/softnic-{user}-test-{}-{name}", std::process::id());
    let left: Vec<_> = std::fs::read_dir(&network).into_iter().flatten().flatten().map(|e| e.file_name()).collect();
    let is_left = std::fs::remove_dir_all(network).is_ok();
    assert!(wrong.is_empty(), "{wrong}");
    assert!(!is_left, "the last process left the network behind: {left:?}");
    std::fs::read_to_string(dir.path().join("result")).ok()
}
