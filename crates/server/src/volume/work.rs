//! Work on the shards of a volume under their locks, and what is done when these are released.

use std::sync::{Arc, MutexGuard};

use crate::job::Finished;
use crate::shard::endings::Endings;
use crate::shard::{Effects, Shard};
use crate::volume::Volume;

/// Blocks that are handled before the lock is given to others for a moment.
const BLOCKS_PER_LOCK: u32 = 64;

/// Some work on shards: holds one lock at a time, keeps it over neighbouring steps, and does what
/// came out when it is released.
pub(crate) struct Work<'v> {
    volume: &'v Arc<Volume>,
    guard: Option<(usize, MutexGuard<'v, Shard>)>,
    steps: u32,
    /// Whether what the store answers at once may be over before [`finish`](Self::finish) returns.
    at_once: bool,
    /// Whether the flusher is told when too much is dirty. It must not tell itself.
    wakes_flusher: bool,
    /// Blocks that were looked at beside those that are read or written.
    pub(crate) owed: u64,
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
            owed: 0,
            fx: Effects::default(),
        }
    }

    /// As `new`, and the flusher hears of it if too much is dirty.
    pub(crate) fn waking_flusher(volume: &'v Arc<Volume>) -> Self {
        Self { wakes_flusher: volume.geometry.write_back, ..Self::new(volume) }
    }

    /// Work for so many requests of a client.
    pub(crate) fn of_client(volume: &'v Arc<Volume>, requests: usize) -> Self {
        let mut work = Self { at_once: true, ..Self::waking_flusher(volume) };
        work.fx.finished = Endings::with_capacity(requests);
        work
    }

    /// The shard of a block.
    #[inline]
    pub(crate) fn shard(&mut self, block: u64) -> (&mut Shard, &mut Effects) {
        let index = self.volume.geometry.shard_of(block);
        self.nth_shard(index)
    }

    /// The shard of the block that was asked for last, with nobody else let in since: what its
    /// reference said of slots, reloads and digests still holds.
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

    /// What is over without a shard's help.
    #[inline(always)]
    pub(crate) fn finished(&mut self, one: Finished) {
        self.fx.finished.push(one);
    }

    /// Whether nothing came out so far but that a reload is queued.
    pub(crate) fn is_quiet(&self) -> bool {
        let Effects { finished, starts, reload: _, riders, has_left, settles } = &self.fx;
        finished.is_empty() && starts.is_empty() && riders.is_empty() && !has_left && !settles
    }

    /// Lets others have the lock.
    pub(crate) fn release(&mut self) {
        self.steps = 0;
        if let Some((_, shard)) = self.guard.take() {
            if self.wakes_flusher && shard.dirty.waiting_count() > self.volume.dirty_high(&shard) {
                self.volume.flush_wanted.notify_one();
            }
        }
    }

    /// Answers what is over and begins what has to be begun at the store.
    pub(crate) fn finish(mut self) {
        let mut starts = Vec::new();
        for start in std::mem::take(&mut self.fx.starts) {
            let (shard, fx) = self.shard(start.block);
            starts.extend(shard.assign(start, fx));
        }
        self.release();
        if self.fx.reload {
            self.volume.reload_wanted.notify_one();
        }
        // Hits do not wait for what the store does at once.
        self.volume.answer(self.fx.finished);
        if !starts.is_empty() {
            self.volume.launch(starts, self.at_once);
        }
        if self.fx.settles {
            self.volume.runtime.spawn(Arc::clone(self.volume).settle());
        }
        if let (true, Some(listener)) = (self.fx.has_left, &self.volume.config.listener) {
            listener.settled();
        }
    }
}
