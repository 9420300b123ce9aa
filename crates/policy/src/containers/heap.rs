//! A heap of entry handles with changeable keys, for LRU-K, LFRU and HFA (`lab/schemes`).
//!
//! Keys and entries are adjacent in the heap, so that sifting reads one array; `at` finds an entry.
//! Each item has up to four children. That halves the number of steps, each of which writes to a
//! random place of `at`. Smallest key first.
//!
//! Invariants (checked by [`Heap::check`]):
//! 1. no item's key is smaller than its parent's;
//! 2. `at[entry]` is the entry's place in the heap, or `ABSENT`.

use crate::Entry;

const ABSENT: u32 = u32::MAX;

/// Children per item.
const BELOW: usize = 4;

/// A set of entries, each with a key that can change.
#[derive(Clone, Debug)]
pub struct Heap<K> {
    items: Vec<(K, Entry)>,
    at: Vec<u32>,
}

/// An empty heap over no entries.
impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self { items: Vec::new(), at: Vec::new() }
    }
}

impl<K: PartialOrd + Copy> Heap<K> {
    /// Makes the handles below `entries` valid.
    pub fn grow(&mut self, entries: u32) {
        self.at.resize(self.at.len().max(entries as usize), ABSENT);
    }

    /// Number of entries in it.
    pub fn len(&self) -> u32 {
        self.items.len() as u32
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether the entry is in it.
    #[inline(always)]
    pub fn contains(&self, entry: Entry) -> bool {
        self.at[entry as usize] != ABSENT
    }

    /// The entry with the smallest key.
    pub fn first(&self) -> Option<(K, Entry)> {
        self.items.first().copied()
    }

    /// All items, in no particular order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, Entry)> + '_ {
        self.items.iter().copied()
    }

    /// Inserts an absent entry.
    pub fn push(&mut self, key: K, entry: Entry) {
        debug_assert!(!self.contains(entry));
        let at = self.items.len();
        self.items.push((key, entry));
        self.rise(at);
    }

    /// Changes the key of an entry that is in the heap.
    pub fn update(&mut self, key: K, entry: Entry) {
        let at = self.at[entry as usize] as usize;
        let old = std::mem::replace(&mut self.items[at].0, key);
        if key < old { self.rise(at) } else { self.sink(at) }
    }

    /// Removes an entry that is in the heap.
    pub fn remove(&mut self, entry: Entry) {
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
            let below = below.iter().enumerate();
            let least = below.reduce(|a, b| if b.1.0 < a.1.0 { b } else { a });
            let Some((least, &child)) = least else { break };
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
    pub fn check(&self) -> Result<(), String> {
        for (at, &(key, entry)) in self.items.iter().enumerate() {
            if at > 0 && key < self.items[(at - 1) / BELOW].0 {
                return Err(format!("heap: entry {entry} stands above a smaller key"));
            }
        }
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

#[cfg(test)]
mod tests {
    use super::Heap;

    #[test]
    fn a_heap_agrees_with_an_ordered_set() {
        let mut x = 3_u64;
        let mut ours = Heap::default();
        ours.grow(100);
        let mut model = std::collections::BTreeMap::new();
        for step in 0..40_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (entry, key) = ((x >> 33) as u32 % 100, (x >> 61, x >> 20 & 0xff));
            match model.remove(&entry) {
                None => ours.push(key, entry),
                Some(_) if x >> 60 < 7 => ours.update(key, entry),
                Some(_) => ours.remove(entry),
            }
            if ours.contains(entry) {
                model.insert(entry, key);
            }
            ours.check().unwrap();
            assert_eq!(ours.len() as usize, model.len());
            let least = model.values().min().copied();
            assert_eq!(ours.first().map(|(key, _)| key), least, "step {step}");
        }
    }
}
