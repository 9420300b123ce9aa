//! What a shard does below a client that has a cache of its own: whose read it is, what comes down
//! when the client evicts a block, from where, and what waits to be read back.
//!
//! Safety: content enters a slot in four ways only. Through the queue of the block, in order with
//! all other operations; from a reload that nobody interfered with ([`Reloading`]); from a write
//! that ended well and was the last one ([`Staged`]); from a client that must have what the store
//! has ([`Shard::demoted`]). The last three only while nothing is going on with the block.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use undercroft_cache::placement::{
    Deliveries, Down, Estimator, LowerLevel, ReloadQueue, Standing, WayDown,
};
use undercroft_frames::{FrameMut, Pool};
use undercroft_nbd::Pieces;

use crate::answer::Failed;
use crate::clients::Caller;
use crate::content::{Content, Memory, Running};
use crate::counters::{CooperationStats, Source};
use crate::directory::Directory;
use crate::geometry::Geometry;
use crate::job::{BlockOp, Job, JobKind};
use crate::shard::{Effects, Shard};
use crate::staged::Staged;

/// Blocks that wait for a reload at most: one in so many of the cache.
const RELOAD_SHARE: u32 = 8;

/// A client that is emulated may have at least so many blocks, and as many as the cache.
const ESTIMATED_MIN: u32 = 1 << 16;

/// Who refers to a block, and when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asker {
    pub(crate) caller: Caller,
    /// Microseconds since the volume was opened.
    pub(crate) now_us: u64,
    /// Whether it is served as if placement were access-based.
    pub(crate) by_access: bool,
}

/// A client's word about its cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) client: u8,
    /// When it arrived, and when what it tells happened, in microseconds since the volume was
    /// opened.
    pub(crate) arrived_us: u64,
    pub(crate) evicted_us: u64,
    /// A bit for each client that is connected.
    pub(crate) connected: u64,
}

/// What a shard needs for eviction-based and global placement beside its directory.
pub(crate) struct Cooperation {
    deliveries: Deliveries,
    reloads: ReloadQueue,
    /// The reload that is at the store.
    reloading: Option<Reloading>,
    /// Reloads do not wait for idle times.
    immediate: bool,
    staged: Staged,
    /// Emulates the clients that tell nothing, all as one.
    estimator: Option<Estimator>,
    inferred: Vec<u64>,
    pub(crate) counters: CooperationStats,
}

/// A block being read back. Other operations on it do not wait for that.
struct Reloading {
    block: u64,
    fate: Fate,
}

/// What becomes of a reload when its data is here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The block is placed.
    Wanted,
    /// A read was waiting for the block, which takes it over: an active record does what follows.
    Joined,
    /// The block was changed meanwhile: what was read may be old.
    Void,
}

impl Cooperation {
    pub(crate) fn new(capacity: u32, seed: u64, immediate: bool, estimate: bool) -> Self {
        Self {
            deliveries: Deliveries::new(capacity, seed),
            reloads: ReloadQueue::new((capacity / RELOAD_SHARE).max(1), seed),
            reloading: None,
            immediate,
            staged: Staged::default(),
            estimator: estimate.then(|| Estimator::new(capacity.max(ESTIMATED_MIN), seed)),
            inferred: Vec::new(),
            counters: CooperationStats::default(),
        }
    }

    /// An operation of the job took effect: if it was a write that the engine's staging area
    /// names, what is in the block now is staged.
    pub(crate) fn stage(
        &mut self,
        block: u64,
        job: &Job,
        content: &Content,
        pool: &Pool,
        geometry: &Geometry,
        directory: &mut Directory,
    ) {
        if !matches!(job.kind, JobKind::Write(_) | JobKind::Zero) || !self.staged.awaits(block) {
            return;
        }
        let (from, to) = job.span(block, geometry);
        let is_whole = to - from == geometry.len(block);
        let frame = match content {
            Content::Frame(frame) => Some(frame.clone()),
            _ if is_whole => pool.take().map(|mut frame| {
                job.copy_to(geometry.start(block), &mut frame[..to]);
                frame.freeze()
            }),
            _ => None,
        };
        match frame {
            Some(frame) => self.staged.written(block, frame),
            None => self.unstage(block, directory),
        }
    }

    /// A write failed: what the store has now is not known, and nobody is known to have the same.
    pub(crate) fn write_failed(&mut self, block: u64, directory: &mut Directory) {
        self.deliveries.forget_within(&(block..=block));
        self.unstage(block, directory);
    }

    /// What is staged of a block is of no use.
    fn unstage(&mut self, block: u64, directory: &mut Directory) {
        self.staged.remove(block);
        if let Some(level) = directory.below() {
            level.unstage(block);
        }
    }

    /// Goes on with the emulation of the clients that tell nothing.
    fn emulate(&mut self, block: u64, is_write: bool, asker: Asker) {
        if let (Some(estimator), false) = (&mut self.estimator, asker.caller.tells) {
            estimator.observe(block, is_write, &mut self.inferred);
        }
    }

    /// Whether a read of the block can take over its reload, which it does then.
    pub(crate) fn join_reload(&mut self, block: u64) -> bool {
        let reloading = self.reloading.as_mut();
        let Some(one) = reloading.filter(|one| one.block == block && one.fate == Fate::Wanted)
        else {
            return false;
        };
        one.fate = Fate::Joined;
        self.counters.reloads_joined += 1;
        true
    }

    /// What the reload at the store brings of these blocks is of no use any more.
    fn void_reload(&mut self, is_changed: impl Fn(u64) -> bool) {
        if let Some(one) = &mut self.reloading {
            if one.fate == Fate::Wanted && is_changed(one.block) {
                one.fate = Fate::Void;
            }
        }
    }

    /// The reloads that wait are useless for the block.
    fn drop_reload(&mut self, block: u64, drop: fn(&mut ReloadQueue, u64)) {
        if !self.reloads.is_empty() {
            drop(&mut self.reloads, block);
        }
    }

    pub(crate) fn stats(&self, level: &LowerLevel) -> CooperationStats {
        let (placed, reloads) = (level.placement_counts(), self.reloads.counts());
        let estimate = self.estimator.as_ref();
        CooperationStats {
            known_evictions: placed.known_evictions,
            foreseen_evictions: placed.foreseen,
            already_resident: placed.already_here,
            reloads: placed.reloads,
            demotions_in: placed.demotions_in,
            staged: placed.staged,
            staged_hits: placed.staged_hits,
            skipped: placed.skipped,
            reloads_queued: reloads.queued,
            reloads_duplicate: reloads.duplicates,
            reloads_demanded: reloads.demanded,
            reloads_written: reloads.written + self.counters.reloads_written,
            reloads_discarded: reloads.discarded,
            reloads_overflowed: reloads.overflowed,
            reloads_waiting: reloads_waiting(&self.reloads, self.reloading.as_ref()),
            staging_blocks: level.staging_blocks().into(),
            estimated_client_blocks: estimate.map_or(0, |e| e.size().into()),
            ..self.counters
        }
    }
}

fn reloads_waiting(queue: &ReloadQueue, at_store: Option<&Reloading>) -> u64 {
    u64::from(queue.len()) + u64::from(at_store.is_some())
}

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

    /// Notes that a read of a block, `is_whole` or in part, is served, and places what has left the client by now.
    pub(crate) fn noted_read(
        &mut self,
        block: u64,
        is_whole: bool,
        asker: Asker,
        fx: &mut Effects,
    ) {
        let Some(coop) = self.coop.as_deref_mut() else { return };
        coop.deliveries.read(block, asker.caller.client, is_whole, asker.now_us);
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

    /// A client evicted a block.
    pub(crate) fn evicted(&mut self, block: u64, word: Word, fx: &mut Effects) {
        if self.is_last_holder(block, word) {
            if let Some(down) = self.cache.below().map(|level| level.evicted(block)) {
                self.go_down(block, down, fx);
            }
        }
    }

    fn is_last_holder(&mut self, block: u64, word: Word) -> bool {
        let Some(coop) = self.coop.as_deref_mut() else { return false };
        let Word { client, evicted_us, connected, .. } = word;
        match coop.deliveries.evict(block, client, evicted_us, connected) {
            Standing::Last => true,
            Standing::HeldByOthers => {
                coop.counters.held_by_others += 1;
                false
            }
            Standing::Stale => {
                coop.counters.stale_hints += 1;
                false
            }
        }
    }

    /// A client evicted a clean block and sent it. It is taken if the client must have what the
    /// store has: it got the block from here or wrote it, nobody changed it since, and no change
    /// is under way. Otherwise only that it was evicted counts.
    pub(crate) fn demoted(&mut self, block: u64, data: &Bytes, word: Word, fx: &mut Effects) {
        let is_quiet = !self.active.contains_key(&block) && !self.ranges.cover(block);
        let length = self.geometry.len(block);
        let Some(coop) = self.coop.as_deref_mut() else { return };
        let is_current = coop.deliveries.may_take(block, word.client, word.arrived_us);
        if !(is_quiet && is_current && data.len() == length) {
            coop.counters.demotions_refused += 1;
            return self.evicted(block, word, fx);
        }
        coop.counters.demotions_accepted += 1;
        if !self.is_last_holder(block, word) {
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
                    frame[..length].copy_from_slice(data);
                }
                self.fill(block, found.frame, frame);
            }
            down => self.go_down(block, down, fx),
        }
    }

    /// Puts content into the slot of a block that nothing is going on with. Without memory the
    /// block loses its place: clients that do not take their replies hold all frames.
    fn fill(&mut self, block: u64, slot: u32, memory: Option<FrameMut>) {
        match memory {
            Some(frame) => self.slots[slot as usize].state.content = Content::Frame(frame.freeze()),
            None => {
                self.counters.served_around += 1;
                self.cache.discard(block);
            }
        }
    }

    /// Does what the engine says about a block that a client evicted.
    fn go_down(&mut self, block: u64, down: Down, fx: &mut Effects) {
        match down {
            Down::Resident | Down::Skip => self.leave_evicted(fx),
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
            Some(content) => self.slots[slot as usize].state.content = content,
            None => self.load(block, fx),
        }
    }

    /// Gets the content of a resident block, in order with what is going on with it.
    fn load(&mut self, block: u64, fx: &mut Effects) {
        let (offset, length) = (self.geometry.start(block), self.geometry.len(block) as u64);
        let job = Arc::new(Job::new(JobKind::Prefetch, offset, length, false, Instant::now()));
        job.expect_part(Source::Miss);
        self.enqueue(BlockOp { job: Arc::clone(&job), block }, fx);
        job.submitted(Pieces::default(), None);
    }

    /// The client says that it keeps a block: where a hit would give the copy up, this does.
    pub(crate) fn held(&mut self, block: u64, fx: &mut Effects) {
        if let Some(left) = self.cache.below().and_then(|level| level.held(block)) {
            self.leave(block, left, fx);
        }
    }

    /// What is staged of a block, if nothing is going on with it.
    pub(crate) fn staged(&mut self, block: u64) -> Option<Content> {
        let is_quiet = !self.active.contains_key(&block) && !self.ranges.cover(block);
        let frame = self.coop.as_deref()?.staged.get(block).filter(|_| is_quiet)?;
        Some(Content::Frame(frame.clone()))
    }

    /// A range is about to change.
    pub(crate) fn noted_range(&mut self, blocks: &RangeInclusive<u64>) {
        let Some(coop) = self.coop.as_deref_mut() else { return };
        coop.deliveries.forget_within(blocks);
        coop.void_reload(|block| blocks.contains(&block));
        coop.reloads.discard_within(blocks);
        for block in coop.staged.within(blocks) {
            coop.unstage(block, &mut self.cache);
        }
    }

    /// The bit of a client goes to another one.
    pub(crate) fn forget_client(&mut self, client: u8) {
        if let Some(coop) = self.coop.as_deref_mut() {
            coop.deliveries.forget_client(client);
        }
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
    }

    /// Adds what was counted elsewhere.
    pub(crate) fn count_cooperation(&mut self, count: &CooperationStats) {
        if let Some(coop) = self.coop.as_deref_mut() {
            coop.counters.sum(count);
        }
    }

    /// What cooperation counted, where there is any.
    pub(crate) fn cooperation(&mut self) -> Option<CooperationStats> {
        let level = self.cache.below()?;
        Some(self.coop.as_deref()?.stats(level))
    }

    /// Checks what concerns placement: a reload at the store is for a block that nothing else is
    /// going on with, or whose record waits for it.
    pub(crate) fn validate_cooperation(&self) -> Result<(), String> {
        let Some(coop) = self.coop.as_deref() else { return Ok(()) };
        coop.deliveries.validate()?;
        coop.reloads.validate()?;
        let Some(Reloading { block, fate }) = &coop.reloading else { return Ok(()) };
        let waits = self.active.get(block).is_some_and(|r| r.running == Running::Fetch);
        if *fate == Fate::Joined && !waits {
            return Err(format!("block {block}: a reload was joined by nobody"));
        }
        Ok(())
    }
}
