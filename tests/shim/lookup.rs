//! Programs that load libibverbs themselves are counted as those that are linked with it, and whatever anybody looks up
//! is found, or not found, as without the library.

use crate::exact::{exact, symbolic};
use telereduce::shm::snapshot::SegmentJson;
use telereduce_tests::compare::{assert_exact, assert_nothing_missed};
use telereduce_tests::run::{built, shim};
use telereduce_tests::{Dir, Outcome, Run, Truth};

fn file(name: &str) -> String {
    built(name).to_str().expect("a path in UTF-8").to_string()
}

/// Exact over a libibverbs of each link style.
fn both_styles(program: &str) {
    exact(program, &[]);
    exact(program, &[("LD_LIBRARY_PATH", symbolic())]);
}

macro_rules! counted {
    ($($test:ident: $program:expr;)*) => { $(
        #[test]
        fn $test() {
            both_styles(&$program);
        }
    )* };
}

fn plugins(options: &str, names: &[&str]) -> String {
    let files: Vec<String> = names.iter().map(|n| file(&format!("programs/lib/{n}.so"))).collect();
    format!("plugins {options} {}", files.join(" "))
}

const TWO: &str = "libibverbs.so.1 libibverbs-vendored.so.1";

counted! {
    by_dlvsym_as_nccl: "dlvsym";
    by_dlsym: "dlvsym --dlsym";
    by_both: "dlvsym --mixed";
    by_dlvsym_on_the_default_handle: "dlvsym --global --default";
    by_dlsym_on_the_default_handle: "dlvsym --dlsym --global --default";
    bound_deeply: "dlvsym --deepbind";
    under_another_name: "dlvsym libibverbs-vendored.so.1";
    two_copies_by_dlvsym: format!("dlvsym {TWO}");
    two_copies_by_dlsym: format!("dlvsym --dlsym {TWO}");
    two_copies_bound_deeply: format!("dlvsym --deepbind {TWO}");
    loaded_and_unloaded: "dlvsym --again";
    a_thread_that_waits_for_events_is_cancelled: "dlvsym --cancel";
    a_thread_that_waits_for_events_of_another_copy_is_cancelled: format!("dlvsym --cancel {TWO}");
    two_copies_loaded_and_unloaded: format!("dlvsym --again --mixed {TWO}");
    a_plugin: plugins("", &["plugin"]);
    a_plugin_with_a_copy_of_its_own: plugins("", &["plugin-vendored"]);
    plugins_with_a_copy_each: plugins("", &["plugin", "plugin-vendored"]);
    plugins_with_a_copy_each_the_other_way: plugins("", &["plugin-vendored", "plugin"]);
    global_plugins: plugins("--global", &["plugin", "plugin-vendored"]);
}

/// Line by line, so that what differs can be found.
fn assert_lines(native: &str, counted: &str) {
    let differ = native.lines().zip(counted.lines()).find(|(n, c)| n != c);
    assert_eq!(differ, None, "natively, and with the library");
    assert_eq!(native.lines().count(), counted.lines().count());
}

/// Runs natively and under the library: the same output, the same end. Returns what was counted.
fn the_same(run: &Run, dir: &Dir) -> Outcome {
    let (native, counted) = (run.run(), run.clone().counted(dir).run());
    assert_eq!((native.code, native.signal), (counted.code, counted.signal), "{}", counted.stderr);
    assert_lines(&native.stdout, &counted.stdout);
    assert_lines(&native.stderr, &counted.stderr);
    assert_eq!(dir.names(), [""; 0]);
    counted
}

#[test]
fn more_copies_than_there_are_places_still_work() {
    let dir = Dir::new();
    let copies: Vec<String> = (0..10)
        .map(|i| {
            let copy = dir.path().join(format!("libibverbs-{i}.so.1"));
            std::fs::copy(built("nullverbs/symbolic/libibverbs.so.1"), &copy).expect("a copy");
            copy.to_str().expect("a path in UTF-8").to_string()
        })
        .collect();
    // One after the other: a place is free again once its library is unloaded.
    let line = |options: &str, n: usize| format!("dlvsym {options} {}", copies[..n].join(" "));
    assert_nothing_missed(&snapshot_of(&line("--again", 8), &dir));
    let native = Run::program(&line("", 10)).run().silent();
    let counted = Run::program(&line("", 10)).counted(&dir).run().ok();
    assert_lines(&native.stdout, &counted.stdout);
    assert!(counted.one_line().contains("more than 8 copies of libibverbs"), "{}", counted.stderr);
}

fn snapshot_of(program: &str, dir: &Dir) -> SegmentJson {
    let counted = Run::program(program).counted(dir).run().silent();
    let s = dir.snapshots().into_iter().find(|s| s.pid == counted.pid).expect("its snapshot");
    assert_exact(&Truth::parse(counted.stdout.lines()), &s);
    s
}

#[test]
fn what_keeps_libibverbs_to_itself_runs_unseen() {
    for program in ["dlvsym --dlmopen".to_string(), plugins("--deepbind", &["plugin", "plugin-vendored"])] {
        for style in [&file("nullverbs"), symbolic()] {
            let dir = Dir::new();
            the_same(&Run::program(&program).env("LD_LIBRARY_PATH", style), &dir).silent();
            assert_eq!(dir.snapshots().len(), 0, "{program}");
        }
    }
}

#[test]
fn switched_off_it_changes_nothing() {
    for setting in ["TELEREDUCE", "TELEREDUCE_DLSYM"] {
        for program in ["dlvsym", "dlvsym --dlsym", "lookups"] {
            let dir = Dir::new();
            let run = Run::program(program).env(setting, "OFF").env("LD_LIBRARY_PATH", symbolic());
            // What TELEREDUCE_DLSYM=off leaves alone finds our exports where nothing else is.
            if program != "lookups" || setting == "TELEREDUCE" {
                the_same(&run, &dir);
            }
            assert_eq!(dir.snapshots().len(), 0, "{program}");
        }
    }
}

/// Nothing is counted, and how much that is stands in the snapshot.
fn said_to_be_unseen(run: &Run, dir: &Dir, wrs: u64) {
    let o = the_same(run, dir).silent();
    let s = dir.snapshots().into_iter().find(|s| s.pid == o.pid).expect("a device was opened");
    assert_eq!((s.missed.wrs_unseen, s.missed.completions_unmatched, s.missed.panics), (wrs, wrs, 0));
    assert_eq!((s.qps.len(), s.cqs.len(), s.ports[0].line.send.wr_posted), (0, 0, 0));
}

/// Where libibverbs opens devices by its own export, contexts are seen, and nothing else.
#[test]
fn work_on_objects_that_were_not_seen_being_made_is_said_to_be_missing() {
    let off = |program: &str| Run::program(program).env("TELEREDUCE_DLSYM", "off");
    for (program, wrs) in
        [("dlvsym", 25), ("dlvsym --dlsym", 25), ("dlvsym libibverbs.so.1 libibverbs-vendored.so.1", 50)]
    {
        said_to_be_unseen(&off(program), &Dir::new(), wrs);
    }
}

/// A plugin that binds deeply passes by our exports, also where libibverbs is there for all.
#[test]
fn work_of_a_plugin_that_binds_deeply_is_said_to_be_missing() {
    let dir = Dir::new();
    let plugin = Run::program(&plugins("--deepbind", &["plugin"]));
    let preloaded = format!("{} libibverbs.so.1", shim().display());
    let o = plugin.counted(&dir).env("LD_PRELOAD", &preloaded).run().silent();
    assert_eq!(dir.snapshot().missed.wrs_unseen, 25, "{}", o.stdout);
}

/// Whichever copy a device is of, and whatever is switched off, it is opened by that one.
#[test]
fn switched_off_each_copy_is_still_itself() {
    for setting in ["TELEREDUCE", "TELEREDUCE_DLSYM"] {
        for program in [format!("dlvsym {TWO}"), plugins("", &["plugin", "plugin-vendored"])] {
            the_same(&Run::program(&program).env(setting, "off"), &Dir::new()).silent();
        }
    }
}

#[test]
fn whatever_is_looked_up_is_found_as_natively() {
    for name in ["libibverbs.so.1", "libibverbs-vendored.so.1"] {
        let dir = Dir::new();
        let o = the_same(&Run::program(&format!("lookups {name}")), &dir).silent();
        assert!(o.stdout.ends_with("wrong in threads: 0\n"), "{}", o.stdout);
    }
}

/// The distribution's libibverbs also has the calls of version IBVERBS_1.0, which take other structs.
#[test]
fn the_old_calls_stay_as_they_are() {
    let dir = Dir::new();
    let o = the_same(&Run::program("lookups").env("LD_LIBRARY_PATH", ""), &dir).silent();
    assert!(o.stdout.contains("but not 1.0: 1\n") && !o.stdout.contains("1.0: nowhere"), "{}", o.stdout);
}

/// Beside other preloaded libraries, before and behind them: they find what they look for, and all is counted once.
fn beside(library: &str, program: &str, env: &[(&str, &str)]) {
    let ours = shim().to_str().expect("a path in UTF-8").to_string();
    let run = env.iter().fold(Run::program(program), |r, (k, v)| r.env(k, v));
    let native = run.clone().env("LD_PRELOAD", library).run().silent();
    for order in [format!("{library} {ours}"), format!("{ours} {library}")] {
        let dir = Dir::new();
        let counted = run.clone().counted(&dir).env("LD_PRELOAD", &order).run().silent();
        assert_lines(&native.stdout, &counted.stdout);
        let s = dir.snapshot();
        assert_exact(&Truth::parse(counted.stdout.lines()), &s);
        assert_nothing_missed(&s);
    }
}

#[test]
fn a_wrapper_of_libc_and_of_libibverbs() {
    for program in ["basic", "errors", "dlvsym", "dlvsym --dlsym"] {
        beside(&file("programs/lib/wrapper.so"), program, &[]);
    }
}

#[test]
fn a_wrapper_that_loads_libibverbs_itself() {
    for program in ["basic", "dlvsym"] {
        beside(&file("programs/lib/wrapper.so"), program, &[("WRAPPER_BY_HANDLE", "1")]);
    }
}

#[test]
fn look_ups_in_constructors() {
    for library in ["early", "first"] {
        for program in ["basic", "dlvsym"] {
            beside(&file(&format!("programs/lib/{library}.so")), program, &[]);
        }
    }
}

/// Another dlsym before or behind ours. Behind ours, it is asked whatever we ask.
#[test]
fn another_librarys_dlsym() {
    let (other, ours) = (file("programs/lib/dlsyms.so"), shim().display().to_string());
    for (program, order) in [
        ("dlvsym", format!("{other} {ours}")),
        ("dlvsym", format!("{ours} {other}")),
        ("dlvsym --dlsym", format!("{ours} {other}")),
    ] {
        let dir = Dir::new();
        let o = Run::program(program).counted(&dir).env("LD_PRELOAD", &order).run().silent();
        let s = dir.snapshot();
        assert_exact(&Truth::parse(o.stdout.lines()), &s);
        assert_nothing_missed(&s);
        assert!(o.stdout.contains("dlsyms: asked\n") || program == "dlvsym", "{}", o.stdout);
    }
}

/// Objects whose end was not seen make room for what is made at their addresses.
#[test]
fn objects_destroyed_unseen() {
    exact("bypass", &[]);
    exact("bypass", &[("TELEREDUCE_DLSYM", "off")]);
}

/// What the distribution has to be preloaded: another malloc, and sockets over RDMA.
#[test]
fn other_peoples_libraries() {
    let lib = "/usr/lib/x86_64-linux-gnu";
    for name in ["libjemalloc.so.2", "rsocket/librspreload.so.1"] {
        let path = format!("{lib}/{name}");
        if !std::path::Path::new(&path).exists() {
            eprintln!("skipped: {path} is not there; `make deps` installs it on Debian");
            continue;
        }
        for program in ["basic", "errors", "dlvsym", "dlvsym --dlsym"] {
            beside(&path, program, &[]);
        }
    }
}
