//! Recognises sequential streams, such as backups and copies, which can then pass a cache.
//!
//! A bounded table holds the latest runs of consecutive blocks, each under the block that would
//! continue it, so streams that are interleaved are recognised too, whoever sends them. The least
//! recently used run is forgotten first. Not here: what a level does with a block of a stream
//! ([`Level::request`](crate::Level::request), [`DenseLevel::pass`](crate::DenseLevel::pass)).

use std::ops::RangeInclusive;

use crate::bounded_lru_map::BoundedLruMap;

/// Runs that are remembered. A stream is lost if so many other runs begin or go on between two of
/// its blocks.
const RUNS_MAX: u32 = 128;

/// The recent runs of consecutive blocks.
///
/// ```
/// use undercroft_level::Streams;
///
/// let mut streams = Streams::new(2);
/// assert_eq!([7, 8, 9, 10].map(|block| streams.note(block)), [false, false, true, true]);
/// ```
pub struct Streams {
    cutoff: u64,
    /// The length of each run in blocks, by the block that would continue it.
    runs: BoundedLruMap<u64>,
}

impl Streams {
    /// Recognises a run as a stream when it has more than `cutoff` blocks.
    pub fn new(cutoff: u64) -> Self {
        Self { cutoff, runs: BoundedLruMap::new(RUNS_MAX, 0) }
    }

    /// The streams that pass a level with blocks of `block_bytes` bytes; `None` if `cutoff_bytes`
    /// is 0, which means that none do. The cutoff has at least one block.
    pub fn beyond(cutoff_bytes: u64, block_bytes: u32) -> Option<Self> {
        let blocks = cutoff_bytes / u64::from(block_bytes.max(1));
        (cutoff_bytes > 0).then(|| Self::new(blocks.max(1)))
    }

    /// Whether a reference to a block would belong to a recognised stream.
    pub fn goes_on(&self, block: u64) -> bool {
        self.runs.get(block).is_some_and(|length| length >= self.cutoff)
    }

    /// Notes a reference to a block. Returns whether the block belongs to a recognised stream. Its
    /// first `cutoff` blocks do not. A further reference to the last block of a run, as requests of
    /// parts of blocks make, neither continues nor ends it.
    pub fn note(&mut self, block: u64) -> bool {
        let next = block.wrapping_add(1);
        let length = match self.runs.remove(block) {
            Some(before) => before.saturating_add(1),
            None => 1,
        };
        // If two runs meet, the longer one goes on.
        let run = self.runs.touch(next).expect("the table has places");
        *run = length.max(*run);
        *run > self.cutoff
    }

    /// Notes references to consecutive blocks, which must be few enough to go through. Returns the
    /// first of them that belongs to a recognised stream, as do all after it; if none does, the
    /// block after the last.
    pub fn note_all(&mut self, blocks: RangeInclusive<u64>) -> u64 {
        let end = blocks.end().wrapping_add(1);
        let mut first = end;
        for block in blocks {
            if self.note(block) && first == end {
                first = block;
            }
        }
        first
    }
}
