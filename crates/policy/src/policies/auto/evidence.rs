//! What AUTO learns: how blocks of a class fare as they grow older, and how many read hits a
//! block of that class and age therefore promises for its stay.
//!
//! Not here: which block leaves (`order.rs`).
//!
//! Time is measured in ticks, sixteen of them for as many references as the cache has blocks, if it
//! has 256 or more. What is counted fades, so that the evidence follows the workload. The
//! arithmetic (no powers, no logarithms) gives the same results on every machine.

use super::block::{Block, CLASSES, Table};
use super::order::{CELLS, Key};
use crate::snapshot::{Snapshot, SnapshotError};

/// Ticks for as many references as the cache has blocks, if these are 256 or more.
pub(super) const TICKS: u32 = 16;

/// Age buckets of a class.
pub(super) const BUCKETS: usize = 13;

/// The age in ticks at which each bucket but the last ends.
pub(super) const ENDS: [u32; BUCKETS - 1] = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256];

/// Known blocks are counted tick by tick up to this age.
const RING: u32 = ENDS[BUCKETS - 2];

/// As many blocks as are believed to have been in a class before its first, and fared as expected.
const PRIOR: f64 = 8.0;

/// The bucket of an age in ticks.
#[inline(always)]
pub(super) fn bucket(age: u32) -> usize {
    ENDS.iter().filter(|&&end| age >= end).count()
}

/// The ticks of a bucket; the last one counts as long as all before it.
pub(super) fn ticks(bucket: usize) -> std::ops::Range<u32> {
    let start = bucket.checked_sub(1).map_or(0, |before| ENDS[before]);
    start..ENDS.get(bucket).copied().unwrap_or(2 * RING)
}

/// A number for each bucket.
type Row = [f64; BUCKETS];

/// How blocks of one class, or of several, fared in each bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Fates {
    /// So many were read again at this age.
    read: Row,
    /// So many were written.
    written: Row,
    /// So many were forgotten, or grew so old by now: nobody knows what becomes of them.
    censored: Row,
}

impl Fates {
    fn add(&mut self, other: &Self) {
        for (row, more) in self.rows().into_iter().zip([other.read, other.written, other.censored])
        {
            row.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
    }

    fn rows(&mut self) -> [&mut Row; 3] {
        [&mut self.read, &mut self.written, &mut self.censored]
    }

    /// The chances of a block, by this evidence and by what is expected without any.
    fn chances(&self, expected: &Chances) -> Chances {
        let mut chances = Chances::default();
        let mut at_risk = PRIOR;
        for bucket in (0..BUCKETS).rev() {
            let (read, written) = (self.read[bucket], self.written[bucket]);
            at_risk += read + written + self.censored[bucket];
            // Those who are censored were at risk for half of the bucket.
            let exposed = at_risk - self.censored[bucket] / 2.0;
            chances.read[bucket] = (read + PRIOR * expected.read[bucket]) / exposed;
            chances.written[bucket] = (written + PRIOR * expected.written[bucket]) / exposed;
        }
        chances
    }
}

/// The chances of a block that has come into a bucket to be read within it, or written.
#[derive(Clone, Copy, Debug, Default)]
struct Chances {
    read: Row,
    written: Row,
}

impl Chances {
    /// Those of blocks of which the share `returns` is read again, half of these before the age
    /// `median`, and none is written.
    fn assumed(returns: f64, median: f64, power: fn(f64) -> f64) -> Self {
        let stays_away = |age: u32| {
            1.0 - returns + returns / (1.0 + power(f64::from(age) / (median * f64::from(TICKS))))
        };
        let read = std::array::from_fn(|bucket| {
            let end = if bucket + 1 < BUCKETS { stays_away(ENDS[bucket]) } else { 1.0 - returns };
            1.0 - end / stays_away(ticks(bucket).start)
        });
        Self { read, written: Row::default() }
    }

    /// The keys of the buckets: of the read hits for each tick of a stay that begins there, and
    /// ends where these are the most.
    fn keys(&self) -> [Key; BUCKETS] {
        let (mut hits, mut stay) = ([0.0; BUCKETS + 1], [0.0; BUCKETS + 1]);
        let mut left = 1.0;
        for bucket in 0..BUCKETS {
            let returns = self.read[bucket] + self.written[bucket];
            let width = f64::from(ticks(bucket).len() as u32);
            hits[bucket + 1] = hits[bucket] + left * self.read[bucket];
            stay[bucket + 1] = stay[bucket] + width * left * (1.0 - returns / 2.0);
            left *= 1.0 - returns;
        }
        std::array::from_fn(|from| {
            let (mut most, mut while_there) = (0.0, 1.0);
            for to in from + 1..=BUCKETS {
                let (more, longer) = (hits[to] - hits[from], stay[to] - stay[from]);
                if more * while_there > most * longer {
                    (most, while_there) = (more, longer);
                }
            }
            key(most / while_there)
        })
    }
}

/// A number of the order of a value: eight steps for each power of two.
fn key(value: f64) -> Key {
    (value.to_bits() >> (f64::MANTISSA_DIGITS - 1 - 3)) as Key
}

/// The least value with a key.
#[cfg(test)]
pub(super) fn value(key: Key) -> f64 {
    f64::from_bits(u64::from(key) << (f64::MANTISSA_DIGITS - 1 - 3))
}

fn square(x: f64) -> f64 {
    x * x
}

/// A block that was referenced twice within a distance is expected back after as much again; one
/// that was referenced once is hardly expected.
pub(super) fn fixed_keys() -> [Key; CELLS] {
    let steep = |x: f64| x * x * x.sqrt();
    let mut keys = [0; CELLS];
    for class in 0..Table::Fixed.classes() {
        let chances = match class {
            0 => Chances::assumed(0.05, 3.0, steep),
            _ => Chances::assumed(0.99, 0.1875 * f64::from(1 << (class - 1)), steep),
        };
        keys[class * BUCKETS..][..BUCKETS].copy_from_slice(&chances.keys());
    }
    keys
}

/// What was learned of all classes.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    /// Of each class; `censored` has only those that were forgotten.
    fates: Vec<Fates>,
    /// Known blocks of each class by the tick of their last reference, modulo `RING`.
    known: Vec<[u32; RING as usize]>,
    /// Known blocks of each class whose last reference is longer ago.
    older: [u32; CLASSES],
    /// The time. It stands still at its end.
    pub(super) tick: u32,
}

impl Evidence {
    pub(super) fn new() -> Self {
        Self {
            fates: vec![Fates::default(); CLASSES],
            known: vec![[0; RING as usize]; CLASSES],
            older: [0; CLASSES],
            tick: 0,
        }
    }

    /// The age of a block in ticks.
    #[inline(always)]
    pub(super) fn age(&self, block: Block) -> u32 {
        self.tick - block.last
    }

    /// Where a known block is counted.
    #[inline(always)]
    fn counter(&mut self, block: Block) -> &mut u32 {
        let class = block.class(Table::Learned);
        if self.age(block) < RING {
            &mut self.known[class][(block.last % RING) as usize]
        } else {
            &mut self.older[class]
        }
    }

    /// A block is known from now on.
    #[inline(always)]
    pub(super) fn add(&mut self, block: Block) {
        *self.counter(block) += 1;
    }

    /// A block is not known any longer, for a reason that says nothing about its class.
    #[inline(always)]
    pub(super) fn remove(&mut self, block: Block) {
        *self.counter(block) -= 1;
    }

    /// A known block is referenced; it is added again as what it is then.
    #[inline(always)]
    pub(super) fn returns(&mut self, block: Block, is_write: bool) {
        self.remove(block);
        let bucket = bucket(self.age(block));
        let fates = &mut self.fates[block.class(Table::Learned)];
        let row = if is_write { &mut fates.written } else { &mut fates.read };
        row[bucket] += 1.0;
    }

    /// A block is forgotten that was not referenced for long.
    #[inline(always)]
    pub(super) fn forget(&mut self, block: Block) {
        self.remove(block);
        let bucket = bucket(self.age(block));
        self.fates[block.class(Table::Learned)].censored[bucket] += 1.0;
    }

    /// Ends a tick.
    pub(super) fn end_tick(&mut self) {
        let Some(next) = self.tick.checked_add(1) else { return };
        self.tick = next;
        for (known, older) in self.known.iter_mut().zip(&mut self.older) {
            *older += std::mem::take(&mut known[(self.tick % RING) as usize]);
        }
    }

    /// The fates of the blocks of a class, those that are known included.
    fn fates(&self, class: usize) -> Fates {
        let mut fates = self.fates[class];
        for (bucket, censored) in fates.censored[..BUCKETS - 1].iter_mut().enumerate() {
            let at = |age| self.known[class][(self.tick.wrapping_sub(age) % RING) as usize];
            *censored += f64::from(ticks(bucket).map(at).sum::<u32>());
        }
        fates.censored[BUCKETS - 1] += f64::from(self.older[class]);
        fates
    }

    /// The keys of the learned table. A class with little evidence is expected to fare like all
    /// classes of its kind (read last, or written last), and those like both kinds together; but
    /// blocks that were referenced once are a kind of their own.
    pub(super) fn keys(&self) -> [Key; CELLS] {
        let fates: Vec<_> = (0..CLASSES).map(|class| self.fates(class)).collect();
        let mut kinds = [Fates::default(); 2];
        (2..CLASSES).for_each(|class| kinds[class % 2].add(&fates[class]));
        let mut both = kinds[0];
        both.add(&kinds[1]);
        let both = both.chances(&Chances::assumed(0.7, 0.1875, square));
        let kinds = kinds.map(|kind| kind.chances(&both));
        let once = Chances::assumed(0.2, 2.0, square);
        let mut keys = [0; CELLS];
        for (class, keys) in keys.chunks_exact_mut(BUCKETS).enumerate() {
            let expected = if class < 2 { &once } else { &kinds[class % 2] };
            keys.copy_from_slice(&fates[class].chances(expected).keys());
        }
        keys
    }

    /// Lets what was counted fade.
    pub(super) fn fade(&mut self, factor: f64) {
        let rows = self.fates.iter_mut().flat_map(Fates::rows);
        rows.flatten().for_each(|count| *count *= factor);
    }

    /// Saves or loads the time and what was counted; known blocks are added by the caller.
    pub(super) fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        snapshot.number(&mut self.tick, 0..=u32::MAX)?;
        for fates in &mut self.fates {
            let mut is_empty = fates.rows().iter().all(|row| row.iter().all(|&count| count == 0.0));
            snapshot.flag(&mut is_empty)?;
            if !is_empty {
                let mut counts = fates.rows().into_iter().flatten();
                counts.try_for_each(|count| snapshot.real(count, 0.0..=1e18))?;
            }
        }
        Ok(())
    }

    /// Checks that these are the known blocks.
    pub(super) fn check(&self, known: impl Iterator<Item = Block>) -> Result<(), String> {
        let mut counted = Self { tick: self.tick, ..Self::new() };
        known.for_each(|block| counted.add(block));
        let is_right = counted.known == self.known && counted.older == self.older;
        is_right.then_some(()).ok_or_else(|| "the known blocks are counted wrong".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_at_its_end() {
        let mut evidence = Evidence { tick: u32::MAX - 1, ..Evidence::new() };
        for _ in 0..3 {
            evidence.end_tick();
            let block = Block::default().referenced(evidence.tick, false);
            evidence.add(block);
            evidence.check(std::iter::once(block)).unwrap();
            evidence.end_tick();
            evidence.remove(block);
        }
        assert_eq!(evidence.tick, u32::MAX);
    }
}
