//! Dense renumbering: (space, block) to 0, 1, 2, ... in order of first touch, and back.
//!
//! Memory, the only thing that grows: 8 bytes a distinct block for the key and 5.3 to 10.7 for its
//! slot in the table, whatever the pattern of the block numbers.
//!
//! How it is fast, in order of weight:
//! 1. A slot is one `u32`: the number in the low bits, and in the bits that a table of this size
//!    leaves over, a tag of the hash. Nearly every look-up therefore reads one slot and one key.
//! 2. Look-ups go in batches: first all slots of a batch are read, then all keys that they point
//!    to, then the answers are taken in order. The reads of one pass do not depend on each other,
//!    so the processor waits for them together and not one by one.
//! 3. A run that was first touched as a run has consecutive numbers: block k + 1 is found beside
//!    block k with no hashing at all.
//!
//! Splitting requests into blocks is in `blocks.rs`.

use std::collections::HashMap;

use crate::blocks::Ref;
use crate::error::Error;
use crate::rng::mix;

/// Most distinct blocks that can be numbered: the top bit of a [`Ref`] is the write flag.
pub const MAX_BLOCKS: u32 = (1 << 31) - 1;

/// Look-ups in flight at once. Beyond about 16 a core has no more outstanding misses to offer.
const BATCH: usize = 32;

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
    /// Open addressing, linear probing. 0 = empty, else `hash & !mask | number + 1`.
    slots: Vec<u32>,
    /// Low bits of a slot that hold the number: `slots.len() - 1`, as `u32`.
    mask: u32,
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
    keys: Vec<u64>,
    /// A region is one space and one value of the high 32 bits of the block number.
    regions: Vec<(u32, u32)>,
}

/// A search in the table: where it is, and what it read there.
#[derive(Clone, Copy, Default)]
struct Probe {
    hash: u64,
    index: usize,
    slot: u32,
}

impl Probe {
    /// Number in the slot, plus 1.
    #[inline]
    fn number(&self, mask: u32) -> u32 {
        self.slot & mask
    }
}

impl BlockNames {
    /// Distinct blocks.
    pub fn len(&self) -> u32 {
        self.keys.len() as u32
    }

    /// Whether no block has been numbered.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The space and block number that `number` stands for; none if it was never given out.
    pub fn block(&self, number: u32) -> Option<(u32, u64)> {
        let key = *self.keys.get(number as usize)?;
        let (space, high) = self.regions[(key >> 32) as usize];
        Some((space, u64::from(high) << 32 | key & u64::from(u32::MAX)))
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
            mask: 0,
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

    /// Gives up the table and keeps the way back, at 8 bytes a block.
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
        let regions = &mut self.names.regions;
        let mut number_it = || {
            regions.push((space, high));
            (regions.len() - 1) as u32
        };
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
            while self.names.keys.len() + BATCH > self.grow_at {
                self.rebuild(self.slots.len().ilog2() + 1);
            }
            self.assign_batch(keys, refs, &mut previous)?;
        }
        Ok(())
    }

    /// Needs room for a batch in the table. The three passes are those of the head of this file.
    #[inline]
    fn assign_batch(
        &mut self,
        keys: &[Key],
        refs: &mut [Ref],
        previous: &mut (u64, u32),
    ) -> Result<(), Error> {
        let mut probes = [Probe::default(); BATCH];
        let mut candidates = [0_u64; BATCH];
        let mut expected = previous.0.wrapping_add(1);
        for (probe, &Key(key)) in probes.iter_mut().zip(keys) {
            // Run continuations are looked for beside their predecessor; leave their slots cold.
            if key != expected {
                probe.hash = mix(key);
                probe.index = self.home(probe.hash);
                probe.slot = self.slots[probe.index];
            }
            expected = key.wrapping_add(1);
        }
        for (candidate, probe) in candidates.iter_mut().zip(&mut probes).take(keys.len()) {
            if probe.slot != 0 {
                self.search(probe);
                // An empty slot points nowhere: wraps to a number that is out of range.
                let number = probe.number(self.mask).wrapping_sub(1) as usize;
                *candidate = self.names.keys.get(number).copied().unwrap_or(NO_KEY);
            }
        }
        for (i, &Key(key)) in keys.iter().enumerate() {
            let beside = previous.1 + 1;
            let number = if key == previous.0.wrapping_add(1)
                && self.names.keys.get(beside as usize) == Some(&key)
            {
                beside
            } else if probes[i].slot != 0 && candidates[i] == key {
                probes[i].number(self.mask) - 1
            } else {
                self.find_or_insert(key)?
            };
            refs[i].set_block(number);
            *previous = (key, number);
        }
        Ok(())
    }

    /// Moves on to the first slot that is empty or has the tag of the hash.
    #[inline]
    fn search(&self, probe: &mut Probe) {
        let tag = probe.hash as u32 & !self.mask;
        let last = self.slots.len() - 1;
        loop {
            probe.slot = self.slots[probe.index];
            if probe.slot == 0 || probe.slot & !self.mask == tag {
                return;
            }
            probe.index = (probe.index + 1) & last;
        }
    }

    fn find_or_insert(&mut self, key: u64) -> Result<u32, Error> {
        let hash = mix(key);
        let mut probe = Probe { hash, index: self.home(hash), slot: 0 };
        loop {
            self.search(&mut probe);
            if probe.slot == 0 {
                break;
            }
            let number = probe.number(self.mask) - 1;
            if self.names.keys[number as usize] == key {
                return Ok(number);
            }
            probe.index = (probe.index + 1) & (self.slots.len() - 1);
        }
        let number = self.len();
        if number >= self.limit {
            return Err(Error::Limit(format!(
                "the trace touches more than {} distinct blocks: use larger blocks or a sample",
                self.limit
            )));
        }
        self.slots[probe.index] = hash as u32 & !self.mask | (number + 1);
        self.names.keys.push(key);
        Ok(number)
    }

    /// Slot where the search for a hash begins: its top bits. Tags are made of low ones.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        // `slots.len()` is 2^bits with bits in 10..=32, so the shift is in range.
        (hash >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    /// Makes the table anew with 2^bits slots, from the keys alone: the old one is freed first.
    fn rebuild(&mut self, bits: u32) {
        assert!((10..=32).contains(&bits));
        self.slots = Vec::new();
        self.slots = vec![0; 1 << bits];
        self.mask = ((1_u64 << bits) - 1) as u32;
        self.grow_at = self.slots.len() / 4 * 3;
        let last = self.slots.len() - 1;
        for number in 0..self.names.keys.len() {
            let hash = mix(self.names.keys[number]);
            let mut index = self.home(hash);
            while self.slots[index] != 0 {
                index = (index + 1) & last;
            }
            self.slots[index] = hash as u32 & !self.mask | (number as u32 + 1);
        }
    }
}

#[cfg(test)]
mod tests;
