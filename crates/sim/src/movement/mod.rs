//! Hierarchies driven by hints: the schemes of `undercroft_cache::movement` over a topology, driven
//! by one or several clients, and what they cost.

mod account;
mod bounds;
mod hint_distance;
mod links;
mod report;

use std::sync::Arc;

use undercroft_cache::movement::{self, Build, Gauges, Move, Scheme, SchemeSpec};
use undercroft_cache::{Counts, Reference, WriteMode};
use undercroft_trace::Ref;

use crate::clients::ClientRef;
use crate::combinations::{Combination, RuleKind};
use crate::drive::{Stopwatch, Topology, drive};
use crate::{Costs, DemotionCost, Error, Outcome, Population};
use account::Account;

pub use account::NodeCounts;
pub use bounds::{Bound, Bounds, bounds};
pub use hint_distance::HintDistances;
pub use report::{BoundReport, MovementReport, NodeReport, SampleReport};

/// References of which a scheme is told before the first of them is made.
const BATCH: usize = 32;

/// A simulation as asked for.
#[derive(Clone, Debug)]
pub struct MovementConfig {
    /// The caches, and the cache of each client.
    pub topology: movement::Topology,
    /// The name of each cache.
    pub names: Vec<String>,
    /// How blocks move.
    pub scheme: SchemeSpec,
    /// The replacement policy written at the levels.
    pub policy: String,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// What writes do. Under a scheme they allocate.
    pub write_mode: WriteMode,
    /// Records at the start of the trace that are simulated and not counted.
    pub warmup_records: u64,
    /// Times of the caches, by their numbers, and of the disk.
    pub costs: Costs,
    /// What demotions add.
    pub demotion_cost: DemotionCost,
    /// Start of the random numbers.
    pub seed: u64,
    /// How often the caches are looked at, over the trace.
    pub samples: u32,
    /// Whether hint reuse distances are found, which takes time.
    pub hint_distances: bool,
}

/// What came out beside the counts of each level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MovementOutcome {
    /// Of each cache.
    pub nodes: Vec<NodeCounts>,
    /// Time that reads spent waiting for demotions on links, in milliseconds, over all reads.
    pub waited_ms: f64,
    /// Time that reads were charged for demotions, likewise.
    pub charged_ms: f64,
    /// What a look at the caches saw, in order.
    pub samples: Vec<Sample>,
}

/// A look at the caches while the simulation ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// References so far.
    pub references: u64,
    /// Since the look before: reads of the clients, and those that each cache served.
    pub reads: u64,
    /// See above.
    pub read_hits: Vec<u64>,
    /// Parts of each cache, where the scheme has such.
    pub gauges: Vec<Option<Gauges>>,
}

/// Runs a scheme over the whole trace. `progress` is told the references done so far, over both
/// passes where there are two.
///
/// # Errors
/// The scheme cannot be had as asked for, or a spooled trace cannot be read back.
pub fn simulate_movement(
    population: &Population,
    config: &MovementConfig,
    mut progress: impl FnMut(u64),
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
    /// None in a first pass, which is not counted.
    account: Option<Account<'a>>,
    /// References between two looks at the caches; none are taken if 0.
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

/// What the applications asked for and got, as one level.
fn zeroed(nodes: usize) -> Vec<Counts> {
    vec![Counts::default(); nodes]
}
