//! Results with the fixed names that scripts rely on (`docs/user/guide.md`), ready for JSON.
//! `report/of_outcome.rs` makes them of what was simulated and of what was counted.

mod of_outcome;

use serde::{Deserialize, Serialize};

use crate::FlashReport;
use crate::clients::ClientsReport;
use crate::movement::MovementReport;
use crate::outcome::{AwareReport, EstimateOutcome, WriteBackCounts};
use crate::timed::TimedReport;

/// One simulation, as `simulate --json` prints it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The trace that was simulated.
    pub trace: TraceReport,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// Levels, nearest to the application first.
    pub levels: Vec<LevelReport>,
    /// The levels together.
    pub aggregate: AggregateReport,
    /// Disk traffic in blocks.
    pub disk: DiskReport,
    /// The disk's writes by reason; left out unless the lowest level writes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_back: Option<WriteBackCounts>,
    /// The flash level; left out without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashReport>,
    /// Results of cooperation; left out with access-based placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooperation: Option<CooperationReport>,
    /// Knowledge of content-aware levels; left out without such levels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aware: Vec<AwareReport>,
    /// Results of several clients; left out with one client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClientsReport>,
    /// Times; left out without a clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed: Option<TimedReport>,
    /// Times with placement at the access, for comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_access: Option<TimedReport>,
    /// Moves between levels; left out without a scheme of movement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub movement: Option<MovementReport>,
    /// Mean response time of a block read in milliseconds, with free demotions.
    pub response_time_ms: f64,
    /// Mean response time of a block read in milliseconds, with a round trip for each demotion.
    pub response_time_with_demotions_ms: f64,
    /// Mean response time of a block read in milliseconds, if a read waits for each reload.
    #[serde(default)]
    pub response_time_with_reloads_ms: f64,
    /// Elapsed time of the simulation in seconds, without reading the trace.
    pub elapsed_s: f64,
    /// Processor time of the simulation in seconds, without reading the trace.
    pub cpu_s: f64,
    /// Block requests simulated per second.
    pub requests_per_s: f64,
}

/// The contents of the trace, the warm-up included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceReport {
    /// Path as given.
    pub path: String,
    /// Format as recognised or given.
    pub format: String,
    /// Records of the file.
    pub records: u64,
    /// Block requests: reads and writes.
    pub requests: u64,
    /// Blocks read.
    pub reads: u64,
    /// Blocks written.
    pub writes: u64,
    /// Distinct blocks.
    pub unique_blocks: u64,
    /// Records left out because they move no data (discards, flushes, lengths of zero).
    pub left_out: u64,
}

/// The counts of one level after the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelReport {
    /// `l1`, `l2`, ...
    pub name: String,
    /// Policy with the parameters that differ from their defaults.
    pub policy: String,
    /// What decides at the end which block leaves, if the policy chooses among several ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// When blocks enter and leave.
    pub placement: String,
    /// Size in blocks.
    pub capacity_blocks: u32,
    /// Blocks read.
    pub reads: u64,
    /// Reads that hit.
    pub read_hits: u64,
    /// Blocks written.
    pub writes: u64,
    /// Writes that hit.
    pub write_hits: u64,
    /// Reads of blocks never referenced before.
    pub cold_reads: u64,
    /// Read hits / reads that reached this level.
    pub read_hit_ratio: f64,
    /// Blocks evicted by replacement.
    pub evictions: u64,
    /// Blocks read or written past the level, because they belong to a recognised stream and were
    /// not resident.
    #[serde(default)]
    pub streamed: u64,
    /// Blocks that came from the level above.
    pub demotions_in: u64,
    /// The demotions of blocks that were there already; with the scheme DEMOTE only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demote_hits: Option<u64>,
    /// Blocks that came from the level below, to stay.
    pub promotions_in: u64,
    /// Blocks read from disk because the level above evicted them.
    pub reloads: u64,
    /// Evictions by the level above that became known.
    #[serde(default)]
    pub known_evictions: u64,
    /// Known evictions of blocks that were not worth a reload.
    #[serde(default)]
    pub reloads_skipped: u64,
    /// Known evictions of blocks placed from the staging area, without a reload.
    #[serde(default)]
    pub staged: u64,
    /// Reads served from the staging area; also among the read hits.
    #[serde(default)]
    pub staged_hits: u64,
}

/// The cost of cooperation, and how well evictions were known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CooperationReport {
    /// Bytes of hints from the client.
    pub hint_bytes: u64,
    /// Size of the staging area in blocks at the end, beside the capacity.
    pub staging_blocks: u32,
    /// Evictions derived from buffer addresses in time, over the whole trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_evictions: Option<u64>,
    /// Evictions that showed only when the block was read again, over the whole trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_evictions: Option<u64>,
    /// The quality of the emulation of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateOutcome>,
}

/// All levels together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AggregateReport {
    /// Blocks read by the applications.
    pub reads: u64,
    /// Reads served by a level or by another client.
    pub read_hits: u64,
    /// Served / read.
    pub read_hit_ratio: f64,
}

/// Disk traffic in blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Reads that no level and no other client served.
    pub demand_reads: u64,
    /// Reads for placement.
    pub reloads: u64,
    /// Writes.
    pub writes: u64,
}
