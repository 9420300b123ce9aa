//! Two levels with access-based placement, of which either or both are content-aware: what each is
//! told of the other, when, and how often what it believed was wrong.
//!
//! The order of things at a request that goes down: it carries what the upper level publishes; the
//! lower level serves it and says what came and went; only then the upper level chooses a victim.

use super::blocks::Blocks;
use super::cautious::Cautious;
use super::emulation::{LowerCopy, UpperList};
use super::exact::{Exact, ExchangeOld};
use super::simulated::Simulated;
use super::source::{News, Source, SourceCounts};
use crate::level::{Counts, Reference, WriteMode};
use crate::policy::{Awareness, Context, Departures, Entry, Knows, Policy, Spec, SpecError};
use crate::tally::{Tally, refer};

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
    policy: Box<dyn Policy>,
    mode: WriteMode,
    counts: Counts,
    out: Departures,
    /// The block of the last reference, and whether it was here before.
    last: (Entry, bool),
    aware: Option<Aware>,
}

struct Aware {
    source: Box<dyn Source>,
    news: News,
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
        let [upper, lower] = levels;
        let both = Awareness::of(upper.0).is_some() && Awareness::of(lower.0).is_some();
        let mut halves = Vec::new();
        for (depth, (spec, capacity)) in levels.into_iter().enumerate() {
            let mut policy = spec.build(&Context::new(capacity))?;
            policy.grow(blocks);
            if policy.needs_names() {
                (0..).zip(names.clone()).for_each(|(entry, name)| policy.bind(entry, name));
            }
            let source = match Awareness::of(spec) {
                Some(awareness) if depth == 0 => Some(below(&awareness, lower, mode, blocks)?),
                Some(awareness) => Some(above(&awareness, upper.1, mode, both, blocks)?),
                None => None,
            };
            let (news, counts) = (News::default(), AwareCounts::default());
            let aware = source.map(|source| Aware { source, news, counts });
            let (counts, out) = (Counts::default(), Departures::new());
            halves.push(Half { policy, mode, counts, out, last: (0, false), aware });
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
        (upper.counts.known, lower.counts.known) = (self.known, self.known);
        let mut found = None;
        if is_write || !upper.policy.contains(entry) {
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
            half.counts.restart();
            if let Some(aware) = &mut half.aware {
                aware.counts = AwareCounts::default();
                aware.source.restart_counts();
            }
        }
    }

    /// The policies, the upper level's first.
    pub fn policies(&self) -> [&dyn Policy; 2] {
        [self.upper.policy.as_ref(), self.lower.policy.as_ref()]
    }

    /// What was counted as at every level, the upper level's first.
    pub fn counts(&self) -> [&Counts; 2] {
        [&self.upper.counts, &self.lower.counts]
    }

    /// What a content-aware level counted, the upper level's first.
    pub fn aware_counts(&self) -> [Option<AwareCounts>; 2] {
        [&self.upper, &self.lower].map(|half| {
            let aware = half.aware.as_ref()?;
            Some(AwareCounts { source: aware.source.counts(), ..aware.counts })
        })
    }

    /// Recounts everything.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.upper.policy.validate()?;
        self.lower.policy.validate()
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
    fn serve(&mut self, reference: Reference, cold: bool, neighbour: &Self) -> bool {
        self.out.clear();
        let (entry, is_write) = (reference.entry(), reference.is_write());
        let (before, was_here) = (self.policy.len(), self.policy.contains(entry));
        let hit = refer(self.policy.as_mut(), entry, is_write, self.mode, &mut self.out);
        let mut tally = Tally::default();
        tally.add(is_write, hit, cold, self.mode);
        tally.count(before.into(), self.policy.len().into(), &mut self.counts);
        let is_here = self.policy.contains(entry);
        self.last = (entry, was_here);
        if let Some(aware) = &mut self.aware {
            if is_here && !was_here {
                self.policy.neighbour_holds(entry, aware.source.holds(entry.into()));
            }
            for gone in self.out.evicted() {
                aware.count(gone, neighbour);
                if was_here || gone != entry {
                    aware.source.own(gone.into(), false);
                }
            }
            if was_here != is_here {
                aware.source.own(entry.into(), is_here);
            }
        }
        hit
    }

    /// Sees what the neighbour's last reference made come and go there.
    fn see(&mut self, neighbour: &Self) {
        let Some(Aware { source, news, .. }) = &mut self.aware else { return };
        let (entry, was_here) = neighbour.last;
        // One that was refused was never here.
        let gone = neighbour.out.evicted().filter(|&gone| was_here || gone != entry);
        gone.for_each(|gone| source.went(gone.into(), news));
        match (was_here, neighbour.policy.contains(entry)) {
            (false, true) => source.came(entry.into(), news),
            // Invalidated: a reference to what is here evicts nothing.
            (true, false) => source.went(entry.into(), news),
            _ => (),
        }
        self.learn();
    }

    /// A message comes from the neighbour, with what it has to publish.
    fn receive(&mut self, neighbour: &Self) {
        let Some(Aware { source, news, .. }) = &mut self.aware else { return };
        let residents = || neighbour.policy.residents().into_iter().map(u64::from).collect();
        source.exchange(&residents, news);
        self.learn();
    }

    /// The lower level has served a request of the upper.
    fn served(&mut self, entry: Entry, is_write: bool, hit: bool) {
        let Some(Aware { source, news, .. }) = &mut self.aware else { return };
        source.served(entry.into(), is_write, Some(hit), news);
        self.learn();
    }

    /// Tells the policy what is known now.
    fn learn(&mut self) {
        let Some(Aware { source, news, .. }) = &mut self.aware else { return };
        if std::mem::take(&mut news.all) {
            news.blocks.clear();
            for entry in self.policy.residents() {
                self.policy.neighbour_holds(entry, source.holds(entry.into()));
            }
        }
        for (block, holds) in news.blocks.drain(..) {
            let entry = block as Entry;
            if self.policy.contains(entry) {
                self.policy.neighbour_holds(entry, holds);
            }
        }
    }
}

impl Aware {
    /// Counts an eviction, and whether what was believed of the block is true.
    fn count(&mut self, gone: Entry, neighbour: &Half) {
        if !self.source.holds(gone.into()) {
            return;
        }
        self.counts.held += 1;
        if !neighbour.policy.contains(gone) {
            let was_held = self.source.was_held(gone.into());
            self.counts.stale += u64::from(was_held);
            self.counts.mistaken += u64::from(!was_held);
        }
    }
}
