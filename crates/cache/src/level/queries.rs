//! The state of a level: which blocks it holds, its parts, its counts.

use super::clients::Clients;
use super::eviction::EvictionPlacement;
use super::{BelowCounts, ClientCounts, Counts, Knowledge, Level, PlacementCounts};
use crate::hashed::{Frame, HashedCache};
use crate::placement::{DataSource, Eviction, OnHit, Placement, PlacementError};
use crate::policy::{Awareness, Spec};

impl Level {
    /// The frame of a resident block.
    #[inline]
    pub fn frame(&self, block: u64) -> Option<Frame> {
        self.cache.frame(block)
    }

    /// Capacity in blocks.
    pub fn capacity(&self) -> u32 {
        self.cache.policy().capacity()
    }

    /// Number of resident blocks.
    pub fn len(&self) -> u32 {
        self.cache.policy().len()
    }

    /// Whether no block is resident.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The resident blocks with their frames.
    pub fn residents(&self) -> Vec<(u64, Frame)> {
        self.cache.residents()
    }

    /// The resident blocks whose handle numbers are in a range, and the end of all handle numbers:
    /// see [`HashedCache::residents_within`].
    pub fn residents_within(&self, part: std::ops::Range<u32>) -> (Vec<(u64, Frame)>, u32) {
        (self.cache.residents_within(part), self.cache.handles())
    }

    /// Prefetches what references to these blocks will need, best if they come in this order, so
    /// that the processor's cache misses overlap. The frames of resident blocks are appended to
    /// `frames`.
    pub fn prefetch(&mut self, blocks: &[u64], frames: &mut Vec<Frame>) {
        self.cache.warm(blocks, frames);
        if let Some(clients) = &self.clients {
            clients.prefetch(blocks);
        }
    }

    /// Changes the capacity, at least 1, at run time. [`evicted`](Self::evicted) has the blocks
    /// that had to go.
    pub fn resize(&mut self, capacity: u32) {
        self.cache.resize(capacity);
        if let Some(placement) = &mut self.placement {
            placement.resize(capacity);
        }
    }

    /// Changes policy and placement at run time. The resident blocks stay in their frames, in the
    /// order in which the old policy would have evicted them; [`evicted`](Self::evicted) has those
    /// that the new one does not keep. `knowledge`: what the level is to know of its clients, if
    /// anything; what it knows already stays. The level's counts go on, and those of placement at
    /// eviction if it stays.
    ///
    /// # Errors
    /// A policy is content-aware, or policy and placement do not fit together: nothing has changed
    /// then.
    pub fn replace(
        &mut self,
        spec: &Spec,
        placement: &Placement,
        knowledge: Option<Knowledge>,
        seed: u64,
    ) -> Result<(), PlacementError> {
        let capacity = self.capacity();
        if self.cache.is_aware() || Awareness::of(spec).is_some() {
            let what = "a content-aware policy cannot be replaced at run time";
            return Err(PlacementError(what.to_owned()));
        }
        let next = Self::new(spec, capacity, placement, self.mode, seed)?;
        self.cache.replace_policy(next.cache.into_policy());
        let before = std::mem::replace(&mut self.placement, next.placement);
        if let (Some(now), Some(before)) = (&mut self.placement, before) {
            now.count_on(&before);
        }
        self.pending.clear();
        self.clients = knowledge.map(|knowledge| {
            let known = self.clients.take();
            known.unwrap_or_else(|| Box::new(Clients::new(capacity, None, knowledge, seed)))
        });
        Ok(())
    }

    // ------------------------------------------------------------------ its parts

    /// The blocks and their policy.
    pub fn cache(&self) -> &HashedCache {
        &self.cache
    }

    /// Tells a content-aware policy whether the neighbouring cache holds a block. For simulations,
    /// which know it exactly.
    pub fn neighbour_holds(&mut self, block: u64, holds: bool) {
        self.cache.neighbour_holds(block, holds);
    }

    /// Whether renumbered blocks need their [real numbers](Self::number_blocks): the policy hashes
    /// them, or the placement samples them.
    pub fn needs_names(&self) -> bool {
        let samples = self.rules().is_some_and(|rules| rules.on_hit == OnHit::Adaptive);
        samples || self.cache.hashes_blocks()
    }

    /// Whether the policy is content-aware: it prefers victims that the neighbouring cache holds.
    ///
    /// If the neighbour is the cache below, reference a missing block when its reply has come: what
    /// the cache below holds then decides the victim.
    pub fn is_content_aware(&self) -> bool {
        self.cache.is_aware()
    }

    /// Continues with the blocks and the policy of a saved level of the same kind and capacity.
    pub fn restore(&mut self, saved: HashedCache) {
        self.cache = saved;
        if let Some(clients) = &mut self.clients {
            clients.restored(&self.cache);
        }
    }

    /// The rules of placement at eviction, if the level uses it.
    pub fn rules(&self) -> Option<&Eviction> {
        self.placement.as_ref().map(EvictionPlacement::rules)
    }

    /// Whether blocks that clients evict are placed at present: not while placement that adapts
    /// places them at the access.
    pub fn places_evicted(&self) -> bool {
        self.placement.as_ref().is_some_and(EvictionPlacement::places_evicted)
    }

    /// Whether contents of blocks that clients evict are of use at present: to place the blocks, or
    /// for `auto` to learn how many come with contents.
    pub fn asks_for_contents(&self) -> bool {
        self.placement.as_ref().is_some_and(EvictionPlacement::asks_for_contents)
    }

    /// The share of evictions that come with contents when these are asked for, from 0 to 1, as far
    /// as `auto` has counted; otherwise 0.
    pub fn contents_share(&self) -> f64 {
        self.placement.as_ref().map_or(0.0, EvictionPlacement::contents_share)
    }

    /// Sets the share of time, from 0 to 1, in which clients keep the store of this level busy, for
    /// `auto`. Until it is set, the store counts as always busy.
    pub fn set_store_busy(&mut self, share: f64) {
        if let Some(placement) = &mut self.placement {
            placement.set_store_busy(share);
        }
    }

    /// Takes memory for `known` blocks at once, resident and remembered by the policy, so that no
    /// array is larger than it must be. It changes nothing else.
    pub fn make_room(&mut self, known: u32) {
        self.cache.make_room(known);
    }

    /// Number of blocks that were known at once, resident or remembered by the policy.
    pub fn known_most(&self) -> u32 {
        self.cache.handles()
    }

    /// Sets how evicted blocks come down.
    pub fn set_way_down(&mut self, down: DataSource) {
        if let Some(placement) = &mut self.placement {
            placement.set_way_down(down);
        }
    }

    /// Blocks that the staging area may hold now, beside the capacity.
    pub fn staging_blocks(&self) -> u32 {
        self.placement.as_ref().map_or(0, EvictionPlacement::staging_blocks)
    }

    /// Blocks that the emulated clients are believed to hold; 0 without an emulation.
    pub fn estimated_blocks(&self) -> u32 {
        self.clients.as_ref().map_or(0, |clients| clients.estimated_blocks())
    }

    /// What decides now which block leaves, if the level's policy chooses among several ways.
    pub fn leader(&self) -> Option<&'static str> {
        self.cache.policy().leader()
    }

    // ------------------------------------------------------------------ counts

    /// The usual counts of a level.
    pub fn counts(&self) -> &Counts {
        self.cache.counts()
    }

    /// The counts of placement at eviction; all 0 without it.
    pub fn placement_counts(&self) -> PlacementCounts {
        self.placement.as_ref().map(|placement| *placement.counts()).unwrap_or_default()
    }

    /// The counts of the knowledge of clients; all 0 without any.
    pub fn client_counts(&self) -> ClientCounts {
        self.clients.as_ref().map(|clients| clients.counts()).unwrap_or_default()
    }

    /// The counts of the knowledge of the cache below; all 0 without any.
    pub fn below_counts(&self) -> BelowCounts {
        self.below.as_ref().map(|below| below.counts()).unwrap_or_default()
    }

    /// Resets the counts but not the content, at the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.cache.restart_counts();
        if let Some(placement) = &mut self.placement {
            placement.restart_counts();
        }
    }

    /// Recounts everything.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.cache.validate()?;
        self.placement.as_ref().map_or(Ok(()), EvictionPlacement::validate)?;
        self.clients.as_ref().map_or(Ok(()), |clients| clients.validate())
    }
}
