//! Many seeds; and each guard of the engine, taken away, is missed.

use super::super::driver::Stats;
use super::super::plan::Pass;
use super::*;

/// Steps of one seed, before it comes to rest.
const STEPS: u64 = 2000;

/// Runs seeds from `first` on until they took `steps`. Returns how many, what the engines did, and how often they slept.
fn run(first: u64, steps: u64) -> (u64, Stats, u64) {
    let (mut seed, mut done, mut sum, mut naps) = (first, 0, Stats::default(), 0);
    while done < steps {
        let mut sim = Sim::new(seed, None);
        if let Err(what) = sim.run(STEPS) {
            panic!("seed {seed}: {what}\n{:?}", sim.setup);
        }
        done += sim.steps;
        naps += sim.naps;
        let s = sim.engine.stats();
        for (all, one) in sum.passed.iter_mut().zip(s.passed) {
            *all += one;
        }
        for (all, one) in [
            (&mut sum.split, s.split),
            (&mut sum.split_imm, s.split_imm),
            (&mut sum.chunks, s.chunks),
            (&mut sum.replayed, s.replayed),
            (&mut sum.heads, s.heads),
            (&mut sum.whole, s.whole),
            (&mut sum.held, s.held),
        ] {
            *all += one;
        }
        seed += 1;
    }
    (seed - first, sum, naps)
}

#[test]
fn a_hundred_thousand_steps_keep_the_contract() {
    let (_, s, naps) = run(1, 100_000);
    let of = |p: Pass| s.passed[p as usize];
    assert!(s.split > 1000 && s.chunks > 3000 && s.replayed > 100 && s.heads > 200 && s.whole > 50, "{s:?}");
    assert!(naps > 150, "{naps}");
    assert!(s.split_imm > 100 && of(Pass::NoRing) > 0, "{s:?}");
    assert!(of(Pass::NoLane) > 0 && of(Pass::LaneRefused) > 0 && of(Pass::NotReady) > 0, "{s:?}");
}

/// `TELEREDUCE_SIM_STEPS`, `TELEREDUCE_SIM_SEED`: how many, from which seed.
#[test]
#[ignore = "long: cargo test --release -p telereduce --lib multipath::sim -- --ignored --nocapture"]
fn a_million_steps_keep_the_contract() {
    let number = |name, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let (steps, first) = (number("TELEREDUCE_SIM_STEPS", 1_000_000), number("TELEREDUCE_SIM_SEED", 1_000_000));
    let (seeds, stats, _) = run(first, steps);
    println!("{steps} steps, seeds {first} to {}\n{stats:?}", first + seeds - 1);
}

#[test]
fn the_simulation_misses_every_guard() {
    for guard in Guard::ALL {
        let caught = (1..2000).find_map(|seed| Sim::new(seed, Some(guard)).run(STEPS).err().map(|what| (seed, what)));
        let (seed, what) = caught.unwrap_or_else(|| panic!("without {guard:?} nothing is found"));
        println!("{guard:?}: seed {seed}: {}", what.chars().take(100).collect::<String>());
    }
}
