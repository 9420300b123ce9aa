//! The words of a segment. Numbers count words of 8 bytes, unless the name says bytes.
//! `docs/developer/file-formats.md` has a table of the whole layout.

use std::ops::Range;

/// First word of a segment.
pub const MAGIC: u64 = u64::from_be_bytes(*b"UndrCct\x01");
/// Increases with every change of the layout.
pub const VERSION: u64 = 4;

/// Words of the header.
pub const HEADER: usize = 4096;

/// Bytes of the segment.
pub const TOTAL_BYTES: usize = 2;
/// Process that made the segment.
pub const CREATOR: usize = 3;
/// Process whose thread sends, or 0.
pub const SENDER: usize = 4;
/// The segment's [`super::State`].
pub const STATE: usize = 5;
/// When the segment was made, in microseconds of the monotonic clock.
pub const STARTED_US: usize = 6;
/// Bytes of client memory that the table has room for.
pub const POOL_BYTES: usize = 7;
/// Logarithm of the number of frame buckets.
pub const FRAME_BITS: usize = 8;
/// Logarithm of the number of link buckets.
pub const LINK_BITS: usize = 9;
/// Logarithm of the number of ring cells.
pub const RING_BITS: usize = 10;
/// Contents: one bit for each volume whose server wants them.
pub const WANTED: usize = 11;
/// Process that is adding a file, or 0.
pub const FILES_LOCK: usize = 12;
/// Whether the page cache is bypassed: 1 yes, 0 not requested, 2 refused by the kernel.
pub const BYPASS: usize = 13;
/// Precision at the last comparison with the real cache, in millionths; 0 if there was none.
pub const PRECISION_PPM: usize = 14;
/// Recall at that comparison, in millionths.
pub const RECALL_PPM: usize = 15;
/// Number of the next record to write.
pub const RING_TAIL: usize = 16;
/// Number of the next record to read.
pub const RING_HEAD: usize = 24;
/// State of the contents: 0 not allocated, 1 allocated, 2 the kernel refuses to read them.
pub const CONTENTS: usize = 33;
/// Process that records what the program does, or 0.
pub const RECORDER: usize = 34;
/// Number of the last ticket.
pub const NEXT_TICKET: usize = 40;
/// Records for the recorder that were lost.
pub const CALLS_LOST: usize = 41;
/// Number of the next record for the recorder.
pub const CALLS_TAIL: usize = 48;
/// Number of the next record that the recorder takes.
pub const CALLS_HEAD: usize = 56;
/// 1 while the sender sleeps until it is woken.
pub const ASLEEP: usize = 32;

/// Counters of tracked calls, in [`STRIPES`] sets of [`COUNTERS`].
pub const COUNTS: usize = 64;
/// Counters of a set.
pub const COUNTERS: usize = 16;
/// Number of sets. Processors use different sets, so that they do not compete for cache lines.
pub const STRIPES: usize = 16;
/// Counters of the sender.
pub const SENDER_COUNTS: usize = COUNTS + COUNTERS * STRIPES;
/// The last error, as text.
pub const LAST_ERROR: Range<usize> = 384..448;

/// Pools: end, first page and page size of each.
pub const POOLS: usize = 448;
/// Most pools.
pub const POOLS_MAX: usize = 8;
/// Words per pool.
pub const POOL: usize = 4;

/// Volumes.
pub const VOLUMES: usize = 512;
/// Most volumes.
pub const VOLUMES_MAX: usize = 8;
/// Words per volume.
pub const VOLUME: usize = 256;

/// Forked processes, each with its own address space.
pub const SPACES: Range<usize> = 2560..3584;

/// Files.
pub const FILES: usize = HEADER;
/// Number of file entries; the first one is unused.
pub const FILES_MAX: usize = 4096;
/// Words per file.
pub const FILE: usize = 64;

/// Words of a cell of the ring.
pub const CELL: usize = 4;
/// Words of a frame bucket: four pairs of an address and a block.
pub const FRAME_BUCKET: usize = 8;
/// Words of a link bucket.
pub const LINK_BUCKET: usize = 8;
/// Words for the head of a frame: its block, and the head.
pub const FRAME_HEAD: usize = 8;
/// Slots for contents: 4 MiB.
pub const SLOTS: usize = 1024;
/// Words of a slot: eight, and a granule.
pub const SLOT: usize = 8 + 512;

/// The parts whose size depends on the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Logarithm of the number of frame buckets.
    pub frame_bits: u32,
    /// Logarithm of the number of link buckets.
    pub link_bits: u32,
    /// Logarithm of the number of ring cells.
    pub ring_bits: u32,
}

impl Layout {
    /// A layout for `bytes` bytes of buffers, with a quarter to spare.
    pub fn for_pool(bytes: u64) -> Layout {
        // A bucket covers 16 KiB of addresses.
        let buckets = (bytes / (16 << 10)).clamp(64, 1 << 28);
        let frame_bits = (buckets + buckets / 4).next_power_of_two().trailing_zeros();
        Layout { frame_bits, link_bits: frame_bits, ring_bits: 15 }
    }

    /// The words of the ring.
    pub fn ring(&self) -> Range<usize> {
        let start = FILES + FILES_MAX * FILE;
        start..start + (CELL << self.ring_bits)
    }

    /// The words of the frames.
    pub fn frames(&self) -> Range<usize> {
        let start = self.ring().end;
        start..start + (FRAME_BUCKET << self.frame_bits)
    }

    /// The words of the links.
    pub fn links(&self) -> Range<usize> {
        let start = self.frames().end;
        start..start + (LINK_BUCKET << self.link_bits)
    }

    /// The words of the contents.
    pub fn contents(&self) -> Range<usize> {
        let start = self.links().end;
        start..start + SLOTS * SLOT
    }

    /// The words of the heads, one for each frame.
    pub fn heads(&self) -> Range<usize> {
        let start = self.contents().end;
        start..start + ((FRAME_BUCKET / 2 * FRAME_HEAD) << self.frame_bits)
    }

    /// The words of the recorder's ring, as long as the sender's.
    pub fn calls(&self) -> Range<usize> {
        let start = self.heads().end;
        start..start + (CELL << self.ring_bits)
    }

    /// Length in bytes without what is allocated only when it is wanted: contents and heads, and
    /// the recorder's ring.
    pub fn table_bytes(&self) -> usize {
        self.links().end * 8
    }

    /// Total length in bytes.
    pub fn bytes(&self) -> usize {
        self.calls().end * 8
    }
}
