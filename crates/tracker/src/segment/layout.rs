//! Which word of a segment is what. Numbers are words of 8 bytes unless their name says bytes.
//! `docs/developer/file-formats.md` has the whole in a table.

use std::ops::Range;

/// First word of a segment.
pub const MAGIC: u64 = u64::from_be_bytes(*b"UndrCct\x01");
/// Changes with every change of the layout.
pub const VERSION: u64 = 2;

/// Words of the header.
pub const HEADER: usize = 4096;

/// Bytes of the segment.
pub const TOTAL_BYTES: usize = 2;
/// Process that made the segment.
pub const CREATOR: usize = 3;
/// Process whose thread sends, or 0.
pub const SENDER: usize = 4;
/// A [`super::State`].
pub const STATE: usize = 5;
/// When the segment was made, microseconds of the monotonic clock.
pub const STARTED_US: usize = 6;
/// Bytes of client memory that there is room for.
pub const POOL_BYTES: usize = 7;
/// Buckets of the frames, a power of two: its logarithm.
pub const FRAME_BITS: usize = 8;
/// Buckets of the links, a power of two: its logarithm.
pub const LINK_BITS: usize = 9;
/// Cells of the ring, a power of two: its logarithm.
pub const RING_BITS: usize = 10;
/// Process that is adding a file, or 0.
pub const FILES_LOCK: usize = 12;
/// The page cache is bypassed: 1 yes, 0 not asked for, 2 the kernel refused.
pub const BYPASS: usize = 13;
/// The last comparison with the cache itself, in millionths; 0 if there was none: its precision.
pub const PRECISION_PPM: usize = 14;
/// And its recall.
pub const RECALL_PPM: usize = 15;
/// Where the next record goes.
pub const RING_TAIL: usize = 16;
/// Where the next record comes from.
pub const RING_HEAD: usize = 24;
/// 1 while the sender sleeps until it is woken.
pub const ASLEEP: usize = 32;

/// Counters of tracked calls, in [`STRIPES`] sets of [`COUNTERS`].
pub const COUNTS: usize = 64;
/// Counters of a set.
pub const COUNTERS: usize = 16;
/// Sets, so that processors do not take a cache line from each other at every call.
pub const STRIPES: usize = 16;
/// Counters of the sender.
pub const SENDER_COUNTS: usize = COUNTS + COUNTERS * STRIPES;
/// The last error, as text.
pub const LAST_ERROR: Range<usize> = 384..448;

/// Pools: the end, the first page and the size of a page of each.
pub const POOLS: usize = 448;
/// Most of them.
pub const POOLS_MAX: usize = 8;
/// Words of each.
pub const POOL: usize = 4;

/// Volumes.
pub const VOLUMES: usize = 512;
/// Most of them.
pub const VOLUMES_MAX: usize = 8;
/// Words of each.
pub const VOLUME: usize = 256;

/// Forked processes, each with an address space of its own.
pub const SPACES: Range<usize> = 2560..3584;

/// Files.
pub const FILES: usize = HEADER;
/// Number of files, the first of which is none.
pub const FILES_MAX: usize = 4096;
/// Words of each.
pub const FILE: usize = 64;

/// Words of a cell of the ring.
pub const CELL: usize = 4;
/// Words of a bucket of frames: 4 of an address and a block.
pub const FRAME_BUCKET: usize = 8;
/// Words of a bucket of links.
pub const LINK_BUCKET: usize = 8;

/// The parts that depend on the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Logarithm of the number of buckets of frames.
    pub frame_bits: u32,
    /// Logarithm of the number of buckets of links.
    pub link_bits: u32,
    /// Logarithm of the number of cells.
    pub ring_bits: u32,
}

impl Layout {
    /// Room for so many bytes of buffers, with a quarter to spare.
    pub fn for_pool(bytes: u64) -> Layout {
        // A bucket is of 16 KiB of addresses.
        let buckets = (bytes / (16 << 10)).clamp(64, 1 << 28);
        let frame_bits = (buckets + buckets / 4).next_power_of_two().trailing_zeros();
        Layout { frame_bits, link_bits: frame_bits, ring_bits: 15 }
    }

    /// The ring's cells.
    pub fn ring(&self) -> Range<usize> {
        let start = FILES + FILES_MAX * FILE;
        start..start + (CELL << self.ring_bits)
    }

    /// The frames.
    pub fn frames(&self) -> Range<usize> {
        let start = self.ring().end;
        start..start + (FRAME_BUCKET << self.frame_bits)
    }

    /// The links.
    pub fn links(&self) -> Range<usize> {
        let start = self.frames().end;
        start..start + (LINK_BUCKET << self.link_bits)
    }

    /// All of it.
    pub fn bytes(&self) -> usize {
        self.links().end * 8
    }
}
