//! MRU, fetch and discard: evicts the most recently used block before the new one (Chou & DeWitt).
//!
//! Invariants: an entry is linked exactly if it is resident; at most `capacity` are.

use crate::containers::lists::Lists;
use crate::registry::{Footprint, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "mru",
    aliases: &[],
    summary: "most recently used goes first",
    source: "Chou & DeWitt, VLDB 1985",
    parameters: &[],
    memory: Footprint::new(1, 66),
    build: |_, context| Ok(Box::new(Mru { capacity: context.capacity, list: Lists::new(1) })),
};

const LIST: u32 = 0;

#[derive(Clone, Debug)]
struct Mru {
    capacity: u32,
    /// Back: most recently used.
    list: Lists,
}

impl Mru {
    fn evict(&mut self, out: &mut Evictions) {
        if let Some(victim) = self.list.back(LIST) {
            self.list.remove(LIST, victim);
            out.push(victim, EvictionKind::Evicted);
        }
    }
}

impl Policy for Mru {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.list.len(LIST)
    }

    fn grow(&mut self, entries: u32) {
        self.list.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.list.linked(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        self.list.move_to_back(LIST, entry);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        if self.len() == self.capacity {
            self.evict(out);
        }
        self.list.push_back(LIST, entry);
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if self.contains(entry) {
            self.list.remove(LIST, entry);
        }
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        while self.len() > capacity {
            self.evict(out);
        }
    }

    /// Least recently used first.
    fn residents(&self) -> Vec<Entry> {
        self.list.iter(LIST).collect()
    }

    fn victim(&self) -> Option<Entry> {
        self.list.back(LIST).filter(|_| self.len() == self.capacity)
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.list.prefetch(entry)
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        self.list.save_load(LIST, snapshot, |_, ()| Ok(()))
    }

    fn validate(&self) -> Result<(), String> {
        crate::check_room(self.len(), self.capacity)?;
        self.list.check()
    }
}
