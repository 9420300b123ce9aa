//! Estimates how often any block was referenced recently: the frequency filter of TinyLFU. Either a
//! 4-bit count-min sketch (8 bytes for each block of capacity) or exact counters.
//!
//! Counters saturate at 15. After effective increments of 10 times the capacity all counters are
//! halved.

use std::collections::BTreeMap;

use undercroft_random::hash;

use crate::snapshot::{Snapshot, SnapshotError};

/// Counters of references by block.
#[derive(Clone, Debug)]
pub struct Sketch {
    counters: Counters,
    /// Effective increments since the last halving, plus half of those before.
    increments: u64,
    sample: u64,
}

#[derive(Clone, Debug)]
enum Counters {
    /// One counter for each block; blocks with count 0 are absent.
    Exact(BTreeMap<u64, u8>),
    CountMin(Table),
}

/// Words of 16 counters of 4 bits, aligned to lines of the processor's cache; their number is a
/// power of two.
#[derive(Clone, Debug)]
struct Table {
    lines: Vec<[u64; 8]>,
    /// Number of words; fewer than 8 do not fill a line.
    words: usize,
}

impl Table {
    fn new(capacity: u32) -> Self {
        let words = (capacity as usize).next_power_of_two();
        Self { lines: vec![[0; 8]; words.div_ceil(8)], words }
    }

    #[inline(always)]
    fn line(&self, hash: u64) -> usize {
        ((hash >> 32) as usize & (self.words - 1)) / 8
    }

    /// Word within the line, and bit, of a block's counter in one row. The four words are in one
    /// line, so that counting touches one line, as in Caffeine; each row has a quarter of each
    /// word.
    #[inline(always)]
    fn place(&self, hash: u64, row: u32) -> (usize, u32) {
        let word = (hash >> (3 * row)) as usize & (self.words - 1) & 7;
        let column = (hash >> (12 + 2 * row)) as u32 & 3;
        (word, 16 * row + 4 * column)
    }
}

impl Table {
    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        let least = self.words as u64;
        let mut words = least;
        snapshot.number(&mut words, least..=1 << 32)?;
        if snapshot.is_loading() {
            if !words.is_power_of_two() || snapshot.rest().len() as u64 / 8 < words {
                return Err(SnapshotError::new(format!("{words} words of counters are not there")));
            }
            *self = Self { lines: vec![[0; 8]; words.div_ceil(8) as usize], words: words as usize };
        }
        let used = self.lines.as_flattened_mut().iter_mut().take(words as usize);
        used.into_iter().try_for_each(|word| snapshot.word(word))
    }
}

/// The blocks rise.
fn carry_exact(
    counts: &mut BTreeMap<u64, u8>,
    snapshot: &mut Snapshot<'_>,
) -> Result<(), SnapshotError> {
    let mut len = counts.len() as u64;
    snapshot.number(&mut len, 0..=u64::from(u32::MAX))?;
    let mut saved = std::mem::take(counts).into_iter();
    for _ in 0..len {
        let (mut key, mut count) = saved.next().unwrap_or_default();
        snapshot.word(&mut key)?;
        snapshot.number(&mut count, 1..=MAX)?;
        if counts.last_key_value().is_some_and(|(&last, _)| last >= key) {
            return Err(SnapshotError::new(format!("the counts are out of order at {key}")));
        }
        counts.insert(key, count);
    }
    Ok(())
}

const ROWS: u32 = 4;
const MAX: u8 = 15;
/// The lowest bit of each counter of a word.
const ONES: u64 = 0x1111_1111_1111_1111;

impl Sketch {
    /// Empty, for a cache of `capacity` entries; `exact` counts without collisions.
    pub fn new(exact: bool, capacity: u32) -> Self {
        let counters = if exact {
            Counters::Exact(BTreeMap::new())
        } else {
            Counters::CountMin(Table::new(capacity))
        };
        Self { counters, increments: 0, sample: 10 * u64::from(capacity) }
    }

    /// Sets the capacity for the next increments. A table that is too small is replaced by an empty
    /// one, since its counts cannot be separated by block.
    pub fn resize(&mut self, capacity: u32) {
        self.sample = 10 * u64::from(capacity);
        if let Counters::CountMin(table) = &mut self.counters {
            if (capacity as usize).next_power_of_two() > table.words {
                *table = Table::new(capacity);
                self.increments = 0;
            }
        }
    }

    /// Counts a reference.
    #[inline(always)]
    pub fn increment(&mut self, key: u64) {
        let added = match &mut self.counters {
            Counters::Exact(counts) => {
                let count = counts.entry(key).or_insert(0);
                let room = *count < MAX;
                *count += u8::from(room);
                room
            }
            Counters::CountMin(table) => {
                let hash = hash(key);
                let at = table.line(hash);
                let places: [_; ROWS as usize] =
                    std::array::from_fn(|row| table.place(hash, row as u32));
                let line = &mut table.lines[at];
                let mut added = false;
                for (word, shift) in places {
                    let room = line[word] >> shift & 0xf < u64::from(MAX);
                    line[word] += u64::from(room) << shift;
                    added |= room;
                }
                added
            }
        };
        self.increments += u64::from(added);
        // One test in place of two, since whether a counter was incremented is unpredictable.
        if added & (self.increments >= self.sample) {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.increments /= 2;
        match &mut self.counters {
            Counters::Exact(counts) => counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            }),
            Counters::CountMin(table) => {
                for word in table.lines.as_flattened_mut() {
                    *word = *word >> 1 & (ONES * 7);
                }
            }
        }
    }

    /// Saves or loads the counters. A table may be larger than its capacity needs, if the capacity
    /// has shrunk.
    pub fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        snapshot.clock(&mut self.increments)?;
        match &mut self.counters {
            Counters::Exact(counts) => carry_exact(counts, snapshot),
            Counters::CountMin(table) => table.save_load(snapshot),
        }
    }

    /// The count of a block: exact, or too high if blocks share counters.
    #[inline(always)]
    pub fn estimate(&self, key: u64) -> u8 {
        match &self.counters {
            Counters::Exact(counts) => counts.get(&key).copied().unwrap_or(0),
            Counters::CountMin(table) => {
                let hash = hash(key);
                let line = &table.lines[table.line(hash)];
                let counter = |row| {
                    let (word, shift) = table.place(hash, row);
                    (line[word] >> shift & 0xf) as u8
                };
                (0..ROWS).map(counter).fold(MAX, u8::min)
            }
        }
    }

    /// The estimate after one more block, never seen before, has been counted: that may halve all
    /// counters.
    pub fn estimate_after_stranger(&self, key: u64) -> u8 {
        self.estimate(key) >> u8::from(self.increments + 1 >= self.sample)
    }

    /// Reads a word that counting `key` will need.
    #[inline(always)]
    pub fn prefetch(&self, key: u64) -> u32 {
        match &self.counters {
            Counters::Exact(_) => 0,
            Counters::CountMin(table) => table.lines[table.line(hash(key))][0] as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Sketch;

    /// With few blocks in a large table hardly any counters are shared.
    #[test]
    fn count_min_never_underestimates_and_is_mostly_right() {
        let mut exact = Sketch::new(true, 1000);
        let mut ours = Sketch::new(false, 1000);
        for i in 0..4000_u64 {
            let key = (i * i) % 701;
            exact.increment(key);
            ours.increment(key);
        }
        let right = (0..701).filter(|&key| exact.estimate(key) == ours.estimate(key)).count();
        assert!((0..701).all(|key| exact.estimate(key) <= ours.estimate(key)));
        assert!(right > 660, "{right} of 701 right");
    }

    #[test]
    fn halves_after_ten_times_the_capacity() {
        for exact in [true, false] {
            let mut sketch = Sketch::new(exact, 2);
            for _ in 0..8 {
                sketch.increment(7);
            }
            assert_eq!(sketch.estimate(7), 8);
            for _ in 0..12 {
                sketch.increment(8);
            }
            assert!(sketch.increments == 10, "20 effective increments are halved");
            assert_eq!(sketch.estimate(7), if exact { 4 } else { sketch.estimate(7) });
        }
    }
}
