//! Many simulations: every combination of traces, sizes, policies and placements, on all cores.
//! `sweep/plan.rs` defines the combinations, `sweep/journal.rs` writes the files.
//!
//! Each finished run is appended to a journal in the folder of the results. A sweep that was
//! interrupted reads the journal and runs only what is missing.

mod check;
mod journal;
mod plan;

use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use undercroft_level::placement::Placement;
use undercroft_policy::Spec;

use crate::drive::Proceed;
use crate::report::Report;
use crate::setup::{Prepared, Setup};
use crate::{Config, Error, FlashLevel, LevelSpec, Lowest, Rule, Size, Warmup};
pub use journal::Journal;
use journal::results_error;
pub use plan::{Plan, parse_policies};

/// A trace of a sweep; it is opened when needed.
pub struct Source<'a> {
    /// Path of the trace.
    pub path: PathBuf,
    /// All other options that decide what is read from it (block size, format, ...), as text. Runs
    /// of an earlier sweep are reused only if this text is equal.
    pub reading: String,
    /// The start of it that is not counted.
    pub warmup: Warmup,
    /// Reads the trace.
    pub load: Box<dyn Fn() -> Result<Prepared, Error> + Sync + 'a>,
}

/// One run: a line of `results.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Path of the trace.
    pub trace: String,
    /// The level above, or empty.
    pub upper: String,
    /// Sizes of all levels relative to the first, or empty.
    #[serde(default)]
    pub ratio: String,
    /// Policy of the level that varies.
    pub policy: String,
    /// Placement of the level that varies.
    pub placement: String,
    /// The flash level below, or empty.
    #[serde(default)]
    pub flash: String,
    /// Size as configured.
    pub size: String,
    /// Size in blocks; with a ratio, that of the last level, as are the counts below.
    pub capacity_blocks: u32,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// Block requests of the trace.
    pub requests: u64,
    /// Distinct blocks of the trace.
    pub unique_blocks: u64,
    /// Block reads that reached the level.
    pub reads: u64,
    /// Block reads that hit.
    pub read_hits: u64,
    /// Hits / reads at the level.
    pub read_hit_ratio: f64,
    /// Block writes.
    pub writes: u64,
    /// Block writes that hit.
    pub write_hits: u64,
    /// Reads of blocks never referenced before.
    pub cold_reads: u64,
    /// Blocks evicted.
    pub evictions: u64,
    /// Blocks read or written past the level, as parts of streams.
    #[serde(default)]
    pub streamed: u64,
    /// Reads served by some level / reads of the applications.
    pub aggregate_read_hit_ratio: f64,
    /// Blocks read from disk on demand.
    pub disk_demand_reads: u64,
    /// Blocks read from disk for placement.
    pub disk_reloads: u64,
    /// Blocks written to disk.
    pub disk_writes: u64,
    /// Mean response time of a read, ms.
    pub response_time_ms: f64,
    /// Mean response time of a read with the cost of demotions, ms.
    #[serde(default)]
    pub response_time_with_demotions_ms: f64,
    /// Blocks that the level above demoted.
    #[serde(default)]
    pub demotions_in: u64,
    /// Blocks that were promoted from the level, to stay above.
    #[serde(default)]
    pub promotions_out: u64,
    /// Blocks placed from the staging area, without a reload.
    #[serde(default)]
    pub staged: u64,
    /// Reads that flash served.
    #[serde(default)]
    pub flash_read_hits: u64,
    /// Blocks written to flash.
    #[serde(default)]
    pub flash_written: u64,
    /// Duration of the run, s.
    pub elapsed_s: f64,
}

/// Receives the progress of a sweep.
pub trait Progress: Sync {
    /// A trace is about to be read.
    fn reading(&self, path: &Path);
    /// A share of one run was done since the last call for it.
    fn advanced(&self, share: f64);
    /// Number of runs that were found in the journal.
    fn resumed(&self, runs: usize);
}

/// Runs what is missing of a plan in `folder`, which is created if needed, and writes the results.
/// Of the default sizes those of less than one block are left out.
///
/// # Errors
/// A trace cannot be read, a combination is invalid, or the folder cannot be written. Finished runs
/// stay in the journal.
pub fn sweep(
    plan: &Plan,
    sources: &[Source<'_>],
    folder: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Row>, Error> {
    // What cannot be run is said before anything is.
    let runs_of = |source: &Source<'_>| plan.runs(&about_file(&source.path)?, &source.reading);
    let runs: Vec<_> = sources.iter().map(runs_of).collect::<Result<_, _>>()?;
    plan.check()?;
    let is_default = plan.sizes == Size::parse_list(Plan::SIZES)?;
    let journal = Journal::open(folder)?;
    for (source, runs) in sources.iter().zip(&runs) {
        let missing: Vec<_> = runs.iter().filter(|run| journal.row(&run.key).is_none()).collect();
        progress.resumed(runs.len() - missing.len());
        if missing.is_empty() {
            continue;
        }
        progress.reading(&source.path);
        let trace = (source.load)()?;
        let (block_bytes, unique) = (trace.block_bytes(), trace.trace().unique());
        missing.par_iter().try_for_each(|run| {
            // Nobody asked for a share of a small trace that is less than a block.
            if is_default && run.size.blocks(block_bytes, unique).is_err() {
                progress.advanced(1.0);
                return Ok(());
            }
            let mut before = 0.0_f64;
            // If there are two passes, progress shows only the first.
            let at = |references: u64| {
                let share = references as f64 / trace.trace().len().max(1) as f64;
                progress.advanced((share - before).max(0.0));
                before = before.max(share);
            };
            let row = plan.carry_out(run, &trace, source.warmup, at)?;
            progress.advanced(1.0 - before);
            journal.append(&run.key, &row)
        })?;
    }
    journal.finish(runs.iter().flatten().map(|run| run.key.as_str()))
}

/// One run of a plan on one trace.
#[derive(Clone, Debug)]
pub struct Run {
    /// Size of the level that varies.
    pub size: Size,
    /// Its policy.
    pub policy: Spec,
    /// What decides where blocks are kept.
    pub rule: Rule,
    /// The flash level below the lowest level.
    pub flash: Option<FlashLevel>,
    /// All that decides the result, including the state of the trace's file, as text. Runs with
    /// equal keys have equal results.
    pub key: String,
}

/// The state of a trace's file, as text for [`Plan::runs`]: another content has another text.
///
/// # Errors
/// There is no such file.
pub fn about_file(path: &Path) -> Result<String, Error> {
    let file = fs::metadata(path).map_err(|e| results_error(path, e))?;
    let modified = file.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    let stamp = modified.map_or(0, |t| t.as_nanos());
    Ok(format!("{} bytes={} modified={stamp}", path.display(), file.len()))
}

impl Plan {
    /// The runs on one trace. `about` says which trace it is, `reading` how it is read.
    ///
    /// # Errors
    /// Those of [`Plan::pairs`].
    pub fn runs(&self, about: &str, reading: &str) -> Result<Vec<Run>, Error> {
        let mut upper = text_of(self.upper.as_ref());
        if let Some(ratio) = &self.ratio {
            upper += &format!(" ratio={ratio}");
        }
        let Config { times, lowest, write_mode, .. } = &self.config;
        let costs = times.costs.as_ref().map(|costs| format!(" costs={costs}"));
        let costs = costs.unwrap_or_default();
        let about = format!(
            "{about} {reading} upper={upper} writes={write_mode:?} version={}",
            env!("CARGO_PKG_VERSION"),
        );
        let mut runs = Vec::new();
        for (policy, rule) in self.pairs()? {
            let run = |(size, flash): (Size, Option<FlashLevel>)| {
                let lowest = Lowest { flash, ..lowest.clone() };
                let mut key = format!("{about} {size}:{policy}{costs}");
                if !lowest.is_plain() {
                    key += &format!(" {lowest}");
                }
                if *rule != Rule::Placement(Placement::Access) {
                    key += &format!(" {rule}");
                }
                if let Rule::Scheme(_) = rule {
                    let demotions = times.demotions.unwrap_or_default();
                    key += &format!(" demotions={demotions} seed={}", times.seed);
                }
                let (policy, rule) = (policy.clone(), rule.clone());
                Run { size, policy, rule, flash: lowest.flash, key }
            };
            let of = |flash: Option<FlashLevel>| {
                self.sizes.iter().map(move |&size| (size, flash.clone()))
            };
            runs.extend(self.flash().into_iter().flat_map(of).map(run));
        }
        Ok(runs)
    }

    /// Simulates one run on a trace. `progress` is called with the references done so far.
    ///
    /// # Errors
    /// Those of [`Setup::run`].
    pub fn carry_out<P: Proceed>(
        &self,
        run: &Run,
        trace: &Prepared,
        warmup: Warmup,
        progress: impl FnMut(u64) -> P,
    ) -> Result<Row, Error> {
        let levels = self.levels(LevelSpec { size: run.size, policy: run.policy.clone() });
        let (first, lower) = levels.split_at(1);
        let (first, lower) = (first.to_vec(), lower.to_vec());
        let mut config = Config { rule: run.rule.clone(), ..self.config.clone() };
        config.lowest.flash = run.flash.clone();
        if let Rule::Placement(_) = config.rule {
            config.times.demotions = None;
        }
        let setup = Setup { first, lower, warmup, config, ..Setup::default() };
        Ok(self.row(run, &setup.run(trace, progress)?))
    }

    fn row(&self, run: &Run, report: &Report) -> Row {
        let level = report.levels.last().expect("a run has a level");
        let node = report.movement.as_ref().and_then(|movement| movement.nodes.last());
        let promotions_out = node.map_or(0, |node| node.counts.promotions_out);
        Row {
            trace: report.trace.path.clone(),
            upper: text_of(self.upper.as_ref()),
            ratio: text_of(self.ratio.as_ref()),
            policy: level.policy.clone(),
            placement: level.placement.clone(),
            flash: text_of(run.flash.as_ref()),
            size: run.size.to_string(),
            capacity_blocks: level.capacity_blocks,
            block_bytes: report.block_bytes,
            requests: report.trace.requests,
            unique_blocks: report.trace.unique_blocks,
            reads: level.reads,
            read_hits: level.read_hits,
            read_hit_ratio: level.read_hit_ratio,
            writes: level.writes,
            write_hits: level.write_hits,
            cold_reads: level.cold_reads,
            evictions: level.evictions,
            streamed: level.streamed,
            aggregate_read_hit_ratio: report.aggregate.read_hit_ratio,
            disk_demand_reads: report.disk.demand_reads,
            disk_reloads: report.disk.reloads,
            disk_writes: report.disk.writes,
            response_time_ms: report.response_time_ms,
            response_time_with_demotions_ms: report.response_time_with_demotions_ms,
            demotions_in: level.demotions_in,
            promotions_out,
            staged: level.staged,
            flash_read_hits: report.flash.as_ref().map_or(0, |flash| flash.read_hits),
            flash_written: report.flash.as_ref().map_or(0, |flash| flash.written),
            elapsed_s: report.elapsed_s,
        }
    }
}

fn text_of(item: Option<&impl ToString>) -> String {
    item.map_or_else(String::new, ToString::to_string)
}
