//! FIFO: evict the oldest; a hit changes nothing.
//!
//! Invariant: an entry is in the queue exactly if it is resident.

use super::registry::PolicyInfo;
use super::{Departures, Entry, Fate, Policy};
use crate::memo::{Carried, Memo, Refused};
use crate::ring::Ring;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "fifo",
    aliases: &[],
    summary: "first in, first out",
    source: "Belady, IBM Systems Journal 1966",
    parameters: &[],
    build: |_, context| Ok(Box::new(Fifo { capacity: context.capacity, queue: Ring::new() })),
};

#[derive(Clone)]
struct Fifo {
    capacity: u32,
    /// Front: oldest.
    queue: Ring,
}

impl Fifo {
    #[inline(always)]
    fn evict(&mut self, out: &mut Departures) {
        if let Some(oldest) = self.queue.pop_front() {
            out.push(oldest, Fate::Evicted);
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
    fn touch(&mut self, _: Entry, _: &mut Departures) {}

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        if self.len() == self.capacity {
            self.evict(out);
        }
        self.queue.push_back(entry, 1, self.capacity);
    }

    fn take(&mut self, entry: Entry, out: &mut Departures) {
        self.discard(entry, out);
    }

    fn place(&mut self, entry: Entry, out: &mut Departures) {
        self.access(entry, out);
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        if self.contains(entry) {
            self.queue.remove(entry);
        }
    }

    fn victim(&self) -> Option<Entry> {
        if self.len() == self.capacity { self.queue.iter().next() } else { None }
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
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
    fn warm(&self, entry: Entry) -> u32 {
        self.queue.warm(entry)
    }

    fn carry(&mut self, memo: &mut Memo<'_>) -> Carried {
        let saved = self.queue.iter().map(|entry| (entry, ()));
        for (entry, ()) in memo.sequence(self.len(), saved, |_, ()| Ok(()))? {
            if self.contains(entry) {
                return Err(Refused::twice(entry));
            }
            self.queue.push_back(entry, 1, self.capacity);
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        if self.len() > self.capacity {
            return Err(format!("{} resident, capacity {}", self.len(), self.capacity));
        }
        self.queue.check()
    }
}
