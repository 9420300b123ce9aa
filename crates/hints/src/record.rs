//! The vocabulary: what a client and a server say to each other of their caches, one record each.
//!
//! Not here: counters that a client reports (`stat.rs`), what levels of a scheme say (`level.rs`),
//! the bytes of a record (`encode.rs`, `parse.rs`).

use std::ops::Range;

use bytes::Bytes;

use crate::level::{Asked, Moves, Passed};
use crate::stat::ClientStat;

/// Most bytes of a message. A server's window is no smaller.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Bytes of a Bloom filter that go in one record; the last part of a filter has what is left.
pub const DIGEST_PART_BYTES: usize = 64 << 10;

/// What block numbers are below.
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

    /// `count` blocks from `first` on; none if either is out of its range.
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

/// How blocks left a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictFlags {
    /// The client wrote the blocks to the server because it was about to drop them.
    pub was_dirty: bool,
    /// The client noticed so late that it has asked for the blocks again, or may have.
    pub late: bool,
    /// The request that follows on this connection drove the blocks out. The server serves that
    /// request first and places them then.
    pub rides: bool,
}

/// One record.
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
        /// Microseconds from the eviction to the sending, rounded up; of several evictions, those
        /// of the oldest. So a hint never looks fresher than it is: a server ignores it for blocks
        /// that were read after now - age, and what it errs in costs a hit, no wrong placement.
        age_us: u32,
        /// Number of the record among those of the client, wrapping around: gaps show losses.
        sequence: u32,
        /// How they left.
        flags: EvictFlags,
        /// Which.
        runs: Vec<BlockRun>,
    },
    /// The client dropped a clean block, and hands its data over.
    Demote {
        /// The block, below 2^48.
        block: u64,
        /// As [`EvictFlags::rides`].
        rides: bool,
        /// All of its bytes.
        data: Bytes,
    },
    /// The client will want these soon.
    Promote(Vec<BlockRun>),
    /// The client keeps these.
    Hold(Vec<BlockRun>),
    /// How the client used the blocks of a run.
    Frequency {
        /// The blocks.
        run: BlockRun,
        /// Hits on each in the client's cache since it came there.
        hits: u32,
        /// References of the client between the last two of the block.
        last_idle: u32,
        /// Of a block that goes down with the DEMOTE that follows: how it moved between levels.
        moves: Option<Moves>,
    },
    /// A part of a Bloom filter of the blocks that the client has.
    Digest {
        /// Bits of the whole filter (m), at least 1.
        bits: u32,
        /// Hash functions (k), at least 1.
        hashes: u8,
        /// What they begin with.
        seed: u8,
        /// The part's number: it begins at this many times [`DIGEST_PART_BYTES`].
        part: u16,
        /// [`DIGEST_PART_BYTES`] of the filter, or what is left of it.
        filter: Bytes,
    },
    /// The client's counters.
    ClientStat(Box<ClientStat>),
    /// What has changed in a Bloom filter; without positions, the number of the filter whose parts
    /// came before.
    Changes {
        /// As in [`Hint::Digest`].
        bits: u32,
        /// As in [`Hint::Digest`].
        hashes: u8,
        /// As in [`Hint::Digest`].
        seed: u8,
        /// One more for each publication; gaps show losses.
        sequence: u32,
        /// The positions of the bits that are not what they were, ascending: the first, and from
        /// each to the next the distance less one, as LEB128.
        positions: Bytes,
    },
    /// The client wants to know what the server holds, from now on; or, said by the server, what
    /// it told before is no longer to be relied on.
    Follow(Follow),
    /// What a level of a scheme says of the request for a block that follows.
    Ask(Asked),
    /// What a level of a scheme answers, of a block: from a server to its client.
    Pass(Passed),
}

/// How a client wants to know what the server holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Follow {
    /// In which form.
    pub what: Following,
    /// Bits of the filter, times the server's capacity in blocks.
    pub filter_bits: u8,
    /// Its hash functions.
    pub hashes: u8,
    /// Blocks that come or go between two publications, in millionths of the server's capacity.
    pub publish_ppm: u32,
    /// Blocks that the client itself holds at most.
    pub capacity_blocks: u64,
}

/// In which form a client is told what the server holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Following {
    /// Not at all.
    #[default]
    Nothing,
    /// Each block that comes or goes: HOLD and EVICT.
    Blocks,
    /// A Bloom filter and its changes: DIGEST and CHANGES.
    Digest,
}

impl Hint {
    /// Bytes of data in it, beside its numbers.
    pub fn data_bytes(&self) -> usize {
        match self {
            Hint::Demote { data, .. } => data.len(),
            Hint::Digest { filter, .. } => filter.len(),
            Hint::Changes { positions, .. } => positions.len(),
            _ => 0,
        }
    }
}
