//! A simulated neighbour that publishes summaries, what has been understood of it, and which of the
//! own blocks a new summary says something new about.

use super::bloom::Filter;
use super::exact::Blocks;
use super::source::{News, Source, SourceCounts};
use super::summary::{Body, Follower, Publisher};
use crate::policy::Awareness;

/// A simulated neighbour that publishes, and what has been understood of it.
pub(super) struct Summary {
    publisher: Publisher,
    follower: Follower,
    /// Where knowledge must be an exchange old: what was understood before the last publication.
    old: Option<Filter>,
    /// The own blocks by the positions that they have in the filter: those of a bit that changes
    /// are the only ones of which a publication says anything new.
    own: Vec<Vec<u64>>,
    /// What was held at the last publication, and what came and went since, to tell what is stale
    /// from what was never true.
    held: Blocks,
    since: Vec<(u64, bool)>,
    counts: SourceCounts,
}

impl Summary {
    pub(super) fn new(awareness: &Awareness, capacity: u32, is_old: bool) -> Self {
        let Awareness { filter_bits, hashes, publish, .. } = *awareness;
        let follower = Follower::new(filter_bits, hashes, capacity);
        Self {
            publisher: Publisher::new(filter_bits, hashes, capacity, publish),
            old: is_old.then(|| follower.filter().clone()),
            own: vec![Vec::new(); follower.filter().shape().bits as usize],
            follower,
            held: Blocks::default(),
            since: Vec::new(),
            counts: SourceCounts::default(),
        }
    }
}

impl Summary {
    /// The filter has another seed: the own blocks have other positions.
    fn arrange_anew(&mut self) {
        let blocks: Blocks = self.own.iter_mut().flat_map(std::mem::take).collect();
        blocks.into_iter().for_each(|block| self.own(block, true));
    }
}

impl Source for Summary {
    fn came(&mut self, block: u64, _: &mut News) {
        self.publisher.came(block);
        self.since.push((block, true));
    }

    fn went(&mut self, block: u64, _: &mut News) {
        self.publisher.went(block);
        self.since.push((block, false));
    }

    fn own(&mut self, block: u64, came: bool) {
        for position in self.follower.filter().shape().positions(block) {
            let blocks = &mut self.own[position as usize];
            if came {
                blocks.push(block);
            } else if let Some(at) = blocks.iter().position(|&other| other == block) {
                blocks.swap_remove(at);
            }
        }
    }

    fn exchange(&mut self, content: &dyn Fn() -> Vec<u64>, news: &mut News) {
        if !self.publisher.is_due() {
            return;
        }
        if let Some(old) = &mut self.old {
            old.clone_from(self.follower.filter());
        }
        let publication = self.publisher.publish(content);
        self.counts.publications += 1;
        self.counts.whole += u64::from(matches!(publication.body, Body::Whole(_)));
        self.counts.bytes += publication.bytes();
        let seed = self.follower.filter().shape().seed;
        if self.follower.apply(&publication).is_err() {
            self.publisher.ask_for_whole();
        }
        if self.follower.filter().shape().seed != seed {
            self.arrange_anew();
        }
        for (block, came) in self.since.drain(..) {
            if came {
                self.held.insert(block)
            } else {
                self.held.remove(&block)
            };
        }
        if self.old.is_some() || matches!(publication.body, Body::Whole(_)) {
            news.all = true;
            return;
        }
        for &position in self.follower.changed() {
            for &block in &self.own[position as usize] {
                news.blocks.push((block, self.follower.holds(block)));
            }
        }
    }

    fn holds(&self, block: u64) -> bool {
        self.old.as_ref().unwrap_or(self.follower.filter()).holds(block)
    }

    fn was_held(&self, block: u64) -> bool {
        self.held.contains(&block)
    }

    fn counts(&self) -> SourceCounts {
        self.counts
    }

    fn restart_counts(&mut self) {
        self.counts = SourceCounts::default();
    }
}
