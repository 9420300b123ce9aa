//! What a shard below clients with caches of their own knows beside its level: the queue of evicted
//! blocks to be read back, the data of the blocks written last (`staged.rs`), and the evicted
//! blocks whose last write has not arrived yet (`awaited.rs`). It follows what happens to blocks,
//! so that none of these is used after its block has changed.
//!
//! Not here: which block is placed, and how (`place_evicted.rs`).

use std::ops::RangeInclusive;

use undercroft_frames::Pools;
use undercroft_level::placement::ReloadQueue;
use undercroft_level::{Level, Request};

use crate::counters::{CooperationStats, add_named};
use crate::geometry::Geometry;
use crate::job::{Job, JobKind};
use crate::shard::awaited::Awaited;
use crate::shard::content::{Content, Origin};
use crate::shard::digests::Refusal;
use crate::shard::event::Event;
use crate::shard::staged::Staged;

/// The reload queue holds at most the capacity divided by this.
const RELOAD_SHARE: u32 = 8;

/// The watcher for eviction-based and global placement.
pub(crate) struct EvictionPlacement {
    pub(crate) reloads: ReloadQueue,
    /// The reload that the store is working on.
    pub(crate) reloading: Option<Reloading>,
    /// Whether reloads start at once instead of in idle times.
    pub(crate) immediate: bool,
    pub(crate) staged: Staged,
    pub(crate) awaited: Awaited,
    pub(crate) counters: CooperationStats,
}

/// A block that is being read back. Other operations on it do not wait for that.
pub(crate) struct Reloading {
    pub(crate) block: u64,
    pub(crate) state: ReloadState,
}

/// What happens to a reloaded block when its data arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadState {
    /// The block is placed.
    Wanted,
    /// A read of the block waits for the same data: its active record handles the result.
    Joined,
    /// The block was changed meanwhile: the data may be old.
    Void,
}

impl EvictionPlacement {
    pub(crate) fn new(capacity: u32, seed: u64, immediate: bool) -> Self {
        Self {
            reloads: ReloadQueue::new((capacity / RELOAD_SHARE).max(1), seed),
            reloading: None,
            immediate,
            staged: Staged::default(),
            awaited: Awaited::new(capacity),
            counters: CooperationStats::default(),
        }
    }

    #[inline(always)]
    pub(super) fn watch(
        &mut self,
        event: &Event<'_>,
        level: &mut Level,
        pool: &Pools,
        geometry: &Geometry,
    ) {
        match *event {
            Event::Reads { request: &Request { block, .. }, origin, .. } => {
                self.count_hit(origin);
                self.drop_reload(block, ReloadQueue::drop_demanded);
                self.awaited.forget(block);
            }
            Event::Writes { request: &Request { block, asker, .. }, .. } => {
                self.awaited.writing(block, asker);
                self.drop_reload(block, ReloadQueue::drop_written);
                self.void_reload(|reloading| reloading == block);
                let most = level.placement().map_or(0, |placement| placement.staging_blocks());
                if most > 0 {
                    self.staged.writing(block, most);
                }
            }
            Event::Changed { block, job, content }
            | Event::Written { block, job: Some(job), content, is_ok: true } => {
                self.stage(block, job, content, pool, geometry, level);
            }
            // The store's content is unknown: copies that clients hold no longer count.
            Event::Written { block, is_ok: false, .. } => {
                level.clients_mut().forget_within(&(block..=block));
                self.unstage(block, level);
            }
            Event::RangeBegins { blocks } => self.forget_within(blocks, level),
            // Writes that arrived before the range may have ended after it began.
            Event::RangeEnds { blocks, .. } => self.staged.changed_within(blocks),
            Event::ContentsUnknown => self.void_reload(|_| true),
            Event::Entered { .. }
            | Event::Placed { .. }
            | Event::Gone { .. }
            | Event::Returned { .. }
            | Event::Left { .. }
            | Event::Activated { .. }
            | Event::Changes { .. }
            | Event::WritesOut { .. }
            | Event::Written { .. }
            | Event::Unknown { .. }
            | Event::Idle { .. }
            | Event::Filled { .. }
            | Event::Replaces { .. }
            | Event::Slots(_)
            | Event::Replaced => {}
        }
    }

    /// Counts a read hit by why its block is resident.
    fn count_hit(&mut self, origin: Origin) {
        match origin {
            Origin::Used => {}
            Origin::Demoted => self.counters.demoted_hits += 1,
            Origin::Reloaded => self.counters.reloaded_hits += 1,
            Origin::Staged => self.counters.restaged_hits += 1,
        }
    }

    /// Counts contents from a client that are refused.
    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        let counters = &mut self.counters;
        counters.demotions_refused += 1;
        *match refusal {
            Refusal::Malformed => &mut counters.demotions_refused_malformed,
            Refusal::Busy => &mut counters.demotions_refused_busy,
            Refusal::Unknown => &mut counters.demotions_refused_unknown,
            Refusal::Changed => &mut counters.demotions_refused_changed,
        } += 1;
    }

    /// An operation of `job` has taken effect. If it was a write of a block that the level's
    /// staging area names, the block's content is staged.
    fn stage(
        &mut self,
        block: u64,
        job: &Job,
        content: &Content,
        pool: &Pools,
        geometry: &Geometry,
        level: &mut Level,
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
            None => self.unstage(block, level),
        }
    }

    /// A range is about to change.
    fn forget_within(&mut self, blocks: &RangeInclusive<u64>, level: &mut Level) {
        self.void_reload(|block| blocks.contains(&block));
        self.reloads.discard_within(blocks);
        self.awaited.forget_within(blocks);
        for block in self.staged.within(blocks) {
            self.unstage(block, level);
        }
    }

    /// Drops the staged data of a block.
    fn unstage(&mut self, block: u64, level: &mut Level) {
        self.staged.remove(block);
        level.placement_mut().into_iter().for_each(|placement| placement.unstage(block));
    }

    /// Whether the block is being read back.
    pub(super) fn is_reloading(&self, block: u64) -> bool {
        self.reloading.as_ref().is_some_and(|reloading| reloading.block == block)
    }

    /// Drops the reloads that are queued. Returns whether one is running.
    pub(super) fn stop_reloads(&mut self) -> bool {
        while self.reloads.pop().is_some() {}
        self.reloading.is_some()
    }

    /// Checks the queues, and that a joined reload has somebody who waits; `is_fetched`: whether
    /// the operations on a block wait for its content.
    pub(super) fn validate(&self, is_fetched: impl Fn(u64) -> bool) -> Result<(), String> {
        self.reloads.validate()?;
        self.awaited.validate()?;
        match self.reloading {
            Some(Reloading { block, state: ReloadState::Joined }) if !is_fetched(block) => {
                Err(format!("block {block}: a reload was joined by nobody"))
            }
            _ => Ok(()),
        }
    }

    /// Lets a read of the block use the reload that is running for it. Returns whether there was
    /// one.
    pub(crate) fn join_reload(&mut self, block: u64) -> bool {
        let reloading = self.reloading.as_mut();
        let Some(one) =
            reloading.filter(|one| one.block == block && one.state == ReloadState::Wanted)
        else {
            return false;
        };
        one.state = ReloadState::Joined;
        self.counters.reloads_joined += 1;
        true
    }

    /// Marks the running reload as void if its block has changed.
    fn void_reload(&mut self, is_changed: impl Fn(u64) -> bool) {
        if let Some(one) = &mut self.reloading {
            if one.state == ReloadState::Wanted && is_changed(one.block) {
                one.state = ReloadState::Void;
            }
        }
    }

    /// Removes the block from the reload queue by `drop`.
    fn drop_reload(&mut self, block: u64, drop: fn(&mut ReloadQueue, u64)) {
        if !self.reloads.is_empty() {
            drop(&mut self.reloads, block);
        }
    }

    pub(crate) fn stats(&self, level: &Level) -> CooperationStats {
        let Some(placement) = level.placement() else { return self.counters };
        let (placed, reloads) = (placement.counts(), self.reloads.counts());
        let clients = level.clients().counts();
        let mut stats = CooperationStats {
            foreseen_evictions: placed.foreseen,
            already_resident: placed.already_here,
            demotions_awaiting: self.awaited.len() as u64,
            reloads_queued: reloads.queued,
            reloads_duplicate: reloads.duplicates,
            reloads_demanded: reloads.demanded,
            reloads_written: reloads.written + self.counters.reloads_written,
            reloads_discarded: reloads.discarded,
            reloads_overflowed: reloads.overflowed,
            reloads_waiting: u64::from(self.reloads.len()) + u64::from(self.reloading.is_some()),
            staging_blocks: placement.staging_blocks().into(),
            shards_by_eviction: placement.places_evicted().into(),
            contents_percent_sum: (100.0 * placement.contents_share()).round() as u64,
            estimated_client_blocks: level.clients().estimated_blocks().into(),
            ..self.counters
        };
        add_named!(stats += placed: known_evictions reloads demotions_in staged staged_hits
            skipped);
        add_named!(stats += clients: held_by_others stale_hints ignored_hints estimate_fallbacks);
        stats
    }
}
