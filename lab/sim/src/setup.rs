//! One simulation as a person configures it, and from there to the report. The program, sweeps and
//! the Python package run their simulations here.
//!
//! `setup/clients.rs` has several clients and a clock, `setup/scheme.rs` schemes that move blocks
//! between caches.

mod clients;
mod scheme;

use std::path::PathBuf;
use std::sync::Arc;

use crate::tree::Division;
use undercroft_cache::WriteMode;
use undercroft_cache::placement::Placement;
use undercroft_trace::DenseTrace;

use crate::drive::Proceed;
use crate::report::{Report, TraceReport, trace_report};
use crate::{
    Config, Error, Evictions, LevelConfig, LevelSpec, Lowest, Population, Ratio, Rule, Times,
    Timing, Warmup, simulate,
};

/// A trace that is ready to be simulated many times. Clones share its references.
#[derive(Clone)]
pub struct Prepared {
    population: Arc<Population>,
    about: TraceReport,
    block_bytes: u32,
    evictions: Evictions,
}

impl Prepared {
    /// A trace of one client. `path` is its name in reports.
    pub fn new(trace: DenseTrace, path: String, block_bytes: u32, evictions: Evictions) -> Self {
        let of_one = Self::of_clients(Population::one(trace, path.clone()), &path, block_bytes);
        Self { evictions, ..of_one }
    }

    /// The traces of several clients. `path` is their name in reports.
    pub fn of_clients(population: Population, path: &str, block_bytes: u32) -> Self {
        let unique_blocks = population.unique().into();
        let about = TraceReport { unique_blocks, ..trace_report(path, population.trace()) };
        let evictions = Evictions::Exact;
        Self { population: Arc::new(population), about, block_bytes, evictions }
    }

    /// This trace with evictions from an emulated client.
    pub fn with_estimated_evictions(&self) -> Self {
        Self { evictions: Evictions::Estimated, ..self.clone() }
    }

    /// Its references.
    pub fn trace(&self) -> &DenseTrace {
        self.population.trace()
    }

    /// Block size in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// What it contains.
    pub fn about(&self) -> &TraceReport {
        &self.about
    }
}

/// What is simulated, whatever the trace and the size of its blocks.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The first level: one, or one for each client; none if a file has the caches.
    pub first: Vec<LevelSpec>,
    /// The levels below it, from the top on; the servers of several clients.
    pub lower: Vec<LevelSpec>,
    /// Sizes of all levels as parts of the first one's, instead of those below it.
    pub ratio: Option<Ratio>,
    /// The file of a tree of caches, under a scheme and instead of levels.
    pub topology: Option<PathBuf>,
    /// What decides where blocks are kept.
    pub rule: Rule,
    /// Times and costs.
    pub times: Times,
    /// What writes do, at every level.
    pub write_mode: WriteMode,
    /// The start of the trace that is simulated but not counted.
    pub warmup: Warmup,
    /// What the lowest level does beside replacement.
    pub lowest: Lowest,
    /// Several clients or servers; `None`: one client.
    pub sharing: Option<Sharing>,
    /// Times of a clock; `None`: no clock.
    pub timing: Option<Timing>,
    /// What is looked at beside the counts, under a scheme.
    pub looks: Looks,
}

/// How clients and servers share what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Number of servers, from 1 to 64, which share the size of their level.
    pub servers: u32,
    /// How each server's cache is divided among the clients.
    pub division: Division,
    /// Whether clients serve each other's reads that miss at the servers.
    pub peer_fetch: bool,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { servers: 1, division: Division::Shared, peer_fetch: false }
    }
}

/// What is looked at while blocks move between levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// Number of samples of the caches over the trace.
    pub samples: u32,
    /// Whether to compute hint reuse distances, which takes time.
    pub hint_distances: bool,
    /// Whether to add what no scheme can beat, and what knowledge of the future attains.
    pub bounds: bool,
}

impl Setup {
    /// These levels one below the other, from the top on, and nothing else that is not usual.
    pub fn of_levels(levels: &[LevelSpec], rule: Rule) -> Self {
        let (first, lower) = levels.split_at(levels.len().min(1));
        Self {
            first: first.to_vec(),
            lower: lower.to_vec(),
            ratio: None,
            topology: None,
            rule,
            times: Times::default(),
            write_mode: WriteMode::Allocate,
            warmup: Warmup::Records(0),
            lowest: Lowest::default(),
            sharing: None,
            timing: None,
            looks: Looks::default(),
        }
    }

    /// Whether clients above servers are simulated, or a clock.
    pub fn has_clients(&self) -> bool {
        self.sharing.is_some() || self.timing.is_some()
    }

    /// Refuses what contradicts itself, before a trace is read.
    ///
    /// # Errors
    /// The parts contradict each other; the message gives the reason.
    pub fn check(&self) -> Result<(), Error> {
        let (has_tree, has_costs) = (self.topology.is_some(), self.times.costs.is_some());
        let is_plain = self.lowest.is_plain();
        let has_no_levels = self.first.is_empty() && self.lower.is_empty() && self.ratio.is_none();
        let refusals: &[(bool, &str)] = match &self.rule {
            Rule::Scheme(_) => &[
                (
                    self.timing.is_some(),
                    "--timed: not under a scheme that moves blocks by hints, which has no clock; \
                     leave it out",
                ),
                (
                    !is_plain,
                    "--stream-cutoff, --write-back: not under a scheme that moves blocks by \
                     hints; leave them out",
                ),
                (
                    self.sharing.is_some() && !has_tree,
                    "several clients under a scheme that moves blocks by hints: --topology FILE",
                ),
                (
                    self.sharing.is_some_and(|sharing| sharing != Sharing::default()),
                    "--servers, --partition, --peer-fetch: the topology says what there is",
                ),
                (has_tree && has_costs, "--costs: the topology states them; leave them out"),
                (has_tree && !has_no_levels, "--topology: it has the levels; leave them out"),
                (
                    !has_tree && self.first.len() != 1,
                    "--l1: one level; several clients are given by --topology FILE",
                ),
            ],
            Rule::Placement(_) if self.has_clients() => &[
                (
                    !is_plain || has_costs,
                    "--stream-cutoff, --write-back, --costs: not with several clients or servers, \
                     or --timed; they are for one client and no clock",
                ),
                (
                    self.first.is_empty() || self.lower.len() != 1 || self.ratio.is_some(),
                    "several clients or servers, or --timed: two levels, --l1 and the servers as \
                     --l2; leave --ratio, --l3 and --lower out",
                ),
            ],
            Rule::Placement(_) => &[(
                self.first.len() != 1,
                "--l1: one level for the one client; several clients are given by --clients",
            )],
        };
        let both = "--ratio: it has the sizes of the levels below --l1; leave those out";
        let has_both = self.ratio.is_some() && !self.lower.is_empty();
        match refusals.iter().chain([&(has_both, both)]).find(|(applies, _)| *applies) {
            None => Ok(()),
            Some((_, why)) => Err(Error::Request((*why).into())),
        }
    }

    /// Simulates. `progress` is called with the references done so far; with a clock and a
    /// placement, of two simulations, of which the second is without placement.
    ///
    /// # Errors
    /// Those of [`check`](Self::check); the levels cannot be combined like this, the trace cannot
    /// be read back, or `progress` stops the simulation.
    pub fn run<P: Proceed>(
        &self,
        trace: &Prepared,
        progress: impl FnMut(u64) -> P,
    ) -> Result<Report, Error> {
        self.check()?;
        match &self.rule {
            Rule::Scheme(scheme) => self.move_by(trace, scheme, progress),
            Rule::Placement(placement) if self.has_clients() => {
                self.share(trace, *placement, progress)
            }
            Rule::Placement(placement) => self.place(trace, *placement, progress),
        }
    }

    /// The levels of one client, from the top.
    fn levels(&self, trace: &Prepared) -> Result<Vec<LevelConfig>, Error> {
        let of_ratio = self.ratio.as_ref().map(|ratio| ratio.levels(&self.first[0]));
        let levels = of_ratio.unwrap_or_else(|| [&self.first[..], &self.lower].concat());
        configs(&levels, trace)
    }

    fn warmup_records(&self, trace: &Prepared) -> Result<u64, Error> {
        self.warmup.records(trace.about.records)
    }

    fn place<P: Proceed>(
        &self,
        trace: &Prepared,
        placement: Placement,
        progress: impl FnMut(u64) -> P,
    ) -> Result<Report, Error> {
        let levels = self.levels(trace)?;
        let count = levels.len();
        // The default times are for at most three levels.
        let has_costs = self.times.costs.is_some() || count > 3;
        let costs = has_costs.then(|| self.times.costs.clone().unwrap_or_default().costs(count));
        let costs = costs.transpose()?;
        let config = Config {
            levels,
            write_mode: self.write_mode,
            warmup_records: self.warmup_records(trace)?,
            lowest: Lowest { block_bytes: trace.block_bytes, ..self.lowest },
            placement,
            evictions: trace.evictions.clone(),
        };
        let outcome = simulate(trace.trace(), &config, progress)?;
        let about = trace.about.clone();
        let mut report = Report::new(about, trace.block_bytes, &config, &outcome);
        costs.iter().for_each(|costs| report.charge(costs));
        Ok(report)
    }
}

/// Levels with their sizes in blocks.
fn configs(levels: &[LevelSpec], trace: &Prepared) -> Result<Vec<LevelConfig>, Error> {
    let unique = trace.population.unique();
    levels.iter().map(|level| level.config(trace.block_bytes, unique)).collect()
}
