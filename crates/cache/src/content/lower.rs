//! A cache below those of its clients, as a server runs it, whose policy evicts first what a client
//! holds too. What clients hold becomes known
//! * from what they ask for and say that they evict, with `knows=exact`: then the marks of the
//!   policy are all the knowledge that there is. A client that says nothing is emulated, its size
//!   being learned from its requests;
//! * from the summaries that they publish, with `knows=bloom`;
//! * from an emulation of them all as one cache, with `knows=emulation`.
//!
//! The order of things at a request: [`Lower::reference`] is told of it, then the request that
//! drove blocks out of the client comes before the word of that. A wrong belief makes the policy
//! choose another victim, and nothing else.

use std::ops::RangeInclusive;

use super::blocks::Blocks;
use super::cautious::Cautious;
use super::digests::Digests;
use super::emulation::UpperList;
use super::exact::ExchangeOld;
use super::source::{Digest, News, Source};
use super::summary::Unusable;
use crate::hashed::{Found, Frame, HashedCache, Served};
use crate::level::WriteMode;
use crate::placement::{Deliveries, Estimator, Standing};
use crate::policy::{Awareness, Knows};

/// An emulated client whose size is learned may have at least so many blocks, and as many as the
/// cache.
const LEARNED_MIN: u32 = 1 << 16;

/// Bits of a client's filter at most, for each block of the cache; and at least so many in all.
const FILTER_BITS_MAX: u32 = 64;
const FILTER_BITS_MIN: u32 = 1 << 20;

/// Who asks, and when.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asking {
    /// Number of the client.
    pub client: u8,
    /// Whether the client tells what it evicts.
    pub tells: bool,
    /// Whether it asks for the whole block, or writes all of it.
    pub is_whole: bool,
    /// Microseconds of any one clock.
    pub now_us: u64,
}

/// What a content-aware cache of a server has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowerCounts {
    /// Evictions of blocks that a client was believed to hold.
    pub held_evictions: u64,
    /// Blocks that a client asked for though it was believed to hold them.
    pub mistaken: u64,
    /// Summaries that clients published, and their bytes.
    pub summaries: u64,
    /// Bytes of these.
    pub summary_bytes: u64,
    /// Those that could not be used: damaged, too large, or one before was lost.
    pub summaries_unusable: u64,
    /// Requests of clients that say nothing while their emulation was not trusted.
    pub distrusted: u64,
    /// Blocks that the emulated client is taken to hold; 0 without one.
    pub emulated_blocks: u64,
    /// Share of false positives of the worst filter as it is now, in millionths.
    pub false_positives_ppm: u64,
}

/// A cache, and what it knows of those above.
pub struct Lower {
    cache: HashedCache,
    awareness: Awareness,
    /// Who was given what: of `knows=exact`, and of emulations whose size is learned.
    deliveries: Option<Deliveries>,
    /// None: the policy's marks are all that is known.
    source: Option<Box<dyn Source>>,
    /// Whether clients go by what this cache holds: then more care is needed.
    is_cautious: bool,
    learned: Option<Learned>,
    /// Blocks of the emulated client, if given.
    client_blocks: Option<u32>,
    seed: u64,
    news: News,
    counts: LowerCounts,
}

/// The emulation of clients that say nothing, whose size is learned.
struct Learned {
    estimator: Estimator,
    inferred: Vec<u64>,
    was_confident: bool,
}

impl Lower {
    /// Makes a cache content-aware. `client_blocks`: the size of the emulated client, if it is
    /// known, where emulation is asked for.
    pub fn new(
        cache: HashedCache,
        awareness: Awareness,
        client_blocks: Option<u32>,
        seed: u64,
    ) -> Self {
        let capacity = cache.policy().capacity();
        let is_sized = awareness.knows == Knows::Emulation && client_blocks.is_some();
        let is_by_delivery = awareness.knows != Knows::Bloom && !is_sized;
        let learned = is_by_delivery.then(|| Learned {
            estimator: Estimator::new(capacity.max(LEARNED_MIN), seed),
            inferred: Vec::new(),
            was_confident: false,
        });
        let mut lower = Self {
            deliveries: is_by_delivery.then(|| Deliveries::new(capacity, seed)),
            cache,
            awareness,
            source: None,
            is_cautious: false,
            learned,
            client_blocks,
            seed,
            news: News::default(),
            counts: LowerCounts::default(),
        };
        lower.source = lower.new_source(None);
        lower
    }

    /// What is known from; `above`: clients that go by what is here have so many blocks.
    fn new_source(&self, above: Option<u32>) -> Option<Box<dyn Source>> {
        let cautious = above.is_some();
        let period = self.awareness.period(above.unwrap_or(1));
        let capacity = self.cache.policy().capacity();
        let source: Box<dyn Source> = match (self.awareness.knows, self.client_blocks) {
            (Knows::Bloom, _) => {
                let bits = capacity.saturating_mul(FILTER_BITS_MAX).max(FILTER_BITS_MIN);
                Box::new(Digests::new(bits, cautious))
            }
            (Knows::Emulation, Some(blocks)) => {
                Box::new(UpperList::new(blocks, WriteMode::Allocate))
            }
            _ if cautious => Box::new(ExchangeOld::new(Blocks::any(), period as usize)),
            _ => return None,
        };
        Some(if cautious { Box::new(Cautious::new(source, period)) } else { source })
    }

    /// Clients of so many blocks go by what this cache holds from now on, or (none) do not. Where
    /// each prefers to evict what the other has, both could drop the last copy: so this one then
    /// goes by what was an exchange ago. What was known is forgotten when it changes.
    pub fn followed_by(&mut self, above: Option<u32>) {
        if above.is_some() == self.is_cautious {
            return;
        }
        self.is_cautious = above.is_some();
        if let Some(source) = &self.source {
            let counts = source.counts();
            self.counts.summaries += counts.publications;
            self.counts.summary_bytes += counts.bytes;
            self.counts.distrusted += counts.distrusted;
        }
        self.source = self.new_source(above);
        if let Some(deliveries) = &mut self.deliveries {
            *deliveries = Deliveries::new(self.cache.policy().capacity(), self.seed);
        }
        for (block, _) in self.cache.residents() {
            self.cache.neighbour_holds(block, false);
        }
    }

    /// The cache.
    pub fn cache(&self) -> &HashedCache {
        &self.cache
    }

    /// A counted reference of a client. `connected`: a bit for each client that is. `cold`: see
    /// [`HashedCache::reference`].
    pub fn reference(
        &mut self,
        block: u64,
        is_write: bool,
        mode: WriteMode,
        (asking, connected): (Asking, u64),
        cold: impl FnOnce() -> bool,
    ) -> Served {
        if let Some(source) = &mut self.source {
            source.exchange(&Vec::new, &mut self.news);
            self.learn();
        }
        let served = self.cache.reference(block, is_write, mode, cold);
        let is_here = served.frame.is_some();
        self.count_evicted();
        if let Some(source) = &mut self.source {
            match (served.left.is_some() || served.hit, is_here) {
                (false, true) => {
                    source.own(block, true);
                    self.cache.neighbour_holds_last(source.holds(block));
                }
                (true, false) => source.own(block, false),
                _ => {}
            }
        }
        let (was_held, is_held) = self.delivered(block, is_write, asking, connected);
        match &mut self.source {
            None if is_here => self.cache.neighbour_holds_last(is_held),
            None => {}
            Some(source) => {
                if !is_write && self.deliveries.is_none() && source.holds(block) {
                    self.counts.mistaken += 1;
                }
                source.served(block, is_write, Some(served.hit), &mut self.news);
                if !is_write && self.client_blocks.is_some() {
                    // It comes there, and as a rule another one goes.
                    source.moved(2);
                }
                if is_held && !was_held {
                    source.came(block, &mut self.news);
                }
                self.learn();
            }
        }
        self.place_inferred(asking, connected);
        served
    }

    /// Notes who gets a block: whether a client held it before, and whether one does now.
    fn delivered(
        &mut self,
        block: u64,
        is_write: bool,
        asking: Asking,
        connected: u64,
    ) -> (bool, bool) {
        let Some(deliveries) = &mut self.deliveries else { return (false, false) };
        let Asking { client, tells, is_whole, now_us } = asking;
        let before = deliveries.holders(block);
        let own = 1_u64.checked_shl(client.into()).unwrap_or(0);
        if !is_write && before & own != 0 {
            self.counts.mistaken += 1;
        }
        let mut is_known = tells;
        if let (false, Some(learned)) = (tells, &mut self.learned) {
            learned.estimator.observe(block, is_write, &mut learned.inferred);
            is_known = learned.estimator.is_confident();
            self.counts.distrusted += u64::from(!is_known);
            if std::mem::replace(&mut learned.was_confident, is_known) && !is_known {
                // What it was taken to hold is no longer believed.
                deliveries.forget_client(client);
                self.news.all = self.source.is_none();
            }
        }
        if is_write {
            deliveries.write(block, client, is_whole, now_us);
        } else {
            deliveries.read(block, client, is_whole, now_us, connected);
        }
        if !is_known {
            deliveries.evict(block, client, u64::MAX, connected);
        }
        let held = |holders: u64| holders & connected != 0;
        let is_held = held(deliveries.holders(block));
        if std::mem::take(&mut self.news.all) {
            for (block, _) in self.cache.residents() {
                self.cache.neighbour_holds(block, held(deliveries.holders(block)));
            }
        }
        (held(before), is_held)
    }

    /// What the emulated client must have evicted.
    fn place_inferred(&mut self, asking: Asking, connected: u64) {
        let Some(learned) = self.learned.as_mut().filter(|one| !one.inferred.is_empty()) else {
            return;
        };
        let mut inferred = std::mem::take(&mut learned.inferred);
        for gone in inferred.drain(..) {
            self.gone(gone, asking.client, u64::MAX, connected);
        }
        if let Some(learned) = &mut self.learned {
            learned.inferred = inferred;
        }
    }

    /// A client says that it evicted a block at a time: what that is worth.
    pub fn evicted(&mut self, block: u64, client: u8, at_us: u64, connected: u64) -> Standing {
        self.gone(block, client, at_us, connected)
    }

    fn gone(&mut self, block: u64, client: u8, at_us: u64, connected: u64) -> Standing {
        let Some(deliveries) = &mut self.deliveries else { return Standing::Last };
        let standing = deliveries.evict(block, client, at_us, connected);
        if standing == Standing::Last {
            match &mut self.source {
                None => self.cache.neighbour_holds(block, false),
                Some(source) => {
                    source.went(block, &mut self.news);
                    self.learn();
                }
            }
        }
        standing
    }

    /// A client says that it keeps a block.
    pub fn held(&mut self, block: u64, client: u8, now_us: u64) {
        let Some(deliveries) = &mut self.deliveries else { return };
        deliveries.read(block, client, true, now_us, u64::MAX);
        match &mut self.source {
            None => self.cache.neighbour_holds(block, true),
            Some(source) => {
                source.came(block, &mut self.news);
                self.learn();
            }
        }
    }

    /// A client published what it holds.
    ///
    /// # Errors
    /// It is of no use: nothing has changed.
    pub fn heard(&mut self, digest: &Digest) -> Result<(), Unusable> {
        let Some(source) = &mut self.source else { return Err(Unusable::Malformed) };
        let own = || self.cache.residents().into_iter().map(|(block, _)| block).collect();
        let result = source.heard(digest, &own, &mut self.news);
        self.counts.summaries_unusable += u64::from(result.is_err());
        self.learn();
        result
    }

    /// A client's number goes to another, or the client has gone for good.
    pub fn forget_client(&mut self, client: u8) {
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.forget_client(client);
        }
        if let Some(source) = &mut self.source {
            source.forget(client, &mut self.news);
            self.learn();
        } else if let Some(deliveries) = &self.deliveries {
            for (block, _) in self.cache.residents() {
                self.cache.neighbour_holds(block, deliveries.holders(block) != 0);
            }
        }
    }

    /// Tells the policy what is known now.
    fn learn(&mut self) {
        if let Some(source) = &self.source {
            self.news.tell(source.as_ref(), &mut self.cache);
        }
    }

    fn count_evicted(&mut self) {
        for gone in self.cache.evicted() {
            self.counts.held_evictions += u64::from(gone.held);
            if let Some(source) = &mut self.source {
                source.own(gone.block, false);
            }
        }
    }

    /// Makes a block resident that nobody asked for: see [`HashedCache::place`].
    pub fn place(&mut self, block: u64) -> Found {
        let found = self.cache.place(block);
        self.count_evicted();
        if !found.hit {
            let holds = match (&mut self.source, &self.deliveries) {
                (Some(source), _) => {
                    source.own(block, true);
                    source.holds(block)
                }
                (None, Some(deliveries)) => deliveries.holders(block) != 0,
                (None, None) => false,
            };
            self.cache.neighbour_holds(block, holds);
        }
        found
    }

    /// Forgets a block entirely: the frame it had, if any.
    pub fn discard(&mut self, block: u64) -> Option<Frame> {
        let frame = self.cache.discard(block);
        if let (Some(_), Some(source)) = (frame, &mut self.source) {
            source.own(block, false);
        }
        frame
    }

    /// Somebody changed a range other than by writing: nobody is known to have its blocks.
    pub fn forget_within(&mut self, blocks: &RangeInclusive<u64>) {
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.forget_within(blocks);
        }
    }

    /// See [`HashedCache::warm`].
    pub fn warm(&mut self, blocks: &[u64], frames: &mut Vec<Frame>) {
        self.cache.warm(blocks, frames);
        if let Some(deliveries) = &self.deliveries {
            deliveries.warm(blocks);
        }
    }

    /// Goes on with the blocks and the policy of a saved cache. Of the clients nothing is known.
    pub fn take_on(&mut self, saved: HashedCache) {
        self.cache = saved;
        self.source = self.new_source(None);
        self.is_cautious = false;
        if let Some(source) = &mut self.source {
            self.cache.residents().into_iter().for_each(|(block, _)| source.own(block, true));
        }
    }

    /// What was counted.
    pub fn counts(&self) -> LowerCounts {
        let source = self.source.as_ref();
        let costs = source.map(|source| source.counts()).unwrap_or_default();
        let false_positives = source.and_then(|source| source.false_positives()).unwrap_or(0.0);
        let learned = self.learned.as_ref().filter(|learned| learned.was_confident);
        let learned = learned.map_or(0, |learned| learned.estimator.size());
        LowerCounts {
            summaries: self.counts.summaries + costs.publications,
            summary_bytes: self.counts.summary_bytes + costs.bytes,
            distrusted: self.counts.distrusted + costs.distrusted,
            emulated_blocks: self.client_blocks.unwrap_or(learned).into(),
            false_positives_ppm: (false_positives * 1e6) as u64,
            ..self.counts
        }
    }

    /// Checks the invariants of the cache, and of what was delivered.
    ///
    /// # Errors
    /// Says which does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.cache.validate()?;
        self.deliveries.as_ref().map_or(Ok(()), Deliveries::validate)
    }
}
