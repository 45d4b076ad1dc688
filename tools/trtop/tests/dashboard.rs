//! tools/fleet/dashboard.json and rules.yml name only what there is: metrics of `trtop serve`, recorded rules, and their labels.

mod support;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use support::{carry, segment, who};
use trtop::cli::Per;
use trtop::serve::metrics::Exposition;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fleet").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All names of metrics of a host with everything that there is a metric of, as samples have them, with their labels.
fn served() -> BTreeMap<String, BTreeSet<String>> {
    let (dir, sys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gids = sys.path().join("class/infiniband/mlx5_0/ports/1/gids");
    std::fs::create_dir_all(&gids).unwrap();
    std::fs::write(gids.join("0"), "::ffff:10.1.0.1").unwrap();
    let made = segment(dir.path(), &who(4000, "job", Some(1)), 2);
    made.traffic(0, 10, 65536, 4, 3000);
    made.failure(0, 12, 0);
    made.stalls();
    made.lanes(2).iter().for_each(|l| carry(l, 1000));
    let mut all = BTreeMap::<String, BTreeSet<String>>::new();
    for per in [Per::Port, Per::Peer, Per::Qp] {
        let text = trtop::serve::scrape(dir.path(), sys.path(), per, Exposition::OpenMetrics, |_, _| {}).unwrap();
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let (name, rest) = line.split_once(['{', ' ']).unwrap();
            let labels = rest.split(',').filter_map(|l| Some(l.split_once('=')?.0.to_string()));
            all.entry(name.into()).or_default().extend(labels);
        }
    }
    all
}

fn rules() -> Vec<serde_norway::Value> {
    let file: serde_norway::Value = serde_norway::from_str(&file("rules.yml")).unwrap();
    let groups = file["groups"].as_sequence().unwrap();
    groups.iter().flat_map(|g| g["rules"].as_sequence().unwrap().clone()).collect()
}

fn recorded() -> BTreeSet<String> {
    rules().iter().filter_map(|r| r["record"].as_str().map(Into::into)).collect()
}

/// The metrics and rules of ours that an expression names.
fn names(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    words.filter(|w| w.starts_with("telereduce")).map(Into::into).collect()
}

fn check(what: &str, expression: &str, served: &BTreeMap<String, BTreeSet<String>>, recorded: &BTreeSet<String>) {
    for n in names(expression) {
        assert!(served.contains_key(&n) || recorded.contains(&n), "{what}: there is no {n} in {expression}");
    }
}

/// Everything that is called `key` in `v`, however deep.
fn all<'a>(v: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match v {
        Value::Object(o) => o.iter().for_each(|(k, v)| match v.as_str() {
            Some(text) if k == key => found.push(text),
            _ => all(v, key, found),
        }),
        Value::Array(a) => a.iter().for_each(|v| all(v, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_names_what_there_is() {
    let (served, recorded) = (served(), recorded());
    let dashboard: Value = serde_json::from_str(&file("dashboard.json")).expect("JSON");
    let (mut expressions, mut queries) = (Vec::new(), Vec::new());
    all(&dashboard, "expr", &mut expressions);
    all(&dashboard["templating"], "definition", &mut queries);
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(expressions.len() >= panels.len() && panels.len() > 10 && !queries.is_empty());
    for e in expressions.iter().chain(&queries) {
        check("dashboard.json", e, &served, &recorded);
    }
    // What a legend shows is a label of something that its panel asks for.
    for target in panels.iter().flat_map(|p| p["targets"].as_array().unwrap()) {
        let (expr, legend) = (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap_or(""));
        for label in legend.split("{{").skip(1).map(|l| l.split("}}").next().unwrap()) {
            let in_rule = |r: &serde_norway::Value| {
                let named = r["record"].as_str().is_some_and(|n| names(expr).contains(n));
                named && r["expr"].as_str().unwrap().contains(label)
            };
            let has = names(expr).iter().any(|n| served.get(n).is_some_and(|labels| labels.contains(label)));
            // path_share has the labels of path_bits.
            let share = expr.contains("path_share") && served["telereduce_path_completed_bytes_total"].contains(label);
            assert!(has || share || rules().iter().any(in_rule), "{legend}: nothing in {expr} has a label {label}");
        }
    }
    let ids: BTreeSet<u64> = panels.iter().map(|p| p["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
}

#[test]
fn rules_name_what_there_is() {
    let (served, recorded) = (served(), recorded());
    let mut before = BTreeSet::new();
    for r in rules() {
        let expression = r["expr"].as_str().unwrap();
        check("rules.yml", expression, &served, &recorded);
        // In the order in which they are evaluated: what a rule needs was recorded in the same round.
        for n in names(expression).into_iter().filter(|n| n.contains(':')) {
            assert!(before.contains(&n), "{n} is used before it is recorded");
        }
        before.extend(r["record"].as_str().map(str::to_string));
    }
    assert!(recorded.contains(trtop::fleet::model::FLOWS));
}

#[test]
fn the_check_sees_a_wrong_name() {
    let (served, recorded) = (served(), recorded());
    let wrong = std::panic::catch_unwind(|| check("x", "rate(telereduce_nothing_total[1m])", &served, &recorded));
    assert!(wrong.is_err());
}
