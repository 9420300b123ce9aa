//! The interface of all knowledge of what a neighbour holds.

use super::bloom::Shape;
use super::summary::{Publication, Unusable};

/// A publication of one of several neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Which neighbour: a number chosen by the caller.
    pub from: u8,
    /// The shape of its filter.
    pub shape: Shape,
    /// The content of the publication.
    pub publication: Publication,
}

/// Changes of the knowledge.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Blocks, and whether the neighbour holds them now.
    pub blocks: Vec<(u64, bool)>,
    /// Anything may have changed: ask about every resident block.
    pub all: bool,
}

/// The cost of the knowledge, and how good it seemed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Bytes that the neighbour sent for the knowledge.
    pub bytes: u64,
    /// Messages that the neighbour sent; 0 for exact knowledge, which is part of other messages.
    pub publications: u64,
    /// Messages that were whole filters.
    pub whole: u64,
    /// Replies or requests that an emulation predicted.
    pub predictions: u64,
    /// Predictions that came true.
    pub confirmed: u64,
    /// Requests while an emulation was not trusted.
    pub distrusted: u64,
}

impl SourceCounts {
    /// The sums of two costs.
    pub(super) fn plus(&self, other: &Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            publications: self.publications + other.publications,
            whole: self.whole + other.whole,
            predictions: self.predictions + other.predictions,
            confirmed: self.confirmed + other.confirmed,
            distrusted: self.distrusted + other.distrusted,
        }
    }
}

/// What a cache knows of its neighbour, the one cache above or below. Blocks are given by number.
pub trait Source: Send {
    /// Notes that the neighbour took a block in. Sources that learn otherwise ignore it.
    fn came(&mut self, block: u64, news: &mut News) {
        let _ = (block, news);
    }

    /// Notes that the neighbour gave a block up. Sources that learn otherwise ignore it.
    fn went(&mut self, block: u64, news: &mut News) {
        let _ = (block, news);
    }

    /// Notes that `blocks` unnamed blocks came to the neighbour or left it.
    fn moved(&mut self, blocks: u64) {
        let _ = blocks;
    }

    /// Notes that this cache took a block in, or gave it up. A source can limit its news to such
    /// blocks.
    fn own(&mut self, block: u64, came: bool) {
        let _ = (block, came);
    }

    /// Notes a message from the neighbour, which can carry a publication. `content` returns all
    /// that the neighbour holds.
    fn exchange(&mut self, content: &dyn Fn() -> Vec<u64>, news: &mut News) {
        let _ = (content, news);
    }

    /// Notes that the lower of both caches served a request of the upper one. `hit`: whether it had
    /// the block, if known.
    fn served(&mut self, block: u64, is_write: bool, hit: Option<bool>, news: &mut News) {
        let _ = (block, is_write, hit, news);
    }

    /// Takes in a publication of a neighbour.
    ///
    /// # Errors
    /// The publication is unusable, or this source takes none.
    fn heard(&mut self, digest: &Digest, news: &mut News) -> Result<(), Unusable> {
        let _ = (digest, news);
        Err(Unusable::Malformed)
    }

    /// Forgets a neighbour that has gone.
    fn forget(&mut self, from: u8, news: &mut News) {
        let _ = (from, news);
    }

    /// The current share of false positives of a neighbour's filter; `None` without a filter.
    fn false_positives(&self) -> Option<f64> {
        None
    }

    /// Whether an emulation is not used because too few of its predictions are right.
    fn is_distrusted(&self) -> bool {
        false
    }

    /// Whether the neighbour is believed to hold a block.
    fn holds(&self, block: u64) -> bool;

    /// Whether the neighbour held a block at its last report. If so, a wrong belief about the block
    /// is stale, otherwise it is mistaken. Never, if it makes no reports.
    fn was_held(&self, block: u64) -> bool {
        let _ = block;
        false
    }

    /// The cost since the counts were last restarted.
    fn counts(&self) -> SourceCounts;

    /// Resets the counts, at the end of a warm-up.
    fn restart_counts(&mut self);
}
