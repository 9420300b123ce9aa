//! What became of the contents that clients handed over, of blocks on flash, and of write logs, as
//! the servers counted it: so that nobody takes a simulation for a test of them in which contents
//! are never accepted, or never refused, or in which nothing is read from flash.

use std::fmt;
use std::sync::Arc;

use undercroft_server::{CooperationStats, FlashStats, Volume};

/// Fewest seeds after which each count must have occurred.
const SEEDS_MIN: u64 = 500;

/// Counts by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([u64; NAMES.len()]);

/// The number of counts of contents, which are the first ones.
const CONTENTS: usize = 8;

const NAMES: [&str; 14] = [
    "accepted",
    "unknown",
    "changed",
    "busy",
    "malformed",
    "forbidden",
    "awaited",
    "placed by their WRITE",
    "written to flash",
    "read from flash",
    "refused by flash",
    "damaged on flash",
    "found on flash after a start",
    "bytes found in a write log after a start",
];

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.0.iter_mut().zip(other.0).for_each(|(own, more)| *own += more);
    }

    /// What these volumes have counted so far.
    pub fn of(volumes: &[Arc<Volume>]) -> Tally {
        let (mut all, mut flash) = (CooperationStats::default(), FlashStats::default());
        volumes.iter().filter_map(|volume| volume.stats().cooperation).for_each(|c| all.sum(&c));
        volumes.iter().filter_map(|volume| volume.stats().flash).for_each(|f| flash.sum(&f));
        Tally([
            all.demotions_accepted,
            all.demotions_refused_unknown,
            all.demotions_refused_changed,
            all.demotions_refused_busy,
            all.demotions_refused_malformed,
            all.demotions_refused_forbidden,
            all.demotions_awaited,
            all.demotions_written,
            flash.written,
            flash.hits,
            flash.failed_reads + flash.failed_writes,
            flash.damaged,
            0,
            0,
        ])
    }

    /// What these volumes have found on flash and in their logs at their start.
    pub fn found(volumes: &[Arc<Volume>]) -> Tally {
        let flash = volumes.iter().filter_map(|volume| volume.stats().flash);
        let logs = volumes.iter().filter_map(|volume| volume.stats().log);
        let mut tally = Tally::default();
        let [.., on_flash, in_logs] = &mut tally.0;
        *on_flash = flash.map(|flash| flash.durable).sum();
        *in_logs = logs.map(|log| log.used_bytes).sum();
        tally
    }

    /// Counts of contents are of no use where they were not all handed over in the same way.
    pub fn forget_contents(&mut self) {
        self.0[..CONTENTS].fill(0);
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
