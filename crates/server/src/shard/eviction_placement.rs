//! What a shard does below clients with caches of their own: which client a read belongs to, which
//! evicted blocks are placed and where their data come from, and which wait to be read back.
//!
//! Safety: content enters a slot in four ways only: through the queue of the block, in order with
//! all other operations; from a reload that nothing interfered with ([`Reloading`]); from a write
//! that succeeded and was the last one (`staged.rs`, `awaited.rs`); from a client whose data equal
//! the volume's content (`digests.rs`). The last three happen only while the block has no
//! operation.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;
use undercroft_cache::placement::{ReloadQueue, WayDown};
use undercroft_cache::{Asker, ClientEviction, Down, Sender};
use undercroft_frames::FrameMut;
use undercroft_nbd::Pieces;

use crate::answer::Failed;
use crate::clock;
use crate::counters::{AwareStats, CooperationStats, Source};
use crate::job::{BlockOp, Job, JobKind};
use crate::shard::content::{Content, Memory, Origin};
use crate::shard::cooperation::{Fate, Reloading};
use crate::shard::watchers::Event;
use crate::shard::{Effects, Shard};

impl Shard {
    /// Notes that a read of a block is served, and places blocks that clients have evicted by now.
    pub(crate) fn noted_read(&mut self, block: u64, fx: &mut Effects) {
        let Some(coop) = self.coop.as_deref_mut() else { return };
        coop.drop_reload(block, ReloadQueue::drop_demanded);
        coop.awaited.forget(block);
        self.place_next(fx);
    }

    /// Notes that a block is about to be written, and places blocks that clients have evicted by
    /// now.
    pub(crate) fn noted_write(&mut self, block: u64, asker: Asker, fx: &mut Effects) {
        self.tell(&Event::Writes { block });
        let Some(coop) = self.coop.as_deref_mut() else { return };
        coop.awaited.writing(block, asker);
        coop.drop_reload(block, ReloadQueue::drop_written);
        coop.void_reload(|reloading| reloading == block);
        let most = self.cache.staging_blocks();
        if most > 0 {
            coop.staged.writing(block, most);
        }
        self.place_next(fx);
    }

    /// A client evicted these blocks, in this order.
    pub(crate) fn evicted(&mut self, gone: &[ClientEviction], sender: Sender, fx: &mut Effects) {
        self.cache.told_evicted(gone, sender);
        self.place_next(fx);
    }

    /// Carries out the level's decisions about blocks that clients evicted.
    fn place_next(&mut self, fx: &mut Effects) {
        while let Some((block, down)) = self.cache.next_placement() {
            self.go_down(block, down, fx);
        }
    }

    /// A client evicted a block and sent its data. The data are used if they equal the volume's
    /// content (`digests.rs`). Otherwise the block is placed when a write brings these data, if
    /// that can be (`awaited.rs`); if not, only the eviction counts.
    pub(crate) fn demoted(&mut self, block: u64, data: &Bytes, sender: Sender, fx: &mut Effects) {
        let proven = self.proven(block, data);
        let Some(coop) = self.coop.as_deref_mut() else { return };
        let gone = ClientEviction { block, evicted_us: sender.arrived_us };
        match proven {
            Ok(digest) => {
                coop.counters.demotions_accepted += 1;
                coop.awaited.forget(block);
                self.take_in(gone, data, digest, sender, fx);
            }
            Err(refusal) => {
                coop.refuse(refusal);
                if self.may_await(block, refusal) {
                    self.await_write(gone, data, sender);
                } else {
                    self.evicted(&[gone], sender, fx);
                }
            }
        }
    }

    /// A client evicted a block. These data of it equal the volume's content, and have this digest.
    pub(crate) fn take_in(
        &mut self,
        gone: ClientEviction,
        data: &Bytes,
        digest: u64,
        sender: Sender,
        fx: &mut Effects,
    ) {
        let block = gone.block;
        if self.active.contains_key(&block) {
            return self.take_in_from_memory(gone, sender, fx);
        }
        if !self.cache.is_last_copy(gone, sender) {
            return;
        }
        match self.cache.handed_over(block) {
            Down::Fetch => {
                let slot = self.arrive_evicted(block, WayDown::Demote, fx);
                let mut frame = self.pool.take();
                if let Some(frame) = &mut frame {
                    frame[..data.len()].copy_from_slice(data);
                }
                self.fill(block, slot, frame, digest);
            }
            down => self.go_down(block, down, fx),
        }
    }

    /// A client evicted a block whose content is in memory, since it is being written out.
    pub(crate) fn take_in_from_memory(
        &mut self,
        gone: ClientEviction,
        sender: Sender,
        fx: &mut Effects,
    ) {
        let block = gone.block;
        if !self.cache.is_last_copy(gone, sender) {
            return;
        }
        match self.cache.handed_over(block) {
            Down::Fetch => {
                self.arrive_evicted(block, WayDown::Demote, fx);
                self.load(block, fx);
            }
            down => self.go_down(block, down, fx),
        }
    }

    /// Makes an evicted block resident whose data are here or about to arrive. Returns its slot.
    fn arrive_evicted(&mut self, block: u64, way: WayDown, fx: &mut Effects) -> u32 {
        let slot = self.cache.arrived(block, way);
        self.leave_evicted(fx);
        self.enter(block, slot);
        self.slots[slot as usize].origin = match way {
            WayDown::Demote => Origin::Demoted,
            WayDown::Reload => Origin::Reloaded,
        };
        slot
    }

    /// Fills the slot of a block without operations, and sets its digest if that is known. If no
    /// memory is left, because clients that do not read their replies hold all frames, the block is
    /// discarded.
    pub(crate) fn fill(&mut self, block: u64, slot: u32, memory: Option<FrameMut>, digest: u64) {
        match memory {
            Some(frame) => {
                self.slots[slot as usize].state.content = Content::Frame(frame.freeze());
                self.tell_filled(block, slot, digest);
            }
            None => {
                self.counters.served_around += 1;
                self.discard(block);
                self.tell(&Event::Gone { block });
            }
        }
    }

    /// Carries out one decision of the level about a block that a client evicted.
    fn go_down(&mut self, block: u64, down: Down, fx: &mut Effects) {
        match down {
            Down::Resident => self.leave_evicted(fx),
            Down::Skip => {
                self.leave_evicted(fx);
                self.tell(&Event::Gone { block });
            }
            Down::Staged(slot) => {
                self.leave_evicted(fx);
                self.enter(block, slot);
                self.fill_staged(block, slot, fx);
            }
            Down::Fetch => {
                let immediate = self.coop.as_deref().is_some_and(|coop| coop.immediate);
                // Data that the store is working on are in memory and need not be read again.
                if immediate || self.active.contains_key(&block) {
                    self.arrive_evicted(block, WayDown::Reload, fx);
                    self.load(block, fx);
                } else if let Some(coop) = self.coop.as_deref_mut() {
                    coop.reloads.push(block);
                    fx.reload = true;
                }
            }
        }
    }

    /// Fills the slot of a block with its staged data.
    pub(crate) fn fill_staged(&mut self, block: u64, slot: u32, fx: &mut Effects) {
        self.slots[slot as usize].origin = Origin::Staged;
        let data = self.staged(block);
        if let Some(coop) = self.coop.as_deref_mut() {
            coop.staged.remove(block);
        }
        match data {
            Some(content) => {
                self.slots[slot as usize].state.content = content;
                let known = self.cache.digest(block);
                self.tell_filled(block, slot, known);
            }
            None => self.load(block, fx),
        }
    }

    /// Fetches the content of a resident block, in order with its other operations.
    fn load(&mut self, block: u64, fx: &mut Effects) {
        let (offset, length) = (self.geometry.start(block), self.geometry.len(block) as u64);
        let job = Arc::new(Job::new(JobKind::Prefetch, offset, length, false, clock::now()));
        job.expect_part(Source::Miss);
        self.enqueue(BlockOp { job: Arc::clone(&job), block }, fx);
        job.submitted(Pieces::default(), None);
    }

    /// The client says that it keeps a block: an exclusive level drops its copy now, as a hit
    /// would.
    pub(crate) fn held(&mut self, block: u64, sender: Sender, fx: &mut Effects) {
        if let Some(coop) = self.coop.as_deref_mut() {
            coop.awaited.forget(block);
        }
        if let Some(left) = self.cache.told_held(block, sender) {
            self.leave(block, left, fx);
        }
    }

    /// The staged data of a block, if it has no operations.
    pub(crate) fn staged(&self, block: u64) -> Option<Content> {
        let frame = self.coop.as_deref()?.staged.get(block).filter(|_| self.is_quiet(block))?;
        Some(Content::Frame(frame.clone()))
    }

    /// A range was changed: the staged data of its blocks are outdated.
    pub(crate) fn staged_is_old(&mut self, blocks: &RangeInclusive<u64>) {
        if let Some(coop) = self.coop.as_deref_mut() {
            coop.staged.changed_within(blocks);
        }
    }

    /// Whether no operation on a block is in progress.
    pub(crate) fn is_quiet(&self, block: u64) -> bool {
        !self.active.contains_key(&block) && !self.ranges.cover(block)
    }

    /// A range is about to change.
    pub(crate) fn noted_range(&mut self, blocks: &RangeInclusive<u64>) {
        self.cache.range_changes(blocks);
        self.tell(&Event::RangeBegins { blocks });
        let Some(coop) = self.coop.as_deref_mut() else { return };
        coop.void_reload(|block| blocks.contains(&block));
        coop.reloads.discard_within(blocks);
        coop.awaited.forget_within(blocks);
        for block in coop.staged.within(blocks) {
            coop.unstage(block, &mut self.cache);
        }
    }

    /// The numbers of these clients, one bit for each, will be given to others: forgets the part
    /// `part` of what is known of them. Returns the number of all parts.
    pub(crate) fn forget_clients(&mut self, gone: u64, part: Range<usize>) -> usize {
        let coop = self.coop.as_deref_mut();
        let awaited = coop.map_or(0, |coop| coop.awaited.forget_clients(gone, part.clone()));
        self.cache.forget_clients(gone, part).max(awaited)
    }

    /// Starts the next useful reload. Returns the block and the memory for it.
    pub(crate) fn begin_reload(&mut self) -> Option<(u64, Memory)> {
        loop {
            let coop = self.coop.as_deref_mut().filter(|coop| coop.reloading.is_none())?;
            let block = coop.reloads.pop()?;
            if self.cache.frame(block).is_some() {
                coop.counters.reloads_resident += 1;
            } else if self.active.contains_key(&block) || self.ranges.cover(block) {
                coop.counters.reloads_busy += 1;
            } else if let Some(frame) = self.pool.take() {
                coop.reloading = Some(Reloading { block, fate: Fate::Wanted });
                return Some((block, Memory::Frame(frame)));
            } else {
                coop.counters.reloads_without_frame += 1;
            }
        }
    }

    /// The running reload ended.
    pub(crate) fn end_reload(&mut self, result: Result<Content, Failed>, fx: &mut Effects) {
        let Some(coop) = self.coop.as_deref_mut() else { return };
        let Some(Reloading { block, fate }) = coop.reloading.take() else { return };
        if fate == Fate::Joined {
            return self.fetched(block, result, fx);
        }
        self.counters.store_reads += 1;
        let content = match (fate, result) {
            (_, Err(_)) => {
                self.counters.read_failures += 1;
                coop.counters.reloads_failed += 1;
                return;
            }
            (Fate::Void, _) => {
                coop.counters.reloads_written += 1;
                return;
            }
            (_, Ok(content)) => content,
        };
        if self.cache.frame(block).is_some() {
            coop.counters.reloads_resident += 1;
            return;
        }
        let slot = self.arrive_evicted(block, WayDown::Reload, fx);
        self.slots[slot as usize].state.content = content;
        self.tell_filled(block, slot, 0);
    }

    /// Whether contents that clients hand over are of use at present.
    pub(crate) fn wants_contents(&self) -> bool {
        self.watchers.digests.is_some() && self.cache.asks_for_contents()
    }

    /// Adds counts from elsewhere.
    pub(crate) fn count_cooperation(&mut self, count: &CooperationStats) {
        match self.coop.as_deref_mut() {
            Some(coop) => coop.counters.sum(count),
            None => self.told.hear(count),
        }
    }

    /// The counters of a content-aware policy, if the policy is one.
    pub(crate) fn aware(&self) -> Option<AwareStats> {
        let is_aware = self.cache.is_content_aware();
        is_aware.then(|| self.told.with(&self.cache.client_counts()))
    }

    /// The counters of cooperation, if it is configured.
    pub(crate) fn cooperation(&self) -> Option<CooperationStats> {
        self.cache.rules()?;
        Some(self.coop.as_deref()?.stats(&self.cache))
    }
}
