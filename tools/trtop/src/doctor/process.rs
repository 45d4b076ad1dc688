//! What `/proc` tells of a process: which libraries it has, and whether it uses RDMA devices.

use std::fs;
use std::path::Path;

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Number.
    pub pid: u32,
    /// Command line.
    pub command: String,
    /// File names of mapped libraries.
    pub libraries: Vec<String>,
    /// `TELEREDUCE` in the environment it was started with.
    pub setting: Option<String>,
    /// It has an RDMA device open.
    pub uses_rdma: bool,
    /// Its libraries could not be read: another user's.
    pub denied: bool,
}

impl Facts {
    /// Whether a library whose file name starts so is mapped.
    pub fn has(&self, library: &str) -> bool {
        self.libraries.iter().any(|l| l.starts_with(library))
    }
}

/// Facts of process `pid`, under the root of procfs. What cannot be read is empty.
pub fn facts(proc: &Path, pid: u32) -> Facts {
    let at = proc.join(pid.to_string());
    let text = |file: &str| String::from_utf8_lossy(&fs::read(at.join(file)).unwrap_or_default()).into_owned();
    let name_of = |line: &str| Some(line[line.find('/')?..].rsplit('/').next()?.to_string());
    let mut libraries: Vec<String> =
        text("maps").lines().filter_map(name_of).filter(|name| name.contains(".so")).collect();
    libraries.sort_unstable();
    libraries.dedup();
    let uses_rdma = fs::read_dir(at.join("fd")).into_iter().flatten().flatten().any(|fd| {
        fs::read_link(fd.path()).is_ok_and(|target| target.to_string_lossy().starts_with("/dev/infiniband/uverbs"))
    });
    Facts {
        pid,
        command: text("cmdline").trim_end_matches('\0').replace('\0', " "),
        denied: fs::File::open(at.join("maps")).is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied),
        setting: text("environ").split('\0').find_map(|v| v.strip_prefix("TELEREDUCE=")).map(str::to_string),
        libraries,
        uses_rdma,
    }
}

/// Processes without a segment: those of `pids`, or, if that is empty, all that have an RDMA device open.
pub fn strangers(proc: &Path, pids: &[u32], known: &[u32]) -> Vec<Facts> {
    let all = fs::read_dir(proc).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = all.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    numbers.retain(|pid| !known.contains(pid) && (pids.is_empty() || pids.contains(pid)));
    numbers.sort_unstable();
    let facts = numbers.into_iter().map(|pid| facts(proc, pid));
    facts.filter(|f| f.uses_rdma || !pids.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(root: &Path, pid: u32, maps: &str, device: Option<&str>) {
        let at = root.join(pid.to_string());
        fs::create_dir_all(at.join("fd")).unwrap();
        fs::write(at.join("maps"), maps).unwrap();
        fs::write(at.join("cmdline"), "prog\0-x\0").unwrap();
        fs::write(at.join("environ"), "A=1\0TELEREDUCE=off\0").unwrap();
        if let Some(d) = device {
            std::os::unix::fs::symlink(d, at.join("fd/3")).unwrap();
        }
    }

    #[test]
    fn libraries_settings_and_devices_are_found() {
        let root = tempfile::tempdir().unwrap();
        let maps = "7f00-7f01 r-xp 0000 08:01 1  /usr/lib/libibverbs.so.1.14\n7f02-7f03 rw-p 0000 00:00 0\n\
                    7f04-7f05 r-xp 0000 08:01 2  /usr/lib/ucx/libuct_ib.so.0\n7f06-7f07 r--p 0 08:01 3  /usr/bin/prog\n";
        process(root.path(), 10, maps, Some("/dev/infiniband/uverbs0"));
        process(root.path(), 11, "", None);
        let f = facts(root.path(), 10);
        assert_eq!((f.command.as_str(), f.setting.as_deref(), f.uses_rdma), ("prog -x", Some("off"), true));
        assert_eq!(f.libraries, ["libibverbs.so.1.14", "libuct_ib.so.0"]);
        assert!(f.has("libibverbs.so") && !f.has("libtelereduce.so"));
        let pids = |f: Vec<Facts>| f.iter().map(|f| f.pid).collect::<Vec<_>>();
        assert_eq!(pids(strangers(root.path(), &[], &[])), [10]);
        assert_eq!(pids(strangers(root.path(), &[], &[10])), [0; 0]);
        assert_eq!(pids(strangers(root.path(), &[11, 12], &[])), [11]);
    }
}
