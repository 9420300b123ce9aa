//! What a level counts, and how a reference is counted: one piece of code for the inner loop of
//! simulations and all other levels, so that their numbers cannot differ. What is counted is said
//! in `docs/developer/algorithms.md`.

use crate::reference::WriteMode;

/// What happened at one level. Hits are decided on residence before the reference changes anything.
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
    /// Blocks that replacement drove out.
    pub evictions: u64,
    /// Blocks met so far, where blocks are numbered by first touch: marks a reference as cold.
    pub known: u32,
}

impl Counts {
    /// Starts counting anew after a warm-up, without forgetting which blocks are known.
    pub fn restart(&mut self) {
        *self = Self { known: self.known, ..Self::default() };
    }

    /// What two caches counted together.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            read_hits: self.read_hits + other.read_hits,
            writes: self.writes + other.writes,
            write_hits: self.write_hits + other.write_hits,
            cold_reads: self.cold_reads + other.cold_reads,
            evictions: self.evictions + other.evictions,
            known: self.known.max(other.known),
        }
    }

    /// Read hits / reads: the hit ratio of the papers. 0 where nothing was read.
    pub fn read_hit_ratio(&self) -> f64 {
        if self.reads == 0 { 0.0 } else { self.read_hits as f64 / self.reads as f64 }
    }
}

/// What a stretch of references came to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    reads: u64,
    read_hits: u64,
    writes: u64,
    write_hits: u64,
    cold_reads: u64,
    /// Blocks that writes made resident.
    admitted_by_writes: u64,
    /// Residents that writes invalidated, which is no eviction.
    dropped: u64,
}

impl Tally {
    /// Takes one reference into account; `cold`: the block was never referenced before.
    #[inline(always)]
    pub(crate) fn add(&mut self, is_write: bool, hit: bool, cold: bool, mode: WriteMode) {
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

    /// Adds the stretch to `counts`, given how many blocks were resident before and after it.
    #[inline(always)]
    pub(crate) fn count(&self, resident_before: u64, resident_after: u64, counts: &mut Counts) {
        let admitted = self.reads - self.read_hits + self.admitted_by_writes;
        counts.reads += self.reads;
        counts.read_hits += self.read_hits;
        counts.writes += self.writes;
        counts.write_hits += self.write_hits;
        counts.cold_reads += self.cold_reads;
        counts.evictions += resident_before + admitted - self.dropped - resident_after;
    }
}
