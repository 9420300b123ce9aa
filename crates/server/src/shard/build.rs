//! Builds a shard from the configuration of its volume: its level with policy, placement and
//! knowledge of the clients, and the memory for its blocks.

use std::sync::Arc;

use undercroft_frames::{Memory, Pools};
use undercroft_level::{Knowledge, Level};
use undercroft_policy::Awareness;

use crate::config::{VolumeConfig, VolumeError};
use crate::counters::Stats;
use crate::geometry::Geometry;
use crate::shard::Shard;
use crate::shard::below::Below;
use crate::shard::blocks::Blocks;
use crate::shard::digests::{Digests, Hasher};
use crate::shard::dirty::{DirtyBounds, DirtySet};
use crate::shard::eviction_placement::EvictionPlacement;
use crate::shard::starved::Starved;
use crate::shard::watchers::Watchers;

impl VolumeConfig {
    /// What a shard is to know of its clients.
    pub(super) fn knowledge(&self) -> Knowledge {
        let clients = self.client_blocks();
        Knowledge {
            // With access-based placement a content-aware policy always works with estimates.
            estimates: self.estimate || !self.cooperates(),
            client_blocks: clients.map(|blocks| blocks.div_ceil(self.shards.max(1))),
        }
    }

    /// Whether a level can be made with this policy and this placement.
    ///
    /// # Errors
    /// Says what does not fit.
    pub(crate) fn try_level(&self) -> Result<(), VolumeError> {
        self.level(self.shard_capacity(0), self.seed).map(drop)
    }

    fn level(&self, capacity: u32, seed: u64) -> Result<Level, VolumeError> {
        let level = Level::new(&self.policy, capacity, &self.shard_placement(), self.mode(), seed);
        level.map_err(|error| VolumeError::Placement(self.name.clone(), error))
    }
}

impl Shard {
    /// Builds the shard number `index`, empty.
    ///
    /// # Errors
    /// The policy or the placement cannot be built, or there is no memory for the frames.
    pub(crate) fn configured(
        config: &VolumeConfig,
        index: u32,
        memory: &Memory,
        geometry: &Arc<Geometry>,
        hasher: &Option<Hasher>,
    ) -> Result<Self, VolumeError> {
        let capacity = config.shard_capacity(index);
        let frames = config.shard_frames(index, 0);
        let seed = config.seed.wrapping_add(u64::from(index));
        let (cooperates, awareness) = (config.cooperates(), Awareness::of(&config.policy));
        let mut level = config.level(capacity, seed)?;
        if cooperates || awareness.is_some() {
            level = level.knowing_clients(awareness, config.knowledge(), seed);
        }
        let pool = memory.pool(frames, config.block_bytes as usize);
        let pool = pool.map_err(|e| VolumeError::Memory(config.name.clone(), e))?;
        let digests = hasher.clone().map(|hasher| Digests::new(hasher, capacity));
        if digests.is_some() {
            level.clients_mut().keep_digests();
        }
        let placement = cooperates
            .then(|| Box::new(EvictionPlacement::new(capacity, seed, config.reload_at_once)));
        let below = config.eviction_sink.clone().map(Below::new);
        let watchers = Watchers { placement, digests, below, ..Watchers::default() };
        Ok(Self {
            blocks: Blocks::new(level, watchers, Pools::from(pool), Arc::clone(geometry)),
            dirty: DirtySet::new(DirtyBounds::new(config, capacity as usize)),
            counters: Stats::default(),
            staged_frames: config.staged_frames(),
            starved: Starved::default(),
        })
    }
}
