//! Looking at all of the table now and then: for memory that is no cache, and for memory that is
//! one.

use crate::pools::{self, Pools};
use crate::segment::{Count, Sent};
use crate::table::{Strays, Table};
use crate::tracker::{Tracker, now_us};

/// How often strays are looked for, in microseconds.
const STRAYS_US: u64 = 10_000_000;
/// How often pools are, until there is one and from then on.
const POOLS_US: [u64; 2] = [1_000_000, 10_000_000];
/// Of the time, one part in so many may be spent on a kind of look: at a large table less often.
const SHARE: u64 = 500;
/// Reads before which no pool can be found: of 64 KiB at most each, 1 MiB.
const FIRST_READS: u64 = 16;

/// The looks, and when the next ones are due.
#[derive(Default)]
pub(super) struct Looks {
    strays: Strays,
    strays_us: u64,
    pools_us: u64,
}

/// When a look is due after one from `start_us` until now.
fn due(start_us: u64, interval_us: u64) -> u64 {
    let now = now_us();
    let took = now.saturating_sub(start_us);
    now.saturating_add(interval_us.max(took.saturating_mul(SHARE)))
}

impl Looks {
    /// Takes those that are due.
    pub(super) fn take(&mut self, tracker: &Tracker) {
        let segment = tracker.segment();
        let (table, now) = (Table::new(segment), now_us());
        if now >= self.strays_us {
            segment.count_sent(Sent::Strays, self.strays.forget(table));
            self.strays_us = due(now, STRAYS_US);
        }
        let (now, reads) = (now_us(), [Count::Reads, Count::AsyncReads]);
        let reads: u64 = reads.into_iter().map(|count| segment.counted(count)).sum();
        if now >= self.pools_us && reads >= FIRST_READS {
            let found = pools::find(table, &tracker.memory().mappings());
            Pools::new(segment).publish(&found);
            self.pools_us = due(now, POOLS_US[usize::from(!found.is_empty())]);
        }
    }
}
