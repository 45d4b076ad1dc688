//! The command line.

use crate::vnic::{Cidr, MOST};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Segments are the files telereduce.UID.PID in /dev/shm, or in the directory that TELEREDUCE_DIR names.
`trtop help env` lists every setting.

Exit codes:
  0    done
  1    nothing to show, or something could not be read, written or removed; stderr says what
  2    wrong use of the command line
  126  run: the command could not be started
  127  run: the command was not found
  else run: the command's own";

/// Shows what RDMA programs under libtelereduce.so post, complete and have outstanding, per port, QP and peer.
///
/// Without a command: the live view. Keys: F1, ? or h for help, q to quit. Views: 1 ports, 2 QPs, 3 peers (m: matrix),
/// 4 paths of multi-path, 5 latency, 6 stalls and errors, 7 events, 8 doctor. What is set by keys is remembered in
/// telereduce/trtop.toml in $XDG_CONFIG_HOME, or ~/.config; NO_COLOR=1 does without colours.
#[derive(Debug, Parser)]
#[command(version, after_help = AFTER_HELP, disable_help_subcommand = true, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; nothing = live view.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Of the live view.
    #[command(flatten)]
    pub live: LiveArgs,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write the counters of every segment, once or repeatedly
    Dump(DumpArgs),
    /// Record the counters of every segment to a file, which replay, export and report read
    Record(RecordArgs),
    /// Show a recording as the live view would have
    Replay(ReplayArgs),
    /// Turn a recording into JSON, CSV, a Perfetto trace or Parquet
    Export(ExportArgs),
    /// Make a page with charts of a recording
    Report(ReportArgs),
    /// List segments: whose they are and whether their process lives
    Ls(LsArgs),
    /// Say what is seen of each RDMA program, what is not, and what to do about it
    Doctor(DoctorArgs),
    /// Remove segments of dead processes, and files that are no segments any more
    Clean(CleanArgs),
    /// Run a command with libtelereduce.so preloaded
    Run(RunArgs),
    /// Serve all of this host's counters to Prometheus, over HTTP
    Serve(ServeArgs),
    /// Show the hosts, flows and alerts of a cluster, as a Prometheus that scrapes each host's `serve` knows them
    Fleet(FleetArgs),
    /// Give a RoCE port IP aliases, one per path of the network, or take them away
    #[command(subcommand)]
    Vnic(VnicCommand),
    /// Show help: of a command, or of the settings (`trtop help env`)
    Help {
        /// A command, or `env`
        topic: Vec<String>,
    },
}

/// Options of the live view.
#[derive(Clone, Debug, Default, Args)]
pub struct LiveArgs {
    /// Show this process only; may be given more than once
    #[arg(long, value_name = "P")]
    pub pid: Vec<u32>,
    /// Seconds between refreshes, 0.1 to 10 [default: as last time, 1 at first]
    #[arg(long, value_name = "S", value_parser = seconds_of_view)]
    pub every: Option<f64>,
}

/// Formats of `trtop dump`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The documented schema, telereduce/1; one document per line with --every
    Json,
    /// One row per port, peer, QP and lane; the columns are named as in the JSON
    Csv,
    /// For reading
    Table,
}

/// Options of `trtop dump`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit code 1 if there is no segment. Files that cannot be read are named on stderr.")]
pub struct DumpArgs {
    /// This process only; may be given more than once
    #[arg(long, value_name = "P")]
    pub pid: Vec<u32>,
    /// Format
    #[arg(long, value_enum, default_value = "json")]
    pub format: Format,
    /// Write to this file, which appears complete or not at all (with --every it grows)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Repeat every S seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub every: Option<f64>,
    /// Stop after N times
    #[arg(long, value_name = "N", requires = "every", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Include the newest completion events
    #[arg(long)]
    pub events: bool,
    /// Ranks of peers on other hosts: a file of lines `ADDRESS RANK`. Those of this host are found without
    #[arg(long, value_name = "FILE")]
    pub ranks: Option<PathBuf>,
}

/// Options of `trtop record`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Ends at Ctrl-C, SIGTERM, or after --for. A recording that is there already is gone on with; any other file \
stays as it is. A recording that was cut short (a crash, a full disk) holds every whole frame. It is readable by its owner only, \
as the segments are, and read by the trtop of the same layout version: exports last."
)]
pub struct RecordArgs {
    /// The recording
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Seconds from frame to frame
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds_of_recording)]
    pub every: f64,
    /// Stop after S seconds
    #[arg(long = "for", value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// This process only; may be given more than once
    #[arg(long, value_name = "P")]
    pub pid: Vec<u32>,
    /// Also completion events; up to 64 bytes each
    #[arg(long)]
    pub events: bool,
    /// Replace FILE, whatever it is
    #[arg(long)]
    pub force: bool,
}

/// A moment of a recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum At {
    /// Time of day, UTC, s; the first that comes in the recording.
    OfDay(f64),
    /// Seconds after its start, or, if negative, before its end.
    Seconds(f64),
}

/// Options of `trtop replay`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Keys besides those of the live view: Left and Right a second back and on, , and . a frame, PgUp and PgDn a minute, \
Home and End its start and end, < and > the speed, Space pause."
)]
pub struct ReplayArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Begin there: HH:MM:SS (UTC), or seconds after its start, or, with a minus, before its end
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment)]
    pub at: Option<At>,
    /// So many times as fast as it was, 0.01 to 1000
    #[arg(long, value_name = "X", default_value = "1", value_parser = speed)]
    pub speed: f64,
    /// Begin with a pause
    #[arg(long)]
    pub pause: bool,
    /// Show this process only; may be given more than once
    #[arg(long, value_name = "P")]
    pub pid: Vec<u32>,
    /// Seconds between refreshes, 0.1 to 10 [default: as last time, 1 at first]
    #[arg(long, value_name = "S", value_parser = seconds_of_view)]
    pub every: Option<f64>,
}

/// Formats of `trtop export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// The documented schema, telereduce/1: a document per frame, one per line
    Json,
    /// As that of `trtop dump`
    Csv,
    /// A trace for ui.perfetto.dev: bandwidth and WRs outstanding over time, events
    Perfetto,
    /// The columns of the CSV, with types
    Parquet,
}

/// Options of `trtop export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// The recording
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// Format
    #[arg(long, value_enum)]
    pub to: ExportFormat,
    /// Write to this file, which appears complete or not at all; without, to standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Frames at least S seconds apart only
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub every: Option<f64>,
    /// This process only; may be given more than once
    #[arg(long, value_name = "P")]
    pub pid: Vec<u32>,
}

/// Options of `trtop report`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "The page needs nothing but itself: no network, no script.")]
pub struct ReportArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The page
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// This process only; may be given more than once
    #[arg(long, value_name = "P")]
    pub pid: Vec<u32>,
}

/// What `trtop serve` has a series for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Per {
    /// Each port of each process
    Port,
    /// Each peer of each port
    Peer,
    /// Each QP that exists
    Qp,
}

/// Options of `trtop serve`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Metrics are at /metrics, in the OpenMetrics format; README.md lists them. Without --web-config, whoever \
can connect can read them: for other addresses than this host's own, use it, or a proxy with TLS and passwords."
)]
pub struct ServeArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9719")]
    pub listen: std::net::SocketAddr,
    /// How fine the series are; each step has more of them
    #[arg(long, value_enum, default_value = "peer")]
    pub per: Per,
    /// TLS and passwords, as Prometheus and its exporters have them: tls_server_config with cert_file and key_file,
    /// basic_auth_users
    #[arg(long, value_name = "FILE")]
    pub web_config: Option<PathBuf>,
    /// Where sysfs is, which tells the addresses of this host's ports
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs: PathBuf,
}

/// Options of `trtop fleet`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Needs the rules of tools/fleet/rules.yml. Keys: 1 to 4 or Tab for matrix, pairs, hosts, alerts; arrows; Space; q."
)]
pub struct FleetArgs {
    /// Where Prometheus is, such as http://prometheus.example:9090, or https://USER:PASSWORD@prometheus.example/prefix
    #[arg(long, value_name = "URL", env = "PROMETHEUS_URL", hide_env_values = true)]
    pub prometheus: String,
    /// The authority that certified it, if the web's did not: PEM
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Write once in this format, instead of the live screen; csv: a row per flow
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Seconds between refreshes of the live screen
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds, conflicts_with = "format")]
    pub every: f64,
}

/// Options of `trtop ls`.
#[derive(Clone, Debug, Args)]
pub struct LsArgs {
    /// This process only; may be given more than once
    #[arg(long, value_name = "P")]
    pub pid: Vec<u32>,
}

/// Options of `trtop doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit code 0 if everything is seen, 1 if not or if there is nothing to examine.")]
pub struct DoctorArgs {
    /// This process only, whether it has a segment or not; may be given more than once
    #[arg(long, value_name = "P")]
    pub pid: Vec<u32>,
    /// Watch traffic for S seconds, to compare with the ports' own counters
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub seconds: f64,
}

/// Options of `trtop clean`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Never removes the segment of a live process. Other users' segments are left to them, unless root cleans."
)]
pub struct CleanArgs {
    /// Only say what would be removed
    #[arg(long)]
    pub dry_run: bool,
}

/// Options of `trtop run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "The library is looked for beside trtop and in ../lib/ from there. \
                        An LD_PRELOAD that is set already stays, after it.\n\
                        NCCL takes it for its profiler plugin, too, which says which collective each transfer belongs to: \
                        NCCL_PROFILER_PLUGIN=STATIC_PLUGIN is set, unless you have set it.")]
pub struct RunArgs {
    /// Preload this file
    #[arg(long, value_name = "PATH")]
    pub lib: Option<PathBuf>,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

/// Commands of `trtop vnic`. DEVICE is an RDMA device or its network device.
#[derive(Clone, Debug, Subcommand)]
pub enum VnicCommand {
    /// See to it that the port has COUNT aliases and the sysctls that they need (root)
    ///
    /// An alias answers ARP only for itself (arp_ignore 1, arp_announce 2) and may be reached by any path (rp_filter 2). All of
    /// it is noted in /run/telereduce, and undone by `trtop vnic del`.
    Add {
        /// RDMA device, such as mlx5_0, or network device
        device: String,
        /// How many aliases, those that are there already included
        #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
        count: u32,
        /// A network that all hosts share: each takes 16 addresses in it by its own number in the port's network, so the same
        /// command fits all. With a host part it is the first alias itself. Default: 100.64.0.0/10
        #[arg(long, value_name = "CIDR")]
        prefix: Option<Cidr>,
    },
    /// List the port's addresses with their GIDs, and the aliases as TELEREDUCE_PATHS takes them
    List {
        /// RDMA device or network device
        device: String,
    },
    /// Remove the newest COUNT aliases, or all; with the last, the sysctls are as they were (root)
    Del {
        /// RDMA device or network device
        device: String,
        /// How many; all, if nothing is said
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        count: Option<u32>,
    },
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "not a number of seconds".to_string())
}

fn seconds_of_view(text: &str) -> Result<f64, String> {
    match number(text)? {
        s if (0.1..=10.0).contains(&s) => Ok(s),
        _ => Err("allowed: 0.1 to 10".into()),
    }
}

fn seconds_of_recording(text: &str) -> Result<f64, String> {
    match number(text)? {
        s if (0.01..=3600.0).contains(&s) => Ok(s),
        _ => Err("allowed: 0.01 to 3600".into()),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(x) if (0.01..=1000.0).contains(&x) => Ok(x),
        _ => Err("allowed: 0.01 to 1000".into()),
    }
}

fn moment(text: &str) -> Result<At, String> {
    let seconds = |t: &str| t.parse::<f64>().ok().filter(|s| s.is_finite());
    let parts: Vec<&str> = text.split(':').collect();
    let of_day = match parts[..] {
        [s] => return seconds(s).map(At::Seconds).ok_or_else(|| "not a time".into()),
        [h, m, s] => (h.parse::<u8>().ok(), m.parse::<u8>().ok(), seconds(s)),
        _ => (None, None, None),
    };
    match of_day {
        (Some(h @ 0..24), Some(m @ 0..60), Some(s)) if (0.0..60.0).contains(&s) => {
            Ok(At::OfDay(f64::from(h) * 3600.0 + f64::from(m) * 60.0 + s))
        }
        _ => Err("allowed: HH:MM:SS of a day (UTC), or seconds".into()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match number(text)? {
        s if (0.001..=86400.0).contains(&s) => Ok(s),
        _ => Err("allowed: 0.001 to 86400".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_run_runs_keeps_its_own_options() {
        let cli = Cli::try_parse_from(["trtop", "run", "--", "ls", "--lib", "x"]).unwrap();
        let Some(Command::Run(r)) = cli.command else { panic!() };
        assert_eq!((r.command.len(), r.lib), (3, None));
    }

    #[test]
    fn moments_are_of_the_day_or_from_an_end() {
        assert_eq!(moment("01:02:03.5"), Ok(At::OfDay(3723.5)));
        assert_eq!(moment("-2.5"), Ok(At::Seconds(-2.5)));
        for wrong in ["", "x", "1:2", "1:60:0", "1:2:60", "-1:2:3", "inf"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for args in [
            &["trtop", "--every", "0.01"][..],
            &["trtop", "--every", "x"],
            &["trtop", "dump", "--every", "0"],
            &["trtop", "dump", "--count", "3"],
            &["trtop", "dump", "--every", "1", "--count", "0"],
            &["trtop", "dump", "--format", "xml"],
            &["trtop", "record"],
            &["trtop", "record", "-o", "x", "--every", "0"],
            &["trtop", "replay", "x", "--at", "24:00:00"],
            &["trtop", "replay", "x", "--speed", "0"],
            &["trtop", "export", "--from", "x"],
            &["trtop", "run"],
            &["trtop", "fleet", "--prometheus", "http://a", "--format", "table", "--every", "1"],
            &["trtop", "vnic", "add", "mlx5_0", "17"],
            &["trtop", "vnic", "add", "mlx5_0", "2", "--prefix", "10.0.0.1"],
        ] {
            assert!(Cli::try_parse_from(args).is_err(), "{args:?}");
        }
    }
}
