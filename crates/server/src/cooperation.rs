//! What a shard knows below clients that have caches of their own: who was given what, which
//! evicted blocks wait to be read back, and what was written last. What it does with that:
//! `cooperate.rs`.

use undercroft_cache::placement::{Deliveries, Estimator, LowerLevel, ReloadQueue, Standing};
use undercroft_frames::Pool;

use crate::clients::Caller;
use crate::content::Content;
use crate::counters::CooperationStats;
use crate::directory::Directory;
use crate::geometry::Geometry;
use crate::job::{Job, JobKind};
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
    /// A bit for each client that is connected.
    pub(crate) connected: u64,
    /// Whether it is served as if placement were access-based.
    pub(crate) by_access: bool,
}

/// A client's word about its cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) client: u8,
    /// When it arrived, in microseconds since the volume was opened.
    pub(crate) arrived_us: u64,
    /// A bit for each client that is connected.
    pub(crate) connected: u64,
}

/// A block that a client evicted, and when at the latest, on the same clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone {
    pub(crate) block: u64,
    pub(crate) evicted_us: u64,
}

/// What a shard needs for eviction-based and global placement beside its directory.
pub(crate) struct Cooperation {
    pub(crate) deliveries: Deliveries,
    pub(crate) reloads: ReloadQueue,
    /// The reload that is at the store.
    pub(crate) reloading: Option<Reloading>,
    /// Reloads do not wait for idle times.
    pub(crate) immediate: bool,
    pub(crate) staged: Staged,
    /// Emulates the clients that tell nothing, all as one.
    pub(crate) estimator: Option<Estimator>,
    pub(crate) inferred: Vec<u64>,
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

    /// Keeps digests of what was delivered: for contents that clients hand over.
    pub(crate) fn with_digests(self) -> Self {
        Self { deliveries: self.deliveries.with_digests(), ..self }
    }

    /// A client says that it evicted a block: whether it held it last, as far as is known.
    #[inline]
    pub(crate) fn is_last_holder(&mut self, gone: Gone, word: Word) -> bool {
        let Word { client, connected, .. } = word;
        match self.deliveries.evict(gone.block, client, gone.evicted_us, connected) {
            Standing::Last => return true,
            Standing::HeldByOthers => self.counters.held_by_others += 1,
            Standing::Stale => self.counters.stale_hints += 1,
        }
        false
    }

    /// A client says that it evicted blocks: `last` are those of them that it held last, in order.
    pub(crate) fn keep_last_held(&mut self, gone: &[Gone], word: Word, last: &mut Vec<u64>) {
        let Self { deliveries, counters, .. } = self;
        last.clear();
        last.reserve(gone.len());
        let said = gone.iter().map(|gone| (gone.block, gone.evicted_us));
        deliveries.evict_all(said, word.client, word.connected, |block, standing| match standing {
            Standing::Last => last.push(block),
            Standing::HeldByOthers => counters.held_by_others += 1,
            Standing::Stale => counters.stale_hints += 1,
        });
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
    pub(crate) fn unstage(&mut self, block: u64, directory: &mut Directory) {
        self.staged.remove(block);
        if let Some(level) = directory.below() {
            level.unstage(block);
        }
    }

    /// Goes on with the emulation of the clients that tell nothing.
    pub(crate) fn emulate(&mut self, block: u64, is_write: bool, asker: Asker) {
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
            reloads_waiting: u64::from(self.reloads.len()) + u64::from(self.reloading.is_some()),
            staging_blocks: level.staging_blocks().into(),
            estimated_client_blocks: estimate.map_or(0, |e| e.size().into()),
            ..self.counters
        }
    }
}
