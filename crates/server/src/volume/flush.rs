//! Write-back: FLUSH, and the flusher that writes dirty blocks in the background. (The end of a
//! volume, which tries for longer, is in `close.rs`.)
//!
//! A FLUSH ends: each change that it waits for is either taken by the store, or refused when it is
//! tried by itself, and then the FLUSH says so. It tries changes that were refused before it came
//! once more, since the store may be well again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::answer::Failed;
use crate::clock;
use crate::shard::{Effects, Shard};
use crate::volume::launch::WRITE_OUT_BYTES_MAX;
use crate::volume::{Volume, Work, ask_store};

/// How long the flusher lets demand reads go first before it goes on all the same.
const YIELD_TIME: Duration = Duration::from_millis(20);

/// Blocks of a run that failed that are tried by themselves at a time: each is a request of its
/// own.
const ALONE_AT_A_TIME: usize = 32;

/// Refused blocks that are tried again at a time.
const AGAIN_AT_A_TIME: usize = 256;

impl Shard {
    /// Begins to write out the oldest dirty blocks with numbers below `bound` and their dirty
    /// neighbours, about `room` blocks.
    pub(crate) fn write_out_oldest(
        &mut self,
        bound: u64,
        room: usize,
        run_max: usize,
        fx: &mut Effects,
    ) {
        let seeds: Vec<u64> = self.dirty.oldest(bound).map(|(block, _)| block).take(room).collect();
        let (mut begun, mut alone) = (0, 0);
        for seed in seeds {
            if begun >= room || alone >= ALONE_AT_A_TIME {
                return;
            }
            if self.dirty.waits(seed) {
                alone += usize::from(!self.dirty.joins(seed));
                for block in self.dirty.neighbours(seed, run_max) {
                    self.write_out(block, fx);
                    begun += 1;
                }
            }
        }
    }

    /// Tries refused blocks with numbers below `bound` once more, if the last try was before the
    /// refusal of this number.
    pub(crate) fn try_refused_again(&mut self, known: u64, bound: u64, fx: &mut Effects) {
        let again = self.dirty.refused_before(known, bound).take(AGAIN_AT_A_TIME);
        for block in again.collect::<Vec<_>>() {
            self.write_out(block, fx);
        }
    }
}

impl Volume {
    /// For each shard the number below which all changes are that were answered by now.
    pub(crate) fn changes_so_far(&self) -> Vec<u64> {
        (0..self.shards.len()).map(|shard| self.lock(shard).dirty.now()).collect()
    }

    /// Makes everything durable that was answered when `bounds` was taken.
    pub(crate) async fn flush(self: Arc<Self>, bounds: Vec<u64>) -> Result<(), Failed> {
        self.write_out_below(&bounds).await?;
        // A flush has followed each write-out, but not what came otherwise.
        if self.confirms() && !self.has_unflushed() { Ok(()) } else { self.flush_store().await }
    }

    /// Tells the store to make durable what it has. A failure is said aloud: it is what somebody
    /// must look at first.
    pub(crate) async fn flush_store(self: &Arc<Self>) -> Result<(), Failed> {
        let _demand = self.demand();
        self.flush_together().await
    }

    /// Tells the store to make durable what it has, while no request waits for it.
    pub(crate) async fn ask_to_flush(self: &Arc<Self>) -> Result<(), Failed> {
        let (store, bounds) = (Arc::clone(&self.store), self.unflushed_so_far());
        let flushed = ask_store(async move { store.flush().await }).await;
        if flushed.is_ok() {
            self.flushed_below(&bounds);
        }
        if let Err(error) = &flushed {
            self.flush_failures.fetch_add(1, Ordering::Relaxed);
            tracing::error!(volume = self.config.name, "the store cannot flush: {error}");
        }
        flushed
    }

    /// For each shard how many changes its store has refused by now.
    pub(crate) fn refusals_so_far(&self) -> Vec<u64> {
        (0..self.shards.len()).map(|shard| self.lock(shard).dirty.refusals()).collect()
    }

    /// Writes out all changes with numbers below the bound of their shard.
    async fn write_out_below(self: &Arc<Self>, bounds: &[u64]) -> Result<(), Failed> {
        let known = self.refusals_so_far();
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            // From here on nothing that ends is missed.
            progress.as_mut().enable();
            let mut is_clean = true;
            for (index, &bound) in bounds.iter().enumerate() {
                let mut work = Work::new(self);
                let (shard, fx) = work.nth_shard(index);
                if let Some(failed) = shard.dirty.refused_since(known[index], bound) {
                    return Err(failed);
                }
                if !shard.dirty.is_clean_below(bound) {
                    is_clean = false;
                    let room = self.write_out_room(shard);
                    shard.write_out_oldest(bound, room, self.write_out_blocks(), fx);
                    shard.try_refused_again(known[index], bound, fx);
                }
                work.finish();
            }
            if is_clean {
                return Ok(());
            }
            progress.await;
        }
    }

    /// Blocks of one store request of a write-out, at most.
    pub(crate) fn write_out_blocks(&self) -> usize {
        (WRITE_OUT_BYTES_MAX >> self.geometry.block_bits) as usize
    }

    /// Blocks whose write-out may begin now.
    pub(crate) fn write_out_room(&self, shard: &Shard) -> usize {
        let most = self.config.write_back_runs.max(1) as usize * self.write_out_blocks();
        most.saturating_sub(shard.write_outs as usize)
    }

    /// Writes out what is old, or too much, and what was refused some time ago.
    fn write_out_in_background(self: &Arc<Self>) {
        let now = clock::now();
        for index in 0..self.shards.len() {
            let mut work = Work::new(self);
            let (shard, fx) = work.nth_shard(index);
            let room = self.write_out_room(shard);
            for block in shard.dirty.due(now, AGAIN_AT_A_TIME) {
                shard.write_out(block, fx);
            }
            let too_many = shard.dirty.waiting_count().saturating_sub(self.dirty_high(shard));
            let is_old = |since: Instant| now.duration_since(since) >= self.config.dirty_age;
            let old = shard.dirty.oldest(u64::MAX).take(room);
            let old = old.take_while(|&(_, since)| is_old(since)).count();
            let wanted = too_many.max(old).min(room);
            shard.write_out_oldest(u64::MAX, wanted, self.write_out_blocks(), fx);
            work.finish();
        }
    }

    /// Dirty blocks of a shard above which it is written out whatever its age.
    pub(crate) fn dirty_high(&self, shard: &Shard) -> usize {
        (self.config.dirty_share.clamp(0.0, 1.0) * shard.slots.len() as f64) as usize
    }
}

/// Runs as long as the volume is in use.
pub(crate) async fn flusher(volume: Weak<Volume>, age: Duration) {
    let tick = (age / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
    while let Some(volume) = volume.upgrade() {
        // Demand reads first: dirty blocks have time, somebody waits for a read.
        let since = clock::now();
        while volume.has_demand() && clock::now() - since < YIELD_TIME {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        volume.write_out_in_background();
        let wanted = Arc::clone(&volume.flush_wanted);
        drop(volume);
        let _ = tokio::time::timeout(tick, wanted.notified()).await;
    }
}
