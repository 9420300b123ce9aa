//! The vocabulary: what a client and a server tell each other about their caches, one record each.
//!
//! Not here: counters that a client reports (`stat.rs`), the encoding (`encode.rs`, `parse.rs`).

use std::ops::Range;

use bytes::Bytes;

use crate::stat::ClientStat;

/// Most bytes of a message. A server's window has at least this length.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Bytes of a Bloom filter in one record; the last part of a filter may be shorter.
pub const DIGEST_PART_BYTES: usize = 64 << 10;

/// Upper limit (exclusive) of block numbers.
pub const BLOCKS_MAX: u64 = 1 << 48;

/// Consecutive blocks, 1 to 65,536 of them, the first below 2^48.
///
/// ```
/// use undercroft_hints::BlockRun;
///
/// let run = BlockRun::new(7, 3).unwrap();
/// assert!(run.blocks().eq([7, 8, 9]));
/// assert_eq!(BlockRun::new(7, 0), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    first: u64,
    count: u32,
}

impl BlockRun {
    /// Most blocks of a run.
    pub const COUNT_MAX: u32 = 1 << 16;

    /// `count` blocks from `first` on; `None` if either is out of range.
    pub fn new(first: u64, count: u32) -> Option<BlockRun> {
        let fits = first < BLOCKS_MAX && (1..=Self::COUNT_MAX).contains(&count);
        fits.then_some(BlockRun { first, count })
    }

    /// The first block.
    #[inline]
    pub fn first(self) -> u64 {
        self.first
    }

    /// Number of blocks.
    #[inline]
    pub fn count(self) -> u32 {
        self.count
    }

    /// The blocks.
    #[inline]
    pub fn blocks(self) -> Range<u64> {
        self.first..self.first + u64::from(self.count)
    }

    pub(crate) fn word(self) -> u64 {
        self.first << 16 | u64::from(self.count - 1)
    }

    #[inline]
    pub(crate) fn from_word(word: u64) -> BlockRun {
        BlockRun { first: word >> 16, count: (word & 0xffff) as u32 + 1 }
    }
}

/// How blocks left a client's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictFlags {
    /// The client wrote the blocks to the server because it was about to drop them.
    pub was_dirty: bool,
    /// The client noticed the eviction late: it has asked for the blocks again, or may have.
    pub late: bool,
    /// The request that follows on this connection caused the evictions. The server serves that
    /// request first, and then places the blocks.
    pub rides: bool,
}

/// A hint: one record of a message.
///
/// ```
/// use bytes::BytesMut;
/// use undercroft_hints::{BlockRun, Hint, parse};
///
/// let hint = Hint::Hold(vec![BlockRun::new(7, 3).unwrap()]);
/// let mut message = BytesMut::new();
/// hint.put(&mut message);
/// assert_eq!(message.len(), 16);
/// assert_eq!(parse(&message.freeze()), Ok(vec![hint]));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// The client dropped these blocks, in this order.
    Evict {
        /// Microseconds from the oldest eviction to the sending, rounded up, so that a hint never
        /// looks younger than it is. A server ignores the hint for blocks that were read later than
        /// this age says. An age that is too high costs a hit, but places no block wrongly.
        age_us: u32,
        /// The client's number of the record, wrapping around. A gap shows a loss.
        sequence: u32,
        /// How the blocks left.
        flags: EvictFlags,
        /// The blocks.
        runs: Vec<BlockRun>,
    },
    /// The client dropped a clean block, and hands its data over.
    Demote {
        /// The block, below 2^48.
        block: u64,
        /// See [`EvictFlags::rides`].
        rides: bool,
        /// The data of the whole block.
        data: Bytes,
    },
    /// The client will soon want these blocks.
    Promote(Vec<BlockRun>),
    /// The client keeps these blocks.
    Hold(Vec<BlockRun>),
    /// A part of a Bloom filter of the blocks in the client's cache.
    Digest {
        /// Bits of the whole filter (m), at least 1.
        bits: u32,
        /// Hash functions (k), at least 1.
        hashes: u8,
        /// Seed of the hash functions.
        seed: u8,
        /// Number of the part: it begins at byte `part` times [`DIGEST_PART_BYTES`].
        part: u16,
        /// [`DIGEST_PART_BYTES`] bytes of the filter, or the rest of it.
        filter: Bytes,
    },
    /// The client's counters.
    ClientStat(Box<ClientStat>),
    /// The changes in a Bloom filter. Without positions it gives the sequence number of the whole
    /// filter whose parts came before.
    Changes {
        /// As in [`Hint::Digest`].
        bits: u32,
        /// As in [`Hint::Digest`].
        hashes: u8,
        /// As in [`Hint::Digest`].
        seed: u8,
        /// Increases by one with each publication. A gap shows a loss.
        sequence: u32,
        /// The positions of the changed bits, ascending: the first position, then from each to the
        /// next the distance less one, as LEB128.
        positions: Bytes,
    },
    /// From a client: it wants to be told what the server holds. From a server: what it told before
    /// is no longer valid.
    Follow(Follow),
}

/// How a client wants to be told what the server holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Follow {
    /// The form.
    pub what: Following,
    /// Bits of the filter for each block of the server's capacity.
    pub filter_bits: u8,
    /// Hash functions of the filter.
    pub hashes: u8,
    /// Blocks that enter or leave between two publications, in millionths of the server's capacity.
    pub publish_ppm: u32,
    /// Capacity of the client's own cache in blocks.
    pub capacity_blocks: u64,
}

/// The form in which a client is told what the server holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Following {
    /// Not at all.
    #[default]
    Nothing,
    /// Each block that enters or leaves: HOLD and EVICT.
    Blocks,
    /// A Bloom filter and its changes: DIGEST and CHANGES.
    Digest,
}

impl Hint {
    /// Bytes of data in it, without its numbers.
    pub fn data_bytes(&self) -> usize {
        match self {
            Hint::Demote { data, .. } => data.len(),
            Hint::Digest { filter, .. } => filter.len(),
            Hint::Changes { positions, .. } => positions.len(),
            _ => 0,
        }
    }
}
