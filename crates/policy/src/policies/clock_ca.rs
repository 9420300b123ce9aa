//! CLOCK-CA: CLOCK that first examines a window of blocks from the hand on, and evicts the first
//! whose bit is clear and that the neighbouring cache holds too. Without such a block, or if CLOCK
//! would evict that block anyway, it does what CLOCK does.
//!
//! The poster says "also for CLOCK" and no more; the rest is ours. The block is removed from its
//! place: the hand stays and no bit is cleared. If the hand moved there, it would give another turn
//! to all unreferenced blocks on its way, and would stop among the newest blocks, which the
//! neighbour holds. For the same reason the window is counted in places, not in blocks whose bit is
//! clear. `docs/measurements/content-aware.md` has the alternatives that were tried, and their
//! costs.
//!
//! The ring and its hand are those of CLOCK (`clock.rs`). This file has the search. It continues
//! where it ended, so that its cost depends only on the blocks that enter the window. Blocks that
//! did not match need no second look: only the hand clears bits, and it comes from the front;
//! entries enter behind all others; and the search is told which blocks the neighbour starts to
//! hold.
//!
//! Invariants (checked by [`Search::check`]), unless the ring was renumbered: among the first
//! `vain.count` entries from the hand on, none is held with its bit clear; the bits of the first
//! `set.count` entries are set; the slot `last` of each is that of its last entry.

use super::clock::Clock;
use crate::Entry;
use crate::containers::ring::Ring;
use crate::content_aware::{ALPHA, FILTER_BITS, HASHES, KNOWS, Neighbour, PUBLISH};
use crate::registry::{Footprint, PolicyInfo};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "clock-ca",
    aliases: &[],
    summary: "content-aware CLOCK: evicts first what the neighbouring cache holds too",
    source: "Collaborative buffer caches in data centers (poster)",
    parameters: &[ALPHA, KNOWS, FILTER_BITS, HASHES, PUBLISH],
    memory: Footprint::new(5, 700),
    build: |arguments, context| {
        let neighbour = Neighbour::new(arguments.real("alpha"), context.capacity);
        Ok(Box::new(Clock::new(context.capacity, 1, Some(neighbour))))
    },
};

/// Mark of an entry whose bit is clear.
const CLEAR: u8 = 1;

/// A run of entries from the hand on that need no second look.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    count: u32,
    /// Slot of its last entry, or the former slot of that; meaningless if the run is empty.
    last: usize,
}

impl Looked {
    fn covers(self, ring: &Ring, slot: usize) -> bool {
        self.count > 0 && ring.distance(slot) <= ring.distance(self.last)
    }

    /// Slot of the first entry behind the run.
    fn next(self, ring: &mut Ring) -> Option<usize> {
        if self.count == 0 { ring.front() } else { ring.after(self.last) }
    }

    fn add(&mut self, slot: usize) {
        (self.count, self.last) = (self.count + 1, slot);
    }
}

/// The state of the search.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    vain: Looked,
    set: Looked,
    numbering: u32,
}

impl Search {
    /// The entry to evict from its place; `None` if the window has none, or if the hand would evict
    /// it next.
    pub(super) fn prefer(&mut self, ring: &mut Ring, neighbour: &Neighbour) -> Option<Entry> {
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

    /// Notes that an entry of the ring is about to leave its place.
    pub(super) fn leaves(&mut self, ring: &Ring, entry: Entry) {
        let slot = ring.slot_of(entry);
        for looked in [&mut self.vain, &mut self.set] {
            if looked.covers(ring, slot) {
                looked.count -= 1;
            }
        }
    }

    /// Notes that the hand passed `entries` entries and evicted the last of them.
    pub(super) fn hand_passed(&mut self, entries: u32) {
        self.vain.count = self.vain.count.saturating_sub(entries);
        self.set = Looked::default();
    }

    /// Notes that the neighbour holds an entry of the ring now.
    pub(super) fn learns(&mut self, ring: &Ring, entry: Entry) {
        if ring.mark(entry) == CLEAR && self.vain.covers(ring, ring.slot_of(entry)) {
            self.vain = Looked::default();
        }
    }

    /// Checks the invariants in the head of this file.
    pub(super) fn check(&self, ring: &Ring, neighbour: &Neighbour) -> Result<(), String> {
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
