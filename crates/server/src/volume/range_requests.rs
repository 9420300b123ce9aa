//! Requests on whole ranges: WRITE_ZEROES, TRIM, dropping what is cached, and dropping the tail
//! when a volume grows. `shard/ranges.rs` has the shards' part.

use std::ops::RangeInclusive;
use std::sync::Arc;

use undercroft_nbd::Failure;

use crate::answer::Failed;
use crate::lock::sleep_lock;
use crate::shard::content::{Content, Slot};
use crate::shard::event::Event;
use crate::shard::ranges::{RangeKind, Walk};
use crate::volume::store_state::StoreRequest;
use crate::volume::{Volume, Work};

const DIRTY: &str = "blocks are dirty, newer than what the store has: let them be written first \
                     (FLUSH), or they would be lost";

/// A registered range of whole blocks; it must be run.
pub(super) struct RangeOp {
    volume: Arc<Volume>,
    number: u64,
    blocks: RangeInclusive<u64>,
    kind: RangeKind,
    durable: bool,
}

impl Volume {
    /// Checks whether the store has grown, and adopts its new size. Returns the size in bytes.
    ///
    /// # Errors
    /// The store cannot tell its size, or does not take the dirty data at the old end.
    pub async fn grow(self: &Arc<Self>) -> Result<u64, Failed> {
        let store = Arc::clone(&self.store);
        let asked = self.store_health.ask(StoreRequest::Size, async move { store.reload().await });
        let size = asked.await?;
        let old = self.geometry.size();
        if size <= old {
            return Ok(old);
        }
        // A partial last block becomes longer, so its cached content is too short.
        if old % self.geometry.block_bytes() != 0 && !self.shards.is_empty() {
            let tail = self.geometry.block_of(old);
            let range = RangeOp::register(self, tail..=tail, RangeKind::Forget, false);
            range.run(|| self.geometry.set_size(size)).await?;
        } else {
            self.geometry.set_size(size);
        }
        Ok(size)
    }

    /// Drops everything that is cached, since the store was changed from outside: what is read from
    /// then on comes from the store. Waits for requests in progress. Returns how many blocks were
    /// cached.
    ///
    /// # Errors
    /// There are dirty blocks, which are newer than the store, and nothing is dropped then; or what
    /// lies on flash cannot be ended for good.
    pub async fn drop_cached(self: &Arc<Self>) -> Result<u64, String> {
        // What lies on flash is dropped, too.
        self.flash.until_known().await;
        let stats = self.stats();
        let Some(last) = self.geometry.block_count().checked_sub(1) else {
            return Ok(0);
        };
        if stats.dirty > 0 {
            return Err(format!("{} {DIRTY}", stats.dirty));
        }
        let dropped = RangeOp::take_on(self, 0..=last, RangeKind::Drop, false).await;
        dropped.map_err(|error| error.to_string())?;
        if let Some(commits) = self.flash.until_known().await {
            commits.all_ended().await?;
        }
        Ok(stats.resident)
    }
}

impl RangeOp {
    /// Registers a range and runs it. It gets its place in the order now, unless too many ranges
    /// are registered.
    pub(super) fn take_on(
        volume: &Arc<Volume>,
        blocks: RangeInclusive<u64>,
        kind: RangeKind,
        durable: bool,
    ) -> impl Future<Output = Result<(), Failed>> + Send + use<> {
        let (volume, room) = (Arc::clone(volume), Arc::clone(&volume.range_room));
        let register = move || Self::register(&volume, blocks, kind, durable);
        let now = match Arc::clone(&room).try_acquire_owned() {
            Ok(place) => Ok((place, register())),
            Err(_) => Err(register),
        };
        async move {
            let (_place, range) = match now {
                Ok(now) => now,
                Err(register) => {
                    let place = room.acquire_owned().await.map_err(|_| Failed::closing())?;
                    (place, register())
                }
            };
            range.run(|| ()).await
        }
    }

    /// Registers a range of whole blocks, which fixes its place in the order.
    fn register(
        volume: &Arc<Volume>,
        blocks: RangeInclusive<u64>,
        kind: RangeKind,
        durable: bool,
    ) -> Self {
        // Held throughout, so that two ranges have the same order in every shard.
        let mut last = sleep_lock(&volume.range_order);
        *last += 1;
        for mut shard in volume.shards.each() {
            shard.blocks.ranges.add(*last, &blocks);
            shard.blocks.range_begins(&blocks);
        }
        Self { volume: Arc::clone(volume), number: *last, blocks, kind, durable }
    }

    /// Runs the range. On success `then` is called before anything that waits for it resumes.
    async fn run(self, then: impl FnOnce() + Send) -> Result<(), Failed> {
        let volume = &self.volume;
        let mut waits_for = vec![None; volume.shards.len()];
        let is_ready = || {
            let mut shards = waits_for.iter_mut().enumerate();
            let is_ready = shards.all(|(shard, waits_for)| {
                let blocks = &volume.shards.lock(shard).blocks;
                blocks.range_is_ready(self.number, &self.blocks, waits_for)
            });
            is_ready.then_some(())
        };
        volume.until(is_ready).await;
        let begun = volume.losses.now();
        let result = self.ask_store().await;
        if result.is_ok() {
            then();
            if !volume.losses.confirms {
                volume.losses.note_change(begun);
            }
        }
        for index in 0..volume.shards.len() {
            self.end(index, result.is_ok(), begun).await;
        }
        volume.progress.notify_waiters();
        result
    }

    async fn ask_store(&self) -> Result<(), Failed> {
        let Self { volume, blocks, kind, .. } = self;
        let _demand = volume.demand.begin();
        let offset = volume.geometry.start(*blocks.start());
        let end = volume.geometry.start(blocks.end() + 1).min(volume.geometry.size());
        let (store, length) = (Arc::clone(&volume.store), end - offset);
        let (health, durable) = (&volume.store_health, volume.losses.must_be_durable(self.durable));
        match *kind {
            RangeKind::Zero(how) => {
                let zero = async move { store.zero(offset, length, how, durable).await };
                health.ask(StoreRequest::Zero, zero).await
            }
            RangeKind::Trim => {
                let trim = async move { store.trim(offset, length, durable).await };
                health.ask(StoreRequest::Trim, trim).await
            }
            RangeKind::Forget => self.write_dirty().await,
            RangeKind::Drop => match volume.shards.has_dirty_within(blocks) {
                true => Err(Failed::new(Failure::Io, DIRTY)),
                false => Ok(()),
            },
        }
    }

    /// Writes the dirty blocks. No other operation can touch them meanwhile.
    async fn write_dirty(&self) -> Result<(), Failed> {
        let volume = &self.volume;
        for shard in 0..volume.shards.len() {
            for (offset, data) in volume.shards.dirty_within(shard, &self.blocks) {
                let durable = volume.losses.must_be_durable(false);
                let store = Arc::clone(&volume.store);
                let write = async move { store.write(offset, vec![data], durable).await };
                volume.store_health.ask(StoreRequest::Write, write).await?;
            }
        }
        Ok(())
    }

    /// Ends the range in a shard. `begun`: the losses of the store when it began.
    async fn end(&self, index: usize, is_ok: bool, begun: u64) {
        let Self { volume, number, blocks, kind, durable } = self;
        let is_durable = is_ok && *durable;
        // A loss from now on finds the range.
        volume.shards.lock(index).blocks.tell(&Event::RangeEnds {
            blocks,
            shard: index,
            is_durable,
        });
        // A failed store request may have changed a part of it: clean copies are dropped.
        let is_meant: fn(&Slot) -> bool =
            if is_ok { |_| true } else { |slot| slot.state.dirty.is_none() };
        // Operations parked behind the range stay parked meanwhile.
        let stays = *kind == RangeKind::Drop && !is_ok;
        let slots = volume.shards.lock(index).blocks.slots.len();
        let mut next = (!stays).then(|| Walk::begin(blocks, slots));
        while let Some(walk) = next {
            next = {
                let mut shard = volume.shards.lock(index);
                shard.refill_some(blocks, walk, is_meant, self.content(is_ok, begun))
            };
            if next.is_some() {
                tokio::task::yield_now().await;
            }
        }
        Work::new(volume).on(index, |shard, fx| {
            let content = is_ok.then(|| self.content(is_ok, begun));
            shard.end_range(*number, blocks, content, fx);
        });
    }

    /// What the blocks have from now on.
    fn content(&self, is_ok: bool, begun: u64) -> fn() -> Content {
        let losses = &self.volume.losses;
        // After a loss only the store knows the content.
        let is_lost = !losses.confirms && losses.now() != begun;
        match self.kind {
            RangeKind::Zero(_) if is_ok && !is_lost => || Content::Zero,
            _ => || Content::Absent,
        }
    }
}
