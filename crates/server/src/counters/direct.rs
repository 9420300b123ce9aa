//! What a volume without a cache counts.

use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_nbd::CommandKind;

use crate::counters::Stats;

/// The counters of a volume without a cache, in blocks like those of cached volumes.
#[derive(Default)]
pub(crate) struct DirectCounters {
    reads: AtomicU64,
    writes: AtomicU64,
    read_failures: AtomicU64,
    write_failures: AtomicU64,
    store_reads: AtomicU64,
    store_writes: AtomicU64,
}

impl DirectCounters {
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        stats.reads += get(&self.reads);
        stats.writes += get(&self.writes);
        stats.read_failures += get(&self.read_failures);
        stats.write_failures += get(&self.write_failures);
        stats.store_reads += get(&self.store_reads);
        stats.store_writes += get(&self.store_writes);
    }

    pub(crate) fn asked(&self, op: CommandKind, blocks: u64) {
        match op {
            CommandKind::Read => self.reads.fetch_add(blocks, Ordering::Relaxed),
            CommandKind::Write => self.writes.fetch_add(blocks, Ordering::Relaxed),
            _ => 0,
        };
    }

    pub(crate) fn ended(&self, op: CommandKind, blocks: u64, failed: bool) {
        let (all, failures) = match op {
            CommandKind::Read => (&self.store_reads, &self.read_failures),
            CommandKind::Write => (&self.store_writes, &self.write_failures),
            _ => return,
        };
        all.fetch_add(blocks, Ordering::Relaxed);
        failures.fetch_add(if failed { blocks } else { 0 }, Ordering::Relaxed);
    }
}
