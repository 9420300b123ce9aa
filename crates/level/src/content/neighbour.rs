//! What one cache knows of the content of the cache next to it. The cache reports its own changes
//! and what it hears of the neighbour; this updates the marks of its content-aware policy.
//!
//! Not here: where the knowledge comes from ([`Source`]), and which neighbour it is.

use super::pass::{EACH, Pass};
use super::source::{Digest, News, Source, SourceCounts};
use super::summary::Unusable;
use crate::hashed::HashedCache;
use crate::marks::Marks;

/// Knowledge of the content of one neighbour.
#[derive(Default)]
pub(crate) struct Neighbour {
    /// `None`: the marks of the policy are all the knowledge.
    source: Option<Box<dyn Source>>,
    news: News,
    pass: Pass,
    counts: NeighbourCounts,
}

/// The counts of the knowledge of a neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NeighbourCounts {
    /// Evictions of blocks that the neighbour was believed to hold.
    pub(crate) held_evictions: u64,
    /// Summaries that were unusable: damaged, too large, or an earlier one was lost.
    pub(crate) summaries_unusable: u64,
    /// The cost of the knowledge.
    pub(crate) source: SourceCounts,
}

impl Neighbour {
    /// Knowledge from `source`; without one, only from [`set`](Self::set).
    pub(crate) fn new(source: Option<Box<dyn Source>>) -> Self {
        Self { source, ..Self::default() }
    }

    /// The source of the knowledge.
    pub(crate) fn source(&self) -> Option<&dyn Source> {
        self.source.as_deref()
    }

    /// Changes the source, and adds the counts of the old one to those so far.
    pub(crate) fn change_source(&mut self, source: Option<Box<dyn Source>>) {
        self.counts = self.counts();
        self.source = source;
    }

    /// Replaces the source, and drops the counts of the old one.
    pub(crate) fn replace_source(&mut self, source: Box<dyn Source>) {
        self.source = Some(source);
    }

    /// Updates the marks of all resident blocks, step by step.
    pub(crate) fn learn_all(&mut self, cache: &mut impl Marks) {
        self.news.all = true;
        self.learn(cache);
    }

    /// Updates the marks of the blocks with news.
    fn learn(&mut self, cache: &mut impl Marks) {
        let Some(source) = &self.source else { return };
        if std::mem::take(&mut self.news.all) {
            self.news.blocks.clear();
            self.pass.begin(cache, |block| source.holds(block));
        }
        for (block, holds) in self.news.blocks.drain(..) {
            cache.mark(block, holds);
        }
    }

    /// Without a source: updates the marks of all resident blocks by `holds`, step by step.
    pub(crate) fn learn_all_by(&mut self, cache: &mut impl Marks, holds: impl Fn(u64) -> bool) {
        match &self.source {
            Some(_) => self.learn_all(cache),
            None => self.pass.begin(cache, holds),
        }
    }

    /// Notes a request: an update of all marks goes on. `holds` is used without a source.
    #[inline]
    pub(crate) fn go_on(&mut self, cache: &mut impl Marks, holds: impl Fn(u64) -> bool) {
        let source = self.source.as_deref();
        let known = |block| source.map_or_else(|| holds(block), |source| source.holds(block));
        self.pass.go_on(EACH, cache, known);
    }

    /// Whether all marks are up to date.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        self.pass.is_over()
    }

    /// Notes a message of the neighbour, which can carry a publication. `content` returns all that
    /// the neighbour holds, if that can be known.
    pub(crate) fn exchange(&mut self, cache: &mut impl Marks, content: &dyn Fn() -> Vec<u64>) {
        if let Some(source) = &mut self.source {
            source.exchange(content, &mut self.news);
            self.learn(cache);
        }
    }

    /// Notes a counted reference. `was_here`, `is_here`: whether the block was resident before, and
    /// is now. `holds`: whether the neighbour holds the block, if that is new; used only without a
    /// source.
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

    /// Notes what the last call of the cache evicted.
    pub(crate) fn evicted(&mut self, cache: &HashedCache) {
        for gone in cache.evicted() {
            self.counts.held_evictions += u64::from(gone.held);
            if let Some(source) = &mut self.source {
                source.own(gone.block, false);
            }
        }
    }

    /// Notes that the cache placed a block that was not resident. `holds`: see
    /// [`referenced`](Self::referenced).
    pub(crate) fn placed(&mut self, cache: &mut impl Marks, block: u64, holds: bool) {
        let mut known = holds;
        if let Some(source) = &mut self.source {
            source.own(block, true);
            known = source.holds(block);
        }
        cache.mark(block, known);
    }

    /// Notes that the cache gave a block up.
    pub(crate) fn discarded(&mut self, block: u64) {
        if let Some(source) = &mut self.source {
            source.own(block, false);
        }
    }

    /// Notes that the lower of both caches served a request of the upper one. `hit`: whether it had
    /// the block, if known. `moved`: how many unnamed blocks came to the neighbour or left it.
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

    /// Notes that the neighbour holds a block now, or no longer.
    pub(crate) fn set(&mut self, cache: &mut impl Marks, block: u64, holds: bool) {
        match &mut self.source {
            None => return cache.mark(block, holds),
            Some(source) if holds => source.came(block, &mut self.news),
            Some(source) => source.went(block, &mut self.news),
        }
        self.learn(cache);
    }

    /// Takes in what the neighbour published.
    ///
    /// # Errors
    /// The publication is unusable; nothing has changed.
    pub(crate) fn heard(
        &mut self,
        cache: &mut impl Marks,
        digest: &Digest,
    ) -> Result<(), Unusable> {
        let Some(source) = &mut self.source else { return Err(Unusable::Malformed) };
        let result = source.heard(digest, &mut self.news);
        self.counts.summaries_unusable += u64::from(result.is_err());
        self.learn(cache);
        result
    }

    /// Forgets one of several neighbours, which has gone. True if there is a source.
    pub(crate) fn forget(&mut self, cache: &mut impl Marks, from: u8) -> bool {
        let Some(source) = &mut self.source else { return false };
        source.forget(from, &mut self.news);
        self.learn(cache);
        true
    }

    /// Continues with the blocks of a saved cache.
    pub(crate) fn restored(&mut self, cache: &impl Marks) {
        if let Some(source) = &mut self.source {
            cache.blocks().into_iter().for_each(|block| source.own(block, true));
        }
    }

    /// Resets the counts, at the end of a warm-up.
    pub(crate) fn restart_counts(&mut self) {
        self.counts = NeighbourCounts::default();
        if let Some(source) = &mut self.source {
            source.restart_counts();
        }
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> NeighbourCounts {
        let before = self.counts.source;
        let now = self.source().map(|source| source.counts()).unwrap_or_default();
        NeighbourCounts { source: before.plus(&now), ..self.counts }
    }
}
