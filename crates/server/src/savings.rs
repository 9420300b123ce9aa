//! What the cache of a volume saved, since the start and today (since midnight UTC, or the start
//! if that was later).
//!
//! * Disk reads: the blocks that clients read, less the blocks that were read from the store for
//!   any reason, also ahead, for reloads, and for writes of a part of a block. It is negative where
//!   such reads were of no use.
//! * Waiting time: for each request that only hit, the mean time of the requests that missed less
//!   the mean time of those that hit, both of the same period of ten seconds. Where none missed in
//!   a period, the last mean that is known counts; before the first miss nothing does.
//! * The part of hints: read hits of blocks that are here because clients evicted them, less the
//!   blocks that were read back for that; and the same share of the waiting time as of the hits.
//!
//! With less cache the store would have had more to do, and would have been slower: that is in none
//! of these.

use std::ops::{AddAssign, Sub};
use std::time::{Duration, Instant};

use serde::Serialize;
use undercroft_nbd::CommandKind;

use crate::counters::{Latencies, Source, Stats, add_named};

/// The length of a period.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);

/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// What was counted of a volume since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Blocks that clients read, those of them that were hits, and blocks read from the store.
    pub(crate) reads: u64,
    pub(crate) read_hits: u64,
    pub(crate) store_reads: u64,
    /// Read hits of blocks that hints brought here, and blocks read back for hints.
    pub(crate) hinted_hits: u64,
    pub(crate) reloads: u64,
    /// Read requests that only hit and that missed, and their nanoseconds.
    pub(crate) hits: (u64, u64),
    pub(crate) misses: (u64, u64),
}

impl Counted {
    /// What a volume has counted by now.
    pub(crate) fn of(stats: &Stats, latencies: &Latencies) -> Self {
        let coop = stats.cooperation.unwrap_or_default();
        let times = |source| {
            let times = latencies.of(CommandKind::Read, source);
            (times.count(), times.sum_ns())
        };
        let placed = coop.demoted_hits + coop.reloaded_hits + coop.restaged_hits;
        Self {
            reads: stats.reads,
            read_hits: stats.read_hits,
            store_reads: stats.store_reads,
            hinted_hits: placed + coop.staged_hits,
            reloads: coop.reloads,
            hits: times(Source::Hit),
            misses: times(Source::Miss),
        }
    }
}

/// What was saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Saved {
    /// Blocks that were not read from the store.
    pub disk_reads: i64,
    /// Seconds that clients did not wait.
    pub waiting_s: f64,
    /// The part of the disk reads that is due to hints.
    pub hinted_disk_reads: i64,
    /// The part of the waiting time that is due to hints, in seconds.
    pub hinted_waiting_s: f64,
}

impl AddAssign for Saved {
    fn add_assign(&mut self, other: Self) {
        add_named!(self += other: disk_reads waiting_s hinted_disk_reads hinted_waiting_s);
    }
}

impl Sub for Saved {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            disk_reads: self.disk_reads - other.disk_reads,
            waiting_s: self.waiting_s - other.waiting_s,
            hinted_disk_reads: self.hinted_disk_reads - other.hinted_disk_reads,
            hinted_waiting_s: self.hinted_waiting_s - other.hinted_waiting_s,
        }
    }
}

/// What was saved, by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Savings {
    /// Since the start of the volume.
    pub since_start: Saved,
    /// Since midnight UTC, or the start if that was later.
    pub today: Saved,
}

impl Savings {
    /// Adds those of another volume.
    pub fn sum(&mut self, other: &Savings) {
        self.since_start += other.since_start;
        self.today += other.today;
    }
}

/// The account of a volume.
#[derive(Debug)]
pub(crate) struct Account {
    /// The counts at the end of the last period, and when that was.
    last: Counted,
    ended: Instant,
    /// The mean time of a miss in the last period that had one, in seconds.
    miss_s: Option<f64>,
    saved: Saved,
    /// The day, in days since 1970, and what was saved before it.
    day: u64,
    before_today: Saved,
}

impl Account {
    pub(crate) fn new(now: Instant, unix_s: u64) -> Self {
        let (last, miss_s, saved, before_today) = Default::default();
        Self { last, ended: now, miss_s, saved, day: unix_s / DAY_S, before_today }
    }

    /// Whether a period is over.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.ended) >= PERIOD
    }

    /// Ends a period, and says what was saved so far.
    pub(crate) fn end_period(&mut self, now: Instant, unix_s: u64, counted: Counted) -> Savings {
        let last = std::mem::replace(&mut self.last, counted);
        self.ended = now;
        if unix_s / DAY_S != self.day {
            self.day = unix_s / DAY_S;
            self.before_today = self.saved;
        }
        let mean_s = |now: (u64, u64), last: (u64, u64)| {
            let (requests, ns) = (now.0.saturating_sub(last.0), now.1.saturating_sub(last.1));
            (requests > 0).then(|| ns as f64 / 1e9 / requests as f64)
        };
        self.miss_s = mean_s(counted.misses, last.misses).or(self.miss_s);
        let mut waiting_s = 0.0;
        if let (Some(hit_s), Some(miss_s)) = (mean_s(counted.hits, last.hits), self.miss_s) {
            let requests = counted.hits.0.saturating_sub(last.hits.0);
            waiting_s = requests as f64 * (miss_s - hit_s).max(0.0);
        }
        let read_hits = counted.read_hits.saturating_sub(last.read_hits);
        let hinted = counted.hinted_hits.saturating_sub(last.hinted_hits);
        let share = if read_hits > 0 { (hinted as f64 / read_hits as f64).min(1.0) } else { 0.0 };
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let less = |more: u64, less: u64| signed(more).saturating_sub(signed(less));
        self.saved = Saved {
            disk_reads: less(counted.reads, counted.store_reads),
            waiting_s: self.saved.waiting_s + waiting_s,
            hinted_disk_reads: less(counted.hinted_hits, counted.reloads),
            hinted_waiting_s: self.saved.hinted_waiting_s + share * waiting_s,
        };
        Savings { since_start: self.saved, today: self.saved - self.before_today }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn disk_reads_and_waiting_time_of_periods() {
        let (began, noon) = (Instant::now(), 20_000 * DAY_S + DAY_S / 2);
        let mut account = Account::new(began, noon);
        assert!(!account.is_due(began) && account.is_due(began + PERIOD));
        // Before the first miss it is not known what a hit saves.
        let mut counted =
            Counted { reads: 10, read_hits: 10, hits: (10, 10_000), ..Counted::default() };
        let saved = account.end_period(began, noon, counted);
        assert_eq!((saved.since_start.disk_reads, saved.since_start.waiting_s), (10, 0.0));
        // 100 hits of 1 us and 50 misses of 5 ms; 20 of the hits by hints, after 8 reloads.
        counted = Counted {
            reads: 160,
            read_hits: 110,
            store_reads: 50 + 8,
            hinted_hits: 20,
            reloads: 8,
            hits: (110, 110_000),
            misses: (50, 250_000_000),
        };
        let saved = account.end_period(began, noon, counted).since_start;
        let waited = 100.0 * (0.005 - 1e-6);
        assert_eq!((saved.disk_reads, saved.hinted_disk_reads), (102, 12));
        assert!(near(saved.waiting_s, waited) && near(saved.hinted_waiting_s, waited / 5.0));
        // No miss: the last mean counts. The next day.
        counted.reads += 10;
        counted.read_hits += 10;
        counted.hits = (120, 120_000);
        let tomorrow = noon + DAY_S;
        let saved = account.end_period(began, tomorrow, counted);
        assert_eq!((saved.since_start.disk_reads, saved.today.disk_reads), (112, 10));
        assert!(near(saved.today.waiting_s, waited / 10.0), "{saved:?}");
        // A hit that takes longer than a miss saves nothing, and costs nothing.
        counted.hits = (121, 10_000_000_000);
        let slow = account.end_period(began, tomorrow, counted);
        assert!(near(slow.today.waiting_s, saved.today.waiting_s));
        // Reads ahead that nobody wanted.
        counted.store_reads += 1000;
        assert_eq!(account.end_period(began, tomorrow, counted).since_start.disk_reads, -888);
    }
}
