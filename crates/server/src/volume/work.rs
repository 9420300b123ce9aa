//! Work on the shards of a volume under their locks, and its effects after the locks are released.

use std::sync::{Arc, MutexGuard};

use crate::job::Completion;
use crate::shard::completions::Completions;
use crate::shard::{Effects, Shard};
use crate::volume::Volume;

/// Blocks handled before the lock is released for a moment.
const BLOCKS_PER_LOCK: u32 = 64;

/// Some work on shards. It holds one lock at a time, keeps it over successive steps on the same
/// shard, and carries out the effects after releasing it.
pub(crate) struct Work<'v> {
    pub(super) volume: &'v Arc<Volume>,
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
        Self {
            volume,
            guard: None,
            steps: 0,
            at_once: false,
            wakes_flusher: false,
            work_debt: 0,
            fx: Effects::default(),
        }
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
        let (_, shard) = self.guard.get_or_insert_with(|| (index, volume.lock(index)));
        (shard, &mut self.fx)
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
            if !shard.starved.is_empty() && !shard.will_free_frames() {
                shard.feed(&mut self.fx);
            }
            if self.wakes_flusher && shard.dirty.waiting_count() > shard.bounds.high {
                self.volume.flush_wanted.notify_one();
            }
        }
    }

    /// Answers requests that ended, and starts the store requests.
    pub(crate) fn finish(mut self) {
        let mut starts = Vec::new();
        loop {
            for start in std::mem::take(&mut self.fx.starts) {
                let (shard, fx) = self.shard(start.block);
                starts.extend(shard.assign(start, fx));
            }
            self.release();
            if self.fx.starts.is_empty() {
                break;
            }
        }
        if self.fx.reload {
            self.volume.reload_wanted.notify_one();
        }
        // Answers first, so that hits do not wait for store requests that end at once.
        self.volume.answer(self.fx.finished);
        if !starts.is_empty() {
            self.volume.launch(starts, self.at_once);
        }
        if self.fx.writes_out {
            self.volume.write_out_due();
        }
        if let (true, Some(eviction_sink)) = (self.fx.has_left, &self.volume.config.eviction_sink) {
            eviction_sink.settled();
        }
    }
}
