//! How long a lane waits for an acknowledgement before it fails.

/// Local ACK timeout at least: 4.096 us * 2^16, 0.27 s. Many lanes may queue at one link: that is no loss.
const LEAST_TIMEOUT: u8 = 16;
/// Retries at most. Soft-RoCE takes seven for no end: a lane whose peer has failed, and whose peer's word of it is lost, would
/// never fail, nor its pieces go elsewhere.
const MOST_RETRIES: u8 = 6;

/// The attributes `timeout` and `retry_cnt` of a lane, of those of the application's QP. A timeout of 0 waits for ever, as the
/// application wants it.
pub fn of_lane(timeout: u8, retry_cnt: u8) -> (u8, u8) {
    let timeout = if timeout == 0 { 0 } else { timeout.max(LEAST_TIMEOUT) };
    (timeout, retry_cnt.min(MOST_RETRIES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_lane_tries_for_ever_unless_the_application_waits_for_ever() {
        for timeout in 1..32 {
            for retries in 0..8 {
                let (t, r) = of_lane(timeout, retries);
                assert!((16..32).contains(&t) && t >= timeout && r < 7 && r <= retries, "{timeout} {retries}");
            }
        }
        assert_eq!((of_lane(0, 7), of_lane(20, 3)), ((0, 6), (20, 3)));
    }
}
