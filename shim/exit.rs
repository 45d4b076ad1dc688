//! The end of the process: the final snapshot, and the segment is removed.

use crate::{guard, log, state};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use telereduce::config;
use telereduce::shm::segment::largest_file;
use telereduce::shm::{reader::Reader, snapshot};

extern "C" fn at_exit() {
    guard::run(|| {
        let Some(s) = state::get() else { return };
        // A child that was forked without our handler (a raw clone) must not touch its parent's segment.
        if std::process::id() != s.who.pid {
            return;
        }
        if let Some(template) = &s.config.snapshot {
            let name = config::expand(template, s.who.pid, &s.who.host, s.who.rank);
            if let Err(e) = write_snapshot(s, Path::new(&name)) {
                log::line(format_args!("cannot write the snapshot {name}: {e}"));
            }
        }
        s.telemetry.segment().unlink();
    });
}

// The linker's array of finalisers: run after every atexit handler that the application registered.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = at_exit;

fn write_snapshot(s: &state::State, path: &Path) -> io::Result<()> {
    let segment = s.telemetry.segment();
    // The file may have been removed, or the program may have closed our descriptor, but hardly both.
    let mut reader = Reader::open(segment.path())
        .or_else(|_| Reader::from_file(segment.file().try_clone()?))
        .map_err(io::Error::other)?;
    let mut segment = snapshot::segment(&mut reader, true).map_err(io::Error::other)?;
    segment.alive = false;
    let mut json = serde_json::to_vec_pretty(&snapshot::dump(vec![segment])).map_err(io::Error::other)?;
    json.push(b'\n');
    // The kernel would end the program with SIGXFSZ.
    if json.len() as u64 > largest_file() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    File::create(path)?.write_all(&json)
}
