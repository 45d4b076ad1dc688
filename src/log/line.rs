//! One transfer as a line of text.

use crate::flows::window::Bandwidth;
use serde::Serialize;
use std::net::IpAddr;

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The line that TeleReduce inside NCCL writes, byte for byte.
    #[default]
    Seed,
    /// An object per line.
    Json,
    /// Comma-separated values below a line of names.
    Csv,
}

impl Format {
    /// Ending of a file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Seed => "log",
            Format::Json => "jsonl",
            Format::Csv => "csv",
        }
    }

    /// What a file begins with.
    pub fn head(self) -> String {
        match self {
            Format::Seed | Format::Json => String::new(),
            Format::Csv => format!("{}\n", COLUMNS.join(",")),
        }
    }
}

impl std::str::FromStr for Format {
    type Err = ();
    fn from_str(text: &str) -> Result<Format, ()> {
        match text.to_ascii_lowercase().as_str() {
            "seed" => Ok(Format::Seed),
            "json" => Ok(Format::Json),
            "csv" => Ok(Format::Csv),
            _ => Err(()),
        }
    }
}

/// What a line says, in the order of the CSV's columns. What is not known is left out there, and `null` in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transfer<'a> {
    /// CLOCK_REALTIME at the poll that returned the completion, ns.
    pub end_ns: u64,
    /// Device.
    pub device: &'a str,
    /// Its port.
    pub port: u32,
    /// QP.
    pub qp_num: u32,
    /// The port's own address.
    pub source: Option<IpAddr>,
    /// The peer's.
    pub destination: Option<IpAddr>,
    /// Bytes.
    pub bytes: u64,
    /// Post to poll, ns, if it was measured.
    pub latency_ns: Option<u64>,
    /// `enum ibv_wc_status`; 0 = success.
    pub status: u8,
    /// Bits per second of the port with the peer, over the window.
    pub peer_bits_per_s: u64,
    /// Bits per second of the QP, over the window.
    pub qp_bits_per_s: u64,
    /// Send WRs outstanding at the port afterwards.
    pub wr_outstanding: u64,
    /// Their bytes.
    pub bytes_outstanding: u64,
    /// Rank.
    pub rank: Option<u64>,
    /// The peer's rank.
    pub peer_rank: Option<u64>,
    /// Communicator.
    pub group: Option<u64>,
    /// Channel.
    pub channel: Option<u32>,
    /// Collective.
    pub func: Option<u32>,
    /// How many times it ran.
    pub func_times: Option<u64>,
    /// What `peer_bits_per_s` is made of.
    #[serde(skip)]
    pub peer_bandwidth: Bandwidth,
    /// Index of the device among those of the process.
    #[serde(skip)]
    pub device_index: u32,
}

const COLUMNS: [&str; 19] = [
    "end_ns",
    "device",
    "port",
    "qp_num",
    "source",
    "destination",
    "bytes",
    "latency_ns",
    "status",
    "peer_bits_per_s",
    "qp_bits_per_s",
    "wr_outstanding",
    "bytes_outstanding",
    "rank",
    "peer_rank",
    "group",
    "channel",
    "func",
    "func_times",
];

impl Transfer<'_> {
    /// Adds the line, with its newline.
    pub fn write(&self, format: Format, to: &mut String) {
        match format {
            Format::Seed => self.seed(to),
            Format::Json => to.push_str(&serde_json::to_string(self).unwrap_or_default()),
            Format::Csv => self.csv(to),
        }
        to.push('\n');
    }

    /// TeleReduce's line. Ranks and the channel are -1 where they are not known, the group, the collective and how many times
    /// it ran 0, and addresses 0.0.0.0, also those that are not IPv4.
    fn seed(&self, to: &mut String) {
        let known = |n: Option<u64>| n.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX));
        to.push_str(self.device);
        number(to, ": Group:", self.group.unwrap_or(0));
        number(to, ", from rank ", known(self.rank));
        number(to, " to rank ", known(self.peer_rank));
        number(to, ", devIndex: ", self.device_index);
        number(to, ", channel_id:", known(self.channel.map(u64::from)));
        number(to, ", func:", self.func.unwrap_or(0));
        number(to, ",FuncTimes:", self.func_times.unwrap_or(0));
        to.push_str(", ");
        dotted(to, self.source);
        to.push_str("->");
        dotted(to, self.destination);
        number(to, ", bandWidths: ", self.peer_bandwidth.of_the_note());
        number(to, " Gbps, sendWrcounter: ", self.wr_outstanding);
        number(to, ", remainWrDataSize: ", self.bytes_outstanding);
        number(to, " Bytes, timestamp: ", self.end_ns);
        to.push_str(" nsec");
    }

    fn csv(&self, to: &mut String) {
        fn known<T: ToString>(value: Option<T>) -> String {
            value.map_or(String::new(), |v| v.to_string())
        }
        // The kernel lets a device have any name.
        let quoted = |name: &str| {
            if name.contains([',', '"', '\n']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.into() }
        };
        let fields: [String; COLUMNS.len()] = [
            self.end_ns.to_string(),
            quoted(self.device),
            self.port.to_string(),
            self.qp_num.to_string(),
            known(self.source),
            known(self.destination),
            self.bytes.to_string(),
            known(self.latency_ns),
            self.status.to_string(),
            self.peer_bits_per_s.to_string(),
            self.qp_bits_per_s.to_string(),
            self.wr_outstanding.to_string(),
            self.bytes_outstanding.to_string(),
            known(self.rank),
            known(self.peer_rank),
            known(self.group),
            known(self.channel),
            known(self.func),
            known(self.func_times),
        ];
        to.push_str(&fields.join(","));
    }
}

// There may be a million lines a second: `write!` would take most of the time that there is.
fn number(to: &mut String, name: &str, n: impl itoa::Integer) {
    to.push_str(name);
    to.push_str(itoa::Buffer::new().format(n));
}

fn dotted(to: &mut String, ip: Option<IpAddr>) {
    let octets = match ip {
        Some(IpAddr::V4(ip)) => ip.octets(),
        _ => [0; 4],
    };
    for (octet, before) in octets.into_iter().zip(["", ".", ".", "."]) {
        number(to, before, octet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer() -> Transfer<'static> {
        let peer = Bandwidth { bytes: 25 << 30, ns: 1_000_000_000 };
        Transfer {
            end_ns: 1_764_000_000_123_456_789,
            device: "mlx5_0",
            port: 1,
            qp_num: 4711,
            source: Some("10.1.0.1".parse().unwrap()),
            destination: Some("10.2.0.1".parse().unwrap()),
            bytes: 8 << 30,
            latency_ns: Some(1500),
            status: 0,
            peer_bits_per_s: peer.bits_per_s(),
            qp_bits_per_s: 7,
            wr_outstanding: 3,
            bytes_outstanding: 24 << 30,
            rank: Some(0),
            peer_rank: Some(4),
            group: Some(12_345_678_901_234_567_890),
            channel: Some(2),
            func: Some(3),
            func_times: Some(9),
            peer_bandwidth: peer,
            device_index: 1,
        }
    }

    fn unknown() -> Transfer<'static> {
        Transfer {
            source: None,
            destination: Some("fd00::1".parse().unwrap()),
            latency_ns: None,
            rank: None,
            peer_rank: None,
            group: None,
            channel: None,
            func: None,
            func_times: None,
            ..transfer()
        }
    }

    fn text(t: &Transfer<'_>, format: Format) -> String {
        let mut to = String::new();
        t.write(format, &mut to);
        to
    }

    #[test]
    fn golden_lines() {
        assert_eq!(
            text(&transfer(), Format::Seed),
            "mlx5_0: Group:12345678901234567890, from rank 0 to rank 4, devIndex: 1, channel_id:2, func:3,FuncTimes:9, \
             10.1.0.1->10.2.0.1, bandWidths: 199 Gbps, sendWrcounter: 3, remainWrDataSize: 25769803776 Bytes, \
             timestamp: 1764000000123456789 nsec\n"
        );
        assert_eq!(
            text(&unknown(), Format::Seed),
            "mlx5_0: Group:0, from rank -1 to rank -1, devIndex: 1, channel_id:-1, func:0,FuncTimes:0, \
             0.0.0.0->0.0.0.0, bandWidths: 199 Gbps, sendWrcounter: 3, remainWrDataSize: 25769803776 Bytes, \
             timestamp: 1764000000123456789 nsec\n"
        );
    }

    #[test]
    fn json_has_every_column() {
        for t in [transfer(), unknown()] {
            let line = text(&t, Format::Json);
            let json: serde_json::Value = serde_json::from_str(&line).unwrap();
            let mut names: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
            let mut columns = COLUMNS.to_vec();
            names.sort_unstable();
            columns.sort_unstable();
            assert_eq!(names, columns);
            assert!(line.ends_with("}\n"));
        }
        let json: serde_json::Value = serde_json::from_str(&text(&transfer(), Format::Json)).unwrap();
        assert_eq!(json["peer_bits_per_s"], 214_748_364_800_u64);
        assert_eq!((&json["source"], &json["bytes"]), (&"10.1.0.1".into(), &(8u64 << 30).into()));
    }

    #[test]
    fn csv_has_the_values_in_the_columns_order() {
        assert_eq!(
            text(&transfer(), Format::Csv),
            "1764000000123456789,mlx5_0,1,4711,10.1.0.1,10.2.0.1,8589934592,1500,0,214748364800,7,3,25769803776,0,4,\
             12345678901234567890,2,3,9\n"
        );
        let odd = Transfer { device: "a,\"b\"", ..unknown() };
        assert_eq!(
            text(&odd, Format::Csv),
            "1764000000123456789,\"a,\"\"b\"\"\",1,4711,,fd00::1,8589934592,,0,214748364800,7,3,25769803776,,,,,,\n"
        );
        assert_eq!(Format::Csv.head().trim_end().split(',').count(), COLUMNS.len());
    }

    #[test]
    fn formats_by_name() {
        assert_eq!("JSON".parse(), Ok(Format::Json));
        assert_eq!("xml".parse::<Format>(), Err(()));
    }
}
