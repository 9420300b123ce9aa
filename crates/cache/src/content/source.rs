//! The one interface behind which it is known what the neighbour holds, whatever it is known from.

use super::bloom::Shape;
use super::summary::{Publication, Unusable};
use crate::marks::Marks;

/// A publication of one of several neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Which of them: a number of the user's own.
    pub from: u8,
    /// The shape of its filter.
    pub shape: Shape,
    /// What it says.
    pub publication: Publication,
}

/// What changed in what is known.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Blocks, and whether the neighbour holds them now.
    pub blocks: Vec<(u64, bool)>,
    /// Anything may have changed: ask about every block that matters.
    pub all: bool,
}

impl News {
    /// Tells the policy of a cache, and is none any more.
    #[inline]
    pub(super) fn tell(&mut self, source: &dyn Source, cache: &mut impl Marks) {
        if std::mem::take(&mut self.all) {
            self.blocks.clear();
            for block in cache.blocks() {
                cache.mark(block, source.holds(block));
            }
        }
        for (block, holds) in self.blocks.drain(..) {
            cache.mark(block, holds);
        }
    }
}

/// What knowing cost, and how good it looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Bytes that the neighbour sent for it.
    pub bytes: u64,
    /// Messages that it sent; of exact knowledge, which rides on other messages, none.
    pub publications: u64,
    /// Those of them that were whole filters.
    pub whole: u64,
    /// Replies or requests that were foretold by an emulation.
    pub predictions: u64,
    /// Those of them that came as foretold.
    pub confirmed: u64,
    /// Requests at which an emulation was not trusted.
    pub distrusted: u64,
}

impl SourceCounts {
    /// What two sources cost together.
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

/// What a cache knows of its neighbour. Blocks are numbers; the neighbour is the one cache above or
/// below.
pub trait Source: Send {
    /// The neighbour took a block in. A source that is not told ignores it.
    fn came(&mut self, block: u64, news: &mut News);

    /// The neighbour gave a block up.
    fn went(&mut self, block: u64, news: &mut News);

    /// So many blocks came to the neighbour or went that nobody names.
    fn moved(&mut self, blocks: u64) {
        let _ = blocks;
    }

    /// The cache that asks took a block in itself (or gave it up). A source may want to know, so
    /// that its news can be about such blocks alone.
    fn own(&mut self, block: u64, came: bool) {
        let _ = (block, came);
    }

    /// There is a message on its way from the neighbour, which can carry something. `content` gives
    /// all that the neighbour holds.
    fn exchange(&mut self, content: &dyn Fn() -> Vec<u64>, news: &mut News) {
        let _ = (content, news);
    }

    /// A request of the upper of both caches was served by the lower: whether that had the block,
    /// if it is known.
    fn served(&mut self, block: u64, is_write: bool, hit: Option<bool>, news: &mut News) {
        let _ = (block, is_write, hit, news);
    }

    /// A neighbour has published something. `own` gives all blocks of the cache that asks.
    ///
    /// # Errors
    /// It is of no use, or this source does not listen.
    fn heard(
        &mut self,
        digest: &Digest,
        own: &dyn Fn() -> Vec<u64>,
        news: &mut News,
    ) -> Result<(), Unusable> {
        let _ = (digest, own, news);
        Err(Unusable::Malformed)
    }

    /// A neighbour that published has gone.
    fn forget(&mut self, from: u8, news: &mut News) {
        let _ = (from, news);
    }

    /// Share of the blocks that a neighbour's filter, as full as it is now, takes for the
    /// neighbour's though they are not; none without a filter.
    fn false_positives(&self) -> Option<f64> {
        None
    }

    /// Whether an emulation foretells so little that it is not used.
    fn is_distrusted(&self) -> bool {
        false
    }

    /// Whether the neighbour is believed to hold a block.
    fn holds(&self, block: u64) -> bool;

    /// Whether a block that is believed to be held was, when the neighbour last said anything: then
    /// the belief is stale, else it is mistaken.
    fn was_held(&self, block: u64) -> bool;

    /// What it cost since the counts were last restarted.
    fn counts(&self) -> SourceCounts;

    /// Forgets the counts: the end of a warm-up.
    fn restart_counts(&mut self);
}
