//! A level with placement at the access whose blocks are numbered from 0, and the loop that drives
//! a policy through a stretch of references: the inner loop of simulations, compiled once a policy.
//! What is counted is said in `docs/developer/algorithms.md`.

use super::counts::{Counts, Tally, refer};
use crate::policy::{Entry, Evictions, Policy};

/// A reference to one block: entry and direction in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference(u32);

impl Reference {
    const WRITE: u32 = 1 << 31;

    /// A read of `entry`, which must be below 2^31.
    #[inline(always)]
    pub fn read(entry: Entry) -> Self {
        debug_assert!(entry < Self::WRITE);
        Self(entry)
    }

    /// A write of `entry`, which must be below 2^31.
    #[inline(always)]
    pub fn write(entry: Entry) -> Self {
        debug_assert!(entry < Self::WRITE);
        Self(entry | Self::WRITE)
    }

    /// A reference to `entry`, which must be below 2^31.
    #[inline(always)]
    pub fn new(entry: Entry, is_write: bool) -> Self {
        debug_assert!(entry < Self::WRITE);
        Self(entry | u32::from(is_write) << 31)
    }

    /// The entry.
    #[inline(always)]
    pub fn entry(self) -> Entry {
        self.0 & !Self::WRITE
    }

    /// Whether it is a write.
    #[inline(always)]
    pub fn is_write(self) -> bool {
        self.0 & Self::WRITE != 0
    }
}

/// What a write does to a level (TPDS 2004, section 8.1: `Allocate`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// A write is a reference like a read: it promotes, and it allocates.
    #[default]
    Allocate,
    /// A write updates a resident copy; it neither promotes nor allocates.
    NoAllocate,
    /// A write drops a resident copy, and what the policy remembers about the block.
    Invalidate,
}

/// A cache level over entries: policy, write mode, counters.
pub struct DenseLevel {
    policy: Box<dyn Policy>,
    mode: WriteMode,
    counts: Counts,
}

impl DenseLevel {
    /// A level that has seen nothing yet.
    pub fn new(policy: Box<dyn Policy>, mode: WriteMode) -> Self {
        Self { policy, mode, counts: Counts::default() }
    }

    /// Tells a policy that needs it which blocks the entries from `first` on stand for, before the
    /// first reference to any of them. It keeps 8 bytes for each; other policies keep nothing.
    pub fn bind(&mut self, first: Entry, names: impl ExactSizeIterator<Item = u64>) {
        if self.policy.names().is_some() {
            self.policy.grow(first + names.len() as u32);
            (first..).zip(names).for_each(|(entry, name)| self.policy.bind(entry, name));
        }
    }

    /// Drives the level through `refs`, whose entries are below `entries`; what it does not serve
    /// (misses and, being write-through, all writes) is appended to `below`.
    pub fn replay(&mut self, entries: u32, refs: &[Reference], below: Option<&mut Vec<Reference>>) {
        self.policy.grow(entries);
        self.policy.replay(refs, self.mode, &mut self.counts, below);
    }

    /// Serves one reference, whose entry is below `entries`: true on a hit.
    pub fn reference(&mut self, entries: u32, reference: Reference) -> bool {
        let hits = self.counts.read_hits + self.counts.write_hits;
        self.replay(entries, &[reference], None);
        self.counts.read_hits + self.counts.write_hits > hits
    }

    /// Forgets the counts, not the content: the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.counts.restart();
    }

    /// What was counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        self.policy.as_ref()
    }
}

/// References that are brought near together before they are served: enough for the processor to
/// overlap their cache misses, few enough to stay near until used. Measured: 16 to 64 are alike.
const BATCH: usize = 32;

/// See [`Batch::replay`](crate::policy::Batch::replay).
pub(crate) fn replay<P: Policy + ?Sized>(
    policy: &mut P,
    refs: &[Reference],
    mode: WriteMode,
    counts: &mut Counts,
    below: Option<&mut Vec<Reference>>,
) {
    // The common cases get loops of their own, without a test a reference.
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
    // A local, which stays in registers.
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
