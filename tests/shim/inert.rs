//! Preloaded into what uses no verbs, the library does nothing that anybody could notice.

use std::path::Path;
use telereduce_tests::run::built;
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
    let signals = |o: String| -> Vec<String> {
        o.lines().filter(|l| l.starts_with("Sig") && !l.starts_with("SigQ")).map(String::from).collect()
    };
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

/// The same output, errors and end with the library as without. Digits are left out: process ids are in them. Returns
/// whether the program is there at all.
fn the_same(command: &[&str]) -> bool {
    let dir = Dir::new();
    let run = Run::new("/usr/bin/env", command);
    let without_digits = |s: &str| s.replace(|c: char| c.is_ascii_digit(), "");
    let native = run.run();
    if native.code == Some(127) {
        eprintln!("skipped: there is no {}; `make deps` installs what Debian has", command[0]);
        return false;
    }
    let counted = run.counted(&dir).run();
    assert_eq!((native.code, native.signal), (counted.code, counted.signal), "{command:?}: {}", counted.stderr);
    assert_eq!(without_digits(&native.stdout), without_digits(&counted.stdout), "{command:?}");
    assert_eq!(without_digits(&native.stderr), without_digits(&counted.stderr), "{command:?}");
    assert_eq!((dir.names(), dir.snapshots().len()), (vec![], 0), "{command:?} made files");
    true
}

#[test]
fn everyday_programs_are_left_alone() {
    the_same(&["ssh", "-V"]);
    the_same(&["git", "--version"]);
    the_same(&["git", "-C", "/nowhere", "status"]);
    the_same(&["bash", "-c", "for i in 1 2 3; do (exit $i) || echo $?; done; kill -TERM $$"]);
    the_same(&[
        "python3",
        "-c",
        "import ctypes, ssl, threading; print(bool(ctypes.CDLL(None).dlsym), ssl.OPENSSL_VERSION)",
    ]);
}

#[test]
fn static_programs_are_left_alone() {
    the_same(&["busybox", "sh", "-c", "echo static; exit 5"]);
}

#[test]
fn rust_programs_are_left_alone() {
    let trtop = built("release/trtop");
    the_same(&[trtop.to_str().expect("a path in UTF-8"), "help", "env"]);
    the_same(&[trtop.to_str().expect("a path in UTF-8"), "dump", "--nonsense"]);
}

#[test]
fn go_programs_are_left_alone() {
    the_same(&["sh", "-c", "printf 'one\\ntwo\\n' | fzf --filter tw"]);
    the_same(&["go", "version"]);
}

#[test]
fn debuggers_are_left_alone() {
    the_same(&["gdb", "-q", "-batch", "-nx", "-ex", "run", "-ex", "info inferiors", "/bin/true"]);
    the_same(&["valgrind", "-q", "--error-exitcode=9", "/bin/true"]);
}

#[test]
fn programs_with_little_room_are_left_alone() {
    let tight = built("programs/tight");
    let tight = tight.to_str().expect("a path in UTF-8");
    for what in ["stack", "seccomp"] {
        the_same(&[tight, what]);
    }
    the_same(&["sh", "-c", "ulimit -s 128; exec /bin/ls /"]);
    the_same(&["sh", "-c", "ulimit -n 4; exec /bin/true"]);
}

#[test]
fn early_constructors_are_left_alone() {
    let file = |path: std::path::PathBuf| path.to_str().expect("a path in UTF-8").to_string();
    let ours = file(telereduce_tests::run::shim());
    for library in ["early", "first"] {
        let early = file(built(&format!("programs/lib/{library}.so")));
        let run = Run::program("tight stack");
        let native = run.clone().env("LD_PRELOAD", &early).run().silent();
        assert!(native.stdout.contains("early malloc: found\n"), "{}", native.stdout);
        for order in [format!("{early} {ours}"), format!("{ours} {early}")] {
            let dir = Dir::new();
            let counted = run.clone().counted(&dir).env("LD_PRELOAD", &order).run().silent();
            assert_eq!(native.stdout, counted.stdout, "{order}");
            assert_eq!(dir.names(), [""; 0]);
        }
    }
}

/// The dynamic linker drops most of LD_PRELOAD for them. A library that root has put where it does not, as here in place of
/// another one, reads no settings from a user who borrows root's rights.
#[test]
fn setuid_programs_are_left_alone() {
    let lib = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    // SAFETY: no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    if !root || !lib.join("libjemalloc.so.2").exists() || !lib.join("libibverbs.so.1").exists() {
        eprintln!("skipped: not root, or no libraries that could be replaced; `make deps` installs them");
        return;
    }
    let counted = |mode: &str| {
        let dir = Dir::new();
        let script = format!(
            "mount -t tmpfs -o mode=755 none /mnt
            cp \"$1\" /mnt/program; cp '{}' /mnt/shim; cp '{}' /mnt/verbs
            chmod {mode} /mnt/program /mnt/shim /mnt/verbs
            mount --bind /mnt/shim {lib}/libjemalloc.so.2
            mount --bind /mnt/verbs {lib}/libibverbs.so.1
            exec setpriv --reuid 65534 --clear-groups env LD_PRELOAD=libjemalloc.so.2 /mnt/program",
            telereduce_tests::run::shim().display(),
            built("nullverbs/libibverbs.so.1").display(),
            lib = lib.display(),
        );
        std::os::unix::fs::chown(dir.path().join("snapshots"), Some(65534), None).expect("root may");
        std::os::unix::fs::chown(dir.segment_dir(), Some(65534), None).expect("root may");
        let run = Run::program("basic").counted(&dir).env("LD_PRELOAD", "").in_private_mounts(&script);
        let said = run.run().silent().stdout;
        (said, dir.snapshots().len())
    };
    let native = Run::program("basic").run().silent().stdout;
    assert_eq!(counted("755"), (native.clone(), 1));
    assert_eq!(counted("4755"), (native, 0));
}
