//! What a simulation with a clock found, and its names for scripts.

use serde::{Deserialize, Serialize};
use undercroft_cache::placement::ReloadCounts;

/// What took how long, after the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimedOutcome {
    /// Simulated time in nanoseconds.
    pub elapsed_ns: u64,
    /// Block references answered.
    pub requests: u64,
    /// Of those, reads, and nanoseconds that all of them together took.
    pub reads: u64,
    /// All of the time.
    pub response_ns: u64,
    /// Of that, at links: waiting and being carried.
    pub link_ns: u64,
    /// Waiting for a disk.
    pub wait_ns: u64,
    /// Of that, for the end of a reload that the disk was doing when the read came.
    pub behind_reloads_ns: u64,
    /// Being read from disk.
    pub service_ns: u64,
    /// Share of the time that the disks served reads, writes and reloads.
    pub disk_busy: [f64; 3],
    /// Share of the time that the links carried what was asked for or written, and evicted blocks.
    pub link_busy: [f64; 2],
    /// What became of the reloads before they were issued.
    pub reloads: ReloadCounts,
    /// Reloads that came to nothing, since the block was asked for or written while it was read.
    pub unwanted: u64,
    /// Reads that waited for a reload of their block that was under way. They are misses.
    pub joined: u64,
    /// Hints that came too late: some client had the block again.
    pub stale: u64,
    /// Hints that clients sent.
    pub hints: u64,
    /// How often the way down changed, where it is chosen by cost.
    pub way_changes: u64,
}

/// The outcome in the fixed names of the contract for scripts. Times are means over the reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedReport {
    /// Simulated seconds.
    pub elapsed_s: f64,
    /// Block requests answered a second of simulated time.
    pub requests_per_s: f64,
    /// Mean response time of a block read in milliseconds.
    pub response_ms: f64,
    /// Of that at caches: without waiting, and without the disk.
    pub cache_ms: f64,
    /// At links.
    pub link_ms: f64,
    /// Waiting for a disk.
    pub disk_wait_ms: f64,
    /// Of that, for the end of a reload.
    pub behind_reloads_ms: f64,
    /// Being read from disk.
    pub disk_ms: f64,
    /// Share of the time that the disks served demand reads.
    pub disk_reads_busy: f64,
    /// Writes.
    pub disk_writes_busy: f64,
    /// Reloads.
    pub disk_reloads_busy: f64,
    /// Share of the time that the links carried what was asked for or written.
    pub link_demand_busy: f64,
    /// Evicted blocks.
    pub link_demotions_busy: f64,
    /// Reloads queued.
    pub reloads_queued: u64,
    /// Not queued, since they were.
    pub reloads_duplicate: u64,
    /// Dropped from the queue: the block was asked for.
    pub reloads_demanded: u64,
    /// The block was written.
    pub reloads_written: u64,
    /// The queue was full.
    pub reloads_overflowed: u64,
    /// Read from disk.
    pub reloads_issued: u64,
    /// Of those, in vain: the block was asked for or written meanwhile.
    pub reloads_unwanted: u64,
    /// Reads that waited for a reload of their block.
    pub joined: u64,
    /// Hints that came too late: some client had the block again.
    pub hints_stale: u64,
    /// Changes of the way down.
    pub way_changes: u64,
}

const NS_PER_MS: f64 = 1e6;

impl From<&TimedOutcome> for TimedReport {
    fn from(outcome: &TimedOutcome) -> Self {
        let reads = outcome.reads.max(1) as f64;
        let mean_ms = |ns: u64| ns as f64 / reads / NS_PER_MS;
        let below_ns = outcome.link_ns + outcome.wait_ns + outcome.service_ns;
        let elapsed_s = outcome.elapsed_ns as f64 / 1e9;
        let [disk_reads_busy, disk_writes_busy, disk_reloads_busy] = outcome.disk_busy;
        let [link_demand_busy, link_demotions_busy] = outcome.link_busy;
        let reloads = &outcome.reloads;
        Self {
            elapsed_s,
            requests_per_s: outcome.requests as f64 / elapsed_s.max(1e-9),
            response_ms: mean_ms(outcome.response_ns),
            cache_ms: mean_ms(outcome.response_ns - below_ns),
            link_ms: mean_ms(outcome.link_ns),
            disk_wait_ms: mean_ms(outcome.wait_ns),
            behind_reloads_ms: mean_ms(outcome.behind_reloads_ns),
            disk_ms: mean_ms(outcome.service_ns),
            disk_reads_busy,
            disk_writes_busy,
            disk_reloads_busy,
            link_demand_busy,
            link_demotions_busy,
            reloads_queued: reloads.queued,
            reloads_duplicate: reloads.duplicates,
            reloads_demanded: reloads.demanded,
            reloads_written: reloads.written,
            reloads_overflowed: reloads.overflowed,
            reloads_issued: reloads.issued,
            reloads_unwanted: outcome.unwanted,
            joined: outcome.joined,
            hints_stale: outcome.stale,
            way_changes: outcome.way_changes,
        }
    }
}
