//! One simulation: levels one below the other, several clients or servers, a clock, or a scheme
//! that moves blocks by hints. The options are those of `undercroft simulate`, named alike.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use undercroft_sim::{Config, Error, LevelSpec, Looks, Prepared, Rule, Setup};

use crate::clients::{Clients, Clock};
use crate::errors::raise;
use crate::options::{Common, LevelOption};
use crate::trace::Trace;
use crate::watch::{Failure, Stop, Watch};

/// The options beside the levels.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    placement: String,
    warmup: String,
    common: Common,
    ratio: Option<String>,
    topology: Option<PathBuf>,
    samples: u32,
    hint_distances: bool,
    bounds: bool,
    clients: Clients,
    clock: Option<Clock>,
}

/// Simulates levels on a trace. `first` are the first levels: one, or one for each client. Returns
/// what `undercroft simulate --json` prints.
#[pyfunction]
pub(crate) fn simulate(
    py: Python<'_>,
    trace: &Trace,
    first: Vec<LevelOption>,
    lower: Vec<LevelOption>,
    options: Options,
    stop: Option<&Stop>,
) -> PyResult<String> {
    let mut watch = Watch::new(stop);
    let levels = [specs(py, &first, watch.failure())?, specs(py, &lower, watch.failure())?];
    let setup = options.setup(levels).map_err(raise)?;
    let prepared = watch.end(py.detach(|| options.load(&setup, trace, &watch)))?;
    let run = |watch: &mut Watch| -> Result<String, Error> {
        let report = setup.run(&prepared, |_| watch.look())?;
        serde_json::to_string(&report).map_err(|error| Error::Request(error.to_string()))
    };
    // A policy in Python needs the lock at every reference.
    let is_own = first.iter().chain(&lower).any(LevelOption::is_class);
    let report = if is_own { run(&mut watch) } else { py.detach(|| run(&mut watch)) };
    watch.end(report)
}

fn specs(py: Python<'_>, levels: &[LevelOption], failure: &Failure) -> PyResult<Vec<LevelSpec>> {
    levels.iter().map(|level| level.spec(py, failure)).collect()
}

impl Options {
    /// What is to be simulated. Refuses options that do not go together.
    fn setup(&self, [first, lower]: [Vec<LevelSpec>; 2]) -> Result<Setup, Error> {
        let Self { clients, samples, hint_distances, bounds, .. } = self;
        let (samples, hint_distances, bounds) = (*samples, *hint_distances, *bounds);
        clients.check()?;
        let rule: Rule = self.placement.parse()?;
        self.common.evictions()?.check(std::slice::from_ref(&rule))?;
        let config = Config {
            rule,
            sharing: clients.sharing()?,
            timing: self.clock.as_ref().map(Clock::timing).transpose()?,
            looks: Looks { samples, hint_distances, bounds },
            ..self.common.config()?
        };
        let ratio = self.ratio.as_deref().map(str::parse).transpose()?;
        let (topology, warmup) = (self.topology.clone(), self.warmup.parse()?);
        let setup = Setup { first, lower, ratio, topology, warmup, config };
        setup.check()?;
        Ok(setup)
    }

    /// The references of all clients, with the source of evictions.
    fn load(&self, setup: &Setup, trace: &Trace, watch: &Watch) -> Result<Arc<Prepared>, Error> {
        if setup.config.sharing.is_some() {
            return self.clients.load(trace, watch).map(Arc::new);
        }
        trace.prepared(watch, self.common.evictions()?)
    }
}
