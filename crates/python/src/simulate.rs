//! One simulation.

use pyo3::prelude::*;
use undercroft_sim::{Error, Rule, Setup, Warmup};

use crate::errors::raise;
use crate::options::{Common, LevelOption};
use crate::trace::Trace;
use crate::watch::{Stop, Watch};

/// Simulates levels on a trace. Returns what `undercroft simulate --json` prints.
#[pyfunction]
pub(crate) fn simulate(
    py: Python<'_>,
    trace: &Trace,
    levels: Vec<LevelOption>,
    placement: &str,
    warmup: &str,
    common: Common,
    stop: Option<&Stop>,
) -> PyResult<String> {
    let mut watch = Watch::new(stop);
    let specs = levels.iter().map(|level| level.spec(py, watch.failure()));
    let specs = specs.collect::<PyResult<Vec<_>>>()?;
    let rule: Rule = placement.parse().map_err(raise)?;
    let warmup: Warmup = warmup.parse().map_err(raise)?;
    let prepared = watch.end(py.detach(|| trace.prepared(&watch)))?;
    let records = prepared.trace().seen().records;
    let setup = Setup {
        levels: specs,
        rule,
        times: common.times()?,
        write_mode: common.write_mode()?,
        warmup_records: warmup.records(records).map_err(raise)?,
        lowest: common.lowest()?,
    };
    let is_own = levels.iter().any(LevelOption::is_class);
    let run = |watch: &mut Watch| -> Result<String, Error> {
        let report = setup.run(&prepared, |_| watch.look())?;
        serde_json::to_string(&report).map_err(|error| Error::Request(error.to_string()))
    };
    // A policy in Python needs the lock at every reference.
    let report = if is_own { run(&mut watch) } else { py.detach(|| run(&mut watch)) };
    watch.end(report)
}
