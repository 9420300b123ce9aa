//! A shard whose cache changes while it is served: its size, its policy, its placement. The
//! resident blocks stay where they are; what has to go leaves as any evicted block does, so that
//! dirty content stays readable until the store has it.
//!
//! Not here: the memory for more frames, the order of the steps, and what may change at all
//! (`volume/change.rs`).

use std::ops::Range;

use undercroft_frames::Pools;
use undercroft_level::placement::PlacementError;

use crate::config::VolumeConfig;
use crate::shard::blocks::Blocks;
use crate::shard::content::Content;
use crate::shard::digests::{Digests, Hasher};
use crate::shard::effects::Effects;
use crate::shard::event::Event;
use crate::shard::eviction_placement::EvictionPlacement;
use crate::shard::{Shard, Slot};

impl Shard {
    /// Changes the capacity, or comes closer to it: at most `most` blocks leave. Returns whether it
    /// has that capacity now.
    pub(crate) fn resize(&mut self, capacity: u32, most: u32, fx: &mut Effects) -> bool {
        let now = self.blocks.level.policy().capacity();
        if now == capacity {
            return true;
        }
        let step = capacity.max(self.blocks.level.policy().len().min(now).saturating_sub(most));
        self.blocks.level.resize(step);
        self.leave_evicted(fx);
        // Blocks may lie in slots beyond a smaller capacity, so there are never fewer.
        let slots = self.blocks.slots.len().max(step as usize);
        self.blocks.slots.resize_with(slots, Slot::default);
        self.blocks.tell(&Event::Slots(slots));
        step == capacity
    }

    /// Replaces policy and placement by those of `config`. `hasher`: present if clients may hand
    /// data over. Returns false, with nothing replaced, if a running reload must end before, since
    /// the new placement would not know of it.
    ///
    /// # Errors
    /// They cannot be replaced; nothing has changed then.
    pub(crate) fn replace(
        &mut self,
        config: &VolumeConfig,
        seed: u64,
        hasher: Option<Hasher>,
        fx: &mut Effects,
    ) -> Result<bool, PlacementError> {
        let (placement, cooperates) = (config.shard_placement(), config.cooperates());
        let placed = self.blocks.watchers.placement.as_deref_mut().filter(|_| !cooperates);
        if placed.is_some_and(EvictionPlacement::stop_reloads) {
            return Ok(false);
        }
        let knowledge = cooperates.then(|| config.knowledge());
        self.blocks.level.replace(&config.policy, &placement, knowledge, seed)?;
        self.leave_evicted(fx);
        self.blocks.tell(&Event::Replaced);
        self.staged_frames = config.staged_frames();
        let Blocks { level, slots, watchers, .. } = &mut self.blocks;
        if !cooperates {
            (watchers.placement, watchers.digests) = (None, None);
            // Dirty blocks waited for evictions that nobody tells any more: now they are due.
            fx.writes_out = true;
        } else if watchers.placement.is_none() {
            let new =
                EvictionPlacement::new(level.policy().capacity(), seed, config.reload_at_once);
            watchers.placement = Some(Box::new(new));
            if let Some(hasher) = hasher {
                watchers.digests = Some(Digests::new(hasher, slots.len() as u32));
                level.clients_mut().keep_digests();
                // Of operations in progress it is not known what they deliver.
                level.clients_mut().forget_digests();
            }
        }
        Ok(true)
    }
}

impl Blocks {
    /// Moves content out of surplus frames: that of the slots in a range, and that of all blocks
    /// without one. Content that no frame is free for stays until the next call.
    pub(crate) fn move_surplus(&mut self, slots: Range<usize>) {
        let Self { slots: all, active, watchers, pool, .. } = self;
        let end = slots.end.min(all.len());
        if slots.start == 0 {
            // In order, so that every run moves the same ones if frames are short.
            let mut all: Vec<_> = active.iter_mut().collect();
            all.sort_unstable_by_key(|(block, _)| **block);
            all.into_iter().for_each(|(_, record)| move_out(&mut record.state.content, pool));
            let placement = &mut watchers.placement;
            placement.iter_mut().for_each(|placement| placement.staged.move_surplus(pool));
        }
        let some = all.get_mut(slots.start..end).into_iter().flatten();
        some.for_each(|slot| move_out(&mut slot.state.content, pool));
    }
}

/// Copies content from a surplus frame. Those who are being sent the frame keep it until then.
fn move_out(content: &mut Content, pool: &Pools) {
    let Content::Frame(frame) = content else { return };
    if !frame.is_surplus() {
        return;
    }
    if let Some(mut other) = pool.take() {
        other.copy_from_slice(frame.as_ref());
        *frame = other.freeze();
    }
}
