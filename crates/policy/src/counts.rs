//! The counts of a level, and the rules of counting. Simulations and all other levels share this
//! code, so their numbers cannot differ. `docs/developer/algorithms.md` defines the counts.

use crate::reference::WriteMode;

/// The counts of one level. A reference is a hit if its block is resident before the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks read.
    pub reads: u64,
    /// Reads that found their block resident.
    pub read_hits: u64,
    /// Blocks written.
    pub writes: u64,
    /// Writes that found their block resident.
    pub write_hits: u64,
    /// Reads of blocks that the trace had never referenced before: misses for every policy.
    pub cold_reads: u64,
    /// Blocks evicted by replacement.
    pub evictions: u64,
    /// Misses of recognised streams, which passed the level: they placed and evicted nothing. Also
    /// among the reads and writes.
    pub streamed: u64,
    /// Blocks seen so far, if blocks are numbered by first reference: larger numbers are cold.
    pub known: u32,
}

impl Counts {
    /// Restarts the counts after a warm-up, but keeps which blocks are known.
    pub fn restart(&mut self) {
        *self = Self { known: self.known, ..Self::default() };
    }

    /// The sums of two counts.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            read_hits: self.read_hits + other.read_hits,
            writes: self.writes + other.writes,
            write_hits: self.write_hits + other.write_hits,
            cold_reads: self.cold_reads + other.cold_reads,
            evictions: self.evictions + other.evictions,
            streamed: self.streamed + other.streamed,
            known: self.known.max(other.known),
        }
    }

    /// Counts a reference of a recognised stream, which the policy does not see. `cold`: the block
    /// was never referenced before.
    pub fn pass(&mut self, is_write: bool, hit: bool, cold: bool) {
        if is_write {
            self.writes += 1;
            self.write_hits += u64::from(hit);
        } else {
            self.reads += 1;
            self.read_hits += u64::from(hit);
            self.cold_reads += u64::from(cold);
        }
        self.streamed += u64::from(!hit);
    }

    /// Read hits / reads: the hit ratio of the papers. 0 without reads.
    pub fn read_hit_ratio(&self) -> f64 {
        if self.reads == 0 { 0.0 } else { self.read_hits as f64 / self.reads as f64 }
    }
}

/// The counts of a batch of references.
#[derive(Clone, Copy, Default)]
pub struct Tally {
    reads: u64,
    read_hits: u64,
    writes: u64,
    write_hits: u64,
    cold_reads: u64,
    /// Blocks that writes made resident.
    admitted_by_writes: u64,
    /// Residents invalidated by writes; these are no evictions.
    dropped: u64,
}

impl Tally {
    /// Counts one reference. `cold`: the block was never referenced before.
    #[inline(always)]
    pub fn add(&mut self, is_write: bool, hit: bool, cold: bool, mode: WriteMode) {
        if is_write {
            self.writes += 1;
            self.write_hits += u64::from(hit);
            self.admitted_by_writes += u64::from(!hit && mode == WriteMode::Allocate);
            self.dropped += u64::from(hit && mode == WriteMode::Invalidate);
        } else {
            self.reads += 1;
            self.read_hits += u64::from(hit);
            self.cold_reads += u64::from(cold);
        }
    }

    /// Adds the batch to `counts`, given the numbers of residents before and after it.
    #[inline(always)]
    pub fn count(&self, resident_before: u64, resident_after: u64, counts: &mut Counts) {
        let admitted = self.reads - self.read_hits + self.admitted_by_writes;
        counts.reads += self.reads;
        counts.read_hits += self.read_hits;
        counts.writes += self.writes;
        counts.write_hits += self.write_hits;
        counts.cold_reads += self.cold_reads;
        counts.evictions += resident_before + admitted - self.dropped - resident_after;
    }
}
