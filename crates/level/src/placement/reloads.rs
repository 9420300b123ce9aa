//! The reload queue of USENIX 2003: blocks that the client evicted, to be read back when the disk
//! is idle. A reload may always be left out. So the queue is bounded, and drops a block once its
//! reload would be of no use.
//!
//! This module has no clock and does no I/O; it only orders block numbers. The caller knows when
//! the disk is idle, and whether a block was requested while its reload was under way.
//!
//! Invariant (checked by [`ReloadQueue::validate`]): every queued block is still in the queue, was
//! dropped for one reason, or was issued.

use crate::bounded_lru_map::BoundedLruMap;

/// Blocks waiting to be reloaded, the one evicted first at the front.
pub struct ReloadQueue {
    waiting: BoundedLruMap<()>,
    counts: ReloadCounts,
}

/// What happened to the blocks that were to be reloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReloadCounts {
    /// Blocks that entered the queue.
    pub queued: u64,
    /// Blocks that were in the queue already.
    pub duplicates: u64,
    /// Dropped: the client asked for the block again, and has it.
    pub demanded: u64,
    /// Dropped: the block was written, so its data on disk is stale or about to be.
    pub written: u64,
    /// Dropped: the block was discarded.
    pub discarded: u64,
    /// Dropped: the queue was full, and this block was the oldest.
    pub overflowed: u64,
    /// Blocks that were handed out to be read.
    pub issued: u64,
}

impl ReloadCounts {
    /// The sums of two counts.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            queued: self.queued + other.queued,
            duplicates: self.duplicates + other.duplicates,
            demanded: self.demanded + other.demanded,
            written: self.written + other.written,
            discarded: self.discarded + other.discarded,
            overflowed: self.overflowed + other.overflowed,
            issued: self.issued + other.issued,
        }
    }
}

impl ReloadQueue {
    /// An empty queue for `max` blocks; with 0 it drops every block at once. `seed` makes the index
    /// unpredictable for clients that choose the block numbers; it changes nothing else.
    pub fn new(max: u32, seed: u64) -> Self {
        Self { waiting: BoundedLruMap::new(max, seed), counts: ReloadCounts::default() }
    }

    /// Appends a block to the queue. A block that is queued already keeps its place.
    pub fn push(&mut self, block: u64) {
        if self.waiting.get(block).is_some() {
            self.counts.duplicates += 1;
            return;
        }
        self.counts.queued += 1;
        if self.waiting.len() == self.waiting.max() {
            self.counts.overflowed += 1;
            self.waiting.pop_oldest();
        }
        self.waiting.touch(block);
    }

    /// Drops a block that the client asks for.
    pub fn drop_demanded(&mut self, block: u64) {
        self.counts.demanded += self.remove(block);
    }

    /// Drops a block that is written.
    pub fn drop_written(&mut self, block: u64) {
        self.counts.written += self.remove(block);
    }

    /// Drops all blocks of a range that is discarded or about to change.
    pub fn discard_within(&mut self, blocks: &std::ops::RangeInclusive<u64>) {
        let before = self.len();
        self.waiting.retain(|block| !blocks.contains(&block));
        self.counts.discarded += u64::from(before - self.len());
    }

    fn remove(&mut self, block: u64) -> u64 {
        u64::from(self.waiting.remove(block).is_some())
    }

    /// Hands out the block that has waited longest, to be read now.
    pub fn pop(&mut self) -> Option<u64> {
        let (block, ()) = self.waiting.pop_oldest()?;
        self.counts.issued += 1;
        Some(block)
    }

    /// Number of queued blocks.
    pub fn len(&self) -> u32 {
        self.waiting.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counts so far.
    pub fn counts(&self) -> &ReloadCounts {
        &self.counts
    }

    /// Restarts the counts after a warm-up. Blocks still in the queue count as queued, and so do
    /// `issued` blocks that are being read, which count as issued too.
    pub fn restart_counts(&mut self, issued: u64) {
        let queued = u64::from(self.len()) + issued;
        self.counts = ReloadCounts { queued, issued, ..ReloadCounts::default() };
    }

    /// Checks the invariant in the head of this file.
    ///
    /// # Errors
    /// Says which counts do not add up.
    pub fn validate(&self) -> Result<(), String> {
        self.waiting.check()?;
        let counts = &self.counts;
        let dropped = counts.demanded + counts.written + counts.discarded + counts.overflowed;
        let known = u64::from(self.len()) + dropped + counts.issued;
        if counts.queued == known {
            return Ok(());
        }
        Err(format!("{} blocks queued, {known} accounted for", counts.queued))
    }
}
