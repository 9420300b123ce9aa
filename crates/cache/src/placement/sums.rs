//! What several caches and queues counted, added up.

use super::lower::PlacementCounts;
use super::reloads::ReloadCounts;

impl PlacementCounts {
    /// What two caches counted together.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            known_evictions: self.known_evictions + other.known_evictions,
            foreseen: self.foreseen + other.foreseen,
            already_here: self.already_here + other.already_here,
            reloads: self.reloads + other.reloads,
            demotions_in: self.demotions_in + other.demotions_in,
            staged: self.staged + other.staged,
            staged_hits: self.staged_hits + other.staged_hits,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl ReloadCounts {
    /// What two queues counted together.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            queued: self.queued + other.queued,
            duplicates: self.duplicates + other.duplicates,
            demanded: self.demanded + other.demanded,
            written: self.written + other.written,
            discarded: self.discarded + other.discarded,
            overflowed: self.overflowed + other.overflowed,
            issued: self.issued + other.issued,
        }
    }
}
