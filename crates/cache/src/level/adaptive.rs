//! `OnHit::Adaptive`: eviction-based placement for clients some of whose evictions become known too
//! late. A database that frees frames ahead, as InnoDB does, evicts a block and reads it again
//! before its old frame is reused: such a block is in neither cache. All of this is ours.
//!
//! Two things are learned, and no number is tuned to a client:
//! * **which evictions are late** ([`Foresight`]). A block whose eviction was late the last time is
//!   expected to be late again. It is placed without news from the client after a number of reads:
//!   the median age, in reads since delivery, at which late evictions showed.
//! * **whether to be exclusive at all** ([`Duel`]). Two shadow directories hold the numbers of a
//!   sample of the blocks and simulate both ways: one places at eviction, the other at the access.
//!   The cache does what the better one does. A large cache, which holds most of what the client
//!   uses anyway, gains nothing from being exclusive, and loses the late blocks.

use std::collections::VecDeque;
use std::sync::Arc;

use undercroft_random::hash;

use crate::bounded_lru_map::BoundedLruMap;
use crate::hashed::HashedCache;
use crate::placement::PlacementError;
use crate::policy::{Context, Spec};

/// What is known of a block that was delivered to the client.
#[derive(Clone, Copy, Default)]
struct Delivered {
    /// Number of the read.
    read: u64,
    /// Whether the client is believed to hold the block still.
    is_held: bool,
}

/// Bins of ages, four per doubling.
const BINS: usize = 160;

/// Late evictions between two reviews of their ages, and the factor that fades the counts after
/// each.
const REVIEW: u32 = 256;
const FADE: f64 = 0.9;

/// Most late blocks that wait for their placement, as a multiple of the capacity.
const WAITING: usize = 4;

/// Fewest blocks remembered, since clients may be larger than the cache.
const LEAST_REMEMBERED: u32 = 1 << 16;

/// Predicts evictions that will become known too late.
pub(super) struct Foresight {
    delivered: BoundedLruMap<Delivered>,
    reads: u64,
    /// Blocks that were late the last time, with the number of the read that delivered each, oldest
    /// first.
    waiting: VecDeque<(u64, u64)>,
    max_waiting: usize,
    /// Recent late evictions, by how many reads before the block had been delivered.
    ages: [f64; BINS],
    unreviewed: u32,
    /// A block that was late before is placed this many reads after delivery; 0: not known yet.
    patience: u64,
}

impl Foresight {
    fn new(capacity: u32, seed: u64) -> Self {
        Self {
            delivered: BoundedLruMap::new(capacity.saturating_mul(4).max(LEAST_REMEMBERED), seed),
            reads: 0,
            waiting: VecDeque::new(),
            max_waiting: WAITING * capacity as usize,
            ages: [0.0; BINS],
            unreviewed: 0,
            patience: 0,
        }
    }

    /// Notes that the client reads a block.
    fn read(&mut self, block: u64) {
        self.reads += 1;
        let Some(delivered) = self.delivered.touch(block) else { return };
        let before = std::mem::replace(delivered, Delivered { read: self.reads, is_held: true });
        if !before.is_held {
            return;
        }
        // The client read a block that it was believed to hold: its eviction shows only now.
        self.observe_late(self.reads - before.read);
        if self.patience > 0 {
            self.waiting.push_back((block, self.reads));
            if self.waiting.len() > self.max_waiting {
                self.waiting.pop_front();
            }
        }
    }

    fn observe_late(&mut self, age: u64) {
        self.ages[((age as f64).log2() * 4.0) as usize % BINS] += 1.0;
        self.unreviewed += 1;
        if self.unreviewed < REVIEW {
            return;
        }
        self.unreviewed = 0;
        let half = self.ages.iter().sum::<f64>() / 2.0;
        let mut younger = 0.0;
        let median = self.ages.iter().position(|&count| {
            younger += count;
            younger >= half
        });
        self.patience = median.map_or(0, |bin| (bin as f64 / 4.0).exp2() as u64);
        self.ages.iter_mut().for_each(|count| *count *= FADE);
    }

    /// Notes an eviction by the client that became known.
    fn evicted(&mut self, block: u64) {
        if let Some(delivered) = self.delivered.get_mut(block) {
            delivered.is_held = false;
        }
    }

    /// The next block that the client is expected to have evicted by now, if any.
    fn next(&mut self) -> Option<u64> {
        while let Some(&(block, read)) = self.waiting.front() {
            if self.reads - read < self.patience {
                return None;
            }
            self.waiting.pop_front();
            // Skip it if it was evicted or read again in the meantime.
            if self.delivered.get(block).is_some_and(|d| d.is_held && d.read == read) {
                return Some(block);
            }
        }
        None
    }
}

/// The shadow directories sample one block in this many, unless that leaves them fewer than the
/// minimum.
const SAMPLE: u32 = 16;
const LEAST_SHADOW: u32 = 64;

/// Factor that fades the counts after each period of as many sampled reads as a shadow holds
/// blocks.
const MEMORY: f64 = 0.97;

/// By this share of the reads the other shadow must be better before the cache changes sides.
const LEAD: f64 = 0.01;

/// Learns whether placing at eviction or at the access is better.
pub(super) struct Duel {
    at_eviction: HashedCache,
    at_access: HashedCache,
    sample: u64,
    /// The real numbers of renumbered blocks; sampling uses them.
    names: Option<Arc<[u64]>>,
    /// Sampled reads and the hits of each side, fading.
    reads: f64,
    eviction_hits: f64,
    access_hits: f64,
    unreviewed: u32,
    is_by_access: bool,
}

impl Duel {
    fn new(spec: &Spec, capacity: u32, seed: u64) -> Result<Self, PlacementError> {
        let sample = (capacity / LEAST_SHADOW).clamp(1, SAMPLE);
        let shadow = || {
            let policy = spec.build(&Context::new(capacity / sample));
            Ok(HashedCache::new(policy.map_err(|e| PlacementError(e.to_string()))?, seed))
        };
        Ok(Self {
            at_eviction: shadow()?,
            at_access: shadow()?,
            sample: sample.into(),
            names: None,
            reads: 0.0,
            eviction_hits: 0.0,
            access_hits: 0.0,
            unreviewed: 0,
            is_by_access: false,
        })
    }

    fn samples(&self, block: u64) -> bool {
        let name = self.names.as_ref().and_then(|names| names.get(block as usize)).copied();
        // The hash is equal on every machine.
        hash(name.unwrap_or(block)) % self.sample == 0
    }

    fn read(&mut self, block: u64) {
        if !self.samples(block) {
            return;
        }
        self.reads += 1.0;
        self.access_hits += f64::from(u8::from(self.at_access.access(block).hit));
        if self.at_eviction.take(block).is_some() {
            self.eviction_hits += 1.0;
        } else {
            self.at_eviction.note(block);
        }
        self.unreviewed += 1;
        if self.unreviewed >= self.at_access.policy().capacity() {
            self.review();
        }
    }

    fn review(&mut self) {
        self.unreviewed = 0;
        let ahead = (self.access_hits - self.eviction_hits) / self.reads;
        self.is_by_access = if self.is_by_access { ahead > -LEAD } else { ahead > LEAD };
        for count in [&mut self.reads, &mut self.eviction_hits, &mut self.access_hits] {
            *count *= MEMORY;
        }
    }

    fn evicted(&mut self, block: u64) {
        if self.samples(block) {
            self.at_eviction.place(block);
            if self.at_access.frame(block).is_some() {
                self.at_access.place(block);
            }
        }
    }

    fn foreseen(&mut self, block: u64) {
        if self.samples(block) {
            self.at_eviction.place(block);
        }
    }
}

/// Foresight and duel, fed by one stream.
pub(super) struct Adaptive {
    foresight: Foresight,
    duel: Duel,
}

impl Adaptive {
    /// For a cache of `capacity` blocks with the policy `spec`.
    pub(super) fn new(spec: &Spec, capacity: u32, seed: u64) -> Result<Self, PlacementError> {
        let duel = Duel::new(spec, capacity, seed)?;
        Ok(Self { foresight: Foresight::new(capacity, seed), duel })
    }

    /// The client reads a block. Returns whether to place it, or keep it, at this access.
    pub(super) fn read(&mut self, block: u64) -> bool {
        self.foresight.read(block);
        self.duel.read(block);
        self.duel.is_by_access
    }

    /// Whether blocks are placed at the access now.
    pub(super) fn is_by_access(&self) -> bool {
        self.duel.is_by_access
    }

    /// An eviction by the client became known. Returns whether to place the block.
    pub(super) fn evicted(&mut self, block: u64) -> bool {
        self.foresight.evicted(block);
        self.duel.evicted(block);
        !self.duel.is_by_access
    }

    /// The next block to place as if its eviction were known.
    pub(super) fn foreseen(&mut self) -> Option<u64> {
        loop {
            let block = self.foresight.next()?;
            self.duel.foreseen(block);
            if !self.duel.is_by_access {
                return Some(block);
            }
        }
    }

    /// Changes the capacity. The sampled share of the blocks stays.
    pub(super) fn resize(&mut self, capacity: u32) {
        let duel = &mut self.duel;
        let size = (u64::from(capacity) / duel.sample).max(1) as u32;
        duel.at_eviction.resize(size);
        duel.at_access.resize(size);
    }

    /// See [`Level::number_blocks`](crate::Level::number_blocks).
    pub(super) fn name_blocks(&mut self, names: Arc<[u64]>) {
        self.duel.names = Some(names);
    }

    /// Forgets a discarded block.
    pub(super) fn forget(&mut self, block: u64) {
        self.foresight.delivered.remove(block);
        self.duel.at_eviction.discard(block);
        self.duel.at_access.discard(block);
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.foresight.delivered.check()?;
        if self.foresight.waiting.len() > self.foresight.max_waiting {
            return Err(format!("{} blocks wait", self.foresight.waiting.len()));
        }
        self.duel.at_eviction.validate()?;
        self.duel.at_access.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks 0..10 are evicted unseen after 100 reads and read again after 150; all other
    /// evictions are known.
    #[test]
    fn foresees_who_was_late_before() {
        let mut foresight = Foresight::new(100, 1);
        let mut foreseen = Vec::new();
        for round in 0..1000_u64 {
            for i in 0..150 {
                let block = if i < 10 { i } else { 10 + round * 150 + i };
                foresight.read(block);
                if block >= 10 {
                    foresight.evicted(block);
                }
                while let Some(block) = foresight.next() {
                    foreseen.push(block);
                }
            }
        }
        // 150 is between 2^7 and 2^7.25, the bin that is taken at its lower end.
        assert_eq!(foresight.patience, 128);
        assert!(foreseen.len() > 9000 && foreseen.iter().all(|&block| block < 10));
        foresight.delivered.check().unwrap();
    }
}
