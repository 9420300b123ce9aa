//! The parts of a sweep. Python decides where the runs are carried out; which runs there are, what
//! one gives, and the files of the results are those of `undercroft sweep`.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use undercroft_policy::Spec;
use undercroft_sim::{self as sim, Error, EvictionsFrom, Ratio, Rule, Size, Warmup};

use crate::errors::raise;
use crate::options::{Common, LevelOption, PolicyOption};
use crate::trace::Trace;
use crate::watch::{Failure, Stop, Watch};

/// Combinations of sizes, policies and placements.
#[pyclass(frozen, module = "undercroft._native")]
pub(crate) struct Plan {
    plan: sim::Plan,
    evictions: EvictionsFrom,
    has_class: bool,
    failure: Failure,
}

#[pymethods]
impl Plan {
    #[new]
    fn new(
        py: Python<'_>,
        l1: Option<LevelOption>,
        ratio: Option<&str>,
        sizes: &str,
        policies: Vec<PolicyOption>,
        placements: Vec<String>,
        common: Common,
    ) -> PyResult<Self> {
        let watch = Watch::new(None);
        let failure = watch.failure().clone();
        let upper = l1.as_ref().map(|level| level.spec(py, &failure)).transpose()?;
        let specs = policies.iter().map(|policy| policy.spec(py, &failure));
        let rules = placements.iter().map(|text| text.parse::<Rule>());
        let evictions = common.evictions().map_err(raise)?;
        let config = common.config().map_err(raise)?;
        let plan = sim::Plan {
            upper,
            ratio: ratio.map(str::parse::<Ratio>).transpose().map_err(raise)?,
            sizes: Size::parse_list(sizes).map_err(raise)?,
            policies: specs.collect::<PyResult<Vec<Spec>>>()?,
            placements: rules.collect::<Result<_, _>>().map_err(raise)?,
            flash: config.lowest.flash.iter().cloned().collect(),
            config,
        };
        evictions.check(&plan.placements).map_err(raise)?;
        let has_class = policies.iter().any(PolicyOption::is_class)
            || l1.as_ref().is_some_and(LevelOption::is_class);
        Ok(Self { plan, evictions, has_class, failure })
    }

    /// Tries each combination on one read.
    fn check(&self) -> PyResult<()> {
        let checked = self.plan.check();
        self.failure.take().map_or(Ok(()), Err)?;
        checked.map_err(raise)
    }

    /// The runs on one trace, each with its key, its size, the number of its policy and its
    /// placement.
    fn runs(&self, about: &str, reading: &str) -> PyResult<Vec<(String, String, usize, String)>> {
        let runs = self.plan.runs(about, reading).map_err(raise)?;
        let run = |run: sim::Run| {
            let at = self.plan.policies.iter().position(|policy| *policy == run.policy);
            (run.key, run.size.to_string(), at.unwrap_or(0), run.rule.to_string())
        };
        Ok(runs.into_iter().map(run).collect())
    }

    /// Carries out the only run of the plan. Returns its row as JSON.
    fn carry_out(
        &self,
        py: Python<'_>,
        trace: &Trace,
        warmup: &str,
        stop: Option<&Stop>,
    ) -> PyResult<String> {
        let mut watch = Watch::new(stop);
        let warmup: Warmup = warmup.parse().map_err(raise)?;
        let prepared = watch.end(py.detach(|| trace.prepared(&watch, self.evictions)))?;
        let runs = self.plan.runs("", "").map_err(raise)?;
        let carry_out = |watch: &mut Watch, failure: &Failure| -> Result<String, Error> {
            let [run] = &runs[..] else {
                return Err(Error::Request("a plan of one run is needed".into()));
            };
            let row = self.plan.carry_out(run, &prepared, warmup, |_| match failure.take() {
                None => watch.look(),
                Some(error) => {
                    watch.failure().set(error);
                    Err(Error::Stopped)
                }
            })?;
            serde_json::to_string(&row).map_err(|error| Error::Request(error.to_string()))
        };
        let row = if self.has_class {
            carry_out(&mut watch, &self.failure)
        } else {
            py.detach(|| carry_out(&mut watch, &self.failure))
        };
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        watch.end(row)
    }
}

/// The results of a sweep in a folder.
#[pyclass(frozen, module = "undercroft._native")]
pub(crate) struct Journal(sim::Journal);

#[pymethods]
impl Journal {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "Python gives paths by value")]
    fn new(folder: PathBuf) -> PyResult<Self> {
        sim::Journal::open(&folder).map(Self).map_err(raise)
    }

    /// The row of a finished run as JSON.
    fn row(&self, key: &str) -> PyResult<Option<String>> {
        let row = self.0.row(key).map(|row| serde_json::to_string(&row)).transpose();
        row.map_err(|error| raise(Error::Request(error.to_string())))
    }

    /// Appends a finished run.
    fn append(&self, key: &str, row: &str) -> PyResult<()> {
        let row = serde_json::from_str(row);
        let row = row.map_err(|error| raise(Error::Request(error.to_string())))?;
        self.0.append(key, &row).map_err(raise)
    }

    /// Writes results.csv and results.json.
    fn finish(&self, keys: Vec<String>) -> PyResult<()> {
        self.0.finish(keys.iter().map(String::as_str)).map(|_| ()).map_err(raise)
    }
}

/// The state of a trace's file, as a sweep's keys have it.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python gives paths by value")]
pub(crate) fn about_file(path: PathBuf) -> PyResult<String> {
    sim::about_file(Path::new(&path)).map_err(raise)
}

/// How a trace is read, as a sweep's keys have it.
#[pyfunction]
pub(crate) fn reading(trace: &Trace, warmup: &str, evictions: &str) -> PyResult<String> {
    let warmup = warmup.parse().map_err(raise)?;
    let evictions: EvictionsFrom = evictions.parse().map_err(raise)?;
    Ok(trace.input().reading(warmup, &format!("{evictions:?}")))
}
