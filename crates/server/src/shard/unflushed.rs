//! The blocks that the store has and may still lose (`losses.rs`): those changed since its last
//! successful flush. When a loss is noticed, they leave the cache, so that the next read returns
//! what the store has; but dirty ones stay and are written again. Until a flush covers them they
//! may be lost at the next loss, too. After a start any block may be one of them, until the first
//! flush.
//!
//! A block is remembered whether it is resident or not, because it may be evicted and read back
//! before the loss. At most as many blocks are remembered as the cache holds; beyond that the
//! answer is "all".

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::geometry::Geometry;
use crate::shard::event::Event;

/// The blocks of a shard that its store may lose.
pub(crate) struct Unflushed {
    /// The number of each block's last change.
    by_block: HashMap<u64, u64, RandomState>,
    by_number: BTreeMap<u64, u64>,
    /// Number of the next change.
    next: u64,
    /// Most blocks that are remembered.
    most: usize,
    /// If set, any block may be lost, by changes with numbers below this.
    all: Option<u64>,
}

/// What a store may have lost.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Blocks(Vec<u64>),
    /// Any block: more were changed than are remembered.
    Any,
}

impl Unflushed {
    pub(crate) fn new(most: usize) -> Self {
        let (by_block, by_number) = (HashMap::default(), BTreeMap::new());
        // Changes by an earlier process are unknown, so any block may be lost.
        Self { by_block, by_number, next: 0, most, all: Some(0) }
    }

    #[inline(always)]
    pub(super) fn watch(&mut self, event: &Event<'_>, geometry: &Geometry) {
        match *event {
            // A failed write may have taken effect.
            Event::Written { block, job, is_ok, .. } => {
                if !is_ok || job.is_none_or(|job| !job.durable) {
                    self.add(block);
                }
            }
            Event::RangeEnds { blocks, shard, is_durable: false } => {
                self.add_range(blocks, |block| geometry.shard_of(block) == shard);
            }
            Event::Slots(slots) => self.most = self.most.max(slots),
            // Write-outs are made durable by those who begin them (`losses.rs`).
            Event::WritesOut { .. }
            | Event::Gone { .. }
            | Event::Returned { .. }
            | Event::Entered { .. }
            | Event::Placed { .. }
            | Event::Left { .. }
            | Event::Activated { .. }
            | Event::Writes { .. }
            | Event::Reads { .. }
            | Event::Changes { .. }
            | Event::Changed { .. }
            | Event::Unknown { .. }
            | Event::Idle { .. }
            | Event::Filled { .. }
            | Event::RangeBegins { .. }
            | Event::RangeEnds { .. }
            | Event::Replaces { .. }
            | Event::ContentsUnknown
            | Event::Replaced => {}
        }
    }

    /// The store has answered a change of a block.
    fn add(&mut self, block: u64) {
        if let Some(before) = self.by_block.insert(block, self.next) {
            self.by_number.remove(&before);
        }
        self.by_number.insert(self.next, block);
        self.next += 1;
        if self.by_block.len() > self.most {
            self.forget();
        }
    }

    /// The store has answered a change of a range; `mine` selects the blocks of this shard.
    fn add_range(&mut self, blocks: &RangeInclusive<u64>, mine: impl Fn(u64) -> bool) {
        if blocks.end() - blocks.start() >= self.most as u64 {
            self.next += 1;
            self.forget();
        } else {
            blocks.clone().filter(|&block| mine(block)).for_each(|block| self.add(block));
        }
    }

    fn forget(&mut self) {
        self.by_block = HashMap::default();
        self.by_number.clear();
        self.all = Some(self.next);
    }

    /// The bound that a flush starting now covers: all changes so far have smaller numbers.
    pub(crate) fn now(&self) -> u64 {
        self.next
    }

    /// A flush has covered all changes with numbers below `bound`.
    pub(crate) fn cover(&mut self, bound: u64) {
        let left = self.by_number.split_off(&bound);
        for (_, block) in std::mem::replace(&mut self.by_number, left) {
            self.by_block.remove(&block);
        }
        self.all = self.all.filter(|&end| end > bound);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_block.is_empty() && self.all.is_none()
    }

    /// The blocks that may be lost. Those that are not lost now may be lost later, until a flush
    /// covers them.
    pub(crate) fn lost(&self) -> Lost {
        match self.all {
            Some(_) => Lost::Any,
            None => {
                let mut blocks: Vec<u64> = self.by_block.keys().copied().collect();
                // Sorted, so that the order is the same in every run.
                blocks.sort_unstable();
                Lost::Blocks(blocks)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_was_answered_before_it_began() {
        let mut unflushed = Unflushed::new(8);
        assert_eq!(unflushed.lost(), Lost::Any, "of an earlier process");
        unflushed.cover(unflushed.now());
        [1, 2, 3].into_iter().for_each(|block| unflushed.add(block));
        let bound = unflushed.now();
        unflushed.add(2);
        unflushed.add(4);
        unflushed.cover(bound);
        assert_eq!(unflushed.lost(), Lost::Blocks(vec![2, 4]));
        assert_eq!(unflushed.lost(), Lost::Blocks(vec![2, 4]), "they may go later");
        unflushed.cover(unflushed.now());
        assert_eq!(unflushed.lost(), Lost::Blocks(vec![]));
    }

    #[test]
    fn more_than_are_remembered_are_all_until_a_flush_covers_them() {
        let mut unflushed = Unflushed::new(4);
        (0..5).for_each(|block| unflushed.add(block));
        let early = unflushed.now() - 1;
        unflushed.add(9);
        unflushed.cover(early);
        assert_eq!(unflushed.lost(), Lost::Any);
        (0..5).for_each(|block| unflushed.add(block));
        let bound = unflushed.now();
        unflushed.add(9);
        unflushed.cover(bound);
        assert_eq!(unflushed.lost(), Lost::Blocks(vec![9]));
        // A long range, and one with blocks of another shard.
        unflushed.add_range(&(0..=u64::MAX), |_| true);
        assert_eq!(unflushed.lost(), Lost::Any);
        unflushed.cover(unflushed.now());
        unflushed.add_range(&(0..=3), |block| block % 2 == 0);
        assert_eq!(unflushed.lost(), Lost::Blocks(vec![0, 2]));
    }
}
