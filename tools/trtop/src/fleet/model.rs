//! What a fleet is: its hosts, its flows, its alerts, and the matrix of who sends how much to whom.

use super::client::{Client, RawAlert, Sample};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// The recorded rule that the matrix is made of.
pub const FLOWS: &str = "telereduce:flow_send_bits:rate30s";
/// All targets of every job that has scraped a `trtop serve` within the last hour.
const TARGETS: &str = "up and on (job) group by (job) (last_over_time(telereduce_segments_unreadable[1h]))";
/// Live processes by host; a host that had any within the last hour keeps its name.
const PROCESSES: &str = "sum by (instance, host) (telereduce_process_up) \
                         or 0 * group by (instance, host) (last_over_time(telereduce_process_info[1h]))";
const OUTSTANDING: &str = "sum by (instance, host) (telereduce_outstanding_bytes{direction=\"send\"})";

/// All that is shown.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Fleet {
    /// Prometheus's URL.
    pub prometheus: String,
    /// Hosts.
    pub hosts: Vec<Host>,
    /// Flows.
    pub flows: Vec<Flow>,
    /// Alerts, firing ones first.
    pub alerts: Vec<Alert>,
}

/// A host that Prometheus scrapes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    /// What Prometheus calls it.
    pub instance: String,
    /// What its processes call it, if there were any.
    pub host: Option<String>,
    /// Whether the last scrape succeeded.
    pub up: bool,
    /// Live processes.
    pub processes: u64,
    /// Bytes of sends outstanding.
    pub outstanding_bytes: f64,
}

/// What a process sends to a peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Flow {
    /// Host of the sender.
    pub host: String,
    /// Its process.
    pub pid: String,
    /// Its rank.
    pub rank: Option<u64>,
    /// Its port.
    pub device: String,
    /// Port number.
    pub port: String,
    /// Address of the peer.
    pub peer: String,
    /// Host that has this address.
    pub peer_host: Option<String>,
    /// Rank there.
    pub peer_rank: Option<u64>,
    /// Over the last 30 s.
    pub bits_per_s: f64,
}

/// A pending or firing alert.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alert {
    /// Name.
    pub name: String,
    /// pending or firing.
    pub state: String,
    /// Severity.
    pub severity: String,
    /// Since when, as Prometheus writes it.
    pub since: String,
    /// One line.
    pub summary: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

impl Fleet {
    /// Asks.
    ///
    /// # Errors
    /// What is wrong, where, and what to do.
    pub fn ask(client: &Client, until: Instant) -> Result<Fleet, String> {
        let flows = client.query(FLOWS, until)?;
        let targets = client.query(TARGETS, until)?;
        if targets.is_empty() {
            return Err(format!(
                "Prometheus at {} scrapes no `trtop serve`: there is no series telereduce_segments_unreadable (scrape \
                 configuration: tools/fleet/prometheus.yml)",
                client.url()
            ));
        }
        if flows.is_empty() && !client.records(FLOWS, until)? {
            return Err(format!(
                "Prometheus at {} does not record {FLOWS}: load tools/fleet/rules.yml by rule_files",
                client.url()
            ));
        }
        let processes = client.query(PROCESSES, until)?;
        let outstanding = client.query(OUTSTANDING, until)?;
        let alerts = client.alerts(until)?;
        Ok(Fleet {
            prometheus: client.url().into(),
            hosts: hosts(&targets, &processes, &outstanding),
            flows: flows.iter().map(flow).collect(),
            alerts: alerts_of(alerts),
        })
    }

    /// How many hosts answer, and how many do not.
    pub fn up_and_down(&self) -> (usize, usize) {
        let mut instances: BTreeMap<&str, bool> = BTreeMap::new();
        for h in &self.hosts {
            instances.insert(&h.instance, h.up);
        }
        let up = instances.values().filter(|u| **u).count();
        (up, instances.len() - up)
    }

    /// Alerts that fire.
    pub fn firing(&self) -> usize {
        self.alerts.iter().filter(|a| a.state == "firing").count()
    }
}

/// What labels say goes to terminals, which nothing in them may steer.
fn clean(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| clean(text))
}

fn flow(s: &Sample) -> Flow {
    Flow {
        host: clean(s.label("host")),
        pid: clean(s.label("pid")),
        rank: s.label("rank").parse().ok(),
        device: clean(s.label("device")),
        port: clean(s.label("port")),
        peer: clean(s.label("peer")),
        peer_host: some(s.label("peer_host")),
        peer_rank: s.label("peer_rank").parse().ok(),
        bits_per_s: s.value,
    }
}

/// A row for each name that a target's processes have for their host: containers have their own.
fn hosts(targets: &[Sample], processes: &[Sample], outstanding: &[Sample]) -> Vec<Host> {
    let key = |s: &Sample| (s.label("instance").to_string(), s.label("host").to_string());
    let outstanding: BTreeMap<_, f64> = outstanding.iter().map(|s| (key(s), s.value)).collect();
    let mut names: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for p in processes {
        names.entry(p.label("instance")).or_default().push(p);
    }
    let mut all = Vec::new();
    for t in targets {
        let (instance, up) = (t.label("instance").to_string(), t.value == 1.0);
        let row = |host, processes, outstanding_bytes| Host {
            instance: clean(&instance),
            host,
            up,
            processes,
            outstanding_bytes,
        };
        match names.get(t.label("instance")) {
            None => all.push(row(None, 0, 0.0)),
            Some(of) => {
                all.extend(of.iter().map(|p| {
                    row(some(p.label("host")), p.value as u64, outstanding.get(&key(p)).copied().unwrap_or(0.0))
                }))
            }
        }
    }
    all.sort_by(|a, b| (a.up, &a.host, &a.instance).cmp(&(b.up, &b.host, &b.instance)));
    all
}

/// Those of tools/fleet/rules.yml.
fn alerts_of(raw: Vec<RawAlert>) -> Vec<Alert> {
    let label = |a: &RawAlert, name: &str| a.labels.get(name).map(|l| clean(l)).unwrap_or_default();
    let mut all: Vec<Alert> = raw
        .into_iter()
        .filter(|a| label(a, "alertname").starts_with("Telereduce"))
        .map(|a| Alert {
            name: label(&a, "alertname"),
            severity: label(&a, "severity"),
            summary: a.annotations.get("summary").map(|s| clean(s)).unwrap_or_default(),
            state: clean(&a.state),
            since: clean(&a.active_at),
            labels: a.labels,
        })
        .collect();
    all.sort_by(|a, b| (&a.state, &a.name, &a.summary).cmp(&(&b.state, &b.name, &b.summary)));
    all
}
