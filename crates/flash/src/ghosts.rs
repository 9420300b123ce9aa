//! Blocks that left memory and are not on flash, in the order in which they left: two bytes for
//! each.
//!
//! A block belongs to a bucket of [`PLACES`] places, the last that left first. A place holds a
//! fingerprint of 16 bits. So one in four thousand blocks that were never here is taken for one
//! that was, and how many others push a block out varies by a quarter; both cost a write to flash
//! or a hit, and nothing else. (Fingerprints of eight bits cost up to 6 % of the misses as writes.)

use undercroft_random::hash;

/// Places of a bucket.
const PLACES: usize = 16;

/// No block has this fingerprint.
const NONE: u16 = 0;

/// The ghosts.
pub(crate) struct Ghosts {
    buckets: Vec<[u16; PLACES]>,
    capacity: u32,
}

impl Ghosts {
    /// Room for so many ghosts.
    pub(crate) fn new(capacity: u32) -> Self {
        let buckets = (capacity as usize).div_ceil(PLACES).max(1);
        Self { buckets: vec![[NONE; PLACES]; buckets], capacity }
    }

    fn bucket_of(&mut self, block: u64) -> (&mut [u16; PLACES], u16) {
        let hashed = hash(block);
        let bucket = ((hashed >> 32) * self.buckets.len() as u64) >> 32;
        (&mut self.buckets[bucket as usize], (hashed % 65_535) as u16 + 1)
    }

    /// Remembers a block, as the last that left.
    pub(crate) fn insert(&mut self, block: u64) {
        let (bucket, print) = self.bucket_of(block);
        bucket.copy_within(..PLACES - 1, 1);
        bucket[0] = print;
    }

    /// Forgets a block. Returns whether it was among the last `window` that left.
    pub(crate) fn take(&mut self, block: u64, window: u32) -> bool {
        let capacity = u64::from(self.capacity.max(1));
        let (bucket, print) = self.bucket_of(block);
        let Some(place) = bucket.iter().position(|&other| other == print) else { return false };
        bucket.copy_within(place + 1.., place);
        bucket[PLACES - 1] = NONE;
        // The window in places of a bucket, rounded.
        let places = (2 * u64::from(window) * PLACES as u64 + capacity) / (2 * capacity);
        (place as u64) < places
    }
}
