//! What became of the contents that clients handed over, as the servers counted it: so that nobody
//! takes a simulation for a test of them in which they are never accepted, or never refused.

use std::fmt;
use std::sync::Arc;

use undercroft_server::{CooperationStats, Volume};

/// Fewest seeds after which each count must have occurred.
const SEEDS_MIN: u64 = 500;

/// Counts by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([u64; NAMES.len()]);

const NAMES: [&str; 8] = [
    "accepted",
    "unknown",
    "changed",
    "busy",
    "malformed",
    "forbidden",
    "awaited",
    "placed by their WRITE",
];

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.0.iter_mut().zip(other.0).for_each(|(own, more)| *own += more);
    }

    /// What these volumes have counted so far.
    pub fn of(volumes: &[Arc<Volume>]) -> Tally {
        let mut all = CooperationStats::default();
        volumes.iter().filter_map(|volume| volume.stats().cooperation).for_each(|c| all.sum(&c));
        Tally([
            all.demotions_accepted,
            all.demotions_refused_unknown,
            all.demotions_refused_changed,
            all.demotions_refused_busy,
            all.demotions_refused_malformed,
            all.demotions_refused_forbidden,
            all.demotions_awaited,
            all.demotions_written,
        ])
    }

    /// What did not occur in so many seeds.
    pub fn missing(&self, seeds: u64) -> Vec<&'static str> {
        let absent = NAMES.iter().zip(self.0).filter(|(_, count)| *count == 0);
        absent.map(|(name, _)| *name).filter(|_| seeds >= SEEDS_MIN).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = NAMES.iter().zip(self.0).map(|(name, count)| format!("{count} {name}"));
        f.write_str(&counts.collect::<Vec<_>>().join(", "))
    }
}
