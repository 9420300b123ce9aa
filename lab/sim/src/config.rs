//! What is simulated, with all sizes in blocks: levels one below the other, clients above servers,
//! or caches under a scheme.

use std::sync::Arc;

use crate::tree::Division;
use undercroft_cache::WriteMode;
use undercroft_cache::placement::Placement;
use undercroft_cache::policy::Spec;
use undercroft_schemes::{SchemeSpec, Topology};

use crate::{Costs, DemotionCost, DerivedEvictions, Lowest};

/// The configuration of a level.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelConfig {
    /// Size in blocks, at least 1.
    pub capacity: u32,
    /// Replacement policy.
    pub policy: Spec,
}

/// Levels one below the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Levels, the one nearest to the application first.
    pub levels: Vec<LevelConfig>,
    /// What writes do, at every level.
    pub write_mode: WriteMode,
    /// Records at the start of the trace that are simulated but not counted.
    pub warmup_records: u64,
    /// What the lowest level does beside replacement.
    pub lowest: Lowest,
    /// When blocks are placed at the levels below the first.
    pub placement: Placement,
    /// How the second level learns what the client evicted.
    pub evictions: Evictions,
}

/// The source of the client's evictions.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Evictions {
    /// From the simulated level above.
    #[default]
    Exact,
    /// Recorded: from the buffer addresses in the trace, or as the clients told them.
    Derived(Arc<DerivedEvictions>),
    /// Inferred by emulating the client.
    Estimated,
}

/// The configuration of clients and servers.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientsConfig {
    /// The first level of each client, or one entry for all clients.
    pub clients: Vec<LevelConfig>,
    /// The servers' caches; the size is the total, in equal shares.
    pub server: LevelConfig,
    /// Number of servers, from 1 to 64.
    pub servers: u32,
    /// When blocks are placed at the servers.
    pub placement: Placement,
    /// What writes do, at every level.
    pub write_mode: WriteMode,
    /// How each server's cache is divided among the clients.
    pub division: Division,
    /// Whether clients serve each other's reads that miss at the servers.
    pub peer_fetch: bool,
    /// Records at the start of the trace that are simulated but not counted.
    pub warmup_records: u64,
}

impl ClientsConfig {
    /// The configuration as two levels, one below the other, for reports: the clients' caches
    /// together above the servers' caches together. The policy is that of the first client.
    pub fn levels(&self, clients: usize) -> Config {
        let capacity = (0..clients).map(|client| self.client(client).capacity);
        let first = LevelConfig {
            capacity: capacity.fold(0, u32::saturating_add),
            policy: self.clients[0].policy.clone(),
        };
        Config {
            levels: vec![first, self.server.clone()],
            write_mode: self.write_mode,
            warmup_records: self.warmup_records,
            placement: self.placement,
            ..Config::default()
        }
    }

    /// The first level of a client.
    pub fn client(&self, client: usize) -> &LevelConfig {
        &self.clients[client.min(self.clients.len() - 1)]
    }
}

/// Caches under a scheme.
#[derive(Clone, Debug)]
pub struct MovementConfig {
    /// The caches, and the cache of each client.
    pub topology: Topology,
    /// The name of each cache.
    pub names: Vec<String>,
    /// How blocks move.
    pub scheme: SchemeSpec,
    /// The replacement policy of the levels.
    pub policy: String,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// What writes do. Schemes support only allocation.
    pub write_mode: WriteMode,
    /// Records at the start of the trace that are simulated but not counted.
    pub warmup_records: u64,
    /// Times of the caches, by number, and of the disk.
    pub costs: Costs,
    /// What a demotion adds.
    pub demotion_cost: DemotionCost,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number of samples of the caches over the trace.
    pub samples: u32,
    /// Whether to compute hint reuse distances, which takes time.
    pub hint_distances: bool,
}
