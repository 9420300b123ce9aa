//! Write-back: FLUSH, and the flusher that writes dirty blocks in the background. (`close.rs` ends
//! a volume and tries for longer.)
//!
//! A FLUSH always ends: each change that it waits for is either accepted by the store, or refused
//! when tried alone, and then the FLUSH fails. It tries changes that were refused earlier once
//! more, since the store may have recovered.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::answer::Failed;
use crate::clock;
use crate::config::VolumeConfig;
use crate::shard::{Effects, Shard};
use crate::volume::launch::WRITE_OUT_BYTES_MAX;
use crate::volume::store_health::StoreRequest;
use crate::volume::{Volume, Work};

/// How long the flusher lets demand reads go first.
const YIELD_TIME: Duration = Duration::from_millis(20);

/// Blocks of a failed run that are tried alone at a time; each is a store request of its own.
const ALONE_AT_A_TIME: usize = 32;

/// Refused blocks that are tried again at a time.
const AGAIN_AT_A_TIME: usize = 256;

impl Shard {
    /// Starts to write out the oldest dirty blocks with numbers below `bound` and their dirty
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

    /// Tries refused blocks with numbers below `bound` once more, if they have not been tried since
    /// refusal number `known`.
    pub(crate) fn try_refused_again(&mut self, known: u64, bound: u64, fx: &mut Effects) {
        let again = self.dirty.refused_before(known, bound).take(AGAIN_AT_A_TIME);
        for block in again.collect::<Vec<_>>() {
            self.write_out(block, fx);
        }
    }
}

impl Volume {
    /// For each shard, the bound below which all changes answered so far have their numbers.
    pub(crate) fn changes_so_far(&self) -> Vec<u64> {
        (0..self.shards.len()).map(|shard| self.lock(shard).dirty.now()).collect()
    }

    /// Makes everything durable that was answered when `bounds` was taken.
    pub(crate) async fn flush(self: Arc<Self>, bounds: Vec<u64>) -> Result<(), Failed> {
        if let Err(failed) = self.write_out_below(&bounds).await {
            self.flush_failures.fetch_add(1, Ordering::Relaxed);
            return Err(failed);
        }
        // Each write-out was followed by a flush, but other writes were not.
        if self.confirms() && !self.has_unflushed() { Ok(()) } else { self.flush_store().await }
    }

    /// Tells the store to make durable what it has, for a request that waits for it.
    pub(crate) async fn flush_store(self: &Arc<Self>) -> Result<(), Failed> {
        let _demand = self.demand();
        self.flush_together().await
    }

    /// Tells the store to make durable what it has.
    pub(crate) async fn ask_to_flush(self: &Arc<Self>) -> Result<(), Failed> {
        let (store, bounds) = (Arc::clone(&self.store), self.unflushed_so_far());
        let asked = async move { store.flush().await };
        let flushed = self.ask_store(StoreRequest::Flush, asked).await;
        if flushed.is_ok() {
            self.flushed_below(&bounds);
        }
        if flushed.is_err() {
            self.flush_failures.fetch_add(1, Ordering::Relaxed);
        }
        flushed
    }

    /// For each shard, the number of changes that its store has refused so far.
    pub(crate) fn refusals_so_far(&self) -> Vec<u64> {
        (0..self.shards.len()).map(|shard| self.lock(shard).dirty.refusals()).collect()
    }

    /// Writes out all changes with numbers below the bound of their shard.
    async fn write_out_below(self: &Arc<Self>, bounds: &[u64]) -> Result<(), Failed> {
        let known = self.refusals_so_far();
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            // From here on every end of a request is noticed.
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

    /// Most blocks in one store request of a write-out.
    pub(crate) fn write_out_blocks(&self) -> usize {
        (WRITE_OUT_BYTES_MAX >> self.geometry.block_bits) as usize
    }

    /// Number of blocks whose write-out may start now.
    pub(crate) fn write_out_room(&self, shard: &Shard) -> usize {
        let most = self.config.write_back_runs.max(1) as usize * self.write_out_blocks();
        most.saturating_sub(shard.write_outs as usize)
    }

    /// Writes out blocks that are old or too many, and blocks that were refused some time ago.
    fn write_out_in_background(self: &Arc<Self>) {
        let now = clock::now();
        for index in 0..self.shards.len() {
            let mut work = Work::new(self);
            let (shard, fx) = work.nth_shard(index);
            let room = self.write_out_room(shard);
            for block in shard.dirty.due(now, AGAIN_AT_A_TIME) {
                shard.write_out(block, fx);
            }
            let too_many = shard.dirty.waiting_count().saturating_sub(shard.bounds.high);
            let age = shard.bounds.age;
            let is_old = |since: Instant| now.saturating_duration_since(since) >= age;
            let old = shard.dirty.oldest(u64::MAX).take(room);
            let old = old.take_while(|&(_, since)| is_old(since)).count();
            let wanted = too_many.max(old).min(room);
            shard.write_out_oldest(u64::MAX, wanted, self.write_out_blocks(), fx);
            work.finish();
        }
    }

    /// Sets the rules of write-back while the volume is served.
    pub(crate) fn set_write_back(&self, rules: &VolumeConfig) {
        self.put_in_force(|now| now.take_write_back(rules));
    }

    /// Pause between two looks of the flusher.
    fn flusher_tick(&self) -> Duration {
        let age = self.lock(0).bounds.age;
        (age / 4).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }
}

/// The background task of the flusher; it ends with the volume.
pub(crate) async fn flusher(volume: Weak<Volume>) {
    while let Some(volume) = volume.upgrade() {
        // Demand reads go first: a client waits for them, and dirty blocks can wait.
        let since = clock::now();
        while volume.has_demand() && clock::now() - since < YIELD_TIME {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        volume.write_out_in_background();
        let (wanted, tick) = (Arc::clone(&volume.flush_wanted), volume.flusher_tick());
        drop(volume);
        let _ = tokio::time::timeout(tick, wanted.notified()).await;
    }
}
