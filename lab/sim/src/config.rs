//! What is simulated, with all sizes in blocks: levels one below the other, clients above servers,
//! or caches under a scheme. One type describes them all; `setup.rs` makes it of what a person
//! writes.

use std::sync::Arc;

use undercroft_level::placement::Placement;
use undercroft_policy::WriteMode;

use crate::cache_tree::CacheTree;
use crate::costs::{CostSpec, Costs, Times};
use crate::rule::Rule;
use crate::timing::Timing;
use crate::tree::Division;
use crate::{DerivedEvictions, Error, LevelConfig, Lowest};

/// The configuration of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Levels, the one nearest to the application first. With several clients or servers, or a
    /// clock: the first level of each client, or one for all clients, and then the servers' level,
    /// whose size is the total. Under a scheme `tree` has the caches.
    pub levels: Vec<LevelConfig>,
    /// The caches under a scheme; `None` under a placement.
    pub tree: Option<CacheTree>,
    /// What decides where blocks are kept.
    pub rule: Rule,
    /// How the second level learns what the client evicted.
    pub evictions: Evictions,
    /// Several clients or servers; `None`: one client.
    pub sharing: Option<Sharing>,
    /// Times of a clock; `None`: no clock.
    pub timing: Option<Timing>,
    /// What writes do, at every level.
    pub write_mode: WriteMode,
    /// Records at the start of the trace that are simulated but not counted.
    pub warmup_records: u64,
    /// Bytes of a block, at least 1 where bytes count: streams that pass, links, a clock, schemes.
    pub block_bytes: u32,
    /// What the lowest level does beside replacement.
    pub lowest: Lowest,
    /// Times and costs, and the seed of schemes.
    pub times: Times,
    /// What is looked at beside the counts, under a scheme.
    pub looks: Looks,
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

/// How clients and servers share what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Number of servers, from 1 to 64, which share the size of their level.
    pub servers: u32,
    /// How each server's cache is divided among the clients.
    pub division: Division,
    /// Whether clients serve each other's reads that miss at the servers.
    pub peer_fetch: bool,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { servers: 1, division: Division::Shared, peer_fetch: false }
    }
}

/// What is looked at while blocks move between levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// Number of samples of the caches over the trace.
    pub samples: u32,
    /// Whether to compute hint reuse distances, which takes time.
    pub hint_distances: bool,
    /// Whether to add what no scheme can beat, and what knowledge of the future attains.
    pub bounds: bool,
}

impl Config {
    /// Whether clients above servers are simulated, or a clock.
    pub fn has_clients(&self) -> bool {
        self.sharing.is_some() || self.timing.is_some()
    }

    /// When blocks are placed below the first levels, if no scheme decides that.
    pub(crate) fn placement(&self) -> Placement {
        match self.rule {
            Rule::Placement(placement) => placement,
            Rule::Scheme(_) => Placement::Access,
        }
    }

    /// The first level of a client that stands above servers.
    pub(crate) fn client(&self, client: usize) -> &LevelConfig {
        &self.levels[client.min(self.levels.len() - 2)]
    }

    /// The times of requests, by level, or by cache under a scheme.
    ///
    /// # Errors
    /// The times are for another number of levels.
    pub fn costs(&self) -> Result<Costs, Error> {
        let levels = match &self.tree {
            Some(tree) => tree.topology.nodes(),
            None if self.has_clients() => 2,
            None => self.levels.len(),
        };
        self.times.costs.as_ref().unwrap_or(&CostSpec::Hfa).costs(levels)
    }
}
