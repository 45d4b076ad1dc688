//! Foreign programs over the library: what they are linked with resolves, and they run between two processes. Each pair has a
//! network namespace of its own, in which there is nothing but a loopback interface: the programs meet by TCP.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The folder of the library: built, and linked with its versions, once.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // target/PROFILE/deps/this
    let exe = std::env::current_exe().expect("this test");
    let profile = exe.parent().and_then(Path::parent).expect("target/PROFILE");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "-q", "--locked", "-p", "softnic"]).current_dir(here);
    build.env("CARGO_TARGET_DIR", profile.parent().expect("target"));
    if profile.file_name().is_some_and(|n| n == "release") {
        build.arg("--release");
    }
    assert!(build.status().expect("cargo").success(), "the library builds");
    let out = profile.join("softnic");
    let mut link = Command::new("make");
    link.args(["-s", "-C"]).arg(here).arg(format!("OUT={}", out.display()));
    link.arg(format!("LIB={}", profile.join("libsoftnic.a").display()));
    // Not this make's, if one runs the tests.
    link.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("MAKELEVEL");
    assert!(link.status().expect("make").success(), "the library links");
    out
});

static ALONE: Mutex<()> = Mutex::new(());

/// Says why a test does nothing.
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

fn found(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|p| std::env::split_paths(&p).any(|d| d.join(program).is_file()))
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// A server and a client, of which the client's output is returned. `None`: it cannot be run here.
fn pair(name: &str, command: &str, config: &str) -> Option<String> {
    pair_with(name, command, config, &[])
}

/// The same, both with these variables.
fn pair_with(name: &str, command: &str, config: &str, env: &[(&str, &str)]) -> Option<String> {
    let program = command.split(' ').next().expect("a program");
    if !found(program) {
        skipped(&format!("{program} is not installed (perftest, ibverbs-utils)"));
        return None;
    }
    if !Command::new("unshare").args(["-n", "true"]).status().is_ok_and(|s| s.success()) {
        skipped("no network namespace can be made (needs root)");
        return None;
    }
    // One pair at a time: both sides of most programs poll without rest.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("softnic.toml");
    std::fs::write(&file, config).expect("a file");
    let set: String = env.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    // The server is there once somebody listens.
    let script = format!(
        "ip link set lo up; timeout 200 env {set} {command} >server 2>&1 & s=$!
         for i in $(seq 500); do grep -q ' 0A ' /proc/net/tcp /proc/net/tcp6 && break; sleep 0.02; done
         timeout 200 env {set} {command} 127.0.0.1; c=$?; wait $s; s=$?
         [ $s = 0 ] || {{ echo server $s; cat server; }}; exit $((c | s))"
    );
    let network = format!("programs-{}-{name}", std::process::id());
    let out = Command::new("unshare")
        .args(["-n", "bash", "-c", &script])
        .current_dir(dir.path())
        .env("LD_LIBRARY_PATH", &*LIBRARY)
        .env("LD_BIND_NOW", "1")
        .env("SOFTNIC_NETWORK", &network)
        .env("SOFTNIC_CONFIG", &file)
        .output()
        .expect("a shell");
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(dir.path()).expect("a folder"));
    drop(std::fs::remove_dir_all(format!("/dev/shm/softnic-{user}-{network}")));
    assert!(out.status.success(), "{command}: {}\n{}", out.status, text(&out));
    Some(text(&out))
}

macro_rules! pairs {
    ($($name:ident: $command:expr, $expected:expr;)*) => { $(
        #[test]
        fn $name() {
            if let Some(out) = pair(stringify!($name), $command, "") {
                assert!(out.contains($expected), "{out}");
            }
        }
    )* };
}

// `-c` makes the ping-pongs look at each byte.
pairs! {
    rc_pingpong: "ibv_rc_pingpong -g 1 -c -n 500", "500 iters";
    rc_pingpong_of_large_messages: "ibv_rc_pingpong -g 2 -c -n 20 -s 1048576", "20 iters";
    rc_pingpong_by_events: "ibv_rc_pingpong -g 1 -c -e", "1000 iters";
    rc_pingpong_with_timestamps: "ibv_rc_pingpong -g 1 -c -t", "1000 iters";
    rc_pingpong_with_the_new_interface: "ibv_rc_pingpong -g 1 -c -N", "1000 iters";
    uc_pingpong: "ibv_uc_pingpong -g 1 -c", "1000 iters";
    ud_pingpong: "ibv_ud_pingpong -g 1 -c", "1000 iters";
    ud_pingpong_by_events: "ibv_ud_pingpong -g 1 -c -e", "1000 iters";
    srq_pingpong: "ibv_srq_pingpong -g 1 -c", "1000 iters";
    srq_pingpong_by_events: "ibv_srq_pingpong -g 1 -c -e", "1000 iters";
    xsrq_pingpong: "ibv_xsrq_pingpong -g 1", "success";
}

// All sizes, few iterations: 8388608 is the last line of `-a`.
pairs! {
    write_bw: "ib_write_bw -F -d soft0 -x 1 -a -n 5", " 8388608 ";
    write_bw_both_ways: "ib_write_bw -F -d soft0 -x 1 -a -n 5 -b", " 8388608 ";
    write_bw_of_many_qps: "ib_write_bw -F -d soft0 -x 1 -q 8 -s 4096 -n 200", " 4096 ";
    write_bw_with_moderation: "ib_write_bw -F -d soft0 -x 1 -a -n 20 -Q 10", " 8388608 ";
    write_bw_inline: "ib_write_bw -F -d soft0 -x 1 -s 64 -I 128 -n 200", " 64 ";
    write_lat: "ib_write_lat -F -d soft0 -x 1 -a -n 5", " 8388608 ";
    write_lat_inline: "ib_write_lat -F -d soft0 -x 1 -s 8 -I 64 -n 200", " 8 ";
    read_bw: "ib_read_bw -F -d soft0 -x 1 -a -n 5", " 8388608 ";
    read_bw_few_at_a_time: "ib_read_bw -F -d soft0 -x 1 -s 65536 -o 2 -q 4 -n 50", " 65536 ";
    read_lat: "ib_read_lat -F -d soft0 -x 1 -a -n 5", " 8388608 ";
    send_bw: "ib_send_bw -F -d soft0 -x 1 -a -n 5", " 8388608 ";
    send_bw_both_ways: "ib_send_bw -F -d soft0 -x 1 -a -n 5 -b", " 8388608 ";
    send_bw_by_events: "ib_send_bw -F -d soft0 -x 1 -a -n 5 -e", " 8388608 ";
    send_bw_of_an_srq: "ib_send_bw -F -d soft0 -x 1 -s 1024 -r 64 --use-srq -q 4 -n 200", " 1024 ";
    send_lat: "ib_send_lat -F -d soft0 -x 1 -a -n 5", " 8388608 ";
    send_lat_by_events: "ib_send_lat -F -d soft0 -x 1 -s 64 -n 200 -e", " 64 ";
    atomic_bw_add: "ib_atomic_bw -F -d soft0 -x 1 -n 200 -A FETCH_AND_ADD", " 8 ";
    atomic_bw_swap: "ib_atomic_bw -F -d soft0 -x 1 -n 200 -A CMP_AND_SWAP", " 8 ";
    atomic_lat: "ib_atomic_lat -F -d soft0 -x 1 -n 200", " 8 ";
    uc_write_bw: "ib_write_bw -F -d soft0 -x 1 -c UC -a -n 5", " 8388608 ";
    uc_send_lat: "ib_send_lat -F -d soft0 -x 1 -c UC -a -n 5", " 8388608 ";
    ud_send_bw: "ib_send_bw -F -d soft0 -x 1 -c UD -s 1024 -n 200", " 1024 ";
    ud_send_lat: "ib_send_lat -F -d soft0 -x 1 -c UD -s 1024 -n 200", " 1024 ";
    xrc_send_bw: "ib_send_bw -F -d soft0 -x 1 -c XRC -s 1024 -n 200", " 1024 ";
    xrc_read_lat: "ib_read_lat -F -d soft0 -x 1 -c XRC -s 1024 -n 200", " 1024 ";
}

#[test]
fn a_bad_path_changes_no_byte() {
    let config =
        "segment = 4096\n[[path]]\ndelay_us = 2.0\njitter_us = 10.0\nloss = 0.01\nreorder = 0.05\nreorder_us = 30.0\n";
    if let Some(out) = pair("a_bad_path_changes_no_byte", "ibv_rc_pingpong -g 1 -c -n 100 -s 65536", config) {
        assert!(out.contains("100 iters"), "{out}");
    }
}

/// The preloaded library, over this device as over a NIC, counts what perftest says that it did.
#[test]
fn the_shim_counts_what_was_sent() {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/libtelereduce.so");
    let shim = std::env::var_os("SOFTNIC_TEST_SHIM").map_or(built, PathBuf::from);
    if !shim.is_file() {
        return skipped("target/release/libtelereduce.so is not there (make build)");
    }
    let dir = tempfile::tempdir().expect("a folder");
    let snapshot = format!("{}/%p.json", dir.path().display());
    let env = [
        ("LD_PRELOAD", shim.to_str().expect("a path in UTF-8")),
        ("TELEREDUCE_SNAPSHOT", &snapshot),
        ("TELEREDUCE_DIR", dir.path().to_str().expect("a path in UTF-8")),
    ];
    let command = "ib_write_bw -F -d soft0 -x 1 -s 65536 -n 1000";
    if pair_with("the_shim_counts_what_was_sent", command, "", &env).is_none() {
        return;
    }
    let snapshots = std::fs::read_dir(dir.path()).expect("a folder").flatten();
    let all: Vec<String> = snapshots
        .filter(|f| f.path().extension().is_some_and(|e| e == "json"))
        .map(|f| std::fs::read_to_string(f.path()).expect("a file").replace([' ', '\n'], ""))
        .collect();
    assert_eq!(all.len(), 2, "one of each side");
    let sent = ["\"wr_posted\":1000,", "\"wr_completed\":1000,", "\"bytes_completed\":65536000,"];
    let sides = all.iter().filter(|text| sent.iter().all(|s| text.contains(s))).count();
    assert_eq!(sides, 1, "one side sent: {all:?}");
}

/// Names and versions that an object wants, or has.
fn symbols(file: &Path, undefined: bool) -> Vec<String> {
    let out = Command::new("readelf").args(["-W", "--dyn-syms"]).arg(file).output().expect("readelf");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let of = |line: &str| -> Option<String> {
        let fields: Vec<_> = line.split_whitespace().collect();
        let name = fields.get(7)?.replace("@@", "@");
        ((fields.get(6) == Some(&"UND")) == undefined && name.contains("@IBVERBS_")).then_some(name)
    };
    text.lines().filter_map(of).collect()
}

#[test]
fn all_that_programs_and_libraries_ask_for_is_exported() {
    let ours = symbols(&LIBRARY.join("libibverbs.so.1"), false);
    assert!(ours.iter().any(|s| s == "ibv_open_device@IBVERBS_1.1"), "{ours:?}");
    let libraries = ["librdmacm.so.1", "libmlx5.so.1", "libmlx4.so.1", "libefa.so.1"];
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
    let mut files: Vec<PathBuf> =
        folders.iter().flat_map(|f| libraries.iter().map(move |l| Path::new(f).join(l))).collect();
    let bin = std::fs::read_dir("/usr/bin").into_iter().flatten().flatten().map(|e| e.path());
    let named = |p: &PathBuf| {
        let name = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("ib_") || name.starts_with("ibv_") || name == "rping"
    };
    files.extend(bin.filter(named));
    files.retain(|f| f.is_file());
    let mut asked = 0;
    for file in &files {
        let wanted = symbols(file, true);
        asked += wanted.len();
        let missing: Vec<_> = wanted.iter().filter(|w| !ours.contains(w)).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", file.display());
    }
    if asked == 0 {
        skipped("no program or library that is linked with libibverbs is installed");
    }
    // What NCCL looks up by name and version.
    for name in [
        "ibv_get_device_list@IBVERBS_1.1",
        "ibv_reg_mr_iova2@IBVERBS_1.8",
        "ibv_query_ece@IBVERBS_1.10",
        "ibv_reg_dmabuf_mr@IBVERBS_1.12",
    ] {
        assert!(ours.iter().any(|s| s == name), "{name}");
    }
}

#[test]
fn programs_start_with_all_symbols_bound() {
    for command in
        [["ibv_devices", ""], ["ibv_devinfo", "-v"], ["ib_write_bw", "--version"], ["ib_read_lat", "--version"]]
    {
        if !found(command[0]) {
            skipped(&format!("{} is not installed", command[0]));
            continue;
        }
        let out = Command::new(command[0])
            .args(command[1..].iter().filter(|a| !a.is_empty()))
            .env("LD_LIBRARY_PATH", &*LIBRARY)
            .env("LD_BIND_NOW", "1")
            .env("SOFTNIC_NETWORK", format!("start-{}", std::process::id()))
            .output()
            .expect("a program");
        assert!(!text(&out).contains("symbol lookup error"), "{}", text(&out));
        if command[0].starts_with("ibv_dev") {
            assert!(out.status.success() && text(&out).contains("soft0"), "{}", text(&out));
        }
        if command[1] == "-v" {
            assert!(text(&out).contains("::ffff:127.0.0.4, RoCE v2"), "{}", text(&out));
        }
    }
    // SAFETY: always succeeds.
    let user = unsafe { libc::geteuid() };
    drop(std::fs::remove_dir_all(format!("/dev/shm/softnic-{user}-start-{}", std::process::id())));
}

/// A preload may answer the library's own call of `verbs_open_device`, unless it is bound to itself.
#[test]
fn only_one_of_the_two_builds_can_be_interposed() {
    let bound = |file: PathBuf| {
        let out = Command::new("readelf").args(["-rW"]).arg(file).output().expect("readelf");
        !String::from_utf8_lossy(&out.stdout).contains("verbs_open_device")
    };
    assert!(!bound(LIBRARY.join("libibverbs.so.1")));
    assert!(bound(LIBRARY.join("symbolic/libibverbs.so.1")));
}
