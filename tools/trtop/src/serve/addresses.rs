//! Addresses of this host's RDMA ports, by which other hosts' peers are known as ports of this one.

use std::net::Ipv6Addr;
use std::path::Path;
use telereduce::shm::model::gid_ip;

/// An address of a port, as the label `peer` of others names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Device.
    pub device: String,
    /// Port number.
    pub port: u32,
    /// IP address, else GID; `lid 5`, where ports are known by LIDs.
    pub address: String,
}

/// All that the kernel knows, below the root of sysfs; no RDMA devices, no addresses.
pub fn addresses(sys: &Path) -> Vec<Address> {
    let names = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let devices = sys.join("class/infiniband");
    let mut all = Vec::new();
    for device in names(&devices) {
        let ports = devices.join(&device).join("ports");
        for port in names(&ports).iter().filter_map(|p| p.parse().ok()) {
            let gids = ports.join(format!("{port}/gids"));
            // GIDs that are not set are zero, or reading them fails.
            let text = names(&gids).into_iter().filter_map(|n| std::fs::read_to_string(gids.join(n)).ok());
            let gids = text.filter_map(|t| t.trim().parse::<Ipv6Addr>().ok()).filter(|g| !g.is_unspecified());
            let lid = std::fs::read_to_string(ports.join(format!("{port}/lid"))).unwrap_or_default();
            let lid = u32::from_str_radix(lid.trim().trim_start_matches("0x"), 16).ok().filter(|l| *l > 0);
            let names = gids.map(name).chain(lid.map(|l| format!("lid {l}")));
            all.extend(names.map(|address| Address { device: device.clone(), port, address }));
        }
    }
    all.sort();
    // RoCE v1 and v2 have the same.
    all.dedup();
    all
}

fn name(gid: Ipv6Addr) -> String {
    gid_ip(gid.octets()).map_or_else(|| gid.to_string(), |ip| ip.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_once_as_peers_are_named() {
        let sys = tempfile::tempdir().unwrap();
        let gids = sys.path().join("class/infiniband/mlx5_0/ports/1/gids");
        std::fs::create_dir_all(&gids).unwrap();
        for (i, gid) in [
            "fe80:0000:0000:0000:0202:c9ff:fe00:0001",
            "0000:0000:0000:0000:0000:ffff:0a01:0002",
            "0000:0000:0000:0000:0000:ffff:0a01:0002",
            "0000:0000:0000:0000:0000:0000:0000:0000",
        ]
        .iter()
        .enumerate()
        {
            std::fs::write(gids.join(i.to_string()), format!("{gid}\n")).unwrap();
        }
        std::fs::write(gids.with_file_name("lid"), "0x1f\n").unwrap();
        let found: Vec<_> = addresses(sys.path()).into_iter().map(|a| (a.device, a.port, a.address)).collect();
        let of = |a: &str| ("mlx5_0".to_string(), 1, a.to_string());
        assert_eq!(found, [of("10.1.0.2"), of("fe80::202:c9ff:fe00:1"), of("lid 31")]);
        assert_eq!(addresses(Path::new("/nonexistent")), []);
    }
}
