//! The one way in which a cache is told what its neighbour holds.

/// A cache whose content-aware policy is told what the neighbour holds.
pub(crate) trait Marks {
    /// The neighbour holds a block from now on, or no longer.
    fn mark(&mut self, block: u64, holds: bool);

    /// As [`mark`](Self::mark), mostly of the block of the last reference.
    #[inline]
    fn mark_last(&mut self, block: u64, holds: bool) {
        self.mark(block, holds);
    }

    /// The resident blocks.
    fn blocks(&self) -> Vec<u64>;
}
