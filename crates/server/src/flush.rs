//! Write-back: FLUSH, and the flusher that writes dirty blocks in the background.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::answer::Failed;
use crate::launch::WRITE_OUT_BYTES_MAX;
use crate::shard::{Effects, Shard};
use crate::volume::{Volume, Work, ask_store};

/// How long the flusher lets demand reads go first before it goes on all the same.
const YIELD_TIME: Duration = Duration::from_millis(20);

impl Shard {
    /// Begins to write out the oldest dirty blocks with numbers below `bound` and their dirty
    /// neighbours, about `room` blocks.
    fn write_out_oldest(&mut self, bound: u64, room: usize, run_max: usize, fx: &mut Effects) {
        let seeds: Vec<u64> = self.dirty.oldest(bound).map(|(block, _)| block).take(room).collect();
        let mut begun = 0;
        for seed in seeds {
            if begun >= room {
                return;
            }
            if self.dirty.contains(seed) {
                for block in self.dirty.neighbours(seed, run_max) {
                    self.write_out(block, fx);
                    begun += 1;
                }
            }
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
        self.flush_together().await
    }

    /// Tells the store to make durable what it has. A failure is said aloud: it is what somebody
    /// must look at first.
    pub(crate) async fn flush_store(self: &Arc<Self>) -> Result<(), Failed> {
        let (store, _demand) = (Arc::clone(&self.store), self.demand());
        let flushed = ask_store(async move { store.flush().await }).await;
        if let Err(error) = &flushed {
            self.flush_failures.fetch_add(1, Ordering::Relaxed);
            tracing::error!(volume = self.config.name, "the store cannot flush: {error}");
        }
        flushed
    }

    /// Writes out all changes with numbers below the bound of their shard.
    async fn write_out_below(self: &Arc<Self>, bounds: &[u64]) -> Result<(), Failed> {
        let known: Vec<u64> =
            (0..bounds.len()).map(|shard| self.lock(shard).dirty.failures()).collect();
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            // From here on nothing that ends is missed.
            progress.as_mut().enable();
            let mut is_clean = true;
            for (index, &bound) in bounds.iter().enumerate() {
                let mut work = Work::new(self);
                let (shard, fx) = work.nth_shard(index);
                let failed = shard.dirty.failure_since(known[index], bound);
                if !shard.dirty.is_clean_below(bound) {
                    if let Some(failed) = failed {
                        return Err(failed);
                    }
                    is_clean = false;
                    let room = self.write_out_room(shard);
                    shard.write_out_oldest(bound, room, self.write_out_blocks(), fx);
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
    fn write_out_blocks(&self) -> usize {
        (WRITE_OUT_BYTES_MAX >> self.geometry.block_bits) as usize
    }

    /// Blocks whose write-out may begin now.
    fn write_out_room(&self, shard: &Shard) -> usize {
        let most = self.config.write_back_runs.max(1) as usize * self.write_out_blocks();
        most.saturating_sub(shard.write_outs as usize)
    }

    /// Writes out what is old, or too much.
    fn write_out_in_background(self: &Arc<Self>) {
        let now = Instant::now();
        for index in 0..self.shards.len() {
            let mut work = Work::new(self);
            let (shard, fx) = work.nth_shard(index);
            let room = self.write_out_room(shard);
            let too_many = shard.dirty.count().saturating_sub(self.dirty_high(shard));
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
        let since = Instant::now();
        while volume.has_demand() && since.elapsed() < YIELD_TIME {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        volume.write_out_in_background();
        let wanted = Arc::clone(&volume.flush_wanted);
        drop(volume);
        let _ = tokio::time::timeout(tick, wanted.notified()).await;
    }
}
