//! Simulations of every kind: which loop carries out a configuration is decided here.

use undercroft_level::placement::Placement;
use undercroft_trace::DenseTrace;

use crate::aware::{is_aware, simulate_aware};
use crate::chain::simulate_chain;
use crate::clients::Data;
use crate::combinations::Combination;
use crate::drive::{Proceed, Stopwatch};
use crate::movement::{limits, simulate_movement};
use crate::timed::simulate_timed;
use crate::tree::simulate_tree;
use crate::{Config, Error, Outcome, Population, Rule};

/// The references of a simulation: a trace, or a trace with its clients.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub(crate) trace: &'a DenseTrace,
    pub(crate) population: Option<&'a Population>,
}

impl<'a> From<&'a DenseTrace> for Input<'a> {
    fn from(trace: &'a DenseTrace) -> Self {
        Self { trace, population: None }
    }
}

impl<'a> From<&'a Population> for Input<'a> {
    fn from(population: &'a Population) -> Self {
        Self { trace: population.trace(), population: Some(population) }
    }
}

/// Runs what `config` describes over the whole trace. `progress` is called with the references done
/// so far; under a scheme with two passes, in each.
///
/// # Errors
/// The parts of the configuration cannot be simulated, or not together; clients, a clock or a
/// scheme get no [`Population`]; a spooled trace cannot be read back; or `progress` stops it.
pub fn simulate<'a, P: Proceed>(
    input: impl Into<Input<'a>>,
    config: &Config,
    mut progress: impl FnMut(u64) -> P,
) -> Result<Outcome, Error> {
    let Input { trace, population } = input.into();
    let shares_data = population.is_some_and(|clients| clients.data() == Data::Shared);
    Combination { config, shares_data }.check()?;
    if config.times.costs.is_some() {
        config.costs()?;
    }
    let bounds = limits(trace, config)?;
    let stopwatch = Stopwatch::start();
    let warmup = trace.references_of(config.warmup_records)?;
    let is_one = population.is_none_or(|clients| clients.names().len() == 1);
    if !is_one && !config.has_clients() && matches!(config.rule, Rule::Placement(_)) {
        let why = "several clients under a placement need to know what they share (`sharing`)";
        return Err(Error::Request(why.into()));
    }
    let clients = || {
        let why = "several clients, a clock and schemes need a trace with its clients";
        population.ok_or_else(|| Error::Request(why.into()))
    };
    let sharing = config.sharing.map(|_| clients()).transpose()?;
    let progress = &mut progress;
    let outcome = match (&config.rule, &config.timing) {
        (Rule::Scheme(scheme), _) => {
            simulate_movement(clients()?, config, scheme, warmup, progress)
        }
        (_, Some(timing)) => simulate_timed(clients()?, config, timing, warmup, progress),
        (rule, _)
            if sharing.is_some()
                || config.lowest.flash.is_some()
                || *rule != Rule::Placement(Placement::Access) =>
        {
            simulate_tree(trace, sharing, config, warmup, progress)
        }
        _ if config.levels.iter().any(is_aware) => simulate_aware(trace, config, warmup, progress),
        _ => simulate_chain(trace, config, warmup, progress),
    };
    let mut outcome = stopwatch.stop(trace.len(), outcome?);
    if let Some(movement) = &mut outcome.movement {
        movement.bounds = bounds;
    }
    Ok(outcome)
}
