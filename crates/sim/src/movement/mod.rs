//! Hierarchies driven by hints: the schemes of `undercroft_cache::movement` over a topology, driven
//! by one or several clients, and what they cost.

mod account;
mod bounds;
mod hint_distance;
mod links;
mod report;

use std::sync::Arc;
use std::time::Instant;

use undercroft_cache::movement::{Build, Gauges, Scheme, SchemeSpec, Topology};
use undercroft_cache::{Counts, Reference, WriteMode};

use crate::clients::ClientRef;
use crate::hierarchy::thread_cpu_time;
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
    pub topology: Topology,
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
    let (started, started_cpu) = (Instant::now(), thread_cpu_time());
    check(population, config)?;
    let build = Build {
        block_bytes: config.block_bytes,
        policy: &config.policy,
        seed: config.seed,
        ..Build::new(&config.topology)
    };
    let mut scheme = config.scheme.build(build.clone())?;
    if config.scheme.info().two_passes {
        drive(population, scheme.as_mut(), &mut progress)?;
        let log = scheme.take_log().map(Arc::new);
        scheme = config.scheme.build(Build { log, ..build })?;
    }
    let trace = population.trace();
    let warmup = trace.references_of(config.warmup_records)?;
    let mut account = Account::new(population, config);
    let mut chunks = trace.forward();
    scheme.grow(population.unique());
    let mut moves = Vec::new();
    let every = (trace.len() / u64::from(config.samples.max(1))).max(1);
    let mut resolved = [(ClientRef::default(), false); BATCH];
    let mut blocks = [0; BATCH];
    while let Some((start, chunk)) = chunks.next()? {
        let mut at = start;
        for batch in chunk.chunks(BATCH) {
            let places = resolved.iter_mut().zip(&mut blocks);
            for (&r, ((resolved, is_cold), block)) in batch.iter().zip(places) {
                *resolved = population.resolve(r);
                *block = resolved.block;
                *is_cold = account.is_cold(*block);
            }
            scheme.warm(&blocks[..batch.len()]);
            for &(r, is_cold) in &resolved[..batch.len()] {
                if at == warmup {
                    account.restart(scheme.as_ref());
                }
                moves.clear();
                let reference = Reference::new(r.block, r.is_write);
                let found = scheme.reference(r.client, reference, &mut moves);
                account.count(r.client, reference, is_cold, found, &moves);
                at += 1;
                if config.samples > 0 && at % every == 0 {
                    account.sample(at, scheme.as_ref());
                }
            }
        }
        progress(start + chunk.len() as u64);
    }
    let (levels, movement) = account.finish(scheme.as_ref());
    Ok(Outcome {
        levels,
        references: trace.len(),
        elapsed: started.elapsed(),
        cpu: thread_cpu_time().saturating_sub(started_cpu),
        cooperation: None,
        clients: None,
        timed: None,
        aware: Vec::new(),
        movement: Some(movement),
    })
}

/// Drives a scheme through the whole trace, without counting: a first pass.
fn drive(
    population: &Population,
    scheme: &mut dyn Scheme,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Error> {
    scheme.grow(population.unique());
    let mut moves = Vec::new();
    let mut chunks = population.trace().forward();
    while let Some((start, chunk)) = chunks.next()? {
        for &r in chunk {
            let r = population.resolve(r);
            moves.clear();
            let reference = Reference::new(r.block, r.is_write);
            scheme.reference(r.client, reference, &mut moves);
        }
        progress(start + chunk.len() as u64);
    }
    Ok(())
}

fn check(population: &Population, config: &MovementConfig) -> Result<(), Error> {
    let refuse = |why: String| Err(Error::Request(why));
    let name = config.scheme.info().name;
    let (clients, known) = (population.names().len(), config.topology.clients());
    if clients != known {
        return refuse(format!("{clients} clients, and the topology has places for {known}"));
    }
    if population.data() == crate::Data::Shared {
        return refuse(format!(
            "placement {name} with clients that share data: a block would be in several places at \
             once, and the scheme holds it in one; leave --data shared out"
        ));
    }
    if config.write_mode != WriteMode::Allocate {
        return refuse(format!(
            "placement {name}: writes allocate there, as reads do; use --write-mode allocate"
        ));
    }
    Ok(())
}

/// What the applications asked for and got, as one level.
fn zeroed(nodes: usize) -> Vec<Counts> {
    vec![Counts::default(); nodes]
}
