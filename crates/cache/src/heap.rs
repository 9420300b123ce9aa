//! A heap over entry handles whose keys can change: what LRU-K, LRFU and HFA order by.
//!
//! Keys and entries lie side by side in the heap, so that sifting reads one array; `at` finds an
//! entry. Every item has up to four below it: half as many steps as with two, and each step writes
//! to a place of `at` that may be anywhere. Smallest key first.
//!
//! Invariants (checked by [`Heap::check`]):
//! 1. no item's key is smaller than its parent's;
//! 2. `at[entry]` is the entry's place in the heap, or `ABSENT`.

use std::cmp::Ordering;

use crate::Entry;

const ABSENT: u32 = u32::MAX;

/// Items right below each.
const BELOW: usize = 4;

/// A key of two words, the first of more weight: compared without a branch between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) u64, pub(crate) u64);

impl Words {
    #[inline(always)]
    fn whole(self) -> u128 {
        u128::from(self.0) << 64 | u128::from(self.1)
    }
}

impl PartialOrd for Words {
    #[inline(always)]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.whole().cmp(&other.whole()))
    }

    #[inline(always)]
    fn lt(&self, other: &Self) -> bool {
        self.whole() < other.whole()
    }

    #[inline(always)]
    fn le(&self, other: &Self) -> bool {
        self.whole() <= other.whole()
    }
}

/// A set of entries, each with a key that can change.
#[derive(Clone, Debug)]
pub(crate) struct Heap<K> {
    items: Vec<(K, Entry)>,
    at: Vec<u32>,
}

impl<K: PartialOrd + Copy> Heap<K> {
    pub(crate) fn new() -> Self {
        Self { items: Vec::new(), at: Vec::new() }
    }

    /// Makes the handles below `entries` valid.
    pub(crate) fn grow(&mut self, entries: u32) {
        self.at.resize(self.at.len().max(entries as usize), ABSENT);
    }

    pub(crate) fn len(&self) -> u32 {
        self.items.len() as u32
    }

    #[inline(always)]
    pub(crate) fn contains(&self, entry: Entry) -> bool {
        self.at[entry as usize] != ABSENT
    }

    /// The entry with the smallest key.
    pub(crate) fn first(&self) -> Option<(K, Entry)> {
        self.items.first().copied()
    }

    /// The key of a present entry.
    pub(crate) fn key(&self, entry: Entry) -> K {
        self.items[self.at[entry as usize] as usize].0
    }

    /// All items, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, Entry)> + '_ {
        self.items.iter().copied()
    }

    /// Inserts an absent entry.
    pub(crate) fn push(&mut self, key: K, entry: Entry) {
        debug_assert!(!self.contains(entry));
        let at = self.items.len();
        self.items.push((key, entry));
        self.rise(at);
    }

    /// Gives a present entry another key.
    pub(crate) fn update(&mut self, key: K, entry: Entry) {
        let at = self.at[entry as usize] as usize;
        let old = std::mem::replace(&mut self.items[at].0, key);
        if key < old { self.rise(at) } else { self.sink(at) }
    }

    /// Takes a present entry out.
    pub(crate) fn remove(&mut self, entry: Entry) {
        let at = self.at[entry as usize] as usize;
        self.at[entry as usize] = ABSENT;
        let removed = self.items[at].0;
        let last = self.items.pop().expect("the entry is present");
        if at < self.items.len() {
            self.items[at] = last;
            if last.0 < removed { self.rise(at) } else { self.sink(at) }
        }
    }

    /// Moves the item at `at` up until its parent is not larger.
    fn rise(&mut self, mut at: usize) {
        let item = self.items[at];
        while at > 0 {
            let parent = (at - 1) / BELOW;
            if self.items[parent].0 <= item.0 {
                break;
            }
            self.put(at, self.items[parent]);
            at = parent;
        }
        self.put(at, item);
    }

    /// Moves the item at `at` down until no child is smaller.
    fn sink(&mut self, mut at: usize) {
        let item = self.items[at];
        loop {
            let first = BELOW * at + 1;
            let end = self.items.len().min(first + BELOW);
            let Some(below) = self.items.get(first..end) else { break };
            let mut least = 0;
            for i in 1..below.len() {
                least = if below[i].0 < below[least].0 { i } else { least };
            }
            let Some(&child) = below.get(least) else { break };
            if item.0 <= child.0 {
                break;
            }
            self.put(at, child);
            at = first + least;
        }
        self.put(at, item);
    }

    #[inline(always)]
    fn put(&mut self, at: usize, item: (K, Entry)) {
        self.items[at] = item;
        self.at[item.1 as usize] = at as u32;
    }

    /// Puts a present entry's item elsewhere in the array, or out of it, without regard to order.
    fn swap_out(&mut self, entry: Entry) {
        let at = self.at[entry as usize] as usize;
        self.at[entry as usize] = ABSENT;
        self.items.swap_remove(at);
        if let Some(&(_, moved)) = self.items.get(at) {
            self.at[moved as usize] = at as u32;
        }
    }

    /// Makes a heap of items in any order.
    fn order(&mut self) {
        for at in (0..self.items.len().div_ceil(BELOW)).rev() {
            self.sink(at);
        }
    }

    /// Checks the invariants in the head of this file.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (at, &(key, entry)) in self.items.iter().enumerate() {
            if at > 0 && key < self.items[(at - 1) / BELOW].0 {
                return Err(format!("heap: entry {entry} stands above a smaller key"));
            }
        }
        self.check_places()
    }

    fn check_places(&self) -> Result<(), String> {
        let at_home = |(at, &(_, e)): (usize, &(K, Entry))| self.at[e as usize] == at as u32;
        if !self.items.iter().enumerate().all(at_home) {
            return Err("heap: an entry is not where it is said to be".into());
        }
        if self.at.iter().filter(|&&at| at != ABSENT).count() != self.items.len() {
            return Err("heap: places without an item".into());
        }
        Ok(())
    }
}

/// A heap of which the first item is asked for seldom: items lie in any order until then, so that
/// most changes cost a step. Once in order it stays so for as many changes as it has items.
///
/// Invariant: while `is_ordered` it is a heap.
#[derive(Clone, Debug)]
pub(crate) struct LazyHeap<K> {
    heap: Heap<K>,
    is_ordered: bool,
    /// Changes since the first item was asked for.
    idle: u32,
}

impl<K: PartialOrd + Copy> LazyHeap<K> {
    pub(crate) fn new() -> Self {
        Self { heap: Heap::new(), is_ordered: false, idle: 0 }
    }

    /// Makes the handles below `entries` valid.
    pub(crate) fn grow(&mut self, entries: u32) {
        self.heap.grow(entries);
    }

    pub(crate) fn len(&self) -> u32 {
        self.heap.len()
    }

    /// The key of a present entry.
    pub(crate) fn key(&self, entry: Entry) -> K {
        self.heap.key(entry)
    }

    /// All items, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, Entry)> + '_ {
        self.heap.iter()
    }

    /// Whether a change has to keep the order.
    #[inline(always)]
    fn keeps_order(&mut self) -> bool {
        self.idle += u32::from(self.is_ordered);
        self.is_ordered &= self.idle <= self.heap.len();
        self.is_ordered
    }

    /// Inserts an absent entry.
    #[inline(always)]
    pub(crate) fn push(&mut self, key: K, entry: Entry) {
        if self.keeps_order() {
            self.heap.push(key, entry);
        } else {
            self.heap.at[entry as usize] = self.heap.len();
            self.heap.items.push((key, entry));
        }
    }

    /// Gives a present entry another key.
    pub(crate) fn update(&mut self, key: K, entry: Entry) {
        if self.keeps_order() {
            self.heap.update(key, entry);
        } else {
            let at = self.heap.at[entry as usize];
            self.heap.items[at as usize].0 = key;
        }
    }

    /// Takes a present entry out.
    #[inline(always)]
    pub(crate) fn remove(&mut self, entry: Entry) {
        if self.keeps_order() {
            self.heap.remove(entry);
        } else {
            self.heap.swap_out(entry);
        }
    }

    /// Puts the items in order if they are not: the first is about to be asked for.
    #[inline(always)]
    pub(crate) fn order(&mut self) {
        self.idle = 0;
        if !self.is_ordered {
            self.is_ordered = true;
            self.heap.order();
        }
    }

    /// The entry with the smallest key, if [`order`](Self::order) was called since the last change.
    pub(crate) fn first(&self) -> Option<(K, Entry)> {
        debug_assert!(self.len() == 0 || (self.is_ordered && self.idle == 0));
        self.heap.first()
    }

    /// Checks the invariant.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.is_ordered { self.heap.check() } else { self.heap.check_places() }
    }
}

#[cfg(test)]
mod tests {
    use super::{LazyHeap, Words};

    /// Asked for its first item in bursts, so that it changes between order and none.
    #[test]
    fn a_lazy_heap_agrees_with_an_ordered_set() {
        let mut x = 3_u64;
        let mut ours = LazyHeap::new();
        ours.grow(100);
        let mut model = std::collections::BTreeMap::new();
        for step in 0..40_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (entry, key) = ((x >> 33) as u32 % 100, Words(x >> 61, x >> 20 & 0xff));
            match model.remove(&entry) {
                None => ours.push(key, entry),
                Some(_) if x >> 60 < 7 => ours.update(key, entry),
                Some(_) => ours.remove(entry),
            }
            if ours.iter().any(|(_, held)| held == entry) {
                model.insert(entry, (key.0, key.1));
                assert_eq!(ours.key(entry), key);
            }
            ours.check().unwrap();
            assert_eq!(ours.len() as usize, model.len());
            if step % 1000 < 300 {
                ours.order();
                let least = model.values().min().copied();
                assert_eq!(ours.first().map(|(key, _)| (key.0, key.1)), least);
            }
        }
    }
}
