//! What the levels of one process have in common: the clock, and one record a block. A block is at
//! one level at a time, so one record does for all levels of a hierarchy; a level touches those of
//! the blocks that are its own, and what it knows of its neighbours' blocks came by a message
//! (`link.rs`). A server, or a client, has the same for the one level that it runs.
//!
//! What a record is, and the lists that records are in, is in `records.rs`.

use std::ops::Deref;

use super::records::{Block, Blocks};
use crate::Entry;

/// The clock and the records, owned or at hand.
pub(super) struct Shared<R = Vec<Block>> {
    pub(super) blocks: Blocks<R>,
    /// References of clients so far, the one at work included.
    now: u64,
    /// Number of the slot that it is in, from 0, and the last reference of that slot.
    slot: u64,
    slot_end: u64,
    /// References in a slot.
    period: u64,
}

/// What a level has at hand while it deals with one reference, in which the clock stands.
pub(super) type AtHand<'a> = Shared<&'a mut [Block]>;

impl Shared {
    /// With so many lists, and so many references in a slot.
    pub(super) fn new(lists: u32, period: u64) -> Self {
        Self { blocks: Blocks::new(lists), now: 0, slot: 0, slot_end: period, period }
    }

    /// Another length of slots, before the first reference.
    pub(super) fn set_period(&mut self, period: u64) {
        debug_assert_eq!(self.now, 0);
        (self.period, self.slot_end) = (period, period);
    }

    /// Borrows what the levels share for the reference at work, with its parts side by side.
    #[inline(always)]
    pub(super) fn at_hand(&mut self) -> AtHand<'_> {
        let &mut Self { ref mut blocks, now, slot, slot_end, period } = self;
        Shared { blocks: blocks.at_hand(), now, slot, slot_end, period }
    }

    /// The next reference begins. True if it is the first of a slot, other than the first slot.
    #[inline(always)]
    pub(super) fn tick(&mut self) -> bool {
        self.now += 1;
        let begins = self.now > self.slot_end;
        if begins {
            self.slot += 1;
            self.slot_end = self.slot_end.saturating_add(self.period);
        }
        begins
    }

    /// Up to so many references that neither end a slot nor begin one pass: how many did.
    pub(super) fn pass_within_slot(&mut self, most: u64) -> u64 {
        let passed = most.min(self.slot_end - self.now);
        self.now += passed;
        passed
    }
}

impl AtHand<'_> {
    /// Borrows it again, to hand it on to what is seldom called: the compiler then still knows that
    /// ours stays as it is.
    #[inline(always)]
    pub(super) fn again(&mut self) -> AtHand<'_> {
        let &mut Self { ref mut blocks, now, slot, slot_end, period } = self;
        Shared { blocks: blocks.again(), now, slot, slot_end, period }
    }
}

impl<R: Deref<Target = [Block]>> Shared<R> {
    #[inline(always)]
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    #[inline(always)]
    pub(super) fn slot(&self) -> u64 {
        self.slot
    }

    /// References from the one at work, which counts, to the end of the slot.
    #[inline(always)]
    pub(super) fn left_in_slot(&self) -> u64 {
        self.slot_end - self.now + 1
    }

    /// Whether the reference at work is the last one of its slot.
    #[inline(always)]
    pub(super) fn ends_slot(&self) -> bool {
        self.now == self.slot_end
    }

    /// The level that holds a block.
    #[inline(always)]
    pub(super) fn level_of(&self, entry: Entry) -> Option<usize> {
        usize::from(self.blocks.get(entry).place).checked_sub(1)
    }
}
