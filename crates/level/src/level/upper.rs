//! A level above another cache, such as that of a client, and what it knows of the cache below: a
//! content-aware policy prefers victims which the cache below holds too. The knowledge comes from
//! what the cache below reports (exactly, or in summaries), or from emulating it. Without knowledge
//! the policy behaves like the plain policy.
//!
//! The cache below changes with each request, and what it holds then decides the victim. So a miss
//! is first [announced](UpperLevel::asks), then the knowledge that comes with the reply is noted,
//! and only then the block is referenced.

use std::collections::HashMap;

use super::WriteMode;
use crate::content::{Digest, Digests, LowerCopy, Neighbour, Prober, Source, Unusable};
use crate::hashed::{Frame, HashedCache, Referred};
use undercroft_policy::{Policy, Spec, SpecError};

/// Most bits of a filter: 64 MiB.
const FILTER_BITS_MAX: u32 = 1 << 29;

/// The source of the knowledge of the cache below.
#[derive(Clone, Debug, PartialEq)]
pub enum Below {
    /// No source.
    Nothing,
    /// The cache below reports each block that it takes in or gives up.
    Told,
    /// The cache below publishes summaries.
    Digests,
    /// The cache below is emulated, with this policy and size in blocks.
    Emulated(Spec, u32),
    /// Policy and size of the cache below are inferred from its replies, and then emulated.
    Probed,
}

/// The counts of the knowledge of the cache below.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BelowCounts {
    /// Evictions of blocks that the cache below was believed to hold.
    pub held_evictions: u64,
    /// Summaries received.
    pub summaries: u64,
    /// Summaries received that were whole filters.
    pub whole_summaries: u64,
    /// Summaries that were unusable.
    pub summaries_unusable: u64,
    /// Replies that an emulation predicted and whose time told a hit from a miss.
    pub predictions: u64,
    /// Predictions that came true.
    pub confirmed: u64,
    /// Requests while an emulation was not trusted.
    pub distrusted: u64,
    /// Current share of false positives of the filter; `None` without a filter.
    pub false_positives: Option<f64>,
}

/// A level above another cache, with placement at the access.
///
/// ```
/// use undercroft_policy::{Context, Spec, WriteMode};
/// use undercroft_level::{Below, UpperLevel};
///
/// let policy = Spec::parse("lru-ca,alpha=1")?.build(&Context::new(2))?;
/// let mut level = UpperLevel::new(policy, WriteMode::Allocate, &Below::Told)?;
/// for block in [1, 2, 3] {
///     level.asks(block);
///     // The reply is here, and the cache below says that it has only block 2.
///     level.told(block, block == 2);
///     level.answered(block, false, None);
///     level.reference(block, false);
/// }
/// assert_eq!(level.cache().evicted()[0].block, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UpperLevel {
    cache: HashedCache,
    mode: WriteMode,
    is_told: bool,
    neighbour: Neighbour,
    prober: Option<Prober>,
    /// With [`Below::Told`]: requested blocks, and whether the cache below holds them once it has
    /// answered. It does unless it says otherwise.
    asked: HashMap<u64, bool>,
}

impl UpperLevel {
    /// An empty level. What it knows of the cache below comes from the source `below`. `mode`: what
    /// writes do, here and at the cache below.
    ///
    /// # Errors
    /// The policy to be emulated cannot be made.
    pub fn new(policy: Box<dyn Policy>, mode: WriteMode, below: &Below) -> Result<Self, SpecError> {
        let source: Option<Box<dyn Source>> = match below {
            Below::Nothing | Below::Told | Below::Probed => None,
            Below::Digests => Some(Box::new(Digests::new(FILTER_BITS_MAX, false))),
            Below::Emulated(spec, blocks) => {
                Some(Box::new(LowerCopy::new(spec, *blocks, mode, None)?))
            }
        };
        Ok(Self {
            cache: HashedCache::new(policy, 0),
            mode,
            is_told: *below == Below::Told,
            neighbour: Neighbour::new(source),
            prober: (*below == Below::Probed).then(|| Prober::new(mode)),
            asked: HashMap::new(),
        })
    }

    /// The blocks and their policy.
    #[inline]
    pub fn cache(&self) -> &HashedCache {
        &self.cache
    }

    /// Notes that a block is requested or written below; it is referenced when the reply is here.
    pub fn asks(&mut self, block: u64) {
        if self.is_told {
            self.asked.insert(block, true);
        }
    }

    /// Notes that a requested block did not come.
    pub fn failed(&mut self, block: u64) {
        self.asked.remove(&block);
    }

    /// Notes that the cache below holds a block now, or no longer.
    pub fn told(&mut self, block: u64, holds: bool) {
        if let Some(known) = self.asked.get_mut(&block) {
            *known = holds;
        }
        self.cache.neighbour_holds(block, holds);
    }

    /// Forgets what the cache below reported, since some reports were lost.
    pub fn lost(&mut self) {
        if self.is_told {
            for (block, _) in self.cache.residents() {
                self.cache.neighbour_holds(block, false);
            }
        }
    }

    /// Takes in a summary that the cache below published.
    ///
    /// # Errors
    /// The summary is unusable and nothing has changed. Request a whole one.
    pub fn told_content(&mut self, digest: &Digest) -> Result<(), Unusable> {
        self.neighbour.heard(&mut self.cache, digest)
    }

    /// Notes that a request was answered. `hit`: whether the cache below had the block, if known.
    pub fn answered(&mut self, block: u64, is_write: bool, hit: Option<bool>) {
        if let Some(prober) = &mut self.prober {
            prober.request(block, is_write, hit);
            // Emulate the cache once it is inferred; infer it again if the emulation turns out
            // wrong.
            if self.neighbour.source().is_none_or(|source| source.is_distrusted()) {
                if let Some(copy) = prober.take_copy() {
                    self.neighbour.replace_source(Box::new(LowerCopy::of(copy)));
                    return self.neighbour.learn_all(&mut self.cache);
                }
            }
        }
        self.neighbour.served(&mut self.cache, block, is_write, hit, 0);
    }

    /// Reads or writes a block. The cache's [`evicted`](HashedCache::evicted) has the blocks that
    /// it evicts.
    pub fn reference(&mut self, block: u64, is_write: bool) -> Referred {
        let Self { cache, neighbour, .. } = self;
        let referred = cache.reference(block, is_write, self.mode, || false);
        if cache.is_aware() {
            neighbour.go_on(cache, |_| false);
            let known = if neighbour.source().is_none() { self.asked.remove(&block) } else { None };
            let holds = known.or((!referred.hit).then_some(false));
            neighbour.evicted(cache);
            neighbour.referenced(cache, block, referred.residence(), holds);
        }
        referred
    }

    /// Forgets a block entirely (TRIM, invalidation). Returns the frame that it had.
    pub fn discard(&mut self, block: u64) -> Option<Frame> {
        let frame = self.cache.discard(block)?;
        self.neighbour.discarded(block);
        Some(frame)
    }

    /// The counts of the knowledge of the cache below.
    pub fn below_counts(&self) -> BelowCounts {
        let counts = self.neighbour.counts();
        BelowCounts {
            held_evictions: counts.held_evictions,
            summaries_unusable: counts.summaries_unusable,
            summaries: counts.source.publications,
            whole_summaries: counts.source.whole,
            predictions: counts.source.predictions,
            confirmed: counts.source.confirmed,
            distrusted: counts.source.distrusted,
            false_positives: self.neighbour.source().and_then(|source| source.false_positives()),
        }
    }

    /// What was inferred about the cache below, with [`Below::Probed`].
    pub fn prober(&self) -> Option<&Prober> {
        self.prober.as_ref()
    }
}
