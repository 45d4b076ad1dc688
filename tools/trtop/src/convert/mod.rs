//! `trtop export`: a recording in formats that other programs read. One file per format.

mod parquet;
mod perfetto;

use crate::cli::{ExportArgs, ExportFormat};
use crate::csv;
use crate::error::{Failure, Outcome};
use crate::recording::player::Player;
use crate::recording::snapshots::Snapshots;
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use telereduce::shm::snapshot::Snapshot;

/// Writes the frames of a recording, one after the other.
trait Target {
    /// Writes the next frame.
    fn frame(&mut self, s: &Snapshot) -> io::Result<()>;
    /// Writes what comes after the last.
    fn end(&mut self) -> io::Result<()>;
}

/// Exports.
///
/// # Errors
/// The recording cannot be read, or the output not written.
pub fn run(o: &ExportArgs) -> Outcome {
    let player = Player::open(&o.from)?;
    match &o.output {
        None => write(o, player, Box::new(io::stdout()), |e| Failure::output(&e)),
        Some(path) => {
            let failed = |e: io::Error| Failure::new(format!("cannot write {}: {e}", path.display()));
            into_file(path, failed, |file| write(o, player, file, failed))
        }
    }
}

/// Has `write` fill a file that is there complete or not at all. A pipe or a device is written, not replaced.
pub fn into_file(
    path: &Path,
    failed: impl Fn(io::Error) -> Failure,
    write: impl FnOnce(Box<dyn Write + Send>) -> Outcome,
) -> Outcome {
    if path.exists() && !path.is_file() {
        return write(Box::new(File::options().write(true).open(path).map_err(failed)?));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut hidden = tempfile::Builder::new();
    hidden.prefix(".trtop.").permissions(Permissions::from_mode(0o666));
    let file = hidden.tempfile_in(folder).map_err(&failed)?;
    write(Box::new(file.reopen().map_err(&failed)?))?;
    file.as_file().sync_all().map_err(&failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}

fn write(o: &ExportArgs, player: Player, to: Box<dyn Write + Send>, failed: impl Fn(io::Error) -> Failure) -> Outcome {
    let start_ns = player.frames()[0].time_ns;
    let to: Out = BufWriter::with_capacity(1 << 16, to);
    let mut target: Box<dyn Target> = match o.to {
        ExportFormat::Json => Box::new(Json(to)),
        ExportFormat::Csv => Box::new(Csv(to, false)),
        ExportFormat::Perfetto => Box::new(perfetto::Trace::new(to, start_ns)),
        ExportFormat::Parquet => Box::new(parquet::Table::new(to).map_err(&failed)?),
    };
    let every_ns = o.every.map_or(0, |s| (s * 1e9) as u64);
    let mut snapshots = Snapshots::new(player);
    let mut next_ns = 0;
    for i in 0..snapshots.player().frames().len() {
        let time_ns = snapshots.player().frames()[i].time_ns;
        if time_ns < next_ns {
            continue;
        }
        next_ns = time_ns.saturating_add(every_ns);
        let s = snapshots.at(i, &o.pid)?;
        target.frame(&s).map_err(&failed)?;
    }
    target.end().map_err(&failed)
}

/// Where all of them write to.
type Out = BufWriter<Box<dyn Write + Send>>;

/// JSON lines.
struct Json(Out);

impl Target for Json {
    fn frame(&mut self, s: &Snapshot) -> io::Result<()> {
        serde_json::to_writer(&mut self.0, s)?;
        self.0.write_all(b"\n")
    }

    fn end(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// CSV; whether its first line is written.
struct Csv(Out, bool);

impl Target for Csv {
    fn frame(&mut self, s: &Snapshot) -> io::Result<()> {
        if !std::mem::replace(&mut self.1, true) {
            self.0.write_all(csv::header(true).as_bytes())?;
        }
        self.0.write_all(csv::rows(s, true).as_bytes())
    }

    fn end(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
