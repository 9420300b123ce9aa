//! Hierarchies driven by hints: the schemes of `undercroft_schemes` over a topology, with
//! one or several clients, and the costs.

mod account;
mod bounds;
mod hint_distance;
mod links;
mod report;

use std::sync::Arc;

use undercroft_policy::Reference;
use undercroft_schemes::{Build, Move, Scheme, SchemeSpec};
use undercroft_trace::Ref;

use crate::clients::ClientRef;
use crate::drive::{Proceed, Topology, drive};
use crate::{CacheTree, Config, Error, Outcome, Population};
use account::Account;

pub use bounds::bounds;
pub(crate) use bounds::limits;
pub use hint_distance::HintDistances;
pub use report::{MovementReport, NodeReport};

/// References that are passed to a scheme for prefetching before the first of them is made.
const BATCH: usize = 32;

/// Runs a scheme over the whole trace, with a warm-up of so many references. `progress` is called
/// with the references done so far, over both passes if there are two.
///
/// # Errors
/// The scheme cannot be made, a spooled trace cannot be read back, or `progress` stops it.
pub(crate) fn simulate_movement<P: Proceed>(
    population: &Population,
    config: &Config,
    scheme: &SchemeSpec,
    warmup: u64,
    progress: &mut dyn FnMut(u64) -> P,
) -> Result<Outcome, Error> {
    let Some(CacheTree { topology, policy, .. }) = &config.tree else {
        return Err(Error::Request("a scheme needs a tree of caches".into()));
    };
    let (clients, known) = (population.names().len(), topology.clients());
    if clients != known {
        let why = format!("{clients} clients, and the topology has places for {known}");
        return Err(Error::Request(why));
    }
    let (costs, trace) = (config.costs()?, population.trace());
    let (block_bytes, seed) = (config.block_bytes, config.times.seed);
    let build = Build { block_bytes, policy, seed, ..Build::new(topology) };
    let mut caches = scheme.build(build.clone())?;
    if scheme.info().two_passes {
        let mut first = Caches::new(population, config, caches, None);
        drive(trace, 0, &mut first, progress)?;
        let log = first.scheme.take_log().map(Arc::new);
        caches = scheme.build(Build { log, ..build })?;
    }
    let account = Account::new(population, config, topology, &costs);
    let mut caches = Caches::new(population, config, caches, Some(account));
    drive(trace, warmup, &mut caches, progress)?;
    let (levels, movement) = match caches.account {
        Some(account) => account.finish(caches.scheme.as_ref()),
        None => Default::default(),
    };
    Ok(Outcome { levels, movement: Some(movement), ..Outcome::default() })
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
        config: &Config,
        mut scheme: Box<dyn Scheme>,
        account: Option<Account<'a>>,
    ) -> Self {
        scheme.grow(population.unique());
        let every = population.trace().len().checked_div(config.looks.samples.into());
        let every = every.map_or(0, |references| references.max(1));
        Self { population, scheme, account, every, moves: Vec::new() }
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
