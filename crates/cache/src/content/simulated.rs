//! A simulated neighbour that publishes summaries. It has both sides of the publications, and the
//! truth to compare beliefs with.

use super::blocks::Blocks;
use super::bloom::Shape;
use super::heard::Heard;
use super::source::{News, Source, SourceCounts};
use super::summary::{Body, Publisher};
use crate::policy::Awareness;

/// A simulated neighbour that publishes, and what is known from its publications.
pub(crate) struct Simulated {
    publisher: Publisher,
    heard: Heard,
    /// The content at the last publication, and the changes since: these tell a stale belief from
    /// one that was never true.
    held: Blocks,
    since: Vec<(u64, bool)>,
    counts: SourceCounts,
}

impl Simulated {
    /// A neighbour of `capacity` blocks; block numbers are below `blocks`.
    pub(crate) fn new(awareness: &Awareness, capacity: u32, is_old: bool, blocks: u32) -> Self {
        let Awareness { filter_bits, hashes, publish, .. } = *awareness;
        Self {
            publisher: Publisher::new(filter_bits, hashes, capacity, publish),
            heard: Heard::new(Shape::new(filter_bits, hashes, capacity, 0), is_old),
            held: Blocks::below(blocks),
            since: Vec::new(),
            counts: SourceCounts::default(),
        }
    }
}

impl Source for Simulated {
    fn came(&mut self, block: u64, _: &mut News) {
        self.publisher.came(block);
        self.since.push((block, true));
    }

    fn went(&mut self, block: u64, _: &mut News) {
        self.publisher.went(block);
        self.since.push((block, false));
    }

    fn own(&mut self, block: u64, came: bool) {
        self.heard.own(block, came);
    }

    fn exchange(&mut self, content: &dyn Fn() -> Vec<u64>, news: &mut News) {
        if !self.publisher.is_due() {
            return;
        }
        let publication = self.publisher.publish(content);
        self.counts.publications += 1;
        self.counts.whole += u64::from(matches!(publication.body, Body::Whole(_)));
        self.counts.bytes += publication.bytes();
        if self.heard.apply(&publication, news).is_err() {
            self.publisher.ask_for_whole();
        }
        for (block, came) in self.since.drain(..) {
            self.held.set(block, came);
        }
    }

    fn holds(&self, block: u64) -> bool {
        self.heard.holds(block)
    }

    fn was_held(&self, block: u64) -> bool {
        self.held.contains(block)
    }

    fn counts(&self) -> SourceCounts {
        self.counts
    }

    fn restart_counts(&mut self) {
        self.counts = SourceCounts::default();
    }
}
