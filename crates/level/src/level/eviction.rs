//! Placement at eviction: what a level does with reads, writes and evictions by the client, under
//! eviction-based and global placement.
//!
//! Sources:
//! * eviction-based placement: USENIX 2003 and TPDS 2004, section 6. A missed block goes to the
//!   client and takes no room here. It is placed when the client evicts it, from disk (`Reload`) or
//!   from the client (`Demote`). With `OnHit::Move` a read hit removes the block.
//! * a write updates the copy here. It neither places nor touches the block, and the policy's time
//!   does not advance.
//! * the staging area, relative thresholds, and placement that learns (`adaptive.rs`) are ours.
//!
//! Not here: the blocks and their policy, which belong to the [level](super::Level), and the
//! knowledge of the clients (`clients.rs`).

use std::sync::Arc;

use super::WriteMode;
use super::adaptive::{Adaptive, Offer};
use super::staging::StagingArea;
use crate::bounded_lru_map::BoundedLruMap;
use crate::hashed::{Frame, HashedCache, Referred, Resident};
use crate::placement::{DataSource, Eviction, OnHit, PlacementError, Threshold};
use undercroft_policy::{Entry, Spec};

/// What to do about a block that the client evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementStep {
    /// Nothing: the block is here already, and has become the newest.
    Resident,
    /// The block was placed in this frame. Fill the frame from the staging area, which gave the
    /// block up.
    Staged(Frame),
    /// The data is needed: read it from disk when there is time, or take it from the client; then
    /// call [`Level::arrived`](super::Level::arrived).
    Fetch,
    /// Nothing: the block is not worth a reload.
    Skip,
}

/// The counts of placement at eviction, beside the usual [`Counts`](undercroft_policy::Counts) of
/// its level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementCounts {
    /// Evictions by the client that became known.
    pub known_evictions: u64,
    /// Evictions that were predicted, since they would become known too late.
    pub foreseen: u64,
    /// Known or predicted evictions of blocks that were here already.
    pub already_here: u64,
    /// Blocks read from disk because the client evicted them.
    pub reloads: u64,
    /// Blocks that the client sent down.
    pub demotions_in: u64,
    /// Blocks placed from the staging area: reloads saved.
    pub staged: u64,
    /// Reads served from the staging area; also among the read hits.
    pub staged_hits: u64,
    /// Evicted blocks that were not placed.
    pub skipped: u64,
}

impl PlacementCounts {
    /// The sums of two counts.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            known_evictions: self.known_evictions + other.known_evictions,
            foreseen: self.foreseen + other.foreseen,
            already_here: self.already_here + other.already_here,
            reloads: self.reloads + other.reloads,
            demotions_in: self.demotions_in + other.demotions_in,
            staged: self.staged + other.staged,
            staged_hits: self.staged_hits + other.staged_hits,
            skipped: self.skipped + other.skipped,
        }
    }
}

/// The placement of a level that places blocks when clients evict them.
pub struct EvictionPlacement {
    rules: Eviction,
    mode: WriteMode,
    /// How often recent blocks were read or written; only if a threshold needs it.
    accesses: Option<BoundedLruMap<u8>>,
    staging: StagingArea,
    adaptive: Option<Adaptive>,
    placed: PlacementCounts,
}

impl EvictionPlacement {
    /// For a level of `capacity` blocks with the policy `spec`. `seed` makes the indexes
    /// unpredictable for clients that choose the block numbers; it changes nothing else.
    ///
    /// # Errors
    /// The policy cannot be made.
    pub(super) fn new(
        spec: &Spec,
        capacity: u32,
        rules: Eviction,
        mode: WriteMode,
        seed: u64,
    ) -> Result<Self, PlacementError> {
        let is_adaptive = rules.on_hit == OnHit::Adaptive;
        let adaptive = || Adaptive::new(spec, capacity, rules.is_auto, seed);
        let counted = rules.counted(capacity);
        Ok(Self {
            rules,
            mode,
            accesses: (counted > 0).then(|| BoundedLruMap::new(counted, seed)),
            staging: StagingArea::new(rules.staging, capacity, seed),
            adaptive: is_adaptive.then(adaptive).transpose()?,
            placed: PlacementCounts::default(),
        })
    }

    /// The client reads a block. `cold`: the block is known never to have been referenced before.
    pub(super) fn read(&mut self, cache: &mut HashedCache, block: u64, cold: bool) -> Referred {
        self.count_access(block);
        let staged = self.staging.holds(block);
        let resident = cache.resident(block, None);
        let before = resident.map(|resident| resident.frame);
        let hit = before.is_some() || staged;
        cache.count_read(hit, cold);
        self.placed.staged_hits += u64::from(staged && before.is_none());
        if self.adaptive.as_mut().is_some_and(|adaptive| adaptive.read(block)) {
            let found = cache.access(block);
            if !self.is_auto() {
                self.staging.forget(block);
            }
            return Referred { hit, before, now: Some(found.frame) };
        }
        match resident {
            Some(resident) if self.rules.on_hit == OnHit::Keep => {
                cache.touch_resident(resident);
                return Referred { hit, before, now: before };
            }
            Some(resident) => cache.take_resident(resident),
            None => cache.note(block),
        }
        Referred { hit, before, now: None }
    }

    /// The client reads a block that another client has too: a copy here stays.
    pub(super) fn read_shared(
        &mut self,
        cache: &mut HashedCache,
        block: u64,
        cold: bool,
    ) -> Referred {
        let on_hit = std::mem::replace(&mut self.rules.on_hit, OnHit::Keep);
        let read = self.read(cache, block, cold);
        self.rules.on_hit = on_hit;
        read
    }

    /// The next block whose eviction is predicted, though not known, and what to do about it.
    #[inline]
    pub(super) fn foreseen(&mut self, cache: &mut HashedCache) -> Option<(u64, PlacementStep)> {
        let block = self.adaptive.as_mut()?.foreseen()?;
        cache.clear_evicted();
        self.placed.foreseen += 1;
        let resident = cache.resident(block, None);
        let has_contents = self.rules.down == DataSource::Demote && !self.is_auto();
        Some((block, self.descend(cache, block, resident, has_contents)))
    }

    /// The client writes a block. Update the copy, unless [`WriteMode::Invalidate`] removed it.
    pub(super) fn write(&mut self, cache: &mut HashedCache, block: u64) -> Referred {
        cache.clear_evicted();
        self.count_access(block);
        let before = cache.frame(block);
        let hit = before.is_some();
        cache.count_write(hit);
        if self.mode == WriteMode::Invalidate {
            self.staging.forget(block);
            cache.discard(block);
            return Referred { hit, before, now: None };
        }
        self.staging.write(block);
        let is_placed = self.mode == WriteMode::Allocate
            && self.adaptive.as_mut().is_some_and(|adaptive| adaptive.written(block));
        let now = if is_placed { Some(cache.access(block).frame) } else { before };
        Referred { hit, before, now }
    }

    /// A reference of a client that does not tell its evictions: it is served with access-based
    /// placement. With `auto` the counts are those of a level with that placement.
    pub(super) fn access(
        &mut self,
        cache: &mut HashedCache,
        block: u64,
        is_write: bool,
        cold: bool,
    ) -> Referred {
        if self.is_auto() {
            self.staging.forget(block);
            return cache.reference(block, is_write, self.mode, || cold);
        }
        if is_write && self.mode != WriteMode::Allocate {
            return self.write(cache, block);
        }
        self.count_access(block);
        // The block is resident from now on, so its data need not be staged too.
        let staged = self.staging.take(block) && !is_write;
        let found = cache.access(block);
        let hit = found.hit || staged;
        if is_write {
            cache.count_write(hit);
        } else {
            cache.count_read(hit, cold);
            self.placed.staged_hits += u64::from(staged && !found.hit);
        }
        let before = Some(found.frame).filter(|_| found.hit);
        Referred { hit, before, now: Some(found.frame) }
    }

    /// An eviction by the client became known. Returns what to do. `is_handed_over`: the block's
    /// contents are here.
    pub(super) fn evicted(
        &mut self,
        cache: &mut HashedCache,
        block: u64,
        is_handed_over: bool,
    ) -> PlacementStep {
        self.evicted_at(cache, block, None, is_handed_over)
    }

    /// Handles evictions in order, up to the first that leaves the caller something to do. Returns
    /// how many were handled, and what to do about the last of them. `found`: where
    /// [`HashedCache::find_all`] found each block, which saves the look-up.
    pub(super) fn evicted_all(
        &mut self,
        cache: &mut HashedCache,
        blocks: &[u64],
        found: &[Option<Entry>],
    ) -> Option<(usize, PlacementStep)> {
        let mut done = 0;
        while done < blocks.len() {
            let (left, its) = (&blocks[done..], &found[done..]);
            let placed = cache.place_all(left, its);
            self.note_here(&left[..placed]);
            done += placed;
            if !cache.evicted().is_empty() {
                return Some((done, PlacementStep::Resident));
            }
            if let (Some(&block), Some(&at)) = (left.get(placed), its.get(placed)) {
                done += 1;
                let step = self.evicted_at(cache, block, at, false);
                if step != PlacementStep::Resident || !cache.evicted().is_empty() {
                    return Some((done, step));
                }
            }
        }
        None
    }

    /// Notes evictions of resident blocks, apart from their places in the cache.
    fn note_here(&mut self, blocks: &[u64]) {
        self.placed.known_evictions += blocks.len() as u64;
        self.placed.already_here += blocks.len() as u64;
        if let Some(adaptive) = &mut self.adaptive {
            for &block in blocks {
                let is_staged = self.staging.holds(block);
                adaptive.evicted(block, Offer { has_contents: false, is_staged });
                adaptive.placed(block, false);
            }
        }
        if !self.staging.is_empty() {
            blocks.iter().for_each(|&block| _ = self.staging.take(block));
        }
    }

    #[inline(always)]
    fn evicted_at(
        &mut self,
        cache: &mut HashedCache,
        block: u64,
        at: Option<Entry>,
        is_handed_over: bool,
    ) -> PlacementStep {
        cache.clear_evicted();
        self.placed.known_evictions += 1;
        let has_contents = is_handed_over || self.rules.down == DataSource::Demote;
        let is_wanted = match &mut self.adaptive {
            None => true,
            Some(adaptive) => {
                let is_staged = self.staging.holds(block);
                adaptive.evicted(block, Offer { has_contents, is_staged })
            }
        };
        let resident = cache.resident(block, at);
        if !is_wanted && resident.is_none() {
            if self.is_auto() {
                // The staging area learns its size from all evictions.
                self.staging.take(block);
            }
            self.placed.skipped += 1;
            return PlacementStep::Skip;
        }
        self.descend(cache, block, resident, has_contents)
    }

    #[inline(always)]
    fn descend(
        &mut self,
        cache: &mut HashedCache,
        block: u64,
        resident: Option<Resident>,
        has_contents: bool,
    ) -> PlacementStep {
        let staged = self.staging.take(block);
        if let Some(resident) = resident {
            self.placed.already_here += 1;
            self.note_placed(block, false);
            cache.place_resident(resident);
            PlacementStep::Resident
        } else if staged {
            self.placed.staged += 1;
            self.note_placed(block, false);
            PlacementStep::Staged(cache.place(block).frame)
        } else if self.is_worth_fetching(cache, block, has_contents) {
            PlacementStep::Fetch
        } else {
            self.placed.skipped += 1;
            PlacementStep::Skip
        }
    }

    fn is_worth_fetching(&self, cache: &HashedCache, block: u64, has_contents: bool) -> bool {
        match &self.adaptive {
            Some(adaptive) if adaptive.is_auto() => has_contents || adaptive.is_worth_a_reload(),
            _ => self.rules.down == DataSource::Demote || self.is_above_threshold(cache, block),
        }
    }

    /// Tells what learns that an evicted block was placed.
    fn note_placed(&mut self, block: u64, is_reloaded: bool) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.placed(block, is_reloaded);
        }
    }

    /// The data of an evicted block arrived, and it is placed.
    pub(super) fn arrived(&mut self, block: u64, way: DataSource) {
        self.note_placed(block, way == DataSource::Reload);
        match way {
            DataSource::Reload => self.placed.reloads += 1,
            DataSource::Demote => self.placed.demotions_in += 1,
        }
    }

    /// The client reports that it holds a block: an exclusive cache removes it and keeps its
    /// history. Returns the frame that it had.
    pub(super) fn held(&self, cache: &mut HashedCache, block: u64) -> Option<Frame> {
        let gives_up = self.rules.on_hit == OnHit::Move;
        if gives_up { cache.take(block) } else { None }
    }

    /// Removes the data of a block from the staging area, since it is stale or incomplete.
    pub fn unstage(&mut self, block: u64) {
        self.staging.forget(block);
    }

    /// Forgets a block entirely (TRIM).
    pub(super) fn discard(&mut self, block: u64) {
        self.staging.forget(block);
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.forget(block);
        }
    }

    #[inline]
    fn count_access(&mut self, block: u64) {
        if let Some(count) = self.accesses.as_mut().and_then(|accesses| accesses.touch(block)) {
            *count = count.saturating_add(1);
        }
    }

    fn is_above_threshold(&self, cache: &HashedCache, block: u64) -> bool {
        let Some(accesses) = &self.accesses else { return true };
        let count = |block| accesses.get(block).unwrap_or(0);
        match self.rules.threshold {
            Threshold::Accesses(least) => u32::from(count(block)) >= least,
            Threshold::Relative(factor) => match cache.victim() {
                Some(victim) => f64::from(count(block)) >= factor * f64::from(count(victim)),
                None => true,
            },
        }
    }

    /// Resets the counts, at the end of a warm-up.
    pub(super) fn restart_counts(&mut self) {
        self.placed = PlacementCounts::default();
    }

    /// The counts so far.
    pub fn counts(&self) -> PlacementCounts {
        self.placed
    }

    /// Blocks that the staging area may hold now, beside the capacity.
    pub fn staging_blocks(&self) -> u32 {
        self.staging.size()
    }

    fn is_auto(&self) -> bool {
        self.adaptive.as_ref().is_some_and(Adaptive::is_auto)
    }

    /// Whether blocks that clients evict are placed at present: not while placement that adapts
    /// places them at the access.
    pub fn places_evicted(&self) -> bool {
        !self.adaptive.as_ref().is_some_and(Adaptive::is_by_access)
    }

    /// Whether contents of blocks that clients evict are of use at present: to place the blocks, or
    /// for `auto` to learn how many come with contents.
    pub fn asks_for_contents(&self) -> bool {
        let auto = self.adaptive.as_ref().filter(|adaptive| adaptive.is_auto());
        auto.is_none_or(Adaptive::asks_for_contents)
    }

    /// The share of evictions that come with contents when these are asked for, from 0 to 1, as far
    /// as `auto` has counted; otherwise 0.
    pub fn contents_share(&self) -> f64 {
        self.adaptive.as_ref().map_or(0.0, Adaptive::contents_share)
    }

    /// Sets the share of time, from 0 to 1, in which clients keep the store of this level busy, for
    /// `auto`. Until it is set, the store counts as always busy.
    pub fn set_store_busy(&mut self, share: f64) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.set_store_busy(share);
        }
    }

    /// The rules of the placement.
    pub fn rules(&self) -> &Eviction {
        &self.rules
    }

    /// Goes on with the counts of the rules before.
    pub(super) fn count_on(&mut self, before: &Self) {
        self.placed = before.placed;
    }

    /// Changes the capacity. The staging area and the memory of accesses keep their sizes.
    pub(super) fn resize(&mut self, capacity: u32) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.resize(capacity);
        }
    }

    /// Sets the real numbers of renumbered blocks: see
    /// [`Level::number_blocks`](super::Level::number_blocks).
    pub(super) fn name_blocks(&mut self, names: Arc<[u64]>) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.name_blocks(names);
        }
    }

    /// Sets how evicted blocks come down.
    pub fn set_way_down(&mut self, down: DataSource) {
        self.rules.down = down;
    }

    /// Recounts everything.
    pub(super) fn validate(&self) -> Result<(), String> {
        self.accesses.as_ref().map_or(Ok(()), BoundedLruMap::check)?;
        self.staging.check()?;
        self.adaptive.as_ref().map_or(Ok(()), Adaptive::check)
    }
}

#[cfg(test)]
mod tests;
