//! The network device behind an RDMA port: its name, its addresses, its sysctls.

use super::plan::Cidr;
use crate::error::Failure;
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The network device of an RDMA device's first port; a network device's own name stays.
///
/// # Errors
/// There is neither.
pub fn of(device: &str) -> Result<String, Failure> {
    if device.is_empty() || device.contains(['/', '\0']) {
        return Err(Failure::new(format!("'{device}' is no device's name")));
    }
    let ndevs = Path::new("/sys/class/infiniband").join(device).join("ports/1/gid_attrs/ndevs");
    let mut names: Vec<PathBuf> = std::fs::read_dir(ndevs).into_iter().flatten().flatten().map(|e| e.path()).collect();
    names.sort();
    // GIDs that are not set have no device, and reading says so by an error.
    let found = names.iter().filter_map(|n| std::fs::read_to_string(n).ok()).map(|n| n.trim().to_string());
    let netdev = found.into_iter().find(|n| !n.is_empty());
    match netdev {
        Some(n) => Ok(n),
        None if Path::new("/sys/class/net").join(device).exists() => Ok(device.into()),
        None => Err(Failure::new(format!(
            "{device} is neither an RDMA device with a network device nor a network device (`rdma link` lists them)"
        ))),
    }
}

#[derive(Deserialize)]
struct Link {
    #[serde(default)]
    ifname: String,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    #[serde(default)]
    family: String,
    #[serde(default)]
    local: String,
    #[serde(default)]
    prefixlen: u8,
}

/// IPv4 addresses of all network devices, with their device's name, in the order in which the kernel has them.
///
/// # Errors
/// `ip` is missing, fails or says something else.
pub fn addresses() -> Result<Vec<(String, Cidr)>, Failure> {
    let said = ip(&["-json", "address", "show"])?;
    let links: Vec<Link> =
        serde_json::from_str(&said).map_err(|e| Failure::new(format!("cannot read what `ip -json` says: {e}")))?;
    let each = links.into_iter().flat_map(|l| l.addr_info.into_iter().map(move |a| (l.ifname.clone(), a)));
    let v4 = each.filter(|(_, a)| a.family == "inet");
    Ok(v4
        .filter_map(|(n, a)| Some((n, Cidr { address: a.local.parse::<Ipv4Addr>().ok()?, length: a.prefixlen })))
        .collect())
}

/// Runs `ip`; returns what it says.
///
/// # Errors
/// It is missing or fails.
pub fn ip(args: &[&str]) -> Result<String, Failure> {
    let out = Command::new("ip").args(args).output();
    let out = out.map_err(|e| Failure::new(format!("cannot run `ip` (package iproute2): {e}")))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&out.stderr);
    Err(Failure::new(format!("`ip {}` failed: {}", args.join(" "), why.trim())))
}

/// A sysctl's file: `all` or a network device, and its name.
pub fn sysctl(netdev: &str, name: &str) -> PathBuf {
    Path::new("/proc/sys/net/ipv4/conf").join(netdev).join(name)
}

/// A sysctl's value.
///
/// # Errors
/// It cannot be read.
pub fn value(file: &Path) -> Result<u32, Failure> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|e| Failure::new(format!("cannot read {}: {e}", file.display())))?;
    text.trim().parse().map_err(|_| Failure::new(format!("{} holds no number", file.display())))
}
