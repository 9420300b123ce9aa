//! What is heard of clients: judges the evictions that they tell, predicts those that show late,
//! and says how the data of an evicted block could come down. It is the same for all cells, so one
//! of it serves them all.
//!
//! Not here: whether a cell places the block (`cell.rs`).

use undercroft_level::placement::{OnHit, Placement};
use undercroft_level::{Deliveries, Foresight, Portion, Standing};

use crate::adviser::Today;
use crate::cell::{Deed, Offer};
use crate::sample::Event;

/// What a cache does whose placement adapts, and by what means. It is the cache's own knowledge,
/// which a sample would find out too late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adapting {
    /// The part of the cache, from 0 to 1, that places blocks at their eviction now; the rest
    /// places them at their access.
    pub by_eviction: f64,
    /// The share of evictions, from 0 to 1, that come with the block's contents if these are asked
    /// for.
    pub contents: f64,
    /// The share of time, from 0 to 1, in which clients keep the store busy, so that there is no
    /// time for reloads.
    pub busy: f64,
}

impl Adapting {
    /// What a cache with such a placement begins with; `None` if its placement does not adapt.
    pub(crate) fn first(placement: &Placement) -> Option<Self> {
        let Placement::Eviction(rules) = placement else { return None };
        let by_eviction = if rules.is_auto { 0.0 } else { 1.0 };
        let is_adaptive = rules.on_hit == OnHit::Adaptive;
        is_adaptive.then_some(Self { by_eviction, contents: 0.0, busy: 1.0 })
    }

    /// Whether most of the cache places blocks at their access.
    pub(crate) fn is_by_access(&self) -> bool {
        self.by_eviction < 0.5
    }
}

/// What is heard of clients.
pub(crate) struct Heard {
    deliveries: Deliveries,
    /// Of a placement that adapts.
    foresight: Option<Foresight>,
    is_auto: bool,
    contents: Portion,
    reloads: Portion,
    has_evictions: bool,
}

impl Heard {
    /// For a share `rate` of the blocks of today's cache.
    pub(crate) fn new(rate: f64, today: &Today, seed: u64) -> Self {
        let foresight = || Foresight::of_sample(rate, today.blocks, seed);
        let (contents, reloads) = Default::default();
        Self {
            deliveries: Deliveries::of_sample(rate, today.blocks, seed),
            foresight: Adapting::first(&today.placement).map(|_| foresight()),
            is_auto: today.placement.is_auto(),
            contents,
            reloads,
            has_evictions: false,
        }
    }

    /// Most bytes that this takes, for a share `rate` of the blocks.
    pub(crate) fn bytes(rate: f64, today: &Today) -> u64 {
        let predicts = Adapting::first(&today.placement).is_some();
        let foresight = || Foresight::bytes_of_sample(rate, today.blocks);
        let predicting = if predicts { foresight() } else { 0 };
        Deliveries::bytes_of_sample(rate, today.blocks) + predicting
    }

    /// Whether any client has told an eviction.
    pub(crate) fn has_evictions(&self) -> bool {
        self.has_evictions
    }

    /// A client reads the block, or writes it: all of it, or a part.
    pub(crate) fn reference(&mut self, event: &Event, is_write: bool, is_whole: bool) {
        let &Event { block, client, at_us, .. } = event;
        if is_write {
            return self.deliveries.write(block, client, is_whole, at_us);
        }
        self.deliveries.read(block, client, is_whole, at_us, u64::MAX);
        if let Some(foresight) = &mut self.foresight {
            foresight.read(block);
        }
    }

    /// A client told that it evicted the block. `None` if the block is still in use above.
    pub(crate) fn evicted(
        &mut self,
        event: &Event,
        has_contents: bool,
        now: Option<&Adapting>,
    ) -> Option<Deed> {
        self.has_evictions = true;
        match self.deliveries.evict(event.block, event.client, event.at_us, u64::MAX) {
            Standing::Last => {}
            Standing::HeldByOthers | Standing::Stale => return None,
        }
        if let Some(foresight) = &mut self.foresight {
            foresight.evicted(event.block);
        }
        // A cache that places blocks at their access asks for contents only now and then.
        let asks_rarely = now.filter(|now| self.is_auto && now.is_by_access());
        let would_have = self.contents.takes(asks_rarely.map_or(0.0, |now| now.contents));
        let reload_cost = self.reload_cost(now);
        Some(Deed::Evicted(Offer { has_contents: has_contents || would_have, reload_cost }))
    }

    /// The next block that a client is expected to have evicted by now.
    pub(crate) fn foreseen(&mut self, now: Option<&Adapting>) -> Option<(u64, Deed)> {
        let block = self.foresight.as_mut()?.foreseen()?;
        let offer = Offer { has_contents: false, reload_cost: self.reload_cost(now) };
        Some((block, Deed::Foreseen(offer)))
    }

    /// What a reload costs, as a part of a read that a client waits for; `None` if there is no time
    /// for it.
    fn reload_cost(&mut self, now: Option<&Adapting>) -> Option<f64> {
        match now.filter(|_| self.is_auto) {
            None => Some(0.0),
            Some(now) => self.reloads.takes(1.0 - now.busy).then_some(now.busy),
        }
    }

    /// The block's content is void.
    pub(crate) fn discarded(&mut self, block: u64) {
        if let Some(foresight) = &mut self.foresight {
            foresight.forget(block);
        }
    }
}
