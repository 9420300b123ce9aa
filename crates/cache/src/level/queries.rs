//! What can be asked of a level: which blocks it holds, what it is made of, what it counted.

use super::eviction::EvictionPlacement;
use super::{BelowCounts, Blocks, ClientCounts, Counts, Level, PlacementCounts};
use crate::hashed::{Evicted, Frame, HashedCache};
use crate::movement::RemoteLevel;
use crate::placement::{Eviction, OnHit, WayDown};

impl Level {
    /// What the last call drove out, in order.
    #[inline]
    pub fn evicted(&self) -> &[Evicted] {
        match &self.blocks {
            Blocks::Policy(cache, _) => cache.evicted(),
            Blocks::Scheme(level) => level.evicted(),
        }
    }

    /// The frame of a resident block.
    #[inline]
    pub fn frame(&self, block: u64) -> Option<Frame> {
        match &self.blocks {
            Blocks::Policy(cache, _) => cache.frame(block),
            Blocks::Scheme(level) => level.frame(block),
        }
    }

    /// Blocks that may be resident.
    pub fn capacity(&self) -> u32 {
        match &self.blocks {
            Blocks::Policy(cache, _) => cache.policy().capacity(),
            Blocks::Scheme(level) => level.capacity(),
        }
    }

    /// Blocks that are resident.
    pub fn len(&self) -> u32 {
        match &self.blocks {
            Blocks::Policy(cache, _) => cache.policy().len(),
            Blocks::Scheme(level) => level.len(),
        }
    }

    /// Whether no block is resident.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The resident blocks with their frames.
    pub fn residents(&self) -> Vec<(u64, Frame)> {
        match &self.blocks {
            Blocks::Policy(cache, _) => cache.residents(),
            Blocks::Scheme(level) => level.residents(),
        }
    }

    /// The resident blocks whose handles have numbers within a range, and the end of these numbers:
    /// see [`HashedCache::residents_within`].
    pub fn residents_within(&self, part: std::ops::Range<u32>) -> (Vec<(u64, Frame)>, u32) {
        match &self.blocks {
            Blocks::Policy(cache, _) => (cache.residents_within(part), cache.handles()),
            Blocks::Scheme(level) => (level.residents_within(part), level.handles()),
        }
    }

    /// Reads what references to these blocks will need, best in this order, so that the processor
    /// overlaps its waits for memory. The frames of those that are resident are appended to
    /// `frames`.
    pub fn prefetch(&mut self, blocks: &[u64], frames: &mut Vec<Frame>) {
        if let Blocks::Policy(cache, _) = &mut self.blocks {
            cache.warm(blocks, frames);
        }
        if let Some(clients) = &self.clients {
            clients.prefetch(blocks);
        }
    }

    /// Changes the capacity, at least 1, while running: [`evicted`](Self::evicted) says what had to
    /// go. Nothing happens at a level of a scheme.
    pub fn resize(&mut self, capacity: u32) {
        if let Blocks::Policy(cache, placement) = &mut self.blocks {
            cache.resize(capacity);
            if let Some(placement) = placement {
                placement.resize(capacity);
            }
        }
    }

    // ------------------------------------------------------------------ its parts

    /// The blocks and their policy; none at a level of a scheme.
    pub fn cache(&self) -> Option<&HashedCache> {
        match &self.blocks {
            Blocks::Policy(cache, _) => Some(cache),
            Blocks::Scheme(_) => None,
        }
    }

    /// The blocks and their policy, to tell the policy what a neighbour holds.
    pub(crate) fn cache_mut(&mut self) -> Option<&mut HashedCache> {
        match &mut self.blocks {
            Blocks::Policy(cache, _) => Some(cache),
            Blocks::Scheme(_) => None,
        }
    }

    /// Whether blocks that are numbered anew should be [named](Self::number_blocks): the policy
    /// hashes them, or the placement samples them.
    pub fn needs_names(&self) -> bool {
        let samples = self.rules().is_some_and(|rules| rules.on_hit == OnHit::Adaptive);
        samples || self.cache().is_some_and(HashedCache::hashes_blocks)
    }

    /// Whether the policy is content-aware: it prefers victims that the neighbouring cache holds.
    ///
    /// If the neighbour is the cache below, reference a missing block when its reply has come: what
    /// the cache below holds then decides the victim.
    pub fn is_content_aware(&self) -> bool {
        self.cache().is_some_and(HashedCache::is_aware)
    }

    /// The level of a scheme of movement, if it is one.
    pub fn scheme(&self) -> Option<&RemoteLevel> {
        match &self.blocks {
            Blocks::Policy(..) => None,
            Blocks::Scheme(level) => Some(level),
        }
    }

    /// The level of a scheme of movement, for what its neighbours say.
    pub fn scheme_mut(&mut self) -> Option<&mut RemoteLevel> {
        match &mut self.blocks {
            Blocks::Policy(..) => None,
            Blocks::Scheme(level) => Some(level),
        }
    }

    /// Goes on with the blocks and the policy of a saved level of the same kind and capacity.
    pub fn restore(&mut self, saved: HashedCache) {
        let Blocks::Policy(cache, _) = &mut self.blocks else { return };
        *cache = saved;
        if let Some(clients) = &mut self.clients {
            clients.restored(cache);
        }
    }

    /// The rules of placement at eviction, if the level places blocks so.
    pub fn rules(&self) -> Option<&Eviction> {
        match &self.blocks {
            Blocks::Policy(_, placement) => placement.as_ref().map(EvictionPlacement::rules),
            Blocks::Scheme(_) => None,
        }
    }

    /// From now on evicted blocks come this way.
    pub fn set_way_down(&mut self, down: WayDown) {
        if let Blocks::Policy(_, Some(placement)) = &mut self.blocks {
            placement.set_way_down(down);
        }
    }

    /// Blocks that the staging area may hold at present, beside the capacity.
    pub fn staging_blocks(&self) -> u32 {
        match &self.blocks {
            Blocks::Policy(_, Some(placement)) => placement.staging_blocks(),
            _ => 0,
        }
    }

    /// Blocks that the emulated clients are believed to hold; 0 where none are emulated.
    pub fn estimated_blocks(&self) -> u32 {
        self.clients.as_ref().map_or(0, |clients| clients.estimated_blocks())
    }

    // ------------------------------------------------------------------ counts

    /// What was counted as at every level.
    pub fn counts(&self) -> &Counts {
        match &self.blocks {
            Blocks::Policy(cache, _) => cache.counts(),
            Blocks::Scheme(level) => level.counts(),
        }
    }

    /// What placement at eviction counted; all 0 without it.
    pub fn placement_counts(&self) -> PlacementCounts {
        match &self.blocks {
            Blocks::Policy(_, Some(placement)) => *placement.counts(),
            _ => PlacementCounts::default(),
        }
    }

    /// What was counted of the clients; all 0 where nothing is known of them.
    pub fn client_counts(&self) -> ClientCounts {
        self.clients.as_ref().map(|clients| clients.counts()).unwrap_or_default()
    }

    /// What was counted of the cache below; all 0 where nothing is known of it.
    pub fn below_counts(&self) -> BelowCounts {
        self.below.as_ref().map(|below| below.counts()).unwrap_or_default()
    }

    /// Forgets the counts, not the content: the end of a warm-up.
    pub fn restart_counts(&mut self) {
        if let Blocks::Policy(cache, placement) = &mut self.blocks {
            cache.restart_counts();
            if let Some(placement) = placement {
                placement.restart_counts();
            }
        }
    }

    /// Recounts everything.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    pub fn validate(&self) -> Result<(), String> {
        match &self.blocks {
            Blocks::Policy(cache, placement) => {
                cache.validate()?;
                placement.as_ref().map_or(Ok(()), EvictionPlacement::validate)?;
            }
            Blocks::Scheme(level) => level.validate()?,
        }
        self.clients.as_ref().map_or(Ok(()), |clients| clients.validate())
    }
}
