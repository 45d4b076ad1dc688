//! Preloaded into what uses no verbs, the library does nothing that anybody could notice.

use std::path::Path;
use telereduce_tests::{Dir, Run};

/// Under the library the program ends well, with nothing on stderr, and leaves nothing. Returns its stdout.
fn unnoticed(program: &str, args: &[&str]) -> String {
    let dir = Dir::new();
    let counted = Run::new(program, args).counted(&dir).run().silent();
    assert_eq!((dir.names(), dir.snapshots().len()), (vec![], 0), "{program} made files");
    counted.stdout
}

#[test]
fn nothing_in_true_and_shells() {
    unnoticed("/bin/true", &[]);
    for shell in ["/bin/sh", "/bin/bash"] {
        if Path::new(shell).exists() {
            assert_eq!(unnoticed(shell, &["-c", "true; (exit 0); echo $((6 * 7)) | cat"]), "42\n");
        }
    }
}

#[test]
fn no_libibverbs_is_mapped() {
    let maps = unnoticed("/bin/cat", &["/proc/self/maps"]);
    assert!(maps.contains("libtelereduce.so"), "the library itself is there");
    for name in ["libibverbs", "librdmacm", "libmlx5", "libnl", "telereduce."] {
        assert!(!maps.lines().any(|l| l.contains(&format!("/{name}"))), "{name} is mapped:\n{maps}");
    }
}

#[test]
fn no_thread_is_started() {
    let status = unnoticed("/bin/cat", &["/proc/self/status"]);
    assert!(status.lines().any(|l| l == "Threads:\t1"), "{status}");
}

#[test]
fn no_file_is_opened() {
    let descriptors = |o: String| -> Vec<String> { o.lines().map(String::from).collect() };
    let dir = Dir::new();
    let ls = Run::new("/bin/ls", &["/proc/self/fd"]);
    assert_eq!(descriptors(ls.run().silent().stdout), descriptors(ls.clone().counted(&dir).run().silent().stdout));
}

#[test]
fn no_signal_handler_and_no_mask_is_set() {
    let signals = |o: String| -> Vec<String> { o.lines().filter(|l| l.starts_with("Sig")).map(String::from).collect() };
    let dir = Dir::new();
    let cat = Run::new("/bin/cat", &["/proc/self/status"]);
    let native = signals(cat.run().silent().stdout);
    assert!(native.len() >= 4);
    assert_eq!(native, signals(cat.counted(&dir).run().silent().stdout));
}

#[test]
fn python_is_left_alone() {
    let code = "import os,threading\nprint([l for l in open('/proc/self/maps') if 'libibverbs' in l], \
                threading.active_count(), len(os.listdir('/proc/self/task')))";
    let dir = Dir::new();
    let run = Run::new("/usr/bin/env", &["python3", "-c", code]);
    let native = run.run();
    if native.code == Some(127) {
        return; // no Python here
    }
    assert_eq!(run.counted(&dir).run().silent().stdout, "[] 1 1\n");
    assert_eq!(native.silent().stdout, "[] 1 1\n");
    assert_eq!(dir.names(), [""; 0]);
}
