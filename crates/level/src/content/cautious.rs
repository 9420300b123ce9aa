//! If both caches choose victims by what the other holds, each could evict a block because the
//! other has it. So the lower cache does not rely on a block that it has just sent up until two
//! exchanges have passed. This wraps any source of the lower cache.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::pass::AT_ONCE;
use super::source::{Digest, News, Source, SourceCounts};
use super::summary::Unusable;

/// A source that does not report recently served blocks as held.
pub(crate) struct Cautious {
    inner: Box<dyn Source>,
    /// Blocks served in this period and in the one before. Both sets are small, however many blocks
    /// exist.
    served: [HashSet<u64, FixedState>; 2],
    /// Blocks that came or went in this period.
    events: u64,
    period: u64,
}

impl Cautious {
    pub(crate) fn new(inner: Box<dyn Source>, period: u64) -> Self {
        Self { inner, served: Default::default(), events: 0, period: period.max(1) }
    }

    fn is_recent(&self, block: u64) -> bool {
        self.served.iter().any(|served| served.contains(&block))
    }

    /// Begins a period. Blocks served before the last period count again, if the source says they
    /// are held.
    fn begin_period(&mut self, news: &mut News) {
        self.events = 0;
        self.served.swap(0, 1);
        let [old, _] = &mut self.served;
        if old.len() > AT_ONCE as usize {
            old.clear();
            news.all = true;
            return;
        }
        let inner = &self.inner;
        let held = old.drain().filter(|&block| inner.holds(block));
        news.blocks.extend(held.map(|block| (block, true)));
    }

    fn leave_out_recent(&self, news: &mut News) {
        news.blocks.retain(|&(block, holds)| !holds || !self.is_recent(block));
    }
}

impl Source for Cautious {
    fn came(&mut self, block: u64, news: &mut News) {
        self.events += 1;
        self.inner.came(block, news);
        self.leave_out_recent(news);
    }

    fn went(&mut self, block: u64, news: &mut News) {
        self.events += 1;
        self.inner.went(block, news);
    }

    fn moved(&mut self, blocks: u64) {
        self.events += blocks;
    }

    fn own(&mut self, block: u64, came: bool) {
        self.inner.own(block, came);
    }

    fn exchange(&mut self, content: &dyn Fn() -> Vec<u64>, news: &mut News) {
        self.inner.exchange(content, news);
        if self.events >= self.period {
            self.begin_period(news);
        }
        self.leave_out_recent(news);
    }

    fn served(&mut self, block: u64, is_write: bool, hit: Option<bool>, news: &mut News) {
        self.inner.served(block, is_write, hit, news);
        self.served[0].insert(block);
        // A neighbour that says nothing ends no period.
        if self.served[0].len() as u64 > self.period.saturating_mul(4).max(AT_ONCE.into()) {
            self.begin_period(news);
        }
        self.leave_out_recent(news);
        news.blocks.push((block, false));
    }

    /// A publication ends a period: with `knows=bloom` nothing else tells which blocks come and go.
    fn heard(&mut self, digest: &Digest, news: &mut News) -> Result<(), Unusable> {
        self.inner.heard(digest, news)?;
        self.begin_period(news);
        self.leave_out_recent(news);
        Ok(())
    }

    fn forget(&mut self, from: u8, news: &mut News) {
        self.inner.forget(from, news);
    }

    fn false_positives(&self) -> Option<f64> {
        self.inner.false_positives()
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
