//! What a client's level knows of the cache below it, for a policy that prefers victims which the
//! cache below holds too. The knowledge comes from what the cache below reports (exactly, or in
//! summaries), or from emulating it. Without knowledge the policy behaves like the plain policy.
//!
//! The cache below changes with each request, and what it holds then decides the victim. So a miss
//! is first [announced](CacheBelow::asks), then the knowledge that comes with the reply is noted,
//! and only then the block is referenced.

use std::collections::HashMap;

use super::WriteMode;
use crate::content::{Digest, Digests, LowerCopy, Neighbour, Prober, Source, Unusable};
use crate::hashed::{HashedCache, Referred};
use crate::policy::{Spec, SpecError};

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

/// The knowledge of the cache below.
pub(super) struct CacheBelow {
    is_told: bool,
    neighbour: Neighbour,
    prober: Option<Prober>,
    /// With [`Below::Told`]: requested blocks, and whether the cache below holds them once it has
    /// answered. It does unless it says otherwise.
    asked: HashMap<u64, bool>,
}

impl CacheBelow {
    /// Knowledge from the source `below`. `mode`: what writes do at the cache below.
    ///
    /// # Errors
    /// The policy to be emulated cannot be made.
    pub(super) fn new(below: &Below, mode: WriteMode) -> Result<Self, SpecError> {
        let source: Option<Box<dyn Source>> = match below {
            Below::Nothing | Below::Told | Below::Probed => None,
            Below::Digests => Some(Box::new(Digests::new(FILTER_BITS_MAX, false))),
            Below::Emulated(spec, blocks) => {
                Some(Box::new(LowerCopy::new(spec, *blocks, mode, None)?))
            }
        };
        Ok(Self {
            is_told: *below == Below::Told,
            neighbour: Neighbour::new(source),
            prober: (*below == Below::Probed).then(|| Prober::new(mode)),
            asked: HashMap::new(),
        })
    }

    /// Notes that the level gave a block up.
    pub(super) fn discarded(&mut self, block: u64) {
        self.neighbour.discarded(block);
    }

    /// Notes that a block is requested or written below.
    pub(super) fn asks(&mut self, block: u64) {
        if self.is_told {
            self.asked.insert(block, true);
        }
    }

    /// Notes that a requested block did not come.
    pub(super) fn failed(&mut self, block: u64) {
        self.asked.remove(&block);
    }

    /// Notes that the cache below holds a block now, or no longer.
    pub(super) fn told(&mut self, cache: &mut HashedCache, block: u64, holds: bool) {
        if let Some(known) = self.asked.get_mut(&block) {
            *known = holds;
        }
        cache.neighbour_holds(block, holds);
    }

    /// Forgets what the cache below reported, since some reports were lost.
    pub(super) fn lost(&mut self, cache: &mut HashedCache) {
        if self.is_told {
            for (block, _) in cache.residents() {
                cache.neighbour_holds(block, false);
            }
        }
    }

    /// Takes in what the cache below published.
    ///
    /// # Errors
    /// The publication is unusable: request a whole one.
    pub(super) fn published(
        &mut self,
        cache: &mut HashedCache,
        digest: &Digest,
    ) -> Result<(), Unusable> {
        self.neighbour.heard(cache, digest)
    }

    /// Notes that a request was answered. `hit`: whether the cache below had the block, if known.
    pub(super) fn answered(
        &mut self,
        cache: &mut HashedCache,
        block: u64,
        is_write: bool,
        hit: Option<bool>,
    ) {
        if let Some(prober) = &mut self.prober {
            prober.request(block, is_write, hit);
            // Emulate the cache once it is inferred; infer it again if the emulation turns out
            // wrong.
            if self.neighbour.source().is_none_or(|source| source.is_distrusted()) {
                if let Some(copy) = prober.take_copy() {
                    self.neighbour.replace_source(Box::new(LowerCopy::of(copy)));
                    return self.neighbour.learn_all(cache);
                }
            }
        }
        self.neighbour.served(cache, block, is_write, hit, 0);
    }

    /// Notes that the level served a counted reference.
    pub(super) fn referenced(&mut self, cache: &mut HashedCache, block: u64, referred: Referred) {
        if !cache.is_aware() {
            return;
        }
        self.neighbour.go_on(cache, |_| false);
        let known =
            if self.neighbour.source().is_none() { self.asked.remove(&block) } else { None };
        let holds = known.or((!referred.hit).then_some(false));
        self.neighbour.evicted(cache);
        self.neighbour.referenced(cache, block, referred.residence(), holds);
    }

    /// The counts so far.
    pub(super) fn counts(&self) -> BelowCounts {
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
    pub(super) fn prober(&self) -> Option<&Prober> {
        self.prober.as_ref()
    }
}
