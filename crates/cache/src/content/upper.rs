//! A cache above another one, as a client runs it, whose policy evicts first what the cache below
//! holds too. What that holds becomes known from what it says (exactly, or by summaries), or by
//! emulating it; or not at all: then the policy is what it is without.
//!
//! A block is referenced when the reply is here: the cache below changes with the request, and what
//! it holds then decides who leaves. So a miss is first [asked for](Upper::asks), then what came
//! with the reply is told, then it is [referenced](Upper::reference).

use std::collections::HashMap;

use super::digests::Digests;
use super::emulation::LowerCopy;
use super::probe::Prober;
use super::source::{Digest, News, Source};
use super::summary::Unusable;
use crate::hashed::{HashedCache, Served};
use crate::level::WriteMode;
use crate::policy::{Policy, Spec, SpecError};

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
pub struct UpperCounts {
    /// Evictions of blocks that the cache below was believed to hold.
    pub held_evictions: u64,
    /// Summaries that came, and those of them that were whole filters.
    pub summaries: u64,
    /// Of these whole filters.
    pub whole_summaries: u64,
    /// Summaries that could not be used.
    pub summaries_unusable: u64,
    /// Replies that an emulation foretold, where they could be told apart by their time.
    pub predictions: u64,
    /// Of these those that came as foretold.
    pub confirmed: u64,
    /// Requests at which an emulation was not trusted.
    pub distrusted: u64,
    /// Share of false positives of the filter as it is now; none without a filter.
    pub false_positives: Option<f64>,
}

/// A cache, and what it knows of the one below.
pub struct Upper {
    cache: HashedCache,
    mode: WriteMode,
    below: Below,
    /// None: the policy's marks are all that is known.
    source: Option<Box<dyn Source>>,
    prober: Option<Box<Prober>>,
    /// Blocks that were asked for, and whether the cache below holds them when it has answered:
    /// so it does if it does not say otherwise. (Only where it says.)
    asked: HashMap<u64, bool>,
    news: News,
    counts: UpperCounts,
}

impl Upper {
    /// A cache of a policy above another one.
    ///
    /// # Errors
    /// The policy to be emulated cannot be had.
    pub fn new(policy: Box<dyn Policy>, mode: WriteMode, below: Below) -> Result<Self, SpecError> {
        let source: Option<Box<dyn Source>> = match &below {
            Below::Nothing | Below::Told | Below::Probed => None,
            Below::Digests => Some(Box::new(Digests::new(FILTER_BITS_MAX, false))),
            Below::Emulated(spec, blocks) => {
                Some(Box::new(LowerCopy::new(spec, *blocks, mode, None)?))
            }
        };
        let prober = (below == Below::Probed).then(|| Box::new(Prober::new(mode)));
        Ok(Self {
            cache: HashedCache::new(policy, 0),
            mode,
            below,
            source,
            prober,
            asked: HashMap::new(),
            news: News::default(),
            counts: UpperCounts::default(),
        })
    }

    /// The cache.
    pub fn cache(&self) -> &HashedCache {
        &self.cache
    }

    /// Forgets a block: the frame it had.
    pub fn discard(&mut self, block: u64) -> Option<u32> {
        let frame = self.cache.discard(block);
        if let (Some(_), Some(source)) = (frame, &mut self.source) {
            source.own(block, false);
        }
        frame
    }

    /// A block is asked for, or written.
    pub fn asks(&mut self, block: u64) {
        if self.below == Below::Told {
            self.asked.insert(block, true);
        }
    }

    /// Whether a block is referenced when its reply is here, since what the cache below holds then
    /// decides who leaves.
    pub fn waits_for_replies(&self) -> bool {
        self.cache.is_aware()
    }

    /// What was asked for did not come.
    pub fn failed(&mut self, block: u64) {
        self.asked.remove(&block);
    }

    /// The cache below says that it holds a block now, or does not.
    pub fn told(&mut self, block: u64, holds: bool) {
        if let Some(known) = self.asked.get_mut(&block) {
            *known = holds;
        }
        self.cache.neighbour_holds(block, holds);
    }

    /// What the cache below said is not all that there was: nothing is known any more.
    pub fn lost(&mut self) {
        if self.below == Below::Told {
            for (block, _) in self.cache.residents() {
                self.cache.neighbour_holds(block, false);
            }
        }
    }

    /// The cache below published what it holds.
    ///
    /// # Errors
    /// It is of no use: ask for all of it anew.
    pub fn heard(&mut self, digest: &Digest) -> Result<(), Unusable> {
        let Some(source) = &mut self.source else { return Err(Unusable::Malformed) };
        let own = || self.cache.residents().into_iter().map(|(block, _)| block).collect();
        let result = source.heard(digest, &own, &mut self.news);
        self.counts.summaries_unusable += u64::from(result.is_err());
        self.learn();
        result
    }

    /// A request was answered; whether the cache below had the block, if that shows.
    pub fn answered(&mut self, block: u64, is_write: bool, hit: Option<bool>) {
        if let Some(prober) = &mut self.prober {
            prober.request(block, is_write, hit);
            // Once it is known it is emulated, and found out again if that turns out wrong.
            let is_distrusted = self.source.as_ref().is_some_and(|source| source.is_distrusted());
            if self.source.is_none() || is_distrusted {
                if let Some(copy) = prober.take_copy() {
                    self.source = Some(Box::new(LowerCopy::of(copy)));
                    self.news.all = true;
                    return self.learn();
                }
            }
        }
        if let Some(source) = &mut self.source {
            source.served(block, is_write, hit, &mut self.news);
            self.learn();
        }
    }

    /// A counted reference. What it evicts: [`cache`](Self::cache)`().evicted()`.
    pub fn reference(&mut self, block: u64, is_write: bool) -> Served {
        let served = self.cache.reference(block, is_write, self.mode, || false);
        if !self.cache.is_aware() {
            return served;
        }
        let is_here = served.frame.is_some();
        for gone in self.cache.evicted() {
            self.counts.held_evictions += u64::from(gone.held);
            if let Some(source) = &mut self.source {
                source.own(gone.block, false);
            }
        }
        match &mut self.source {
            Some(source) => match (served.left.is_some() || served.hit, is_here) {
                (false, true) => {
                    source.own(block, true);
                    self.cache.neighbour_holds_last(source.holds(block));
                }
                (true, false) => source.own(block, false),
                _ => {}
            },
            None => {
                let known = self.asked.remove(&block);
                if let Some(holds) = known.or((!served.hit).then_some(false)) {
                    self.cache.neighbour_holds_last(holds);
                }
            }
        }
        served
    }

    fn learn(&mut self) {
        if let Some(source) = &self.source {
            self.news.tell(source.as_ref(), &mut self.cache);
        }
    }

    /// What was counted.
    pub fn counts(&self) -> UpperCounts {
        let source = self.source.as_ref();
        let costs = source.map(|source| source.counts()).unwrap_or_default();
        UpperCounts {
            summaries: costs.publications,
            whole_summaries: costs.whole,
            predictions: costs.predictions,
            confirmed: costs.confirmed,
            distrusted: costs.distrusted,
            false_positives: source.and_then(|source| source.false_positives()),
            ..self.counts
        }
    }

    /// What was found out about the cache below, where that was to be.
    pub fn prober(&self) -> Option<&Prober> {
        self.prober.as_deref()
    }
}
