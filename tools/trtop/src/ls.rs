//! `trtop ls`: one line per segment.

use crate::cli::LsArgs;
use crate::error::{Failure, Outcome, print};
use crate::inspect::{self, Inspected, State};
use crate::text_table::TextTable;
use crate::units;

/// Lists segments.
///
/// # Errors
/// The directory cannot be read, or there is no segment.
pub fn run(o: &LsArgs) -> Outcome {
    let dir = inspect::directory();
    let files = inspect::all(&dir, &o.pid).map_err(|e| Failure::new(format!("cannot read {}: {e}", dir.display())))?;
    let mut t = TextTable::new(&[">PID", ">UID", "STATE", ">AGE", ">RANK", "PORTS", ">QPS", "COMMAND"]);
    files.for_each(|f| t.row(row(&f)));
    if t.is_empty() {
        return Err(none(&dir, &o.pid));
    }
    print(&t.text(""))
}

/// There is no segment: where we looked, and how to get one.
pub fn none(dir: &std::path::Path, pids: &[u32]) -> Failure {
    let of = match pids {
        [] => String::new(),
        pids => format!(" of process {}", pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    };
    Failure::new(format!(
        "no segment{of} in {}; one appears when a program under libtelereduce.so opens its first RDMA device \
         (start it with: trtop run -- COMMAND)",
        dir.display()
    ))
}

fn row(f: &Inspected) -> Vec<String> {
    let c = f.contents.as_ref();
    let or_dash = |s: Option<String>| s.unwrap_or_else(|| "-".into());
    let last = match (&f.state, c) {
        (_, Some(c)) => c.command.clone(),
        (State::Damaged(why), _) => format!("({why})"),
        (State::Denied, _) => "(another user's)".into(),
        (State::Unfinished, _) if f.held => "(its process is creating it)".into(),
        _ => "(not a complete segment)".into(),
    };
    vec![
        f.found.pid.to_string(),
        f.found.uid.to_string(),
        f.state.word().into(),
        units::age(f.age.as_secs()),
        or_dash(c.and_then(|c| c.rank).map(|r| r.to_string())),
        or_dash(c.map(|c| c.ports.join(",")).filter(|p| !p.is_empty())),
        or_dash(c.map(|c| c.qps.to_string())),
        last,
    ]
}
