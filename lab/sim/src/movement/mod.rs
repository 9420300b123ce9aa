//! Hierarchies driven by hints: the schemes of `undercroft_schemes` over a topology, with
//! one or several clients, and the costs.

mod account;
mod bounds;
mod hint_distance;
mod links;
mod report;

use std::sync::Arc;

use undercroft_cache::Reference;
use undercroft_schemes::{Build, Move, Scheme};
use undercroft_trace::Ref;

use crate::clients::ClientRef;
use crate::combinations::{Combination, RuleKind};
use crate::drive::{Proceed, Stopwatch, Topology, drive};
use crate::{Error, MovementConfig, Outcome, Population};
use account::Account;

pub use bounds::{Bound, Bounds, bounds};
pub use hint_distance::HintDistances;
pub use report::{BoundReport, MovementReport, NodeReport, SampleReport};

/// References that are passed to a scheme for prefetching before the first of them is made.
const BATCH: usize = 32;

/// Caches of so many blocks one below the other, for one client.
pub(crate) fn line(capacities: &[u32]) -> Result<undercroft_schemes::Topology, Error> {
    undercroft_schemes::Topology::line(capacities).map_err(|e| Error::Request(e.to_string()))
}

/// Runs a scheme over the whole trace. `progress` is called with the references done so far, over
/// both passes if there are two.
///
/// # Errors
/// The scheme cannot be made, a spooled trace cannot be read back, or `progress` stops it.
pub fn simulate_movement<P: Proceed>(
    population: &Population,
    config: &MovementConfig,
    mut progress: impl FnMut(u64) -> P,
) -> Result<Outcome, Error> {
    let stopwatch = Stopwatch::start();
    let name = config.scheme.info().name;
    let shares_data = population.data() == crate::Data::Shared;
    let (rule, write_mode) = (RuleKind::Scheme(name), config.write_mode);
    Combination { rule, write_mode, shares_data, ..Combination::default() }.check()?;
    let (clients, known) = (population.names().len(), config.topology.clients());
    if clients != known {
        let why = format!("{clients} clients, and the topology has places for {known}");
        return Err(Error::Request(why));
    }
    let build = Build {
        block_bytes: config.block_bytes,
        policy: &config.policy,
        seed: config.seed,
        ..Build::new(&config.topology)
    };
    let trace = population.trace();
    let mut scheme = config.scheme.build(build.clone())?;
    if config.scheme.info().two_passes {
        let mut first = Caches::new(population, config, scheme, None);
        drive(trace, 0, &mut first, &mut progress)?;
        let log = first.scheme.take_log().map(Arc::new);
        scheme = config.scheme.build(Build { log, ..build })?;
    }
    let account = Account::new(population, config);
    let mut caches = Caches::new(population, config, scheme, Some(account));
    drive(trace, trace.references_of(config.warmup_records)?, &mut caches, &mut progress)?;
    let (levels, movement) = match caches.account {
        Some(account) => account.finish(caches.scheme.as_ref()),
        None => Default::default(),
    };
    Ok(Outcome { movement: Some(movement), ..stopwatch.outcome(trace.len(), levels) })
}

/// The caches of a scheme.
struct Caches<'a> {
    population: &'a Population,
    scheme: Box<dyn Scheme>,
    /// `None` in a first pass, which is not counted.
    account: Option<Account<'a>>,
    /// References between two samples of the caches; 0: no samples.
    every: u64,
    moves: Vec<Move>,
}

impl<'a> Caches<'a> {
    fn new(
        population: &'a Population,
        config: &MovementConfig,
        mut scheme: Box<dyn Scheme>,
        account: Option<Account<'a>>,
    ) -> Self {
        scheme.grow(population.unique());
        let samples = u64::from(config.samples);
        let every = (samples > 0).then(|| (population.trace().len() / samples.max(1)).max(1));
        Self { population, scheme, account, every: every.unwrap_or(0), moves: Vec::new() }
    }
}

impl Topology for Caches<'_> {
    fn serve(&mut self, mut at: u64, refs: &[Ref]) {
        let Self { population, scheme, account, every, moves } = self;
        let mut resolved = [ClientRef::default(); BATCH];
        let (mut blocks, mut cold) = ([0; BATCH], [false; BATCH]);
        for batch in refs.chunks(BATCH) {
            for (i, &r) in batch.iter().enumerate() {
                resolved[i] = population.resolve(r);
                blocks[i] = resolved[i].block;
                cold[i] = account.as_mut().is_some_and(|account| account.is_cold(blocks[i]));
            }
            scheme.warm(&blocks[..batch.len()]);
            for (r, &is_cold) in resolved.iter().zip(&cold).take(batch.len()) {
                moves.clear();
                let reference = Reference::new(r.block, r.is_write);
                let found = scheme.reference(r.client, reference, moves);
                at += 1;
                let Some(account) = account else { continue };
                account.count(r.client, reference, is_cold, found, moves);
                if *every > 0 && at % *every == 0 {
                    account.sample(at, scheme.as_ref());
                }
            }
        }
    }

    fn restart_counts(&mut self) {
        if let Some(account) = &mut self.account {
            account.restart(self.scheme.as_ref());
        }
    }
}
