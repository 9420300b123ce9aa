//! What a shard keeps below clients that have caches of their own, beside what its level knows:
//! which evicted blocks wait to be read back, and the data of what was written last. What it does
//! with that: `eviction_placement.rs`.

use undercroft_cache::Level;
use undercroft_cache::placement::ReloadQueue;
use undercroft_frames::Pool;

use crate::counters::CooperationStats;
use crate::geometry::Geometry;
use crate::job::{Job, JobKind};
use crate::shard::content::Content;
use crate::shard::staged::Staged;

/// Blocks that wait for a reload at most: one in so many of the cache.
const RELOAD_SHARE: u32 = 8;

/// What a shard needs for eviction-based and global placement beside its level.
pub(crate) struct Cooperation {
    pub(crate) reloads: ReloadQueue,
    /// The reload that is at the store.
    pub(crate) reloading: Option<Reloading>,
    /// Reloads do not wait for idle times.
    pub(crate) immediate: bool,
    pub(crate) staged: Staged,
    pub(crate) counters: CooperationStats,
}

/// A block being read back. Other operations on it do not wait for that.
pub(crate) struct Reloading {
    pub(crate) block: u64,
    pub(crate) fate: Fate,
}

/// What becomes of a reload when its data is here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The block is placed.
    Wanted,
    /// A read was waiting for the block, which takes it over: an active record does what follows.
    Joined,
    /// The block was changed meanwhile: what was read may be old.
    Void,
}

impl Cooperation {
    pub(crate) fn new(capacity: u32, seed: u64, immediate: bool) -> Self {
        Self {
            reloads: ReloadQueue::new((capacity / RELOAD_SHARE).max(1), seed),
            reloading: None,
            immediate,
            staged: Staged::default(),
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

    /// A write failed: what the store has now is not known, and nobody is known to have the same.
    pub(crate) fn write_failed(&mut self, block: u64, level: &mut Level) {
        level.range_changes(&(block..=block));
        self.unstage(block, level);
    }

    /// What is staged of a block is of no use.
    pub(crate) fn unstage(&mut self, block: u64, level: &mut Level) {
        self.staged.remove(block);
        level.unstage(block);
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
    pub(crate) fn void_reload(&mut self, is_changed: impl Fn(u64) -> bool) {
        if let Some(one) = &mut self.reloading {
            if one.fate == Fate::Wanted && is_changed(one.block) {
                one.fate = Fate::Void;
            }
        }
    }

    /// The reloads that wait are useless for the block.
    pub(crate) fn drop_reload(&mut self, block: u64, drop: fn(&mut ReloadQueue, u64)) {
        if !self.reloads.is_empty() {
            drop(&mut self.reloads, block);
        }
    }

    pub(crate) fn stats(&self, level: &Level) -> CooperationStats {
        let (placed, reloads) = (level.placement_counts(), self.reloads.counts());
        let clients = level.client_counts();
        CooperationStats {
            known_evictions: placed.known_evictions,
            foreseen_evictions: placed.foreseen,
            already_resident: placed.already_here,
            reloads: placed.reloads,
            demotions_in: placed.demotions_in,
            staged: placed.staged,
            staged_hits: placed.staged_hits,
            skipped: placed.skipped,
            held_by_others: clients.held_by_others,
            stale_hints: clients.stale_hints,
            ignored_hints: self.counters.ignored_hints + clients.ignored_hints,
            estimate_fallbacks: clients.estimate_fallbacks,
            reloads_queued: reloads.queued,
            reloads_duplicate: reloads.duplicates,
            reloads_demanded: reloads.demanded,
            reloads_written: reloads.written + self.counters.reloads_written,
            reloads_discarded: reloads.discarded,
            reloads_overflowed: reloads.overflowed,
            reloads_waiting: u64::from(self.reloads.len()) + u64::from(self.reloading.is_some()),
            staging_blocks: level.staging_blocks().into(),
            estimated_client_blocks: level.estimated_blocks().into(),
            ..self.counters
        }
    }
}
