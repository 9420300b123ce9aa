//! The directory of what lies on flash with a journal of it, so that no end of a copy is
//! overlooked, whoever ends it; or without one.
//!
//! Not here: when a copy is entered and a commit made, which the caller knows (`journal.rs`).

use crate::directory::{Directory, Evidence, Slot};
use crate::journal::{Commit, Journal};
use crate::pages::Stamp;
use crate::slots::Slots;

/// Records that wait for a commit, beyond which long discards wait.
const PENDING_MAX: u64 = 1 << 14;

/// Slots, with a journal or without. Without, it is as [`Slots`] are.
pub struct Recorded {
    pub(crate) slots: Slots,
    pub(crate) journal: Option<Journal>,
}

impl Recorded {
    /// Empty slots, with a journal of a new part if this is its `id`.
    pub fn new(slots: Slots, id: Option<u64>) -> Self {
        let journal = id.map(|id| Journal::new(id, slots.capacity()));
        Self { slots, journal }
    }

    /// The slots.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Data with this check were written to a slot.
    pub fn set_check(&mut self, slot: Slot, check: u16) {
        self.slots.set_check(slot, check);
    }

    /// The journal, for what it knows.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Number of copies that count after a restart.
    pub fn entered_count(&self) -> u32 {
        self.journal.as_ref().map_or(0, Journal::entered_count)
    }

    /// The copy of a block in a slot counts after a restart, as of [`Journal::enter`]. Nothing,
    /// without a journal or if another block lies there by now. Not for a block that went and came
    /// back to the same slot since its data were written: the caller must know.
    pub fn enter(&mut self, slot: Slot, block: u64) {
        let lies_there = self.slots.block_in(slot) == Some(block);
        if let Some(journal) = self.journal.as_mut().filter(|_| lies_there) {
            journal.enter(slot, block, self.slots.check_in(slot));
        }
    }

    /// Begins a commit, as of [`Journal::commit`]. `None`: without a journal.
    pub fn commit(&mut self, stamp: Stamp) -> Option<Commit> {
        Some(self.journal.as_mut()?.commit(&self.slots, stamp))
    }

    /// The two pages of the commit are durable.
    pub fn committed(&mut self) {
        self.journal.iter_mut().for_each(Journal::committed);
    }

    /// Goes on without the journal: the device failed, or the copies are not to count any more. Its
    /// pages stay: before the store changes, the part must have another id, durably, or the stamp
    /// of its last commit must not admit the change.
    pub fn stop_recording(&mut self) {
        self.journal = None;
    }
}

impl Directory for Recorded {
    fn capacity(&self) -> u32 {
        self.slots.capacity()
    }

    fn limit(&self) -> u64 {
        self.slots.limit()
    }

    fn find(&self, block: u64) -> Option<Slot> {
        self.slots.find(block)
    }

    fn touch(&mut self, slot: Slot) -> Evidence {
        self.slots.touch(slot)
    }

    fn keep(&mut self, slot: Slot) {
        self.slots.keep(slot);
    }

    fn place(&mut self, block: u64, evidence: Evidence) -> Option<(Slot, Option<u64>)> {
        let (slot, gone) = self.slots.place(block, evidence)?;
        if let (Some(journal), Some(gone)) = (&mut self.journal, gone) {
            journal.end(slot, gone);
        }
        Some((slot, gone))
    }

    fn empty(&mut self, slot: Slot) {
        if let Some(journal) = &mut self.journal {
            self.slots.block_in(slot).iter().for_each(|&block| journal.end(slot, block));
        }
        self.slots.empty(slot);
    }

    fn block_in(&self, slot: Slot) -> Option<u64> {
        self.slots.block_in(slot)
    }

    fn has_room(&self) -> bool {
        let waits = |journal: &Journal| journal.recorded() - journal.durable();
        self.journal.as_ref().is_none_or(|journal| waits(journal) < PENDING_MAX)
    }
}
