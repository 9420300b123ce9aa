//! The whole server, simulated from one seed.
//!
//! A seed draws a [`scenario`]: servers with their volumes, clients, and what befalls them. All of
//! it runs on one thread and a clock that goes on only when everybody waits, so a seed has one
//! outcome. The servers are those of the program ([`node`]), over streams in memory ([`wire`]) and
//! on disks that fail ([`disk`]), and some have a level on flash ([`flash`]) or a write log
//! ([`write_log`]). What the clients were answered ([`history`]) is judged by the [`checker`].
//! docs/developer/testing.md says what is simulated and how to look at a seed.
#![allow(unreachable_pub)]

mod administrator;
mod attached;
mod blows;
mod checker;
mod client;
mod disk;
mod flash;
mod flood;
mod history;
mod node;
mod random;
mod report;
mod run;
mod scenario;
mod seeds;
mod tally;
mod wire;
mod world;
mod write_log;

use std::time::{Duration, Instant};

/// A seed that is looked at: its log is shown.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("UNDERCROFT_SEED") else { return };
    let report = run::seed(seed.parse().expect("UNDERCROFT_SEED is a number"), true);
    println!("{report:#?}");
    assert!(report.faults.is_empty(), "{}", report.explain());
}

#[test]
fn one_seed_has_one_outcome() {
    for seed in 1..=24 {
        let (once, again) = (run::seed(seed, false), run::seed(seed, false));
        assert_eq!(once.hash, again.hash, "seed {seed}");
        assert_eq!(once.requests, again.requests, "seed {seed}");
    }
}

#[test]
fn a_thousand_seeds() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first = number("SIMULATE_FROM", 1);
    seeds::all(first..first + number("SIMULATE_SEEDS", 1000), None);
}

/// Seeds that found something, each with what it was.
#[test]
fn seeds_that_found_something() {
    let all = seeds::FOUND.iter().chain(seeds::FOUND_WITH_FLASH);
    seeds::all(all.map(|(seed, _)| *seed), None);
}

/// For as long as SIMULATE_MINUTES says, with seeds that nobody has seen.
#[test]
#[ignore = "takes as long as it is told to"]
fn for_some_time() {
    let minutes = std::env::var("SIMULATE_MINUTES").map_or(60.0, |text| text.parse().unwrap());
    let first = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() << 20;
    let until = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    seeds::all(first.., Some(until));
}
