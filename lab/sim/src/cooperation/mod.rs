//! Levels that cooperate, driven by a trace: eviction-based and global placement. The levels and
//! the order of steps are those of `crate::tree`.
//!
//! With access-based placement, levels can run one after the other (`hierarchy.rs`), which is
//! faster. Levels that cooperate exchange information at every reference.

mod derived;
mod known;

use crate::tree::Hierarchy;
use undercroft_level::placement::{DataSource, PlacementError};
use undercroft_level::{Estimator, EvictionPlacement, Level};
use undercroft_policy::{Context, Counts, Reference};
use undercroft_trace::{DenseTrace, Ref};

pub use derived::DerivedEvictions;
pub(crate) use derived::EvictionSource;
pub use known::EvictionsFrom;

use crate::aware::is_aware;
use crate::drive::{Proceed, Topology, drive};
use crate::{Config, CooperationOutcome, Error, EstimateOutcome, Evictions, Outcome};

/// Bytes of a hint that reports an eviction.
pub(crate) const HINT_BYTES: u64 = 8;

impl From<PlacementError> for Error {
    fn from(error: PlacementError) -> Self {
        Self::Request(error.to_string())
    }
}

/// Runs levels that cooperate over the whole trace, with a warm-up of so many references.
///
/// # Errors
/// A level cannot be simulated, a spooled trace cannot be read back, or `progress` stops it.
pub(crate) fn simulate_cooperating<P: Proceed>(
    trace: &DenseTrace,
    config: &Config,
    warmup: u64,
    progress: &mut dyn FnMut(u64) -> P,
) -> Result<Outcome, Error> {
    let mut run = Run::new(trace, config)?;
    drive(trace, warmup, &mut run, progress)?;
    let all = run.hierarchy.top().into_iter().chain(run.hierarchy.lower());
    let leaders = all.map(|level| level.policy().leader()).collect();
    let (levels, outcome) = run.finish();
    Ok(Outcome { levels, cooperation: Some(outcome), leaders, ..Outcome::default() })
}

/// Runs levels that cooperate. Returns the counts of the last level, and the reloads, at the end of
/// each of `parts` equal parts of the trace.
pub(crate) fn counts_in_parts(
    trace: &DenseTrace,
    config: &Config,
    parts: usize,
) -> Result<Vec<(Counts, u64)>, Error> {
    let mut run = Run::new(trace, config)?;
    let mut ends = Vec::new();
    let mut chunks = trace.forward();
    while let Some((start, mut refs)) = chunks.next()? {
        let mut at = start;
        while ends.len() < parts {
            let left = trace.len() * (ends.len() as u64 + 1) / parts as u64 - at;
            let Some((part, rest)) = refs.split_at_checked(left as usize) else { break };
            run.serve(at, part);
            (at, refs) = (at + left, rest);
            let levels = run.hierarchy.lower();
            let placements = levels.iter().filter_map(Level::placement);
            let reloads = placements.map(|placement| placement.counts().reloads).sum();
            ends.push((*levels[levels.len() - 1].cache().counts(), reloads));
        }
        run.serve(at, refs);
    }
    Ok(ends)
}

/// A running hierarchy, and its source of evictions.
struct Run<'a> {
    hierarchy: Hierarchy,
    evictions: &'a Evictions,
    /// Number of derived evictions passed on so far.
    passed: usize,
    estimate: Option<Estimate>,
}

/// An emulated client, and the quality of the emulation.
struct Estimate {
    estimator: Estimator,
    evicted: Vec<u64>,
    inferred: u64,
    right: u64,
    references: u64,
    by_access: u64,
}

impl<'a> Run<'a> {
    fn new(trace: &DenseTrace, config: &'a Config) -> Result<Self, Error> {
        let (placement, evictions) = (&config.placement(), &config.evictions);
        let top = usize::from(config.levels.len() > 1);
        let lower = config.levels[top..].iter().map(|wanted| {
            let mode = config.write_mode;
            let mut level = Level::new(&wanted.policy, wanted.capacity, placement, mode, 0)?;
            let names = || (0..trace.unique()).map(|number| trace.names().name(number)).collect();
            level.number_blocks(level.needs_names().then(names));
            Ok(level)
        });
        let mut lower = lower.collect::<Result<Vec<_>, Error>>()?;
        let mut hierarchy = if top == 0 {
            Hierarchy::below_a_client(lower.remove(0))
        } else {
            let wanted = &config.levels[0];
            placement.check_policy(wanted.policy.info().name)?;
            let policy = wanted.policy.build(&Context::new(wanted.capacity))?;
            Hierarchy::new(policy, config.write_mode, lower)?
        };
        if config.levels.get(1).is_some_and(is_aware) {
            hierarchy.inform_lower();
        }
        let mut estimate = None;
        if *evictions == Evictions::Estimated {
            hierarchy.silence_client();
            estimate = Some(Estimate {
                // A client's cache is no larger than the number of blocks that it requests.
                estimator: Estimator::new(trace.unique(), 0),
                evicted: Vec::new(),
                inferred: 0,
                right: 0,
                references: 0,
                by_access: 0,
            });
        }
        Ok(Self { hierarchy, evictions, passed: 0, estimate })
    }

    /// Serves the `at`-th reference of the trace.
    fn reference(&mut self, at: u64, reference: Reference) {
        if let Some(estimate) = &mut self.estimate {
            estimate.serve(&mut self.hierarchy, reference);
            return;
        }
        self.hierarchy.reference(reference);
        if let Evictions::Derived(derived) = self.evictions {
            while let Some(block) = derived.known(self.passed, at + 1) {
                self.hierarchy.client_evicted(block);
                self.passed += 1;
            }
        }
    }

    /// The counts of all levels, the first one first, and the other results.
    fn finish(self) -> (Vec<Counts>, CooperationOutcome) {
        let all = self.hierarchy.top().into_iter().chain(self.hierarchy.lower());
        let placed = |level: &Level| level.placement().map(EvictionPlacement::counts);
        let counts = |level: &Level| (*level.cache().counts(), placed(level).unwrap_or_default());
        let (counts, levels) = all.map(counts).unzip();
        let first = &self.hierarchy.lower()[0];
        let placement = first.placement();
        let sends = placement.is_some_and(|it| it.rules().down == DataSource::Demote);
        let known = placed(first).map_or(0, |counts| counts.known_evictions);
        let hints = if self.estimate.is_some() || sends { 0 } else { known };
        let table = match self.evictions {
            Evictions::Derived(derived) => derived.counts().copied(),
            Evictions::Exact | Evictions::Estimated => None,
        };
        let is_simulated = self.hierarchy.top().is_some();
        let outcome = CooperationOutcome {
            levels,
            hint_bytes: hints * HINT_BYTES,
            staging_blocks: placement.map_or(0, EvictionPlacement::staging_blocks),
            table,
            estimate: self.estimate.map(|estimate| estimate.outcome(is_simulated)),
        };
        (counts, outcome)
    }
}

impl Topology for Run<'_> {
    fn serve(&mut self, at: u64, refs: &[Ref]) {
        for (at, r) in (at..).zip(refs) {
            self.reference(at, Reference::new(r.block(), r.is_write()));
        }
    }

    fn restart_counts(&mut self) {
        self.hierarchy.restart_counts();
        if let Some(estimate) = &mut self.estimate {
            (estimate.inferred, estimate.right) = (0, 0);
            (estimate.references, estimate.by_access) = (0, 0);
        }
    }
}

impl Estimate {
    fn serve(&mut self, hierarchy: &mut Hierarchy, reference: Reference) {
        let by_access = !self.estimator.is_confident();
        hierarchy.set_access_based(by_access);
        let found = hierarchy.reference(reference);
        self.references += 1;
        self.by_access += u64::from(by_access);
        if found == Some(0) && hierarchy.top().is_some() && !reference.is_write() {
            return;
        }
        self.evicted.clear();
        let block = reference.entry().into();
        self.estimator.observe(block, reference.is_write(), &mut self.evicted);
        for &block in &self.evicted {
            self.inferred += 1;
            let holds = hierarchy.top().is_some_and(|top| top.frame(block).is_some());
            self.right += u64::from(!holds);
        }
        if !by_access {
            for &block in &self.evicted {
                hierarchy.client_evicted(block as u32);
            }
        }
    }

    fn outcome(&self, is_simulated: bool) -> EstimateOutcome {
        EstimateOutcome {
            client_blocks: self.estimator.size(),
            precision: self.estimator.precision(),
            recall: self.estimator.recall(),
            true_precision: is_simulated.then(|| self.right as f64 / self.inferred.max(1) as f64),
            fallback: self.by_access as f64 / self.references.max(1) as f64,
        }
    }
}
