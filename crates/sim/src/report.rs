//! Results in the fixed names of the contract for scripts (`docs/guide.md`), ready for JSON, and
//! the response-time model.

use serde::{Deserialize, Serialize};
use undercroft_trace::DenseTrace;

use crate::hierarchy::{Config, Outcome};

/// One simulation, as `simulate --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Mean response time of a block read in milliseconds, demotions free.
    pub response_time_ms: f64,
    /// The same with a round trip for each demotion.
    pub response_time_with_demotions_ms: f64,
    /// Duration of the simulation in seconds, without reading the trace.
    pub elapsed_s: f64,
    /// Processor time of the same in seconds.
    pub cpu_s: f64,
    /// Block requests simulated a second.
    pub requests_per_s: f64,
}

/// What the trace holds, the warm-up included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Records left out because they neither read nor write (discards, flushes).
    pub left_out: u64,
}

/// What one level counted after the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelReport {
    /// `l1`, `l2`, ...
    pub name: String,
    /// Policy with the parameters that are not at their default.
    pub policy: String,
    /// When blocks come and go.
    pub placement: String,
    /// Size in blocks.
    pub capacity_blocks: u32,
    /// Blocks read.
    pub reads: u64,
    /// Reads that found their block.
    pub read_hits: u64,
    /// Blocks written.
    pub writes: u64,
    /// Writes that found their block.
    pub write_hits: u64,
    /// Reads of blocks never referenced before.
    pub cold_reads: u64,
    /// Read hits / reads that reached this level.
    pub read_hit_ratio: f64,
    /// Blocks driven out by replacement.
    pub evictions: u64,
    /// Blocks that came from the level above.
    pub demotions_in: u64,
    /// Blocks that came from the level below to stay.
    pub promotions_in: u64,
    /// Blocks read from disk because the level above evicted them.
    pub reloads: u64,
}

/// All levels together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AggregateReport {
    /// Blocks read by the applications.
    pub reads: u64,
    /// Of those, served by some level.
    pub read_hits: u64,
    /// Served / read.
    pub read_hit_ratio: f64,
}

/// Disk traffic in blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Reads that no level served.
    pub demand_reads: u64,
    /// Reads that a placement asked for.
    pub reloads: u64,
    /// Writes.
    pub writes: u64,
}

/// Times in milliseconds of a request served by the first, second and third level and by the disk:
/// the preset `hfa` (Meng et al., JCST 2017; the third level is ours).
const LEVEL_MS: [f64; 3] = [0.2, 2.0, 5.0];
const DISK_MS: f64 = 10.0;

/// Mean time of a block read: each costs the time of the level that served it. A single level
/// counts as the second, since that is what Undercroft is about.
fn response_time_ms(outcome: &Outcome) -> f64 {
    let first = usize::from(outcome.levels.len() == 1);
    let hits = outcome.levels.iter().map(|level| level.read_hits);
    let cached: f64 = hits.zip(&LEVEL_MS[first..]).map(|(hits, ms)| hits as f64 * ms).sum();
    let total = cached + outcome.disk_reads() as f64 * DISK_MS;
    if outcome.reads() == 0 { 0.0 } else { total / outcome.reads() as f64 }
}

/// What a trace holds.
pub fn trace_report(path: &str, trace: &DenseTrace) -> TraceReport {
    let seen = trace.seen();
    TraceReport {
        path: path.into(),
        format: trace.meta().format.into(),
        records: seen.records,
        requests: seen.references(),
        reads: seen.reads,
        writes: seen.writes,
        unique_blocks: u64::from(trace.unique()),
        left_out: trace.left_out(),
    }
}

impl Report {
    /// The results of `config` on a trace.
    pub fn new(trace: TraceReport, block_bytes: u32, config: &Config, outcome: &Outcome) -> Self {
        let response_time_ms = response_time_ms(outcome);
        let elapsed_s = outcome.elapsed.as_secs_f64();
        let levels = config.levels.iter().zip(&outcome.levels).enumerate();
        let levels = levels.map(|(depth, (wanted, counts))| LevelReport {
            name: format!("l{}", depth + 1),
            policy: wanted.policy.to_string(),
            placement: "access".into(),
            capacity_blocks: wanted.capacity,
            reads: counts.reads,
            read_hits: counts.read_hits,
            writes: counts.writes,
            write_hits: counts.write_hits,
            cold_reads: counts.cold_reads,
            read_hit_ratio: counts.read_hit_ratio(),
            evictions: counts.evictions,
            demotions_in: 0,
            promotions_in: 0,
            reloads: 0,
        });
        Self {
            trace,
            block_bytes,
            levels: levels.collect(),
            aggregate: AggregateReport {
                reads: outcome.reads(),
                read_hits: outcome.read_hits(),
                read_hit_ratio: outcome.read_hit_ratio(),
            },
            disk: DiskReport {
                demand_reads: outcome.disk_reads(),
                reloads: 0,
                writes: outcome.disk_writes(),
            },
            response_time_ms,
            response_time_with_demotions_ms: response_time_ms,
            elapsed_s,
            cpu_s: outcome.cpu.as_secs_f64(),
            requests_per_s: outcome.references as f64 / elapsed_s.max(1e-9),
        }
    }
}
