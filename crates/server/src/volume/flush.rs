//! Write-back: FLUSH, and the flusher that writes dirty blocks in the background. (`close.rs` ends
//! a volume and tries for longer.)
//!
//! A FLUSH always ends: each change that it waits for is either accepted by the store, or refused
//! when tried alone, and then the FLUSH fails. It tries changes that were refused earlier once
//! more, since the store may have recovered.
//!
//! Flushes of the store that are wanted at the same time are one: at most one runs, and requests
//! that come meanwhile share the next one. It starts after they came, so it covers all that was
//! answered before them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::answer::Failed;
use crate::clock;
use crate::lock::sleep_lock;
use crate::volume::pace::Pace;
use crate::volume::store_state::StoreRequest;
use crate::volume::{Volume, Work};

impl Volume {
    /// Makes everything durable that was answered when `bounds` was taken.
    pub(crate) async fn flush(self: Arc<Self>, bounds: Vec<u64>) -> Result<(), Failed> {
        if let Err(failed) = self.write_out_below(&bounds).await {
            self.flushes.failures.fetch_add(1, Ordering::Relaxed);
            return Err(failed);
        }
        // Each write-out was followed by a flush, but other writes were not.
        if self.losses.confirms && !self.shards.has_unflushed() {
            Ok(())
        } else {
            self.flush_store().await
        }
    }

    /// Tells the store to make durable what it has, for a request that waits for it.
    pub(crate) async fn flush_store(self: &Arc<Self>) -> Result<(), Failed> {
        let _demand = self.demand.begin();
        self.flush_together().await
    }

    /// Tells the store to make durable what it has now, together with others that want the same.
    pub(crate) async fn flush_together(self: &Arc<Self>) -> Result<(), Failed> {
        self.flushes.share(Arc::clone(self).ask_to_flush()).await
    }

    /// Tells the store to make durable what it has.
    async fn ask_to_flush(self: Arc<Self>) -> Result<(), Failed> {
        let store = Arc::clone(&self.store);
        let bounds = self.losses.are_possible().then(|| self.shards.unflushed_so_far());
        let syncing = self.pace.as_ref().map(Pace::begin_sync);
        let asked = async move { store.flush().await };
        let flushed = self.store_health.ask(StoreRequest::Flush, asked).await;
        if let Some(syncing) = syncing {
            syncing.ended(flushed.is_ok());
            self.write_out_next();
        }
        match (&flushed, bounds) {
            (Ok(()), bounds) => bounds.iter().for_each(|below| self.shards.flushed_below(below)),
            (Err(_), _) => _ = self.flushes.failures.fetch_add(1, Ordering::Relaxed),
        }
        flushed
    }

    /// Writes out all changes with numbers below the bound of their shard.
    async fn write_out_below(self: &Arc<Self>, bounds: &[u64]) -> Result<(), Failed> {
        let known = self.shards.refusals_so_far();
        let is_done = || {
            let mut is_clean = true;
            for ((mut shard, &bound), &known) in self.shards.each().zip(bounds).zip(&known) {
                if let Some(failed) = shard.dirty.refused_since(known, bound) {
                    return Some(Err(failed));
                }
                if !shard.dirty.is_clean_below(bound) {
                    is_clean = false;
                    shard.dirty.want_below(bound, known);
                }
            }
            if !is_clean {
                self.write_out_due();
            }
            is_clean.then_some(Ok(()))
        };
        self.until(is_done).await
    }

    /// Starts the write-outs that are due, as many as may be at the store now. The others start
    /// when something ends there.
    pub(crate) fn write_out_due(self: &Arc<Self>) {
        if let Some(pace) = &self.pace {
            pace.in_turn(|| self.write_out_by_pace(pace));
        }
    }

    /// Something ended at the store, so that write-outs that had to wait may start.
    pub(crate) fn write_out_next(self: &Arc<Self>) {
        if self.pace.as_ref().is_some_and(|pace| pace.is_waiting()) {
            self.write_out_due();
        }
    }

    fn write_out_by_pace(self: &Arc<Self>, pace: &Pace) {
        let (now, count) = (clock::now(), self.shards.len());
        // Set first: what ends from here on calls again.
        pace.set_waiting(true);
        let (first, mut is_waiting) = (pace.first(count), false);
        for index in (0..count).map(|index| (first + index) % count) {
            is_waiting |= self.write_out_shard(index, pace, now);
        }
        pace.set_waiting(is_waiting);
        if is_waiting && pace.must_sync(now) {
            let volume = Arc::clone(self);
            self.runtime.spawn(async move { drop(volume.flush_together().await) });
        }
    }

    /// Starts write-outs of a shard. Returns whether more are due.
    fn write_out_shard(self: &Arc<Self>, index: usize, pace: &Pace, now: Instant) -> bool {
        // For the sake of a shard's memory.
        let runs = self.config.write_back_runs.max(1) as usize;
        let longest = self.geometry.write_out_blocks();
        let mut left = runs;
        // A request at a time, so that nobody waits long for the lock.
        loop {
            left -= 1;
            let mut work = Work::new(self);
            let (shard, fx) = work.nth_shard(index);
            let room = (pace.room(shard.is_pressing(now), now), pace.is_many);
            let before = shard.dirty.writing_count();
            let blocks = (runs * longest).saturating_sub(before).min(longest);
            let waits = shard.write_out_due(room, (blocks, longest), now, fx);
            let has_begun = shard.dirty.writing_count() > before;
            work.finish();
            if !(waits && has_begun) || left == 0 {
                return waits;
            }
        }
    }
}

/// A flush that several requests wait for.
type Together = Shared<BoxFuture<'static, Result<(), Failed>>>;

/// The flushes of a store: at most one runs.
#[derive(Default)]
pub(crate) struct Flushes {
    /// Held by the running flush.
    turn: tokio::sync::Mutex<()>,
    /// The flush that has not started.
    next: Mutex<Option<Together>>,
    /// Number of those that failed.
    pub(crate) failures: AtomicU64,
}

impl Flushes {
    /// Waits for the next flush, which is `flush` if none waits for its turn.
    async fn share(
        self: &Arc<Self>,
        flush: impl Future<Output = Result<(), Failed>> + Send + 'static,
    ) -> Result<(), Failed> {
        let all = Arc::clone(self);
        let in_turn = async move {
            let _turn = all.turn.lock().await;
            // Later requests must share the next flush, not this one.
            *sleep_lock(&all.next) = None;
            flush.await
        };
        let next = sleep_lock(&self.next).get_or_insert_with(|| in_turn.boxed().shared()).clone();
        next.await
    }
}

/// The background task of the flusher; it ends with the volume.
pub(crate) async fn flusher(volume: Weak<Volume>) {
    while let Some(volume) = volume.upgrade() {
        volume.write_out_due();
        let age = volume.shards.lock(0).dirty.bounds.age;
        let tick = (age / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let wanted = Arc::clone(&volume.flush_wanted);
        drop(volume);
        let _ = tokio::time::timeout(tick, wanted.notified()).await;
    }
}
