//! What MQ knows of a block, in 16 bytes, and when a block moves one queue down, in 8.

use crate::Entry;
use crate::containers::log::Places;

/// The queue number of a block in no queue; larger than all others.
pub(super) const NOWHERE: u32 = u8::MAX as u32;

/// The largest time that can be stored.
pub(super) const TIME_MAX: u64 = u64::MAX >> QUEUE_BITS;

/// What is known of a block, and its place. The queue is in the lowest bits of the time of the last
/// reference, so that the block takes 16 bytes and not 24.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    last_and_queue: u64,
    /// Number of references; 0 for an unknown block.
    pub(super) count: u32,
    pub(super) slot: u32,
}

const QUEUE_BITS: u32 = u8::BITS;

impl Default for Block {
    fn default() -> Self {
        Self { last_and_queue: NOWHERE.into(), count: 0, slot: 0 }
    }
}

impl Block {
    #[inline(always)]
    pub(super) fn queue(self) -> u32 {
        u32::from(self.last_and_queue as u8)
    }

    #[inline(always)]
    pub(super) fn set_queue(&mut self, queue: u32) {
        self.last_and_queue = self.last_and_queue >> QUEUE_BITS << QUEUE_BITS | u64::from(queue);
    }

    /// Time of the last reference.
    #[inline(always)]
    pub(super) fn last(self) -> u64 {
        self.last_and_queue >> QUEUE_BITS
    }

    #[inline(always)]
    pub(super) fn set_uses(&mut self, count: u32, last: u64) {
        self.last_and_queue = last << QUEUE_BITS | u64::from(self.queue());
        self.count = count;
    }
}

#[derive(Clone)]
pub(super) struct Blocks(pub(super) Vec<Block>);

impl Places for Blocks {
    const SLOTS: u32 = 1 << 31;

    #[inline(always)]
    fn is_at(&self, entry: Entry, queue: u32, slot: u32) -> bool {
        let block = self.0[entry as usize];
        (block.slot == slot) & (block.queue() == queue)
    }

    #[inline(always)]
    fn put(&mut self, entry: Entry, queue: u32, slot: u32) {
        let block = &mut self.0[entry as usize];
        block.set_queue(queue);
        block.slot = slot;
    }

    #[inline(always)]
    fn shift(&mut self, entry: Entry, queue: u32, from: u32, to: u32) -> bool {
        let block = &mut self.0[entry as usize];
        let counts = (block.slot == from) & (block.queue() == queue);
        block.slot = if counts { to } else { block.slot };
        counts
    }
}

/// A time as two halves: with the entry it takes 12 bytes, without padding for alignment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpireTime([u32; 2]);

impl ExpireTime {
    #[inline(always)]
    pub(super) fn new(time: u64) -> Self {
        Self([time as u32, (time >> 32) as u32])
    }

    #[inline(always)]
    pub(super) fn get(self) -> u64 {
        u64::from(self.0[0]) | u64::from(self.0[1]) << 32
    }
}
