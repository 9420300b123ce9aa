//! A replacement policy written outside of the crate, with public items only: LIP, the LRU
//! insertion policy (Qureshi et al., ISCA 2007). It is LRU, but a new block enters where it would
//! go next, and has to be referenced once more to stay: a loop that is larger than the cache keeps
//! a part of it.
//!
//! Run with `cargo run --release -p undercroft-policy --example own_policy`.

use std::collections::BTreeMap;

use undercroft_level::{DenseLevel, HashedCache};
use undercroft_policy::{
    Context, Entry, EvictionKind, Evictions, Policy, Reference, Snapshot, SnapshotError, Spec,
    WriteMode,
};

/// LIP. Invariant: an entry is resident exactly if it has a rank, under which `order` has it.
#[derive(Clone, Debug)]
pub(crate) struct Lip {
    capacity: u32,
    /// Next victim first.
    order: BTreeMap<i64, Entry>,
    rank: Vec<Option<i64>>,
}

impl Lip {
    pub(crate) fn new(capacity: u32) -> Self {
        Self { capacity, order: BTreeMap::new(), rank: Vec::new() }
    }

    fn insert(&mut self, rank: i64, entry: Entry) {
        self.rank[entry as usize] = Some(rank);
        self.order.insert(rank, entry);
    }

    fn evict(&mut self, out: &mut Evictions) {
        if let Some((_, victim)) = self.order.pop_first() {
            self.rank[victim as usize] = None;
            out.push(victim, EvictionKind::Evicted);
        }
    }
}

impl Policy for Lip {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn len(&self) -> u32 {
        self.order.len() as u32
    }

    fn grow(&mut self, entries: u32) {
        self.rank.resize(self.rank.len().max(entries as usize), None);
    }

    fn contains(&self, entry: Entry) -> bool {
        self.rank[entry as usize].is_some()
    }

    fn touch(&mut self, entry: Entry, out: &mut Evictions) {
        self.discard(entry, out);
        let highest = self.order.last_key_value().map_or(0, |(rank, _)| rank + 1);
        self.insert(highest, entry);
    }

    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        if self.len() == self.capacity {
            self.evict(out);
        }
        let lowest = self.order.first_key_value().map_or(0, |(rank, _)| rank - 1);
        self.insert(lowest, entry);
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if let Some(rank) = self.rank[entry as usize].take() {
            self.order.remove(&rank);
        }
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        while self.len() > capacity {
            self.evict(out);
        }
    }

    /// Next victim first.
    fn residents(&self) -> Vec<Entry> {
        self.order.values().copied().collect()
    }

    /// Not needed to be simulated; a server saves its cache when it ends.
    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        let loaded = snapshot.entries(self.len(), self.order.values().copied())?;
        (0..).zip(loaded).for_each(|(rank, entry)| self.insert(rank, entry));
        Ok(())
    }

    /// For tests.
    fn validate(&self) -> Result<(), String> {
        let ranked = self.rank.iter().flatten().count();
        let is_home = |(&rank, &entry): (&i64, &Entry)| self.rank[entry as usize] == Some(rank);
        if ranked != self.order.len() || !self.order.iter().all(is_home) {
            return Err("ranks and order disagree".into());
        }
        let is_too_large = self.len() > self.capacity;
        if is_too_large { Err(format!("{} of {}", self.len(), self.capacity)) } else { Ok(()) }
    }
}

/// Hit ratio of a cache with a policy that serves 10 rounds of a loop over `blocks` blocks.
pub(crate) fn hit_ratio(policy: Box<dyn Policy>, blocks: u32) -> f64 {
    let mut level = DenseLevel::new(policy, WriteMode::Allocate);
    let refs: Vec<Reference> = (0..10).flat_map(|_| (0..blocks).map(Reference::read)).collect();
    level.replay(blocks, &refs, None);
    level.counts().read_hit_ratio()
}

/// Whether a server's cache goes on after a restart where it stopped.
pub(crate) fn survives_a_restart() -> Result<bool, SnapshotError> {
    let mut cache = HashedCache::new(Box::new(Lip::new(3)), 1);
    [50, 60, 60, 70, 80, 90].into_iter().for_each(|block| _ = cache.access(block));
    let bytes = cache.save()?;
    let restarted = HashedCache::load(Box::new(Lip::new(3)), 2, &bytes)?;
    Ok(restarted.victim() == cache.victim())
}

#[allow(dead_code, reason = "a test includes this file")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (blocks, capacity) = (1000, 900);
    let lru = Spec::parse("lru")?.build(&Context::new(capacity))?;
    println!("lru {:.3}", hit_ratio(lru, blocks));
    println!("lip {:.3}", hit_ratio(Box::new(Lip::new(capacity)), blocks));
    println!("restarted: {}", survives_a_restart()?);
    Ok(())
}
