//! The directory of what lies on flash: 7 bytes a block, without links.
//!
//! The slots are divided into sets of at most [`WAYS`]. A block can lie in any slot of one set: so
//! a slot needs no pointer, and its number follows from where its record stands. Each set is a
//! generalised CLOCK with counters of two bits: a read from flash counts up, the hand counts down,
//! and the first block whose counter is 0 goes. A new block starts at 0 behind the hand, and at 1
//! in a slot that was free, which the hand may reach next. A block that memory holds too goes
//! before its counter is 0, unless that is full: two copies are one too many.
//!
//! A block's number is permuted, with a seed so that nobody can choose blocks of one set. The upper
//! part of the result is the set, the rest is kept, 4 bytes: the two are the block's number again,
//! so there are no false hits.
//!
//! Two bytes more are a check of the data in the slot ([`check_of`]), so that a device that changed
//! them is found out.
//!
//! Invariant: a block is in at most one slot, of its own set.

use std::ops::Range;

use undercroft_random::hash;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::directory::{Directory, Evidence, Slot};

/// Most slots of a set.
pub const WAYS: u32 = 256;

/// Parts of a slot's state: whether a block lies there, whether it was read from here since memory
/// last let it go, why it was written, and its counter.
const TAKEN: u8 = 1 << 7;
const HELD: u8 = 1 << 6;
const EVIDENCE_SHIFT: u32 = 2;
const COUNTER: u8 = 3;

/// Bits of a check.
pub(crate) const CHECK_BITS: u32 = 15;

/// A check of a block's data on flash. Other data, or another block's, have the same one by chance,
/// once in 16,384 at most; data of which one bit has changed never have it.
pub fn check_of(block: u64, data: &[u8]) -> u16 {
    let parity = data.iter().fold(0, |all, byte| all ^ byte).count_ones() & 1;
    let hash = (xxh3_64_with_seed(data, block) >> (u64::BITS - CHECK_BITS)) & !1;
    hash as u16 | parity as u16
}

/// What lies in each slot.
pub struct Slots {
    sets: u32,
    ways: u32,
    numbers: Numbers,
    /// What is kept of the number of each slot's block.
    rests: Vec<u32>,
    states: Vec<u8>,
    checks: Vec<u16>,
    /// The slot of each set at which its hand stands.
    hands: Vec<u8>,
}

impl Slots {
    /// Empty slots for at most `capacity` blocks, at least 1: all sets have equally many, so that a
    /// few may be missing. `seed` makes it unpredictable which blocks compete.
    pub fn new(capacity: u32, seed: u64) -> Self {
        let capacity = capacity.max(1);
        let sets = capacity.div_ceil(WAYS);
        let ways = capacity / sets;
        let slots = (sets * ways) as usize;
        Self {
            sets,
            ways,
            numbers: Numbers::new(sets, seed),
            rests: vec![0; slots],
            states: vec![0; slots],
            checks: vec![0; slots],
            hands: vec![0; sets as usize],
        }
    }

    /// Number of sets.
    pub fn sets(&self) -> u32 {
        self.sets
    }

    fn slots_of(&self, set: u32) -> Range<usize> {
        let first = (set * self.ways) as usize;
        first..first + self.ways as usize
    }

    /// A free slot of a set, or the one whose block goes next.
    fn room(&mut self, set: u32) -> usize {
        let slots = self.slots_of(set);
        let states = &mut self.states[slots.clone()];
        if let Some(free) = states.iter().position(|state| state & TAKEN == 0) {
            return slots.start + free;
        }
        let hand = &mut self.hands[set as usize];
        loop {
            let at = usize::from(*hand);
            *hand = if at + 1 == states.len() { 0 } else { *hand + 1 };
            let counter = states[at] & COUNTER;
            if counter == 0 || (states[at] & HELD != 0 && counter < COUNTER) {
                return slots.start + at;
            }
            states[at] -= 1;
        }
    }

    /// Puts a block into a slot, whatever lies there: it was found after a restart, with the check
    /// of its data. Returns `false` if it is a slot of another set, or there is none of this
    /// number. The caller sees to it that the block does not stay in two slots
    /// ([`doubles`](Self::doubles)).
    #[must_use]
    pub fn restore(&mut self, slot: Slot, block: u64, check: u16) -> bool {
        match self.numbers.split(block) {
            Some((set, rest)) if slot / self.ways == set => {
                self.rests[slot as usize] = rest;
                self.checks[slot as usize] = check;
                self.states[slot as usize] =
                    TAKEN | (Evidence::WasThere as u8) << EVIDENCE_SHIFT | 1;
                true
            }
            _ => false,
        }
    }

    /// The slots of these sets whose block lies in an earlier slot of its set too. There are none
    /// unless [`restore`](Self::restore) put it there.
    pub fn doubles(&self, sets: Range<u32>) -> Vec<Slot> {
        // A bit for each lower half of a rest that was seen in the set: a slot whose bit is not set
        // needs no search.
        let (mut seen, mut doubles) = (vec![0; 1 << 10], Vec::new());
        for set in sets.start..sets.end.min(self.sets) {
            let taken = self.slots_of(set).filter(|&slot| self.states[slot] & TAKEN != 0);
            seen.fill(0u64);
            for slot in taken.clone() {
                let rest = self.rests[slot];
                let (word, bit) = (&mut seen[usize::from(rest as u16 >> 6)], 1 << (rest & 63));
                let mut earlier = taken.clone().take_while(|&other| other < slot);
                if *word & bit != 0 && earlier.any(|other| self.rests[other] == rest) {
                    doubles.push(slot as Slot);
                }
                *word |= bit;
            }
        }
        doubles
    }

    /// The check of the data in a slot.
    pub fn check_in(&self, slot: Slot) -> u16 {
        self.checks[slot as usize]
    }

    /// Data with this check were written to a slot.
    pub fn set_check(&mut self, slot: Slot, check: u16) {
        self.checks[slot as usize] = check;
    }

    fn number_in(&self, set: u32, slot: usize) -> u64 {
        self.numbers.join(set, self.rests[slot])
    }

    /// Number of blocks on flash. O(capacity).
    pub fn count(&self) -> u32 {
        self.states.iter().filter(|&&state| state & TAKEN != 0).count() as u32
    }

    /// Recounts everything.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    pub fn validate(&self) -> Result<(), String> {
        for set in 0..self.sets {
            let taken = self.slots_of(set).filter(|&slot| self.states[slot] & TAKEN != 0);
            for slot in taken {
                let block = self.number_in(set, slot);
                if self.find(block) != Some(slot as Slot) {
                    return Err(format!("block {block} in slot {slot} is found elsewhere"));
                }
            }
        }
        Ok(())
    }
}

impl Directory for Slots {
    fn capacity(&self) -> u32 {
        self.sets * self.ways
    }

    fn limit(&self) -> u64 {
        self.numbers.mask + 1
    }

    fn find(&self, block: u64) -> Option<Slot> {
        let (set, rest) = self.numbers.split(block)?;
        let slots = self.slots_of(set);
        let mut in_set = self.rests[slots.clone()].iter().zip(&self.states[slots.clone()]);
        let at = in_set.position(|(&kept, state)| kept == rest && state & TAKEN != 0)?;
        Some((slots.start + at) as Slot)
    }

    fn touch(&mut self, slot: Slot) -> Evidence {
        let state = &mut self.states[slot as usize];
        *state += u8::from(*state & COUNTER < COUNTER);
        *state |= HELD;
        Evidence::of(*state >> EVIDENCE_SHIFT & 7)
    }

    fn keep(&mut self, slot: Slot) {
        self.states[slot as usize] &= !HELD;
    }

    fn place(&mut self, block: u64, evidence: Evidence) -> Option<(Slot, Option<u64>)> {
        let (set, rest) = self.numbers.split(block)?;
        let slot = self.room(set);
        let gone = (self.states[slot] & TAKEN != 0).then(|| self.number_in(set, slot));
        self.rests[slot] = rest;
        self.states[slot] = TAKEN | (evidence as u8) << EVIDENCE_SHIFT | u8::from(gone.is_none());
        Some((slot as Slot, gone))
    }

    fn empty(&mut self, slot: Slot) {
        self.states[slot as usize] = 0;
    }

    fn block_in(&self, slot: Slot) -> Option<u64> {
        let is_taken = self.states[slot as usize] & TAKEN != 0;
        is_taken.then(|| self.number_in(slot / self.ways, slot as usize))
    }
}

/// The permutation of block numbers, and its division into sets.
struct Numbers {
    sets: u32,
    seed: u64,
    bits: u32,
    mask: u64,
}

/// An odd factor, and its inverse modulo 2^64.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = 0xf1de_83e1_9937_733d;

impl Numbers {
    /// With more sets, less of a number must be kept: numbers have from 32 to 48 bits.
    fn new(sets: u32, seed: u64) -> Self {
        let bits = (32 + sets.ilog2()).min(48);
        let mask = (1 << bits) - 1;
        Self { sets, seed: hash(seed) & mask, bits, mask }
    }

    /// The set of a block, and what of its number is to be kept there. `None`: the number is too
    /// large.
    fn split(&self, block: u64) -> Option<(u32, u32)> {
        if block > self.mask {
            return None;
        }
        let mut x = block ^ self.seed;
        for _ in 0..2 {
            x = x.wrapping_mul(FACTOR) & self.mask;
            x ^= x >> self.bits.div_ceil(2);
        }
        // The rest is `x - self.first(set)`, without a division of 128 bits.
        let product = u128::from(x) * u128::from(self.sets);
        let rest = (product as u64 & self.mask) / u64::from(self.sets);
        Some(((product >> self.bits) as u32, rest as u32))
    }

    /// The block of a set with this rest.
    fn join(&self, set: u32, rest: u32) -> u64 {
        let mut x = self.first(set) + u64::from(rest);
        for _ in 0..2 {
            x ^= x >> self.bits.div_ceil(2);
            x = x.wrapping_mul(INVERSE) & self.mask;
        }
        x ^ self.seed
    }

    /// The first permuted number of a set.
    fn first(&self, set: u32) -> u64 {
        (u128::from(set) << self.bits).div_ceil(u128::from(self.sets)) as u64
    }
}
