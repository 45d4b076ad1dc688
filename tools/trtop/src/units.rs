//! Numbers as people read them: decimal units, three significant digits, narrow enough for a column.

/// Scales `v` to the first unit that leaves it below 1000, three significant digits.
fn scaled(v: f64, units: &[&str], space: &str) -> String {
    let mut v = if v.is_finite() { v.max(0.0) } else { 0.0 };
    let mut unit = 0;
    // 999.5 would round to 1000 of the unit.
    while v >= 999.5 && unit + 1 < units.len() {
        v /= 1000.0;
        unit += 1;
    }
    let decimals = match v {
        _ if unit == 0 && v.fract() == 0.0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{v:.decimals$}{space}{}", units[unit])
}

/// Bytes: `12 B`, `65.5 kB`, `1.02 GB`; at most 7 characters.
pub fn bytes(n: u64) -> String {
    scaled(n as f64, &["B", "kB", "MB", "GB", "TB", "PB", "EB"], " ")
}

/// Bits per second from bytes per second: `92.3 Gb/s`; at most 9 characters.
pub fn bits_per_s(bytes_per_s: f64) -> String {
    scaled(bytes_per_s * 8.0, &["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s", "Pb/s"], " ")
}

/// A count: exact below 100,000, then `123k`, `1.23M`; at most 5 characters.
pub fn count(n: u64) -> String {
    if n < 100_000 { n.to_string() } else { scaled(n as f64, &["", "k", "M", "G", "T", "P", "E"], "") }
}

/// A count per second: `12`, `1.23k`, `4.56M`; at most 5 characters.
pub fn per_s(v: f64) -> String {
    let v = if v < 10.0 { v } else { v.round() };
    scaled(v, &["", "k", "M", "G", "T", "P"], "")
}

/// A count with all its digits, grouped: `1,234,567`.
pub fn exact(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A duration in ns: `640 ns`, `3.20 us`, `1.50 ms`, `2.00 s`.
pub fn latency(ns: u64) -> String {
    scaled(ns as f64, &["ns", "us", "ms", "s"], " ")
}

/// An age: `12s`, `3m05s`, `2h10m`, `5d03h`.
pub fn age(seconds: u64) -> String {
    let (d, h, m, s) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (d, h, m) {
        (0, 0, 0) => format!("{s}s"),
        (0, 0, _) => format!("{m}m{s:02}s"),
        (0, _, _) => format!("{h}h{m:02}m"),
        _ => format!("{d}d{h:02}h"),
    }
}

/// Time of day of a CLOCK_REALTIME in ns, UTC: `12:34:56`.
pub fn time_of_day(realtime_ns: u64) -> String {
    let s = realtime_ns / 1_000_000_000;
    format!("{:02}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_decimal_and_keep_three_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1000), "1.00 kB");
        assert_eq!(bytes(65536), "65.5 kB");
        assert_eq!(bytes(999_499), "999 kB");
        assert_eq!(bytes(999_500), "1.00 MB");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
        assert_eq!(bits_per_s(11.54e9), "92.3 Gb/s");
        assert_eq!(bits_per_s(0.0), "0 b/s");
        assert_eq!(bits_per_s(1.25e5), "1.00 Mb/s");
        assert_eq!(count(99_999), "99999");
        assert_eq!(count(123_456), "123k");
        assert_eq!(count(1_234_567), "1.23M");
        assert_eq!(per_s(0.5), "0.50");
        assert_eq!(per_s(1234.4), "1.23k");
        assert_eq!(per_s(12.3), "12");
        assert_eq!(exact(1_234_567), "1,234,567");
        assert_eq!(exact(12), "12");
        assert_eq!(latency(640), "640 ns");
        assert_eq!(latency(3200), "3.20 us");
        assert_eq!(age(59), "59s");
        assert_eq!(age(185), "3m05s");
        assert_eq!(age(7800), "2h10m");
        assert_eq!(age(5 * 86400 + 3 * 3600), "5d03h");
        assert_eq!(time_of_day(1_000_000_000 * (86400 + 3723)), "01:02:03");
    }

    #[test]
    fn widths_hold_for_any_number() {
        for shift in 0..64 {
            for d in [0u64, 1, u64::MAX] {
                let n = (1u64 << shift).wrapping_add(d.wrapping_sub(1));
                assert!(bytes(n).len() <= 7, "{}", bytes(n));
                assert!(count(n).len() <= 5, "{}", count(n));
            }
        }
        let mut v = 0.01;
        while v < 1e16 {
            assert!(bits_per_s(v).len() <= 9, "{}", bits_per_s(v));
            assert!(per_s(v).len() <= 5, "{}", per_s(v));
            v *= 1.13;
        }
        assert_eq!(bits_per_s(f64::NAN), "0 b/s");
        assert_eq!(per_s(f64::INFINITY), "0");
    }
}
