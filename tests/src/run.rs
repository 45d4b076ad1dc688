//! Running programs: with a time limit, a clean environment, and a segment directory of their own.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};
use telereduce::shm::discover::{self, Found};
use telereduce::shm::reader::Reader;
use telereduce::shm::snapshot::{self, SegmentJson, Snapshot};
use tempfile::TempDir;

/// No program of the tests takes longer.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Top of the source tree.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ has a parent")
}

/// A file below `target/` that the Makefile builds.
///
/// # Panics
/// It is not there.
pub fn built(name: &str) -> PathBuf {
    let path = root().join("target").join(name);
    assert!(path.exists(), "target/{name} is missing: run `make test`, which builds it first");
    path
}

/// The library that users get.
pub fn shim() -> PathBuf {
    built("release/libtelereduce.so")
}

/// The library with places where it can be made to panic.
pub fn shim_with_faults() -> PathBuf {
    built("fault/release/libtelereduce.so")
}

/// A place in memory for the segments and snapshots of one test.
pub struct Dir(TempDir);

impl Default for Dir {
    fn default() -> Dir {
        Dir::new()
    }
}

impl Dir {
    /// An empty one.
    ///
    /// # Panics
    /// /dev/shm cannot be written.
    pub fn new() -> Dir {
        let tmp = tempfile::Builder::new().prefix("telereduce-test.").tempdir_in("/dev/shm").expect("/dev/shm");
        for d in ["segments", "snapshots"] {
            std::fs::create_dir(tmp.path().join(d)).expect("a new directory");
        }
        Dir(tmp)
    }

    /// `TELEREDUCE_DIR`.
    pub fn segment_dir(&self) -> PathBuf {
        self.0.path().join("segments")
    }

    /// For anything else.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The segments in it.
    ///
    /// # Panics
    /// The directory cannot be read.
    pub fn segments(&self) -> Vec<Found> {
        discover::list(&self.segment_dir()).expect("the segment directory")
    }

    /// Everything in the segment directory, by name.
    ///
    /// # Panics
    /// The directory cannot be read.
    pub fn names(&self) -> Vec<String> {
        names(&self.segment_dir())
    }

    /// The segment of a process, read as trtop does.
    ///
    /// # Panics
    /// It cannot be read.
    pub fn read(&self, pid: u32) -> SegmentJson {
        let found = self.segments().into_iter().find(|f| f.pid == pid).expect("a segment of this process");
        let mut reader = Reader::open(&found.path).expect("a readable segment");
        snapshot::segment(&mut reader, true).expect("a whole segment")
    }

    /// The final snapshots, by process id.
    ///
    /// # Panics
    /// One cannot be read.
    pub fn snapshots(&self) -> Vec<SegmentJson> {
        let dir = self.0.path().join("snapshots");
        let mut all: Vec<SegmentJson> = names(&dir).iter().flat_map(|n| read_snapshot(&dir.join(n)).segments).collect();
        all.sort_by_key(|s| s.pid);
        all
    }

    /// The final snapshot of the only process that wrote one.
    ///
    /// # Panics
    /// There are none or several.
    pub fn snapshot(&self) -> SegmentJson {
        let mut all = self.snapshots();
        assert_eq!(all.len(), 1, "one process writes one snapshot");
        all.remove(0)
    }
}

/// Names in a directory, sorted.
///
/// # Panics
/// It cannot be read.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut names: Vec<String> = entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

/// A snapshot file.
///
/// # Panics
/// It is missing or not the documented JSON.
pub fn read_snapshot(path: &Path) -> Snapshot {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let s: Snapshot = serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(s.schema, snapshot::SCHEMA);
    s
}

/// How a program ended, and what it said.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Process id.
    pub pid: u32,
    /// Exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
}

impl Outcome {
    /// It ended well.
    ///
    /// # Panics
    /// It did not.
    pub fn ok(self) -> Outcome {
        assert_eq!((self.code, self.signal), (Some(0), None), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// It ended well and nothing was said on stderr.
    ///
    /// # Panics
    /// It did not, or something was.
    pub fn silent(self) -> Outcome {
        let o = self.ok();
        assert_eq!(o.stderr, "");
        o
    }

    /// The only thing on stderr is one line of the library's.
    ///
    /// # Panics
    /// It is not.
    pub fn one_line(&self) -> &str {
        let lines: Vec<&str> = self.stderr.lines().collect();
        assert!(lines.len() == 1 && lines[0].starts_with("telereduce: "), "not one line: {:?}", self.stderr);
        lines[0]
    }
}

/// A program to run.
#[derive(Clone)]
pub struct Run {
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    script: Option<String>,
}

impl Run {
    /// Any program, with the software device as its libibverbs.
    pub fn new(program: impl Into<PathBuf>, args: &[&str]) -> Run {
        let r = Run {
            program: program.into(),
            args: args.iter().map(|a| (*a).into()).collect(),
            env: vec![],
            script: None,
        };
        r.env("LD_LIBRARY_PATH", built("nullverbs").to_str().expect("a path in UTF-8"))
    }

    /// One of `tests/programs`, its arguments after blanks.
    ///
    /// # Panics
    /// It was not built.
    pub fn program(line: &str) -> Run {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a program's name");
        Run::new(built(&format!("programs/{name}")), &words.collect::<Vec<_>>())
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Run {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Under the library, with segments and snapshots in `dir`.
    #[must_use]
    pub fn counted(self, dir: &Dir) -> Run {
        self.preload(&shim(), dir)
    }

    /// Under a given library.
    ///
    /// # Panics
    /// A path is not UTF-8.
    #[must_use]
    pub fn preload(self, library: &Path, dir: &Dir) -> Run {
        self.env("LD_PRELOAD", library.to_str().expect("a path in UTF-8"))
            .env("TELEREDUCE_DIR", dir.segment_dir().to_str().expect("a path in UTF-8"))
            .env("TELEREDUCE_SNAPSHOT", dir.path().join("snapshots/%p").to_str().expect("a path in UTF-8"))
    }

    /// Runs shell commands first, in the same process and environment; `exec "$@"` in them starts the program.
    #[must_use]
    pub fn in_shell(mut self, script: &str) -> Run {
        self.script = Some(script.into());
        self
    }

    /// As [`Run::in_shell`], where the commands may mount file systems that nobody else sees.
    #[must_use]
    pub fn in_private_mounts(self, script: &str) -> Run {
        self.in_private("-m", script)
    }

    /// In a network of its own, with a loopback interface that has all addresses of 192.0.2.0/24: those of the software
    /// device's GIDs.
    #[must_use]
    pub fn in_private_network(self) -> Run {
        self.in_private_networks("ip link set lo up; ip address add 192.0.2.1/24 dev lo; exec \"$@\"")
    }

    /// In an empty network of its own, which the commands fill, and in others that they make.
    #[must_use]
    pub fn in_private_networks(self, script: &str) -> Run {
        self.in_private("-n", script)
    }

    fn in_private(self, what: &str, script: &str) -> Run {
        let program = self.program.clone();
        let mut args = vec![what.to_string(), "sh".into(), "-ec".into(), script.into(), "sh".into()];
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            args.insert(0, "-r".into());
        }
        args.push(program.to_str().expect("a path in UTF-8").into());
        args.extend(self.args);
        Run { program: "unshare".into(), args, env: self.env, script: None }
    }

    fn command(&self) -> Command {
        let mut c;
        if let Some(script) = &self.script {
            c = Command::new("sh");
            c.args(["-ec", script, "sh"]).arg(&self.program);
        } else {
            c = Command::new(&self.program);
        }
        c.args(&self.args);
        for (name, _) in std::env::vars_os() {
            let n = name.to_string_lossy();
            let ours = n.starts_with("TELEREDUCE") || n.starts_with("NULLVERBS") || n.starts_with("LD_");
            if ours || n.contains("RANK") || n.contains("SIZE") || n.starts_with("SLURM") {
                c.env_remove(&name);
            }
        }
        c.envs(self.env.iter().map(|(k, v)| (k, v)));
        c
    }

    /// Runs it to its end, with nothing on stdin.
    ///
    /// # Panics
    /// It cannot be started, or takes longer than [`LIMIT`].
    pub fn run(&self) -> Outcome {
        self.start(Stdio::null()).finish()
    }

    /// Starts it; it ends when its stdin is closed, by [`Live::finish`].
    ///
    /// # Panics
    /// It cannot be started.
    pub fn live(&self) -> Live {
        self.start(Stdio::piped())
    }

    fn start(&self, stdin: Stdio) -> Live {
        let mut c = self.command();
        c.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = c.spawn().unwrap_or_else(|e| panic!("cannot run {c:?}: {e}"));
        let (out, err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let (send, lines) = channel();
        let reader = spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let errors = spawn(move || {
            let mut text = Vec::new();
            let _ = BufReader::new(err).read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Live { child, lines, said: String::new(), threads: Some((reader, errors)), until: Instant::now() + LIMIT }
    }
}

/// A program that runs.
pub struct Live {
    child: Child,
    lines: Receiver<String>,
    said: String,
    threads: Option<(JoinHandle<()>, JoinHandle<String>)>,
    until: Instant,
}

impl Live {
    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stdout so far.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Waits for a line of stdout.
    ///
    /// # Panics
    /// It does not come.
    pub fn wait_for(&mut self, wanted: &str) {
        while self.next_line().unwrap_or_else(|| panic!("no line {wanted:?} after {:?}", self.said)) != wanted {}
    }

    /// Writes to its stdin.
    ///
    /// # Panics
    /// It does not read.
    pub fn tell(&mut self, text: &str) {
        self.child.stdin.as_mut().expect("a live program's").write_all(text.as_bytes()).expect("a reader");
    }

    fn next_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(self.until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let _ = writeln!(self.said, "{line}");
                Some(line)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// It may run for as long from now on, instead of [`LIMIT`].
    pub fn may_take(&mut self, time: Duration) {
        self.until = Instant::now() + time;
    }

    /// Whether it is at its end.
    ///
    /// # Panics
    /// It cannot be waited for.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_some()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(self.pid() as i32, signal) };
    }

    /// Closes its stdin and waits for its end.
    ///
    /// # Panics
    /// It goes on for longer than [`LIMIT`], or what [`Live::may_take`] said.
    pub fn finish(mut self) -> Outcome {
        drop(self.child.stdin.take());
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                break status;
            }
            if Instant::now() > self.until {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("killed when its time was over, having said {:?}", self.said);
            }
            sleep(Duration::from_millis(1));
        };
        while self.next_line().is_some() {}
        let (out, err) = self.threads.take().expect("taken once");
        out.join().expect("the reader of stdout");
        let stderr = err.join().expect("the reader of stderr");
        let stdout = core::mem::take(&mut self.said);
        Outcome { pid: self.pid(), code: status.code(), signal: status.signal(), stdout, stderr }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.threads.is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
