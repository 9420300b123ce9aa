//! FIFO: evict the oldest; a hit changes nothing.
//!
//! Invariant: an entry is in the queue exactly if it is resident.

use crate::containers::ring::Ring;
use crate::registry::{Footprint, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "fifo",
    aliases: &[],
    summary: "first in, first out",
    source: "Belady, IBM Systems Journal 1966",
    parameters: &[],
    memory: Footprint::new(1, 80),
    build: |_, context| Ok(Box::new(Fifo { capacity: context.capacity, queue: Ring::new() })),
};

#[derive(Clone, Debug)]
struct Fifo {
    capacity: u32,
    /// Front: oldest.
    queue: Ring,
}

impl Fifo {
    #[inline(always)]
    fn evict(&mut self, out: &mut Evictions) {
        if let Some(oldest) = self.queue.pop_front() {
            out.push(oldest, EvictionKind::Evicted);
        }
    }
}

impl Policy for Fifo {
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
    fn touch(&mut self, _: Entry, _: &mut Evictions) {}

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        if self.len() == self.capacity {
            self.evict(out);
        }
        self.queue.push_back(entry, 1, self.capacity);
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if self.contains(entry) {
            self.queue.remove(entry);
        }
    }

    fn victim(&self) -> Option<Entry> {
        self.queue.iter().next().filter(|_| self.len() == self.capacity)
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        while self.len() > capacity {
            self.evict(out);
        }
    }

    /// Oldest first.
    fn residents(&self) -> Vec<Entry> {
        self.queue.iter().collect()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.queue.prefetch(entry)
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        let saved = self.queue.iter().map(|entry| (entry, ()));
        for (entry, ()) in snapshot.entries_with(self.len(), saved, |_, ()| Ok(()))? {
            self.queue.push_back(entry, 1, self.capacity);
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        crate::check_room(self.len(), self.capacity)?;
        self.queue.check()
    }
}
