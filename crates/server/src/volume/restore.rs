//! Warm restart: the policies get their saved state back at once, and the data of the resident
//! blocks are read afterwards.
//!
//! Until its data have been read, a resident block is *unloaded*: its slot is marked so, and empty.
//! A read of the block waits for the store, as if a fetch were running. A write treats the block as
//! a miss that has just got its slot. If the store cannot read the block, it stays unloaded. In all
//! other respects it is an ordinary resident block.
//!
//! If the saved policy cannot be loaded (another policy, capacity, or number of shards), only the
//! list of blocks is used: they are placed one after another.

use std::sync::Arc;
use std::time::Duration;

use undercroft_level::HashedCache;
use undercroft_nbd::Pieces;
use undercroft_policy::{Context, Counts, Spec};

use crate::clock;
use crate::counters::Source;
use crate::job::{BlockOp, Job, JobKind};
use crate::shard::Shard;
use crate::volume::shards::Shards;
use crate::volume::state::{SavedContent, StateError};
use crate::volume::{Volume, Work};

/// Blocks that a restart loads at a time.
const BLOCKS_AT_A_TIME: usize = 64;

/// What remains to be done after saved content was restored.
#[derive(Debug, PartialEq, Eq)]
pub struct Restored {
    /// Blocks whose data must be read, in this order.
    blocks: Vec<u64>,
    /// Why the policy must start empty, if it must: the blocks are then placed one after another.
    anew: Option<String>,
}

impl Restored {
    /// Blocks whose data must be read.
    pub fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// Why the policy starts empty; `None` if its state was restored.
    pub fn starts_anew(&self) -> Option<&str> {
        self.anew.as_deref()
    }

    /// Reads the data of restored blocks while no client waits for the store. If the policy starts
    /// empty, places the blocks instead, as long as there is room. Returns the number of blocks
    /// started. Ends early when the volume is closed.
    pub async fn warm_up(self, volume: &Arc<Volume>) -> u64 {
        let mut begun = 0;
        for group in self.blocks.chunks(BLOCKS_AT_A_TIME) {
            while volume.demand.is_there() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if volume.answers.is_closing() || volume.shards.is_empty() {
                break;
            }
            let mut work = Work::new(volume);
            begun += match self.anew {
                Some(_) => work.place(group),
                None => work.load(group),
            };
            work.finish();
        }
        begun
    }
}

/// A policy with all its parameters, because defaults may change between versions.
fn full_name(spec: &Spec) -> String {
    let mut name = spec.info().name.to_string();
    for (parameter, value) in spec.arguments() {
        name += &format!(",{parameter}={value}");
    }
    name
}

impl SavedContent {
    /// The state of a volume's cache. Each shard is locked while its state is copied.
    ///
    /// # Errors
    /// The policy cannot be saved.
    pub fn of(volume: &Volume) -> Result<Self, StateError> {
        // Saves a copy: serialising millions of blocks takes seconds, and a locked shard serves no
        // requests.
        let save = |index| {
            let mut copy = volume.shards.lock(index).blocks.level.cache().clone();
            copy.save().map_err(|refused| StateError::Unsaved(refused.to_string()))
        };
        let shards = (0..volume.shards.len()).map(save).collect::<Result<_, _>>();
        Ok(Self {
            block_bytes: volume.config.block_bytes,
            volume_bytes: volume.geometry.size(),
            policy: full_name(&volume.now().policy),
            shards: shards?,
        })
    }
}

impl Volume {
    /// Restores saved content. Call it before the first request, and then read the data of the
    /// blocks by [`Restored::warm_up`].
    ///
    /// # Errors
    /// The content is from a volume with another block size, or damaged.
    pub fn restore(&self, saved: &SavedContent) -> Result<Restored, StateError> {
        let own = self.config.block_bytes;
        if saved.block_bytes != own {
            return Err(StateError::Unusable(format!(
                "it is for blocks of {} bytes, the volume has blocks of {own}",
                saved.block_bytes
            )));
        }
        let now = self.now();
        match self.shards.restore(saved, &now.policy, self.config.seed) {
            Ok(blocks) => Ok(Restored { blocks, anew: None }),
            Err(why) => {
                let mut blocks = saved.residents(self.geometry.block_count())?;
                // Those that would have been evicted first are left out.
                let too_many = blocks.len().saturating_sub(now.cache_blocks as usize);
                Ok(Restored { blocks: blocks.split_off(too_many), anew: Some(why) })
            }
        }
    }
}

impl Shards {
    /// Restores the caches of all shards, or of none. Returns the resident blocks, the last victims
    /// first.
    fn restore(&self, saved: &SavedContent, spec: &Spec, seed: u64) -> Result<Vec<u64>, String> {
        let (theirs, ours) = (&saved.policy, full_name(spec));
        if *theirs != ours {
            return Err(format!("the policy was {theirs} and is {ours}"));
        }
        let (theirs, ours) = (saved.shards.len(), self.len());
        if theirs != ours {
            return Err(format!("there were {theirs} shards and are {ours}"));
        }
        let caches = (0..).zip(&saved.shards).map(|(i, saved)| self.cache_of(i, saved, spec, seed));
        let caches = caches.collect::<Result<Vec<_>, _>>()?;
        let is_used = |shard: &Shard| {
            *shard.blocks.level.cache().counts() != Counts::default()
                || shard.blocks.level.cache().known().blocks().next().is_some()
                || !shard.blocks.active.is_empty()
        };
        if self.each().any(|shard| is_used(&shard)) {
            return Err("the volume is in use already".into());
        }
        let mut blocks = Vec::new();
        for (index, cache) in caches.into_iter().enumerate() {
            cache.known().blocks().for_each(|block| _ = self.geometry.first_touch(block));
            let residents = cache.residents().into_iter().rev().map(|(block, _)| block);
            blocks.extend(residents.enumerate());
            let mut shard = self.lock(index);
            cache.residents().into_iter().for_each(|(_, slot)| shard.blocks.unload(slot));
            shard.blocks.level.restore(cache);
        }
        blocks.sort_by_key(|&(rank, _)| rank);
        Ok(blocks.into_iter().map(|(_, block)| block).collect())
    }

    /// The cache of a shard, without blocks behind the end of a volume that has shrunk.
    fn cache_of(
        &self,
        index: usize,
        saved: &[u8],
        spec: &Spec,
        seed: u64,
    ) -> Result<HashedCache, String> {
        let capacity = self.lock(index).blocks.level.policy().capacity();
        let policy = spec.build(&Context::new(capacity)).map_err(|e| e.to_string())?;
        let seed = seed.wrapping_add(index as u64);
        let mut cache = HashedCache::load(policy, seed, saved).map_err(|e| e.to_string())?;
        let end = self.geometry.block_count();
        let gone: Vec<_> = cache.known().blocks().filter(|&block| block >= end).collect();
        gone.into_iter().for_each(|block| _ = cache.discard(block));
        if cache.known().blocks().any(|block| self.geometry.shard_of(block) != index) {
            return Err("it has blocks of another shard".into());
        }
        Ok(cache)
    }
}

impl Work<'_> {
    /// Starts to read those of the blocks that are still unloaded; neighbours share store requests.
    /// Returns their number.
    fn load(&mut self, group: &[u64]) -> u64 {
        let mut blocks = group.to_vec();
        blocks.sort_unstable();
        let mut begun = 0;
        let job = Arc::new(Job::new(JobKind::Prefetch, 0, 0, false, clock::now()));
        for block in blocks {
            let (shard, fx) = self.shard(block);
            if shard.blocks.is_unloaded(block) {
                shard.counters.prefetched += 1;
                job.expect_part(Source::Joined);
                shard.enqueue(BlockOp { job: Arc::clone(&job), block }, fx);
                begun += 1;
            }
        }
        job.submitted(Pieces::default(), None);
        begun
    }

    /// Places those of the blocks that are not resident, as long as there is room. Returns their
    /// number.
    fn place(&mut self, group: &[u64]) -> u64 {
        let mut begun = 0;
        for &block in group {
            let (shard, _) = self.shard(block);
            let policy = shard.blocks.level.policy();
            if policy.len() < policy.capacity() && shard.blocks.level.frame(block).is_none() {
                self.prefetch(self.volume.geometry.start(block), 1, false);
                begun += 1;
            }
        }
        begun
    }
}
