//! A level with placement at the access whose blocks are numbered from 0, and the loop that drives
//! a policy through a stretch of references: the inner loop of simulations, compiled once a policy.
//! Where something happens between references, as beside a content-aware level, they come one by
//! one.
//! What is counted is said in `docs/developer/algorithms.md`.

use super::counts::{Counts, Tally, refer};
use crate::content::Marks;
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
    /// What the last reference that came by itself evicted.
    out: Evictions,
}

impl DenseLevel {
    /// A level that has seen nothing yet.
    pub fn new(policy: Box<dyn Policy>, mode: WriteMode) -> Self {
        Self { policy, mode, counts: Counts::default(), out: Evictions::new() }
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
        self.policy.grow(entries);
        self.serve(reference).0
    }

    /// Serves one reference, for which the policy has grown: whether its block was resident before,
    /// which is a hit, and whether it is now. What it drove out says [`evicted`](Self::evicted).
    #[inline]
    pub(crate) fn serve(&mut self, reference: Reference) -> (bool, bool) {
        self.out.clear();
        self.policy.serve(reference, self.mode, &mut self.counts, &mut self.out)
    }

    /// What the last reference that came by itself drove out, in order.
    #[inline]
    pub(crate) fn evicted(&self) -> impl Iterator<Item = Entry> + '_ {
        self.out.evicted()
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

impl Marks for DenseLevel {
    #[inline]
    fn mark(&mut self, block: u64, holds: bool) {
        self.policy.neighbour_holds(block as Entry, holds);
    }

    fn blocks(&self) -> Vec<u64> {
        self.policy.residents().into_iter().map(u64::from).collect()
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

/// See [`Batch::serve`](crate::policy::Batch::serve).
#[inline(always)]
pub(crate) fn serve<P: Policy + ?Sized>(
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
