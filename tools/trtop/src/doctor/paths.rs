//! Which QPs have several paths, which have one, and why.

use std::collections::BTreeMap;
use telereduce::multipath::single::Single;
use telereduce::shm::snapshot::SegmentJson;

/// QPs that are named, at most.
const NAMED: usize = 8;

/// A line per reason, after one for the QPs with several paths; none where multi-path is off. No reason is a fault: all bytes
/// are counted, and travel as without multi-path.
pub fn of_segment(s: &SegmentJson) -> Vec<String> {
    let mut several = 0u64;
    let mut single: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (q, m) in s.qps.iter().filter(|q| q.live).filter_map(|q| Some((q, q.multipath.as_ref()?))) {
        match &m.single_path {
            Some(why) => single.entry(why).or_default().push(q.qp_num),
            None => several += 1,
        }
    }
    let mut lines = Vec::new();
    if several > 0 {
        lines.push(format!("multi-path: {} of several paths", qps(several)));
    }
    for (why, numbers) in single {
        let mut named: Vec<String> = numbers.iter().take(NAMED).map(u32::to_string).collect();
        if numbers.len() > NAMED {
            named.push("...".into());
        }
        let advice = Single::from_name(why).map_or("a reason of another version", Single::advice);
        lines.push(format!(
            "multi-path: {} of one path, {why}: {advice} (QP {})",
            qps(numbers.len() as u64),
            named.join(", ")
        ));
    }
    lines
}

fn qps(n: u64) -> String {
    if n == 1 { "1 QP".into() } else { format!("{n} QPs") }
}
