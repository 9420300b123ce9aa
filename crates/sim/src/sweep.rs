//! Many simulations: every combination of traces, sizes, policies and placements, on all cores.
//! `sweep/plan.rs` defines the combinations.
//!
//! Each finished run is appended to a journal, `runs.jsonl`, in the folder of the results. A sweep
//! that was interrupted reads the journal and runs only what is missing. At the end `results.csv`
//! and `results.json` hold all rows in the order of the plan.

mod check;
mod plan;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use undercroft_cache::movement::SchemeSpec;
use undercroft_cache::placement::Placement;
use undercroft_cache::policy::Spec;
use undercroft_trace::DenseTrace;

use crate::report::{Report, TraceReport, trace_report};
use crate::{
    Config, Cooperation, Error, Evictions, LevelConfig, LevelSpec, MovementConfig, Population,
    Size, simulate_movement, simulate_placed,
};
use plan::line;
pub use plan::{Plan, Rule, Times};

/// A trace that has been read.
pub struct Loaded {
    /// Its references.
    pub trace: DenseTrace,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// Number of warm-up records.
    pub warmup_records: u64,
    /// The source of the client's evictions.
    pub evictions: Evictions,
}

/// A trace of a sweep; it is opened when needed.
pub struct Source<'a> {
    /// Path of the trace.
    pub path: PathBuf,
    /// All other options that decide what is read from it (block size, format, ...), as text. Runs
    /// of an earlier sweep are reused only if this text is equal.
    pub reading: String,
    /// Reads the trace.
    pub load: Box<dyn Fn() -> Result<Loaded, Error> + Sync + 'a>,
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
    /// Duration of the run, s.
    pub elapsed_s: f64,
}

/// A row of the journal, with the key of its run.
#[derive(Serialize, Deserialize)]
struct Entry {
    key: String,
    row: Row,
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
    let runs: Vec<_> =
        sources.iter().map(|source| runs_of(plan, source)).collect::<Result<_, _>>()?;
    check::pairs(plan)?;
    fs::create_dir_all(folder).map_err(|source| results_error(folder, source))?;
    let (mut done, journal) = open_journal(&folder.join("runs.jsonl"))?;
    let journal = Mutex::new(journal);
    let mut rows = Vec::new();
    for (source, runs) in sources.iter().zip(runs) {
        let missing: Vec<_> = runs.iter().filter(|run| !done.contains_key(&run.key)).collect();
        progress.resumed(runs.len() - missing.len());
        if !missing.is_empty() {
            progress.reading(&source.path);
            let Loaded { trace, block_bytes, warmup_records, evictions } = (source.load)()?;
            let path = source.path.display().to_string();
            let about = trace_report(&path, &trace);
            let population = Population::one(trace, path);
            let loaded = Ready { population, about, block_bytes, warmup_records, evictions };
            let fresh: Result<Vec<_>, Error> = missing
                .par_iter()
                .map(|run| {
                    let row = run.carry_out(plan, &loaded, progress)?;
                    let entry = Entry { key: run.key.clone(), row };
                    append(&journal, &entry).map_err(|e| results_error(folder, e))?;
                    Ok((entry.key, entry.row))
                })
                .collect();
            done.extend(fresh?);
        }
        rows.extend(runs.iter().filter_map(|run| done.get(&run.key).cloned()));
    }
    write_results(folder, &rows)?;
    Ok(rows)
}

/// A trace that has been read, with its report.
struct Ready {
    population: Population,
    about: TraceReport,
    block_bytes: u32,
    warmup_records: u64,
    evictions: Evictions,
}

struct Run<'a> {
    size: Size,
    policy: &'a Spec,
    rule: &'a Rule,
    key: String,
}

/// The runs on one trace. The key contains all that decides a result, including the state of the
/// file.
fn runs_of<'a>(plan: &'a Plan, source: &Source<'_>) -> Result<Vec<Run<'a>>, Error> {
    let file = fs::metadata(&source.path).map_err(|e| results_error(&source.path, e))?;
    let modified = file.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    let stamp = modified.map_or(0, |t| t.as_nanos());
    let mut upper = text_of(plan.upper.as_ref());
    if let Some(ratio) = &plan.ratio {
        upper += &format!(" ratio={ratio}");
    }
    let costs = plan.times.costs.as_ref().map(|costs| format!(" costs={costs}"));
    let costs = costs.unwrap_or_default();
    let about = format!(
        "{} bytes={} modified={stamp} {} upper={upper} writes={:?} version={}",
        source.path.display(),
        file.len(),
        source.reading,
        plan.write_mode,
        env!("CARGO_PKG_VERSION"),
    );
    let mut runs = Vec::new();
    for (policy, rule) in plan.pairs()? {
        let run = |&size: &Size| {
            let mut key = format!("{about} {size}:{policy}{costs}");
            if *rule != Rule::Placement(Placement::Access) {
                key += &format!(" {rule}");
            }
            if let Rule::Scheme(_) = rule {
                key += &format!(" demotions={} seed={}", plan.times.demotions, plan.times.seed);
            }
            Run { size, policy, rule, key }
        };
        runs.extend(plan.sizes.iter().map(run));
    }
    Ok(runs)
}

fn text_of(item: Option<&impl ToString>) -> String {
    item.map_or_else(String::new, ToString::to_string)
}

impl Run<'_> {
    fn carry_out(
        &self,
        plan: &Plan,
        loaded: &Ready,
        progress: &dyn Progress,
    ) -> Result<Row, Error> {
        let trace = loaded.population.trace();
        let specs = plan.levels(LevelSpec { size: self.size, policy: self.policy.clone() });
        let levels = specs.iter().map(|spec| spec.config(loaded.block_bytes, trace.unique()));
        let levels = levels.collect::<Result<Vec<_>, _>>()?;
        let mut before = 0.0_f64;
        // If there are two passes, progress shows only the first.
        let at = |references: u64| {
            let share = references as f64 / trace.len().max(1) as f64;
            progress.advanced((share - before).max(0.0));
            before = before.max(share);
        };
        let report = match self.rule {
            Rule::Placement(placement) => Self::place(plan, loaded, levels, *placement, at),
            Rule::Scheme(scheme) => self.move_by(plan, loaded, &levels, scheme, at),
        }?;
        progress.advanced(1.0 - before);
        Ok(self.row(plan, &report))
    }

    fn place(
        plan: &Plan,
        loaded: &Ready,
        levels: Vec<LevelConfig>,
        placement: Placement,
        progress: impl FnMut(u64),
    ) -> Result<Report, Error> {
        let &Ready { ref population, ref about, block_bytes, warmup_records, .. } = loaded;
        let config = Config { levels, write_mode: plan.write_mode, warmup_records };
        let cooperation = Cooperation { placement, evictions: loaded.evictions.clone() };
        let outcome = simulate_placed(population.trace(), &config, &cooperation, progress)?;
        let mut report = Report::new(about.clone(), block_bytes, &config, &placement, &outcome);
        let count = config.levels.len();
        // The default times are for at most three levels.
        if plan.times.costs.is_some() || count > 3 {
            report.charge(&plan.times.costs.clone().unwrap_or_default().costs(count)?);
        }
        Ok(report)
    }

    fn move_by(
        &self,
        plan: &Plan,
        loaded: &Ready,
        levels: &[LevelConfig],
        scheme: &SchemeSpec,
        progress: impl FnMut(u64),
    ) -> Result<Report, Error> {
        let capacities: Vec<u32> = levels.iter().map(|level| level.capacity).collect();
        let config = MovementConfig {
            topology: line(&capacities)?,
            names: (1..=levels.len()).map(|i| format!("l{i}")).collect(),
            scheme: scheme.clone(),
            policy: self.policy.to_string(),
            block_bytes: loaded.block_bytes,
            write_mode: plan.write_mode,
            warmup_records: loaded.warmup_records,
            costs: plan.times.costs.clone().unwrap_or_default().costs(levels.len())?,
            demotion_cost: plan.times.demotions,
            seed: plan.times.seed,
            samples: 0,
            hint_distances: false,
        };
        let outcome = simulate_movement(&loaded.population, &config, progress)?;
        Ok(Report::of_movement(loaded.about.clone(), &config, &outcome, None))
    }

    fn row(&self, plan: &Plan, report: &Report) -> Row {
        let level = report.levels.last().expect("a run has a level");
        let node = report.movement.as_ref().and_then(|movement| movement.nodes.last());
        let promotions_out = node.map_or(0, |node| node.counts.promotions_out);
        Row {
            trace: report.trace.path.clone(),
            upper: text_of(plan.upper.as_ref()),
            ratio: text_of(plan.ratio.as_ref()),
            policy: level.policy.clone(),
            placement: level.placement.clone(),
            size: self.size.to_string(),
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
            aggregate_read_hit_ratio: report.aggregate.read_hit_ratio,
            disk_demand_reads: report.disk.demand_reads,
            disk_reloads: report.disk.reloads,
            disk_writes: report.disk.writes,
            response_time_ms: report.response_time_ms,
            response_time_with_demotions_ms: report.response_time_with_demotions_ms,
            demotions_in: level.demotions_in,
            promotions_out,
            staged: level.staged,
            elapsed_s: report.elapsed_s,
        }
    }
}

/// The finished runs of a journal, and the journal opened for more. A last line that an
/// interruption cut short is dropped; any other damage is an error.
fn open_journal(path: &Path) -> Result<(HashMap<String, Row>, File), Error> {
    let error = |source| results_error(path, source);
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(error(e)),
    };
    let whole = text.rfind('\n').map_or(0, |last| last + 1);
    let mut done = HashMap::new();
    for (number, line) in text[..whole].lines().enumerate() {
        let entry: Entry = serde_json::from_str(line).map_err(|e| {
            let what = format!("line {}: {e}; delete the file to start anew", number + 1);
            error(io::Error::new(io::ErrorKind::InvalidData, what))
        })?;
        done.insert(entry.key, entry.row);
    }
    let file = OpenOptions::new().create(true).append(true).open(path).map_err(error)?;
    file.set_len(whole as u64).map_err(error)?;
    Ok((done, file))
}

/// Appends one line in one write, so that an interruption can cut short only the last line.
fn append(journal: &Mutex<File>, entry: &Entry) -> io::Result<()> {
    let mut line = serde_json::to_string(entry)?;
    line.push('\n');
    journal.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).write_all(line.as_bytes())
}

/// Creates an empty file in place of any file with this name. Does not follow a link.
fn new_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path),
    }
}

/// Writes both files under temporary names first, so that no partial results are visible.
fn write_results(folder: &Path, rows: &[Row]) -> Result<(), Error> {
    let write = || -> io::Result<()> {
        let csv_part = folder.join("results.csv.part");
        let mut csv = csv::Writer::from_writer(new_file(&csv_part)?);
        rows.iter().try_for_each(|row| csv.serialize(row)).map_err(io::Error::other)?;
        csv.flush()?;
        let json_part = folder.join("results.json.part");
        new_file(&json_part)?.write_all((serde_json::to_string_pretty(rows)? + "\n").as_bytes())?;
        fs::rename(csv_part, folder.join("results.csv"))?;
        fs::rename(json_part, folder.join("results.json"))
    };
    write().map_err(|source| results_error(folder, source))
}

fn results_error(path: &Path, source: io::Error) -> Error {
    Error::Results { path: path.display().to_string(), source }
}
