//! Many seeds; and each guard of the engine, taken away, is missed.

use super::*;

/// Steps of one seed, before it comes to rest.
const STEPS: u64 = 2000;

/// Runs seeds from `first` on until they took `steps`.
fn run(first: u64, steps: u64) -> (u64, u64) {
    let (mut seed, mut done, mut pieces) = (first, 0, 0);
    while done < steps {
        let mut sim = Sim::new(seed, None);
        if let Err(what) = sim.run(STEPS) {
            panic!("seed {seed}: {what}\n{:?}", sim.setup);
        }
        done += sim.steps;
        pieces += sim.world.pieces;
        seed += 1;
    }
    (seed - first, pieces)
}

#[test]
fn a_hundred_thousand_steps_keep_the_contract() {
    let (_, pieces) = run(1, 100_000);
    assert!(pieces > 2_000, "only {pieces} pieces went over lanes");
}

/// `TELEREDUCE_SIM_STEPS`, `TELEREDUCE_SIM_SEED`: how many, from which seed.
#[test]
#[ignore = "long: cargo test --release -p telereduce --lib multipath::sim -- --ignored --nocapture"]
fn a_million_steps_keep_the_contract() {
    let number = |name, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let (steps, first) = (number("TELEREDUCE_SIM_STEPS", 1_000_000), number("TELEREDUCE_SIM_SEED", 1_000_000));
    let (seeds, pieces) = run(first, steps);
    println!("{steps} steps, seeds {first} to {}, {pieces} pieces", first + seeds - 1);
}

#[test]
fn the_simulation_misses_every_guard() {
    for guard in Guard::ALL {
        let caught = (1..400).find_map(|seed| Sim::new(seed, Some(guard)).run(STEPS).err().map(|what| (seed, what)));
        let (seed, what) = caught.unwrap_or_else(|| panic!("without {guard:?} nothing is found"));
        println!("{guard:?}: seed {seed}: {}", what.chars().take(100).collect::<String>());
    }
}
