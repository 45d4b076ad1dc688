//! The fleet as a table, JSON or CSV.

use super::matrix::Matrix;
use super::model::{Fleet, Flow, Host};
use crate::cli::Format;
use crate::text_table::TextTable;
use crate::units::{bits_per_s, bytes, per_s};
use serde::Serialize;
use std::fmt::Write;

/// More columns than these are not read in a terminal: pairs are listed instead.
const WIDEST: usize = 16;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    fleet: &'a Fleet,
    matrix: Matrix,
}

/// As text.
pub fn render(fleet: &Fleet, format: Format) -> String {
    match format {
        Format::Json => json(fleet),
        Format::Csv => csv(&fleet.flows),
        Format::Table => table(fleet),
    }
}

fn json(fleet: &Fleet) -> String {
    let document = Document { schema: "telereduce-fleet/1", fleet, matrix: Matrix::of(&fleet.flows) };
    // Strings, numbers and lists only: there is nothing that JSON cannot say.
    serde_json::to_string(&document).unwrap_or_default() + "\n"
}

/// A row per flow.
fn csv(flows: &[Flow]) -> String {
    let mut out = String::from("host,pid,rank,device,port,peer,peer_host,peer_rank,bits_per_s\n");
    let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
    for f in flows {
        let peer_host = f.peer_host.as_deref().unwrap_or("");
        let cells = [&f.host, &f.pid, &number(f.rank), &f.device, &f.port, &f.peer, peer_host, &number(f.peer_rank)];
        for c in cells {
            out += &quoted(c);
            out.push(',');
        }
        let _ = writeln!(out, "{}", f.bits_per_s);
    }
    out
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.into() }
}

fn table(fleet: &Fleet) -> String {
    let mut out = String::new();
    for (title, lines) in [
        ("HOSTS", hosts(&fleet.hosts, &fleet.flows)),
        ("MATRIX", matrix(&Matrix::of(&fleet.flows))),
        ("ALERTS", alerts(fleet)),
    ] {
        let _ = writeln!(out, "{title}");
        lines.iter().for_each(|l| _ = writeln!(out, "  {l}"));
    }
    out
}

/// What of this is known of nothing.
pub const NO_FLOWS: &str = "nobody sends anything that is known";
/// No alerts.
pub const NO_ALERTS: &str = "no alerts";

fn lines(table: &TextTable) -> Vec<String> {
    table.text("").lines().map(Into::into).collect()
}

/// A line per host, those that are down first.
pub fn hosts(hosts: &[Host], flows: &[Flow]) -> Vec<String> {
    let mut t = TextTable::new(&["HOST", "INSTANCE", "STATE", ">PROCESSES", ">SENDS", ">OUTSTANDING"]);
    let mut sent = std::collections::BTreeMap::<&str, f64>::new();
    for f in flows {
        *sent.entry(&f.host).or_default() += f.bits_per_s;
    }
    for h in hosts {
        let known = |text: String| if h.up { text } else { "-".into() };
        t.row(vec![
            h.host.clone().unwrap_or_else(|| "-".into()),
            h.instance.clone(),
            if h.up { "up" } else { "DOWN" }.into(),
            known(h.processes.to_string()),
            known(bits_per_s(h.host.as_deref().and_then(|n| sent.get(n)).copied().unwrap_or(0.0) / 8.0)),
            known(bytes(h.outstanding_bytes as u64)),
        ]);
    }
    lines(&t)
}

/// The matrix, or its pairs, if it is too wide.
fn matrix(m: &Matrix) -> Vec<String> {
    if m.from.is_empty() {
        return vec![NO_FLOWS.into()];
    }
    if m.to.len() > WIDEST {
        return pairs(m);
    }
    let mut out = vec![format!("{} from row to column, bits per second", "bandwidth")];
    let names = m.from.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = m.to.iter().map(|n| n.chars().count().max(5)).collect();
    let row = |name: &str, cells: Vec<String>| {
        let mut line = format!("{name:names$}");
        cells.iter().zip(&widths).for_each(|(c, w)| _ = write!(line, "  {c:>w$}"));
        line
    };
    out.push(row("", m.to.clone()));
    for (name, cells) in m.from.iter().zip(&m.bits_per_s) {
        out.push(row(name, cells.iter().map(|c| cell(*c)).collect()));
    }
    out
}

/// At most five characters.
pub fn cell(bits_per_s: Option<f64>) -> String {
    bits_per_s.map_or_else(|| ".".into(), per_s)
}

/// A line per pair with a flow, the slowest first.
pub fn pairs(m: &Matrix) -> Vec<String> {
    let mut t = TextTable::new(&["FROM", "TO", ">BANDWIDTH", ">OF MEDIAN"]);
    let median = m.median();
    for (from, to, bits) in m.pairs() {
        let share = if median > 0.0 { format!("{:.0} %", bits / median * 100.0) } else { "-".into() };
        t.row(vec![from.into(), to.into(), bits_per_s(bits / 8.0), share]);
    }
    if t.is_empty() { vec![NO_FLOWS.into()] } else { lines(&t) }
}

/// A line per alert, firing ones first.
pub fn alerts(fleet: &Fleet) -> Vec<String> {
    let mut t = TextTable::new(&["STATE", "SINCE", "SEVERITY", "ALERT", "SUMMARY"]);
    for a in &fleet.alerts {
        let since = a.since.get(..19).unwrap_or(&a.since);
        t.row(vec![a.state.clone(), since.into(), a.severity.clone(), a.name.clone(), a.summary.clone()]);
    }
    if t.is_empty() { vec![NO_ALERTS.into()] } else { lines(&t) }
}
