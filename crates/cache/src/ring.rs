//! A FIFO queue of entries in one array: for policies whose entries only ever enter at the back.
//!
//! Entries that pass from front to back, as under the hand of a clock, cost a read and a write of
//! neighbouring memory, where a linked list touches the nodes of four scattered entries. An entry
//! that is removed from the middle leaves a gap, which is skipped when the front reaches it.
//!
//! Invariants (checked by [`Ring::check`]):
//! 1. `slots[at[e]]` is `e` for an entry in the queue; a slot whose entry says otherwise is a gap;
//! 2. there are `len` entries and `gaps` gaps from `front` to `back`.

use crate::Entry;

/// Position of an entry that is not in the queue.
const NOWHERE: u32 = u32::MAX;

/// A queue over entries `0..entries`.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// A power of two of them; position `p` is in slot `p % slots`.
    slots: Vec<Entry>,
    /// Slot of each entry, or `NOWHERE`.
    at: Vec<u32>,
    front: u64,
    back: u64,
    len: u32,
    gaps: u32,
}

impl Ring {
    /// An empty queue over no entries yet.
    pub(crate) fn new() -> Self {
        Self { slots: vec![0; 16], at: Vec::new(), front: 0, back: 0, len: 0, gaps: 0 }
    }

    /// Makes the handles below `entries` valid.
    pub(crate) fn grow(&mut self, entries: u32) {
        self.at.resize(self.at.len().max(entries as usize), NOWHERE);
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Whether an entry is in the queue.
    #[inline(always)]
    pub(crate) fn contains(&self, entry: Entry) -> bool {
        self.at[entry as usize] != NOWHERE
    }

    /// A value that depends on where `entry` is: reading it early brings that near.
    #[inline(always)]
    pub(crate) fn warm(&self, entry: Entry) -> u32 {
        self.at[entry as usize]
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> usize {
        position as usize & (self.slots.len() - 1)
    }

    /// Whether a slot between front and back holds an entry still.
    #[inline(always)]
    fn is_gap(&self, slot: usize) -> bool {
        self.gaps > 0 && self.at[self.slots[slot] as usize] != slot as u32
    }

    #[inline(always)]
    pub(crate) fn push_back(&mut self, entry: Entry) {
        if self.back - self.front == self.slots.len() as u64 {
            self.make_room();
        }
        let slot = self.slot(self.back);
        self.slots[slot] = entry;
        self.at[entry as usize] = slot as u32;
        self.back += 1;
        self.len += 1;
    }

    #[inline(always)]
    pub(crate) fn pop_front(&mut self) -> Option<Entry> {
        let entry = self.front()?;
        self.front += 1;
        self.at[entry as usize] = NOWHERE;
        self.len -= 1;
        Some(entry)
    }

    /// The entry that is to be popped next.
    #[inline(always)]
    pub(crate) fn front(&mut self) -> Option<Entry> {
        while self.front < self.back {
            let slot = self.slot(self.front);
            if !self.is_gap(slot) {
                return Some(self.slots[slot]);
            }
            self.front += 1;
            self.gaps -= 1;
        }
        None
    }

    /// Takes an entry that is in the queue out of it.
    pub(crate) fn remove(&mut self, entry: Entry) {
        debug_assert_ne!(self.at[entry as usize], NOWHERE);
        self.at[entry as usize] = NOWHERE;
        self.len -= 1;
        self.gaps += 1;
    }

    /// Front to back.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        let slots = (self.front..self.back).map(|position| self.slot(position));
        slots.filter(|&slot| !self.is_gap(slot)).map(|slot| self.slots[slot])
    }

    /// Closes the gaps if that frees half of the slots; else doubles them.
    #[cold]
    fn make_room(&mut self) {
        let queue: Vec<Entry> = self.iter().collect();
        if queue.len() * 2 > self.slots.len() {
            self.slots.resize(self.slots.len() * 2, 0);
        }
        (self.front, self.back, self.len, self.gaps) = (0, 0, 0, 0);
        for entry in queue {
            self.push_back(entry);
        }
    }

    /// Checks the invariants in the head of this file.
    pub(crate) fn check(&self) -> Result<(), String> {
        let entries = self.iter().count() as u64;
        let placed = self.at.iter().filter(|&&slot| slot != NOWHERE).count() as u64;
        let right = entries == u64::from(self.len)
            && placed == entries
            && entries + u64::from(self.gaps) == self.back - self.front;
        let at_home = |e: Entry| self.slots[self.at[e as usize] as usize] == e;
        match self.iter().find(|&e| !at_home(e)) {
            Some(entry) => Err(format!("ring: entry {entry} is not where it is said to be")),
            None if !right => Err(format!("ring: {entries} entries, {} counted", self.len)),
            None => Ok(()),
        }
    }
}
