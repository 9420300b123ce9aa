//! Exact knowledge: the neighbour reports at once what it takes in and gives up. If both caches
//! choose victims by what the other holds, the knowledge is one exchange old instead.

use super::blocks::Blocks;
use super::pass::AT_ONCE;
use super::source::{News, Source, SourceCounts};

/// Bytes of the report of an evicted block. That a block came is known from its request.
const GONE_BYTES: u64 = 8;

/// What the neighbour holds now.
pub(crate) struct Exact {
    held: Blocks,
    counts: SourceCounts,
}

impl Exact {
    pub(crate) fn new(held: Blocks) -> Self {
        Self { held, counts: SourceCounts::default() }
    }
}

impl Source for Exact {
    fn came(&mut self, block: u64, news: &mut News) {
        self.held.set(block, true);
        news.blocks.push((block, true));
    }

    fn went(&mut self, block: u64, news: &mut News) {
        self.held.set(block, false);
        self.counts.bytes += GONE_BYTES;
        news.blocks.push((block, false));
    }

    fn holds(&self, block: u64) -> bool {
        self.held.contains(block)
    }

    fn was_held(&self, block: u64) -> bool {
        self.holds(block)
    }

    fn counts(&self) -> SourceCounts {
        self.counts
    }

    fn restart_counts(&mut self) {
        self.counts = SourceCounts::default();
    }
}

/// What the neighbour held at its last message but one. It sends a message after every `period`
/// blocks that came or went.
pub(crate) struct ExchangeOld {
    held: Blocks,
    /// Changes between the last message but one and the last; and changes since.
    before: Vec<(u64, bool)>,
    since: Vec<(u64, bool)>,
    period: usize,
    counts: SourceCounts,
}

impl ExchangeOld {
    pub(crate) fn new(held: Blocks, period: usize) -> Self {
        let (before, since, counts) = (Vec::new(), Vec::new(), SourceCounts::default());
        Self { held, before, since, period: period.max(1), counts }
    }
}

impl Source for ExchangeOld {
    fn came(&mut self, block: u64, news: &mut News) {
        self.note(block, true, news);
    }

    fn went(&mut self, block: u64, news: &mut News) {
        self.note(block, false, news);
    }

    fn exchange(&mut self, _: &dyn Fn() -> Vec<u64>, news: &mut News) {
        if self.since.len() >= self.period {
            self.message(news);
        }
    }

    fn holds(&self, block: u64) -> bool {
        self.held.contains(block)
    }

    fn was_held(&self, block: u64) -> bool {
        self.holds(block)
    }

    fn counts(&self) -> SourceCounts {
        self.counts
    }

    fn restart_counts(&mut self) {
        self.counts = SourceCounts::default();
    }
}

impl ExchangeOld {
    fn note(&mut self, block: u64, came: bool, news: &mut News) {
        self.since.push((block, came));
        // One who tells much and requests nothing would fill the memory.
        if self.since.len() >= self.period.saturating_mul(4).max(AT_ONCE as usize) {
            self.message(news);
        }
    }

    /// The neighbour sends a message: what the last one said counts from now on.
    fn message(&mut self, news: &mut News) {
        let gone = self.since.iter().filter(|(_, came)| !came).count() as u64;
        self.counts.bytes += gone * GONE_BYTES;
        self.counts.publications += 1;
        std::mem::swap(&mut self.before, &mut self.since);
        for (block, came) in self.since.drain(..) {
            self.held.set(block, came);
            news.blocks.push((block, came));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_without_requests_is_bounded() {
        let mut source = ExchangeOld::new(Blocks::any(10_000), 100);
        let mut news = News::default();
        for block in 0..100_000 {
            source.came(block, &mut news);
            news.blocks.clear();
            assert!(source.since.len() + source.before.len() <= 2 * AT_ONCE as usize);
        }
        assert_eq!((0..100_000).filter(|&block| source.holds(block)).count(), 10_000);
        (0..100_000).for_each(|block| source.went(block, &mut news));
        (0..20_000).for_each(|_| source.went(0, &mut news));
        assert!((0..100_000).all(|block| !source.holds(block)));
    }
}
