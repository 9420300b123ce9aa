//! The interface by which a cache is told what its neighbour holds.

use std::ops::Range;

/// A cache whose content-aware policy marks the blocks that the neighbour holds.
pub(crate) trait Marks {
    /// Marks whether the neighbour holds a block.
    fn mark(&mut self, block: u64, holds: bool);

    /// See [`mark`](Self::mark); faster for the block of the last reference.
    #[inline]
    fn mark_last(&mut self, block: u64, holds: bool) {
        self.mark(block, holds);
    }

    /// The resident blocks.
    fn blocks(&self) -> Vec<u64>;

    /// Number of handles, by which a pass goes through the blocks (`content/pass.rs`).
    fn handles(&self) -> u32;

    /// The resident blocks whose handles are in a range.
    fn blocks_within(&self, handles: Range<u32>) -> Vec<u64>;
}
