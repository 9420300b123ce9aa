//! What LRU-CA and MRU share: one list in recency order, no ghosts. LRU does not need a list.

use std::marker::PhantomData;

use super::neighbour::{Alone, Neighbour, whole};
use super::{Departures, Entry, Fate, Policy};
use crate::lists::Lists;
use crate::memo::{Carried, Memo};

/// Which end of the list gives way.
pub(super) trait Rule: Clone + Send {
    /// Whether the victim is the most recently used entry instead of the least.
    const EVICTS_NEWEST: bool;
}

const LIST: u32 = 0;

/// A policy of one recency list.
///
/// Invariants: an entry is linked exactly if it is resident; at most `capacity` are.
#[derive(Clone)]
pub(super) struct OneList<R, N = Alone> {
    capacity: u32,
    /// Front: least recently used.
    list: Lists,
    neighbour: N,
    rule: PhantomData<R>,
}

impl<R: Rule, N: Neighbour> OneList<R, N> {
    pub(super) fn new(capacity: u32, neighbour: N) -> Self {
        Self { capacity, list: Lists::new(1), neighbour, rule: PhantomData }
    }

    #[inline(always)]
    fn next_victim(&self) -> Option<Entry> {
        if R::EVICTS_NEWEST { self.list.back(LIST) } else { self.list.front(LIST) }
    }

    #[inline(always)]
    fn evict(&mut self, out: &mut Departures) {
        let order = std::iter::once(whole(&self.list, LIST));
        let preferred = self.neighbour.prefer(&self.list, order);
        if let Some(victim) = preferred.or_else(|| self.next_victim()) {
            self.unlink(victim);
            out.push(victim, Fate::Evicted);
        }
    }

    #[inline(always)]
    fn unlink(&mut self, entry: Entry) {
        self.neighbour.leaves(&self.list, entry);
        self.list.remove(LIST, entry);
    }
}

impl<R: Rule, N: Neighbour> Policy for OneList<R, N> {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.list.len(LIST)
    }

    fn grow(&mut self, entries: u32) {
        self.list.grow(entries);
        self.neighbour.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.list.linked(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        self.neighbour.leaves(&self.list, entry);
        self.list.move_to_back(LIST, entry);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        if self.len() == self.capacity {
            self.evict(out);
        }
        self.list.push_back(LIST, entry);
    }

    fn take(&mut self, entry: Entry, _: &mut Departures) {
        self.unlink(entry);
    }

    fn place(&mut self, entry: Entry, out: &mut Departures) {
        if self.contains(entry) {
            self.touch(entry, out);
        } else {
            self.admit(entry, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        if self.contains(entry) {
            self.unlink(entry);
        }
    }

    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        let order = std::iter::once(whole(&self.list, LIST));
        self.neighbour.would_prefer(&self.list, order).or_else(|| self.next_victim())
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.capacity = capacity;
        self.neighbour.adopt(capacity);
        while self.len() > capacity {
            self.evict(out);
        }
    }

    fn residents(&self) -> Vec<Entry> {
        self.list.iter(LIST).collect()
    }

    fn asks_neighbour(&self) -> bool {
        N::IS_KNOWN
    }

    fn neighbour_holds(&mut self, entry: Entry, holds: bool) {
        self.neighbour.learn(&self.list, entry, holds);
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.neighbour.has(entry)
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.list.warm(entry)
    }

    fn warm_further(&self, entry: Entry) -> u32 {
        self.list.warm_beside(entry)
    }

    fn carry(&mut self, memo: &mut Memo<'_>) -> Carried {
        self.list.carry(LIST, memo, |_, ()| Ok(()))
    }

    fn validate(&self) -> Result<(), String> {
        if self.len() > self.capacity {
            return Err(format!("{} resident, capacity {}", self.len(), self.capacity));
        }
        self.neighbour.check(&self.list)?;
        self.list.check()
    }
}
