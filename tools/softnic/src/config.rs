//! What the devices and the network are like: a TOML file that `SOFTNIC_CONFIG` names, or one device on the loopback
//! addresses. What is wrong in a file is said, and then there is no device.

use crate::net::gid::Gid;
use crate::net::path::{Behaviour, Fault};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Processes with the same name reach one another. `SOFTNIC_NETWORK` goes before.
    pub network: String,
    /// For what the network does by chance.
    pub seed: u64,
    /// Bytes that share a packet's fate: less is finer and slower.
    pub segment: u32,
    /// Bytes that a QP may have under way.
    pub window: u32,
    /// Whether processes copy from and to one another's memory; if not, through shared memory.
    pub direct: bool,
    /// After so many polls in vain one after the other a thread lets others run: on few cores its peer is among them.
    /// 0: never.
    pub polls_before_yield: u32,
    /// Devices.
    #[serde(rename = "device")]
    pub devices: Vec<Device>,
    /// Paths; the first that matches counts.
    #[serde(rename = "path")]
    pub paths: Vec<PathRule>,
    /// Ports that go down.
    #[serde(rename = "port_fault")]
    pub port_faults: Vec<PortFault>,
}

/// A device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// As programs see it.
    pub name: String,
    /// Ports, from 1.
    #[serde(rename = "port")]
    pub ports: Vec<Port>,
    /// Limits.
    #[serde(default)]
    pub limits: Limits,
}

/// A port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Its addresses.
    pub gids: Vec<Gid>,
    /// What it says of its speed: Gb/s.
    #[serde(default = "speed")]
    pub speed_gbps: u32,
    /// `ethernet` or `infiniband`.
    #[serde(default)]
    pub link: Link,
}

/// A link layer.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// RoCE v2.
    #[default]
    Ethernet,
    /// InfiniBand.
    Infiniband,
}

/// What a device has.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// QPs.
    pub qps: u32,
    /// WRs of a queue.
    pub wrs: u32,
    /// Elements of a WR.
    pub sges: u32,
    /// Bytes of inline data.
    pub inline: u32,
    /// Entries of a CQ.
    pub cqes: u32,
    /// Reads and atomics at a time.
    pub answers: u8,
}

/// What the paths between these addresses do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathRule {
    /// Sources; none: all.
    #[serde(default)]
    pub from: Vec<Gid>,
    /// Destinations; none: all.
    #[serde(default)]
    pub to: Vec<Gid>,
    /// Gb/s; 0: all there is.
    #[serde(default)]
    pub rate_gbps: f64,
    /// One way.
    #[serde(default)]
    pub delay_us: f64,
    /// Up to so much more.
    #[serde(default)]
    pub jitter_us: f64,
    /// Probability, per packet.
    #[serde(default)]
    pub loss: f64,
    /// Probability that a packet and those behind it on its QP are held back ...
    #[serde(default)]
    pub reorder: f64,
    /// ... for up to so long.
    #[serde(default)]
    pub reorder_us: f64,
    /// When it carries nothing.
    #[serde(default, rename = "fault")]
    pub faults: Vec<FaultRule>,
}

/// See [`Fault`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    after_ms: Option<f64>,
    after_packets: Option<u64>,
    for_ms: Option<f64>,
    for_packets: Option<u64>,
}

/// A port that goes down, and perhaps comes back.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortFault {
    /// Which.
    pub device: String,
    /// Which.
    pub port: u8,
    /// Since the process began to use softnic.
    pub after_ms: f64,
    /// How long.
    pub for_ms: Option<f64>,
}

fn speed() -> u32 {
    100
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { qps: 1 << 16, wrs: 1 << 14, sges: 32, inline: 512, cqes: 1 << 20, answers: 16 }
    }
}

impl Default for Config {
    fn default() -> Config {
        let gids = (1..=8).map(|n| Gid::of(IpAddr::V4(Ipv4Addr::new(127, 0, 0, n))));
        let local = Gid::of(IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0x200, 0, 0, 1)));
        let port = Port { gids: [local].into_iter().chain(gids).collect(), speed_gbps: speed(), link: Link::Ethernet };
        Config {
            network: "default".into(),
            seed: 1,
            segment: 65_536,
            window: 1 << 20,
            direct: true,
            polls_before_yield: 256,
            devices: vec![Device { name: "soft0".into(), ports: vec![port], limits: Limits::default() }],
            paths: vec![],
            port_faults: vec![],
        }
    }
}

impl Config {
    /// What the environment says.
    pub fn from_environment() -> Result<Config, String> {
        let mut config = match std::env::var_os("SOFTNIC_CONFIG") {
            None => Config::default(),
            Some(path) => {
                let shown = path.to_string_lossy().into_owned();
                let text = std::fs::read_to_string(&path).map_err(|e| format!("SOFTNIC_CONFIG: {shown}: {e}"))?;
                Config::parse(&text).map_err(|e| format!("{shown}: {e}"))?
            }
        };
        if let Ok(network) = std::env::var("SOFTNIC_NETWORK") {
            config.network = network;
        }
        if let Ok(seed) = std::env::var("SOFTNIC_SEED") {
            config.seed = seed.parse().map_err(|_| format!("SOFTNIC_SEED: not a number: {seed:?}"))?;
        }
        Ok(config)
    }

    /// What a file says.
    pub fn parse(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|e| e.to_string())?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        for d in &self.devices {
            if d.name.is_empty() || d.name.len() > 60 || d.name.contains(['/', '\0']) {
                return Err(format!("device: not a name: {:?}", d.name));
            }
            if !(1..=8).contains(&d.ports.len()) {
                return Err(format!("device {}: 1 to 8 ports, not {}", d.name, d.ports.len()));
            }
            if let Some(p) = d.ports.iter().find(|p| p.gids.is_empty() || p.gids.len() > 64) {
                return Err(format!("device {}: 1 to 64 GIDs a port, not {}", d.name, p.gids.len()));
            }
            let l = &d.limits;
            if l.sges == 0 || l.sges > 32 || l.wrs == 0 || l.wrs > 1 << 16 || l.inline > 4096 || l.cqes > 1 << 22 {
                return Err(format!(
                    "device {}: limits: sges to 32, wrs to 65536, inline to 4096, cqes to 4194304",
                    d.name
                ));
            }
        }
        if !self.segment.is_power_of_two() || !(4096..=1 << 20).contains(&self.segment) {
            return Err("segment: a power of two from 4096 to 1048576".into());
        }
        if self.window < self.segment {
            return Err("window: not less than a segment".into());
        }
        for p in &self.paths {
            let chances = [p.loss, p.reorder];
            let times = [p.rate_gbps, p.delay_us, p.jitter_us, p.reorder_us];
            if chances.iter().any(|c| !(0.0..=1.0).contains(c)) || times.iter().any(|t| !(0.0..=1e9).contains(t)) {
                return Err("path: probabilities are from 0 to 1, times and rates not negative".into());
            }
        }
        Ok(())
    }

    /// What the path between these does.
    pub fn path(&self, from: Gid, to: Gid) -> Behaviour {
        let matches = |list: &[Gid], gid| list.is_empty() || list.contains(&gid);
        self.paths.iter().find(|r| matches(&r.from, from) && matches(&r.to, to)).map_or_else(Behaviour::default, |r| {
            let us = |t: f64| (t * 1e3) as u64;
            let ms = |t: Option<f64>| t.map(|t| (t * 1e6) as u64);
            Behaviour {
                rate_bps: (r.rate_gbps * 1e9) as u64,
                delay_ns: us(r.delay_us),
                jitter_ns: us(r.jitter_us),
                loss: r.loss,
                reorder: r.reorder,
                reorder_ns: us(r.reorder_us),
                faults: r
                    .faults
                    .iter()
                    .map(|f| Fault {
                        after_ns: ms(f.after_ms),
                        after_packets: f.after_packets,
                        for_ns: ms(f.for_ms),
                        for_packets: f.for_packets,
                    })
                    .collect(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../softnic.toml");

    #[test]
    fn the_example_is_understood() {
        let c = Config::parse(EXAMPLE).expect("the example");
        let [a, b] = ["127.0.0.1", "127.0.0.2"].map(|a| Gid::of(a.parse().expect("an address")));
        assert_eq!(c.devices[0].name, "soft0");
        assert_eq!(c.path(a, b).rate_bps, 10_000_000_000);
        assert_eq!(c.path(a, b).faults.len(), 1);
        assert_eq!(c.path(b, a), Behaviour::default());
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, word) in [
            ("sed = 1", "sed"),
            ("segment = 1000", "segment"),
            ("[[path]]\nloss = 1.5", "path"),
            ("[[device]]\nname = 'x'\nport = []", "ports"),
            ("[[device]]\nname = 'x'\n[[device.port]]\ngids = ['nowhere']", "nowhere"),
        ] {
            let e = Config::parse(text).expect_err(text);
            assert!(e.contains(word), "{e}");
        }
    }
}
