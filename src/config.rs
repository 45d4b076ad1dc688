//! Settings: environment variables, read once, when the first device is opened.
//!
//! A bad value never stops anything: it is named in one line on stderr, its default is used, the rest goes on.
//! [`TABLE`] is the one list of them, for parsing, `trtop help env` and the README.

use crate::flows::window;
use crate::log::line::Format;
use crate::multipath::paths::{Key, Paths};
use crate::multipath::plan::{Mode, Settings as Split};
use std::path::PathBuf;

/// A setting as users read about it.
pub struct Setting {
    /// Variable.
    pub name: &'static str,
    /// Allowed values.
    pub values: &'static str,
    /// Value if unset.
    pub default: &'static str,
    /// What it does.
    pub help: &'static str,
}

/// Every setting.
pub const TABLE: &[Setting] = &[
    Setting {
        name: "TELEREDUCE",
        values: "on, off",
        default: "on",
        help: "off: the preloaded library does nothing at all",
    },
    Setting {
        name: "TELEREDUCE_DLSYM",
        values: "on, off",
        default: "on",
        help: "off: programs that load libibverbs themselves get its functions from dlsym, and are not counted",
    },
    Setting {
        name: "TELEREDUCE_SNAPSHOT",
        values: "file name; %p = pid, %h = host, %r = rank",
        default: "(none)",
        help: "write the final counters as JSON to this file when the program exits",
    },
    Setting {
        name: "TELEREDUCE_LATENCY",
        values: "0 to 1000000000",
        default: "64",
        help: "measure the post-to-poll latency of one in this many sends, the next signaled one; 1 = all, 0 = none",
    },
    Setting {
        name: "TELEREDUCE_EVENTS",
        values: "on, off",
        default: "on",
        help: "write an event with its end time for each completed signaled send into the segment's ring",
    },
    Setting {
        name: "TELEREDUCE_MIN_BYTES",
        values: "0 to 4294967295",
        default: "16",
        help: "sends of at most this many bytes are control messages: counted, but without an event",
    },
    Setting {
        name: "TELEREDUCE_LOG",
        values: "an existing directory",
        default: "(none)",
        help: "write a line per completed transfer into a file of this process there",
    },
    Setting {
        name: "TELEREDUCE_LOG_FORMAT",
        values: "seed, json, csv",
        default: "seed",
        help: "how the log's lines look; seed: as TeleReduce inside NCCL writes them",
    },
    Setting {
        name: "TELEREDUCE_LOG_BYTES",
        values: "65536 to 1099511627776",
        default: "268435456",
        help: "the log goes on in a new file once one has this many bytes",
    },
    Setting {
        name: "TELEREDUCE_WINDOW",
        values: "2 to 4096",
        default: "50",
        help: "a flow's bandwidth is that of its last so many transfers",
    },
    Setting {
        name: "TELEREDUCE_STALL_MS",
        values: "off, or 10 to 86400000",
        default: "off; 5000 with TELEREDUCE_DUMP_DIR",
        help: "a QP stalls when it waits for sends and none completes for so many milliseconds; a thread looks for that",
    },
    Setting {
        name: "TELEREDUCE_DUMP_DIR",
        values: "an existing directory",
        default: "(none)",
        help: "flight recorder: on a stall, a failed completion or SIGUSR2 a snapshot with the last events goes there",
    },
    Setting {
        name: "TELEREDUCE_PATHS",
        values: "auto, 1 to 16, or IP addresses with commas between",
        default: "1",
        help: "send large messages of RC QPs over this many aliases of the port at once; auto = all (multi-path)",
    },
    Setting {
        name: "TELEREDUCE_PATH_KEY",
        values: "alias, flowlabel, both",
        default: "alias",
        help: "multi-path: what paths differ in: IP alias, flow label (for ECMP: so many labels on one address), or both",
    },
    Setting {
        name: "TELEREDUCE_SPLIT_MIN",
        values: "1024 to 2147483648",
        default: "262144",
        help: "multi-path: smallest message that is split, bytes",
    },
    Setting {
        name: "TELEREDUCE_ORDER",
        values: "strict, notify",
        default: "strict",
        help: "multi-path: notify lets messages run ahead of earlier ones that they do not overlap",
    },
    Setting {
        name: "TELEREDUCE_PORT",
        values: "1024 to 65528",
        default: "18516",
        help: "multi-path: first of the 8 TCP ports at which processes of a host are found",
    },
    Setting {
        name: "TELEREDUCE_SECRET_FILE",
        values: "file name, readable by its owner only",
        default: "(none)",
        help: "multi-path: only peers with the same secret may have lanes",
    },
    Setting {
        name: "TELEREDUCE_DIR",
        values: "an existing directory in memory (tmpfs)",
        default: "/dev/shm",
        help: "where segments are created, and where trtop looks for them",
    },
];

/// What `TELEREDUCE_STALL_MS` is where there is a flight recorder.
const STALL_MS: u64 = 5000;

/// The settings of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// False: do nothing.
    pub enabled: bool,
    /// Whether look-ups of libibverbs's functions are answered with hooks. Read again, and earlier, by `shim/lookup.rs`.
    pub dlsym: bool,
    /// Template of the final snapshot's name.
    pub snapshot: Option<String>,
    /// In how many sends one is timed, the next signaled one; 0 = none.
    pub latency_every: u32,
    /// Whether completions make events.
    pub events: bool,
    /// Largest message without an event.
    pub min_event_bytes: u64,
    /// Where the log goes, if there is one.
    pub log: Option<PathBuf>,
    /// How its lines look.
    pub log_format: Format,
    /// Bytes at which it goes on in a new file.
    pub log_bytes: u64,
    /// Transfers over which a flow's bandwidth is taken.
    pub window: usize,
    /// A queue stalls after so many milliseconds; 0: nobody looks.
    pub stall_ms: u64,
    /// Where the flight recorder's files go, if there is one.
    pub dump_dir: Option<PathBuf>,
    /// Where the segment goes.
    pub dir: PathBuf,
    /// Paths of multi-path.
    pub paths: Paths,
    /// What makes them different.
    pub path_key: Key,
    /// How messages are split.
    pub split: Split,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            enabled: true,
            dlsym: true,
            snapshot: None,
            latency_every: 64,
            events: true,
            min_event_bytes: 16,
            log: None,
            log_format: Format::default(),
            log_bytes: 256 << 20,
            window: window::DEFAULT_RECORDS,
            stall_ms: 0,
            dump_dir: None,
            dir: crate::shm::discover::DEFAULT_DIR.into(),
            paths: Paths::Single,
            path_key: Key::Alias,
            split: Split::of(262_144),
        }
    }
}

impl Config {
    /// Reads the settings through `get` (as `std::env::var_os`, lossily as text); returns what was wrong with them.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> (Config, Vec<String>) {
        let mut c = Config::default();
        let mut wrong = Vec::new();
        let mut bad = |name: &str, value: &str| {
            let s = TABLE.iter().find(|s| s.name == name).expect("every variable that is read is in TABLE");
            wrong.push(format!("{name}={value} is not valid (allowed: {}); using {}", s.values, s.default));
        };
        let set = |name: &str| get(name).filter(|v| !v.is_empty());

        for (name, into) in
            [("TELEREDUCE", &mut c.enabled), ("TELEREDUCE_DLSYM", &mut c.dlsym), ("TELEREDUCE_EVENTS", &mut c.events)]
        {
            if let Some(v) = set(name) {
                switch(v.as_bytes()).map_or_else(|| bad(name, &v), |on| *into = on);
            }
        }

        if let Some(v) = set("TELEREDUCE_LATENCY") {
            match v.parse() {
                Ok(n) if n <= 1_000_000_000 => c.latency_every = n,
                _ => bad("TELEREDUCE_LATENCY", &v),
            }
        }
        if let Some(v) = set("TELEREDUCE_MIN_BYTES") {
            match v.parse::<u32>() {
                Ok(n) => c.min_event_bytes = u64::from(n),
                Err(_) => bad("TELEREDUCE_MIN_BYTES", &v),
            }
        }
        if let Some(v) = set("TELEREDUCE_LOG").or_else(|| log_of_the_note(set)) {
            if std::path::Path::new(&v).is_dir() {
                // The program may change its directory before there is a line.
                c.log = Some(std::path::absolute(&v).unwrap_or_else(|_| v.into()));
            } else {
                bad("TELEREDUCE_LOG", &v);
            }
        }
        if let Some(v) = set("TELEREDUCE_LOG_FORMAT") {
            v.parse().map_or_else(|()| bad("TELEREDUCE_LOG_FORMAT", &v), |format| c.log_format = format);
        }
        if let Some(v) = set("TELEREDUCE_LOG_BYTES") {
            match v.parse() {
                Ok(n) if (1 << 16..=1 << 40).contains(&n) => c.log_bytes = n,
                _ => bad("TELEREDUCE_LOG_BYTES", &v),
            }
        }
        if let Some(v) = set("TELEREDUCE_WINDOW") {
            match v.parse() {
                Ok(n) if (2..=4096).contains(&n) => c.window = n,
                _ => bad("TELEREDUCE_WINDOW", &v),
            }
        }
        if let Some(v) = set("TELEREDUCE_DUMP_DIR") {
            if std::path::Path::new(&v).is_dir() {
                c.dump_dir = Some(std::path::absolute(&v).unwrap_or_else(|_| v.into()));
                c.stall_ms = STALL_MS;
            } else {
                bad("TELEREDUCE_DUMP_DIR", &v);
            }
        }
        if let Some(v) = set("TELEREDUCE_STALL_MS") {
            match v.parse() {
                Ok(n) if (10..=86_400_000).contains(&n) => c.stall_ms = n,
                _ if switch(v.as_bytes()) == Some(false) => c.stall_ms = 0,
                _ => bad("TELEREDUCE_STALL_MS", &v),
            }
        }
        if let Some(v) = set("TELEREDUCE_DIR") {
            if std::path::Path::new(&v).is_dir() {
                c.dir = v.into();
            } else {
                bad("TELEREDUCE_DIR", &v);
            }
        }
        if let Some(v) = set("TELEREDUCE_PATHS") {
            v.parse().map_or_else(|()| bad("TELEREDUCE_PATHS", &v), |paths| c.paths = paths);
        }
        if let Some(v) = set("TELEREDUCE_PATH_KEY") {
            v.parse().map_or_else(|()| bad("TELEREDUCE_PATH_KEY", &v), |key| c.path_key = key);
        }
        if let Some(v) = set("TELEREDUCE_SPLIT_MIN") {
            match v.parse() {
                Ok(n) if (1024..=1 << 31).contains(&n) => {
                    c.split = Split::of(n);
                }
                _ => bad("TELEREDUCE_SPLIT_MIN", &v),
            }
        }
        if let Some(v) = set("TELEREDUCE_ORDER") {
            match v.to_ascii_lowercase().as_str() {
                "strict" => c.split.mode = Mode::Strict,
                "notify" => c.split.mode = Mode::Notify,
                _ => bad("TELEREDUCE_ORDER", &v),
            }
        }
        c.snapshot = set("TELEREDUCE_SNAPSHOT");
        (c, wrong)
    }
}

/// The log's directory by the variables of TeleReduce inside NCCL, which users may have in their scripts.
fn log_of_the_note(get: impl Fn(&str) -> Option<String>) -> Option<String> {
    let on = get("NCCL_TELEMETRY_ENABLE").is_some_and(|v| switch(v.as_bytes()) == Some(true));
    get("NCCL_TELEMETRY_LOG_PATH").filter(|_| on)
}

/// The value of a setting that is on or off; allocates nothing.
pub fn switch(value: &[u8]) -> Option<bool> {
    let is = |words: [&str; 4]| words.iter().any(|w| value.eq_ignore_ascii_case(w.as_bytes()));
    is(["on", "1", "yes", "true"]).then_some(true).or_else(|| is(["off", "0", "no", "false"]).then_some(false))
}

/// Rank and world size from the launchers' variables: Open MPI, MPICH and others by PMI, PMIx, Slurm, torchrun.
pub fn rank(get: impl Fn(&str) -> Option<String>) -> (Option<u64>, Option<u64>) {
    let first = |names: &[&str]| names.iter().find_map(|n| get(n)?.trim().parse().ok());
    (
        first(&["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"]),
        first(&["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE"]),
    )
}

/// The job's id from the variables of Slurm, PBS, LSF, Grid Engine, Flux, Cobalt, torchrun, and of the launchers, which name a
/// job by itself: Open MPI, PRRTE and others by PMIx.
pub fn job(get: impl Fn(&str) -> Option<String>) -> Option<String> {
    let names = [
        "SLURM_JOB_ID",
        "SLURM_JOBID",
        "PBS_JOBID",
        "LSB_JOBID",
        "FLUX_JOB_ID",
        "COBALT_JOBID",
        "JOB_ID",
        "PMIX_NAMESPACE",
        "PMI_JOBID",
        "OMPI_MCA_ess_base_jobid",
        "TORCHELASTIC_RUN_ID",
    ];
    names.iter().find_map(|n| get(n).map(|v| v.trim().to_string()).filter(|v| !v.is_empty()))
}

/// Fills a snapshot's name: `%p` pid, `%h` host, `%r` rank (`0` if there is none), `%%` a percent sign; any other use
/// of `%` stays as it is.
pub fn expand(template: &str, pid: u32, host: &str, rank: Option<u64>) -> String {
    let mut out = String::with_capacity(template.len() + 16);
    let mut rest = template.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match rest.next() {
            Some('p') => out += &pid.to_string(),
            Some('h') => out += host,
            Some('r') => out += &rank.unwrap_or(0).to_string(),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |n| pairs.iter().find(|(k, _)| *k == n).map(|(_, v)| (*v).to_string())
    }

    #[test]
    fn unset_means_default() {
        assert_eq!(Config::read(env(&[])), (Config::default(), vec![]));
        assert_eq!(Config::read(env(&[("TELEREDUCE_LATENCY", "")])).0, Config::default());
    }

    #[test]
    fn a_bad_value_is_named_and_the_rest_goes_on() {
        let (c, wrong) = Config::read(env(&[("TELEREDUCE_LATENCY", "fast"), ("TELEREDUCE_EVENTS", "off")]));
        assert_eq!((c.latency_every, c.events), (64, false));
        assert_eq!(wrong, ["TELEREDUCE_LATENCY=fast is not valid (allowed: 0 to 1000000000); using 64"]);
    }

    #[test]
    fn every_bad_value_is_named() {
        // The side channel reads its own, and a name may be anything.
        let elsewhere = ["TELEREDUCE_SNAPSHOT", "TELEREDUCE_PORT", "TELEREDUCE_SECRET_FILE"];
        for s in TABLE.iter().filter(|s| !elsewhere.contains(&s.name)) {
            let (c, wrong) = Config::read(env(&[(s.name, "-1x")]));
            assert_eq!(c, Config::default());
            assert_eq!(wrong.len(), 1, "{}", s.name);
            assert!(wrong[0].starts_with(&format!("{}=-1x ", s.name)) && wrong[0].contains(s.values));
        }
    }

    #[test]
    fn the_table_tells_the_real_defaults() {
        let d = Config::default();
        let text = |n: &str| TABLE.iter().find(|s| s.name == n).unwrap().default;
        assert_eq!(text("TELEREDUCE_LATENCY"), d.latency_every.to_string());
        assert_eq!(text("TELEREDUCE_MIN_BYTES"), d.min_event_bytes.to_string());
        assert_eq!(text("TELEREDUCE_DIR"), d.dir.to_str().unwrap());
        assert_eq!(text("TELEREDUCE_LOG_FORMAT").parse(), Ok(d.log_format));
        assert_eq!(text("TELEREDUCE_LOG_BYTES"), d.log_bytes.to_string());
        assert_eq!(text("TELEREDUCE_WINDOW"), d.window.to_string());
        let on = ["TELEREDUCE", "TELEREDUCE_DLSYM", "TELEREDUCE_EVENTS"].map(|n| text(n) == "on");
        assert_eq!(on, [d.enabled, d.dlsym, d.events]);
    }

    #[test]
    fn the_log_of_older_scripts() {
        let log = |pairs: &[(&str, &str)]| Config::read(env(pairs)).0.log;
        let path = ("NCCL_TELEMETRY_LOG_PATH", "/");
        assert_eq!(log(&[("NCCL_TELEMETRY_ENABLE", "1"), path]), Some("/".into()));
        assert_eq!(log(&[("NCCL_TELEMETRY_ENABLE", "0"), path]), None);
        assert_eq!(log(&[path]), None);
        assert_eq!(log(&[("NCCL_TELEMETRY_ENABLE", "1"), path, ("TELEREDUCE_LOG", "/proc")]), Some("/proc".into()));
    }

    #[test]
    fn stalls_are_looked_for_where_they_are_recorded() {
        let of = |pairs: &[(&str, &str)]| {
            let (c, wrong) = Config::read(env(pairs));
            (c.stall_ms, c.dump_dir.is_some(), wrong.len())
        };
        let dir = ("TELEREDUCE_DUMP_DIR", "/");
        let after = |v| ("TELEREDUCE_STALL_MS", v);
        assert_eq!((of(&[dir]), of(&[after("70")])), ((5000, true, 0), (70, false, 0)));
        assert_eq!((of(&[dir, after("70")]), of(&[dir, after("off")])), ((70, true, 0), (0, true, 0)));
        assert_eq!((of(&[dir, after("9")]), of(&[after("0")])), ((5000, true, 1), (0, false, 0)));
    }

    #[test]
    fn ranks_come_from_any_launcher() {
        for n in ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK"] {
            assert_eq!(rank(env(&[(n, "7")])).0, Some(7));
        }
        assert_eq!(rank(env(&[("RANK", "x")])), (None, None));
    }

    #[test]
    fn jobs_come_from_the_batch_system_before_the_launcher() {
        assert_eq!(job(env(&[])), None);
        assert_eq!(job(env(&[("PBS_JOBID", "17.head"), ("PMIX_NAMESPACE", "prte-1")])), Some("17.head".into()));
        assert_eq!(job(env(&[("SLURM_JOB_ID", " "), ("LSB_JOBID", "9")])), Some("9".into()));
    }

    #[test]
    fn names_expand() {
        assert_eq!(expand("/tmp/%h-%p-%r.json", 12, "a", Some(3)), "/tmp/a-12-3.json");
        assert_eq!(expand("100%% %x %", 1, "", None), "100% %x %");
    }
}
