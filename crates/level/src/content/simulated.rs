//! A simulated neighbour that publishes summaries. It has both sides of the publications, and the
//! truth to compare beliefs with.

use super::blocks::Blocks;
use super::bloom::Shape;
use super::heard::{Heard, Touched};
use super::own_blocks::OwnBlocks;
use super::source::{News, Source, SourceCounts};
use super::summary::{Body, Publisher};
use undercroft_policy::Awareness;

/// A simulated neighbour that publishes, and what is known from its publications.
pub(crate) struct Simulated {
    publisher: Publisher,
    heard: Heard,
    own: OwnBlocks,
    /// That of the filter by which `own` is arranged.
    shape: Shape,
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
        let shape = Shape::new(filter_bits, hashes, capacity, 0);
        Self {
            publisher: Publisher::new(filter_bits, hashes, capacity, publish),
            heard: Heard::new(shape, is_old),
            own: OwnBlocks::new(shape),
            shape,
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
        if came { self.own.insert(self.shape, block) } else { self.own.remove(self.shape, block) }
    }

    fn exchange(&mut self, content: &dyn Fn() -> Vec<u64>, news: &mut News) {
        if !self.publisher.is_due() {
            return;
        }
        let publication = self.publisher.publish(content);
        self.counts.publications += 1;
        self.counts.whole += u64::from(matches!(publication.body, Body::Whole(_)));
        self.counts.bytes += publication.bytes();
        let touched = self.heard.apply(&publication);
        let shape = self.heard.filter().shape();
        if shape != self.shape {
            self.shape = shape;
            self.own.arrange(shape);
        }
        match touched {
            Ok(Touched::All) => news.all = true,
            Ok(Touched::At(positions)) => self.own.tell(&positions, self.heard.believed(), news),
            Err(_) => self.publisher.ask_for_whole(),
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
