//! Several clients, each with a first level of its own, above one or more servers, driven by the
//! references of all clients. The caches and the order of steps are those of `crate::tree`.
//! Everything happens at once; `timed/` has the simulation with a clock.

mod population;
mod report;

use crate::tree::{Client, Cluster, ClusterRules, Division, ServerSpec};
use undercroft_level::placement::{DataSource, Placement};
use undercroft_level::{EvictionPlacement, Level, PlacementCounts};
use undercroft_trace::Ref;

pub(crate) use population::{ClientRef, OfClient};
pub use population::{Data, Population};
pub use report::{ClientReport, ClientsReport};

use crate::cooperation::HINT_BYTES;
use crate::drive::{Proceed, Topology, drive};
use crate::{
    ClientOutcome, ClientsOutcome, Config, CooperationOutcome, Error, LevelConfig, Outcome, Sharing,
};

/// Most servers.
const MAX_SERVERS: u32 = 64;

/// Runs clients and servers over the whole trace, with a warm-up of so many references.
///
/// # Errors
/// The configuration cannot be simulated, a spooled trace cannot be read back, or `progress` stops
/// the simulation.
pub(crate) fn simulate_clients<P: Proceed>(
    population: &Population,
    config: &Config,
    warmup: u64,
    progress: &mut dyn FnMut(u64) -> P,
) -> Result<Outcome, Error> {
    let (cluster, by_volume) = build(population, config)?;
    let mut world = World { population, cluster, seen: Seen::new(population.unique()) };
    drive(population.trace(), warmup, &mut world, progress)?;
    Ok(outcome(&world.cluster, config, by_volume))
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
pub(crate) fn build(population: &Population, config: &Config) -> Result<(Cluster, bool), Error> {
    let count = population.names().len();
    let Sharing { servers, division, peer_fetch } = config.sharing.unwrap_or_default();
    let given = config.levels.len().saturating_sub(1);
    let refuse = |why: String| Err(Error::Request(why));
    if given != 1 && given != count {
        return refuse(format!(
            "{given} first levels for {count} clients: give one for all of them, or one for each"
        ));
    }
    let LevelConfig { capacity, policy } = &config.levels[given];
    if !(1..=MAX_SERVERS).contains(&servers) || *capacity < servers {
        return refuse(format!(
            "{servers} servers of {capacity} blocks together: expected 1 to {MAX_SERVERS} of at \
             least one block each"
        ));
    }
    let (homes, by_volume) = population.homes(servers as usize);
    let clients: Vec<Client> = (0..count)
        .map(|client| {
            let LevelConfig { capacity, policy } = config.client(client).clone();
            Client { policy, capacity }
        })
        .collect();
    let servers: Vec<ServerSpec> = (0..servers)
        .map(|i| ServerSpec {
            policy: policy.clone(),
            capacity: capacity / servers + u32::from(i < capacity % servers),
            placement: config.placement(),
            write_mode: config.write_mode,
            division,
        })
        .collect();
    let rules = ClusterRules {
        shares_data: population.data() == Data::Shared,
        peer_fetch,
        write_mode: config.write_mode,
    };
    let home = move |block: u64| homes[block as usize].into();
    let mut cluster = Cluster::new(&clients, &servers, home, rules)?;
    cluster.number_blocks();
    Ok((cluster, by_volume))
}

/// The counts of the caches. `by_volume`: whether volumes decide a block's server.
pub(crate) fn outcome(cluster: &Cluster, config: &Config, by_volume: bool) -> Outcome {
    let (top, below) = cluster.level_counts();
    let placed = cluster.placement_counts();
    let is_divided = config.sharing.unwrap_or_default().division != Division::Shared;
    let placement = config.placement();
    let client = |client: usize| {
        let part = |server: &crate::tree::Server| {
            let part = server.parts().get(client).unwrap_or(&server.parts()[0]);
            u64::from(part.policy().capacity())
        };
        ClientOutcome {
            own: *cluster.clients()[client].cache().counts(),
            below: cluster.counts()[client],
            part_blocks: is_divided.then(|| cluster.servers().iter().map(part).sum()),
        }
    };
    let clients: Vec<_> = (0..cluster.clients().len()).map(client).collect();
    let cooperation = (placement != Placement::Access).then(|| {
        let sends = match placement {
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
            staging_blocks: staging
                .filter_map(Level::placement)
                .map(EvictionPlacement::staging_blocks)
                .sum(),
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
    Outcome { levels: vec![top, below], cooperation, clients, ..Outcome::default() }
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
