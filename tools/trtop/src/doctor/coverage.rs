//! Bytes that the library saw on a port beside those that the port itself counted.

use std::path::Path;
use telereduce::shm::multipath::MovedBytes;
use telereduce::shm::snapshot::{PortJson, SegmentJson};

/// Bytes that left and entered a port; `None` = not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortBytes {
    /// Left.
    pub sent: Option<u64>,
    /// Entered.
    pub received: Option<u64>,
    /// Where the figures come from.
    pub source: &'static str,
}

impl PortBytes {
    /// What the library saw of port `device:number` in all these processes: a READ's bytes enter, those of every other
    /// send leave; receives enter when they complete. What multi-path cut counts as it was sent: on the QP, on lanes, and again.
    pub fn of(segments: &[SegmentJson], port: &str) -> PortBytes {
        PortBytes::add(segments.iter().flat_map(|s| &s.ports), port)
    }

    fn add<'a>(ports: impl IntoIterator<Item = &'a PortJson>, port: &str) -> PortBytes {
        let (mut sent, mut received) = (0u64, 0u64);
        for p in ports.into_iter().filter(|p| format!("{}:{}", p.device, p.port) == port) {
            for (opcode, n) in &p.details.opcodes {
                *if opcode.contains("READ") { &mut received } else { &mut sent } += n.bytes;
            }
            received += p.line.recv.bytes_completed;
            if let Some(m) = &p.multipath {
                let writes = MovedBytes {
                    bytes_split: m.moved.bytes_split.saturating_sub(m.reads.bytes_split),
                    bytes_on_lanes: m.moved.bytes_on_lanes.saturating_sub(m.reads.bytes_on_lanes),
                    bytes_on_qp: m.moved.bytes_on_qp.saturating_sub(m.reads.bytes_on_qp),
                };
                (sent, received) = (writes.carried(sent), m.reads.carried(received));
            }
        }
        PortBytes { sent: Some(sent), received: Some(received), source: "library" }
    }

    /// What was added since `before`.
    pub fn since<'a>(&self, before: impl Into<Option<&'a PortBytes>>) -> PortBytes {
        let before = before.into();
        let minus = |now: Option<u64>, then: fn(&PortBytes) -> Option<u64>| Some(now?.saturating_sub(then(before?)?));
        PortBytes {
            sent: minus(self.sent, |b| b.sent),
            received: minus(self.received, |b| b.received),
            source: self.source,
        }
    }
}

/// The port's own counters, under the root of sysfs: an HCA's in words of 4 bytes, EFA's in bytes; soft-RoCE has none, but
/// all that its network device moves is nearly all its.
pub fn port_counters(sys: &Path, port: &str) -> PortBytes {
    let (device, number) = port.split_once(':').unwrap_or((port, "1"));
    let ib = sys.join("class/infiniband").join(device);
    let at = ib.join("ports").join(number);
    let number_in = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let netdev = std::fs::read_to_string(ib.join("parent")).unwrap_or_default();
    let statistics = sys.join("class/net").join(netdev.trim()).join("statistics");
    let sources = [
        ("port_xmit_data", at.join("counters/port_xmit_data"), at.join("counters/port_rcv_data"), 4),
        ("tx_bytes of the port", at.join("hw_counters/tx_bytes"), at.join("hw_counters/rx_bytes"), 1),
        ("tx_bytes of its network device", statistics.join("tx_bytes"), statistics.join("rx_bytes"), 1),
    ];
    for (source, sent, received, unit) in sources {
        if let (Some(s), Some(r)) = (number_in(&sent), number_in(&received)) {
            return PortBytes { sent: Some(s * unit), received: Some(r * unit), source };
        }
    }
    PortBytes { source: "none that we know", ..PortBytes::default() }
}

/// `seen` of `all` in per cent.
pub fn percent(seen: Option<u64>, all: Option<u64>) -> String {
    match (seen, all) {
        (Some(0), Some(_)) | (_, Some(0) | None) | (None, _) => "-".into(),
        (Some(seen), Some(all)) => format!("{:.1} %", seen as f64 / all as f64 * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use telereduce::shm::model::Line;
    use telereduce::shm::snapshot::{Details, MultipathJson, Posted};

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn each_kind_of_port_is_read_in_its_own_units() {
        let root = tempfile::tempdir().unwrap();
        let at = |d: &str, f: &str| format!("class/infiniband/{d}/ports/1/{f}");
        write(root.path(), &at("mlx5_0", "counters/port_xmit_data"), "100\n");
        write(root.path(), &at("mlx5_0", "counters/port_rcv_data"), "25\n");
        write(root.path(), &at("efa_0", "hw_counters/tx_bytes"), "7\n");
        write(root.path(), &at("efa_0", "hw_counters/rx_bytes"), "8\n");
        write(root.path(), "class/infiniband/rxe0/parent", "eth0\n");
        write(root.path(), "class/net/eth0/statistics/tx_bytes", "1000\n");
        write(root.path(), "class/net/eth0/statistics/rx_bytes", "2000\n");
        let of = |port: &str| {
            let b = port_counters(root.path(), port);
            (b.sent, b.received)
        };
        assert_eq!(of("mlx5_0:1"), (Some(400), Some(100)));
        assert_eq!(of("efa_0:1"), (Some(7), Some(8)));
        assert_eq!(of("rxe0:1"), (Some(1000), Some(2000)));
        assert_eq!(of("mlx5_0:2"), (None, None));
        assert_eq!(of("none:1"), (None, None));
    }

    #[test]
    fn what_multi_path_cut_counts_as_it_was_sent() {
        let posted = |bytes| Posted { wr: 1, bytes };
        let mut port = PortJson {
            device: "mlx5_0".into(),
            port: 1,
            qps_live: 1,
            line: Line::default(),
            details: Details::default(),
            multipath: None,
            stall: None,
        };
        port.details.opcodes = [("RDMA_WRITE".into(), posted(5000)), ("RDMA_READ".into(), posted(3000))].into();
        let of = |port: &PortJson| {
            let b = PortBytes::add([port], "mlx5_0:1");
            (b.sent, b.received)
        };
        assert_eq!(of(&port), (Some(5000), Some(3000)));
        // 4000 of the bytes written were cut, 500 of them not sent yet; 2000 of those read, with 100 twice.
        port.multipath = Some(MultipathJson {
            moved: MovedBytes { bytes_split: 6000, bytes_on_lanes: 5400, bytes_on_qp: 200 },
            reads: MovedBytes { bytes_split: 2000, bytes_on_lanes: 2000, bytes_on_qp: 100 },
            ..MultipathJson::default()
        });
        assert_eq!(of(&port), (Some(1000 + 3400 + 100), Some(1000 + 2100)));
        assert_eq!(of(&PortJson { port: 2, ..port }), (Some(0), Some(0)));
    }

    #[test]
    fn what_is_not_known_before_or_after_is_not_known() {
        let known = |n| PortBytes { sent: Some(n), received: None, source: "" };
        assert_eq!(known(12).since(&known(5)), PortBytes { sent: Some(7), received: None, source: "" });
        assert_eq!(known(12).since(None).sent, None);
    }

    #[test]
    fn per_cent() {
        assert_eq!(percent(Some(980), Some(1000)), "98.0 %");
        assert_eq!(percent(Some(0), Some(1000)), "-");
        assert_eq!(percent(Some(1), None), "-");
        assert_eq!(percent(Some(1), Some(0)), "-");
    }
}
