//! What a level knows of the cache below it, for a policy that evicts first what that holds too:
//! the level of a client above a server. It becomes known from what the cache below says (exactly,
//! or by summaries), or by emulating it; or not at all: then the policy is what it is without.
//!
//! A block is referenced when the reply is here: the cache below changes with the request, and what
//! it holds then decides who leaves. So a miss is first [asked for](CacheBelow::asks), then what
//! came with the reply is told, then it is referenced.

use std::collections::HashMap;

use super::{Referred, WriteMode};
use crate::content::{Digest, Digests, LowerCopy, Neighbour, Prober, Source, Unusable};
use crate::hashed::HashedCache;
use crate::policy::{Spec, SpecError};

/// Bits of a filter at most: 64 MiB of them.
const FILTER_BITS_MAX: u32 = 1 << 29;

/// Where it is known from what the cache below holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Below {
    /// Nowhere.
    Nothing,
    /// It says of each block that it comes or goes.
    Told,
    /// It publishes summaries.
    Digests,
    /// It is emulated, as this policy of so many blocks.
    Emulated(Spec, u32),
    /// It is found out from the replies what policy and size it has, and emulated.
    Probed,
}

/// What is known of the cache below, as it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BelowCounts {
    /// Evictions of blocks that the cache below was believed to hold.
    pub held_evictions: u64,
    /// Summaries received.
    pub summaries: u64,
    /// Summaries received that were whole filters.
    pub whole_summaries: u64,
    /// Summaries that could not be used.
    pub summaries_unusable: u64,
    /// Replies that an emulation predicted and whose time told a hit from a miss.
    pub predictions: u64,
    /// Predictions that came true.
    pub confirmed: u64,
    /// Requests at which an emulation was not trusted.
    pub distrusted: u64,
    /// Share of false positives of the filter as it is now; none without a filter.
    pub false_positives: Option<f64>,
}

/// The knowledge of the cache below at work.
pub(super) struct CacheBelow {
    is_told: bool,
    neighbour: Neighbour,
    prober: Option<Prober>,
    /// Blocks that were asked for, and whether the cache below holds them when it has answered:
    /// so it does if it does not say otherwise. (Only where it says.)
    asked: HashMap<u64, bool>,
}

impl CacheBelow {
    /// Knowledge from what `below` says. Writes do to the cache below what `mode` says.
    ///
    /// # Errors
    /// The policy to be emulated cannot be had.
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

    /// The level gave a block up.
    pub(super) fn discarded(&mut self, block: u64) {
        self.neighbour.discarded(block);
    }

    /// A block is asked for, or written.
    pub(super) fn asks(&mut self, block: u64) {
        if self.is_told {
            self.asked.insert(block, true);
        }
    }

    /// What was asked for did not come.
    pub(super) fn failed(&mut self, block: u64) {
        self.asked.remove(&block);
    }

    /// The cache below says that it holds a block now, or does not.
    pub(super) fn told(&mut self, cache: &mut HashedCache, block: u64, holds: bool) {
        if let Some(known) = self.asked.get_mut(&block) {
            *known = holds;
        }
        cache.neighbour_holds(block, holds);
    }

    /// What the cache below said is not all that there was: nothing is known any more.
    pub(super) fn lost(&mut self, cache: &mut HashedCache) {
        if self.is_told {
            for (block, _) in cache.residents() {
                cache.neighbour_holds(block, false);
            }
        }
    }

    /// The cache below published what it holds.
    ///
    /// # Errors
    /// It is of no use: ask for all of it anew.
    pub(super) fn published(
        &mut self,
        cache: &mut HashedCache,
        digest: &Digest,
    ) -> Result<(), Unusable> {
        self.neighbour.heard(cache, digest)
    }

    /// A request was answered; whether the cache below had the block, if that shows.
    pub(super) fn answered(
        &mut self,
        cache: &mut HashedCache,
        block: u64,
        is_write: bool,
        hit: Option<bool>,
    ) {
        if let Some(prober) = &mut self.prober {
            prober.request(block, is_write, hit);
            // Once it is known it is emulated, and found out again if that turns out wrong.
            if self.neighbour.source().is_none_or(|source| source.is_distrusted()) {
                if let Some(copy) = prober.take_copy() {
                    self.neighbour.replace_source(Box::new(LowerCopy::of(copy)));
                    return self.neighbour.learn_all(cache);
                }
            }
        }
        self.neighbour.served(cache, block, is_write, hit, 0);
    }

    /// The level served a counted reference.
    pub(super) fn referenced(&mut self, cache: &mut HashedCache, block: u64, referred: Referred) {
        if !cache.is_aware() {
            return;
        }
        let known =
            if self.neighbour.source().is_none() { self.asked.remove(&block) } else { None };
        let holds = known.or((!referred.hit).then_some(false));
        self.neighbour.evicted(cache);
        self.neighbour.referenced(cache, block, referred.residence(), holds);
    }

    /// What was counted.
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

    /// What was found out about the cache below, where that was to be.
    pub(super) fn prober(&self) -> Option<&Prober> {
        self.prober.as_ref()
    }
}
