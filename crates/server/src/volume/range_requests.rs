//! Requests on whole ranges: WRITE_ZEROES, TRIM, and dropping the tail when a volume grows.
//! `shard/ranges.rs` has the shards' part.

use std::ops::RangeInclusive;
use std::sync::Arc;

use undercroft_nbd::Failure;

use crate::answer::Failed;
use crate::lock::sleep_lock;
use crate::shard::content::{Content, Slot};
use crate::shard::event::Event;
use crate::shard::ranges::RangeKind;
use crate::volume::store_state::StoreRequest;
use crate::volume::{Volume, Work};

const DIRTY: &str = "blocks are dirty, newer than what the store has: let them be written first \
                     (FLUSH), or they would be lost";

/// A registered range; it must be ended.
pub(crate) struct RangeOp {
    number: u64,
    blocks: RangeInclusive<u64>,
    kind: RangeKind,
    durable: bool,
}

impl Volume {
    /// Registers a range of whole blocks, which fixes its place in the order.
    pub(crate) fn register_range(
        &self,
        blocks: RangeInclusive<u64>,
        kind: RangeKind,
        durable: bool,
    ) -> RangeOp {
        // Held throughout, so that two ranges have the same order in every shard.
        let mut last = sleep_lock(&self.range_order);
        *last += 1;
        self.shards.each().for_each(|mut shard| shard.add_range(*last, &blocks));
        RangeOp { number: *last, blocks, kind, durable }
    }

    /// Registers a range and runs it. It gets its place in the order now, unless too many ranges
    /// are registered.
    pub(crate) fn take_on_range(
        self: &Arc<Self>,
        blocks: RangeInclusive<u64>,
        kind: RangeKind,
        durable: bool,
    ) -> impl Future<Output = Result<(), Failed>> + Send + use<> {
        let room = Arc::clone(&self.range_room);
        let place = Arc::clone(&room).try_acquire_owned().ok();
        let now = place.map(|place| (place, self.register_range(blocks.clone(), kind, durable)));
        let volume = Arc::clone(self);
        async move {
            let (_place, range) = match now {
                Some(now) => now,
                None => {
                    let lost = |_| Failed::closing();
                    let place = room.acquire_owned().await.map_err(lost)?;
                    (place, volume.register_range(blocks, kind, durable))
                }
            };
            volume.run_range(range, || ()).await
        }
    }

    /// Runs a registered range. On success `then` is called before anything that waits for the
    /// range resumes.
    pub(crate) async fn run_range(
        self: Arc<Self>,
        range: RangeOp,
        then: impl FnOnce() + Send,
    ) -> Result<(), Failed> {
        let mut waits_for = vec![None; self.shards.len()];
        self.until(|| {
            let mut shards = waits_for.iter_mut().enumerate();
            shards.all(|(shard, waits_for)| {
                let blocks = &self.shards.lock(shard).blocks;
                blocks.range_is_ready(range.number, &range.blocks, waits_for)
            })
        })
        .await;
        let begun = self.losses.now();
        let result = self.do_range(&range).await;
        if result.is_ok() {
            then();
        }
        let content: fn() -> Content = match range.kind {
            RangeKind::Zero(_) => || Content::Zero,
            RangeKind::Trim | RangeKind::Forget | RangeKind::Drop => || Content::Absent,
        };
        // A failed store request may have changed a part of it: clean copies are dropped.
        let is_clean: fn(&Slot) -> bool = |slot| slot.state.dirty.is_none();
        let absent: fn() -> Content = || Content::Absent;
        let (is_meant, new): (fn(&Slot) -> bool, _) = match result {
            Ok(()) => (|_| true, content),
            Err(_) => (is_clean, absent),
        };
        if result.is_ok() && !self.losses.confirms {
            self.losses.note_change(begun);
        }
        // After a loss only the store knows the content.
        let is_lost = || !self.losses.confirms && self.losses.now() != begun;
        for index in 0..self.shards.len() {
            // A loss from now on finds the range.
            let (blocks, is_durable) = (&range.blocks, result.is_ok() && range.durable);
            self.shards.lock(index).tell(&Event::RangeEnds { blocks, shard: index, is_durable });
            // Operations parked behind the range stay parked meanwhile.
            let stays = range.kind == RangeKind::Drop && result.is_err();
            let mut next = (!stays).then_some(0);
            while let Some(from) = next {
                next = {
                    let mut shard = self.shards.lock(index);
                    let new = if is_lost() { absent } else { new };
                    shard.refill_some(&range.blocks, from, is_meant, new)
                };
                if next.is_some() {
                    tokio::task::yield_now().await;
                }
            }
            let mut work = Work::new(&self);
            let (shard, fx) = work.nth_shard(index);
            let content = if is_lost() { absent } else { content };
            shard.end_range(range.number, &range.blocks, result.is_ok().then_some(content), fx);
            work.finish();
        }
        self.progress.notify_waiters();
        result
    }

    async fn do_range(self: &Arc<Self>, range: &RangeOp) -> Result<(), Failed> {
        let _demand = self.demand();
        let offset = self.geometry.start(*range.blocks.start());
        let end = self.geometry.start(range.blocks.end() + 1).min(self.geometry.size());
        let (store, length, durable) =
            (Arc::clone(&self.store), end - offset, self.losses.must_be_durable(range.durable));
        match range.kind {
            RangeKind::Zero(how) => {
                let zero = async move { store.zero(offset, length, how, durable).await };
                self.store_health.ask(StoreRequest::Zero, zero).await
            }
            RangeKind::Trim => {
                let trim = async move { store.trim(offset, length, durable).await };
                self.store_health.ask(StoreRequest::Trim, trim).await
            }
            RangeKind::Forget => self.write_dirty_of(&range.blocks).await,
            RangeKind::Drop => match self.shards.has_dirty_within(&range.blocks) {
                true => Err(Failed::new(Failure::Io, DIRTY)),
                false => Ok(()),
            },
        }
    }

    /// Drops everything that is cached, since the store was changed from outside: what is read from
    /// then on comes from the store. Waits for requests in progress. Returns how many blocks were
    /// cached.
    ///
    /// # Errors
    /// There are dirty blocks, which are newer than the store. Nothing is dropped then.
    pub async fn drop_cached(self: &Arc<Self>) -> Result<u64, String> {
        let stats = self.stats();
        let Some(last) = self.geometry.block_count().checked_sub(1) else {
            return Ok(0);
        };
        if stats.dirty > 0 {
            return Err(format!("{} {DIRTY}", stats.dirty));
        }
        let dropped = self.take_on_range(0..=last, RangeKind::Drop, false).await;
        dropped.map(|()| stats.resident).map_err(|error| error.to_string())
    }

    /// Writes the dirty blocks of a range. No other operation can touch them meanwhile.
    async fn write_dirty_of(&self, blocks: &RangeInclusive<u64>) -> Result<(), Failed> {
        for shard in 0..self.shards.len() {
            let dirty = self.shards.lock(shard).dirty_within(blocks);
            for (offset, data) in dirty {
                let (store, durable) =
                    (Arc::clone(&self.store), self.losses.must_be_durable(false));
                let write = async move { store.write(offset, vec![data], durable).await };
                self.store_health.ask(StoreRequest::Write, write).await?;
            }
        }
        Ok(())
    }
}
