//! Periodic scans of the whole table: for memory that is not a cache, and for pools.

use crate::clock::{cpu_us, now_us};
use crate::pools::{self, Pools};
use crate::segment::{Count, Sent};
use crate::table::{Strays, Table};
use crate::tracker::Tracker;

/// Interval between searches for strays, in microseconds.
const STRAYS_US: u64 = 10_000_000;
/// Intervals between searches for pools: before one is found, and afterwards.
const POOLS_US: [u64; 2] = [1_000_000, 10_000_000];
/// Each kind of scan may take at most one part in this many of a processor's time, so large tables
/// are scanned less often.
const SHARE: u64 = 500;
/// Least number of reads before a pool can be found: at most 64 KiB each, 1 MiB in all.
const FIRST_READS: u64 = 16;

/// The scans, and when the next ones are due.
#[derive(Default)]
pub(super) struct Looks {
    strays: Strays,
    strays_us: u64,
    pools_us: u64,
}

/// When the next scan is due after one that began at `began_us` of processor time and ends now.
fn due(began_us: u64, interval_us: u64) -> u64 {
    let took = cpu_us().saturating_sub(began_us);
    now_us().saturating_add(interval_us.max(took.saturating_mul(SHARE)))
}

impl Looks {
    /// Runs the scans that are due.
    pub(super) fn take(&mut self, tracker: &Tracker) {
        let segment = tracker.segment();
        let table = Table::new(segment);
        if now_us() >= self.strays_us {
            let began = cpu_us();
            segment.count_sent(Sent::Strays, self.strays.forget(table));
            self.strays_us = due(began, STRAYS_US);
        }
        let reads = [Count::Reads, Count::AsyncReads];
        let reads: u64 = reads.into_iter().map(|count| segment.counted(count)).sum();
        if now_us() >= self.pools_us && reads >= FIRST_READS {
            let began = cpu_us();
            let found = pools::find(table, &tracker.memory().mappings());
            Pools::new(segment).publish(&found);
            self.pools_us = due(began, POOLS_US[usize::from(!found.is_empty())]);
        }
    }
}
