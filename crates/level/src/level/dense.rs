//! A level with placement at the access whose blocks are numbered from 0, for simulations. They run
//! it in batches, or one reference at a time if something happens between references, as beside a
//! content-aware level.

use crate::marks::Marks;
use undercroft_policy::{Counts, Entry, Evictions, Policy, Reference, WriteMode};

/// A cache level over entries: policy, write mode, counters.
pub struct DenseLevel {
    policy: Box<dyn Policy>,
    mode: WriteMode,
    counts: Counts,
    /// What the last single reference evicted.
    out: Evictions,
}

impl DenseLevel {
    /// An empty level.
    pub fn new(policy: Box<dyn Policy>, mode: WriteMode) -> Self {
        Self { policy, mode, counts: Counts::default(), out: Evictions::new() }
    }

    /// Gives a policy that needs them the real block numbers of the entries from `first` on, before
    /// the first reference to any of them. The policy keeps 8 bytes for each; other policies keep
    /// nothing.
    pub fn bind(&mut self, first: Entry, names: impl ExactSizeIterator<Item = u64>) {
        if self.policy.names().is_some() {
            self.policy.grow(first + names.len() as u32);
            (first..).zip(names).for_each(|(entry, name)| self.policy.bind(entry, name));
        }
    }

    /// Runs the level over `refs`, whose entries are below `entries`. References that it does not
    /// serve (misses and, being write-through, all writes) are appended to `below`.
    pub fn replay(&mut self, entries: u32, refs: &[Reference], below: Option<&mut Vec<Reference>>) {
        self.policy.grow(entries);
        self.policy.replay(refs, self.mode, &mut self.counts, below);
    }

    /// Serves one reference, whose entry is below `entries`. True on a hit.
    pub fn reference(&mut self, entries: u32, reference: Reference) -> bool {
        self.policy.grow(entries);
        self.serve(reference).0
    }

    /// Serves one reference of a recognised stream ([`Streams`](crate::Streams)), whose entry is
    /// below `entries`. True on a hit. The policy does not see it: a resident block keeps its rank,
    /// and a missing one is neither placed nor remembered. A write that would not have placed its
    /// block anyway is served as any other.
    pub fn pass(&mut self, entries: u32, reference: Reference) -> bool {
        if !self.mode.admits(reference.is_write()) {
            return self.reference(entries, reference);
        }
        self.policy.grow(entries);
        self.out.clear();
        let (entry, known) = (reference.entry(), self.counts.known);
        let hit = self.policy.contains(entry);
        self.counts.pass(reference.is_write(), hit, entry >= known);
        self.counts.known = known.max(entry + 1);
        hit
    }

    /// Serves one reference, for which the policy has grown. Returns whether its block was resident
    /// before, which is a hit, and whether it is now. [`evicted`](Self::evicted) has the victims.
    #[inline]
    pub(crate) fn serve(&mut self, reference: Reference) -> (bool, bool) {
        self.out.clear();
        self.policy.serve(reference, self.mode, &mut self.counts, &mut self.out)
    }

    /// Entries that the last [`reference`](Self::reference) evicted, in order.
    #[inline]
    pub fn evicted(&self) -> impl Iterator<Item = Entry> + '_ {
        self.out.evicted()
    }

    /// Resets the counts but not the content, at the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.counts.restart();
    }

    /// The counts so far.
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

    /// One for all: a simulation waits for nobody.
    fn handles(&self) -> u32 {
        1
    }

    fn blocks_within(&self, _: std::ops::Range<u32>) -> Vec<u64> {
        self.blocks()
    }
}
