//! A segment that has a ring and nothing else.

use std::ops::Range;

use crate::sync::atomic::AtomicU64;

/// Which word is what.
pub(crate) mod layout {
    pub(crate) const RING_TAIL: usize = 0;
    pub(crate) const RING_HEAD: usize = 1;
    /// The ring of calls is the same one here.
    pub(crate) const CALLS_TAIL: usize = RING_TAIL;
    pub(crate) const CALLS_HEAD: usize = RING_HEAD;
    /// Words of a cell, as in `crates/tracker/src/segment/layout.rs`.
    pub(crate) const CELL: usize = 4;
}

pub(crate) struct Segment {
    words: Vec<AtomicU64>,
    pub(crate) ring_bits: u32,
}

impl Segment {
    /// With room for two to this power of records.
    pub(crate) fn new(ring_bits: u32) -> Segment {
        let words = 2 + (layout::CELL << ring_bits);
        Segment { words: (0..words).map(|_| AtomicU64::new(0)).collect(), ring_bits }
    }

    pub(crate) fn layout(&self) -> &Segment {
        self
    }

    pub(crate) fn map(&self) -> &Segment {
        self
    }

    pub(crate) fn ring(&self) -> Range<usize> {
        2..self.words.len()
    }

    pub(crate) fn calls(&self) -> Range<usize> {
        self.ring()
    }

    pub(crate) fn words(&self, range: Range<usize>) -> &[AtomicU64] {
        &self.words[range]
    }

    pub(crate) fn word(&self, word: usize) -> &AtomicU64 {
        &self.words[word]
    }
}
