//! Changes of a volume's cache while it is served: size, policy and placement. Clients notice
//! nothing: what is cached stays cached as far as there is room, and what is dirty stays readable
//! until the store has it.
//!
//! The steps are ordered so that nothing can fail halfway: first everything is checked, then the
//! memory is taken, then the shards change one after another, and at last the memory that is not
//! needed any more is given back.
//!
//! Not here: whether the server has so much memory to give (`process/change.rs`), and what may be
//! dirty (`flush.rs`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::time::sleep;
use undercroft_frames::Memory;
use undercroft_level::placement::Placement;
use undercroft_policy::{Awareness, Knows};
use undercroft_text::Bytes;

use crate::config::VolumeConfig;
use crate::lock::sleep_lock;
use crate::shard::digests::Hasher;
use crate::shard::dirty::DirtyBounds;
use crate::volume::shards::Shards;
use crate::volume::{Volume, Work};

/// Most blocks that leave a shard under one hold of its lock.
const STEP: u32 = 1 << 14;

/// Most blocks that leave a shard with write-back under one hold of its lock: each may have to be
/// written out.
const STEP_DIRTY: u32 = 1 << 10;

/// Write-outs of a shard beyond which no more blocks are driven out.
const WRITE_OUTS_MAX: usize = 1 << 10;

/// Slots that are looked at under one hold of a shard's lock.
const SLOTS_AT_A_TIME: usize = 1 << 10;

/// Pauses between two looks for memory to give back; they double.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_LONGEST: Duration = Duration::from_secs(1);

impl VolumeConfig {
    /// What keeps a volume with this configuration from getting the size, policy and placement of
    /// another one while it is served.
    pub(crate) fn fixes(&self, next: &VolumeConfig) -> Option<(&'static str, &'static str)> {
        let (has_policy, has_placement) =
            (self.policy.to_string() != next.policy.to_string(), self.placement != next.placement);
        if (self.cache_blocks == 0) != (next.cache_blocks == 0) {
            return Some(("cache", "a cache is turned on or off"));
        }
        let is_aware = |config: &VolumeConfig| Awareness::of(&config.policy).is_some();
        if has_policy && (is_aware(self) || is_aware(next)) {
            return Some(("policy", "a content-aware policy begins or ends"));
        }
        if has_placement && is_aware(self) {
            return Some(("placement", "a content-aware policy keeps its placement"));
        }
        if has_placement && self.record.is_some() {
            return Some(("placement", "a recording goes on in the form in which it began"));
        }
        None
    }

    /// Whether evictions by clients determine which blocks are placed.
    pub(crate) fn cooperates(&self) -> bool {
        self.placement != Placement::Access
    }

    /// Whether summaries that clients publish are used.
    pub(crate) fn takes_digests(&self) -> bool {
        Awareness::of(&self.policy).is_some_and(|awareness| awareness.knows == Knows::Bloom)
    }
}

impl Volume {
    /// The configuration in force: that with which the volume was opened, with what has
    /// [changed](Self::change) since.
    pub fn now(&self) -> Arc<VolumeConfig> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Frames that the cache does not need any more, and that are still to be given back to the
    /// system.
    pub fn surplus_frames(&self) -> u64 {
        self.shards.each().map(|shard| u64::from(shard.blocks.pool.surplus())).sum()
    }

    /// Changes the configuration in force, and what the shards know of it. Who holds a shard may
    /// ask what is in force, so that is not locked while shards are: only other changes wait.
    pub(crate) fn put_in_force(&self, change: impl FnOnce(&mut VolumeConfig)) {
        let _one_at_a_time = sleep_lock(&self.puts_in_force);
        let mut now = VolumeConfig::clone(&self.now());
        change(&mut now);
        for mut shard in self.shards.each() {
            shard.dirty.bounds =
                DirtyBounds::new(&now, shard.blocks.level.policy().capacity() as usize);
        }
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(now);
        self.flush_wanted.notify_one();
    }

    /// Takes on the size of the cache, the policy and the placement of `next`; nothing else of it.
    /// The resident blocks stay, as far as there is room. Waits for the store while very many dirty
    /// blocks have to leave; the memory that becomes free is given back later.
    ///
    /// Must run to its end, or the cache may stay between the sizes.
    ///
    /// # Errors
    /// What cannot change, or does not fit the volume or the memory; nothing has changed then.
    pub async fn change(self: &Arc<Self>, next: &VolumeConfig) -> Result<(), String> {
        let _one_at_a_time = self.changing.lock().await;
        Change::of(self, next)?.carry_out(true).await
    }

    /// Changes the size of the cache, to lend room to other volumes, to borrow some, or to take or
    /// give it back: the volume's share stays as it is configured. Otherwise like
    /// [`change`](Self::change).
    ///
    /// # Errors
    /// The size does not fit the volume or the memory; nothing has changed then.
    pub async fn resize(self: &Arc<Self>, blocks: u32) -> Result<(), String> {
        let _one_at_a_time = self.changing.lock().await;
        let next = self.now().of_blocks(blocks);
        Change::of(self, &next)?.carry_out(false).await
    }

    /// Blocks of the volume's share now, of which it may have lent some: what the configuration
    /// gives, unless the share moves.
    pub fn share_blocks(&self) -> u32 {
        self.share_blocks.load(Ordering::Relaxed)
    }

    /// Sets the share alone; the size of the cache is to follow.
    pub(crate) fn set_share(&self, blocks: u32) {
        self.share_blocks.store(blocks, Ordering::Relaxed);
    }
}

impl Shards {
    /// Gives memory that a shard does not need any more back to the system. Returns whether all of
    /// it is gone.
    async fn give_back(&self, index: usize, config: &VolumeConfig) -> bool {
        let slots = {
            let mut shard = self.lock(index);
            let wanted = config.shard_frames(index as u32, shard.staged_frames);
            if shard.blocks.pool.count() > wanted {
                shard.blocks.pool.resize(wanted);
            }
            if shard.blocks.pool.give_back() {
                return true;
            }
            shard.blocks.slots.len()
        };
        for from in (0..slots).step_by(SLOTS_AT_A_TIME) {
            self.lock(index).blocks.move_surplus(from..from + SLOTS_AT_A_TIME);
            tokio::task::yield_now().await;
        }
        self.lock(index).blocks.pool.give_back()
    }
}

/// A change of a volume's cache that fits the volume. Whether there is memory for it is another
/// question.
pub(crate) struct Change<'v> {
    volume: &'v Arc<Volume>,
    after: VolumeConfig,
    /// Whether policy or placement are replaced.
    is_replaced: bool,
}

impl<'v> Change<'v> {
    /// The change to the cache of `next`.
    ///
    /// # Errors
    /// What cannot change, or does not fit the volume.
    pub(crate) fn of(volume: &'v Arc<Volume>, next: &VolumeConfig) -> Result<Self, String> {
        let before = volume.now();
        let mut after = VolumeConfig::clone(&before);
        after.take_cache(next);
        if let Some((option, why)) = before.fixes(&after) {
            return Err(format!("{option}: needs a restart, since {why}"));
        }
        let alignment = volume.geometry.alignment as u32;
        after.check(volume.size(), alignment).map_err(|error| error.to_string())?;
        let is_replaced = before.placement != after.placement
            || before.policy.to_string() != after.policy.to_string();
        if is_replaced {
            after.try_level().map_err(|error| error.to_string())?;
        }
        Ok(Self { volume, after, is_replaced })
    }

    /// Changes the cache; the caller holds `changing`. `is_share`: the new size is the volume's
    /// share.
    async fn carry_out(self, is_share: bool) -> Result<(), String> {
        let Self { volume, after, is_replaced } = &self;
        if volume.shards.is_empty() {
            return Ok(());
        }
        self.take_memory()?;
        if is_share {
            volume.set_share(after.cache_blocks);
        }
        for index in 0..volume.shards.len() {
            self.resize_shard(index, after.shard_capacity(index as u32)).await;
        }
        if *is_replaced {
            self.replace_all().await?;
        }
        volume.put_in_force(|now| now.take_cache(after));
        volume.runtime.spawn(give_back(Arc::downgrade(volume)));
        Ok(())
    }

    /// Gives each shard the frames that it will need, if it has fewer.
    fn take_memory(&self) -> Result<(), String> {
        let Self { volume, after, is_replaced } = self;
        let wanted = |index: usize| {
            let kept = if *is_replaced { 0 } else { volume.shards.lock(index).staged_frames };
            after.shard_frames(index as u32, kept)
        };
        let before: Vec<_> = volume.shards.each().map(|shard| shard.blocks.pool.count()).collect();
        let resize = |(index, &count): (usize, &u32)| {
            let most = wanted(index).max(count);
            volume.shards.lock(index).blocks.pool.resize(most)
        };
        let missing: Vec<_> = before.iter().enumerate().map(resize).collect();
        let frames: u64 = missing.iter().map(|&frames| u64::from(frames)).sum();
        if frames == 0 {
            return Ok(());
        }
        let bytes = frames * u64::from(after.block_bytes);
        let give = || {
            let memory = Memory::new(usize::try_from(bytes).unwrap_or(usize::MAX))?;
            for (index, &frames) in missing.iter().enumerate().filter(|(_, frames)| **frames > 0) {
                volume.shards.lock(index).blocks.pool.add(&memory, frames)?;
            }
            Ok::<_, undercroft_frames::MemoryError>(memory)
        };
        match give() {
            Ok(memory) => {
                prepare(&volume.config.name, &memory);
                Ok(())
            }
            Err(error) => {
                for (mut shard, &frames) in volume.shards.each().zip(&before) {
                    shard.blocks.pool.resize(frames);
                }
                Err(error.to_string())
            }
        }
    }

    /// Brings a shard to a capacity, a step under each hold of its lock.
    async fn resize_shard(&self, index: usize, capacity: u32) {
        let volume = self.volume;
        let most = if volume.geometry.write_back { STEP_DIRTY } else { STEP };
        let is_done = || {
            let work = Work::waking_flusher(volume);
            work.on(index, |shard, fx| shard.resize(capacity, most, fx))
        };
        while !volume.answers.is_closing() && !is_done() {
            let is_calm = || volume.shards.lock(index).leaving() <= WRITE_OUTS_MAX;
            volume.until(|| (volume.answers.is_closing() || is_calm()).then_some(())).await;
            tokio::task::yield_now().await;
        }
    }

    /// Replaces policy and placement in all shards.
    async fn replace_all(&self) -> Result<(), String> {
        let Self { volume, after, .. } = self;
        let cooperates = after.cooperates();
        let takes_contents = cooperates && !volume.is_read_only();
        let hasher = takes_contents.then(|| Hasher::new(after.block_bytes));
        if cooperates {
            // Before the shards use them.
            volume.begin_to_cooperate(after);
        }
        for index in 0..volume.shards.len() {
            while !volume.answers.is_closing() && !self.replace_one(index, hasher.clone())? {
                sleep(PAUSE_FIRST).await;
            }
        }
        Ok(())
    }

    /// Replaces policy and placement in a shard. Returns false if it must finish a reload before.
    fn replace_one(&self, index: usize, hasher: Option<Hasher>) -> Result<bool, String> {
        let after = &self.after;
        let seed = after.seed.wrapping_add(index as u64);
        let work = Work::waking_flusher(self.volume);
        let result = work.on(index, |shard, fx| shard.replace(after, seed, hasher, fx));
        result.map_err(|error| error.to_string())
    }
}

/// Moves what lies in surplus memory, and gives the memory back, as soon as nobody uses it; ends
/// with the volume.
async fn give_back(volume: Weak<Volume>) {
    let mut pause = PAUSE_FIRST;
    loop {
        let Some(present) = volume.upgrade() else { return };
        let mut is_done = true;
        match present.changing.try_lock() {
            Ok(_no_change) => {
                let now = present.now();
                for index in 0..present.shards.len() {
                    is_done &= present.shards.give_back(index, &now).await;
                }
            }
            Err(_) => is_done = false,
        }
        drop(present);
        if is_done {
            return;
        }
        sleep(pause).await;
        pause = (2 * pause).min(PAUSE_LONGEST);
    }
}

/// Takes memory for a volume's cache from the system, in the background.
pub(crate) fn prepare(volume: &str, memory: &Memory) {
    // It ends by itself, at the latest with the volume.
    let (named, bytes) = (volume.to_owned(), memory.bytes() as u64);
    let short = move |done: usize| {
        tracing::warn!(
            volume = named,
            "of the cache's memory, {} of {} are there: the machine has little left; the rest is \
             taken when it is needed, if there is any then",
            Bytes(done as u64),
            Bytes(bytes)
        );
    };
    if let Err(error) = memory.prepare(short) {
        tracing::warn!(volume, "the cache's memory is not prepared: {error}");
    }
}
