//! Names of numbers, for people, and rates.

use std::ffi::{CStr, c_char, c_int};

fn name(names: &[&'static CStr], n: u32) -> *const c_char {
    names.get(n as usize).unwrap_or(&c"unknown").as_ptr()
}

/// `IBV_NODE_*`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_node_type_str(n: u32) -> *const c_char {
    name(&[c"unknown", c"InfiniBand channel adapter"], n)
}

/// `IBV_PORT_*`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_port_state_str(n: u32) -> *const c_char {
    name(&[c"no change", c"PORT_DOWN", c"PORT_INIT", c"PORT_ARMED", c"PORT_ACTIVE", c"PORT_ACTIVE_DEFER"], n)
}

/// `IBV_EVENT_*`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_event_type_str(n: u32) -> *const c_char {
    name(
        &[
            c"CQ error",
            c"QP fatal error",
            c"QP request error",
            c"QP access error",
            c"communication established",
            c"send queue drained",
            c"path migrated",
            c"path migration error",
            c"device fatal error",
            c"port active",
            c"port error",
            c"LID change",
            c"P_Key change",
            c"SM change",
            c"SRQ error",
            c"SRQ limit reached",
            c"last WQE reached",
            c"client reregistration",
            c"GID table change",
            c"WQ fatal error",
        ],
        n,
    )
}

/// `IBV_WC_*`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_wc_status_str(n: u32) -> *const c_char {
    name(
        &[
            c"success",
            c"local length error",
            c"local QP operation error",
            c"local EE context operation error",
            c"local protection error",
            c"work request flushed error",
            c"memory window bind error",
            c"bad response error",
            c"local access error",
            c"remote invalid request error",
            c"remote access error",
            c"remote operation error",
            c"transport retry counter exceeded",
            c"RNR retry counter exceeded",
            c"local RDD violation error",
            c"remote invalid RD request",
            c"aborted error",
            c"invalid EE context number",
            c"invalid EE context state",
            c"fatal error",
            c"response timeout error",
            c"general error",
            c"tag matching error",
            c"tag matching rendezvous incomplete",
        ],
        n,
    )
}

/// `IBV_RATE_*` and what each is: (rate, multiple of 2.5 Gb/s or -1, Mb/s).
const RATES: [(u32, c_int, c_int); 20] = [
    (2, 1, 2500),
    (5, 2, 5000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 5, 14_062),
    (12, 45, 112_500),
    (13, 10, 25_781),
    (14, 67, 168_750),
    (15, 11, 28_125),
    (16, 20, 50_000),
    (17, 160, 400_000),
    (18, 240, 600_000),
    (19, -1, 206_250),
    (20, -1, 309_375),
    (21, -1, 412_500),
];

/// Its multiple of 2.5 Gb/s.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mult(rate: u32) -> c_int {
    RATES.iter().find(|r| r.0 == rate).map_or(-1, |r| r.1)
}

/// The rate of a multiple.
#[unsafe(no_mangle)]
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> u32 {
    RATES.iter().find(|r| r.1 == mult && mult > 0).map_or(0, |r| r.0)
}

/// In Mb/s.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mbps(rate: u32) -> c_int {
    RATES.iter().find(|r| r.0 == rate).map_or(-1, |r| r.2)
}

/// The rate of so many Mb/s.
#[unsafe(no_mangle)]
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> u32 {
    RATES.iter().find(|r| r.2 == mbps).map_or(0, |r| r.0)
}
