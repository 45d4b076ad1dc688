//! `trtop vnic`: IP aliases of an RDMA port, one per path of the network, and the sysctls that they need.
//!
//! Each alias is a RoCE GID of its own, so packets to it are routed, and hashed onto links, apart from the others'.

mod netdev;
mod plan;
mod undo;

use crate::cli::VnicCommand;
use crate::error::{Failure, Outcome, print};
use crate::text_table::TextTable;
pub use plan::{Cidr, MOST};
use std::fmt::Write;
use std::path::Path;
use undo::{Notes, Step};

/// Runs one of its commands.
///
/// # Errors
/// As each says.
pub fn run(command: &VnicCommand) -> Outcome {
    match command {
        VnicCommand::Add { device, count, prefix } => add(device, *count, prefix.unwrap_or(plan::DEFAULT)),
        VnicCommand::List { device } => list(device),
        VnicCommand::Del { device, count } => del(device, count.unwrap_or(MOST)),
    }
}

/// An alias answers ARP only for itself, speaks as itself, and may come in by any path. The kernel goes by the larger value
/// of `all` and the device; `from` is where a change is needed.
const SYSCTLS: [(&str, core::ops::RangeInclusive<u32>, u32); 3] =
    [("arp_ignore", 0..=0, 1), ("arp_announce", 0..=1, 2), ("rp_filter", 1..=1, 2)];

/// Makes the device have `count` aliases; those that it has already stay.
fn add(device: &str, count: u32, prefix: Cidr) -> Outcome {
    let netdev = netdev::of(device)?;
    let notes = Notes::of(&netdev);
    let (ours, all) = (notes.addresses(), netdev::addresses()?);
    let own = all.iter().find(|(n, c)| *n == netdev && !ours.contains(&c.to_string())).map(|(_, c)| *c);
    let own = own.ok_or_else(|| Failure::new(format!("{netdev} has no IPv4 address of its own to begin with")))?;
    let wanted = plan::aliases(own, prefix, count).map_err(Failure::new)?;
    let new: Vec<Cidr> = wanted.iter().copied().filter(|w| !ours.contains(&w.to_string())).collect();
    if let Some((n, c)) = all.iter().find(|(_, c)| new.iter().any(|w| w.address == c.address)) {
        return Err(Failure::new(format!("{c} is in use on {n}; name other addresses with --prefix")));
    }
    let mut steps = Vec::new();
    for (name, change, since) in SYSCTLS {
        let before = netdev::value(&netdev::sysctl(&netdev, name))?;
        if change.contains(&before.max(netdev::value(&netdev::sysctl("all", name))?)) {
            steps.push(Step::Sysctl { name: name.into(), before, since });
        }
    }
    steps.extend(new.iter().map(|c| Step::Address(c.to_string())));
    for (done, step) in steps.iter().enumerate() {
        if let Err(e) = notes.take(step) {
            // What this call has done so far is undone.
            (0..done).try_for_each(|_| notes.take_back().map(drop))?;
            return Err(e);
        }
    }
    list(device)
}

/// Removes the newest `count` aliases; with the last, the sysctls are as they were.
fn del(device: &str, count: u32) -> Outcome {
    let netdev = netdev::of(device)?;
    let notes = Notes::of(&netdev);
    let had = notes.addresses().len();
    if had == 0 {
        return Err(Failure::new(format!("{netdev} has no aliases that `trtop vnic add` made")));
    }
    let keep = had.saturating_sub(count as usize);
    while notes.addresses().len() > keep {
        notes.take_back()?;
    }
    if keep == 0 {
        while notes.take_back()?.is_some() {}
    }
    Ok(())
}

/// One line per IPv4 address of the device.
fn list(device: &str) -> Outcome {
    let netdev = netdev::of(device)?;
    let ours = Notes::of(&netdev).addresses();
    let gids = gids(device);
    let mut t = TextTable::new(&["ADDRESS", "DEVICE", ">GID", "MADE BY"]);
    let mut paths = Vec::new();
    for (_, c) in netdev::addresses()?.into_iter().filter(|(n, _)| *n == netdev) {
        let alias = ours.contains(&c.to_string());
        let gid = gids.iter().find(|g| g.1 == format!("::ffff:{}", c.address)).map(|g| g.0);
        let gid = gid.map_or("-".into(), |i| i.to_string());
        t.row(vec![c.to_string(), netdev.clone(), gid, if alias { "trtop vnic" } else { "-" }.into()]);
        paths.extend(alias.then(|| c.address.to_string()));
    }
    let mut text = t.text("");
    if !paths.is_empty() {
        let _ = writeln!(text, "\nTELEREDUCE_PATHS={}", paths.join(","));
    }
    print(&text)
}

/// Index and address of each RoCE v2 GID of the device's first port.
fn gids(device: &str) -> Vec<(u32, String)> {
    let port = Path::new("/sys/class/infiniband").join(device).join("ports/1");
    let text = |folder: &str, i: u32| std::fs::read_to_string(port.join(folder).join(i.to_string())).ok();
    let v2 = (0..256).filter(|i| text("gid_attrs/types", *i).is_some_and(|t| t.trim() == "RoCE v2"));
    let address = |i: u32| Some((i, text("gids", i)?.trim().parse::<std::net::Ipv6Addr>().ok()?.to_string()));
    v2.filter_map(address).collect()
}
