//! The shards of a volume, each behind a lock of its own: what is asked of all of them, and work on
//! them with its effects after the locks are released. At most one lock is held at a time, so what
//! is asked of several shards is not from one moment.
//!
//! Not here: what a request does to a shard (`shard/`), and how the store is asked
//! (`operations/`).

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use undercroft_level::content::{AT_ONCE, Body, Digest};

use crate::clock;
use crate::counters::{AwareStats, Stats};
use crate::geometry::Geometry;
use crate::job::{Completion, Completions};
use crate::lock::lock;
use crate::shard::Shard;
use crate::shard::blocks::Blocks;
use crate::shard::effects::{Effects, StoreRequests};
use crate::shard::flash_level::FlashLevel;
use crate::shard::unflushed::Unflushed;
use crate::volume::Volume;
use crate::volume::flash_commits::Levels;

/// Blocks handled before the lock is released for a moment.
const BLOCKS_PER_LOCK: u32 = 64;

/// The shards of a volume; none for a volume without a cache.
pub(crate) struct Shards {
    all: Box<[Mutex<Shard>]>,
    pub(super) geometry: Arc<Geometry>,
}

impl Shards {
    pub(crate) fn new(all: Box<[Mutex<Shard>]>, geometry: Arc<Geometry>) -> Self {
        Self { all, geometry }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn lock(&self, index: usize) -> MutexGuard<'_, Shard> {
        lock(&self.all[index])
    }

    /// Locks the shard of a block.
    pub(crate) fn of(&self, block: u64) -> MutexGuard<'_, Shard> {
        self.lock(self.geometry.shard_of(block))
    }

    /// Locks one shard after the other.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.all.iter().map(lock)
    }

    /// For each shard, the bound below which all changes answered so far have their numbers.
    pub(crate) fn changes_so_far(&self) -> Vec<u64> {
        self.each().map(|shard| shard.dirty.now()).collect()
    }

    /// Number of changes below the bounds of their shards that the store has neither taken nor
    /// refused.
    pub(crate) fn untried_below(&self, bounds: &[u64]) -> usize {
        self.each().zip(bounds).map(|(shard, &bound)| shard.dirty.untried_below(bound)).sum()
    }

    /// The dirty parts of a range in bytes, in order, and the number of bytes that were examined:
    /// as many as have at most `most` dirty blocks in each shard.
    pub(crate) fn dirty_ranges(
        &self,
        offset: u64,
        length: u64,
        most: usize,
    ) -> (Vec<(u64, u64)>, u64) {
        let geometry = &self.geometry;
        let end_of = |block: u64| geometry.start(block) + geometry.len(block) as u64;
        let blocks = geometry.blocks(offset, length);
        let mut dirty: Vec<u64> = Vec::new();
        let mut end = offset + length;
        for shard in self.each() {
            let known = dirty.len();
            dirty.extend(shard.dirty.within(*blocks.start(), *blocks.end()).take(most));
            if let (true, Some(&last)) = (dirty.len() == known + most, dirty.last()) {
                end = end.min(end_of(last));
            }
            dirty.extend(shard.dirty.being_written().filter(|block| blocks.contains(block)));
        }
        dirty.sort_unstable();
        dirty.dedup();
        let dirty = dirty.into_iter().map(|block| (geometry.start(block), end_of(block)));
        (dirty.collect(), end - offset)
    }

    /// The dirty content of a shard in a range: (first byte, data) of each block.
    pub(crate) fn dirty_within(
        &self,
        index: usize,
        blocks: &RangeInclusive<u64>,
    ) -> Vec<(u64, Bytes)> {
        let shard = self.lock(index);
        let data = |block| Some((self.geometry.start(block), shard.blocks.content_of(block)?));
        shard.dirty.within(*blocks.start(), *blocks.end()).filter_map(data).collect()
    }

    pub(crate) fn has_dirty_within(&self, blocks: &RangeInclusive<u64>) -> bool {
        let (first, last) = (*blocks.start(), *blocks.end());
        self.each().any(|shard| shard.dirty.within(first, last).next().is_some())
    }

    /// What decides now in each shard which block leaves, if the policy chooses among several ways.
    pub(crate) fn leaders(&self) -> Vec<&'static str> {
        self.each().filter_map(|shard| shard.blocks.level.policy().leader()).collect()
    }

    /// What all shards counted.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for shard in self.each() {
            stats.sum(&shard.counters);
            let level = &shard.blocks.level;
            stats.add(level.cache().counts());
            stats.resident += u64::from(level.policy().len());
            stats.capacity_blocks += u64::from(level.policy().capacity());
            if level.cache().is_aware() {
                let counted = AwareStats::of(&level.clients().counts());
                stats.aware.get_or_insert_default().sum(&counted);
            }
            if let Some(placement) = &shard.blocks.watchers.placement {
                stats.cooperation.get_or_insert_default().sum(&placement.stats(level));
            }
            if let Some(flash) = &shard.blocks.watchers.flash {
                stats.flash.get_or_insert_default().sum(&flash.stats());
            }
            stats.unloaded += u64::from(shard.blocks.unloaded());
            stats.in_progress += shard.blocks.active.len() as u64;
            stats.starved += shard.starved.len() as u64;
            stats.dirty += (shard.dirty.count() + shard.dirty.writing_count()) as u64;
            let age = shard.dirty.oldest_change().map_or(0, |at| clock::since(at).as_secs());
            stats.dirty_age_s = stats.dirty_age_s.max(age);
        }
        stats
    }

    /// Bit 0: the block is in memory, or being read; bit 1: it is dirty.
    pub(super) fn status(&self, block: u64) -> u32 {
        let Shard { blocks, dirty, .. } = &*self.of(block);
        let is_resident = blocks.level.frame(block).is_some() && !blocks.is_unloaded(block);
        let is_dirty = dirty.within(block, block).next().is_some();
        u32::from(is_resident) | u32::from(is_dirty) << 1
    }

    /// For each shard, the bound below which all changes answered by the store have their numbers.
    pub(crate) fn unflushed_so_far(&self) -> Vec<u64> {
        let now = |unflushed: &Unflushed| unflushed.now();
        self.each().map(|shard| shard.blocks.watchers.unflushed.as_ref().map_or(0, now)).collect()
    }

    /// Whether the store may have changes that no flush has covered.
    pub(crate) fn has_unflushed(&self) -> bool {
        let has = |unflushed: &Unflushed| !unflushed.is_empty();
        self.each().any(|shard| shard.blocks.watchers.unflushed.as_ref().is_some_and(has))
    }

    /// A flush has succeeded that covers all changes below `bounds`.
    pub(crate) fn flushed_below(&self, bounds: &[u64]) {
        for (mut shard, &bound) in self.each().zip(bounds) {
            if let Some(unflushed) = &mut shard.blocks.watchers.unflushed {
                unflushed.cover(bound);
            }
        }
    }

    /// Whether contents that clients hand over are of use at present, in any shard.
    pub(crate) fn wants_contents(&self) -> bool {
        self.each().any(|shard| {
            let placement = shard.blocks.level.placement();
            shard.blocks.watchers.digests.is_some()
                && placement.is_some_and(|placement| placement.asks_for_contents())
        })
    }

    /// The cost of a publication, in blocks examined: each shard of a cache of `cache_blocks`
    /// blocks takes it over, and sets its marks anew.
    pub(crate) fn cost_of_digest(&self, digest: &Digest, cache_blocks: u32) -> u64 {
        let own = match &digest.publication.body {
            Body::Whole(bytes) => bytes.len() as u64 / 4096,
            Body::Changes(positions) => positions.len() as u64 / 64,
        };
        let shards = self.len() as u64;
        let marked = u64::from(cache_blocks).min(shards * u64::from(AT_ONCE));
        shards * (1 + own) + marked / 16
    }

    /// A client published a summary of its cache.
    pub(crate) fn receive_digest(&self, digest: &Digest) {
        for mut shard in self.each() {
            // The level counts summaries that it cannot use.
            let _ = shard.blocks.level.told_content(digest);
        }
    }
}

impl Levels for Shards {
    fn count(&self) -> usize {
        self.len()
    }

    fn with(&self, index: usize, what: &mut dyn FnMut(&mut FlashLevel)) {
        self.lock(index).blocks.watchers.flash.as_deref_mut().map(what);
    }

    fn replace(&self, index: usize, level: Option<Box<FlashLevel>>) {
        let mut shard = self.lock(index);
        let Shard { blocks, dirty, .. } = &mut *shard;
        let before = blocks.replace_flash(level, || dirty.all().0);
        // Its memory is given back without the lock.
        drop(shard);
        drop(before);
    }
}

/// Some work on shards. It holds one lock at a time, keeps it over successive steps on the same
/// shard, and carries out the effects after releasing it.
pub(crate) struct Work<'v> {
    pub(crate) volume: &'v Arc<Volume>,
    guard: Option<(usize, MutexGuard<'v, Shard>)>,
    steps: u32,
    /// Whether store requests that are answered at once may end before [`finish`](Self::finish)
    /// returns.
    at_once: bool,
    /// Whether to wake the flusher when too many blocks are dirty; false for the flusher's own
    /// work.
    wakes_flusher: bool,
    /// Blocks examined beyond those read or written.
    pub(crate) work_debt: u64,
    fx: Effects,
}

impl<'v> Work<'v> {
    pub(crate) fn new(volume: &'v Arc<Volume>) -> Self {
        let (guard, steps, at_once, wakes_flusher, work_debt, fx) = Default::default();
        Self { volume, guard, steps, at_once, wakes_flusher, work_debt, fx }
    }

    /// Like `new`, but wakes the flusher when too many blocks are dirty.
    pub(crate) fn waking_flusher(volume: &'v Arc<Volume>) -> Self {
        Self { wakes_flusher: volume.geometry.write_back, ..Self::new(volume) }
    }

    /// Work for `requests` requests of a client.
    pub(crate) fn of_client(volume: &'v Arc<Volume>, requests: usize) -> Self {
        let mut work = Self { at_once: true, ..Self::waking_flusher(volume) };
        work.fx.finished = Completions::with_capacity(requests);
        work
    }

    /// Locks the shard of a block.
    #[inline]
    pub(crate) fn shard(&mut self, block: u64) -> (&mut Shard, &mut Effects) {
        let index = self.volume.geometry.shard_of(block);
        self.nth_shard(index)
    }

    /// The shard of the block that was passed last. The lock was not released in between, so what
    /// the reference returned about slots, reloads and digests still holds.
    pub(crate) fn shard_again(&mut self, block: u64) -> (&mut Shard, &mut Effects) {
        self.steps = self.steps.saturating_sub(1);
        self.shard(block)
    }

    pub(crate) fn nth_shard(&mut self, index: usize) -> (&mut Shard, &mut Effects) {
        self.steps += 1;
        let is_held = self.guard.as_ref().is_some_and(|(held, _)| *held == index);
        if !is_held || self.steps >= BLOCKS_PER_LOCK {
            self.release();
        }
        let volume = self.volume;
        let (_, shard) = self.guard.get_or_insert_with(|| (index, volume.shards.lock(index)));
        (shard, &mut self.fx)
    }

    /// Does all of the work, in one shard.
    pub(crate) fn on<T>(
        mut self,
        index: usize,
        what: impl FnOnce(&mut Shard, &mut Effects) -> T,
    ) -> T {
        let (shard, fx) = self.nth_shard(index);
        let result = what(shard, fx);
        self.finish();
        result
    }

    /// Adds a request that ended without a shard.
    #[inline(always)]
    pub(crate) fn finished(&mut self, one: Completion) {
        self.fx.finished.push(one);
    }

    /// Releases the lock.
    pub(crate) fn release(&mut self) {
        self.steps = 0;
        if let Some((_, mut shard)) = self.guard.take() {
            // Nothing frees frames any more: then nobody may wait for them.
            if !shard.starved.is_empty() && shard.leaving() == 0 {
                shard.resume_starved(&mut self.fx);
                // A range may wait for them, and no request at the store may end any more.
                self.volume.progress.notify_waiters();
            }
            let Blocks { watchers, geometry, .. } = &mut shard.blocks;
            if let Some(flash) = &mut watchers.flash {
                flash.settle(geometry);
                self.fx.store.flash_writes.append(&mut flash.writes);
            }
            if self.wakes_flusher && shard.dirty.waiting_count() > shard.dirty.bounds.high {
                self.volume.flush_wanted.notify_one();
            }
        }
    }

    /// Answers requests that ended, and starts the store requests. Returns the `work_debt`.
    pub(crate) fn finish(mut self) -> u64 {
        let mut fetches = Vec::new();
        loop {
            for fetch in std::mem::take(&mut self.fx.store.fetches) {
                let (shard, fx) = self.shard(fetch.first);
                fetches.extend(shard.assign(fetch, fx));
            }
            self.release();
            if self.fx.store.fetches.is_empty() {
                break;
            }
        }
        if self.fx.reload {
            self.volume.demand.reload_wanted.notify_one();
        }
        // Answers first, so that hits do not wait for store requests that end at once.
        self.volume.answers.answer(self.fx.finished);
        let requests = StoreRequests { fetches, ..self.fx.store };
        if !requests.is_empty() {
            self.volume.ask_store(requests, self.at_once);
        }
        if self.fx.writes_out {
            self.volume.write_out_due();
        }
        if let (true, Some(eviction_sink)) = (self.fx.has_left, &self.volume.config.eviction_sink) {
            eviction_sink.settled();
        }
        self.work_debt
    }
}
