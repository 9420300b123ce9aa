//! One simulation: levels one below the other, several clients or servers, a clock, or a scheme
//! that moves blocks by hints. The options are those of `undercroft simulate`, named alike.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use undercroft_cache::placement::Placement;
use undercroft_schemes::SchemeSpec;
use undercroft_sim::{
    ClientsSetup, Error, EvictionsFrom, LevelSpec, MovementConfig, Population, Prepared, Proceed,
    Ratio, Report, Rule, SchemeCaches, Setup, Warmup, run_scheme,
};

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
    let asked = Asked {
        first: specs(py, &first, watch.failure())?,
        lower: specs(py, &lower, watch.failure())?,
        rule: options.placement.parse().map_err(raise)?,
        evictions: options.common.evictions().map_err(raise)?,
        options: &options,
    };
    let input = watch.end(py.detach(|| asked.input(trace, &watch)))?;
    let run = |watch: &mut Watch| -> Result<String, Error> {
        let report = asked.run(&input, |_| watch.look())?;
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

/// The references of a simulation.
enum Input {
    One(Arc<Prepared>),
    Several { population: Box<Population>, block_bytes: u32, path: String },
}

/// What is asked for.
struct Asked<'a> {
    first: Vec<LevelSpec>,
    lower: Vec<LevelSpec>,
    rule: Rule,
    evictions: EvictionsFrom,
    options: &'a Options,
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::Request(why.into()))
}

impl Asked<'_> {
    /// Refuses options that do not go together, and reads what is to be simulated.
    fn input(&self, trace: &Trace, watch: &Watch) -> Result<Input, Error> {
        self.options.clients.check()?;
        self.evictions.check(std::slice::from_ref(&self.rule))?;
        match &self.rule {
            Rule::Scheme(_) => self.check_scheme()?,
            Rule::Placement(placement) => self.check_placement(placement)?,
        }
        if !self.has_clients() {
            return trace.prepared(watch, self.evictions).map(Input::One);
        }
        let (population, block_bytes) = self.options.clients.load(trace, watch)?;
        let path = trace.path().display().to_string();
        Ok(Input::Several { population: Box::new(population), block_bytes, path })
    }

    /// Whether there are several clients or servers, or a clock.
    fn has_clients(&self) -> bool {
        self.options.clients.is_used() || self.options.clock.is_some()
    }

    fn check_scheme(&self) -> Result<(), Error> {
        let Options { clients, common, clock, topology, .. } = self.options;
        if clock.is_some() || !common.lowest()?.is_plain() {
            return refuse(
                "timed, stream_cutoff, write_back: not under a scheme that moves blocks by hints",
            );
        }
        if clients.is_used() && topology.is_none() {
            return refuse(
                "several clients under a scheme that moves blocks by hints: give topology",
            );
        }
        if clients.has_servers() {
            return refuse("servers, partition, peer_fetch: the topology says what there is");
        }
        match (topology, self.first.len()) {
            (None, 1) | (Some(_), 0) => Ok(()),
            (None, _) => refuse("l1: one level, or topology"),
            (Some(_), _) => refuse("topology: it has the levels; leave them out"),
        }
    }

    fn check_placement(&self, placement: &Placement) -> Result<(), Error> {
        let Options { common, topology, samples, hint_distances, bounds, .. } = self.options;
        let of_schemes = topology.is_some() || *samples > 0 || *hint_distances || *bounds;
        if of_schemes || common.has_demotions() {
            return refuse(format!(
                "topology, samples, hint_distances, bounds, demotions: placement {} moves no \
                 blocks by hints; choose a scheme that does",
                placement.name()
            ));
        }
        if !self.has_clients() {
            return match self.first.len() {
                1 => Ok(()),
                _ => refuse("l1: one level for the one client; see clients"),
            };
        }
        let there = "several clients or servers, or timed";
        if !common.lowest()?.is_plain()
            || common.has_costs()
            || self.evictions != EvictionsFrom::Exact
        {
            return refuse(format!(
                "stream_cutoff, write_back, costs, evictions: not with {there}"
            ));
        }
        if self.first.is_empty() || self.lower.len() != 1 || self.options.ratio.is_some() {
            return refuse(format!("{there}: two levels, l1 and l2"));
        }
        Ok(())
    }

    /// Simulates.
    fn run<P: Proceed>(
        &self,
        input: &Input,
        progress: impl FnMut(u64) -> P,
    ) -> Result<Report, Error> {
        match (&self.rule, input) {
            (Rule::Scheme(scheme), _) => self.run_scheme(scheme, input, progress),
            (Rule::Placement(_), Input::One(prepared)) => {
                self.setup(prepared)?.run(prepared, progress)
            }
            (Rule::Placement(placement), Input::Several { population, block_bytes, path }) => {
                let setup = self.clients(*placement, population, *block_bytes)?;
                setup.run(population, *block_bytes, path, progress)
            }
        }
    }

    /// The levels of one client, from the top.
    fn levels(&self) -> Result<Vec<LevelSpec>, Error> {
        let Some(ratio) = &self.options.ratio else {
            return Ok(self.first.iter().chain(&self.lower).cloned().collect());
        };
        let ratio: Ratio = ratio.parse()?;
        match (&self.first[..], &self.lower[..]) {
            ([first], []) => Ok(ratio.levels(first)),
            _ => refuse("ratio: it has the sizes of the levels below l1; leave those out"),
        }
    }

    fn setup(&self, prepared: &Prepared) -> Result<Setup, Error> {
        let common = &self.options.common;
        Ok(Setup {
            levels: self.levels()?,
            rule: self.rule.clone(),
            times: common.times()?,
            write_mode: common.write_mode()?,
            warmup_records: self.warmup(prepared.population())?,
            lowest: common.lowest()?,
        })
    }

    fn clients(
        &self,
        placement: Placement,
        population: &Population,
        block_bytes: u32,
    ) -> Result<ClientsSetup, Error> {
        let Options { clients, clock, common, .. } = self.options;
        Ok(ClientsSetup {
            first: self.first.clone(),
            server: self.lower[0].clone(),
            servers: clients.servers(),
            placement,
            write_mode: common.write_mode()?,
            division: clients.division()?,
            peer_fetch: clients.peer_fetch(),
            warmup_records: self.warmup(population)?,
            timing: clock.as_ref().map(|clock| clock.timing(block_bytes)).transpose()?,
        })
    }

    fn run_scheme<P: Proceed>(
        &self,
        scheme: &SchemeSpec,
        input: &Input,
        progress: impl FnMut(u64) -> P,
    ) -> Result<Report, Error> {
        let (population, block_bytes, path) = match input {
            Input::One(prepared) => {
                (prepared.population(), prepared.block_bytes(), &prepared.about().path)
            }
            Input::Several { population, block_bytes, path } => {
                (population.as_ref(), *block_bytes, path)
            }
        };
        let Options { common, topology, samples, hint_distances, bounds, .. } = self.options;
        let (times, unique) = (common.times()?, population.unique());
        let caches = match topology {
            Some(_) if common.has_costs() => {
                return refuse("costs: the topology states them; leave them out");
            }
            Some(file) => SchemeCaches::of_file(file, block_bytes, unique)?,
            None => {
                let levels = self.levels()?;
                let levels = levels.iter().map(|level| level.config(block_bytes, unique));
                let levels = levels.collect::<Result<Vec<_>, _>>()?;
                SchemeCaches::line(&levels, times.costs.as_ref())?
            }
        };
        let config = MovementConfig {
            write_mode: common.write_mode()?,
            warmup_records: self.warmup(population)?,
            demotion_cost: times.demotions,
            seed: times.seed,
            samples: *samples,
            hint_distances: *hint_distances,
            ..caches.config(scheme.clone(), block_bytes)
        };
        run_scheme(population, &config, *bounds, path, progress)
    }

    /// Records that are not counted.
    fn warmup(&self, population: &Population) -> Result<u64, Error> {
        let warmup: Warmup = self.options.warmup.parse()?;
        warmup.records(population.trace().seen().records)
    }
}
