//! What a shard does below a client that has a cache of its own: whose read it is, what comes down
//! when the client evicts a block, from where, and what waits to be read back.
//!
//! Safety: content enters a slot in four ways only. Through the queue of the block, in order with
//! all other operations; from a reload that nobody interfered with ([`Reloading`]); from a write
//! that ended well and was the last one (`staged.rs`); from a client whose data is proved to be
//! what the volume holds (`digests.rs`). The last three only while nothing is going on with the
//! block.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use undercroft_cache::placement::{Down, LowerLevel, ReloadQueue, Standing, WayDown};
use undercroft_frames::FrameMut;
use undercroft_nbd::Pieces;

use crate::answer::Failed;
use crate::clients::Caller;
use crate::clock;
use crate::content::{Content, Memory};
use crate::cooperation::{Asker, Fate, Gone, Reloading, Word};
use crate::counters::{AwareStats, CooperationStats, Source};
use crate::job::{BlockOp, Job, JobKind};
use crate::shard::{Effects, Shard};

impl Shard {
    /// Whether a caller is served as if placement were access-based: nothing says what it evicts,
    /// or where that is emulated, the emulation is not good enough.
    pub(crate) fn goes_by_access(&mut self, caller: Caller) -> bool {
        let Some(coop) = self.coop.as_deref_mut() else { return true };
        if caller.tells {
            return false;
        }
        let Some(estimator) = &coop.estimator else { return true };
        let by_access = !estimator.is_confident();
        coop.counters.estimate_fallbacks += u64::from(by_access);
        by_access
    }

    /// Notes that a read of a block, `is_whole` or in part, is about to be served.
    #[inline]
    pub(crate) fn noted_delivery(&mut self, block: u64, is_whole: bool, asker: Asker) {
        let Some(coop) = self.coop.as_deref_mut() else { return };
        coop.deliveries.read(block, asker.caller.client, is_whole, asker.now_us, asker.connected);
    }

    /// Notes that a read of a block is served, and places what has left the client by now.
    pub(crate) fn noted_read(&mut self, block: u64, asker: Asker, fx: &mut Effects) {
        let Some(coop) = self.coop.as_deref_mut() else { return };
        coop.drop_reload(block, ReloadQueue::drop_demanded);
        coop.emulate(block, false, asker);
        self.place_inferred(asker, fx);
    }

    /// Notes that a block is about to be written, `is_whole` or in part.
    pub(crate) fn noted_write(
        &mut self,
        block: u64,
        is_whole: bool,
        asker: Asker,
        fx: &mut Effects,
    ) {
        self.strike_digest(block);
        let Some(coop) = self.coop.as_deref_mut() else { return };
        coop.deliveries.write(block, asker.caller.client, is_whole, asker.now_us);
        coop.drop_reload(block, ReloadQueue::drop_written);
        coop.void_reload(|reloading| reloading == block);
        if let Some(level) = self.cache.below() {
            let most = level.staging_blocks();
            if most > 0 {
                coop.staged.writing(block, most);
            }
        }
        coop.emulate(block, true, asker);
        self.place_inferred(asker, fx);
    }

    /// Places what nothing says has been evicted, and what is taken to have been.
    fn place_inferred(&mut self, asker: Asker, fx: &mut Effects) {
        while let Some((block, down)) = self.cache.below().and_then(LowerLevel::foreseen) {
            self.go_down(block, down, fx);
        }
        let Some(coop) = self.coop.as_deref_mut() else { return };
        if coop.inferred.is_empty() {
            return;
        }
        let mut inferred = std::mem::take(&mut coop.inferred);
        for block in inferred.drain(..).filter(|_| !asker.by_access) {
            if let Some(down) = self.cache.below().map(|level| level.evicted(block)) {
                self.go_down(block, down, fx);
            }
        }
        if let Some(coop) = self.coop.as_deref_mut() {
            coop.inferred = inferred;
        }
    }

    /// A client evicted blocks, in this order. All are judged and looked up before the first one is
    /// placed, so that the processor overlaps its waits for memory.
    pub(crate) fn evicted(&mut self, gone: &[Gone], word: Word, fx: &mut Effects) {
        if self.cache.aware().is_some() {
            return self.heard_evicted(gone, word);
        }
        let Some(coop) = self.coop.as_deref_mut() else { return };
        let mut near = std::mem::take(&mut self.near);
        coop.keep_last_held(gone, word, &mut near.blocks);
        if let Some(level) = self.cache.below() {
            level.find_all(&near.blocks, &mut near.found);
        }
        let (mut blocks, mut found) = (&near.blocks[..], &near.found[..]);
        while let Some((count, down)) =
            self.cache.below().and_then(|level| level.evicted_all(blocks, found))
        {
            self.go_down(blocks[count - 1], down, fx);
            (blocks, found) = (&blocks[count..], &found[count..]);
        }
        self.near = near;
    }

    /// A client evicted blocks of a volume whose policy is content-aware: the policy hears of it.
    fn heard_evicted(&mut self, gone: &[Gone], word: Word) {
        let Some(lower) = self.cache.aware() else { return };
        let Word { client, connected, .. } = word;
        self.near.blocks.clear();
        self.near.blocks.extend(gone.iter().map(|gone| gone.block));
        lower.cache().find_all(&self.near.blocks, &mut self.near.found);
        for &Gone { block, evicted_us } in gone {
            match lower.evicted(block, client, evicted_us, connected) {
                Standing::Last => {}
                Standing::HeldByOthers => self.told.held_by_others += 1,
                Standing::Stale => self.told.stale_hints += 1,
            }
        }
    }

    /// A client evicted a clean block and sent it. It is taken if it is what the volume holds
    /// (`digests.rs`). Otherwise only that it was evicted counts.
    pub(crate) fn demoted(&mut self, block: u64, data: &Bytes, word: Word, fx: &mut Effects) {
        let proven = self.proven(block, data);
        let Some(coop) = self.coop.as_deref_mut() else { return };
        let gone = Gone { block, evicted_us: word.arrived_us };
        let Some(digest) = proven else {
            coop.counters.demotions_refused += 1;
            return self.evicted(&[gone], word, fx);
        };
        coop.counters.demotions_accepted += 1;
        if !coop.is_last_holder(gone, word) {
            return;
        }
        let Some(level) = self.cache.below() else { return };
        match level.evicted(block) {
            Down::Fetch => {
                let found = level.arrived(block, WayDown::Demote);
                self.leave_evicted(fx);
                self.enter(block, found.frame);
                let mut frame = self.pool.take();
                if let Some(frame) = &mut frame {
                    frame[..data.len()].copy_from_slice(data);
                }
                self.fill(block, found.frame, frame, digest);
            }
            down => self.go_down(block, down, fx),
        }
    }

    /// Puts content into the slot of a block that nothing is going on with, and its digest beside
    /// it, if that is known. Without memory the block loses its place: clients that do not take
    /// their replies hold all frames.
    pub(crate) fn fill(&mut self, block: u64, slot: u32, memory: Option<FrameMut>, digest: u64) {
        match memory {
            Some(frame) => {
                self.slots[slot as usize].state.content = Content::Frame(frame.freeze());
                self.prove_slot(block, slot, digest);
            }
            None => {
                self.counters.served_around += 1;
                self.discard(block);
                self.is_gone(block);
            }
        }
    }

    /// Does what the engine says about a block that a client evicted.
    fn go_down(&mut self, block: u64, down: Down, fx: &mut Effects) {
        match down {
            Down::Resident => self.leave_evicted(fx),
            Down::Skip => {
                self.leave_evicted(fx);
                self.is_gone(block);
            }
            Down::Staged(slot) => {
                self.leave_evicted(fx);
                self.enter(block, slot);
                self.fill_staged(block, slot, fx);
            }
            Down::Fetch => {
                let immediate = self.coop.as_deref().is_some_and(|coop| coop.immediate);
                // What is on its way to the store is here and need not be read from there.
                if immediate || self.active.contains_key(&block) {
                    if let Some(level) = self.cache.below() {
                        let found = level.arrived(block, WayDown::Reload);
                        self.leave_evicted(fx);
                        self.enter(block, found.frame);
                        self.load(block, fx);
                    }
                } else if let Some(coop) = self.coop.as_deref_mut() {
                    coop.reloads.push(block);
                    fx.reload = true;
                }
            }
        }
    }

    /// The slot of a block gets what is staged of it.
    pub(crate) fn fill_staged(&mut self, block: u64, slot: u32, fx: &mut Effects) {
        let data = self.staged(block);
        if let Some(coop) = self.coop.as_deref_mut() {
            coop.staged.remove(block);
        }
        match data {
            Some(content) => {
                self.slots[slot as usize].state.content = content;
                let known = self.coop.as_deref().map_or(0, |coop| coop.deliveries.digest(block));
                self.prove_slot(block, slot, known);
            }
            None => self.load(block, fx),
        }
    }

    /// Gets the content of a resident block, in order with what is going on with it.
    fn load(&mut self, block: u64, fx: &mut Effects) {
        let (offset, length) = (self.geometry.start(block), self.geometry.len(block) as u64);
        let job = Arc::new(Job::new(JobKind::Prefetch, offset, length, false, clock::now()));
        job.expect_part(Source::Miss);
        self.enqueue(BlockOp { job: Arc::clone(&job), block }, fx);
        job.submitted(Pieces::default(), None);
    }

    /// The client says that it keeps a block: where a hit would give the copy up, this does. Of a
    /// block that was neither delivered to it nor written by it, it cannot know.
    pub(crate) fn held(&mut self, block: u64, word: Word, fx: &mut Effects) {
        if let Some(lower) = self.cache.aware() {
            return lower.held(block, word.client, word.arrived_us);
        }
        let Some(coop) = self.coop.as_deref_mut() else { return };
        if !coop.deliveries.is_held_by(block, word.client) {
            coop.counters.ignored_hints += 1;
            return;
        }
        if let Some(left) = self.cache.below().and_then(|level| level.held(block)) {
            self.leave(block, left, fx);
        }
    }

    /// What is staged of a block, if nothing is going on with it.
    pub(crate) fn staged(&self, block: u64) -> Option<Content> {
        let frame = self.coop.as_deref()?.staged.get(block).filter(|_| self.is_quiet(block))?;
        Some(Content::Frame(frame.clone()))
    }

    /// A range was changed: what is staged of its blocks is of no use.
    pub(crate) fn staged_is_old(&mut self, blocks: &RangeInclusive<u64>) {
        if let Some(coop) = self.coop.as_deref_mut() {
            coop.staged.changed_within(blocks);
        }
    }

    /// Whether nothing is going on with a block.
    pub(crate) fn is_quiet(&self, block: u64) -> bool {
        !self.active.contains_key(&block) && !self.ranges.cover(block)
    }

    /// A range is about to change.
    pub(crate) fn noted_range(&mut self, blocks: &RangeInclusive<u64>) {
        if let Some(lower) = self.cache.aware() {
            lower.forget_within(blocks);
        }
        self.strike_digests(blocks);
        let Some(coop) = self.coop.as_deref_mut() else { return };
        coop.deliveries.forget_within(blocks);
        coop.void_reload(|block| blocks.contains(&block));
        coop.reloads.discard_within(blocks);
        for block in coop.staged.within(blocks) {
            coop.unstage(block, &mut self.cache);
        }
        self.level_range();
    }

    /// The bit of a client goes to another one.
    pub(crate) fn forget_client(&mut self, client: u8) {
        if let Some(lower) = self.cache.aware() {
            lower.forget_client(client);
        }
        if let Some(coop) = self.coop.as_deref_mut() {
            coop.deliveries.forget_client(client);
        }
        self.forget_upper(client);
    }

    /// Begins the next reload that is worth it: the block and the memory for it.
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

    /// The reload at the store ended.
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
        let Some(level) = self.cache.below() else { return };
        let found = level.arrived(block, WayDown::Reload);
        self.leave_evicted(fx);
        self.enter(block, found.frame);
        self.slots[found.frame as usize].state.content = content;
        self.prove_slot(block, found.frame, 0);
    }

    /// Adds what was counted elsewhere.
    pub(crate) fn count_cooperation(&mut self, count: &CooperationStats) {
        if let Some(coop) = self.coop.as_deref_mut() {
            coop.counters.sum(count);
        } else if self.cache.aware().is_some() {
            self.told.hear(count);
        }
    }

    /// What a content-aware policy counted.
    pub(crate) fn aware(&mut self) -> Option<AwareStats> {
        let told = self.told;
        self.cache.aware().map(|lower| told.with(&lower.counts()))
    }

    /// What cooperation counted, where there is any.
    pub(crate) fn cooperation(&mut self) -> Option<CooperationStats> {
        let level = self.cache.below()?;
        Some(self.coop.as_deref()?.stats(level))
    }
}
