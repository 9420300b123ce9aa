//! Blocks that a client has evicted and whose last write has not arrived yet.
//!
//! A program that writes through the page cache of its kernel can evict a page long before the
//! kernel writes it. Contents that the client hands over then differ from what the volume holds,
//! and are refused. A reload would read the old data, which the write is about to replace. So the
//! shard remembers the digest of such contents, without the data. When a WRITE brings data with
//! this digest, the block is placed with the data of the WRITE, as if the client had evicted it at
//! that moment.
//!
//! Safety: data placed this way are those of a WRITE that succeeded and was the last operation on
//! the block (rule 3 of `digests.rs`). They pass the check that contents from a client pass at that
//! moment ([`Blocks::proven`]). The remembered digest decides only whether the block is placed. So
//! no read can return a wrong byte, whatever the client said.
//!
//! Counts: the level learns at once that the client no longer holds the block, which places
//! nothing. It learns of the eviction when the block is placed. So it sees the write before the
//! eviction, as the client made them; every eviction that it counts has a result; and one whose
//! WRITE never comes is not counted as placed.

use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use undercroft_level::{Asker, Sender};

/// The shard's blocks divided by this is how many blocks are remembered, but at least
/// [`REMEMBERED_MIN`]. A small cache needs more than its share, because the number depends on how
/// many pages a program evicts while its kernel delays a write. A block takes about 100 bytes.
const REMEMBERED_SHARE: u32 = 8;
const REMEMBERED_MIN: u32 = 4096;

/// How long a block is remembered, in microseconds. Linux writes a page after 30 to 35 seconds,
/// and later if the device is busy.
const LONGEST_US: u64 = 120_000_000;

/// The blocks of a shard that are placed if their next WRITE brings what a client handed over.
pub(crate) struct Awaited {
    blocks: HashMap<u64, Expected, RandomState>,
    /// The latest records by age, as (block, number). Records in it may be gone.
    order: VecDeque<(u64, u64)>,
    /// Number of the last record.
    last: u64,
    /// Most entries of `order`.
    most: usize,
}

/// What is expected of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The digest of the contents that were handed over.
    pub(crate) digest: u64,
    /// The client that handed them over.
    pub(crate) sender: Sender,
    number: u64,
}

impl Awaited {
    /// For a shard of `capacity` blocks.
    pub(crate) fn new(capacity: u32) -> Self {
        Self::of_at_most((capacity / REMEMBERED_SHARE).max(REMEMBERED_MIN))
    }

    fn of_at_most(most: u32) -> Self {
        let (blocks, order) = (HashMap::default(), VecDeque::new());
        Self { blocks, order, last: 0, most: most as usize }
    }

    /// Number of blocks that are remembered.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Remembers contents of a block; they replace earlier ones. Returns the blocks that are given
    /// up: those remembered too long, and the oldest if there are too many.
    pub(crate) fn remember(&mut self, block: u64, digest: u64, sender: Sender) -> Vec<u64> {
        self.last += 1;
        self.blocks.insert(block, Expected { digest, sender, number: self.last });
        self.order.push_back((block, self.last));
        let mut given_up = Vec::new();
        while let Some(&(oldest, number)) = self.order.front() {
            let expected = self.blocks.get(&oldest).filter(|its| its.number == number);
            let is_valid = expected.is_some_and(|its| !its.is_late(sender.arrived_us));
            if is_valid && self.order.len() <= self.most {
                break;
            }
            if expected.is_some() {
                self.blocks.remove(&oldest);
                given_up.push(oldest);
            }
            self.order.pop_front();
        }
        given_up
    }

    /// A WRITE of the block arrives.
    pub(crate) fn writing(&mut self, block: u64, asker: Asker) {
        let Some(expected) = self.blocks.get_mut(&block) else { return };
        if expected.is_late(asker.now_us) {
            self.forget(block);
        } else {
            expected.sender.connected = asker.connected;
        }
    }

    pub(crate) fn get(&self, block: u64) -> Option<Expected> {
        self.blocks.get(&block).copied()
    }

    pub(crate) fn forget(&mut self, block: u64) {
        self.blocks.remove(&block);
    }

    /// Forgets the blocks of a range.
    pub(crate) fn forget_within(&mut self, range: &RangeInclusive<u64>) {
        if range.end() - range.start() < self.len() as u64 {
            range.clone().for_each(|block| self.forget(block));
        } else if !self.blocks.is_empty() {
            self.blocks.retain(|block, _| !range.contains(block));
        }
    }

    /// Forgets what clients handed over, one bit for each: of the records in a part of the order,
    /// from the latest on. Returns the number of all.
    pub(crate) fn forget_clients(&mut self, gone: u64, part: Range<usize>) -> usize {
        let Self { blocks, order, .. } = self;
        for (block, number) in order.iter().rev().skip(part.start).take(part.len()) {
            let is_gone = blocks.get(block).is_some_and(|its| {
                its.number == *number
                    && gone.checked_shr(its.sender.client.into()).unwrap_or(0) & 1 != 0
            });
            if is_gone {
                blocks.remove(block);
            }
        }
        order.len()
    }

    /// Checks that every record has its place in the order, and that there are not too many.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let is_valid =
            |&&(block, number): &&(u64, u64)| self.get(block).is_some_and(|e| e.number == number);
        let valid = self.order.iter().filter(is_valid).count();
        if valid != self.len() || self.order.len() > self.most {
            return Err(format!("{} blocks are awaited, {valid} in order", self.len()));
        }
        Ok(())
    }
}

impl Expected {
    /// Whether it was handed over too long before `now_us`.
    fn is_late(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.sender.arrived_us) > LONGEST_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(client: u8, arrived_us: u64) -> Sender {
        Sender { client, arrived_us, connected: 1 }
    }

    fn blocks(awaited: &Awaited) -> Vec<u64> {
        awaited.validate().unwrap();
        let mut blocks: Vec<u64> = awaited.blocks.keys().copied().collect();
        blocks.sort_unstable();
        blocks
    }

    #[test]
    fn the_oldest_are_given_up_if_there_are_too_many() {
        let mut awaited = Awaited::of_at_most(3);
        for block in 1..=3 {
            assert!(awaited.remember(block, 7, sender(0, block)).is_empty());
        }
        assert_eq!(awaited.remember(4, 7, sender(0, 4)), [1]);
        assert!(awaited.remember(2, 8, sender(0, 5)).is_empty(), "2 becomes the newest");
        assert_eq!(awaited.get(2).unwrap().digest, 8);
        assert_eq!(awaited.remember(5, 7, sender(0, 6)), [3]);
        assert_eq!(blocks(&awaited), [2, 4, 5]);
    }

    #[test]
    fn memory_is_bounded_if_blocks_come_and_go() {
        let mut awaited = Awaited::of_at_most(4);
        for time in 0..10_000 {
            awaited.remember(time % 3, time, sender(0, time));
            if time % 2 == 0 {
                awaited.forget(time % 3);
            }
            assert!(awaited.order.len() <= 4 && awaited.len() <= 3);
            awaited.validate().unwrap();
        }
        let (small, large) = (Awaited::new(8), Awaited::new(1 << 20));
        assert_eq!((small.most, large.most), (4096, 1 << 17));
    }

    #[test]
    fn old_records_are_given_up() {
        let mut awaited = Awaited::of_at_most(8);
        awaited.remember(1, 7, sender(0, 0));
        awaited.remember(2, 7, sender(0, 50));
        let asker = |now_us| Asker { now_us, connected: 3, ..Asker::default() };
        awaited.writing(1, asker(LONGEST_US));
        assert_eq!(awaited.get(1).unwrap().sender.connected, 3);
        awaited.writing(1, asker(LONGEST_US + 1));
        assert_eq!(blocks(&awaited), [2]);
        assert_eq!(awaited.remember(3, 7, sender(0, LONGEST_US + 51)), [2]);
        assert_eq!(blocks(&awaited), [3]);
    }

    #[test]
    fn a_range_or_a_client_takes_its_records_along() {
        let mut awaited = Awaited::of_at_most(8);
        for block in 0..6 {
            awaited.remember(block, 7, sender(block as u8 % 2, block));
        }
        awaited.forget_within(&(1..=2));
        awaited.forget_within(&(6..=u64::MAX));
        assert_eq!(blocks(&awaited), [0, 3, 4, 5]);
        awaited.forget_clients(1 << 1, 0..100);
        assert_eq!(blocks(&awaited), [0, 4]);
        assert!(awaited.remember(9, 7, sender(1, 9)).is_empty());
        assert_eq!(awaited.len(), 3);
    }
}
