//! How long a block lies idle at a lower cache before its next reference, if it is placed there at
//! its last reference or when the cache above evicts it (USENIX 2003).
//!
//! Distances are numbers of references of the lower cache. References whose block was not known to
//! be evicted since its last reference are left out, and counted. A block costs 8 bytes.

use super::bins::Histogram;

/// No eviction since the last reference.
const UNKNOWN: u64 = u64::MAX;

/// The idle distances so far.
#[derive(Default)]
pub struct IdleDistances {
    /// The position of each block's eviction since its last reference.
    evicted_at: Vec<u64>,
    /// Since the last reference.
    pub access_based: Histogram,
    /// Since the eviction, of the same references.
    pub eviction_based: Histogram,
    /// Sums of both distances.
    pub sums: (u64, u64),
    /// Evictions that became known.
    pub evictions: u64,
    /// References to known blocks without a known eviction since the one before.
    pub left_out: u64,
}

impl IdleDistances {
    /// Makes room for blocks below `entries`.
    pub fn grow(&mut self, entries: u32) {
        self.evicted_at.resize(self.evicted_at.len().max(entries as usize), UNKNOWN);
    }

    /// The eviction of a block became known during the reference at `position`.
    pub fn evicted(&mut self, entry: u32, position: u64) {
        self.evicted_at[entry as usize] = position;
        self.evictions += 1;
    }

    /// Counts a reference. Its distances access-based and eviction-based, if both are known.
    pub fn reference(
        &mut self,
        entry: u32,
        position: u64,
        previous: Option<u64>,
    ) -> Option<(u64, u64)> {
        let evicted = std::mem::replace(&mut self.evicted_at[entry as usize], UNKNOWN);
        let previous = previous?;
        if evicted == UNKNOWN {
            self.left_out += 1;
            return None;
        }
        let (access, eviction) = (position - previous, position - evicted);
        self.access_based.add(access);
        self.eviction_based.add(eviction);
        self.sums = (self.sums.0 + access, self.sums.1 + eviction);
        Some((access, eviction))
    }
}
