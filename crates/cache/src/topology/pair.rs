//! Two levels with access-based placement, of which either or both are content-aware: what each is
//! told of the other, when, and how often what it believed was wrong.
//!
//! The order of things at a request that goes down: it carries what the upper level publishes; the
//! lower level serves it and says what came and went; only then the upper level chooses a victim.

use crate::content::{
    Blocks, Cautious, Exact, ExchangeOld, LowerCopy, Neighbour, Simulated, Source, SourceCounts,
    UpperList,
};
use crate::counts::Counts;
use crate::level::DenseLevel;
use crate::marks::Marks;
use crate::policy::{Awareness, Context, Entry, Knows, Policy, Spec, SpecError};
use crate::reference::{Reference, WriteMode};

/// What a content-aware level counted beside its [`Counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AwareCounts {
    /// Evictions of blocks that the neighbour was believed to hold.
    pub held: u64,
    /// Of those, blocks that the neighbour had held when it last said anything, and held no longer.
    pub stale: u64,
    /// Of those, blocks that it had not held then either: false positives, wrong emulation.
    pub mistaken: u64,
    /// What knowing cost.
    pub source: SourceCounts,
}

/// A level and what it knows of the other.
struct Half {
    level: DenseLevel,
    /// The block of the last reference, whether it was here before, and whether it is now.
    last: (Entry, bool, bool),
    /// Only of a content-aware level.
    neighbour: Option<Neighbour>,
    counts: AwareCounts,
}

/// An upper and a lower level.
pub struct Pair {
    upper: Half,
    lower: Half,
}

impl Pair {
    /// An upper level above a lower one, as policies and sizes in blocks. Blocks are numbered from
    /// 0 in the order of their first references; `names` are those of all of them, for policies
    /// that hash blocks.
    ///
    /// # Errors
    /// A policy cannot be had, or a summary of more hash functions than bits a block is asked for.
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

    /// Serves one reference: the level that had the block, 0 or 1, if either did.
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

    /// Forgets the counts, not the content: the end of a warm-up.
    pub fn restart_counts(&mut self) {
        for half in [&mut self.upper, &mut self.lower] {
            half.level.restart_counts();
            half.counts = AwareCounts::default();
            half.neighbour.iter_mut().for_each(Neighbour::restart_counts);
        }
    }

    /// The policies, the upper level's first. Their entries are the blocks.
    pub fn policies(&self) -> [&dyn Policy; 2] {
        [&self.upper, &self.lower].map(|half| half.level.policy())
    }

    /// What was counted as at every level, the upper level's first.
    pub fn counts(&self) -> [Counts; 2] {
        [&self.upper, &self.lower].map(|half| *half.level.counts())
    }

    /// What a content-aware level counted, the upper level's first.
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

/// What an upper level knows of the lower.
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

/// What a lower level knows of the upper; with more care where `both` go by what they know.
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

    /// Sees what the neighbour's last reference made come and go there.
    fn see(&mut self, other: &Self) {
        let Some(neighbour) = &mut self.neighbour else { return };
        let (entry, was_here, is_here) = other.last;
        // One that was refused was never here.
        let gone = other.level.evicted().filter(|&gone| was_here || gone != entry);
        gone.for_each(|gone| neighbour.set(&mut self.level, gone.into(), false));
        // Invalidated: a reference to what is here evicts nothing.
        if was_here != is_here {
            neighbour.set(&mut self.level, entry.into(), is_here);
        }
    }

    /// A message comes from the neighbour, with what it has to publish.
    fn receive(&mut self, other: &Self) {
        if let Some(neighbour) = &mut self.neighbour {
            neighbour.exchange(&mut self.level, &|| other.level.blocks());
        }
    }

    /// The lower level has served a request of the upper.
    fn served(&mut self, entry: Entry, is_write: bool, hit: bool) {
        if let Some(neighbour) = &mut self.neighbour {
            neighbour.served(&mut self.level, entry.into(), is_write, Some(hit), 0);
        }
    }
}

impl AwareCounts {
    /// Counts the eviction of a block if the neighbour is believed to hold it, and whether that is
    /// true.
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
