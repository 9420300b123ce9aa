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

/// Late evictions between two reviews of their ages, and the fewest of them in a sample; and the
/// factor that fades the counts after each review.
const REVIEW: u32 = 256;
const REVIEW_MIN: u32 = 16;
const FADE: f64 = 0.9;

/// Most late blocks that wait for their placement, and most blocks remembered, as multiples of the
/// capacity.
const WAITING: u32 = 4;
const REMEMBERED: u32 = 4;

/// Fewest blocks remembered, since clients may be larger than the cache.
const LEAST_REMEMBERED: u32 = 1 << 16;

/// Most bytes of a block that is remembered, in a map that has taken its memory at once.
const DELIVERED_BYTES: u64 = 48;

/// The prediction, from what happens to one cache, or to a sample of its blocks.
pub struct Foresight {
    delivered: BoundedLruMap<Delivered>,
    reads: u64,
    /// Blocks that were late the last time, with the number of the read that delivered each, oldest
    /// first.
    waiting: VecDeque<(u64, u64)>,
    max_waiting: usize,
    /// Recent late evictions, by how many reads before the block had been delivered.
    ages: [f64; BINS],
    /// Late evictions between two reviews, and those since the last.
    review: u32,
    unreviewed: u32,
    /// A block that was late before is placed this many reads after delivery; 0: not known yet.
    patience: u64,
}

impl Foresight {
    /// For a cache of `capacity` blocks. `seed` makes the index unpredictable for clients that
    /// choose the block numbers; it changes nothing else.
    pub fn new(capacity: u32, seed: u64) -> Self {
        let remembered = capacity.saturating_mul(REMEMBERED).max(LEAST_REMEMBERED);
        let max_waiting = capacity.saturating_mul(WAITING) as usize;
        Self {
            delivered: BoundedLruMap::new(remembered, seed),
            reads: 0,
            waiting: VecDeque::new(),
            max_waiting,
            ages: [0.0; BINS],
            review: REVIEW,
            unreviewed: 0,
            patience: 0,
        }
    }

    /// For a cache of `capacity` blocks, of which this sees a share `rate`, from 0 to 1. All memory
    /// is taken at once. `seed`: see [`new`](Self::new).
    pub fn of_sample(rate: f64, capacity: u32, seed: u64) -> Self {
        let whole = Self::new(capacity, seed);
        let share = |count: u32| (f64::from(count) * rate).ceil() as u32;
        let max_waiting = (whole.max_waiting as f64 * rate).ceil() as usize;
        Self {
            delivered: BoundedLruMap::with_room(share(whole.delivered.max()), seed),
            // One comes before another goes.
            waiting: VecDeque::with_capacity(max_waiting + 1),
            max_waiting,
            review: share(REVIEW).max(REVIEW_MIN),
            ..whole
        }
    }

    /// Most bytes that [`of_sample`](Self::of_sample) takes.
    pub fn bytes_of_sample(rate: f64, capacity: u32) -> u64 {
        let whole = Self::new(capacity, 0);
        let share = |count: u64| (count as f64 * rate).ceil() as u64 + 1;
        DELIVERED_BYTES * share(whole.delivered.max().into())
            + size_of::<(u64, u64)>() as u64 * share(whole.max_waiting as u64)
    }

    /// Notes that the client reads a block.
    pub fn read(&mut self, block: u64) {
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
        if self.unreviewed < self.review {
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
    pub fn evicted(&mut self, block: u64) {
        if let Some(delivered) = self.delivered.get_mut(block) {
            delivered.is_held = false;
        }
    }

    /// Forgets a discarded block.
    pub fn forget(&mut self, block: u64) {
        self.delivered.remove(block);
    }

    /// The next block that the client is expected to have evicted by now, if any.
    pub fn foreseen(&mut self) -> Option<u64> {
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
    fn foreseen(foresight: &mut Foresight) -> Vec<u64> {
        let mut foreseen = Vec::new();
        for round in 0..1000_u64 {
            for i in 0..150 {
                let block = if i < 10 { i } else { 10 + round * 150 + i };
                foresight.read(block);
                if block >= 10 {
                    foresight.evicted(block);
                }
                while let Some(block) = foresight.foreseen() {
                    foreseen.push(block);
                }
            }
        }
        foreseen
    }

    #[test]
    fn foresees_who_was_late_before() {
        let mut foresight = Foresight::new(100, 1);
        let foreseen = foreseen(&mut foresight);
        // 150 is between 2^7 and 2^7.25, the bin that is taken at its lower end.
        assert_eq!(foresight.patience, 128);
        assert!(foreseen.len() > 9000 && foreseen.iter().all(|&block| block < 10));
        foresight.delivered.check().unwrap();
    }

    /// A sample of a cache of 1,000 blocks: it remembers its share, and takes no memory later.
    #[test]
    fn a_sample_foresees_too_and_remembers_its_share() {
        let mut foresight = Foresight::of_sample(0.01, 1000, 1);
        assert_eq!((foresight.delivered.max(), foresight.max_waiting), (656, 40));
        let taken = foresight.waiting.capacity();
        let foreseen = foreseen(&mut foresight);
        assert_eq!(foresight.patience, 128);
        assert!(foreseen.len() > 9000 && foreseen.iter().all(|&block| block < 10));
        assert_eq!(foresight.waiting.capacity(), taken);
        foresight.check().unwrap();
    }
}
