//! Results with the fixed names that scripts rely on (`docs/user/guide.md`), ready for JSON, and
//! the response-time model.

use serde::{Deserialize, Serialize};
use undercroft_cache::Counts;
use undercroft_cache::placement::Placement;
use undercroft_trace::DenseTrace;

use crate::clients::ClientsReport;
use crate::config::Config;
use crate::costs::Costs;
use crate::movement::MovementReport;
use crate::outcome::{AwareReport, EstimateOutcome, Outcome, WriteBackCounts};
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

/// Times in milliseconds of a request served by the first, second and third level, and by the disk:
/// the preset `hfa` (Meng et al., JCST 2017; the third level is ours).
pub(crate) const LEVEL_MS: [f64; 3] = [0.2, 2.0, 5.0];
pub(crate) const DISK_MS: f64 = 10.0;

/// Mean time of a block read: each read costs the time of the level that served it. A single level
/// counts as the second, which is where Undercroft runs.
fn response_time_ms(outcome: &Outcome) -> f64 {
    let first = usize::from(outcome.levels.len() == 1);
    let hits = outcome.levels.iter().map(|level| level.read_hits);
    let cached: f64 = hits.zip(&LEVEL_MS[first..]).map(|(hits, ms)| hits as f64 * ms).sum();
    // Another client is as far away as a server.
    let peers = outcome.peer_hits() as f64 * LEVEL_MS[1];
    let total = cached + peers + outcome.disk_reads() as f64 * DISK_MS;
    if outcome.reads() == 0 { 0.0 } else { total / outcome.reads() as f64 }
}

/// Mean time of a block read, plus a round trip for each demoted block, charged to the reads.
fn demotions_ms(outcome: &Outcome) -> f64 {
    let levels = outcome.cooperation.iter().flat_map(|cooperation| cooperation.levels.iter());
    // A block comes from the level above, if that is simulated.
    let first = usize::from(outcome.levels.len() == 1);
    // Times for more levels must be configured: see `costs.rs`.
    let ms = |depth: usize| LEVEL_MS[depth.min(LEVEL_MS.len() - 1)];
    let trip = |depth: usize| ms(depth) - ms(depth.saturating_sub(1));
    let total: f64 =
        levels.enumerate().map(|(i, level)| level.demotions_in as f64 * trip(i + first)).sum();
    if outcome.reads() == 0 { 0.0 } else { total / outcome.reads() as f64 }
}

/// The contents of a trace.
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
        left_out: trace.left_out().total(),
    }
}

impl LevelReport {
    /// What a level counts on its own, without what it exchanges with others.
    pub(crate) fn new(
        [name, policy, placement]: [String; 3],
        capacity_blocks: u32,
        counts: &Counts,
    ) -> Self {
        Self {
            name,
            policy,
            placement,
            capacity_blocks,
            reads: counts.reads,
            read_hits: counts.read_hits,
            writes: counts.writes,
            write_hits: counts.write_hits,
            cold_reads: counts.cold_reads,
            read_hit_ratio: counts.read_hit_ratio(),
            evictions: counts.evictions,
            streamed: counts.streamed,
            ..Self::default()
        }
    }
}

impl Report {
    /// The results of `config` on a trace.
    pub fn new(trace: TraceReport, block_bytes: u32, config: &Config, outcome: &Outcome) -> Self {
        let response_time_ms = response_time_ms(outcome);
        let cooperation = outcome.cooperation.as_ref();
        let levels = config.levels.iter().zip(&outcome.levels).enumerate();
        let levels = levels.map(|(depth, (wanted, counts))| {
            let placed = cooperation.and_then(|c| c.levels.get(depth).copied()).unwrap_or_default();
            // The first of several levels always places at the access.
            let is_top = depth == 0 && config.levels.len() > 1;
            let placement = if is_top { Placement::Access } else { config.placement };
            let leader = outcome.leaders.get(depth).copied().flatten();
            let names =
                [format!("l{}", depth + 1), wanted.policy.to_string(), placement.to_string()];
            LevelReport {
                leader: leader.map(str::to_owned),
                demotions_in: placed.demotions_in,
                reloads: placed.reloads,
                known_evictions: placed.known_evictions,
                reloads_skipped: placed.skipped,
                staged: placed.staged,
                staged_hits: placed.staged_hits,
                ..LevelReport::new(names, wanted.capacity, counts)
            }
        });
        Self {
            levels: levels.collect(),
            aggregate: AggregateReport {
                reads: outcome.reads(),
                read_hits: outcome.read_hits(),
                read_hit_ratio: outcome.read_hit_ratio(),
            },
            disk: DiskReport {
                demand_reads: outcome.disk_reads(),
                reloads: outcome.reloads(),
                writes: outcome.disk_writes(),
            },
            write_back: outcome.write_back,
            cooperation: cooperation.map(|cooperation| CooperationReport {
                hint_bytes: cooperation.hint_bytes,
                staging_blocks: cooperation.staging_blocks,
                derived_evictions: cooperation.table.map(|table| table.reported),
                late_evictions: cooperation.table.map(|table| table.late),
                estimate: cooperation.estimate,
            }),
            aware: outcome.aware.clone(),
            timed: outcome.timed.as_ref().map(TimedReport::from),
            response_time_ms,
            response_time_with_demotions_ms: response_time_ms + demotions_ms(outcome),
            response_time_with_reloads_ms: response_time_ms
                + outcome.reloads() as f64 * DISK_MS / outcome.reads().max(1) as f64,
            ..Self::of_run(trace, block_bytes, outcome)
        }
    }

    /// What is said of every run: its trace, and how long it took.
    pub(crate) fn of_run(trace: TraceReport, block_bytes: u32, outcome: &Outcome) -> Self {
        let elapsed_s = outcome.elapsed.as_secs_f64();
        Self {
            trace,
            block_bytes,
            elapsed_s,
            cpu_s: outcome.cpu.as_secs_f64(),
            requests_per_s: outcome.references as f64 / elapsed_s.max(1e-9),
            ..Self::default()
        }
    }

    /// Recomputes the response times with other costs, for levels one below the other.
    pub fn charge(&mut self, costs: &Costs) {
        let hits: Vec<u64> = self.levels.iter().map(|level| level.read_hits).collect();
        let demotions = self.levels.iter().enumerate().skip(1);
        let trips: f64 = demotions
            .map(|(i, level)| level.demotions_in as f64 * costs.round_trip_ms(i - 1))
            .sum();
        self.response_time_ms = costs.mean_ms(&hits, self.disk.demand_reads);
        let charged = trips / self.aggregate.reads.max(1) as f64;
        self.response_time_with_demotions_ms = self.response_time_ms + charged;
        let reloads = self.disk.reloads as f64 * costs.disk_ms;
        let charged = reloads / self.aggregate.reads.max(1) as f64;
        self.response_time_with_reloads_ms = self.response_time_ms + charged;
    }
}
