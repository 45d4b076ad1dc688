//! Finding segments, and telling a live one from what a crash left behind.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where segments are, unless `TELEREDUCE_DIR` says otherwise.
pub const DEFAULT_DIR: &str = "/dev/shm";

/// A file whose name is a segment's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file.
    pub path: PathBuf,
    /// User id in the name.
    pub uid: u32,
    /// Process id in the name.
    pub pid: u32,
}

/// Every `telereduce.UID.PID` in `dir`, sorted by process id. Other names are skipped.
///
/// # Errors
/// The directory cannot be read.
pub fn list(dir: &Path) -> io::Result<Vec<Found>> {
    let mut found: Vec<Found> = fs::read_dir(dir)?
        .flatten()
        .filter_map(|e| {
            let name = e.file_name();
            let (uid, pid) = parse_name(name.to_str()?)?;
            Some(Found { path: e.path(), uid, pid })
        })
        .collect();
    found.sort_by_key(|f| (f.pid, f.uid));
    Ok(found)
}

fn parse_name(name: &str) -> Option<(u32, u32)> {
    let (uid, pid) = name.strip_prefix("telereduce.")?.split_once('.')?;
    Some((uid.parse().ok()?, pid.parse().ok()?))
}

/// Opens a segment for reading: a regular file, not a symbolic link, owned by the user in its name.
///
/// # Errors
/// As open says, or `InvalidData` naming what is wrong with the file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    let invalid = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    if !meta.is_file() {
        return invalid("not a regular file".into());
    }
    if let Some((uid, _)) = path.file_name().and_then(|n| n.to_str()).and_then(parse_name)
        && meta.uid() != uid
    {
        return invalid(format!("owned by user {} but named for user {uid}", meta.uid()));
    }
    Ok(file)
}

/// Whether the process that made the segment still holds it. The kernel drops the lock when the process ends,
/// however it ends, in any pid namespace.
pub fn is_locked(path: &Path) -> bool {
    open(path).is_ok_and(|f| is_held(&f))
}

/// As [`is_locked`], for an open file.
pub fn is_held(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: flock on an open descriptor; a shared lock taken here is given back at once.
    unsafe {
        if libc::flock(fd, libc::LOCK_SH | libc::LOCK_NB) == 0 {
            libc::flock(fd, libc::LOCK_UN);
            false
        } else {
            io::Error::last_os_error().raw_os_error() == Some(libc::EWOULDBLOCK)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_segment_names_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        for n in ["telereduce.0.12", "telereduce.1000.7", "telereduce.x.1", "telereduce.1", "other", "telereduce.1.2.3"]
        {
            fs::write(dir.path().join(n), "").unwrap();
        }
        let pids: Vec<u32> = list(dir.path()).unwrap().iter().map(|f| f.pid).collect();
        assert_eq!(pids, [7, 12]);
    }

    #[test]
    fn a_lock_is_seen_by_others_and_ends_with_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "").unwrap();
        assert!(!is_locked(&path));
        let holder = File::open(&path).unwrap();
        // SAFETY: an open descriptor.
        assert_eq!(unsafe { libc::flock(holder.as_raw_fd(), libc::LOCK_EX) }, 0);
        assert!(is_locked(&path));
        drop(holder);
        assert!(!is_locked(&path));
    }

    #[test]
    fn a_symbolic_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("target"), "").unwrap();
        std::os::unix::fs::symlink(dir.path().join("target"), dir.path().join("telereduce.0.1")).unwrap();
        assert!(open(&dir.path().join("telereduce.0.1")).is_err());
    }
}
