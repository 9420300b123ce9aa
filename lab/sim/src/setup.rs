//! One simulation as a person configures it, and from there to the report. The program, sweeps and
//! the Python package run their simulations here.

use std::path::PathBuf;
use std::sync::Arc;

use undercroft_level::placement::Placement;
use undercroft_trace::DenseTrace;

use crate::combinations::Combination;
use crate::drive::Proceed;
use crate::report::{Report, TraceReport};
use crate::{
    CacheTree, Config, Error, Evictions, LevelSpec, Population, Ratio, Rule, Sharing, TimedReport,
    Warmup, simulate,
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
        let about = TraceReport::new(path, &population);
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
    /// The start of the trace that is simulated but not counted.
    pub warmup: Warmup,
    /// All else. Its caches, warm-up and size of blocks follow from the fields here and the trace,
    /// and recorded evictions come with the trace: any stand for them here.
    pub config: Config,
}

impl Default for Setup {
    fn default() -> Self {
        let (first, lower, warmup) = (Vec::new(), Vec::new(), Warmup::Records(0));
        Self { first, lower, ratio: None, topology: None, warmup, config: Config::default() }
    }
}

impl Setup {
    /// Refuses what contradicts itself, before a trace is read.
    ///
    /// # Errors
    /// The parts contradict each other; the message gives the reason.
    pub fn check(&self) -> Result<(), Error> {
        let Config { rule, sharing, times, looks, .. } = &self.config;
        let has_tree = self.topology.is_some();
        let has_no_levels = self.first.is_empty() && self.lower.is_empty() && self.ratio.is_none();
        let of_schemes = [
            (has_tree, "--topology"),
            (looks.samples > 0, "--samples"),
            (looks.hint_distances, "--hint-distances"),
            (looks.bounds, "--bounds"),
            (times.demotions.is_some(), "--demotions"),
        ];
        let refusals: &[(bool, &str)] = match rule {
            Rule::Scheme(_) => &[
                (
                    sharing.is_some() && !has_tree,
                    "several clients under a scheme that moves blocks by hints: --topology FILE",
                ),
                (
                    sharing.is_some_and(|sharing| sharing != Sharing::default()),
                    "--servers, --partition, --peer-fetch: the topology says what there is",
                ),
                (
                    has_tree && times.costs.is_some(),
                    "--costs: the topology states them; leave them out",
                ),
                (has_tree && !has_no_levels, "--topology: it has the levels; leave them out"),
                (
                    !has_tree && self.first.len() != 1,
                    "--l1: one level; several clients are given by --topology FILE",
                ),
            ],
            Rule::Placement(_) if self.config.has_clients() => &[(
                self.first.is_empty() || self.lower.len() != 1 || self.ratio.is_some(),
                "several clients or servers, or --timed: two levels, --l1 and the servers as \
                 --l2; leave --ratio, --l3 and --lower out",
            )],
            Rule::Placement(_) => &[(
                self.first.len() != 1,
                "--l1: one level for the one client; several clients are given by --clients",
            )],
        };
        let both = "--ratio: it has the sizes of the levels below --l1; leave those out";
        let has_both = self.ratio.is_some() && !self.lower.is_empty();
        // Without levels the combination is refused for what it is with any.
        Combination { config: &self.config, shares_data: false }.check()?;
        let given = of_schemes.iter().find(|(is_given, _)| *is_given);
        if let (Rule::Placement(placement), Some((_, option))) = (rule, given) {
            return Err(Error::Request(format!(
                "{option}: placement {placement} moves no blocks by hints; choose a scheme that \
                 does (docs/user/hierarchies.md)"
            )));
        }
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
        mut progress: impl FnMut(u64) -> P,
    ) -> Result<Report, Error> {
        self.check()?;
        let (config, population) = (self.config(trace)?, trace.population.as_ref());
        let outcome = simulate(population, &config, &mut progress)?;
        let mut report = Report::new(&trace.about.path, population, &config, &outcome);
        if config.timing.is_some() && config.placement() != Placement::Access {
            let sharing = config.sharing.map(|sharing| Sharing { peer_fetch: false, ..sharing });
            let config = Config { rule: Rule::default(), sharing, ..config };
            let outcome = simulate(population, &config, progress)?;
            report.timed_access = outcome.timed.as_ref().map(TimedReport::from);
        }
        Ok(report)
    }

    /// The configuration for a trace.
    fn config(&self, trace: &Prepared) -> Result<Config, Error> {
        let (block_bytes, unique) = (trace.block_bytes, trace.population.unique());
        let of_ratio = self.ratio.as_ref().map(|ratio| ratio.levels(&self.first[0]));
        let levels = of_ratio.unwrap_or_else(|| [&self.first[..], &self.lower].concat());
        let levels = levels.iter().map(|level| level.config(block_bytes, unique));
        let mut config = Config {
            levels: levels.collect::<Result<_, Error>>()?,
            evictions: trace.evictions.clone(),
            warmup_records: self.warmup.records(trace.about.records)?,
            block_bytes,
            ..self.config.clone()
        };
        config.tree = match (&config.rule, &self.topology) {
            (Rule::Placement(_), _) => None,
            (Rule::Scheme(_), None) => Some(CacheTree::line(&config.levels)?),
            (Rule::Scheme(_), Some(file)) => {
                let (tree, costs) = CacheTree::of_file(file, block_bytes, unique)?;
                config.times.costs = Some(costs);
                Some(tree)
            }
        };
        // The default times are for at most three levels.
        config.costs()?;
        Ok(config)
    }
}
