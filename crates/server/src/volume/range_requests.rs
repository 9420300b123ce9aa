//! Operations on whole ranges as a client asks for them: WRITE_ZEROES and TRIM, and forgetting the
//! tail when a volume grows. What the shards keep of a range under way is in `shard/ranges.rs`.

use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError};

use crate::answer::Failed;
use crate::shard::content::{Content, Slot};
use crate::shard::ranges::RangeKind;
use crate::volume::{Volume, Work, ask_store};

/// A range that is registered and has to be ended.
pub(crate) struct RangeOp {
    number: u64,
    blocks: RangeInclusive<u64>,
    kind: RangeKind,
    durable: bool,
}

impl Volume {
    /// Registers a range of whole blocks: its place in the order is here.
    pub(crate) fn register_range(
        &self,
        blocks: RangeInclusive<u64>,
        kind: RangeKind,
        durable: bool,
    ) -> RangeOp {
        // Held throughout, so that two ranges have the same order in every shard.
        let mut last = self.range_order.lock().unwrap_or_else(PoisonError::into_inner);
        *last += 1;
        for shard in 0..self.shards.len() {
            self.lock(shard).add_range(*last, &blocks);
        }
        RangeOp { number: *last, blocks, kind, durable }
    }

    /// Takes a range on: its place in the order is here, unless there are too many.
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

    /// Carries a registered range out; `then` happens if that works, before anything that waits
    /// for the range goes on.
    pub(crate) async fn run_range(
        self: Arc<Self>,
        range: RangeOp,
        then: impl FnOnce() + Send,
    ) -> Result<(), Failed> {
        let mut waits_for = vec![None; self.shards.len()];
        self.until(|| {
            let mut shards = waits_for.iter_mut().enumerate();
            shards.all(|(shard, waits_for)| {
                self.lock(shard).range_is_ready(range.number, &range.blocks, waits_for)
            })
        })
        .await;
        let begun = self.losses.as_ref().map_or(0, |losses| losses.now());
        let result = self.do_range(&range).await;
        if result.is_ok() {
            then();
        }
        let content: fn() -> Content = match range.kind {
            RangeKind::Zero(_) => || Content::Zero,
            RangeKind::Trim | RangeKind::Forget => || Content::Absent,
        };
        // A store that failed may have changed some of it: clean copies are not to be trusted.
        let is_clean: fn(&Slot) -> bool = |slot| slot.state.dirty.is_none();
        let absent: fn() -> Content = || Content::Absent;
        let (is_meant, new): (fn(&Slot) -> bool, _) = match result {
            Ok(()) => (|_| true, content),
            Err(_) => (is_clean, absent),
        };
        let losses = self.losses.as_ref().filter(|losses| !losses.confirms);
        if let (true, Some(losses)) = (result.is_ok(), losses) {
            losses.note_change(begun);
        }
        // What is there after a loss is for the store to say.
        let is_lost = || losses.is_some_and(|losses| losses.now() != begun);
        for index in 0..self.shards.len() {
            // Writes that came before the range may have ended after it was noted.
            self.lock(index).staged_is_old(&range.blocks);
            // A loss that comes from now on finds the range.
            if result.is_err() || !range.durable {
                self.lock(index).range_ended(&range.blocks, index);
            }
            // What waits for the range goes on waiting meanwhile.
            let mut next = Some(0);
            while let Some(from) = next {
                next = {
                    let mut shard = self.lock(index);
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
            (Arc::clone(&self.store), end - offset, self.is_durable(range.durable));
        match range.kind {
            RangeKind::Zero(how) => {
                ask_store(async move { store.zero(offset, length, how, durable).await }).await
            }
            RangeKind::Trim => {
                ask_store(async move { store.trim(offset, length, durable).await }).await
            }
            RangeKind::Forget => self.write_dirty_of(&range.blocks).await,
        }
    }

    /// Writes the dirty blocks of a range that nobody else can touch just now.
    async fn write_dirty_of(&self, blocks: &RangeInclusive<u64>) -> Result<(), Failed> {
        for shard in 0..self.shards.len() {
            let dirty = self.lock(shard).dirty_within(blocks);
            for (offset, data) in dirty {
                let (store, durable) = (Arc::clone(&self.store), self.is_durable(false));
                ask_store(async move { store.write(offset, vec![data], durable).await }).await?;
            }
        }
        Ok(())
    }
}
