//! The fixed facts of a volume that all its parts go by: block size, size, write rules.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_cache::WriteMode;
use undercroft_random::fibonacci;

/// Neighbours that stay in one shard, as a power of two: so that runs of blocks stay together.
const SHARD_GROUP_BITS: u32 = 6;

/// Volumes of more blocks than this do not tell cold reads apart: the record would be too large.
const SEEN_BLOCKS_MAX: u64 = 1 << 32;

pub(crate) struct Geometry {
    pub(crate) block_bits: u32,
    /// Bytes; grows, never shrinks.
    size: AtomicU64,
    /// Offsets and lengths of store requests are multiples of this power of two.
    pub(crate) alignment: u64,
    /// What a write does to the policy.
    pub(crate) mode: WriteMode,
    /// Whether a write is answered before the store has it.
    pub(crate) write_back: bool,
    pub(crate) shards: u64,
    /// A bit for each block that was ever referenced; empty if that is not kept. It costs 32 KiB a
    /// GiB of volume with blocks of 4 KiB. Blocks by which
    /// the volume grows later are not in it and never count as cold.
    seen: Box<[AtomicU64]>,
}

impl Geometry {
    pub(crate) fn new(
        block_bytes: u32,
        size: u64,
        alignment: u32,
        mode: WriteMode,
        write_back: bool,
        shards: u32,
    ) -> Self {
        let blocks = size.div_ceil(u64::from(block_bytes));
        let words = if blocks <= SEEN_BLOCKS_MAX { blocks.div_ceil(64) } else { 0 };
        Self {
            block_bits: block_bytes.trailing_zeros(),
            size: AtomicU64::new(size),
            alignment: u64::from(alignment.max(1)),
            mode,
            write_back,
            shards: u64::from(shards.max(1)),
            seen: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        1 << self.block_bits
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// The block that a byte lies in.
    pub(crate) fn block_of(&self, offset: u64) -> u64 {
        offset >> self.block_bits
    }

    /// The blocks that a range touches; it must not be empty.
    pub(crate) fn blocks(&self, offset: u64, length: u64) -> RangeInclusive<u64> {
        self.block_of(offset)..=self.block_of(offset + length - 1)
    }

    /// First byte of a block.
    pub(crate) fn start(&self, block: u64) -> u64 {
        block << self.block_bits
    }

    /// Bytes of a block: fewer only for the last one of a volume of uneven size.
    pub(crate) fn len(&self, block: u64) -> usize {
        (self.size() - self.start(block)).min(self.block_bytes()) as usize
    }

    pub(crate) fn is_aligned(&self, at: u64) -> bool {
        at & (self.alignment - 1) == 0
    }

    /// Which shard a block belongs to.
    pub(crate) fn shard_of(&self, block: u64) -> usize {
        if self.shards == 1 {
            return 0;
        }
        let group = block >> SHARD_GROUP_BITS;
        (fibonacci(group) >> 32) as usize % self.shards as usize
    }

    /// Notes that a block is referenced: true if it is known that it never was before.
    pub(crate) fn first_touch(&self, block: u64) -> bool {
        let bit = 1 << (block % 64);
        let word = self.seen.get((block / 64) as usize);
        // Read first: mostly it was, and a change holds the processor up.
        let is_new = |word: &AtomicU64| word.load(Ordering::Relaxed) & bit == 0;
        word.filter(|word| is_new(word))
            .is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }
}
