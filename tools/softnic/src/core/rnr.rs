//! What the codes of timers mean.

/// How long a requester waits after an RNR NAK of this code, in ns (InfiniBand specification, table 45).
pub fn rnr_wait_ns(code: u8) -> u64 {
    // In units of 10 us, by code.
    const WAITS: [u64; 32] = [
        65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
    ];
    WAITS[usize::from(code & 31)] * 10_000
}

/// The local ACK timeout of this code, in ns; `None`: never.
pub fn ack_timeout_ns(code: u8) -> Option<u64> {
    (code & 31 != 0).then(|| 4096 << (code & 31))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_the_specification_says() {
        assert_eq!(rnr_wait_ns(0), 655_360_000);
        assert_eq!(rnr_wait_ns(1), 10_000);
        assert_eq!(rnr_wait_ns(12), 640_000);
        assert_eq!(rnr_wait_ns(31), 491_520_000);
        assert_eq!(ack_timeout_ns(0), None);
        assert_eq!(ack_timeout_ns(14), Some(67_108_864));
    }
}
