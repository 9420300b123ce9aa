//! The search of CLOCK-CA: which block from the hand on has its bit clear and is held by the
//! neighbour. It goes on where it ended, so a window costs no more than what comes into it.
//!
//! That needs no second look at what was passed in vain: bits are cleared by the hand alone, which
//! comes from the front; entries enter behind all others; and who becomes held is told here.
//!
//! Invariants (checked by [`Search::check`]), unless the ring was renumbered: of the first
//! `vain.count` entries from the hand on none is held with its bit clear; the bits of the first
//! `set.count` are set; each goes up to the slot `last`.

use super::Entry;
use super::neighbour::Neighbour;
use crate::ring::Ring;

/// Mark of an entry whose bit is clear.
const CLEAR: u8 = 1;

/// Entries from the hand on that need no second look.
#[derive(Clone, Copy, Default)]
struct Looked {
    count: u32,
    /// Slot of the last of them, or where it was. Means nothing if there are none.
    last: usize,
}

impl Looked {
    fn covers(self, ring: &Ring, slot: usize) -> bool {
        self.count > 0 && ring.distance(slot) <= ring.distance(self.last)
    }

    /// Slot of the first entry that they are not.
    fn next(self, ring: &mut Ring) -> Option<usize> {
        if self.count == 0 { ring.front() } else { ring.after(self.last) }
    }

    fn add(&mut self, slot: usize) {
        (self.count, self.last) = (self.count + 1, slot);
    }
}

/// How far was looked.
#[derive(Clone, Default)]
pub(super) struct Search {
    vain: Looked,
    set: Looked,
    numbering: u32,
}

impl Search {
    /// The entry to evict from its place; none if there is none within the window, or if the hand
    /// would evict it next.
    pub(super) fn prefer(&mut self, ring: &mut Ring, neighbour: &impl Neighbour) -> Option<Entry> {
        if self.numbering != ring.numbering() {
            *self = Self { numbering: ring.numbering(), ..Self::default() };
        }
        while self.vain.count < neighbour.window() {
            let slot = self.vain.next(ring)?;
            let entry = ring.entry_in(slot);
            if ring.mark(entry) == CLEAR && neighbour.has(entry) {
                return (self.first_clear(ring) != Some(slot)).then_some(entry);
            }
            self.vain.add(slot);
        }
        None
    }

    /// Slot of the entry that the hand would evict, if any bit is clear.
    fn first_clear(&mut self, ring: &mut Ring) -> Option<usize> {
        loop {
            let slot = self.set.next(ring)?;
            if *ring.mark_in(slot) == CLEAR {
                return Some(slot);
            }
            self.set.add(slot);
        }
    }

    /// An entry of the ring is about to leave its place.
    pub(super) fn leaves(&mut self, ring: &Ring, entry: Entry) {
        let slot = ring.slot_of(entry);
        for looked in [&mut self.vain, &mut self.set] {
            if looked.covers(ring, slot) {
                looked.count -= 1;
            }
        }
    }

    /// The hand passed so many entries, of which it evicted the last.
    pub(super) fn hand_passed(&mut self, entries: u32) {
        self.vain.count = self.vain.count.saturating_sub(entries);
        self.set = Looked::default();
    }

    /// The neighbour holds an entry of the ring from now on.
    pub(super) fn learns(&mut self, ring: &Ring, entry: Entry) {
        if ring.mark(entry) == CLEAR && self.vain.covers(ring, ring.slot_of(entry)) {
            self.vain = Looked::default();
        }
    }

    /// Checks the invariants in the head of this file.
    pub(super) fn check(&self, ring: &Ring, neighbour: &impl Neighbour) -> Result<(), String> {
        if self.numbering != ring.numbering() {
            return Ok(());
        }
        let is_set = |&entry: &Entry| ring.mark(entry) != CLEAR;
        let (vain, set) = (self.vain.count as usize, self.set.count as usize);
        let in_vain = |entry: &Entry| is_set(entry) || !neighbour.has(*entry);
        let ends = |looked: Looked| {
            let covered = ring.iter().filter(|&e| looked.covers(ring, ring.slot_of(e))).count();
            covered == looked.count as usize
        };
        if !ring.iter().take(vain).all(|e| in_vain(&e)) || !ends(self.vain) {
            return Err(format!("clock-ca: {vain} entries were not passed in vain"));
        }
        if !ring.iter().take(set).all(|e| is_set(&e)) || !ends(self.set) {
            return Err(format!("clock-ca: not all of {set} bits are set"));
        }
        Ok(())
    }
}
