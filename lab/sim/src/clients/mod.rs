//! Several clients, each with a first level of its own, above one or more servers, driven by the
//! references of all clients. The caches and the order of steps are those of
//! `crate::tree`. Everything happens at once; `timed/` has the simulation with a
//! clock.

mod population;
mod report;

use crate::tree::{Client, Cluster, ClusterRules, Division, ServerSpec};
use undercroft_cache::PlacementCounts;
use undercroft_cache::placement::{DataSource, Placement};
use undercroft_trace::Ref;

pub(crate) use population::{ClientRef, OfClient};
pub use population::{Data, Population};
pub use report::{ClientReport, ClientsReport};

use crate::combinations::{Combination, RuleKind};
use crate::cooperation::HINT_BYTES;
use crate::drive::{Proceed, Stopwatch, Topology, drive};
use crate::{
    ClientOutcome, ClientsConfig, ClientsOutcome, CooperationOutcome, Error, LevelConfig, Outcome,
};

/// Most servers.
const MAX_SERVERS: u32 = 64;

/// Runs clients and servers over the whole trace. `progress` is called with the references done so
/// far.
///
/// # Errors
/// The configuration cannot be simulated, a spooled trace cannot be read back, or `progress` stops
/// the simulation.
pub fn simulate_clients<P: Proceed>(
    population: &Population,
    config: &ClientsConfig,
    mut progress: impl FnMut(u64) -> P,
) -> Result<Outcome, Error> {
    let stopwatch = Stopwatch::start();
    let trace = population.trace();
    let warmup = trace.references_of(config.warmup_records)?;
    let (cluster, by_volume) = build(population, config, false)?;
    let mut world = World { population, cluster, seen: Seen::new(population.unique()) };
    drive(trace, warmup, &mut world, &mut progress)?;
    Ok(outcome(stopwatch, &world.cluster, config, (trace.len(), by_volume)))
}

/// Clients and servers without a clock.
struct World<'a> {
    population: &'a Population,
    cluster: Cluster,
    seen: Seen,
}

impl Topology for World<'_> {
    fn serve(&mut self, _: u64, refs: &[Ref]) {
        for &r in refs {
            let ClientRef { client, block, is_write } = self.population.resolve(r);
            let cold = self.seen.is_first(block);
            self.cluster.reference(client, block.into(), is_write, cold);
        }
    }

    fn restart_counts(&mut self) {
        self.cluster.restart_counts();
    }
}

/// Makes the caches. Returns also whether volumes decide a block's server.
pub(crate) fn build(
    population: &Population,
    config: &ClientsConfig,
    has_clock: bool,
) -> Result<(Cluster, bool), Error> {
    let count = population.names().len();
    Combination {
        rule: RuleKind::Placement(&config.placement),
        first: &config.clients,
        lower: std::slice::from_ref(&config.server),
        write_mode: config.write_mode,
        has_clients: true,
        has_clock,
        shares_data: population.data() == Data::Shared,
        ..Combination::default()
    }
    .check()?;
    check_numbers(config, count)?;
    let (homes, by_volume) = population.homes(config.servers as usize);
    let clients: Vec<Client> = (0..count)
        .map(|client| {
            let LevelConfig { capacity, policy } = config.client(client).clone();
            Client { policy, capacity }
        })
        .collect();
    let LevelConfig { capacity, policy } = &config.server;
    let servers: Vec<ServerSpec> = (0..config.servers)
        .map(|i| ServerSpec {
            policy: policy.clone(),
            capacity: capacity / config.servers + u32::from(i < capacity % config.servers),
            placement: config.placement,
            write_mode: config.write_mode,
            division: config.division,
        })
        .collect();
    let rules = ClusterRules {
        shares_data: population.data() == Data::Shared,
        peer_fetch: config.peer_fetch,
        write_mode: config.write_mode,
    };
    let home = move |block: u64| homes[block as usize].into();
    let mut cluster = Cluster::new(&clients, &servers, home, rules)?;
    cluster.number_blocks();
    Ok((cluster, by_volume))
}

fn check_numbers(config: &ClientsConfig, clients: usize) -> Result<(), Error> {
    let refuse = |why: String| Err(Error::Request(why));
    let (given, servers) = (config.clients.len(), config.servers);
    if given != 1 && given != clients {
        return refuse(format!(
            "{given} first levels for {clients} clients: give one for all of them, or one for each"
        ));
    }
    if !(1..=MAX_SERVERS).contains(&servers) || config.server.capacity < servers {
        let blocks = config.server.capacity;
        return refuse(format!(
            "{servers} servers of {blocks} blocks together: expected 1 to {MAX_SERVERS} of at \
             least one block each"
        ));
    }
    Ok(())
}

/// The counts of the caches after `references` references. `by_volume`: whether volumes decide a
/// block's server.
pub(crate) fn outcome(
    stopwatch: Stopwatch,
    cluster: &Cluster,
    config: &ClientsConfig,
    (references, by_volume): (u64, bool),
) -> Outcome {
    let (top, below) = cluster.level_counts();
    let placed = cluster.placement_counts();
    let is_divided = config.division != Division::Shared;
    let client = |client: usize| {
        let part = |server: &crate::tree::Server| {
            let part = server.parts().get(client).unwrap_or(&server.parts()[0]);
            u64::from(part.capacity())
        };
        ClientOutcome {
            own: *cluster.clients()[client].counts(),
            below: cluster.counts()[client],
            part_blocks: is_divided.then(|| cluster.servers().iter().map(part).sum()),
        }
    };
    let clients: Vec<_> = (0..cluster.clients().len()).map(client).collect();
    let cooperation = (config.placement != Placement::Access).then(|| {
        let sends = match config.placement {
            Placement::Eviction(eviction) => eviction.down == DataSource::Demote,
            Placement::Access | Placement::Global(_) => true,
        };
        // Every eviction is reported; blocks that another client still holds are not placed.
        let not_last = clients.iter().map(|client| client.below.not_last).sum::<u64>();
        let hints = if sends { 0 } else { placed.known_evictions + not_last };
        let staging = cluster.servers().iter().flat_map(|server| server.parts());
        CooperationOutcome {
            levels: vec![PlacementCounts::default(), placed],
            hint_bytes: hints * HINT_BYTES,
            staging_blocks: staging.map(|part| part.staging_blocks()).sum(),
            ..CooperationOutcome::default()
        }
    });
    let clients = ClientsOutcome {
        clients,
        servers: cluster.servers().iter().map(|server| server.counts()).collect(),
        by_volume,
        moved: cluster.servers().iter().map(|server| server.moved()).sum(),
    };
    let clients = Some(clients);
    Outcome { cooperation, clients, ..stopwatch.outcome(references, vec![top, below]) }
}

/// The blocks referenced so far.
pub(crate) struct Seen(Vec<bool>);

impl Seen {
    pub(crate) fn new(blocks: u32) -> Self {
        Self(vec![false; blocks as usize])
    }

    /// Whether this is the first reference to a block.
    pub(crate) fn is_first(&mut self, block: u32) -> bool {
        !std::mem::replace(&mut self.0[block as usize], true)
    }
}
