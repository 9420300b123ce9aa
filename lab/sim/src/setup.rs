//! One simulation as a person configures it, levels one below the other and a rule of placement:
//! from there to the report. Sweeps and the Python package run their simulations here.
//!
//! `setup/clients.rs` has several clients and a clock, `setup/scheme.rs` schemes that move blocks
//! between caches.

mod clients;
mod scheme;

use std::sync::Arc;

use undercroft_cache::WriteMode;
use undercroft_cache::placement::Placement;
use undercroft_schemes::SchemeSpec;
use undercroft_trace::DenseTrace;

pub use clients::ClientsSetup;
pub use scheme::{SchemeCaches, run_scheme};

use crate::drive::Proceed;
use crate::report::{Report, TraceReport, trace_report};
use crate::{
    Config, Cooperation, Error, Evictions, LevelConfig, LevelSpec, Lowest, MovementConfig,
    Population, Rule, Times, simulate_placed,
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
        let about = trace_report(&path, &trace);
        let population = Arc::new(Population::one(trace, path));
        Self { population, about, block_bytes, evictions }
    }

    /// This trace with evictions from an emulated client.
    pub fn with_estimated_evictions(&self) -> Self {
        Self { evictions: Evictions::Estimated, ..self.clone() }
    }

    /// Its only client.
    pub fn population(&self) -> &Population {
        &self.population
    }

    /// Its references.
    pub fn trace(&self) -> &DenseTrace {
        self.population.trace()
    }

    /// What it contains.
    pub fn about(&self) -> &TraceReport {
        &self.about
    }

    /// Block size in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }
}

/// A simulation of one client and levels one below the other.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Levels, the one nearest to the application first.
    pub levels: Vec<LevelSpec>,
    /// What decides where blocks are kept.
    pub rule: Rule,
    /// Times and costs.
    pub times: Times,
    /// What writes do, at every level.
    pub write_mode: WriteMode,
    /// Records at the start of the trace that are simulated but not counted.
    pub warmup_records: u64,
    /// What the lowest level does beside replacement, whatever the size of its blocks.
    pub lowest: Lowest,
}

impl Setup {
    /// Simulates. `progress` is called with the references done so far.
    ///
    /// # Errors
    /// The levels cannot be combined like this, the trace cannot be read back, or `progress` stops
    /// the simulation.
    pub fn run<P: Proceed>(
        &self,
        trace: &Prepared,
        progress: impl FnMut(u64) -> P,
    ) -> Result<Report, Error> {
        let unique = trace.trace().unique();
        let levels = self.levels.iter().map(|level| level.config(trace.block_bytes, unique));
        let levels = levels.collect::<Result<Vec<_>, _>>()?;
        match &self.rule {
            Rule::Placement(placement) => self.place(trace, levels, *placement, progress),
            Rule::Scheme(scheme) => self.move_by(trace, &levels, scheme, progress),
        }
    }

    fn place<P: Proceed>(
        &self,
        trace: &Prepared,
        levels: Vec<LevelConfig>,
        placement: Placement,
        progress: impl FnMut(u64) -> P,
    ) -> Result<Report, Error> {
        let count = levels.len();
        let warmup_records = self.warmup_records;
        let lowest = Lowest { block_bytes: trace.block_bytes, ..self.lowest };
        let config = Config { levels, write_mode: self.write_mode, warmup_records, lowest };
        let cooperation = Cooperation { placement, evictions: trace.evictions.clone() };
        let outcome = simulate_placed(trace.trace(), &config, &cooperation, progress)?;
        let about = trace.about.clone();
        let mut report = Report::new(about, trace.block_bytes, &config, &placement, &outcome);
        // The default times are for at most three levels.
        if self.times.costs.is_some() || count > 3 {
            report.charge(&self.times.costs.clone().unwrap_or_default().costs(count)?);
        }
        Ok(report)
    }

    fn move_by<P: Proceed>(
        &self,
        trace: &Prepared,
        levels: &[LevelConfig],
        scheme: &SchemeSpec,
        progress: impl FnMut(u64) -> P,
    ) -> Result<Report, Error> {
        let caches = SchemeCaches::line(levels, self.times.costs.as_ref())?;
        let config = MovementConfig {
            write_mode: self.write_mode,
            warmup_records: self.warmup_records,
            demotion_cost: self.times.demotions,
            seed: self.times.seed,
            ..caches.config(scheme.clone(), trace.block_bytes)
        };
        run_scheme(&trace.population, &config, false, &trace.about.path, progress)
    }
}
