//! `trtop clean`: removes what dead processes left behind, and nothing else.
//!
//! A process holds a lock on its segment as long as it lives, and takes it before the segment is complete. So a complete
//! segment that nobody holds is a dead one's; a file that is no segment may be one that is just being made, until it is
//! ten seconds old. We hold the lock ourselves while we remove the file: a new process of the same number then finds
//! it held and leaves it alone.

use crate::cli::CleanArgs;
use crate::error::{Failure, Outcome, print};
use crate::inspect::{self, Inspected, State};
use rustix::fs::{FlockOperation, flock};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// A file that is no complete segment is left alone for this long.
const YOUNG: Duration = Duration::from_secs(10);

/// Removes dead segments.
///
/// # Errors
/// The directory cannot be read, or a file that should go cannot be removed.
pub fn run(o: &CleanArgs) -> Outcome {
    let dir = inspect::directory();
    let files = inspect::all(&dir, &[]).map_err(|e| Failure::new(format!("cannot read {}: {e}", dir.display())))?;
    let user = rustix::process::geteuid().as_raw();
    let (mut out, mut removed, mut failed) = (String::new(), 0, 0);
    for f in files {
        let Some(why) = reason(&f, user) else { continue };
        let name = f.found.path.display();
        if o.dry_run {
            out += &format!("would remove {name}: {why}\n");
            removed += 1;
            continue;
        }
        match remove(&f) {
            Ok(true) => {
                out += &format!("removed {name}: {why}\n");
                removed += 1;
            }
            Ok(false) => out += &format!("kept {name}: it is in use again\n"),
            Err(e) => {
                eprintln!("trtop: cannot remove {name}: {e}");
                failed += 1;
            }
        }
    }
    if removed == 0 && failed == 0 {
        out += "nothing to remove\n";
    }
    print(&out)?;
    if failed > 0 { Err(Failure { code: 1, message: String::new() }) } else { Ok(()) }
}

/// Why a file should go; `None` if it must stay.
fn reason(f: &Inspected, user: u32) -> Option<String> {
    let owner = f.file.as_ref()?.metadata().ok()?.uid();
    if f.held || (user != 0 && owner != user) {
        return None;
    }
    match &f.state {
        State::Dead => Some(format!("process {} has ended", f.found.pid)),
        State::Unfinished if f.age >= YOUNG => Some("not a complete segment".into()),
        State::Damaged(why) if f.age >= YOUNG => Some(why.clone()),
        _ => None,
    }
}

/// Removes the file if nobody took it meanwhile; whether it did.
fn remove(f: &Inspected) -> std::io::Result<bool> {
    let Some(file) = &f.file else { return Ok(false) };
    if flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(false);
    }
    let result = if f.is_still_there() { std::fs::remove_file(&f.found.path).map(|()| true) } else { Ok(false) };
    let _ = flock(file, FlockOperation::Unlock);
    match result {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        other => other,
    }
}
