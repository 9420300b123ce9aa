//! SIEVE: a FIFO queue whose hand moves from old to new, and evicts in place the first block that
//! was not visited since the hand last passed.
//!
//! Invariants: an entry is in the queue exactly if it is resident, marked as visited or unvisited;
//! `hand` is resident.

use crate::containers::ring::Ring;
use crate::registry::{Footprint, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "sieve",
    aliases: &[],
    summary: "a hand sifts unvisited blocks out of a FIFO queue",
    source: "Zhang, Yang, Yue, Vigfusson & Rashmi, NSDI 2024",
    parameters: &[],
    memory: Footprint::new(1, 86),
    build: |_, context| {
        Ok(Box::new(Sieve { capacity: context.capacity, queue: Ring::new(), hand: None }))
    },
};

const UNVISITED: u8 = 1;
const VISITED: u8 = 2;

#[derive(Clone, Debug)]
struct Sieve {
    capacity: u32,
    /// Back: newest (the paper's head).
    queue: Ring,
    /// Where the next sweep starts; `None`: at the oldest.
    hand: Option<Entry>,
}

impl Sieve {
    #[inline(always)]
    fn remove(&mut self, entry: Entry) {
        if self.hand == Some(entry) {
            self.hand = self.newer(entry);
        }
        self.queue.remove(entry);
    }

    /// The next newer entry in the queue.
    fn newer(&self, entry: Entry) -> Option<Entry> {
        self.queue.after(self.queue.slot_of(entry)).map(|slot| self.queue.entry_in(slot))
    }

    #[inline(always)]
    fn evict(&mut self, out: &mut Evictions) {
        let mut at = self.hand.map(|hand| self.queue.slot_of(hand)).or_else(|| self.queue.front());
        while let Some(slot) = at {
            let next = self.queue.after(slot);
            if std::mem::replace(self.queue.mark_in(slot), UNVISITED) == UNVISITED {
                let entry = self.queue.entry_in(slot);
                self.hand = next.map(|slot| self.queue.entry_in(slot));
                self.queue.remove(entry);
                out.push(entry, EvictionKind::Evicted);
                return;
            }
            at = next.or_else(|| self.queue.front());
        }
    }
}

impl Policy for Sieve {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.queue.len()
    }

    fn grow(&mut self, entries: u32) {
        self.queue.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.queue.contains(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        *self.queue.mark_in(self.queue.slot_of(entry)) = VISITED;
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        if self.len() == self.capacity {
            self.evict(out);
        }
        self.queue.push_back(entry, UNVISITED, self.capacity);
    }

    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        if !self.contains(entry) {
            self.admit(entry, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if self.contains(entry) {
            self.remove(entry);
        }
    }

    /// The first unvisited entry from the hand on, or the entry at the hand if all are visited.
    /// Clears no marks. O(capacity) at worst.
    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        let oldest = self.queue.iter().next();
        let start = self.hand.or(oldest)?;
        let step = |&entry: &Entry| self.newer(entry).or(oldest);
        std::iter::successors(Some(start), step)
            .take(self.len() as usize)
            .find(|&entry| self.queue.mark(entry) == UNVISITED)
            .or(Some(start))
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        while self.len() > capacity {
            self.evict(out);
        }
    }

    /// Newest first.
    fn residents(&self) -> Vec<Entry> {
        let mut all: Vec<Entry> = self.queue.iter().collect();
        all.reverse();
        all
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.queue.prefetch(entry)
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        let saved = self.residents().into_iter().map(|entry| (entry, self.queue.mark(entry)));
        let mark =
            |snapshot: &mut Snapshot<'_>, it: &mut u8| snapshot.number(it, UNVISITED..=VISITED);
        let newest_first = snapshot.entries_with(self.len(), saved, mark)?;
        for (entry, mark) in newest_first.into_iter().rev() {
            self.queue.push_back(entry, mark, self.capacity);
        }
        snapshot.optional_entry(&mut self.hand)
    }

    fn validate(&self) -> Result<(), String> {
        crate::check_room(self.len(), self.capacity)?;
        if self.hand.is_some_and(|hand| !self.contains(hand)) {
            return Err("the hand points at what is not resident".into());
        }
        if self.queue.iter().any(|e| ![UNVISITED, VISITED].contains(&self.queue.mark(e))) {
            return Err("an entry is neither visited nor unvisited".into());
        }
        self.queue.check()
    }
}
