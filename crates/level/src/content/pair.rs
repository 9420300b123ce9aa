//! Two levels with access-based placement, of which one or both are content-aware: what each level
//! learns of the other, and when, and how often its beliefs are wrong.
//!
//! Order of a request that goes down: the request carries what the upper level publishes; the lower
//! level serves it and reports what it took in and gave up; only then the upper level chooses a
//! victim.

use super::{
    Blocks, Cautious, Exact, ExchangeOld, LowerCopy, Neighbour, Simulated, Source, SourceCounts,
    UpperList,
};
use crate::level::DenseLevel;
use crate::marks::Marks;
use undercroft_policy::{
    Awareness, Context, Counts, Entry, Knows, Policy, Reference, Spec, SpecError, WriteMode,
};

/// The counts of a content-aware level beside its [`Counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AwareCounts {
    /// Evictions of blocks that the neighbour was believed to hold.
    pub held: u64,
    /// The part of `held` that the neighbour held at its last report, but no longer.
    pub stale: u64,
    /// The part of `held` that the neighbour did not hold at its last report either: false
    /// positives or wrong emulation.
    pub mistaken: u64,
    /// The cost of the knowledge.
    pub source: SourceCounts,
}

/// A level and its knowledge of the other one.
struct Half {
    level: DenseLevel,
    /// The block of the last reference; whether it was resident before, and whether it is now.
    last: (Entry, bool, bool),
    /// `Some` only for a content-aware level.
    neighbour: Option<Neighbour>,
    counts: AwareCounts,
}

/// An upper level above a lower level.
pub struct Pair {
    upper: Half,
    lower: Half,
}

impl Pair {
    /// An upper level above a lower one, each with policy and size in blocks. Blocks are numbered
    /// from 0 in the order of their first references; `names` gives the real numbers of all blocks,
    /// for policies that hash them.
    ///
    /// # Errors
    /// A policy cannot be made, or a summary is to have more hash functions than bits per block.
    pub fn new(
        levels: [(&Spec, u32); 2],
        mode: WriteMode,
        names: impl ExactSizeIterator<Item = u64> + Clone,
    ) -> Result<Self, SpecError> {
        let blocks = names.len() as u32;
        let [upper, lower] = levels;
        let both = Awareness::of(upper.0).is_some() && Awareness::of(lower.0).is_some();
        let mut halves = Vec::new();
        for (depth, (spec, capacity)) in levels.into_iter().enumerate() {
            let mut policy = spec.build(&Context::new(capacity))?;
            let source = match Awareness::of(spec) {
                Some(awareness) if depth == 0 => Some(below(&awareness, lower, mode, blocks)?),
                Some(awareness) => Some(above(&awareness, upper.1, mode, both, blocks)?),
                None => None,
            };
            policy.grow(blocks);
            let mut level = DenseLevel::new(policy, mode);
            level.bind(0, names.clone());
            halves.push(Half {
                level,
                last: (0, false, false),
                neighbour: source.map(|source| Neighbour::new(Some(source))),
                counts: AwareCounts::default(),
            });
        }
        let [upper, lower] = halves.try_into().unwrap_or_else(|_| unreachable!("two levels"));
        Ok(Self { upper, lower })
    }

    /// Serves one reference. Returns the level that had the block, 0 or 1, if any.
    pub fn reference(&mut self, reference: Reference) -> Option<usize> {
        let (entry, is_write) = (reference.entry(), reference.is_write());
        let (upper, lower) = (&mut self.upper, &mut self.lower);
        let mut found = None;
        if is_write || !upper.level.policy().contains(entry) {
            lower.receive(upper);
            let hit = lower.serve(reference, upper);
            if hit {
                found = Some(1);
            }
            upper.see(lower);
            upper.receive(lower);
            upper.served(entry, is_write, hit);
            lower.served(entry, is_write, hit);
        }
        if upper.serve(reference, lower) {
            found = Some(0);
        }
        lower.see(upper);
        found
    }

    /// Resets the counts but not the content, at the end of a warm-up.
    pub fn restart_counts(&mut self) {
        for half in [&mut self.upper, &mut self.lower] {
            half.level.restart_counts();
            half.counts = AwareCounts::default();
            half.neighbour.iter_mut().for_each(Neighbour::restart_counts);
        }
    }

    /// The policies, the upper level's first. Their entries are the block numbers.
    pub fn policies(&self) -> [&dyn Policy; 2] {
        [&self.upper, &self.lower].map(|half| half.level.policy())
    }

    /// The usual counts, the upper level's first.
    pub fn counts(&self) -> [Counts; 2] {
        [&self.upper, &self.lower].map(|half| *half.level.counts())
    }

    /// The counts of content-aware levels, the upper level's first.
    pub fn aware_counts(&self) -> [Option<AwareCounts>; 2] {
        [&self.upper, &self.lower].map(|half| {
            let neighbour = half.neighbour.as_ref()?;
            Some(AwareCounts { source: neighbour.counts().source, ..half.counts })
        })
    }

    /// Recounts everything.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.policies().into_iter().try_for_each(Policy::validate)
    }
}

/// The upper level's knowledge of the lower one.
fn below(
    awareness: &Awareness,
    (spec, capacity): (&Spec, u32),
    mode: WriteMode,
    blocks: u32,
) -> Result<Box<dyn Source>, SpecError> {
    Ok(match awareness.knows {
        Knows::Exact => Box::new(Exact::new(Blocks::below(blocks))),
        Knows::Bloom => Box::new(summary(awareness, capacity, false, blocks)?),
        Knows::Emulation => Box::new(LowerCopy::new(spec, capacity, mode, Some(blocks))?),
    })
}

/// The lower level's knowledge of the upper one; more cautious if `both` levels are content-aware.
fn above(
    awareness: &Awareness,
    capacity: u32,
    mode: WriteMode,
    both: bool,
    blocks: u32,
) -> Result<Box<dyn Source>, SpecError> {
    let period = awareness.period(capacity);
    let held = || Blocks::below(blocks);
    let source: Box<dyn Source> = match awareness.knows {
        Knows::Exact if both => Box::new(ExchangeOld::new(held(), period as usize)),
        Knows::Exact => Box::new(Exact::new(held())),
        Knows::Bloom => Box::new(summary(awareness, capacity, both, blocks)?),
        Knows::Emulation => Box::new(UpperList::new(capacity, mode)),
    };
    Ok(if both { Box::new(Cautious::new(source, period)) } else { source })
}

fn summary(
    awareness: &Awareness,
    capacity: u32,
    is_old: bool,
    blocks: u32,
) -> Result<Simulated, SpecError> {
    awareness.check()?;
    Ok(Simulated::new(awareness, capacity, is_old, blocks))
}

impl Half {
    fn serve(&mut self, reference: Reference, other: &Self) -> bool {
        let (was_here, is_here) = self.level.serve(reference);
        self.last = (reference.entry(), was_here, is_here);
        if let Some(neighbour) = &mut self.neighbour {
            for gone in self.level.evicted() {
                self.counts.count(neighbour.source(), gone, other);
                neighbour.discarded(gone.into());
            }
            let block = reference.entry().into();
            neighbour.referenced(&mut self.level, block, (was_here, is_here), None);
        }
        was_here
    }

    /// Takes in what the neighbour's last reference brought there and evicted.
    fn see(&mut self, other: &Self) {
        let Some(neighbour) = &mut self.neighbour else { return };
        let (entry, was_here, is_here) = other.last;
        // A block that was refused was never resident.
        let gone = other.level.evicted().filter(|&gone| was_here || gone != entry);
        gone.for_each(|gone| neighbour.set(&mut self.level, gone.into(), false));
        // The residence changed: the block came, or a write invalidated it.
        if was_here != is_here {
            neighbour.set(&mut self.level, entry.into(), is_here);
        }
    }

    /// A message from the neighbour arrives, with what it publishes.
    fn receive(&mut self, other: &Self) {
        if let Some(neighbour) = &mut self.neighbour {
            neighbour.exchange(&mut self.level, &|| other.level.blocks());
        }
    }

    /// Notes that the lower level has served a request of the upper one.
    fn served(&mut self, entry: Entry, is_write: bool, hit: bool) {
        if let Some(neighbour) = &mut self.neighbour {
            neighbour.served(&mut self.level, entry.into(), is_write, Some(hit), 0);
        }
    }
}

impl AwareCounts {
    /// Counts the eviction of a block that the neighbour is believed to hold, and whether that
    /// belief is true.
    fn count(&mut self, source: Option<&dyn Source>, gone: Entry, neighbour: &Half) {
        let Some(source) = source.filter(|source| source.holds(gone.into())) else { return };
        self.held += 1;
        if !neighbour.level.policy().contains(gone) {
            let was_held = source.was_held(gone.into());
            self.stale += u64::from(was_held);
            self.mistaken += u64::from(!was_held);
        }
    }
}
