//! Where both caches go by what the other holds, each could drop a block because the other has it.
//! So the lower one does not count on a block that it has just sent up: not before two exchanges
//! have passed since it did. This wraps any source of the lower cache.

use super::exact::Blocks;
use super::source::{News, Source, SourceCounts};

/// A source that does not count on what was served of late.
pub(super) struct Cautious {
    inner: Box<dyn Source>,
    /// Served in this period, and in the one before.
    served: [Blocks; 2],
    /// Blocks that came or went in this period.
    events: u64,
    period: u64,
}

impl Cautious {
    pub(super) fn new(inner: Box<dyn Source>, period: u64) -> Self {
        Self { inner, served: Default::default(), events: 0, period: period.max(1) }
    }

    fn is_recent(&self, block: u64) -> bool {
        self.served.iter().any(|served| served.contains(&block))
    }
}

impl Source for Cautious {
    fn came(&mut self, block: u64, news: &mut News) {
        self.events += 1;
        self.inner.came(block, news);
    }

    fn went(&mut self, block: u64, news: &mut News) {
        self.events += 1;
        self.inner.went(block, news);
    }

    fn own(&mut self, block: u64, came: bool) {
        self.inner.own(block, came);
    }

    fn exchange(&mut self, content: &dyn Fn() -> Vec<u64>, news: &mut News) {
        self.inner.exchange(content, news);
        if self.events >= self.period {
            self.events = 0;
            self.served.swap(0, 1);
            self.served[0].clear();
            news.all = true;
        }
        news.blocks.retain(|&(block, holds)| !holds || !self.is_recent(block));
    }

    fn served(&mut self, block: u64, is_write: bool, hit: bool, news: &mut News) {
        self.inner.served(block, is_write, hit, news);
        self.served[0].insert(block);
        news.blocks.retain(|&(block, holds)| !holds || !self.is_recent(block));
        news.blocks.push((block, false));
    }

    fn holds(&self, block: u64) -> bool {
        !self.is_recent(block) && self.inner.holds(block)
    }

    fn was_held(&self, block: u64) -> bool {
        self.inner.was_held(block)
    }

    fn counts(&self) -> SourceCounts {
        self.inner.counts()
    }

    fn restart_counts(&mut self) {
        self.inner.restart_counts();
    }
}
