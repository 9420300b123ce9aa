//! Predicts which evictions by a client will become known too late. A database that frees frames
//! ahead, as InnoDB does, evicts a block and reads it again before its old frame is reused: such a
//! block is in neither cache. This is ours.
//!
//! A block whose eviction was late the last time is expected to be late again. It is placed without
//! news from the client after a number of reads: the median age, in reads since delivery, at which
//! late evictions showed. No number is tuned to a client.

use std::collections::VecDeque;

use crate::bounded_lru_map::BoundedLruMap;

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

/// The prediction.
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
    pub(super) fn new(capacity: u32, seed: u64) -> Self {
        Self::remembering(capacity.saturating_mul(4).max(LEAST_REMEMBERED), capacity, seed)
    }

    /// For a cache of `capacity` blocks, with so many deliveries remembered.
    pub(super) fn remembering(deliveries: u32, capacity: u32, seed: u64) -> Self {
        Self {
            delivered: BoundedLruMap::new(deliveries, seed),
            reads: 0,
            waiting: VecDeque::new(),
            max_waiting: WAITING * capacity as usize,
            ages: [0.0; BINS],
            unreviewed: 0,
            patience: 0,
        }
    }

    /// Notes that the client reads a block.
    pub(super) fn read(&mut self, block: u64) {
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
    pub(super) fn evicted(&mut self, block: u64) {
        if let Some(delivered) = self.delivered.get_mut(block) {
            delivered.is_held = false;
        }
    }

    /// Forgets a discarded block.
    pub(super) fn forget(&mut self, block: u64) {
        self.delivered.remove(block);
    }

    /// The next block that the client is expected to have evicted by now, if any.
    pub(super) fn next(&mut self) -> Option<u64> {
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

    pub(super) fn check(&self) -> Result<(), String> {
        self.delivered.check()?;
        if self.waiting.len() > self.max_waiting {
            return Err(format!("{} blocks wait", self.waiting.len()));
        }
        Ok(())
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
