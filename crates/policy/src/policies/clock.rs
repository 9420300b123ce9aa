//! CLOCK: FIFO in which a referenced block gets another turn.
//!
//! The ring is kept as a list: the hand is the front, and an entry that the hand passes moves to
//! the back. A new block enters just behind the hand with counter 0, as in libCacheSim; others
//! start at 1. With `bits` above 1 (generalised CLOCK) a hit counts up to 2^bits - 1, and the hand
//! counts down.
//!
//! Invariants: an entry is in the ring exactly if it is resident; its mark there is 1 + its
//! counter.

use super::clock_ca::Search;
use crate::containers::ring::Ring;
use crate::content_aware::{ContentAware, Neighbour};
use crate::registry::{Footprint, Kind, Parameter, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "clock",
    aliases: &[],
    summary: "second chance: FIFO that spares what was referenced",
    source: "Corbato, MIT Project MAC 1968",
    parameters: &[Parameter {
        name: "bits",
        kind: Kind::Integer(1, 7),
        default: "1",
        help: "width of the reference counter",
    }],
    memory: Footprint::new(1, 80),
    build: |arguments, context| {
        let bits = arguments.integer("bits") as u32;
        Ok(Box::new(Clock::new(context.capacity, bits, None)))
    },
};

#[derive(Clone, Debug)]
pub(super) struct Clock {
    capacity: u32,
    /// Mark of an entry whose counter is at its maximum.
    max: u8,
    /// Front: at the hand.
    ring: Ring,
    /// For CLOCK-CA: the knowledge of the neighbour, with the search for a victim that it holds.
    neighbour: Option<Neighbour>,
    search: Search,
}

impl Clock {
    /// `bits`: size of a counter, at most 7.
    pub(super) fn new(capacity: u32, bits: u32, neighbour: Option<Neighbour>) -> Self {
        let (ring, search) = (Ring::new(), Search::default());
        Self { capacity, max: 1 << bits, ring, neighbour, search }
    }

    /// The first entry with a clear counter that the neighbour holds, found by a full scan.
    /// O(capacity) at worst.
    fn would_prefer(&self) -> Option<Entry> {
        let neighbour = self.neighbour.as_ref()?;
        let mut window = self.ring.iter().take(neighbour.window() as usize);
        window.find(|&entry| self.ring.mark(entry) == 1 && neighbour.has(entry))
    }

    /// Removes an entry from its place; the hand does not move.
    fn leave(&mut self, entry: Entry) {
        if self.neighbour.is_some() {
            self.search.leaves(&self.ring, entry);
        }
        self.ring.remove(entry);
    }

    #[inline(always)]
    fn evict(&mut self, out: &mut Evictions) {
        if self.neighbour.is_some() {
            self.evict_held_first(out);
        } else {
            self.turn_hand(out);
        }
    }

    /// Evicts the first unmarked entry from the hand on. Returns how many entries the hand passed.
    #[inline(always)]
    fn turn_hand(&mut self, out: &mut Evictions) -> u32 {
        let mut passed = 0;
        while let Some(slot) = self.ring.front() {
            let mark = self.ring.mark_in(slot);
            if *mark == 1 {
                let victim = self.ring.entry_in(slot);
                self.ring.pop_front();
                out.push(victim, EvictionKind::Evicted);
                break;
            }
            *mark -= u8::from(*mark > 1);
            self.ring.turn();
            passed += 1;
        }
        passed
    }

    /// A separate function, to keep the code without a neighbour small.
    #[inline(never)]
    fn evict_held_first(&mut self, out: &mut Evictions) {
        let Some(neighbour) = &self.neighbour else { return };
        if let Some(victim) = self.search.prefer(&mut self.ring, neighbour) {
            self.leave(victim);
            out.push(victim, EvictionKind::Evicted);
            return;
        }
        let passed = self.turn_hand(out);
        self.search.hand_passed(passed + 1);
    }
}

impl Policy for Clock {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.ring.len()
    }

    fn grow(&mut self, entries: u32) {
        self.ring.grow(entries);
        self.neighbour.iter_mut().for_each(|n| n.grow(entries));
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.ring.contains(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        let mark = self.ring.mark_in(self.ring.slot_of(entry));
        *mark += u8::from(*mark < self.max);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        if self.len() == self.capacity {
            self.evict(out);
        }
        self.ring.push_back(entry, 1, self.capacity);
    }

    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        if !self.contains(entry) {
            self.admit(entry, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if self.contains(entry) {
            self.leave(entry);
        }
    }

    /// The first entry, from the hand on, among those with the lowest counter: each turn of the
    /// hand decrements every counter. O(capacity) at worst.
    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        self.would_prefer().or_else(|| self.ring.iter().min_by_key(|&e| self.ring.mark(e)))
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        self.neighbour.iter_mut().for_each(|n| n.resize(capacity));
        while self.len() > capacity {
            self.evict(out);
        }
    }

    fn residents(&self) -> Vec<Entry> {
        self.ring.iter().collect()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.ring.prefetch(entry)
    }

    fn content_aware(&mut self) -> Option<&mut dyn ContentAware> {
        if self.neighbour.is_some() { Some(self) } else { None }
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        let saved = self.ring.iter().map(|entry| (entry, self.ring.mark(entry)));
        let mark = |snapshot: &mut Snapshot<'_>, mark: &mut u8| snapshot.number(mark, 1..=self.max);
        for (entry, mark) in snapshot.entries_with(self.len(), saved, mark)? {
            self.ring.push_back(entry, mark, self.capacity);
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        crate::check_room(self.len(), self.capacity)?;
        if self.ring.iter().any(|e| self.ring.mark(e) > self.max) {
            return Err("a counter is beyond its width".into());
        }
        if let Some(neighbour) = &self.neighbour {
            self.search.check(&self.ring, neighbour)?;
        }
        self.ring.check()
    }
}

impl ContentAware for Clock {
    fn neighbour_holds(&mut self, entry: Entry, holds: bool) {
        let is_new = self.neighbour.as_mut().is_some_and(|n| n.set(entry, holds));
        if is_new && self.contains(entry) {
            self.search.learns(&self.ring, entry);
        }
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.neighbour.as_ref().is_some_and(|n| n.has(entry))
    }
}
