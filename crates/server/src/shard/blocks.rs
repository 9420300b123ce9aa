//! What a shard has of its blocks: which are resident (the level), the slots of these, the records
//! of those with operations in progress, the ranges that operations wait for, and the watchers, who
//! hear of each change (invariants 1 to 3 of `mod.rs`).
//!
//! Not here: how operations go on, and which blocks are dirty.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use undercroft_frames::Pools;
use undercroft_level::{Frame, Level};

use crate::geometry::Geometry;
use crate::job::Job;
use crate::shard::content::{Active, Content, Running, Slot, State};
use crate::shard::event::{Event, Leaving};
use crate::shard::flash_level::FlashLevel;
use crate::shard::ranges::{Ranges, WaitsFor, common};
use crate::shard::watchers::Watchers;

/// The blocks of a shard that are resident or have operations.
pub(crate) struct Blocks {
    pub(crate) level: Level,
    /// By the number that the level gives a resident block.
    pub(crate) slots: Vec<Slot>,
    pub(crate) active: HashMap<u64, Active, RandomState>,
    pub(crate) ranges: Ranges,
    pub(crate) watchers: Watchers,
    pub(crate) pool: Pools,
    pub(crate) geometry: Arc<Geometry>,
    /// Number of unloaded slots.
    unloaded: u32,
    scratch: PrefetchScratch,
}

/// Buffers for looking up several blocks together, kept to reuse their memory.
#[derive(Default)]
struct PrefetchScratch {
    wanted: Vec<u64>,
    frames: Vec<Frame>,
}

impl Blocks {
    /// The blocks of an empty level.
    pub(super) fn new(
        level: Level,
        watchers: Watchers,
        pool: Pools,
        geometry: Arc<Geometry>,
    ) -> Self {
        let slots = (0..level.policy().capacity()).map(|_| Slot::default()).collect();
        let (active, ranges, unloaded, scratch) = Default::default();
        Self { level, slots, active, ranges, watchers, pool, geometry, unloaded, scratch }
    }

    /// Prefetches what reads of these blocks will need, so that the processor overlaps its waits
    /// for memory: the index and the policy first, then the slots, then reference counts and data
    /// of the frames. Of the data the first byte is enough; the processor's own prefetcher loads
    /// the rest.
    pub(crate) fn prefetch(&mut self, all: impl Iterator<Item = u64>) {
        let Self { scratch: PrefetchScratch { wanted, frames }, level, slots, watchers, .. } = self;
        wanted.clear();
        all.for_each(|block| wanted.push(block));
        frames.clear();
        level.prefetch(wanted, frames);
        if let Some(digests) = &watchers.digests {
            digests.warm(frames);
        }
        let slots = frames.iter().map(|&frame| &slots[frame as usize]);
        black_box(slots.clone().filter(|slot| slot.state.content.is_shared()).count());
        black_box(slots.fold(0, |sum, slot| sum ^ slot.state.content.first_byte()));
    }

    /// Tells the watchers.
    #[inline(always)]
    pub(crate) fn tell(&mut self, event: &Event<'_>) {
        self.watchers.tell(event, &mut self.level, &self.pool, &self.geometry);
    }

    /// Gives a newly resident block an empty slot.
    pub(super) fn enter(&mut self, block: u64, slot: Frame) {
        let record = if self.active.is_empty() { None } else { self.active.get_mut(&block) };
        self.slots[slot as usize] = Slot { active: record.is_some(), ..Slot::default() };
        if let Some(record) = record {
            record.slot = Some(slot);
        }
        self.tell(&Event::Entered { block, slot });
    }

    /// Takes a block out of its slot, which another one gets if it `is_evicted`. If the block has
    /// operations and is written through, the store gets the data from elsewhere, so the frame is
    /// freed for resident blocks.
    pub(super) fn leave(&mut self, block: u64, slot: Frame, is_evicted: bool) -> (State, Leaving) {
        let Slot { state, active, unloaded, .. } = std::mem::take(&mut self.slots[slot as usize]);
        self.unloaded -= u32::from(unloaded);
        let record = if active { self.active.get_mut(&block) } else { None };
        let how = match (record, state.dirty) {
            (Some(record), _) => {
                record.slot = None;
                let is_dirty = record.is_dirty();
                if !is_dirty && matches!(record.running, Running::Write | Running::Starved) {
                    record.state.content = Content::Absent;
                }
                Leaving::Busy { is_dirty }
            }
            (None, Some(_)) => Leaving::Dirty,
            (None, None) => Leaving::Clean,
        };
        let (content, is_covered) = (&state.content, self.ranges.cover(block));
        self.tell(&Event::Left { block, slot, how, content, is_evicted, is_covered });
        (state, how)
    }

    /// Removes a block without content from the cache.
    pub(super) fn discard(&mut self, block: u64) {
        if let Some(slot) = self.level.discard(block) {
            self.leave(block, slot, false);
        }
    }

    /// The block's active record; if there is none yet, one is made and takes over the block's
    /// state.
    pub(super) fn activate(&mut self, block: u64) -> &mut Active {
        let Self { level, slots, active, watchers, pool, geometry, .. } = self;
        active.entry(block).or_insert_with(|| {
            let slot = level.frame(block);
            watchers.tell(&Event::Activated { block, slot }, level, pool, geometry);
            let Some(frame) = slot else { return Active::default() };
            let of_slot = &mut slots[frame as usize];
            of_slot.active = true;
            Active { slot, state: std::mem::take(&mut of_slot.state), ..Active::default() }
        })
    }

    /// Puts the state of a block that has no operations into its slot.
    pub(super) fn put(&mut self, slot: Frame, state: State) {
        let slot = &mut self.slots[slot as usize];
        self.unloaded -= u32::from(slot.unloaded);
        *slot = Slot { state, origin: slot.origin, ..Slot::default() };
    }

    /// Gives the slot of a block without operations other content. `digest`: that of the content;
    /// 0 if it is not known.
    pub(super) fn fill(&mut self, block: u64, slot: Frame, content: Content, digest: u64) {
        self.put(slot, State { content, dirty: None });
        let Self { level, slots, watchers, pool, geometry, .. } = self;
        let content = &slots[slot as usize].state.content;
        watchers.tell(&Event::Filled { block, slot, content, digest }, level, pool, geometry);
    }

    /// The data of a resident block are still to be read after a restart.
    pub(crate) fn unload(&mut self, slot: Frame) {
        self.slots[slot as usize].unloaded = true;
        self.unloaded += 1;
    }

    /// Number of blocks whose data are still to be read.
    pub(crate) fn unloaded(&self) -> u32 {
        self.unloaded
    }

    /// Whether a block is resident, and reading its data has not started.
    pub(crate) fn is_unloaded(&self, block: u64) -> bool {
        let slot = self.level.frame(block).map(|slot| &self.slots[slot as usize]);
        slot.is_some_and(|slot| slot.unloaded && !slot.active)
    }

    /// Whether no operation on a block is in progress.
    pub(crate) fn is_quiet(&self, block: u64) -> bool {
        !self.active.contains_key(&block) && !self.ranges.cover(block)
    }

    /// The content of a whole block, if it is in memory.
    pub(crate) fn content_of(&self, block: u64) -> Option<Bytes> {
        let state = match self.active.get(&block) {
            Some(record) => &record.state,
            None => &self.slots[self.level.frame(block)? as usize].state,
        };
        state.content.piece(0, self.geometry.len(block))
    }

    /// The content of a block without a slot that is dirty or being written out, and has no other
    /// operation: what a read would return, whether the store takes it or not.
    pub(super) fn dirty_content(&self, block: u64) -> Option<&Content> {
        let record = self.active.get(&block).filter(|_| !self.ranges.cover(block))?;
        let is_alone = record.is_dirty() && record.queue.is_empty();
        (is_alone && !record.state.content.is_absent()).then_some(&record.state.content)
    }

    /// Whether a client's WRITE of the block is in progress that leaves no data here. Dirty data
    /// are here, and an eviction places them without a read from the store.
    pub(super) fn is_being_written(&self, block: u64) -> bool {
        let record = self.active.get(&block).filter(|_| !self.ranges.cover(block));
        record.is_some_and(|record| {
            !record.is_dirty() && record.queue.iter().any(|op| op.job.is_change())
        })
    }

    /// The jobs of all waiting operations, and whether each waits for a frame; a job occurs once
    /// for each waiting block of it.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = (&Arc<Job>, bool)> {
        let queued = self.active.values().flat_map(|record| {
            let is_starved = record.running == Running::Starved;
            record.queue.iter().map(move |op| (&op.job, is_starved))
        });
        queued.chain(self.ranges.parked_jobs().map(|job| (job, false)))
    }

    /// Whether all earlier operations on a range are done; if not, stores in `waits_for` what it
    /// waits for.
    pub(crate) fn range_is_ready(
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

    /// A range is about to change, or everything that is derived from its blocks is void.
    pub(crate) fn range_begins(&mut self, blocks: &RangeInclusive<u64>) {
        self.level.clients_mut().forget_within(blocks);
        self.tell(&Event::RangeBegins { blocks });
    }

    /// Puts a level on flash below the memory, or takes it away; returns the one before. What is
    /// `dirty` or has operations has no copy there that counts.
    pub(crate) fn replace_flash(
        &mut self,
        level: Option<Box<FlashLevel>>,
        dirty: impl FnOnce() -> BTreeSet<u64>,
    ) -> Option<Box<FlashLevel>> {
        let before = std::mem::replace(&mut self.watchers.flash, level);
        if let Some(flash) = self.watchers.flash.as_mut().filter(|flash| flash.has_copies()) {
            let changing = dirty().into_iter().chain(common(&self.active, &(0..=u64::MAX)));
            changing.for_each(|block| flash.end_copies(&(block..=block)));
            self.ranges.all().for_each(|blocks| flash.end_copies(blocks));
        }
        before
    }

    /// Whether written blocks that are not resident may be in memory until they are written out, so
    /// that a client of a write-back cache does not wait for the store. With placement at eviction
    /// that concerns most writes.
    fn absorbs(&self) -> bool {
        self.watchers.placement.is_some() && self.geometry.write_back
    }

    /// Most frames that may hold written blocks which are not resident, as this one is: half of
    /// those that the resident blocks cannot need. 0 for a resident block, whose frame it has.
    pub(super) fn lent_frames(&self, block: u64) -> usize {
        let is_resident = || self.active.get(&block).is_some_and(|record| record.slot.is_some());
        if !self.absorbs() || is_resident() {
            return 0;
        }
        let (policy, all) = (self.level.policy(), self.pool.count());
        let spared = policy.capacity() - policy.len() + all.saturating_sub(policy.capacity()) / 2;
        self.pool.free_count().saturating_sub(spared as usize)
    }

    /// Dirty blocks that may wait without a slot: half of the spare frames that may hold them. The
    /// others are for blocks that are being written out.
    pub(super) fn without_slot_max(&self) -> usize {
        if !self.absorbs() {
            return 0;
        }
        let staged = self.level.placement().map_or(0, |placement| placement.staging_blocks());
        let held = self.level.policy().capacity().saturating_add(staged);
        self.pool.count().saturating_sub(held) as usize / 4
    }

    /// Checks invariants 1 to 3, for tests. Returns the number of dirty blocks.
    pub(super) fn validate(&self) -> Result<usize, String> {
        let (mut dirty, mut unloaded) = (0, 0);
        for (block, slot) in self.level.cache().residents() {
            let slot = &self.slots[slot as usize];
            if slot.active != self.active.contains_key(&block) {
                return Err(format!("block {block}: slot and active record disagree"));
            }
            unloaded += u32::from(slot.unloaded);
            let may_be_absent = slot.unloaded || self.ranges.has_parked(block);
            if !slot.active && slot.state.content.is_absent() && !may_be_absent {
                return Err(format!("block {block} is resident without content"));
            }
            if slot.unloaded && !slot.state.content.is_absent() {
                return Err(format!("block {block} is unloaded with content"));
            }
            dirty += usize::from(slot.state.dirty.is_some());
        }
        for (block, record) in &self.active {
            if record.slot != self.level.frame(*block) {
                return Err(format!("block {block}: its record knows another slot"));
            }
            let idle = record.running == Running::Nothing && record.queue.is_empty();
            if idle && record.state.dirty.is_none() {
                return Err(format!("block {block} is active for nothing"));
            }
            dirty += usize::from(record.state.dirty.is_some());
        }
        match unloaded == self.unloaded {
            true => Ok(dirty),
            false => Err(format!("{unloaded} unloaded blocks, {} counted", self.unloaded)),
        }
    }
}
