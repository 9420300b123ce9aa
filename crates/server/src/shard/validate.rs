//! Checks of a shard's invariants, for tests only.

use crate::shard::Shard;
use crate::shard::blocks::Blocks;
use crate::shard::content::Running;

impl Shard {
    /// Checks the invariants listed in `shard/mod.rs`.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let Self { blocks, dirty, starved, .. } = self;
        let Blocks { level, watchers, geometry, .. } = blocks;
        level.validate()?;
        if let Some(placement) = &watchers.placement {
            let record = |block| blocks.active.get(&block);
            let is_fetched = |block| record(block).is_some_and(|r| r.running == Running::Fetch);
            placement.validate(is_fetched)?;
        }
        if let Some(digests) = &watchers.digests {
            let content = |slot: u32| &blocks.slots[slot as usize].state.content;
            let residents = level.cache().residents().into_iter();
            let residents = residents.map(|(block, slot)| (block, slot, content(slot)));
            digests.validate(residents, &blocks.active, geometry)?;
        }
        let is_out = |block| blocks.active.get(&block).is_some_and(|record| record.slot.is_none());
        watchers.below.as_ref().map_or(Ok(()), |below| below.validate(is_out))?;
        watchers.flash.as_ref().map_or(Ok(()), |flash| flash.validate())?;
        let dirty_blocks = blocks.validate()?;
        if dirty_blocks != dirty.count() {
            return Err(format!("{dirty_blocks} dirty blocks, {} known", dirty.count()));
        }
        for block in dirty.all_without_slot() {
            let waits = blocks.active.get(&block).is_some_and(|r| r.state.dirty.is_some());
            if !waits || level.frame(block).is_some() && blocks.is_quiet(block) {
                return Err(format!("block {block} has a slot, or is clean"));
            }
        }
        if !starved.is_empty() && self.leaving() == 0 {
            return Err("starved without a write-out to wait for".into());
        }
        Ok(())
    }
}
