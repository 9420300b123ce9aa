//! Two levels with access-based placement, of which either or both are content-aware: what each is
//! told of the other, when, and how often what it believed was wrong.
//!
//! The order of things at a request that goes down: it carries what the upper level publishes; the
//! lower level serves it and says what came and went; only then the upper level chooses a victim.

use std::sync::Arc;

use crate::content::{
    Blocks, Cautious, Exact, ExchangeOld, LowerCopy, Neighbour, Simulated, Source, SourceCounts,
    UpperList,
};
use crate::hashed::HashedCache;
use crate::level::{Counts, Level, Reference, WriteMode};
use crate::policy::{Awareness, Context, Entry, Knows, Policy, Spec, SpecError};

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
    level: Level,
    /// The block of the last reference, and whether it was here before.
    last: (u64, bool),
    /// Only of a content-aware level.
    neighbour: Option<Neighbour>,
    counts: AwareCounts,
}

/// An upper and a lower level.
pub struct Pair {
    upper: Half,
    lower: Half,
    /// Blocks met so far: a block is cold exactly if its number is not below.
    known: Entry,
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
        let names: Arc<[u64]> = names.collect();
        let [upper, lower] = levels;
        let both = Awareness::of(upper.0).is_some() && Awareness::of(lower.0).is_some();
        let mut halves = Vec::new();
        for (depth, (spec, capacity)) in levels.into_iter().enumerate() {
            let policy = spec.build(&Context::new(capacity))?;
            let source = match Awareness::of(spec) {
                Some(awareness) if depth == 0 => Some(below(&awareness, lower, mode, blocks)?),
                Some(awareness) => Some(above(&awareness, upper.1, mode, both, blocks)?),
                None => None,
            };
            let mut level = Level::of_policy(policy, mode, 0);
            level.number_blocks(Some(Arc::clone(&names)));
            halves.push(Half {
                level,
                last: (0, false),
                neighbour: source.map(|source| Neighbour::new(Some(source))),
                counts: AwareCounts::default(),
            });
        }
        let [upper, lower] = halves.try_into().unwrap_or_else(|_| unreachable!("two levels"));
        Ok(Self { upper, lower, known: 0 })
    }

    /// Serves one reference: the level that had the block, 0 or 1, if either did.
    pub fn reference(&mut self, reference: Reference) -> Option<usize> {
        let (entry, is_write) = (reference.entry(), reference.is_write());
        let cold = entry >= self.known;
        self.known = self.known.max(entry + 1);
        let (upper, lower) = (&mut self.upper, &mut self.lower);
        let mut found = None;
        if is_write || upper.level.frame(entry.into()).is_none() {
            lower.receive(upper);
            let hit = lower.serve(reference, cold, upper);
            if hit {
                found = Some(1);
            }
            upper.see(lower);
            upper.receive(lower);
            upper.served(entry, is_write, hit);
            lower.served(entry, is_write, hit);
        }
        if upper.serve(reference, cold, lower) {
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

    /// The levels, the upper one first.
    pub fn levels(&self) -> [&Level; 2] {
        [&self.upper.level, &self.lower.level]
    }

    /// The policies, the upper level's first. Their entries are the blocks.
    pub fn policies(&self) -> [&dyn Policy; 2] {
        let policy = |half| Half::policy(half).unwrap_or_else(|| unreachable!("ordered by one"));
        [&self.upper, &self.lower].map(policy)
    }

    /// What was counted as at every level, the upper level's first.
    pub fn counts(&self) -> [Counts; 2] {
        self.levels().map(|level| Counts { known: self.known, ..*level.counts() })
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
        self.levels().into_iter().try_for_each(Level::validate)
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
    fn policy(&self) -> Option<&dyn Policy> {
        self.level.cache().map(HashedCache::policy)
    }

    fn serve(&mut self, reference: Reference, cold: bool, other: &Self) -> bool {
        let (block, is_write) = (reference.entry().into(), reference.is_write());
        let referred = self.level.reference(block, is_write, || cold);
        self.last = (block, referred.before.is_some());
        self.count_beliefs(other);
        if let (Some(neighbour), Some(cache)) = (&mut self.neighbour, self.level.cache_mut()) {
            neighbour.referenced(cache, block, referred, None);
        }
        referred.hit
    }

    /// Counts the last evictions of blocks that the neighbour is believed to hold, and whether that
    /// is true.
    fn count_beliefs(&mut self, other: &Self) {
        let Some(source) = self.neighbour.as_ref().and_then(Neighbour::source) else { return };
        for gone in self.level.evicted().iter().filter(|gone| source.holds(gone.block)) {
            self.counts.held += 1;
            if other.level.frame(gone.block).is_none() {
                let was_held = source.was_held(gone.block);
                self.counts.stale += u64::from(was_held);
                self.counts.mistaken += u64::from(!was_held);
            }
        }
    }

    /// Sees what the neighbour's last reference made come and go there.
    fn see(&mut self, other: &Self) {
        let (Some(neighbour), Some(cache)) = (&mut self.neighbour, self.level.cache_mut()) else {
            return;
        };
        let (block, was_here) = other.last;
        // One that was refused was never here.
        let gone = other.level.evicted().iter().map(|gone| gone.block);
        let gone = gone.filter(|&gone| was_here || gone != block);
        gone.for_each(|gone| neighbour.set(cache, gone, false));
        match (was_here, other.level.frame(block).is_some()) {
            (false, true) => neighbour.set(cache, block, true),
            // Invalidated: a reference to what is here evicts nothing.
            (true, false) => neighbour.set(cache, block, false),
            _ => (),
        }
    }

    /// A message comes from the neighbour, with what it has to publish.
    fn receive(&mut self, other: &Self) {
        if let (Some(neighbour), Some(cache)) = (&mut self.neighbour, self.level.cache_mut()) {
            let residents = || other.level.residents().into_iter().map(|(b, _)| b).collect();
            neighbour.exchange(cache, &residents);
        }
    }

    /// The lower level has served a request of the upper.
    fn served(&mut self, entry: Entry, is_write: bool, hit: bool) {
        if let (Some(neighbour), Some(cache)) = (&mut self.neighbour, self.level.cache_mut()) {
            neighbour.served(cache, entry.into(), is_write, Some(hit), 0);
        }
    }
}
