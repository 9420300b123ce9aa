//! The times of a simulation with a clock, by the names that scripts rely on.

use serde::{Deserialize, Serialize};

use crate::TimedOutcome;

/// The outcome of a clock with the fixed names that scripts rely on. Times are means over the
/// reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedReport {
    /// Simulated seconds.
    pub elapsed_s: f64,
    /// Block requests answered per second of simulated time.
    pub requests_per_s: f64,
    /// Mean response time of a block read in milliseconds.
    pub response_ms: f64,
    /// The part of the response time spent at caches, without waiting, disk and flash, in
    /// milliseconds.
    pub cache_ms: f64,
    /// The part of the response time spent at links, in milliseconds.
    pub link_ms: f64,
    /// The part of the response time spent waiting for a disk, in milliseconds.
    pub disk_wait_ms: f64,
    /// The part of the disk wait for the end of a reload, in milliseconds.
    pub behind_reloads_ms: f64,
    /// The part of the response time in which the disk read the block, in milliseconds.
    pub disk_ms: f64,
    /// Share of the time in which the disks served demand reads.
    pub disk_reads_busy: f64,
    /// Share of the time in which the disks served writes.
    pub disk_writes_busy: f64,
    /// Share of the time in which the disks served reloads.
    pub disk_reloads_busy: f64,
    /// Share of the time in which the links carried requested and written blocks.
    pub link_demand_busy: f64,
    /// Share of the time in which the links carried evicted blocks.
    pub link_demotions_busy: f64,
    /// Reloads queued.
    pub reloads_queued: u64,
    /// Reloads that were queued already.
    pub reloads_duplicate: u64,
    /// Reloads dropped from the queue because the block was requested.
    pub reloads_demanded: u64,
    /// Reloads dropped from the queue because the block was written.
    pub reloads_written: u64,
    /// Reloads dropped because the queue was full.
    pub reloads_overflowed: u64,
    /// Reloads read from disk.
    pub reloads_issued: u64,
    /// Issued reloads that were unused: the block was requested or written in the meantime.
    pub reloads_unwanted: u64,
    /// Reads that waited for a reload of their block.
    pub joined: u64,
    /// Hints that came too late: a client had the block again.
    pub hints_stale: u64,
    /// Number of changes of the way down.
    pub way_changes: u64,
}

const NS_PER_MS: f64 = 1e6;

impl From<&TimedOutcome> for TimedReport {
    fn from(outcome: &TimedOutcome) -> Self {
        let reads = outcome.reads.max(1) as f64;
        let mean_ms = |ns: u64| ns as f64 / reads / NS_PER_MS;
        let below_ns = outcome.link_ns + outcome.wait_ns + outcome.service_ns + outcome.flash_ns;
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
