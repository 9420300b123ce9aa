//! The data of the blocks written last, for the blocks that the level's staging area names. A block
//! that the client evicts soon after writing it is placed without a read from the store.
//!
//! Staged data are used only while the block has no operations: whatever changes a block makes it
//! active, or covers it by a range, before the store is told.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use undercroft_frames::{Frame, Pools};

#[derive(Default)]
pub(crate) struct Staged {
    /// By block: the number of its last write, and its data if they are staged.
    blocks: HashMap<u64, (u64, Option<Frame>), RandomState>,
    /// The latest writes, in order: (block, number).
    writes: VecDeque<(u64, u64)>,
    next: u64,
}

impl Staged {
    /// A block is being written; its staged data are outdated. Only the last `most` writes,
    /// including this one, are kept.
    pub(crate) fn writing(&mut self, block: u64, most: u32) {
        self.next += 1;
        self.blocks.insert(block, (self.next, None));
        self.writes.push_back((block, self.next));
        while self.writes.len() > most as usize {
            let Some((old, number)) = self.writes.pop_front() else { return };
            if self.blocks.get(&old).is_some_and(|&(last, _)| last == number) {
                self.blocks.remove(&old);
            }
        }
    }

    /// A write ended well, and this is the block now.
    pub(crate) fn written(&mut self, block: u64, frame: Frame) {
        if let Some((_, data)) = self.blocks.get_mut(&block) {
            *data = Some(frame);
        }
    }

    /// Moves data out of surplus frames; drops those that no frame is free for.
    pub(crate) fn move_surplus(&mut self, pool: &Pools) {
        // In order, so that every run gives up the same ones if frames are short.
        let all = self.blocks.iter_mut();
        let mut surplus: Vec<_> =
            all.filter(|(_, (_, data))| data.as_ref().is_some_and(Frame::is_surplus)).collect();
        surplus.sort_unstable_by_key(|(block, _)| **block);
        for (_, (_, data)) in surplus {
            *data = data.take().and_then(|old| {
                let mut other = pool.take()?;
                other.copy_from_slice(old.as_ref());
                Some(other.freeze())
            });
        }
    }

    /// Whether a recent write of the block is remembered.
    pub(crate) fn awaits(&self, block: u64) -> bool {
        self.blocks.contains_key(&block)
    }

    pub(crate) fn get(&self, block: u64) -> Option<&Frame> {
        self.blocks.get(&block)?.1.as_ref()
    }

    pub(crate) fn remove(&mut self, block: u64) {
        self.blocks.remove(&block);
    }

    /// A range was changed: the staged data of its blocks are outdated.
    pub(crate) fn changed_within(&mut self, blocks: &std::ops::RangeInclusive<u64>) {
        let within = self.blocks.iter_mut().filter(|(block, _)| blocks.contains(block));
        within.for_each(|(_, (_, data))| *data = None);
    }

    /// The blocks of a range whose writes are remembered, in order.
    pub(crate) fn within(&self, blocks: &std::ops::RangeInclusive<u64>) -> Vec<u64> {
        let within = self.blocks.keys().copied().filter(|block| blocks.contains(block));
        let mut within: Vec<u64> = within.collect();
        within.sort_unstable();
        within
    }
}
