//! The segment says whose it is.

use telereduce_tests::{Dir, Run};

#[test]
fn pid_start_time_command_and_host() {
    let dir = Dir::new();
    let mut live = Run::program("hold_live --size 77").counted(&dir).live();
    live.wait_for("ready");
    let s = dir.read(live.pid());
    let proc = |file: &str| std::fs::read(format!("/proc/{}/{file}", live.pid())).expect("a live process");
    let stat = String::from_utf8(proc("stat")).expect("UTF-8");
    let start: u64 = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
    let command = String::from_utf8(proc("cmdline")).unwrap().trim_end_matches('\0').replace('\0', " ");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!((s.pid, s.start_time_ticks, s.alive), (live.pid(), start, true));
    assert_eq!((s.command, s.host.as_str()), (command, host.trim_end()));
    // SAFETY: no preconditions.
    assert_eq!(s.uid, unsafe { libc::geteuid() });
    assert_eq!((s.rank, s.world_size), (None, None));
    assert!(s.created_ns <= s.heartbeat_ns && s.heartbeat_ns <= telereduce::clock::realtime_ns());
    live.finish().silent();
}

#[test]
fn a_command_with_odd_characters_and_of_any_length() {
    let long = "ä".repeat(1000);
    for odd in ["--x \") 1 (\"", long.as_str(), "a\nb"] {
        let dir = Dir::new();
        let script = format!("exec \"$@\" '{odd}'");
        Run::program("no_close").in_shell(&script).counted(&dir).run().silent();
        let s = dir.snapshot();
        assert!(s.start_time_ticks > 0);
        let program = telereduce_tests::run::built("programs/no_close");
        let whole = format!("{} {odd}", program.display()).replace('\n', "\u{fffd}");
        assert!(whole.starts_with(&s.command) && s.command.len() > program.as_os_str().len() + 2, "{}", s.command);
    }
}

#[test]
fn rank_from_each_launcher() {
    let of = |env: &[(&str, &str)]| {
        let dir = Dir::new();
        env.iter().fold(Run::program("no_close"), |r, (k, v)| r.env(k, v)).counted(&dir).run().silent();
        let s = dir.snapshot();
        (s.rank, s.world_size)
    };
    assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "8")]), (Some(3), Some(8)));
    assert_eq!(of(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), (Some(0), Some(2)));
    assert_eq!(of(&[("PMIX_RANK", "5")]), (Some(5), None));
    assert_eq!(of(&[("SLURM_PROCID", "11"), ("SLURM_NTASKS", "12")]), (Some(11), Some(12)));
    assert_eq!(of(&[("RANK", "1"), ("WORLD_SIZE", "4")]), (Some(1), Some(4)));
    assert_eq!(of(&[("RANK", "one")]), (None, None));
}
