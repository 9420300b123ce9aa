//! Dense renumbering: (space, block) to 0, 1, 2, ... in order of first touch, and back.
//!
//! Memory, the only thing that grows: 4 bytes a distinct block for the way back (8 in a trace of
//! several regions) and 9.1 to 18.3 for its slot in the table, whatever the pattern of the block
//! numbers.
//!
//! How it is fast, in order of weight:
//! 1. A slot holds the low half of the key beside the number. While there is one region, as in
//!    most traces, that is all of the key: a look-up reads one slot and nothing else.
//! 2. Look-ups go in batches: first the home slots of all are read, then the answers are taken in
//!    order. The reads do not depend on each other, so the processor waits for them together and
//!    not one by one.
//! 3. A run that was first touched as a run has consecutive numbers: block k + 1 is found beside
//!    block k with no hashing at all.
//!
//! Measured apart from the program, on 20 million Zipf requests over 1.5 million blocks: 1 takes
//! about a quarter off a look-up in slots that hold a tag and lead to a key elsewhere. Batches of
//! 128 to 4096 and a table less than half full gain nothing; lines of eight keys compared at once
//! and two slots read at once are slower. A table of any length that grows by half is as fast
//! there, and was slower over 13 million blocks, where it is rebuilt more often.
//!
//! Splitting requests into blocks is in `blocks.rs`.

use std::collections::HashMap;

use crate::Error;
use crate::blocks::Ref;
use undercroft_random::{fibonacci, mix};

/// Most distinct blocks that can be numbered: the top bit of a [`Ref`] is the write flag.
pub const MAX_BLOCKS: u32 = (1 << 31) - 1;

/// Look-ups in flight at once: more than a core has outstanding misses to offer.
const BATCH: usize = 64;

/// Regions of spaces with smaller numbers than this are found by plain indexing.
const DIRECT_SPACES: usize = 1 << 16;

const NO_REGION: u32 = u32::MAX;

/// No block has this key: its region would be [`NO_REGION`].
const NO_KEY: u64 = u64::MAX;

/// A (space, block) packed into 64 bits by [`Renumbering::key`]. The keys of consecutive blocks
/// of a space are consecutive, except at multiples of 2^32 blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

/// Numbers for blocks.
#[derive(Debug)]
pub struct Renumbering {
    names: BlockNames,
    /// Open addressing, linear probing. 0 = empty, else the low half of the key above number + 1.
    slots: Vec<u64>,
    /// Distinct blocks above which the table grows.
    grow_at: usize,
    limit: u32,
    /// The region of each (space, high half of the block number) seen.
    direct_regions: Vec<u32>,
    other_regions: HashMap<(u32, u32), u32>,
    last_region: ((u32, u32), u32),
}

/// The way back: from a dense number to the block that it stands for.
#[derive(Clone, Debug, Default)]
pub struct BlockNames {
    /// Low half of each key.
    lows: Vec<u32>,
    /// High half of each key; empty while there is only one region, where it is 0.
    highs: Vec<u32>,
    /// A region is one space and one value of the high 32 bits of the block number.
    regions: Vec<(u32, u32)>,
}

impl BlockNames {
    /// Distinct blocks.
    pub fn len(&self) -> u32 {
        self.lows.len() as u32
    }

    /// Whether no block has been numbered.
    pub fn is_empty(&self) -> bool {
        self.lows.is_empty()
    }

    /// The space and block number that `number` stands for; none if it was never given out.
    pub fn block(&self, number: u32) -> Option<(u32, u64)> {
        let low = *self.lows.get(number as usize)?;
        let (space, high) = self.regions[self.high(number) as usize];
        Some((space, u64::from(high) << 32 | u64::from(low)))
    }

    /// One number for the space and block that `number` stands for: in the first space, the only
    /// one of most traces, the block number itself; in the others it differs from space to space.
    /// 0 if it was never given out.
    pub fn name(&self, number: u32) -> u64 {
        let (space, block) = self.block(number).unwrap_or_default();
        // Spaces far apart from one another, whatever their number: no two blocks meet in practice.
        block.wrapping_add(fibonacci(space.into()))
    }

    /// High half of the key of a number that was given out, its region.
    #[inline]
    fn high(&self, number: u32) -> u32 {
        self.highs.get(number as usize).copied().unwrap_or(0)
    }

    /// Whether `number` was given out, and to this key.
    #[inline]
    fn is(&self, number: u32, key: u64) -> bool {
        self.lows.get(number as usize) == Some(&(key as u32))
            && self.high(number) == (key >> 32) as u32
    }

    fn push(&mut self, key: u64) {
        self.lows.push(key as u32);
        if self.regions.len() > 1 {
            self.highs.push((key >> 32) as u32);
        }
    }

    /// Numbers a new region.
    fn push_region(&mut self, space: u32, high: u32) -> u32 {
        self.regions.push((space, high));
        if self.regions.len() == 2 {
            self.highs.resize(self.lows.len(), 0);
        }
        (self.regions.len() - 1) as u32
    }
}

impl Default for Renumbering {
    fn default() -> Self {
        Self::new()
    }
}

impl Renumbering {
    /// An empty numbering.
    pub fn new() -> Self {
        Self::with_limit(MAX_BLOCKS)
    }

    /// A numbering that refuses the block after the first `limit`, so that tests can reach it.
    fn with_limit(limit: u32) -> Self {
        let mut numbering = Self {
            names: BlockNames::default(),
            slots: Vec::new(),
            grow_at: 0,
            limit: limit.min(MAX_BLOCKS),
            direct_regions: Vec::new(),
            other_regions: HashMap::new(),
            last_region: ((0, 0), NO_REGION),
        };
        numbering.rebuild(10);
        numbering
    }

    /// Distinct blocks so far.
    pub fn len(&self) -> u32 {
        self.names.len()
    }

    /// Whether no block has been numbered.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Names of the numbers given out.
    pub fn names(&self) -> &BlockNames {
        &self.names
    }

    /// Gives up the table and keeps the way back.
    pub fn into_names(self) -> BlockNames {
        self.names
    }

    /// Packs a block's identity. Only the first block of a new (space, block >> 32) costs memory.
    #[inline]
    pub fn key(&mut self, space: u32, block: u64) -> Key {
        let high = (block >> 32) as u32;
        let region = match self.direct_regions.get(space as usize) {
            Some(&region) if high == 0 && region != NO_REGION => region,
            _ if self.last_region.0 == (space, high) && self.last_region.1 != NO_REGION => {
                self.last_region.1
            }
            _ => self.intern_region(space, high),
        };
        Key(u64::from(region) << 32 | block & u64::from(u32::MAX))
    }

    #[cold]
    fn intern_region(&mut self, space: u32, high: u32) -> u32 {
        let mut number_it = || self.names.push_region(space, high);
        let index = space as usize;
        let region = if high == 0 && index < DIRECT_SPACES {
            if self.direct_regions.len() <= index {
                self.direct_regions.resize(index + 1, NO_REGION);
            }
            self.direct_regions[index] = number_it();
            self.direct_regions[index]
        } else {
            *self.other_regions.entry((space, high)).or_insert_with(number_it)
        };
        self.last_region = ((space, high), region);
        region
    }

    /// Number of one block; a new block gets the next number.
    ///
    /// # Errors
    /// [`Error::Limit`] if the block would be one more than [`MAX_BLOCKS`].
    pub fn number(&mut self, space: u32, block: u64) -> Result<u32, Error> {
        let key = self.key(space, block);
        let mut refs = [Ref::default()];
        self.assign(&[key], &mut refs)?;
        Ok(refs[0].block())
    }

    /// Puts the number of `keys[i]` into `refs[i]`, whose write flag stays and whose block must
    /// be 0. New blocks get the next numbers, in order.
    ///
    /// # Errors
    /// [`Error::Limit`] on one block more than [`MAX_BLOCKS`]; `refs` is then half done.
    pub fn assign(&mut self, keys: &[Key], refs: &mut [Ref]) -> Result<(), Error> {
        assert_eq!(keys.len(), refs.len());
        // A key that never is a predecessor, and a number that has no successor.
        let mut previous = (NO_KEY, u32::MAX - 1);
        for (keys, refs) in keys.chunks(BATCH).zip(refs.chunks_mut(BATCH)) {
            while self.names.lows.len() + BATCH > self.grow_at {
                self.rebuild(self.slots.len().ilog2() + 1);
            }
            self.assign_batch(keys, refs, &mut previous)?;
        }
        Ok(())
    }

    /// Needs room for a batch in the table. The two passes are those of the head of this file.
    #[inline]
    fn assign_batch(
        &mut self,
        keys: &[Key],
        refs: &mut [Ref],
        previous: &mut (u64, u32),
    ) -> Result<(), Error> {
        let mut homes = [0_u64; BATCH];
        let mut expected = previous.0.wrapping_add(1);
        for (slot, &Key(key)) in homes.iter_mut().zip(keys) {
            // Run continuations are looked for beside their predecessor; leave their slots cold.
            if key != expected {
                *slot = self.slots[self.home(key)];
            }
            expected = key.wrapping_add(1);
        }
        let (mut last_key, mut last_number) = *previous;
        for ((&Key(key), r), &slot) in keys.iter().zip(refs).zip(&homes) {
            let number = if self.holds(slot, key) {
                slot as u32 - 1
            } else if key == last_key.wrapping_add(1) && self.names.is(last_number + 1, key) {
                last_number + 1
            } else {
                self.find_or_insert(key)?
            };
            r.set_block(number);
            (last_key, last_number) = (key, number);
        }
        *previous = (last_key, last_number);
        Ok(())
    }

    /// The number of a key, if it has one.
    pub(crate) fn find(&self, Key(key): Key) -> Option<u32> {
        self.look(key).ok()
    }

    /// The number of a key, or the free slot where the search for it ended.
    fn look(&self, key: u64) -> Result<u32, usize> {
        let last = self.slots.len() - 1;
        let mut index = self.home(key);
        while self.slots[index] != 0 {
            let slot = self.slots[index];
            if self.holds(slot, key) {
                return Ok(slot as u32 - 1);
            }
            index = (index + 1) & last;
        }
        Err(index)
    }

    fn find_or_insert(&mut self, key: u64) -> Result<u32, Error> {
        let index = match self.look(key) {
            Ok(number) => return Ok(number),
            Err(free) => free,
        };
        let number = self.len();
        if number >= self.limit {
            return Err(Error::Limit(format!(
                "the trace touches more than {} distinct blocks: use larger blocks or a sample",
                self.limit
            )));
        }
        self.slots[index] = slot_of(key as u32, number);
        self.names.push(key);
        Ok(number)
    }

    /// Whether a slot is that of the key.
    #[inline]
    fn holds(&self, slot: u64, key: u64) -> bool {
        let number = (slot as u32).wrapping_sub(1);
        (slot >> 32) as u32 == key as u32
            && slot != 0
            && u64::from(self.names.high(number)) == key >> 32
    }

    /// Slot where the search for a key begins: the top bits of its hash.
    #[inline]
    fn home(&self, key: u64) -> usize {
        // `slots.len()` is 2^bits with bits in 10..=32, so the shift is in range.
        (mix(key) >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    /// Makes the table anew with 2^bits slots, from the keys alone: the old one is freed first.
    fn rebuild(&mut self, bits: u32) {
        assert!((10..=32).contains(&bits));
        self.slots = Vec::new();
        self.slots = vec![0; 1 << bits];
        self.grow_at = self.slots.len() / 8 * 7;
        let last = self.slots.len() - 1;
        for number in 0..self.names.len() {
            let low = self.names.lows[number as usize];
            let mut index = self.home(u64::from(self.names.high(number)) << 32 | u64::from(low));
            while self.slots[index] != 0 {
                index = (index + 1) & last;
            }
            self.slots[index] = slot_of(low, number);
        }
    }
}

#[inline]
fn slot_of(low: u32, number: u32) -> u64 {
    u64::from(low) << 32 | u64::from(number + 1)
}

#[cfg(test)]
mod tests;
