//! LRU: evict the least recently used (Mattson et al.); with a neighbour, LRU-CA (`lru_ca.rs`).
//!
//! Invariant: the entries in the order are the resident ones, at most `capacity`.

use crate::containers::lru_order::LruOrder;
use crate::content_aware::{ContentAware, Neighbour};
use crate::registry::{Footprint, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "lru",
    aliases: &[],
    summary: "least recently used",
    source: "Mattson, Gecsei, Slutz & Traiger, IBM Systems Journal 1970",
    parameters: &[],
    memory: Footprint::new(1, 84),
    build: |_, context| Ok(Box::new(Lru::new(context.capacity, None))),
};

#[derive(Clone, Debug)]
pub(super) struct Lru {
    capacity: u32,
    order: LruOrder,
    /// Only for LRU-CA.
    neighbour: Option<Neighbour>,
}

impl Lru {
    pub(super) fn new(capacity: u32, neighbour: Option<Neighbour>) -> Self {
        Self { capacity, order: LruOrder::new(), neighbour }
    }

    fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    fn evict(&mut self, out: &mut Evictions) {
        let held = if self.neighbour.is_some() { self.first_held() } else { None };
        if let Some(victim) = held.or_else(|| self.order.front()) {
            self.order.remove(victim);
            out.push(victim, EvictionKind::Evicted);
        }
    }

    /// The first block within the window that the neighbour holds.
    #[inline(never)]
    fn first_held(&mut self) -> Option<Entry> {
        let neighbour = self.neighbour.as_ref()?;
        self.order.search(neighbour.window(), |entry| neighbour.has(entry))
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
        self.neighbour.iter_mut().for_each(|n| n.grow(entries));
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.order.contains(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        self.order.renew(entry);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        if self.is_full() {
            self.evict(out);
        }
        self.order.push_back(entry);
    }

    /// In a full cache a hit and a miss are one operation: see [`LruOrder::replace_front`].
    #[inline(always)]
    fn access(&mut self, entry: Entry, out: &mut Evictions) -> bool {
        let hit = self.contains(entry);
        let is_plain = self.is_full() & self.neighbour.is_none();
        let victim = if is_plain { self.order.front() } else { None };
        match victim {
            Some(victim) => {
                self.order.replace_front(victim, entry);
                out.push_if(!hit, victim, EvictionKind::Evicted);
            }
            None if hit => self.touch(entry, out),
            None => self.admit(entry, out),
        }
        hit
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if self.contains(entry) {
            self.order.remove(entry);
        }
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        self.neighbour.iter_mut().for_each(|n| n.resize(capacity));
        while self.len() > capacity {
            self.evict(out);
        }
    }

    /// Least recently used first.
    fn residents(&self) -> Vec<Entry> {
        self.order.iter().collect()
    }

    fn victim(&self) -> Option<Entry> {
        let order = || self.order.iter().filter(|_| self.is_full());
        let held = self.neighbour.as_ref().and_then(|n| n.first_held(order()));
        held.or_else(|| order().next())
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.order.prefetch(entry)
    }

    fn content_aware(&mut self) -> Option<&mut dyn ContentAware> {
        if self.neighbour.is_some() { Some(self) } else { None }
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        let order = snapshot.entries(self.len(), self.order.iter())?;
        order.into_iter().for_each(|entry| self.order.push_back(entry));
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        crate::check_room(self.len(), self.capacity)?;
        self.order.check()
    }
}

impl ContentAware for Lru {
    fn neighbour_holds(&mut self, entry: Entry, holds: bool) {
        if self.neighbour.as_mut().is_some_and(|n| n.set(entry, holds)) {
            self.order.search_again_from(entry);
        }
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.neighbour.as_ref().is_some_and(|n| n.has(entry))
    }
}
