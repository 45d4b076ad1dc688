//! `trtop run`: becomes the command, with the library preloaded, and NCCL told that it is its profiler plugin.

use crate::cli::RunArgs;
use crate::error::{Failure, Outcome};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library's file name.
pub const LIBRARY: &str = "libtelereduce.so";
/// Where NCCL looks for its profiler plugin.
const PLUGIN: &str = "NCCL_PROFILER_PLUGIN";

/// Replaces this process by the command; comes back only if that fails.
///
/// # Errors
/// The library or the command cannot be found or started.
pub fn run(o: &RunArgs) -> Outcome {
    let lib = match &o.lib {
        Some(path) => usable(path)?,
        None => find(&std::env::current_exe().unwrap_or_default())?,
    };
    let preload = preload(&lib, std::env::var_os("LD_PRELOAD").as_deref());
    let mut command = Command::new(&o.command[0]);
    command.args(&o.command[1..]).env("LD_PRELOAD", preload);
    if std::env::var_os(PLUGIN).is_none() {
        // What is preloaded is searched as if it were the program's own.
        command.env(PLUGIN, "STATIC_PLUGIN");
    }
    let e = command.exec();
    let code = if e.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    Err(Failure { code, message: format!("cannot run {}: {e}", o.command[0].display()) })
}

/// The library beside the executable, or in `../lib` from there.
fn find(exe: &Path) -> Result<PathBuf, Failure> {
    let dir = exe.parent().unwrap_or(Path::new("."));
    let places = [dir.join(LIBRARY), dir.join("../lib").join(LIBRARY)];
    match places.iter().find(|p| p.is_file()) {
        Some(p) => usable(p),
        None => Err(Failure::new(format!(
            "{LIBRARY} is neither in {} nor in {}: say where it is with --lib PATH",
            dir.display(),
            dir.join("../lib").display()
        ))),
    }
}

/// An absolute name that the dynamic linker takes; it splits LD_PRELOAD at colons and spaces.
fn usable(path: &Path) -> Result<PathBuf, Failure> {
    let full = path.canonicalize().map_err(|e| Failure::new(format!("cannot preload {}: {e}", path.display())))?;
    std::fs::File::open(&full)
        .and_then(|f| f.metadata())
        .and_then(|m| m.is_file().then_some(()).ok_or_else(|| std::io::Error::other("not a file")))
        .map_err(|e| Failure::new(format!("cannot preload {}: {e}", full.display())))?;
    if full.as_os_str().as_bytes().iter().any(|b| matches!(b, b':' | b' ' | b'\t' | b'\n')) {
        return Err(Failure::new(format!(
            "cannot preload {}: LD_PRELOAD allows no colon or blank in a name; put the library elsewhere",
            full.display()
        )));
    }
    Ok(full)
}

fn preload(lib: &Path, before: Option<&OsStr>) -> OsString {
    let mut v = lib.as_os_str().to_os_string();
    if let Some(rest) = before.filter(|r| !r.is_empty()) {
        v.push(":");
        v.push(rest);
    }
    v
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_goes_before_what_was_preloaded() {
        let p = |before: Option<&str>| preload(Path::new("/a/l.so"), before.map(OsStr::new));
        assert_eq!(p(None), "/a/l.so");
        assert_eq!(p(Some("")), "/a/l.so");
        assert_eq!(p(Some("/b.so /c.so")), "/a/l.so:/b.so /c.so");
    }

    #[test]
    fn the_library_is_found_beside_the_executable_or_in_lib() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for d in ["bin", "lib"] {
            std::fs::create_dir(root.join(d)).unwrap();
        }
        let exe = root.join("bin/trtop");
        let message = find(&exe).unwrap_err().message;
        assert!(message.contains("--lib PATH"), "{message}");
        std::fs::write(root.join("lib").join(LIBRARY), "").unwrap();
        assert_eq!(find(&exe).unwrap(), root.join("lib").join(LIBRARY));
        std::fs::write(root.join("bin").join(LIBRARY), "").unwrap();
        assert_eq!(find(&exe).unwrap(), root.join("bin").join(LIBRARY));
    }

    #[test]
    fn a_name_that_the_linker_would_split_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b.so");
        std::fs::write(&path, "").unwrap();
        assert!(usable(&path).unwrap_err().message.contains("blank"));
        assert!(usable(dir.path()).is_err());
        assert!(usable(&dir.path().join("none.so")).is_err());
    }
}
