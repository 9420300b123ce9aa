//! What a shard has of its blocks: the slots of the resident ones, the records of those with
//! operations in progress, and the ranges that operations wait for (invariants 1 to 3 of `mod.rs`).
//!
//! Not here: which slot a block has (the level), how its operations go on, and who hears of it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use undercroft_cache::{Frame, Level};

use crate::job::Job;
use crate::shard::content::{Active, Content, Running, Slot, State};
use crate::shard::event::Leaving;
use crate::shard::ranges::{Ranges, WaitsFor, common};

/// The blocks of a shard that are resident or have operations.
pub(crate) struct Blocks {
    /// By the number that the level gives a resident block.
    pub(crate) slots: Vec<Slot>,
    pub(crate) active: HashMap<u64, Active, RandomState>,
    pub(crate) ranges: Ranges,
    /// Number of unloaded slots.
    unloaded: u32,
}

impl Blocks {
    pub(super) fn new(slots: u32) -> Self {
        let slots = (0..slots).map(|_| Slot::default()).collect();
        Self { slots, active: HashMap::default(), ranges: Ranges::default(), unloaded: 0 }
    }

    /// Gives a newly resident block an empty slot.
    pub(super) fn enter(&mut self, block: u64, slot: Frame) {
        let record = if self.active.is_empty() { None } else { self.active.get_mut(&block) };
        self.slots[slot as usize] = Slot { active: record.is_some(), ..Slot::default() };
        if let Some(record) = record {
            record.slot = Some(slot);
        }
    }

    /// Takes a block out of its slot. If it has operations and is written through, the store gets
    /// the data from elsewhere, so the frame is freed for resident blocks.
    pub(super) fn leave(&mut self, block: u64, slot: Frame) -> (State, Leaving) {
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
        (state, how)
    }

    /// Puts the state of a block that has no operations into its slot.
    pub(super) fn put(&mut self, slot: Frame, state: State) {
        let slot = &mut self.slots[slot as usize];
        self.unloaded -= u32::from(slot.unloaded);
        *slot = Slot { state, origin: slot.origin, ..Slot::default() };
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

    /// Whether a block with this slot is resident, and reading its data has not started.
    pub(crate) fn is_unloaded(&self, slot: Option<Frame>) -> bool {
        let slot = slot.map(|slot| &self.slots[slot as usize]);
        slot.is_some_and(|slot| slot.unloaded && !slot.active)
    }

    /// Whether no operation on a block is in progress.
    pub(crate) fn is_quiet(&self, block: u64) -> bool {
        !self.active.contains_key(&block) && !self.ranges.cover(block)
    }

    /// What is known of a block that has this slot, if it has one.
    pub(crate) fn state(&self, block: u64, slot: Option<Frame>) -> Option<&State> {
        match self.active.get(&block) {
            Some(record) => Some(&record.state),
            None => slot.map(|slot| &self.slots[slot as usize].state),
        }
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

    /// Checks invariants 1 to 3, for tests. Returns the number of dirty blocks.
    pub(super) fn validate(&self, level: &Level) -> Result<usize, String> {
        let (mut dirty, mut unloaded) = (0, 0);
        for (block, slot) in level.residents() {
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
            if record.slot != level.frame(*block) {
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
