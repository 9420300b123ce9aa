//! Operations on whole ranges: WRITE_ZEROES, TRIM, and forgetting the tail when a volume grows.
//! They need no memory and no step a block at the store, however long they are.
//!
//! A range is registered in every shard when it arrives. From then on operations on its blocks are
//! parked behind it; it begins when those that came before are done; then the parked ones go on.
//! So it takes its place in the order of each of its blocks like any other operation. It is no
//! reference: the policy hears of it only when blocks go.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError};

use undercroft_store::Zeroing;

use crate::answer::Failed;
use crate::content::{Content, Running, Slot};
use crate::job::BlockOp;
use crate::shard::{Effects, Shard};
use crate::volume::{Volume, Work, ask_store};

/// What happens to the blocks of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeKind {
    /// They become zero.
    Zero(Zeroing),
    /// Nobody needs their content any more.
    Trim,
    /// The cache forgets them; what is dirty goes to the store before.
    Forget,
}

/// The ranges that a shard has to respect, in the order of their arrival.
#[derive(Default)]
pub(crate) struct Ranges {
    list: Vec<Entry>,
    parked: VecDeque<Parked>,
}

struct Entry {
    number: u64,
    blocks: RangeInclusive<u64>,
}

struct Parked {
    /// The last range that this operation has to wait for.
    behind: u64,
    op: BlockOp,
}

impl Ranges {
    /// Whether a block lies in a range.
    #[inline]
    pub(crate) fn cover(&self, block: u64) -> bool {
        !self.list.is_empty() && self.list.iter().any(|entry| entry.blocks.contains(&block))
    }

    /// Keeps an operation that has to wait for a range; gives back any other.
    pub(crate) fn park(&mut self, op: BlockOp) -> Option<BlockOp> {
        let last = self.list.iter().rev().find(|entry| entry.blocks.contains(&op.block));
        match last {
            Some(entry) => {
                self.parked.push_back(Parked { behind: entry.number, op });
                None
            }
            None => Some(op),
        }
    }

    pub(crate) fn has_parked(&self, block: u64) -> bool {
        self.parked.iter().any(|parked| parked.op.block == block)
    }

    /// Whether no earlier range overlaps this one.
    fn is_first(&self, number: u64, blocks: &RangeInclusive<u64>) -> bool {
        let overlaps = |entry: &Entry| {
            entry.blocks.start() <= blocks.end() && blocks.start() <= entry.blocks.end()
        };
        !self.list.iter().any(|entry| entry.number < number && overlaps(entry))
    }

    /// Takes a range away: the operations that may go on now.
    fn remove(&mut self, number: u64) -> Vec<BlockOp> {
        self.list.retain(|entry| entry.number != number);
        let (mut free, mut still) = (Vec::new(), VecDeque::new());
        for parked in std::mem::take(&mut self.parked) {
            let waits = self.list.iter().any(|entry| {
                entry.number <= parked.behind && entry.blocks.contains(&parked.op.block)
            });
            if waits { still.push_back(parked) } else { free.push(parked.op) }
        }
        self.parked = still;
        free
    }
}

impl Shard {
    fn add_range(&mut self, number: u64, blocks: &RangeInclusive<u64>) {
        self.ranges.list.push(Entry { number, blocks: blocks.clone() });
        self.noted_range(blocks);
    }

    /// Whether everything that came before the range is done.
    fn range_is_ready(&self, number: u64, blocks: &RangeInclusive<u64>) -> bool {
        let busy = |block: &u64| {
            blocks.contains(block)
                && self.active.get(block).is_some_and(|record| {
                    record.running != Running::Nothing || !record.queue.is_empty()
                })
        };
        self.ranges.is_first(number, blocks) && !self.active.keys().any(busy)
    }

    /// The range is done. If the store did its part, `content` is what its blocks hold now.
    fn end_range(
        &mut self,
        number: u64,
        blocks: &RangeInclusive<u64>,
        content: Option<fn() -> Content>,
        fx: &mut Effects,
    ) {
        let mut waiting: Vec<u64> =
            self.active.keys().copied().filter(|block| blocks.contains(block)).collect();
        // The map's own order is another one in each run.
        waiting.sort_unstable();
        if let Some(content) = content {
            for (block, frame) in self.residents_within(blocks) {
                self.refill(block, frame, content());
            }
            for block in &waiting {
                if let Some(record) = self.active.get_mut(block) {
                    self.dirty.clean(*block, &mut record.state);
                    record.state.content = content();
                }
            }
        }
        self.level_range();
        for op in self.ranges.remove(number) {
            self.enqueue_unparked(op, fx);
        }
        for block in waiting {
            self.step(block, fx);
        }
    }

    /// A resident block that is not active gets other content, or leaves if that is none. One that
    /// a parked operation has just made resident stays.
    fn refill(&mut self, block: u64, frame: u32, content: Content) {
        let slot = &mut self.slots[frame as usize];
        if slot.active {
            return;
        }
        self.dirty.clean(block, &mut slot.state);
        let was_unloaded = std::mem::take(&mut slot.unloaded);
        self.unloaded -= u32::from(was_unloaded);
        let was_there = was_unloaded || !slot.state.content.is_absent();
        let leaves = content.is_absent();
        slot.state.content = content;
        if was_there && leaves {
            self.slots[frame as usize] = Slot::default();
            self.discard(block);
        }
    }

    fn residents_within(&self, blocks: &RangeInclusive<u64>) -> Vec<(u64, u32)> {
        let count = blocks.end() - blocks.start();
        if count < self.slots.len() as u64 {
            let found = |block| self.cache.frame(block).map(|frame| (block, frame));
            return blocks.clone().filter_map(found).collect();
        }
        self.cache.residents().into_iter().filter(|(block, _)| blocks.contains(block)).collect()
    }
}

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

    /// Carries a registered range out; `then` happens if that works, before anything that waits
    /// for the range goes on.
    pub(crate) async fn run_range(
        self: Arc<Self>,
        range: RangeOp,
        then: impl FnOnce() + Send,
    ) -> Result<(), Failed> {
        self.until(|| {
            (0..self.shards.len()).all(|s| self.lock(s).range_is_ready(range.number, &range.blocks))
        })
        .await;
        let result = self.do_range(&range).await;
        if result.is_ok() {
            then();
        }
        let content: fn() -> Content = match range.kind {
            RangeKind::Zero(_) => || Content::Zero,
            RangeKind::Trim | RangeKind::Forget => || Content::Absent,
        };
        // A store that failed may have changed some of it: clean copies are not to be trusted.
        for shard in 0..self.shards.len() {
            let mut work = Work::new(&self);
            let (shard, fx) = work.nth_shard(shard);
            if result.is_err() {
                shard.forget_clean(&range.blocks);
            }
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
        let (store, length, durable) = (Arc::clone(&self.store), end - offset, range.durable);
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
                let store = Arc::clone(&self.store);
                ask_store(async move { store.write(offset, vec![data], false).await }).await?;
            }
        }
        Ok(())
    }
}

impl Shard {
    /// Drops the clean copies of a range.
    fn forget_clean(&mut self, blocks: &RangeInclusive<u64>) {
        for (block, frame) in self.residents_within(blocks) {
            if self.slots[frame as usize].state.dirty.is_none() {
                self.refill(block, frame, Content::Absent);
            }
        }
    }

    /// The dirty content of a range, with the byte it starts at.
    fn dirty_within(&self, blocks: &RangeInclusive<u64>) -> Vec<(u64, bytes::Bytes)> {
        let content = |block| Some((self.geometry.start(block), self.content_of(block)?));
        self.dirty.within(*blocks.start(), *blocks.end()).filter_map(content).collect()
    }

    /// All of a block's content, if it is here.
    pub(crate) fn content_of(&self, block: u64) -> Option<bytes::Bytes> {
        let slot = self.cache.frame(block).map(|frame| &self.slots[frame as usize]);
        let state = match self.active.get(&block) {
            Some(record) => &record.state,
            None => &slot?.state,
        };
        state.content.piece(0, self.geometry.len(block))
    }
}
