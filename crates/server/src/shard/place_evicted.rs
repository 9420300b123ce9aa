//! What a shard does below clients with caches of their own: which client a read belongs to, which
//! evicted blocks are placed and where their data come from, and which wait to be read back.
//!
//! Safety: content enters a slot in four ways only: through the queue of the block, in order with
//! all other operations; from a reload that nothing interfered with ([`Reloading`]); from a write
//! that succeeded and was the last one (`staged.rs`, `awaited.rs`); from a client whose data equal
//! the volume's content (`digests.rs`). The last three happen only while the block has no
//! operation.

use std::ops::Range;
use std::sync::Arc;

use undercroft_level::placement::DataSource;
use undercroft_level::{PlacementStep, Sender};
use undercroft_nbd::Pieces;

use crate::clock;
use crate::counters::Source;
use crate::job::{BlockOp, Job, JobKind};
use crate::shard::Shard;
use crate::shard::blocks::Blocks;
use crate::shard::content::{Content, Memory, Origin};
use crate::shard::effects::{Effects, Ended};
use crate::shard::event::Event;
use crate::shard::eviction_placement::{ReloadState, Reloading};

impl Shard {
    /// Carries out one decision of the level about a block that a client evicted.
    pub(super) fn carry_out_placement(
        &mut self,
        block: u64,
        step: PlacementStep,
        fx: &mut Effects,
    ) {
        match step {
            PlacementStep::Resident => self.leave_evicted(fx),
            PlacementStep::Skip => {
                self.leave_evicted(fx);
                self.blocks.tell(&Event::Gone { block });
            }
            PlacementStep::Staged(slot) => {
                self.leave_evicted(fx);
                self.blocks.enter(block, slot);
                self.blocks.tell(&Event::Placed { block, slot });
                self.fill_staged(block, slot, fx);
            }
            PlacementStep::Fetch => {
                // Data that the store is working on are in memory and need not be read again.
                let flash = self.blocks.watchers.flash.as_mut();
                // From flash it is read at once, since no client waits for the store then.
                let is_on_flash = flash.is_some_and(|flash| flash.has(block));
                let is_here = is_on_flash || self.blocks.active.contains_key(&block);
                match self.blocks.watchers.placement.as_deref_mut() {
                    Some(placement) if !placement.immediate && !is_here => {
                        placement.reloads.push(block);
                        fx.reload = true;
                    }
                    _ => {
                        self.place(block, Some(DataSource::Reload), fx);
                        self.load(block, fx);
                    }
                }
            }
        }
    }

    /// Fills the slot of a block with its staged data.
    pub(crate) fn fill_staged(&mut self, block: u64, slot: u32, fx: &mut Effects) {
        self.blocks.slots[slot as usize].origin = Origin::Staged;
        let (data, digest) = (self.blocks.staged(block), self.blocks.level.clients().digest(block));
        if let Some(placement) = self.blocks.watchers.placement.as_deref_mut() {
            placement.staged.remove(block);
        }
        match data {
            Some(content) => self.blocks.fill(block, slot, content, digest),
            None => self.load(block, fx),
        }
    }

    /// Fetches the content of a resident block, in order with its other operations.
    pub(super) fn load(&mut self, block: u64, fx: &mut Effects) {
        let geometry = &self.blocks.geometry;
        let (offset, length) = (geometry.start(block), geometry.len(block) as u64);
        let job = Arc::new(Job::new(JobKind::Prefetch, offset, length, false, clock::now()));
        job.expect_part(Source::Miss);
        self.enqueue(BlockOp { job: Arc::clone(&job), block }, fx);
        job.submitted(Pieces::default(), None);
    }

    /// The client says that it keeps a block: an exclusive level drops its copy now, as a hit
    /// would.
    pub(crate) fn held(&mut self, block: u64, sender: Sender, fx: &mut Effects) {
        if let Some(placement) = self.blocks.watchers.placement.as_deref_mut() {
            placement.awaited.forget(block);
        }
        if let Some(left) = self.blocks.level.told_held(block, sender) {
            self.leave(block, left, false, fx);
        }
    }

    /// The running reload ended.
    pub(crate) fn end_reload(&mut self, ended: Ended, fx: &mut Effects) {
        let Some(placement) = self.blocks.watchers.placement.as_deref_mut() else { return };
        let Some(Reloading { block, state }) = placement.reloading.take() else { return };
        if state == ReloadState::Joined {
            return self.fetched(block, ended, fx);
        }
        self.counters.store_reads += 1;
        let counters = &mut placement.counters;
        match (state, ended.result) {
            (_, Err(_)) => {
                self.counters.read_failures += 1;
                counters.reloads_failed += 1;
            }
            (ReloadState::Void, _) => counters.reloads_written += 1,
            _ if self.blocks.level.frame(block).is_some() => counters.reloads_resident += 1,
            (_, Ok(content)) => {
                let slot = self.place(block, Some(DataSource::Reload), fx);
                self.blocks.fill(block, slot, content, 0);
            }
        }
    }
}

impl Blocks {
    /// The staged data of a block, if it has no operations.
    pub(crate) fn staged(&self, block: u64) -> Option<Content> {
        let placement = self.watchers.placement.as_deref()?;
        let frame = placement.staged.get(block).filter(|_| self.is_quiet(block))?;
        Some(Content::Frame(frame.clone()))
    }

    /// The numbers of these clients, one bit for each, will be given to others: forgets the part
    /// `part` of what is known of them. Returns the number of all parts.
    pub(crate) fn forget_clients(&mut self, gone: u64, part: Range<usize>) -> usize {
        let all = self.level.forget_clients(gone, part.clone());
        let placement = self.watchers.placement.as_deref_mut();
        placement.map_or(all, |placement| placement.awaited.forget_clients(gone, part).max(all))
    }

    /// Starts the next useful reload. Returns the block and the memory for it.
    pub(crate) fn begin_reload(&mut self) -> Option<(u64, Memory)> {
        loop {
            let placement = self.watchers.placement.as_deref_mut()?;
            if placement.reloading.is_some() {
                return None;
            }
            let block = placement.reloads.pop()?;
            let is_quiet = self.is_quiet(block);
            let placement = self.watchers.placement.as_deref_mut()?;
            if self.level.frame(block).is_some() {
                placement.counters.reloads_resident += 1;
            } else if !is_quiet {
                placement.counters.reloads_busy += 1;
            } else if let Some(frame) = self.pool.take() {
                placement.reloading = Some(Reloading { block, state: ReloadState::Wanted });
                return Some((block, Memory::Frame(frame)));
            } else {
                placement.counters.reloads_without_frame += 1;
            }
        }
    }
}
