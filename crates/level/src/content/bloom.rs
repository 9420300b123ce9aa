//! Bloom filters over block numbers: a counting filter, from which blocks can be removed, and the
//! plain bits that are sent to the neighbour.
//!
//! The k positions of a block are `(h1 + i * h2) mod m` for i = 0 .. k - 1 (Kirsch & Mitzenmacher,
//! ESA 2006). h1 is SplitMix64's output function of the block and the seed; h2 is that function of
//! h1. Both sides of a connection must agree on this, so it is fixed here and does not depend on a
//! library.

use undercroft_policy::{Awareness, Knows};
use undercroft_random::hash;

/// Size and hash functions of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bits (m), at least 1.
    pub bits: u32,
    /// Hash functions (k), at least 1.
    pub hashes: u32,
    /// Seed of the hash functions. Filters with different seeds have their false positives at
    /// different blocks.
    pub seed: u64,
}

impl Shape {
    /// `bits_per_block` bits for each of `capacity` blocks, at most 2^32 - 1.
    pub fn new(bits_per_block: u32, hashes: u32, capacity: u32, seed: u64) -> Self {
        let bits = bits_per_block.max(1).saturating_mul(capacity.max(1));
        Self { bits, hashes: hashes.max(1), seed }
    }

    /// The share of false positives of a filter that holds `blocks` blocks: (1 - e^(-k n / m))^k.
    pub fn false_positives(&self, blocks: u32) -> f64 {
        let load = f64::from(self.hashes) * f64::from(blocks) / f64::from(self.bits);
        (1.0 - (-load).exp()).powi(self.hashes as i32)
    }

    /// The positions of a block. It takes two divisions for any number of hash functions, since
    /// each step adds h2 and wraps around.
    #[inline]
    pub(super) fn positions(self, block: u64) -> impl Iterator<Item = u32> {
        let m = u64::from(self.bits);
        let first = hash(block ^ hash(self.seed));
        let (mut next, step) = (first % m, hash(first) % m);
        (0..self.hashes).map(move |_| {
            let position = next;
            next += step;
            next -= if next >= m { m } else { 0 };
            position as u32
        })
    }
}

/// Share of false positives of the Bloom summary of a full neighbour of `capacity` blocks, by the
/// formula; `None` without a summary.
pub fn false_positives(awareness: &Awareness, capacity: u32) -> Option<f64> {
    let shape = Shape::new(awareness.filter_bits, awareness.hashes, capacity, 0);
    (awareness.knows == Knows::Bloom).then(|| shape.false_positives(capacity))
}

/// Plain bits: bit `i` is bit `i % 8` of byte `i / 8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    shape: Shape,
    bytes: Vec<u8>,
    /// Number of bits that are set.
    set: u64,
}

impl Filter {
    /// An empty filter.
    pub fn new(shape: Shape) -> Self {
        Self { shape, bytes: vec![0; shape.bits.div_ceil(8) as usize], set: 0 }
    }

    /// A filter of these bytes; `None` if their number does not fit the shape.
    pub fn of_bytes(shape: Shape, bytes: &[u8]) -> Option<Self> {
        let fits = bytes.len() == shape.bits.div_ceil(8) as usize;
        let set = || bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
        fits.then(|| Self { shape, bytes: bytes.to_vec(), set: set() })
    }

    /// Size and hash functions.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The bits.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the filter may hold a block; if false, it does not.
    pub fn holds(&self, block: u64) -> bool {
        self.shape.positions(block).all(|position| self.is_set(position))
    }

    /// The share of false positives with the bits that are set now.
    pub fn false_positives(&self) -> f64 {
        (self.set as f64 / f64::from(self.shape.bits)).powi(self.shape.hashes as i32)
    }

    /// Whether a bit is set. `position` must be below the number of bits.
    pub fn is_set(&self, position: u32) -> bool {
        self.bytes[position as usize / 8] >> (position % 8) & 1 != 0
    }

    pub(super) fn flip(&mut self, position: u32) {
        let (byte, bit) = (&mut self.bytes[position as usize / 8], 1 << (position % 8));
        *byte ^= bit;
        self.set = if *byte & bit == 0 { self.set - 1 } else { self.set + 1 };
    }
}

/// The largest count of a position. A count that reached it stays there.
const COUNT_MAX: u8 = 15;

/// A filter with a count of 4 bits for each position.
#[derive(Clone, Debug)]
pub struct CountingFilter {
    shape: Shape,
    /// Two counts per byte.
    counts: Vec<u8>,
    is_saturated: bool,
}

impl CountingFilter {
    /// An empty filter.
    pub fn new(shape: Shape) -> Self {
        let counts = vec![0; shape.bits.div_ceil(2) as usize];
        Self { shape, counts, is_saturated: false }
    }

    /// Size and hash functions.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether some count reached the maximum. The filter may then hold removed blocks, and should
    /// be rebuilt.
    pub fn is_saturated(&self) -> bool {
        self.is_saturated
    }

    fn count(&self, position: u32) -> u8 {
        self.counts[position as usize / 2] >> (position % 2 * 4) & COUNT_MAX
    }

    fn set(&mut self, position: u32, count: u8) {
        let shift = position % 2 * 4;
        let byte = &mut self.counts[position as usize / 2];
        *byte = *byte & !(COUNT_MAX << shift) | count << shift;
    }

    /// Inserts a block, which must not be in the filter. `flipped` receives the positions that were
    /// empty.
    pub fn insert(&mut self, block: u64, mut flipped: impl FnMut(u32)) {
        for position in self.shape.positions(block) {
            let count = self.count(position);
            if count == COUNT_MAX {
                self.is_saturated = true;
                continue;
            }
            self.set(position, count + 1);
            if count == 0 {
                flipped(position);
            }
        }
    }

    /// Removes a block, which must be in the filter. `flipped` receives the positions that became
    /// empty.
    pub fn remove(&mut self, block: u64, mut flipped: impl FnMut(u32)) {
        for position in self.shape.positions(block) {
            let count = self.count(position);
            // A count at the maximum is no longer exact.
            if count == COUNT_MAX || count == 0 {
                continue;
            }
            self.set(position, count - 1);
            if count == 1 {
                flipped(position);
            }
        }
    }

    /// Whether the filter may hold a block; if false, it does not.
    pub fn holds(&self, block: u64) -> bool {
        self.shape.positions(block).all(|position| self.count(position) > 0)
    }

    /// Whether a position is not empty.
    pub fn is_set(&self, position: u32) -> bool {
        self.count(position) > 0
    }

    /// The positions that are not empty, as plain bits.
    pub fn bits(&self) -> Filter {
        let mut filter = Filter::new(self.shape);
        let set = (0..self.shape.bits).filter(|&position| self.is_set(position));
        set.for_each(|position| filter.flip(position));
        filter
    }
}
