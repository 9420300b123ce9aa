//! Operations on whole ranges: WRITE_ZEROES, TRIM, and dropping the tail when a volume grows. They
//! need no memory and no store request per block, however long they are.
//!
//! A range is registered in every shard when it arrives. From then on operations on its blocks are
//! parked behind it. It starts when the earlier operations are done, and the parked operations
//! resume after it. So it has its place in the order of each of its blocks like any other
//! operation. It is not a reference: the policy only learns of blocks that leave.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use undercroft_level::Frame;
use undercroft_store::Zeroing;

use crate::job::{BlockOp, Job};
use crate::shard::Shard;
use crate::shard::content::{Content, Slot};
use crate::shard::effects::Effects;
use crate::shard::event::Event;

/// Most ranges registered at a time; further ones wait until one of them is done.
pub(crate) const RANGES_MAX: usize = 128;

/// Blocks of a range that are processed before the lock is released for a moment.
const BLOCKS_PER_STEP: u32 = 1024;

/// What happens to the blocks of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeKind {
    /// They become zero.
    Zero(Zeroing),
    /// Their content is no longer needed.
    Trim,
    /// The cache drops them, after dirty ones are written out.
    Forget,
    /// The cache drops them, since the store was changed from outside. With a dirty block among
    /// them this fails, and all stay.
    Drop,
}

/// The registered ranges of a shard, in the order of their arrival.
#[derive(Default)]
pub(crate) struct Ranges {
    list: Vec<Entry>,
    /// By block, in the order of their arrival.
    parked: HashMap<u64, VecDeque<Parked>, RandomState>,
    /// Operations parked so far.
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

/// What a range waits for. While that has not ended, nothing else needs to be checked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitsFor {
    /// An earlier range.
    Range(u64),
    /// The operations of a block.
    Block(u64),
}

impl Ranges {
    /// Whether a registered range covers a block.
    #[inline]
    pub(crate) fn cover(&self, block: u64) -> bool {
        !self.list.is_empty() && self.list.iter().any(|entry| entry.blocks.contains(&block))
    }

    /// The registered ranges.
    pub(crate) fn all(&self) -> impl Iterator<Item = &RangeInclusive<u64>> {
        self.list.iter().map(|entry| &entry.blocks)
    }

    /// Registers a range, which is younger than the others.
    pub(crate) fn add(&mut self, number: u64, blocks: &RangeInclusive<u64>) {
        self.list.push(Entry { number, blocks: blocks.clone() });
    }

    /// Parks an operation that must wait for a range; returns any other.
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

    /// The last earlier range that overlaps this one.
    pub(super) fn earlier(&self, number: u64, blocks: &RangeInclusive<u64>) -> Option<u64> {
        let overlaps = |entry: &Entry| {
            entry.blocks.start() <= blocks.end() && blocks.start() <= entry.blocks.end()
        };
        let earlier = self.list.iter().take_while(|entry| entry.number < number);
        earlier.filter(|entry| overlaps(entry)).map(|entry| entry.number).last()
    }

    pub(super) fn is_there(&self, number: u64) -> bool {
        self.list.binary_search_by_key(&number, |entry| entry.number).is_ok()
    }

    /// Removes a range; returns the operations that may resume.
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

/// A position in a walk through the resident blocks of a range: it goes by the blocks of the range,
/// or by the handles of the cache if those are fewer when it begins. The cache may grow meanwhile.
#[derive(Clone, Copy)]
pub(crate) enum Walk {
    /// The number of the next block, counted from the first of the range.
    Blocks(u64),
    /// The next handle.
    Handles(u32),
}

impl Walk {
    /// The beginning, in a cache of so many slots.
    pub(crate) fn begin(blocks: &RangeInclusive<u64>, slots: usize) -> Self {
        let is_short = blocks.end() - blocks.start() < slots as u64;
        if is_short { Self::Blocks(0) } else { Self::Handles(0) }
    }
}

/// The blocks of a range that are keys of a map, in order.
pub(super) fn common<T>(
    map: &HashMap<u64, T, RandomState>,
    blocks: &RangeInclusive<u64>,
) -> Vec<u64> {
    if blocks.end() - blocks.start() < map.len() as u64 {
        return blocks.clone().filter(|block| map.contains_key(block)).collect();
    }
    // Sorted, because the map's own order differs in each run.
    let mut found: Vec<u64> = map.keys().copied().filter(|b| blocks.contains(b)).collect();
    found.sort_unstable();
    found
}

impl Shard {
    /// Replaces the content of the range's resident blocks for which `is_meant` is true, one step
    /// at a time. Returns the position of the next step, or `None` at the end.
    pub(crate) fn refill_some(
        &mut self,
        blocks: &RangeInclusive<u64>,
        walk: Walk,
        is_meant: fn(&Slot) -> bool,
        content: fn() -> Content,
    ) -> Option<Walk> {
        let (found, next) = match walk {
            Walk::Blocks(from) => {
                let part = blocks.start() + from..=*blocks.end();
                let part = part.take(BLOCKS_PER_STEP as usize);
                let resident = |block| self.blocks.level.frame(block).map(|frame| (block, frame));
                let to = from + u64::from(BLOCKS_PER_STEP);
                let is_over = to > blocks.end() - blocks.start();
                (part.filter_map(resident).collect(), (!is_over).then_some(Walk::Blocks(to)))
            }
            Walk::Handles(from) => {
                let to = from.saturating_add(BLOCKS_PER_STEP);
                let (found, end) = self.blocks.level.cache().known().residents_within(from..to);
                (found, (to < end).then_some(Walk::Handles(to)))
            }
        };
        for (block, frame) in found {
            if !blocks.contains(&block) {
                continue;
            }
            // The digest of a dirty block is known again when the store has its content.
            self.blocks.tell(&Event::Replaces { slot: frame });
            if is_meant(&self.blocks.slots[frame as usize]) {
                self.refill(block, frame, content());
            }
        }
        next
    }

    /// Ends a range. If the store did its part, `content` is what its blocks hold now.
    pub(crate) fn end_range(
        &mut self,
        number: u64,
        blocks: &RangeInclusive<u64>,
        content: Option<fn() -> Content>,
        fx: &mut Effects,
    ) {
        let waiting = common(&self.blocks.active, blocks);
        if let Some(content) = content {
            for block in &waiting {
                if let Some(record) = self.blocks.active.get_mut(block) {
                    self.dirty.clean(*block, &mut record.state);
                    record.state.content = content();
                    self.blocks.tell(&Event::Changes { block: *block });
                }
            }
        }
        // All of a block before any takes effect: a block with operations to come is not idle.
        let mut resumed = Vec::new();
        for op in self.blocks.ranges.remove(number, blocks) {
            resumed.push(op.block);
            self.blocks.activate(op.block).queue.push_back(op);
        }
        for block in resumed.into_iter().chain(waiting) {
            self.step(block, fx);
        }
    }

    /// Replaces the content of a resident block that is not active; with absent content the block
    /// leaves. A block that a parked operation has just made resident stays.
    pub(crate) fn refill(&mut self, block: u64, slot: Frame, content: Content) {
        let Slot { state, active, unloaded, .. } = &mut self.blocks.slots[slot as usize];
        if *active {
            return;
        }
        let was_there = *unloaded || !state.content.is_absent();
        let leaves = was_there && content.is_absent();
        self.dirty.clean(block, state);
        self.blocks.fill(block, slot, content, 0);
        if leaves {
            self.blocks.discard(block);
        }
    }
}
