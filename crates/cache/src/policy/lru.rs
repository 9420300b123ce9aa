//! LRU: evict the least recently used.
//!
//! Invariant: at most `capacity` entries are in the order, which are the resident ones.

use super::registry::PolicyInfo;
use super::{Departures, Entry, Fate, Policy};
use crate::memo::{Carried, Memo, Refused};
use crate::recency::Recency;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "lru",
    aliases: &[],
    summary: "least recently used",
    source: "Mattson, Gecsei, Slutz & Traiger, IBM Systems Journal 1970",
    parameters: &[],
    build: |_, context| Ok(Box::new(Lru { capacity: context.capacity, order: Recency::new() })),
};

#[derive(Clone)]
struct Lru {
    capacity: u32,
    order: Recency,
}

impl Lru {
    fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    fn evict(&mut self, out: &mut Departures) {
        if let Some(victim) = self.order.front() {
            self.order.remove(victim);
            out.push(victim, Fate::Evicted);
        }
    }
}

impl Policy for Lru {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.order.len()
    }

    fn grow(&mut self, entries: u32) {
        self.order.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.order.contains(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        self.order.renew(entry);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        if self.is_full() {
            self.evict(out);
        }
        self.order.push_back(entry);
    }

    /// In a full cache a hit and a miss are one movement: see [`Recency::replace_front`].
    #[inline(always)]
    fn access(&mut self, entry: Entry, out: &mut Departures) -> bool {
        let hit = self.contains(entry);
        let victim = if self.is_full() { self.order.front() } else { None };
        match victim {
            Some(victim) => {
                self.order.replace_front(victim, entry);
                out.push_if(!hit, victim, Fate::Evicted);
            }
            None if hit => self.order.renew(entry),
            None => self.order.push_back(entry),
        }
        hit
    }

    fn take(&mut self, entry: Entry, _: &mut Departures) {
        self.order.remove(entry);
    }

    fn place(&mut self, entry: Entry, out: &mut Departures) {
        self.access(entry, out);
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        if self.contains(entry) {
            self.order.remove(entry);
        }
    }

    fn victim(&self) -> Option<Entry> {
        self.order.iter().next().filter(|_| self.is_full())
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.capacity = capacity;
        while self.len() > capacity {
            self.evict(out);
        }
    }

    /// Least recently used first.
    fn residents(&self) -> Vec<Entry> {
        self.order.iter().collect()
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.order.warm(entry)
    }

    fn carry(&mut self, memo: &mut Memo<'_>) -> Carried {
        let saved = self.order.iter().map(|entry| (entry, ()));
        for (entry, ()) in memo.sequence(self.len(), saved, |_, ()| Ok(()))? {
            if self.contains(entry) {
                return Err(Refused::twice(entry));
            }
            self.order.push_back(entry);
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        if self.len() > self.capacity {
            return Err(format!("{} resident, capacity {}", self.len(), self.capacity));
        }
        self.order.check()
    }
}
