//! A heap over entry handles whose keys can change: what LRU-K, LRFU and HFA order by; and one of
//! which only the small end is in order.
//!
//! Keys and entries lie side by side in the heap, so that sifting reads one array; `at` finds an
//! entry. Every item has up to four below it: half as many steps as with two, and each step writes
//! to a place of `at` that may be anywhere. Smallest key first.
//!
//! Invariants (checked by [`Heap::check`]):
//! 1. no item's key is smaller than its parent's;
//! 2. `at[entry]` is the entry's place in the heap, or `ABSENT`.

use crate::Entry;

const ABSENT: u32 = u32::MAX;

/// Items right below each.
const BELOW: usize = 4;

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
        if key < old { self.rise(at) } else { self.sink(at, self.items.len()) }
    }

    /// Takes a present entry out.
    pub(crate) fn remove(&mut self, entry: Entry) {
        let at = self.at[entry as usize] as usize;
        self.at[entry as usize] = ABSENT;
        let removed = self.items[at].0;
        let last = self.items.pop().expect("the entry is present");
        if at < self.items.len() {
            self.items[at] = last;
            if last.0 < removed { self.rise(at) } else { self.sink(at, self.items.len()) }
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

    /// Moves the item at `at` down until no child is smaller, in a heap of the first `len` items.
    fn sink(&mut self, mut at: usize, len: usize) {
        let item = self.items[at];
        loop {
            let first = BELOW * at + 1;
            let end = len.min(first + BELOW);
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

    /// Checks the invariants in the head of this file.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_order(self.items.len())?;
        self.check_places()
    }

    fn check_order(&self, len: usize) -> Result<(), String> {
        for (at, &(key, entry)) in self.items[..len].iter().enumerate() {
            if at > 0 && key < self.items[(at - 1) / BELOW].0 {
                return Err(format!("heap: entry {entry} stands above a smaller key"));
            }
        }
        Ok(())
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

/// A heap of which the first item is asked for now and then: only the smallest items are a heap,
/// as many as will be asked for soon. The others lie behind them in any order, so that most changes
/// cost a step.
///
/// Invariants: the first `near` items are a heap; no item behind them is smaller than `limit`, and
/// none of them is larger.
#[derive(Clone, Debug)]
pub(crate) struct LazyHeap<K> {
    heap: Heap<K>,
    near: usize,
    limit: Option<K>,
    /// Changes among the near ones since the first item was asked for.
    idle: usize,
}

/// Of the items, the share that is made a heap when there is none, and the least number.
const NEAR_SHARE: usize = 8;
const NEAR_MIN: usize = 16;

impl<K: PartialOrd + Copy> LazyHeap<K> {
    pub(crate) fn new() -> Self {
        Self { heap: Heap::new(), near: 0, limit: None, idle: 0 }
    }

    /// Makes the handles below `entries` valid.
    pub(crate) fn grow(&mut self, entries: u32) {
        self.heap.grow(entries);
    }

    pub(crate) fn len(&self) -> u32 {
        self.heap.len()
    }

    /// All items, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, Entry)> + '_ {
        self.heap.iter()
    }

    /// A change among the near ones: are there more of them than questions, the order is given up.
    #[inline(always)]
    fn change_near(&mut self) {
        self.idle += 1;
        if self.idle > self.near.max(NEAR_MIN) {
            self.near = 0;
        }
    }

    /// Inserts an absent entry.
    #[inline(always)]
    pub(crate) fn push(&mut self, key: K, entry: Entry) {
        let end = self.heap.items.len();
        self.heap.items.push((key, entry));
        if self.near > 0 && self.limit.is_some_and(|limit| key < limit) {
            self.push_near(key, entry);
        } else {
            self.heap.at[entry as usize] = end as u32;
        }
    }

    fn push_near(&mut self, key: K, entry: Entry) {
        let end = self.heap.items.len() - 1;
        let moved = self.heap.items[self.near];
        self.heap.put(end, moved);
        self.heap.items[self.near] = (key, entry);
        self.heap.rise(self.near);
        self.near += 1;
        self.change_near();
    }

    /// Takes a present entry out.
    #[inline(always)]
    pub(crate) fn remove(&mut self, entry: Entry) {
        let at = self.heap.at[entry as usize] as usize;
        self.heap.at[entry as usize] = ABSENT;
        let hole = if at < self.near { self.take_near(at) } else { at };
        self.heap.items.swap_remove(hole);
        if let Some(&(_, moved)) = self.heap.items.get(hole) {
            self.heap.at[moved as usize] = hole as u32;
        }
    }

    /// Takes an item out of the heap of the near ones: the place that is free then.
    fn take_near(&mut self, at: usize) -> usize {
        self.near -= 1;
        let last = self.near;
        if at < last {
            let removed = self.heap.items[at].0;
            self.heap.items[at] = self.heap.items[last];
            if self.heap.items[at].0 < removed {
                self.heap.rise(at);
            } else {
                self.heap.sink(at, last);
            }
        }
        self.change_near();
        last
    }

    /// The entry with the smallest key.
    #[inline(always)]
    pub(crate) fn first(&mut self) -> Option<(K, Entry)> {
        self.idle = 0;
        if self.near == 0 && !self.heap.items.is_empty() {
            self.order();
        }
        self.heap.first()
    }

    /// Brings the smallest items to the front, as a heap.
    #[cold]
    fn order(&mut self) {
        let items = &mut self.heap.items;
        self.near = (items.len() / NEAR_SHARE).max(NEAR_MIN).min(items.len());
        let by_key = |a: &(K, Entry), b: &(K, Entry)| {
            a.0.partial_cmp(&b.0).expect("keys are comparable with each other")
        };
        let (_, last, _) = items.select_nth_unstable_by(self.near - 1, by_key);
        self.limit = Some(last.0);
        // What is sorted is a heap.
        items[..self.near].sort_unstable_by(by_key);
        for (at, &(_, entry)) in items.iter().enumerate() {
            self.heap.at[entry as usize] = at as u32;
        }
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.heap.check_order(self.near)?;
        self.heap.check_places()?;
        let Some(limit) = self.limit.filter(|_| self.near > 0) else { return Ok(()) };
        let (near, far) = self.heap.items.split_at(self.near);
        if near.iter().any(|item| limit < item.0) || far.iter().any(|item| item.0 < limit) {
            return Err("lazy heap: an item is on the wrong side of the limit".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::LazyHeap;

    /// Asked for its first item in bursts, so that it changes between order and none.
    #[test]
    fn a_lazy_heap_agrees_with_an_ordered_set() {
        let mut x = 3_u64;
        let mut ours = LazyHeap::new();
        ours.grow(100);
        let mut model = std::collections::BTreeMap::new();
        for step in 0..40_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (entry, key) = ((x >> 33) as u32 % 100, (x >> 61, x >> 20 & 0xff));
            match model.remove(&entry) {
                None => ours.push(key, entry),
                Some(_) => ours.remove(entry),
            }
            if ours.iter().any(|(_, held)| held == entry) {
                model.insert(entry, key);
            }
            ours.check().unwrap();
            assert_eq!(ours.len() as usize, model.len());
            if step % 1000 < 300 || step % 7 == 0 {
                let least = model.values().min().copied();
                assert_eq!(ours.first().map(|(key, _)| key), least);
            }
        }
    }
}
