//! Packet sequence numbers: 24 bits that wrap.

/// The bits of a PSN.
pub const MASK: u32 = 0xff_ffff;

/// `psn + n`, wrapped.
pub fn add(psn: u32, n: u32) -> u32 {
    psn.wrapping_add(n) & MASK
}

/// How far `a` lies after `b`: negative if it lies before. Right while they are less than 2^23 apart.
pub fn distance(a: u32, b: u32) -> i32 {
    (a.wrapping_sub(b) << 8).cast_signed() >> 8
}

/// How many PSNs a message of so many bytes takes.
pub fn count(bytes: u32, mtu: u32) -> u32 {
    bytes.div_ceil(mtu).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn distance_undoes_add(psn in 0..=MASK, n in 0u32..1 << 23) {
            prop_assert_eq!(distance(add(psn, n), psn), n.cast_signed());
            prop_assert_eq!(distance(psn, add(psn, n)), -n.cast_signed());
        }
    }

    #[test]
    fn an_empty_message_takes_one_number() {
        assert_eq!([count(0, 1024), count(1, 1024), count(1024, 1024), count(1025, 1024)], [1, 1, 1, 2]);
    }
}
