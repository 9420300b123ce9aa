//! Checks of a shard's invariants, for tests only.

use crate::shard::Shard;
use crate::shard::content::Running;
use crate::shard::eviction_placement::{ReloadState, Reloading};

impl Shard {
    /// Checks the invariants listed in `shard/mod.rs`.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub(crate) fn validate(&self) -> Result<(), String> {
        self.cache.validate()?;
        self.validate_cooperation()?;
        if let Some(digests) = &self.watchers.digests {
            let content = |slot: u32| &self.blocks.slots[slot as usize].state.content;
            let residents = self.cache.residents().into_iter();
            let residents = residents.map(|(block, slot)| (block, slot, content(slot)));
            digests.validate(residents, &self.blocks.active, &self.geometry)?;
        }
        let is_out =
            |block| self.blocks.active.get(&block).is_some_and(|record| record.slot.is_none());
        self.watchers.below.as_ref().map_or(Ok(()), |below| below.validate(is_out))?;
        let (mut dirty, mut unloaded) = (0, 0);
        for (block, frame) in self.cache.residents() {
            let slot = &self.blocks.slots[frame as usize];
            if slot.active != self.blocks.active.contains_key(&block) {
                return Err(format!("block {block}: slot and active record disagree"));
            }
            unloaded += u32::from(slot.unloaded);
            let may_be_absent = slot.unloaded || self.blocks.ranges.has_parked(block);
            if !slot.active && slot.state.content.is_absent() && !may_be_absent {
                return Err(format!("block {block} is resident without content"));
            }
            if slot.unloaded && !slot.state.content.is_absent() {
                return Err(format!("block {block} is unloaded with content"));
            }
            dirty += usize::from(slot.state.dirty.is_some());
        }
        for (block, record) in &self.blocks.active {
            if record.slot != self.cache.frame(*block) {
                return Err(format!("block {block}: its record knows another slot"));
            }
            let idle = record.running == Running::Nothing && record.queue.is_empty();
            if idle && record.state.dirty.is_none() {
                return Err(format!("block {block} is active for nothing"));
            }
            dirty += usize::from(record.state.dirty.is_some());
        }
        if unloaded != self.blocks.unloaded() {
            return Err(format!("{unloaded} unloaded blocks, {} counted", self.blocks.unloaded()));
        }
        if dirty != self.dirty.count() {
            return Err(format!("{dirty} dirty blocks, {} known", self.dirty.count()));
        }
        for block in self.dirty.all_without_slot() {
            let waits =
                self.blocks.active.get(&block).is_some_and(|record| record.state.dirty.is_some());
            if !waits || self.cache.frame(block).is_some() && self.blocks.is_quiet(block) {
                return Err(format!("block {block} has a slot, or is clean"));
            }
        }
        if !self.starved.is_empty() && !self.will_free_frames() {
            return Err("starved without a write-out to wait for".into());
        }
        Ok(())
    }

    /// Checks the reload state: the block of a running reload has no operations, or its active
    /// record waits for the reload.
    pub(crate) fn validate_cooperation(&self) -> Result<(), String> {
        let Some(placement) = self.watchers.placement.as_deref() else { return Ok(()) };
        placement.reloads.validate()?;
        placement.awaited.validate()?;
        let Some(Reloading { block, state }) = &placement.reloading else { return Ok(()) };
        let waits = self.blocks.active.get(block).is_some_and(|r| r.running == Running::Fetch);
        if *state == ReloadState::Joined && !waits {
            return Err(format!("block {block}: a reload was joined by nobody"));
        }
        Ok(())
    }
}
