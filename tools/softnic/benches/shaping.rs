//! How near to its rate a path comes: four paths of 10 Gb/s, a QP on each, WRITEs of 1 MiB for 2 s.
//!
//! `cargo bench -p softnic`

#[path = "../tests/common/verbs.rs"]
#[allow(dead_code, reason = "made for tests")]
mod verbs;

use rdma_sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
use std::time::{Duration, Instant};
use verbs::*;

const BYTES: u32 = 1 << 20;
const DEPTH: u64 = 32;
const LAST: Duration = Duration::from_secs(2);

fn main() {
    let mut config = String::new();
    for n in 1..=4 {
        config += &format!("[[path]]\nfrom = ['127.0.0.{n}']\nto = ['127.0.0.{n}']\nrate_gbps = 10.0\n");
    }
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("softnic.toml");
    std::fs::write(&file, config).expect("a file");
    // SAFETY: no other thread runs yet.
    unsafe {
        std::env::set_var("SOFTNIC_CONFIG", &file);
        std::env::set_var("SOFTNIC_NETWORK", format!("bench-{}", std::process::id()));
    }
    let d = Dev::open(2 * BYTES as usize);
    let shapes: Vec<_> = (1..=4).map(|gid| Shape { gid, timeout: 18, ..Shape::default() }).collect();
    let qps: Vec<_> = shapes.iter().map(|s| Q::pair(&d, [s, s])[0]).collect();
    let mut list = [sge(d.addr(), BYTES, d.key())];
    let mut post = |q: &Q| {
        let mut w = rdma(wr(0, IBV_WR_RDMA_WRITE, SIGNALED, &mut list), d.addr() + u64::from(BYTES), d.key());
        assert_eq!(q.post(&mut w), 0);
    };
    for q in &qps {
        (0..DEPTH).for_each(|_| post(q));
    }
    let begin = Instant::now();
    let mut done = [0u64; 4];
    while begin.elapsed() < LAST {
        for (q, n) in qps.iter().zip(&mut done) {
            while let Some(c) = poll(q.cq) {
                assert_eq!(c.status, 0);
                *n += 1;
                post(q);
            }
        }
    }
    let time = begin.elapsed().as_secs_f64();
    let rates = done.map(|n| n as f64 * f64::from(BYTES) * 8e-9 / time);
    println!("paths {rates:.3?} Gb/s, sum {:.3} of 40 Gb/s", rates.iter().sum::<f64>());
}
