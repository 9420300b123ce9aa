//! A cache below a client's cache: what it does with a read, a write, and the news that the client
//! evicted a block, under eviction-based and global placement. Like everything in the engine it
//! does no I/O: it says what to do, and is told when that is done.
//!
//! What comes from where:
//! * eviction-based placement: USENIX 2003 and TPDS 2004, section 6. A missed block goes to the
//!   client and takes no room here; it comes when the client evicts it, from disk (`Reload`) or
//!   from the client (`Demote`). With `OnHit::Move` a read that hits gives the block up.
//! * a write updates the copy that is here. It neither places nor touches it, and no time passes
//!   for the policy.
//! * the staging area and relative thresholds are ours.
//!
//! A global hierarchy of n levels is n - 1 of these below the first: each but the lowest hands what
//! it evicts to the one below.

use std::sync::Arc;

use super::adaptive::Adaptive;
use super::rules::{Eviction, OnHit, Placement, PlacementError, Threshold, WayDown};
use super::staging::StagingArea;
use crate::hashed::{Evicted, Found, Frame, HashedCache, Resident};
use crate::level::{Counts, WriteMode};
use crate::policy::{Context, Entry, Spec};
use crate::recent::Recent;

/// What a counted reference met, and left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referred {
    /// Whether the data was here. If so, and the block had no frame, it was in the staging area.
    pub hit: bool,
    /// The frame that the block had. If it has it no longer, it is free from now on: deliver from
    /// it before another block gets it.
    pub before: Option<Frame>,
    /// The frame that the block has now; to be filled if it had none before.
    pub now: Option<Frame>,
}

/// What to do about a block that the client evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// Nothing: it is here already, and has become the newest.
    Resident,
    /// It was placed in this frame; fill it from the staging area, which gave it up.
    Staged(Frame),
    /// Its data is needed: read it from disk when there is time, or take what the client sends, and
    /// then call [`LowerLevel::arrived`].
    Fetch,
    /// Nothing: it is not worth a reload.
    Skip,
}

/// What a lower level counted, beside its [`Counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementCounts {
    /// Evictions by the client that became known.
    pub known_evictions: u64,
    /// Evictions that were foreseen, as too late to become known in time.
    pub foreseen: u64,
    /// Of those, blocks that were here.
    pub already_here: u64,
    /// Blocks read from disk because the client evicted them.
    pub reloads: u64,
    /// Blocks that the client sent down.
    pub demotions_in: u64,
    /// Blocks placed from the staging area: reloads saved.
    pub staged: u64,
    /// Reads served from the staging area; also among the read hits.
    pub staged_hits: u64,
    /// Evicted blocks that were not worth a reload.
    pub skipped: u64,
}

/// A cache below a client's, with its placement and its counters.
pub struct LowerLevel {
    cache: HashedCache,
    rules: Eviction,
    mode: WriteMode,
    /// How often the blocks of late were read or written; only where a threshold asks for it.
    accesses: Option<Recent<u8>>,
    staging: StagingArea,
    adaptive: Option<Adaptive>,
    counts: Counts,
    placed: PlacementCounts,
}

/// Blocks whose accesses are remembered, times the capacity: the residents, and four times as many
/// others as ghost memories have.
const REMEMBERED: u32 = 5;

impl LowerLevel {
    /// An empty cache of `capacity` blocks with a policy. `seed` makes the index unpredictable for
    /// clients that choose the block numbers; it changes nothing else.
    ///
    /// # Errors
    /// The placement is access-based, which is what a [`Level`](crate::Level) does; or it does not
    /// go together with the policy; or the policy cannot be had.
    pub fn new(
        spec: &Spec,
        capacity: u32,
        placement: &Placement,
        mode: WriteMode,
        seed: u64,
    ) -> Result<Self, PlacementError> {
        placement.check_policy(spec.info().name)?;
        let rules = match *placement {
            Placement::Access => {
                let why = "placement access needs no lower level of this kind";
                return Err(PlacementError(why.into()));
            }
            Placement::Eviction(eviction) => eviction,
            Placement::Global(order) => {
                let (on_hit, down) = (OnHit::Move, WayDown::Demote);
                Eviction { on_hit, down, order, ..Eviction::default() }
            }
        };
        let policy = spec.build(&Context::new(capacity));
        let policy = policy.map_err(|error| PlacementError(error.to_string()))?;
        let is_adaptive = rules.on_hit == OnHit::Adaptive;
        let counts_accesses =
            !matches!(rules.threshold, Threshold::Accesses(0 | 1)) && rules.down == WayDown::Reload;
        let remembered = capacity.saturating_mul(REMEMBERED);
        Ok(Self {
            cache: HashedCache::new(policy, seed),
            rules,
            mode,
            accesses: counts_accesses.then(|| Recent::new(remembered, seed)),
            staging: StagingArea::new(rules.staging, capacity, seed),
            adaptive: is_adaptive.then(|| Adaptive::new(spec, capacity, seed)).transpose()?,
            counts: Counts::default(),
            placed: PlacementCounts::default(),
        })
    }

    /// The client asks for a block; `cold`: it is known that nobody referenced it before.
    pub fn read(&mut self, block: u64, cold: bool) -> Referred {
        self.count_access(block);
        let staged = self.staging.holds(block);
        let resident = self.cache.resident(block, None);
        let before = resident.map(|resident| resident.frame);
        let hit = before.is_some() || staged;
        self.counts.reads += 1;
        self.counts.cold_reads += u64::from(cold);
        self.counts.read_hits += u64::from(hit);
        self.placed.staged_hits += u64::from(staged && before.is_none());
        if self.adaptive.as_mut().is_some_and(|adaptive| adaptive.read(block)) {
            let found = self.cache.access(block);
            self.counts.evictions += self.cache.evicted().len() as u64;
            self.staging.forget(block);
            return Referred { hit, before, now: Some(found.frame) };
        }
        match resident {
            Some(resident) if self.rules.on_hit == OnHit::Keep => {
                self.cache.touch_resident(resident);
                return Referred { hit, before, now: before };
            }
            Some(resident) => self.cache.take_resident(resident),
            None => self.cache.note(block),
        }
        Referred { hit, before, now: None }
    }

    /// After a read: the next block that is taken to have been evicted though nothing says so. Call
    /// it until there is none, and do what [`evicted`](Self::evicted) says of each.
    #[inline]
    pub fn foreseen(&mut self) -> Option<(u64, Down)> {
        let block = self.adaptive.as_mut()?.foreseen()?;
        self.cache.clear_evicted();
        self.placed.foreseen += 1;
        let resident = self.cache.resident(block, None);
        Some((block, self.descend(block, resident)))
    }

    /// The client writes a block. A copy is to be updated, unless [`WriteMode::Invalidate`] has
    /// given it up.
    pub fn write(&mut self, block: u64) -> Referred {
        self.cache.clear_evicted();
        self.count_access(block);
        let before = self.cache.frame(block);
        let hit = before.is_some();
        self.counts.writes += 1;
        self.counts.write_hits += u64::from(hit);
        if self.mode == WriteMode::Invalidate {
            self.staging.forget(block);
            self.cache.discard(block);
            return Referred { hit, before, now: None };
        }
        self.staging.write(block);
        Referred { hit, before, now: before }
    }

    /// A reference of a client that says nothing of its evictions, and is served as if placement
    /// were access-based.
    pub fn access(&mut self, block: u64, is_write: bool, cold: bool) -> Referred {
        if is_write && self.mode != WriteMode::Allocate {
            return self.write(block);
        }
        self.count_access(block);
        // Resident from now on, so its data need not be staged too.
        let staged = self.staging.take(block) && !is_write;
        let found = self.cache.access(block);
        self.counts.evictions += self.cache.evicted().len() as u64;
        let hit = found.hit || staged;
        if is_write {
            self.counts.writes += 1;
            self.counts.write_hits += u64::from(hit);
        } else {
            self.counts.reads += 1;
            self.counts.read_hits += u64::from(hit);
            self.counts.cold_reads += u64::from(cold);
            self.placed.staged_hits += u64::from(staged && !found.hit);
        }
        let before = Some(found.frame).filter(|_| found.hit);
        Referred { hit, before, now: Some(found.frame) }
    }

    /// It became known that the client evicted a block: what to do.
    pub fn evicted(&mut self, block: u64) -> Down {
        self.evicted_at(block, None)
    }

    /// Takes in that the client evicted many blocks, up to the first of which there is something
    /// left to do: how many that are, and what to do about the last of them. `found`: where
    /// [`find_all`](Self::find_all) found each, which spares looking for it.
    pub fn evicted_all(
        &mut self,
        blocks: &[u64],
        found: &[Option<Entry>],
    ) -> Option<(usize, Down)> {
        let mut done = 0;
        while done < blocks.len() {
            let (left, its) = (&blocks[done..], &found[done..]);
            let placed = self.cache.place_all(left, its);
            self.note_here(&left[..placed]);
            done += placed;
            if !self.cache.evicted().is_empty() {
                return Some((done, Down::Resident));
            }
            if let (Some(&block), Some(&at)) = (left.get(placed), its.get(placed)) {
                done += 1;
                let down = self.evicted_at(block, at);
                if down != Down::Resident || !self.cache.evicted().is_empty() {
                    return Some((done, down));
                }
            }
        }
        None
    }

    /// The client evicted blocks that are here: what that means beside their places in the cache.
    fn note_here(&mut self, blocks: &[u64]) {
        self.placed.known_evictions += blocks.len() as u64;
        self.placed.already_here += blocks.len() as u64;
        if let Some(adaptive) = &mut self.adaptive {
            blocks.iter().for_each(|&block| _ = adaptive.evicted(block));
        }
        if !self.staging.is_empty() {
            blocks.iter().for_each(|&block| _ = self.staging.take(block));
        }
    }

    #[inline(always)]
    fn evicted_at(&mut self, block: u64, at: Option<Entry>) -> Down {
        self.cache.clear_evicted();
        self.placed.known_evictions += 1;
        let is_wanted = self.adaptive.as_mut().is_none_or(|adaptive| adaptive.evicted(block));
        let resident = self.cache.resident(block, at);
        if !is_wanted && resident.is_none() {
            self.placed.skipped += 1;
            return Down::Skip;
        }
        self.descend(block, resident)
    }

    #[inline(always)]
    fn descend(&mut self, block: u64, resident: Option<Resident>) -> Down {
        let staged = self.staging.take(block);
        if let Some(resident) = resident {
            self.placed.already_here += 1;
            self.cache.place_resident(resident);
            Down::Resident
        } else if staged {
            self.placed.staged += 1;
            Down::Staged(self.place(block).frame)
        } else if self.rules.down == WayDown::Reload && !self.is_worth_a_reload(block) {
            self.placed.skipped += 1;
            Down::Skip
        } else {
            Down::Fetch
        }
    }

    /// The data of an evicted block is here, in which way: places it. Not to be called if the
    /// client has asked for the block again, or written it, since [`Down::Fetch`].
    pub fn arrived(&mut self, block: u64, way: WayDown) -> Found {
        match way {
            WayDown::Reload => self.placed.reloads += 1,
            WayDown::Demote => self.placed.demotions_in += 1,
        }
        self.place(block)
    }

    fn place(&mut self, block: u64) -> Found {
        let found = self.cache.place(block);
        self.counts.evictions += self.cache.evicted().len() as u64;
        found
    }

    /// Places a block that somebody will want soon, unless it is here: no access and no eviction
    /// of the client.
    pub fn fetch_ahead(&mut self, block: u64) -> Found {
        self.place(block)
    }

    /// The client says that it keeps a block: an exclusive cache gives it up, with its history
    /// kept. The frame that it had.
    pub fn held(&mut self, block: u64) -> Option<Frame> {
        let gives_up = self.rules.on_hit == OnHit::Move;
        if gives_up { self.cache.take(block) } else { None }
    }

    /// The data that was staged of a block is no longer good, or was never whole.
    pub fn unstage(&mut self, block: u64) {
        self.staging.forget(block);
    }

    /// What the last call drove out, in order.
    pub fn driven_out(&self) -> &[Evicted] {
        self.cache.evicted()
    }

    /// Forgets a block entirely (TRIM): the frame that it had.
    pub fn discard(&mut self, block: u64) -> Option<Frame> {
        self.staging.forget(block);
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.forget(block);
        }
        self.cache.discard(block)
    }

    #[inline]
    fn count_access(&mut self, block: u64) {
        if let Some(count) = self.accesses.as_mut().and_then(|accesses| accesses.touch(block)) {
            *count = count.saturating_add(1);
        }
    }

    fn is_worth_a_reload(&self, block: u64) -> bool {
        let Some(accesses) = &self.accesses else { return true };
        let count = |block| accesses.get(block).unwrap_or(0);
        match self.rules.threshold {
            Threshold::Accesses(least) => u32::from(count(block)) >= least,
            Threshold::Relative(factor) => match self.cache.victim() {
                Some(victim) => f64::from(count(block)) >= factor * f64::from(count(victim)),
                None => true,
            },
        }
    }

    /// Forgets the counts, not the content: the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.counts.restart();
        self.placed = PlacementCounts::default();
    }

    /// What was counted as at every level.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What the placement counted.
    pub fn placement_counts(&self) -> &PlacementCounts {
        &self.placed
    }

    /// Blocks that the staging area may hold at present, beside the capacity.
    pub fn staging_blocks(&self) -> u32 {
        self.staging.size()
    }

    /// The blocks and their policy.
    pub fn cache(&self) -> &HashedCache {
        &self.cache
    }

    /// Finds blocks, and brings near what [`evicted_all`](Self::evicted_all) will need of them:
    /// see [`HashedCache::find_all`].
    pub fn find_all(&self, blocks: &[u64], found: &mut Vec<Option<Entry>>) {
        self.cache.find_all(blocks, found);
    }

    /// Brings near what references to these blocks will need: see [`HashedCache::warm`].
    pub fn warm(&mut self, blocks: &[u64], frames: &mut Vec<Frame>) {
        self.cache.warm(blocks, frames);
    }

    /// Goes on with the blocks and the policy of a saved cache of the same kind and capacity.
    pub fn take_on(&mut self, cache: HashedCache) {
        self.cache = cache;
    }

    /// Whether evicted blocks come with their data.
    pub fn receives_data(&self) -> bool {
        self.rules.down == WayDown::Demote
    }

    /// The rules that it works by.
    pub fn rules(&self) -> &Eviction {
        &self.rules
    }

    /// Recounts everything.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.accesses.as_ref().map_or(Ok(()), Recent::check)?;
        self.staging.check()?;
        self.adaptive.as_ref().map_or(Ok(()), Adaptive::check)?;
        self.cache.validate()
    }

    /// As [`read`](Self::read), while another client has the block too: what is here stays.
    pub fn read_shared(&mut self, block: u64, cold: bool) -> Referred {
        let on_hit = std::mem::replace(&mut self.rules.on_hit, OnHit::Keep);
        let read = self.read(block, cold);
        self.rules.on_hit = on_hit;
        read
    }

    /// Changes the capacity, at least 1, while running: [`driven_out`](Self::driven_out) says what
    /// had to go. The staging area and the memory of accesses stay as they were made.
    pub fn resize(&mut self, capacity: u32) {
        self.cache.resize(capacity);
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.resize(capacity);
        }
        self.counts.evictions += self.cache.evicted().len() as u64;
    }

    /// The blocks are numbered anew, and these are their names: where blocks are sampled, it is by
    /// their names, so that a simulation samples those that a server does.
    pub fn name_blocks(&mut self, names: Arc<[u64]>) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.name_blocks(names);
        }
    }

    /// From now on evicted blocks come this way.
    pub fn set_way_down(&mut self, down: WayDown) {
        self.rules.down = down;
    }
}

#[cfg(test)]
mod tests;
