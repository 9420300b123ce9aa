//! LRU-K: evict the block whose K-th last reference is longest ago.
//!
//! References that follow each other within the correlated reference period `crp` count as one, and
//! a block is not evicted within that period of its last reference. A block with fewer than K
//! references has no K-th last one, and is evicted first, LRU among such blocks. The history of
//! evicted blocks is kept for a bounded number of them (O'Neil et al. keep it for a length of
//! time).
//!
//! The order is kept in a heap with lazy keys: a key is updated only when it comes to the top. A
//! key can only grow, so a stale key is too small, and no block is missed. A hit is then O(1), an
//! eviction O(log capacity) for every key that it updates, each at most once per reference.
//!
//! Invariants:
//! 1. an entry is resident exactly if its `stamp` is not 0, and then it is in one of the heaps;
//! 2. an entry is linked exactly if it is a ghost, and has a history exactly if not unknown;
//! 3. no key in a heap is larger than its true value;
//! 4. no two residents have the same stamp, and a later stamp never has an earlier LAST.

use crate::containers::ghosts::{GHOST, Ghosts};
use crate::containers::heap::Heap;
use crate::containers::lists::Lists;
use crate::registry::{Footprint, Kind, Parameter, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "lru-k",
    aliases: &[("lru-1", "k=1"), ("lru-2", "k=2"), ("lru-3", "k=3")],
    summary: "oldest K-th last reference, without correlated ones",
    source: "O'Neil, O'Neil & Weikum, SIGMOD 1993",
    parameters: &[
        Parameter {
            name: "k",
            kind: Kind::Integer(1, K_MAX as u64),
            default: "2",
            help: "which last reference counts",
        },
        Parameter {
            name: "crp",
            kind: Kind::Integer(0, 1 << 40),
            default: "0",
            help: "references within which another to the same block is the same use",
        },
        GHOST,
    ],
    memory: Footprint::new(5, 496),
    build: |arguments, context| {
        Ok(Box::new(LruK {
            capacity: context.capacity,
            k: arguments.integer("k") as usize,
            crp: arguments.integer("crp"),
            ghosts: Ghosts::new(GHOSTS, arguments.real("ghost"), context.capacity),
            blocks: Lists::new(1),
            hist: Vec::new(),
            heap: Heap::default(),
            waiting: Heap::default(),
            now: 0,
            uses: 0,
        }))
    },
};

const K_MAX: usize = 16;

/// Oldest at the front.
const GHOSTS: u32 = 0;

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// LAST: when the block was last referenced, correlated or not. Only for residents.
    last: u64,
    /// Order of uses (accesses and placements); 0 if the block is not resident.
    stamp: u64,
}

#[derive(Clone, Debug)]
struct LruK {
    capacity: u32,
    k: usize,
    crp: u64,
    ghosts: Ghosts,
    blocks: Lists<Block>,
    /// HIST of entry `e` is `hist[e * k..][..k]`, most recent first; 0: no reference.
    hist: Vec<u64>,
    /// Residents by HIST_K and use: the order of eviction.
    heap: Heap<(u64, u64)>,
    /// Residents by use that were within their correlated reference period when they would have
    /// been evicted.
    waiting: Heap<u64>,
    now: u64,
    uses: u64,
}

impl LruK {
    #[inline(always)]
    fn hist(&self, entry: Entry) -> &[u64] {
        &self.hist[entry as usize * self.k..][..self.k]
    }

    #[inline(always)]
    fn hist_mut(&mut self, entry: Entry) -> &mut [u64] {
        &mut self.hist[entry as usize * self.k..][..self.k]
    }

    /// The key by which residents are ordered. By invariant 4 the stamp stands for (LAST, order of
    /// use).
    #[inline(always)]
    fn key(&self, entry: Entry) -> (u64, u64) {
        (self.hist(entry)[self.k - 1], self.blocks.data(entry).stamp)
    }

    #[inline(always)]
    fn is_eligible(&self, entry: Entry, now: u64) -> bool {
        now - self.blocks.data(entry).last > self.crp
    }

    /// Records a use at the current time.
    #[inline(always)]
    fn stamp(&mut self, entry: Entry) {
        self.uses += 1;
        *self.blocks.data_mut(entry) = Block { last: self.now, stamp: self.uses };
    }

    /// Updates HIST for a new uncorrelated reference. `correlated`, the time between the first and
    /// the last reference of the previous use, is removed, as if that use had taken no time.
    #[inline(always)]
    fn shift(&mut self, entry: Entry, correlated: u64) {
        let now = self.now;
        let hist = self.hist_mut(entry);
        for i in (1..hist.len()).rev() {
            hist[i] = if hist[i - 1] == 0 { 0 } else { hist[i - 1] + correlated };
        }
        hist[0] = now;
    }

    /// A reference to a resident.
    #[inline(always)]
    fn reference(&mut self, entry: Entry) {
        self.now += 1;
        let last = self.blocks.data(entry).last;
        if self.is_eligible(entry, self.now) {
            self.shift(entry, last - self.hist(entry)[0]);
        }
    }

    /// Removes the block to evict at time `now` from its heap, and returns it.
    fn pop_victim(&mut self, now: u64) -> Option<Entry> {
        self.readmit(now);
        while let Some((key, entry)) = self.heap.first() {
            let true_key = self.key(entry);
            if !self.is_eligible(entry, now) {
                self.heap.remove(entry);
                self.waiting.push(true_key.1, entry);
            } else if key < true_key {
                self.heap.update(true_key, entry);
            } else {
                self.heap.remove(entry);
                return Some(entry);
            }
        }
        // No block is eligible. The first waiting key is up to date, since `readmit` ran before.
        let (_, entry) = self.waiting.first()?;
        self.waiting.remove(entry);
        Some(entry)
    }

    /// Returns the blocks to the heap whose correlated reference period is over.
    fn readmit(&mut self, now: u64) {
        while let Some((stamp, entry)) = self.waiting.first() {
            let key = self.key(entry);
            if stamp < key.1 {
                self.waiting.update(key.1, entry);
            } else if self.is_eligible(entry, now) {
                self.waiting.remove(entry);
                self.heap.push(key, entry);
            } else {
                return;
            }
        }
    }

    fn evict(&mut self, now: u64, out: &mut Evictions) {
        if let Some(victim) = self.pop_victim(now) {
            self.blocks.data_mut(victim).stamp = 0;
            self.ghosts.evict(&mut self.blocks, victim, out);
        }
    }

    /// Removes a resident from its heap.
    fn pull(&mut self, entry: Entry) {
        *self.blocks.data_mut(entry) = Block::default();
        if self.heap.contains(entry) {
            self.heap.remove(entry);
        } else {
            self.waiting.remove(entry);
        }
    }

    /// Makes room for a non-resident entry. True if the entry was a ghost, and so has a history.
    fn make_room(&mut self, entry: Entry, out: &mut Evictions) -> bool {
        let was_ghost = self.blocks.linked(entry);
        if was_ghost {
            self.blocks.remove(GHOSTS, entry);
        }
        if self.len() == self.capacity {
            self.evict(self.now, out);
        }
        was_ghost
    }

    /// Inserts a non-resident entry into the order, with its current history.
    fn enter(&mut self, entry: Entry) {
        self.stamp(entry);
        self.heap.push(self.key(entry), entry);
    }
}

impl Policy for LruK {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.heap.len() + self.waiting.len()
    }

    fn grow(&mut self, entries: u32) {
        self.blocks.grow(entries);
        self.heap.grow(entries);
        self.waiting.grow(entries);
        self.hist.resize(self.blocks.entries() as usize * self.k, 0);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.blocks.data(entry).stamp != 0
    }

    fn remembers(&self, entry: Entry) -> bool {
        self.blocks.linked(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        self.reference(entry);
        self.stamp(entry);
    }

    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        self.now += 1;
        if !self.make_room(entry, out) {
            self.hist_mut(entry).fill(0);
        }
        self.shift(entry, 0);
        self.enter(entry);
    }

    /// A reference; the entry becomes a ghost.
    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            self.reference(entry);
            self.pull(entry);
            self.ghosts.keep(&mut self.blocks, entry, out);
        }
    }

    /// A reference; the entry becomes the newest ghost.
    fn note(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            return;
        }
        self.now += 1;
        if self.remembers(entry) {
            self.blocks.remove(GHOSTS, entry);
        } else {
            self.hist_mut(entry).fill(0);
        }
        self.shift(entry, 0);
        self.ghosts.keep(&mut self.blocks, entry, out);
    }

    /// A use, but not a reference. HIST does not change; without a remembered one it begins now.
    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            self.stamp(entry);
            return;
        }
        if !self.make_room(entry, out) {
            self.hist_mut(entry).fill(0);
            self.shift(entry, 0);
        }
        self.enter(entry);
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if self.contains(entry) {
            self.pull(entry);
        } else if self.remembers(entry) {
            self.blocks.remove(GHOSTS, entry);
        }
    }

    /// O(capacity).
    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        let all = || self.residents().into_iter();
        let eligible = all().filter(|&e| self.is_eligible(e, self.now + 1));
        let by_use = |&e: &Entry| self.blocks.data(e).stamp;
        eligible.min_by_key(|&e| self.key(e)).or_else(|| all().min_by_key(by_use))
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        self.ghosts.resize(&mut self.blocks, capacity, out);
        while self.len() > capacity {
            self.evict(self.now, out);
        }
    }

    /// In no particular order.
    fn residents(&self) -> Vec<Entry> {
        let waiting = self.waiting.iter().map(|(_, entry)| entry);
        self.heap.iter().map(|(_, entry)| entry).chain(waiting).collect()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.blocks.data(entry).stamp as u32 ^ self.hist(entry)[0] as u32
    }

    /// It does not matter in which of the two heaps a resident is.
    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        snapshot.clock(&mut self.now)?;
        snapshot.clock(&mut self.uses)?;
        let (k, now, uses) = (self.k, self.now, self.uses);
        let hist = |entry| {
            let mut hist = [0; K_MAX];
            hist[..k].copy_from_slice(self.hist(entry));
            hist
        };
        let times = |snapshot: &mut Snapshot<'_>, hist: &mut [u64; K_MAX], mut latest| {
            hist[..k].iter_mut().try_for_each(|time| {
                snapshot.number(time, 0..=latest)?;
                latest = *time;
                Ok(())
            })
        };
        let saved = self.residents().into_iter().map(|e| (e, (self.blocks.data(e), hist(e))));
        let residents = snapshot.entries_with(self.len(), saved, |snapshot, (block, hist)| {
            snapshot.number(&mut block.last, 0..=now)?;
            snapshot.number(&mut block.stamp, 1..=uses)?;
            times(snapshot, hist, block.last)
        })?;
        let saved = self.blocks.iter(GHOSTS).map(|e| (e, hist(e)));
        let ghosts = snapshot.entries_with(self.blocks.len(GHOSTS), saved, |snapshot, hist| {
            times(snapshot, hist, now)
        })?;
        for (entry, (block, hist)) in residents {
            *self.blocks.data_mut(entry) = block;
            self.hist_mut(entry).copy_from_slice(&hist[..k]);
            self.heap.push(self.key(entry), entry);
        }
        for (entry, hist) in ghosts {
            self.hist_mut(entry).copy_from_slice(&hist[..k]);
            self.blocks.push_back(GHOSTS, entry);
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        crate::check_room(self.len(), self.capacity)?;
        for entry in 0..self.blocks.entries() {
            let heaps = [self.heap.contains(entry), self.waiting.contains(entry)];
            let ghost = self.blocks.linked(entry);
            let Block { last, stamp } = self.blocks.data(entry);
            let places = heaps.iter().filter(|&&it| it).count() + usize::from(ghost);
            if places > 1 || (stamp != 0) != (heaps[0] || heaps[1]) || last > self.now {
                return Err(format!("entry {entry}: in {heaps:?}, ghost {ghost}, stamp {stamp}"));
            }
        }
        if self.heap.iter().any(|(key, e)| key > self.key(e))
            || self.waiting.iter().any(|(stamp, e)| stamp > self.blocks.data(e).stamp)
        {
            return Err("a key is larger than what it stands for".into());
        }
        let block = |e: Entry| self.blocks.data(e);
        let mut uses: Vec<_> =
            self.residents().into_iter().map(block).map(|b| (b.stamp, b.last)).collect();
        uses.sort_unstable();
        if !uses.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1) {
            return Err("stamps and LAST do not rise together".into());
        }
        self.ghosts.check(&self.blocks)?;
        self.heap.check().and_then(|()| self.waiting.check()).and_then(|()| self.blocks.check())
    }
}
