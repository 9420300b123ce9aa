//! Operations of several policy calls, compiled once for each policy. The most important one is the
//! inner loop of simulations, which runs a policy over a batch of references.

use crate::counts::{Counts, Tally};
use crate::reference::{Entry, Reference, WriteMode};
use crate::{Evictions, Policy};

/// Operations of several policy calls. One implementation covers all policies and is compiled for
/// each, so an operation costs one dynamic call.
pub trait Batch {
    /// References every element of `refs` in order: the simulator's inner loop. Misses and all
    /// writes are appended to `below`, the stream of the level under a write-through level.
    fn replay(
        &mut self,
        refs: &[Reference],
        mode: WriteMode,
        counts: &mut Counts,
        below: Option<&mut Vec<Reference>>,
    );

    /// Makes one reference like [`replay`](Self::replay). Returns whether its entry was resident
    /// before, and whether it is now.
    fn serve(
        &mut self,
        reference: Reference,
        mode: WriteMode,
        counts: &mut Counts,
        out: &mut Evictions,
    ) -> (bool, bool);

    /// [Places](Policy::place) these resident entries in order, up to the first that evicts
    /// something or drops a ghost. Returns how many were placed.
    fn place_all(&mut self, entries: &[Entry], out: &mut Evictions) -> usize;

    /// [Prefetches](Policy::prefetch) those of `entries` that are known, one after the other, so
    /// that the processor's cache misses overlap.
    fn prefetch_all(&self, entries: &[Option<Entry>]) -> u32;
}

impl<P: Policy> Batch for P {
    fn replay(
        &mut self,
        refs: &[Reference],
        mode: WriteMode,
        counts: &mut Counts,
        below: Option<&mut Vec<Reference>>,
    ) {
        replay(self, refs, mode, counts, below);
    }

    fn serve(
        &mut self,
        reference: Reference,
        mode: WriteMode,
        counts: &mut Counts,
        out: &mut Evictions,
    ) -> (bool, bool) {
        serve(self, reference, mode, counts, out)
    }

    fn place_all(&mut self, entries: &[Entry], out: &mut Evictions) -> usize {
        for (done, &entry) in (1..).zip(entries) {
            self.place(entry, out);
            if !out.is_empty() {
                return done;
            }
        }
        entries.len()
    }

    fn prefetch_all(&self, entries: &[Option<Entry>]) -> u32 {
        entries.iter().flatten().fold(0, |x, &entry| x ^ self.prefetch(entry))
    }
}

/// Makes one reference. True on a hit, which is decided before anything changes.
#[inline(always)]
pub fn refer<P: Policy + ?Sized>(
    policy: &mut P,
    entry: Entry,
    is_write: bool,
    mode: WriteMode,
    out: &mut Evictions,
) -> bool {
    if is_write { write(policy, entry, mode, out) } else { policy.access(entry, out) }
}

/// A separate function, so that the loop is laid out for reads.
fn write<P: Policy + ?Sized>(p: &mut P, e: Entry, mode: WriteMode, out: &mut Evictions) -> bool {
    match mode {
        WriteMode::Allocate => p.write(e, out),
        WriteMode::NoAllocate => p.contains(e),
        WriteMode::Invalidate => {
            let hit = p.contains(e);
            p.discard(e, out);
            hit
        }
    }
}

/// References that are prefetched together before they are served: enough for their cache misses to
/// overlap, few enough to stay in the processor's cache. Measured: 16 to 64 perform alike.
const BATCH: usize = 32;

/// See [`Batch::replay`].
fn replay<P: Policy + ?Sized>(
    policy: &mut P,
    refs: &[Reference],
    mode: WriteMode,
    counts: &mut Counts,
    below: Option<&mut Vec<Reference>>,
) {
    // The common cases have loops of their own, without tests for each reference.
    let only_reads = !refs.iter().any(|r| r.is_write());
    match (below, only_reads) {
        (None, true) => run::<P, true, false>(policy, refs, mode, counts, &mut Vec::new()),
        (None, false) => run::<P, false, false>(policy, refs, mode, counts, &mut Vec::new()),
        (Some(below), true) => run::<P, true, true>(policy, refs, mode, counts, below),
        (Some(below), false) => run::<P, false, true>(policy, refs, mode, counts, below),
    }
}

fn run<P: Policy + ?Sized, const ONLY_READS: bool, const KEEP: bool>(
    policy: &mut P,
    refs: &[Reference],
    mode: WriteMode,
    counts: &mut Counts,
    below: &mut Vec<Reference>,
) {
    let mut out = Evictions::new();
    let resident_before = u64::from(policy.len());
    // A local variable, so that it stays in registers.
    let mut tally = Tally::default();
    let mut known = counts.known;
    let mut start = 0;
    while start < refs.len() {
        let end = refs.len().min(start + BATCH);
        let coming = &refs[end..refs.len().min(end + BATCH)];
        std::hint::black_box(coming.iter().fold(0, |x, r| x ^ policy.prefetch(r.entry())));
        out.clear();
        for &reference in &refs[start..end] {
            let entry = reference.entry();
            let is_write = !ONLY_READS && reference.is_write();
            let hit = refer(policy, entry, is_write, mode, &mut out);
            tally.add(is_write, hit, entry >= known, mode);
            known = known.max(entry + 1);
            if KEEP && (is_write || !hit) {
                below.push(reference);
            }
        }
        start = end;
    }
    tally.count(resident_before, policy.len().into(), counts);
    counts.known = known;
}

/// See [`Batch::serve`].
#[inline(always)]
fn serve<P: Policy + ?Sized>(
    policy: &mut P,
    reference: Reference,
    mode: WriteMode,
    counts: &mut Counts,
    out: &mut Evictions,
) -> (bool, bool) {
    let (entry, is_write) = (reference.entry(), reference.is_write());
    let before = policy.len();
    let hit = refer(policy, entry, is_write, mode, out);
    let mut tally = Tally::default();
    tally.add(is_write, hit, entry >= counts.known, mode);
    tally.count(before.into(), policy.len().into(), counts);
    counts.known = counts.known.max(entry + 1);
    (hit, policy.contains(entry))
}
