//! What a reference does and how it is counted: the one piece of code that the simulator's loop and
//! the server's cache share, so that their numbers cannot differ.

use crate::level::{Counts, WriteMode};
use crate::policy::{Departures, Entry, Policy};

/// Makes one reference: true on a hit, decided before anything changes.
#[inline(always)]
pub(crate) fn refer<P: Policy + ?Sized>(
    policy: &mut P,
    entry: Entry,
    is_write: bool,
    mode: WriteMode,
    out: &mut Departures,
) -> bool {
    if is_write { write(policy, entry, mode, out) } else { policy.access(entry, out) }
}

/// Out of the way of reads, which are what the loop is laid out for.
fn write<P: Policy + ?Sized>(p: &mut P, e: Entry, mode: WriteMode, out: &mut Departures) -> bool {
    match mode {
        WriteMode::Allocate => p.access(e, out),
        WriteMode::NoAllocate => p.contains(e),
        WriteMode::Invalidate => {
            let hit = p.contains(e);
            p.discard(e, out);
            hit
        }
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
