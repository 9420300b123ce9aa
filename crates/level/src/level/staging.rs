//! The staging area: the blocks that clients wrote last, whose data the server still has. A
//! database wrote half of its evicted blocks a moment before their eviction, and a staged block can
//! be placed without a read from disk. The papers on eviction-based placement do not have this.
//!
//! It is a FIFO by the time of the last write. If its size is learned, it remembers more block
//! numbers than it holds data. A histogram of how many writes ago the evicted blocks were written
//! then shows how many each size would have served.

use crate::bounded_lru_map::BoundedLruMap;
use crate::placement::Staging;

/// The learned size is the smallest that serves this much of what the largest would, in percent.
const WORTH: u64 = 90;

/// The staging area.
pub(super) struct StagingArea {
    /// The recently written blocks, each with the number of its write.
    written: BoundedLruMap<u64>,
    writes: u64,
    /// Only blocks whose last write is among this many writes are staged.
    size: u32,
    /// If the size is learned: evictions by how many writes ago, in bins up to powers of two.
    ages: Option<[u64; 33]>,
}

impl StagingArea {
    pub(super) fn new(staging: Staging, capacity: u32, seed: u64) -> Self {
        let max = staging.most(capacity);
        let ages = (staging == Staging::Auto).then_some([0; 33]);
        Self { written: BoundedLruMap::new(max, seed), writes: 0, size: max, ages }
    }

    /// Notes a write of a block.
    pub(super) fn write(&mut self, block: u64) {
        if self.written.max() == 0 {
            return;
        }
        self.writes += 1;
        if let Some(write) = self.written.touch(block) {
            *write = self.writes;
        }
        if self.ages.is_some() && self.writes % u64::from(self.written.max().max(64)) == 0 {
            self.review();
        }
    }

    /// Whether the data of a block is staged.
    pub(super) fn holds(&self, block: u64) -> bool {
        let is_recent = |write| self.writes - write < u64::from(self.size);
        self.written.len() > 0 && self.written.get(block).is_some_and(is_recent)
    }

    /// Whether nothing is staged.
    pub(super) fn is_empty(&self) -> bool {
        self.written.len() == 0
    }

    /// Removes a block that the client evicted. Returns whether its data was staged.
    #[inline]
    pub(super) fn take(&mut self, block: u64) -> bool {
        self.written.len() > 0 && self.take_written(block)
    }

    fn take_written(&mut self, block: u64) -> bool {
        let Some(write) = self.written.remove(block) else { return false };
        let age = self.writes - write;
        if let Some(ages) = &mut self.ages {
            ages[(age + 1).next_power_of_two().ilog2().min(32) as usize] += 1;
        }
        age < u64::from(self.size)
    }

    /// Removes a block whose data is stale or discarded.
    pub(super) fn forget(&mut self, block: u64) {
        if self.written.len() > 0 {
            self.written.remove(block);
        }
    }

    /// Most blocks that are staged now.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    fn review(&mut self) {
        let Some(ages) = &mut self.ages else { return };
        let all: u64 = ages.iter().sum();
        let mut caught = 0;
        for (bin, &count) in ages.iter().enumerate() {
            caught += count;
            if caught * 100 >= all * WORTH {
                // Without any evictions the size becomes the smallest.
                self.size = (1_u32 << bin.min(31)).min(self.written.max());
                break;
            }
        }
        ages.iter_mut().for_each(|count| *count /= 2);
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.size > self.written.max() {
            return Err(format!("{} staged, {} allowed", self.size, self.written.max()));
        }
        self.written.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_the_last_writes_and_no_more() {
        let mut area = StagingArea::new(Staging::Blocks(2), 100, 1);
        for block in [1, 2, 3, 2] {
            area.write(block);
            area.check().unwrap();
        }
        assert!(!area.holds(1) && area.holds(2) && area.holds(3));
        assert!(area.take(3) && !area.take(3) && !area.holds(3));
        let mut none = StagingArea::new(Staging::Blocks(0), 100, 1);
        none.write(1);
        assert!(!none.holds(1) && !none.take(1));
    }

    #[test]
    fn learns_how_long_ago_evicted_blocks_were_written() {
        let mut area = StagingArea::new(Staging::Auto, 8000, 1);
        assert_eq!(area.size(), 1000);
        for block in 0..20_000 {
            area.write(block);
            if block >= 5 {
                assert!(area.take(block - 5));
            }
        }
        assert_eq!(area.size(), 8);
        // The client slows down. Block numbers are remembered longer than data, so the size can
        // follow.
        let mut caught = 0;
        for block in 20_000..40_000 {
            area.write(block);
            caught += u64::from(area.take(block - 300));
        }
        assert_eq!(area.size(), 512);
        assert!(caught > 17_000, "{caught}");
        area.check().unwrap();
    }
}
