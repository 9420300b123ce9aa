//! What one cache knows of the content of the cache next to it. The cache says what it does itself
//! and what it hears; the marks of its content-aware policy follow.
//!
//! Not here: what the knowledge comes from ([`Source`]), and which neighbour it is.

use super::source::{Digest, News, Source, SourceCounts};
use super::summary::Unusable;
use crate::hashed::HashedCache;
use crate::marks::Marks;

/// Knowledge of the content of one neighbour.
#[derive(Default)]
pub(crate) struct Neighbour {
    /// None: the policy's marks are all that is known.
    source: Option<Box<dyn Source>>,
    news: News,
    counts: NeighbourCounts,
}

/// What knowing the neighbour came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NeighbourCounts {
    /// Evictions of blocks that the neighbour was believed to hold.
    pub(crate) held_evictions: u64,
    /// Summaries that could not be used: damaged, too large, or one before was lost.
    pub(crate) summaries_unusable: u64,
    /// What knowing cost.
    pub(crate) source: SourceCounts,
}

impl Neighbour {
    /// Knowledge that comes from `source`; with none, from [`set`](Self::set) alone.
    pub(crate) fn new(source: Option<Box<dyn Source>>) -> Self {
        Self { source, ..Self::default() }
    }

    /// What the knowledge comes from.
    pub(crate) fn source(&self) -> Option<&dyn Source> {
        self.source.as_deref()
    }

    /// From now on the knowledge comes from another source, whose counts are added to those so far.
    pub(crate) fn change_source(&mut self, source: Option<Box<dyn Source>>) {
        self.counts = self.counts();
        self.source = source;
    }

    /// From now on the knowledge comes from another source, and is counted anew.
    pub(crate) fn replace_source(&mut self, source: Box<dyn Source>) {
        self.source = Some(source);
    }

    /// Tells the policy what the source knows of every resident block.
    pub(crate) fn learn_all(&mut self, cache: &mut impl Marks) {
        self.news.all = true;
        self.learn(cache);
    }

    /// Tells the policy what is new.
    fn learn(&mut self, cache: &mut impl Marks) {
        if let Some(source) = &self.source {
            self.news.tell(source.as_ref(), cache);
        }
    }

    /// A message of the neighbour arrives, which can carry something. `content` gives all that the
    /// neighbour holds, where that can be known.
    pub(crate) fn exchange(&mut self, cache: &mut impl Marks, content: &dyn Fn() -> Vec<u64>) {
        if let Some(source) = &mut self.source {
            source.exchange(content, &mut self.news);
            self.learn(cache);
        }
    }

    /// The cache served a counted reference to a block, and said what that drove out. `holds`: what
    /// the neighbour is known to hold of the block where there is no source; none if nothing new is
    /// known.
    pub(crate) fn referenced(
        &mut self,
        cache: &mut impl Marks,
        block: u64,
        (was_here, is_here): (bool, bool),
        holds: Option<bool>,
    ) {
        match &mut self.source {
            None => {
                if let (true, Some(holds)) = (is_here, holds) {
                    cache.mark_last(block, holds);
                }
            }
            Some(source) if is_here && !was_here => {
                source.own(block, true);
                cache.mark_last(block, source.holds(block));
            }
            Some(source) if was_here && !is_here => source.own(block, false),
            Some(_) => {}
        }
    }

    /// Takes in what the last call of the cache evicted.
    pub(crate) fn evicted(&mut self, cache: &HashedCache) {
        for gone in cache.evicted() {
            self.counts.held_evictions += u64::from(gone.held);
            if let Some(source) = &mut self.source {
                source.own(gone.block, false);
            }
        }
    }

    /// The cache placed a block that was not resident. `holds`: as for
    /// [`referenced`](Self::referenced).
    pub(crate) fn placed(&mut self, cache: &mut impl Marks, block: u64, holds: bool) {
        let mut known = holds;
        if let Some(source) = &mut self.source {
            source.own(block, true);
            known = source.holds(block);
        }
        cache.mark(block, known);
    }

    /// The cache gave a block up.
    pub(crate) fn discarded(&mut self, block: u64) {
        if let Some(source) = &mut self.source {
            source.own(block, false);
        }
    }

    /// The lower of both caches served a request of the upper: whether it had the block, if that
    /// is known. `moved`: so many blocks came to the neighbour or went by it that nobody names.
    pub(crate) fn served(
        &mut self,
        cache: &mut impl Marks,
        block: u64,
        is_write: bool,
        hit: Option<bool>,
        moved: u64,
    ) {
        if let Some(source) = &mut self.source {
            source.served(block, is_write, hit, &mut self.news);
            source.moved(moved);
            self.learn(cache);
        }
    }

    /// The neighbour holds a block from now on, or no longer.
    pub(crate) fn set(&mut self, cache: &mut impl Marks, block: u64, holds: bool) {
        match &mut self.source {
            None => return cache.mark(block, holds),
            Some(source) if holds => source.came(block, &mut self.news),
            Some(source) => source.went(block, &mut self.news),
        }
        self.learn(cache);
    }

    /// The neighbour published what it holds.
    ///
    /// # Errors
    /// The publication is of no use; nothing has changed.
    pub(crate) fn heard(
        &mut self,
        cache: &mut impl Marks,
        digest: &Digest,
    ) -> Result<(), Unusable> {
        let Some(source) = &mut self.source else { return Err(Unusable::Malformed) };
        let result = source.heard(digest, &|| cache.blocks(), &mut self.news);
        self.counts.summaries_unusable += u64::from(result.is_err());
        self.learn(cache);
        result
    }

    /// One of several neighbours has gone. True if a source has taken it in.
    pub(crate) fn forget(&mut self, cache: &mut impl Marks, from: u8) -> bool {
        let Some(source) = &mut self.source else { return false };
        source.forget(from, &mut self.news);
        self.learn(cache);
        true
    }

    /// The cache goes on with the blocks of a saved one.
    pub(crate) fn restored(&mut self, cache: &impl Marks) {
        if let Some(source) = &mut self.source {
            cache.blocks().into_iter().for_each(|block| source.own(block, true));
        }
    }

    /// Forgets the counts: the end of a warm-up.
    pub(crate) fn restart_counts(&mut self) {
        self.counts = NeighbourCounts::default();
        if let Some(source) = &mut self.source {
            source.restart_counts();
        }
    }

    /// What was counted.
    pub(crate) fn counts(&self) -> NeighbourCounts {
        let before = self.counts.source;
        let now = self.source().map(|source| source.counts()).unwrap_or_default();
        NeighbourCounts { source: before.plus(&now), ..self.counts }
    }
}
