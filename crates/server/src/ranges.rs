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

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use undercroft_store::Zeroing;

use crate::answer::Failed;
use crate::content::{Content, Running, Slot};
use crate::job::{BlockOp, Job};
use crate::shard::{Effects, Shard};
use crate::volume::{Volume, Work, ask_store};

/// Ranges that are registered at a time; what comes then takes its place when one of them is done.
pub(crate) const RANGES_MAX: usize = 128;

/// Blocks of a range that are looked at before the lock is given to others for a moment.
const BLOCKS_PER_STEP: u32 = 1024;

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
    /// By block, in the order of their arrival.
    parked: HashMap<u64, VecDeque<Parked>, RandomState>,
    /// Operations that were parked so far.
    arrived: u64,
}

struct Entry {
    number: u64,
    blocks: RangeInclusive<u64>,
}

struct Parked {
    /// The last range that this operation has to wait for.
    behind: u64,
    arrived: u64,
    op: BlockOp,
}

/// What a range was found to wait for: while that is so, nothing else needs to be looked at.
#[derive(Clone, Copy, Debug)]
enum WaitsFor {
    /// An earlier range.
    Range(u64),
    /// What is going on with a block.
    Block(u64),
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
                let (behind, arrived) = (entry.number, self.arrived);
                self.arrived += 1;
                self.parked.entry(op.block).or_default().push_back(Parked { behind, arrived, op });
                None
            }
            None => Some(op),
        }
    }

    /// The jobs of the operations that wait for a range.
    pub(crate) fn parked_jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.parked.values().flatten().map(|parked| &parked.op.job)
    }

    pub(crate) fn has_parked(&self, block: u64) -> bool {
        self.parked.contains_key(&block)
    }

    /// An earlier range that overlaps this one.
    fn earlier(&self, number: u64, blocks: &RangeInclusive<u64>) -> Option<u64> {
        let overlaps = |entry: &Entry| {
            entry.blocks.start() <= blocks.end() && blocks.start() <= entry.blocks.end()
        };
        let earlier = self.list.iter().take_while(|entry| entry.number < number);
        earlier.filter(|entry| overlaps(entry)).map(|entry| entry.number).last()
    }

    fn is_there(&self, number: u64) -> bool {
        self.list.binary_search_by_key(&number, |entry| entry.number).is_ok()
    }

    /// Takes a range away: the operations that may go on now.
    fn remove(&mut self, number: u64, blocks: &RangeInclusive<u64>) -> Vec<BlockOp> {
        self.list.retain(|entry| entry.number != number);
        let Self { list, parked, .. } = self;
        let mut free = Vec::new();
        for block in common(parked, blocks) {
            let Some(queue) = parked.get_mut(&block) else { continue };
            let waits = |parked: &Parked| {
                let before = list.iter().take_while(|entry| entry.number <= parked.behind);
                before.into_iter().any(|entry| entry.blocks.contains(&block))
            };
            while queue.front().is_some_and(|parked| !waits(parked)) {
                free.extend(queue.pop_front());
            }
            if queue.is_empty() {
                parked.remove(&block);
            }
        }
        free.sort_unstable_by_key(|parked| parked.arrived);
        free.into_iter().map(|parked| parked.op).collect()
    }
}

/// The blocks of a range that are keys of a map.
fn common<T>(map: &HashMap<u64, T, RandomState>, blocks: &RangeInclusive<u64>) -> Vec<u64> {
    if blocks.end() - blocks.start() < map.len() as u64 {
        return blocks.clone().filter(|block| map.contains_key(block)).collect();
    }
    // The map's own order is another one in each run.
    let mut found: Vec<u64> = map.keys().copied().filter(|b| blocks.contains(b)).collect();
    found.sort_unstable();
    found
}

impl Shard {
    fn add_range(&mut self, number: u64, blocks: &RangeInclusive<u64>) {
        self.ranges.list.push(Entry { number, blocks: blocks.clone() });
        self.noted_range(blocks);
    }

    /// Whether everything that came before the range is done; if not, what it waits for is noted.
    fn range_is_ready(
        &self,
        number: u64,
        blocks: &RangeInclusive<u64>,
        waits_for: &mut Option<WaitsFor>,
    ) -> bool {
        let is_busy = |block: &u64| {
            let record = self.active.get(block);
            record.is_some_and(|r| r.running != Running::Nothing || !r.queue.is_empty())
        };
        let waits = match *waits_for {
            Some(WaitsFor::Range(earlier)) => self.ranges.is_there(earlier),
            Some(WaitsFor::Block(block)) => is_busy(&block),
            None => false,
        };
        if !waits {
            let earlier = self.ranges.earlier(number, blocks).map(WaitsFor::Range);
            *waits_for = earlier.or_else(|| {
                let busy = common(&self.active, blocks).into_iter().find(is_busy);
                busy.map(WaitsFor::Block)
            });
        }
        waits_for.is_none()
    }

    /// Gives clean or dirty content to the resident blocks of a range, as far as a step goes from a
    /// number on: where the next one begins. Its blocks are numbered from the first one, or if
    /// these are more than the cache has, by their handles.
    fn refill_some(
        &mut self,
        blocks: &RangeInclusive<u64>,
        from: u32,
        is_meant: fn(&Slot) -> bool,
        content: fn() -> Content,
    ) -> Option<u32> {
        let count = blocks.end() - blocks.start() + 1;
        let to = from.saturating_add(BLOCKS_PER_STEP);
        let (found, end) = if count <= self.slots.len() as u64 {
            let part = blocks.start() + u64::from(from)..=*blocks.end();
            let part = part.take(BLOCKS_PER_STEP as usize);
            let resident = |block| self.cache.frame(block).map(|frame| (block, frame));
            (part.filter_map(resident).collect(), count as u32)
        } else {
            self.cache.residents_within(from..to)
        };
        for (block, frame) in found {
            if !blocks.contains(&block) {
                continue;
            }
            // What is dirty is known again when the store has it.
            self.set_digest_of_slot(frame, 0);
            if is_meant(&self.slots[frame as usize]) {
                self.refill(block, frame, content());
            }
        }
        (to < end).then_some(to)
    }

    /// The range is done. If the store did its part, `content` is what its blocks hold now.
    fn end_range(
        &mut self,
        number: u64,
        blocks: &RangeInclusive<u64>,
        content: Option<fn() -> Content>,
        fx: &mut Effects,
    ) {
        let waiting = common(&self.active, blocks);
        if let Some(content) = content {
            for block in &waiting {
                if let Some(record) = self.active.get_mut(block) {
                    self.dirty.clean(*block, &mut record.state);
                    record.state.content = content();
                    record.digest.begin();
                }
            }
        }
        self.level_range();
        for op in self.ranges.remove(number, blocks) {
            self.enqueue_unparked(op, fx);
        }
        for block in waiting {
            self.step(block, fx);
        }
    }

    /// A resident block that is not active gets other content, or leaves if that is none. One that
    /// a parked operation has just made resident stays.
    pub(crate) fn refill(&mut self, block: u64, frame: u32, content: Content) {
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
        self.prove_slot(block, frame, 0);
        if was_there && leaves {
            self.slots[frame as usize] = Slot::default();
            self.discard(block);
        }
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

impl Shard {
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
