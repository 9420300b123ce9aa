//! The properties of a volume that all its parts use: block size, size, write rules; and blocks of
//! zeroes.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use undercroft_policy::WriteMode;
use undercroft_random::fibonacci;

/// Largest block size in bytes.
pub(crate) const BLOCK_BYTES_MAX: usize = 64 << 10;

static ZEROES: [u8; BLOCK_BYTES_MAX] = [0; BLOCK_BYTES_MAX];

/// Up to one block of zero bytes, without allocation.
pub(crate) fn zeroes(length: usize) -> Bytes {
    Bytes::from_static(&ZEROES[..length])
}

/// Most bytes of dirty blocks in one store request.
const WRITE_OUT_BYTES_MAX: u64 = 1 << 20;

/// Binary logarithm of the number of neighbouring blocks in one shard, so that runs of blocks stay
/// together.
const SHARD_GROUP_BITS: u32 = 6;

/// Volumes with more blocks do not count cold reads: the record would be too large.
const SEEN_BLOCKS_MAX: u64 = 1 << 32;

pub(crate) struct Geometry {
    pub(crate) block_bits: u32,
    /// Size in bytes; grows, never shrinks.
    size: AtomicU64,
    /// Offsets and lengths of store requests are multiples of this power of two, in bytes.
    pub(crate) alignment: u64,
    /// What a write does to the policy.
    pub(crate) mode: WriteMode,
    /// Whether a write is answered before the store has it.
    pub(crate) write_back: bool,
    pub(crate) shards: u64,
    /// A bit for each block ever referenced; empty if not recorded. With blocks of 4 KiB it takes
    /// 32 KiB per GiB of volume. Blocks added when the volume grows are not in it, and never count
    /// as cold.
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

    /// Most blocks in one store request of a write-out.
    pub(crate) fn write_out_blocks(&self) -> usize {
        (WRITE_OUT_BYTES_MAX >> self.block_bits) as usize
    }

    /// Number of blocks of the volume.
    pub(crate) fn block_count(&self) -> u64 {
        self.size().div_ceil(self.block_bytes())
    }

    /// The block that contains a byte.
    pub(crate) fn block_of(&self, offset: u64) -> u64 {
        offset >> self.block_bits
    }

    /// The blocks that a range touches; it must not be empty.
    pub(crate) fn blocks(&self, offset: u64, length: u64) -> RangeInclusive<u64> {
        self.block_of(offset)..=self.block_of(offset + length - 1)
    }

    /// The blocks that lie completely in a range.
    pub(crate) fn whole_blocks(&self, offset: u64, length: u64) -> Option<RangeInclusive<u64>> {
        let size = self.block_bytes();
        let end = offset + length;
        let first = offset.div_ceil(size);
        let last = if end == self.size() { end.div_ceil(size) } else { end / size };
        (first < last).then(|| first..=last - 1)
    }

    /// First byte of a block.
    pub(crate) fn start(&self, block: u64) -> u64 {
        block << self.block_bits
    }

    /// Bytes of a block. Only the last block of a volume may be shorter than the others.
    pub(crate) fn len(&self, block: u64) -> usize {
        (self.size() - self.start(block)).min(self.block_bytes()) as usize
    }

    pub(crate) fn is_aligned(&self, at: u64) -> bool {
        at & (self.alignment - 1) == 0
    }

    /// The shard that a block belongs to.
    pub(crate) fn shard_of(&self, block: u64) -> usize {
        if self.shards == 1 {
            return 0;
        }
        let group = block >> SHARD_GROUP_BITS;
        (fibonacci(group) >> 32) as usize % self.shards as usize
    }

    /// Records a reference to a block. Returns true if the block is known not to have been
    /// referenced before.
    pub(crate) fn first_touch(&self, block: u64) -> bool {
        let bit = 1 << (block % 64);
        let word = self.seen.get((block / 64) as usize);
        // Read first: usually the bit is set, and an atomic change is slower.
        let is_new = |word: &AtomicU64| word.load(Ordering::Relaxed) & bit == 0;
        word.filter(|word| is_new(word))
            .is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }
}
