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
use futures_util::future::{BoxFuture, WeakShared};

use crate::answer::Failed;
use crate::clock;
use crate::lock::sleep_lock;
use crate::volume::flash_commits::Host;
use crate::volume::pace::Pace;
use crate::volume::store_state::StoreRequest;
use crate::volume::{Volume, Work};

impl Volume {
    /// Makes everything durable that was answered when `bounds` was taken.
    pub(crate) async fn flush(self: Arc<Self>, bounds: Vec<u64>) -> Result<(), Failed> {
        if let Err(failed) = self.write_out_below(&bounds, false).await {
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
        let this = Arc::clone(self);
        let flush = async move {
            let store = Arc::clone(&this.store);
            let bounds = this.losses.are_possible().then(|| this.shards.unflushed_so_far());
            let syncing = this.pace.as_ref().map(Pace::begin_sync);
            let asked = async move { store.flush().await };
            let flushed = this.store_health.ask(StoreRequest::Flush, asked).await;
            if let Some(syncing) = syncing {
                syncing.ended(flushed.is_ok());
                this.write_out_next();
            }
            match (&flushed, bounds) {
                (Ok(()), bounds) => bounds.iter().for_each(|all| this.shards.flushed_below(all)),
                (Err(_), _) => _ = this.flushes.failures.fetch_add(1, Ordering::Relaxed),
            }
            flushed
        };
        self.flushes.share(flush).await
    }

    /// Writes out all changes with numbers below the bound of their shard. The first refusal ends
    /// this, unless it `tries_all`: then each of them is offered to the store.
    pub(super) async fn write_out_below(
        self: &Arc<Self>,
        bounds: &[u64],
        tries_all: bool,
    ) -> Result<(), Failed> {
        let known: Vec<_> = self.shards.each().map(|shard| shard.dirty.refusals()).collect();
        let result = || {
            let (mut is_tried, mut refused) = (true, None);
            for ((mut shard, &bound), &known) in self.shards.each().zip(bounds).zip(&known) {
                // First: what was refused before is tried again, and so is not over.
                shard.dirty.want_below(bound, known);
                is_tried &= shard.dirty.is_tried_below(bound);
                refused = refused.or(shard.dirty.refused_since(known, bound));
            }
            let is_over = is_tried || refused.is_some() && !tries_all;
            if !is_over {
                self.write_out_due();
            }
            is_over.then(|| refused.map_or(Ok(()), Err))
        };
        self.until(result).await
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

/// A volume, as the commits of its level on flash see it.
pub(super) struct FlashHost(Weak<Volume>);

impl FlashHost {
    pub(super) fn of(volume: &Arc<Volume>) -> Self {
        Self(Arc::downgrade(volume))
    }
}

impl Host for FlashHost {
    fn committed(&self, shard: usize) -> bool {
        let Some(volume) = self.0.upgrade() else { return false };
        Work::new(&volume).on(shard, |shard, _| {
            let flash = shard.blocks.watchers.flash.as_mut();
            flash.is_some_and(|flash| flash.committed())
        })
    }

    fn flush(&self) -> BoxFuture<'static, ()> {
        let volume = self.0.upgrade();
        async move {
            if let Some(volume) = volume {
                // If it fails, those that wait for it wait for the next one.
                drop(volume.flush_together().await);
            }
        }
        .boxed()
    }

    fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// A flush that requests wait for. It holds the volume, so it is dropped with the last of them.
type Together = WeakShared<BoxFuture<'static, Result<(), Failed>>>;

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
        let flush = {
            let mut next = sleep_lock(&self.next);
            let waiting = next.as_ref().and_then(WeakShared::upgrade);
            let flush = waiting.unwrap_or_else(|| in_turn.boxed().shared());
            *next = flush.downgrade();
            flush
        };
        flush.await
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use futures_util::poll;

    use super::Flushes;

    #[tokio::test]
    async fn a_flush_that_nobody_waits_for_any_more_is_dropped() {
        let (flushes, volume) = (Arc::new(Flushes::default()), Arc::new(()));
        let running = flushes.turn.lock().await;
        {
            let held = Arc::clone(&volume);
            let mut first = pin!(flushes.share(async move {
                drop(held);
                Ok(())
            }));
            let mut second = pin!(flushes.share(async { unreachable!("it shares the first") }));
            assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
            assert_eq!(Arc::strong_count(&volume), 2);
        }
        assert_eq!(Arc::strong_count(&volume), 1, "the volume could never be dropped");
        drop(running);
        flushes.share(async { Ok(()) }).await.unwrap();
    }
}
