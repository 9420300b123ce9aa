//! One cache of HFA: the hot queue Q1 and the base queue Q2, how much of the cache Q1 may take, and
//! what the cache remembers of moves.
//!
//! Invariants (checked by [`Level::validate`]): Q1 and Q2 together hold no more than the capacity,
//! Q1 no more than its target; `cold_in_hot`, `warm_in_base` and the tally of hits agree with the
//! blocks in the queues, and the sums with what they will be at the end of the slot.

use super::super::records::{Block, BlocksAtHand};
use super::super::shared::{AtHand, Shared};
use super::Variant;
use super::expiry::Expiry;
use super::foretold::Foretold;
use super::queue::Queue;
use super::t_out::TOut;
use crate::Entry;
use crate::heap::{LazyHeap, Words};

/// Where F comes from.
pub(super) enum Hints {
    Table(TOut),
    Foretold(Foretold),
}

impl Hints {
    #[inline(always)]
    pub(super) fn frequency(&mut self, block: &Block, entry: Entry, slot: u64) -> f64 {
        match self {
            Self::Table(table) => table.frequency(block, entry, slot),
            Self::Foretold(foretold) => foretold.frequency(entry, slot),
        }
    }

    /// One more move of a block: F with it.
    #[inline(always)]
    pub(super) fn count(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry, slot: u64) -> f64 {
        match self {
            Self::Table(table) => table.count(blocks, entry, slot),
            Self::Foretold(foretold) => foretold.frequency(entry, slot),
        }
    }

    /// Whether there is any record of a block, old or not.
    pub(super) fn knows(&self, block: &Block) -> bool {
        match self {
            Self::Table(table) => table.knows(block),
            Self::Foretold(_) => true,
        }
    }

    #[inline(always)]
    pub(super) fn remembers(&mut self, block: &Block, entry: Entry, slot: u64) -> bool {
        match self {
            Self::Table(table) => table.remembers(block, entry, slot),
            Self::Foretold(foretold) => foretold.frequency(entry, slot) > 0.0,
        }
    }
}

pub(super) struct Level<V: Variant> {
    pub(super) capacity: u32,
    /// Blocks that Q1 may hold: c1 of the paper.
    pub(super) target: u32,
    pub(super) hot: V::Hot,
    pub(super) base: V::Base,
    pub(super) hints: Hints,
    /// The blocks of Q1 by hotness, the hottest first, nearest the head among equals: who is
    /// exchanged. Only where D-HFA exchanges.
    pub(super) hottest: Option<Hottest>,
    /// Blocks with hotness by when it was found.
    pub(super) expiry: Expiry,
    /// Blocks without hotness in Q1, and with in Q2.
    cold_in_hot: u32,
    pub(super) warm_in_base: u32,
    /// What the sums of both over the references of the slot come to if nothing changes any more.
    /// On the way to that they may wrap around.
    pub(super) cold_sum: u64,
    pub(super) warm_sum: u64,
    /// Number of blocks in Q2 that were hit, and how many have been how often.
    hit_in_base: u32,
    base_hits: Vec<u32>,
}

/// The blocks of Q1 by hotness.
pub(super) struct Hottest {
    /// By falling hotness, then from the head on.
    heap: LazyHeap<Words>,
    /// Places given out at each end.
    head: u64,
    tail: u64,
}

/// The place of a block that is neither the newest nor the oldest.
const MIDDLE: u64 = 1 << 63;

/// A word that falls as hotness, which is not negative, rises.
fn falling(heat: f64) -> u64 {
    !heat.to_bits()
}

impl Hottest {
    pub(super) fn new() -> Self {
        Self { heap: LazyHeap::new(), head: MIDDLE, tail: MIDDLE }
    }

    pub(super) fn first(&mut self) -> Option<Entry> {
        self.heap.first().map(|(_, entry)| entry)
    }

    fn push(&mut self, entry: Entry, heat: f64, at_head: bool) {
        let position = if at_head { &mut self.head } else { &mut self.tail };
        *position = if at_head { *position - 1 } else { *position + 1 };
        self.heap.push(Words(falling(heat), *position), entry);
    }

    fn change(&mut self, entry: Entry, heat: f64) {
        let Words(_, position) = self.heap.key(entry);
        self.heap.update(Words(falling(heat), position), entry);
    }
}

/// One more or less of a number of blocks, and of its sum over the slot.
#[inline(always)]
fn count(blocks: &mut u32, sum: &mut u64, shared: &AtHand<'_>, comes: bool, goes: bool) {
    let left = shared.left_in_slot();
    *blocks = blocks.wrapping_add(u32::from(comes)).wrapping_sub(u32::from(goes));
    let part = |is_so: bool| if is_so { left } else { 0 };
    *sum = sum.wrapping_add(part(comes)).wrapping_sub(part(goes));
}

impl<V: Variant> Level<V> {
    pub(super) fn new(
        capacity: u32,
        target: u32,
        queues: (V::Hot, V::Base),
        hints: Hints,
        expiry: Expiry,
    ) -> Self {
        let (hot, base) = queues;
        Self {
            capacity,
            target,
            hot,
            base,
            hints,
            hottest: None,
            expiry,
            cold_in_hot: 0,
            warm_in_base: 0,
            cold_sum: 0,
            warm_sum: 0,
            hit_in_base: 0,
            base_hits: Vec::new(),
        }
    }

    pub(super) fn grow(&mut self, entries: u32) {
        self.hot.grow(entries);
        self.base.grow(entries);
        if let Hints::Table(table) = &mut self.hints {
            table.grow(entries);
        }
        if let Some(hottest) = &mut self.hottest {
            hottest.heap.grow(entries);
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        self.hot.len() + self.base.len()
    }

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    /// Puts a block, which is in no queue, into Q1, at the head or in the last place for it.
    #[inline(always)]
    pub(super) fn push_hot(&mut self, shared: &mut AtHand<'_>, entry: Entry, at_head: bool) {
        let block = shared.blocks.get_mut(entry);
        block.is_hot = true;
        let heat = block.heat;
        if at_head {
            self.hot.push(&mut shared.blocks, entry);
        } else {
            self.hot.push_last(&mut shared.blocks, entry);
        }
        self.count_cold(shared, heat == 0.0, false);
        if let Some(hottest) = &mut self.hottest {
            hottest.push(entry, heat, at_head);
        }
    }

    /// Puts a block, which is in no queue, into Q2.
    #[inline(always)]
    pub(super) fn push_base(&mut self, shared: &mut AtHand<'_>, entry: Entry) {
        let block = shared.blocks.get_mut(entry);
        block.is_hot = false;
        let (heat, hits) = (block.heat, usize::from(block.hits));
        self.base.push(&mut shared.blocks, entry);
        self.count_warm(shared, heat > 0.0, false);
        if hits > 0 {
            self.hit_in_base += 1;
            if self.base_hits.len() <= hits {
                self.base_hits.resize(hits + 1, 0);
            }
            self.base_hits[hits] += 1;
        }
    }

    /// Takes a block out of its queue; it is in none then, and still here.
    #[inline(always)]
    pub(super) fn pull(&mut self, shared: &mut AtHand<'_>, entry: Entry) {
        let Block { heat, hits, is_hot, .. } = *shared.blocks.get(entry);
        if is_hot {
            self.hot.remove(&mut shared.blocks, entry);
            self.count_cold(shared, false, heat == 0.0);
            if let Some(hottest) = &mut self.hottest {
                hottest.heap.remove(entry);
            }
        } else {
            self.base.remove(&mut shared.blocks, entry);
            if hits > 0 {
                self.hit_in_base -= 1;
                self.base_hits[usize::from(hits)] -= 1;
            }
            self.count_warm(shared, false, heat > 0.0);
        }
    }

    /// A block of Q1 has no hotness where it had, or the other way round.
    #[inline(always)]
    fn count_cold(&mut self, shared: &AtHand<'_>, comes: bool, goes: bool) {
        count(&mut self.cold_in_hot, &mut self.cold_sum, shared, comes, goes);
    }

    /// A block of Q2 has hotness where it had none, or the other way round.
    #[inline(always)]
    fn count_warm(&mut self, shared: &AtHand<'_>, comes: bool, goes: bool) {
        count(&mut self.warm_in_base, &mut self.warm_sum, shared, comes, goes);
    }

    /// A block of Q1 by recency has another hotness, where it stands.
    pub(super) fn reheat_hot(&mut self, shared: &mut AtHand<'_>, entry: Entry, before: f64) {
        let heat = shared.blocks.get(entry).heat;
        self.count_cold(shared, heat == 0.0, before == 0.0);
        if let Some(hottest) = &mut self.hottest {
            hottest.change(entry, heat);
        }
    }

    /// A block of Q2 has no hotness any more.
    pub(super) fn cool_base(&mut self, shared: &mut AtHand<'_>, entry: Entry) {
        self.base.cool(&mut shared.blocks, entry);
        self.count_warm(shared, false, true);
    }

    /// The sums of the slot to come, if nothing changes in it.
    pub(super) fn start_sums(&mut self, period: u64) {
        self.cold_sum = u64::from(self.cold_in_hot).wrapping_mul(period);
        self.warm_sum = u64::from(self.warm_in_base).wrapping_mul(period);
    }

    /// Fewest hits of a block in Q2.
    pub(super) fn least_base_hits(&self) -> u16 {
        if self.hit_in_base < self.base.len() {
            return 0;
        }
        self.base_hits.iter().position(|&blocks| blocks > 0).unwrap_or(0) as u16
    }

    pub(super) fn validate(&self, shared: &Shared) -> Result<(), String> {
        let blocks = &shared.blocks;
        let (hot, base) = (self.hot.tail_first(blocks), self.base.tail_first(blocks));
        for (queue, is_hot) in [(&hot, true), (&base, false)] {
            if queue.iter().any(|&entry| blocks.get(entry).is_hot != is_hot) {
                return Err("a block says that it is elsewhere".into());
            }
        }
        if self.hot.len() > self.target || self.len() > self.capacity {
            return Err(format!("{} hot of {}, {} in all", hot.len(), self.target, self.len()));
        }
        let is_warm = |entry: &&Entry| blocks.get(**entry).heat > 0.0;
        let cold = hot.iter().filter(|entry| !is_warm(entry)).count();
        let warm = base.iter().filter(is_warm).count();
        if (cold, warm) != (self.cold_in_hot as usize, self.warm_in_base as usize) {
            return Err(format!("{cold} cold in Q1 and {warm} warm in Q2 are counted otherwise"));
        }
        let mut base_hits = vec![0; self.base_hits.len()];
        let hits = base.iter().map(|&entry| usize::from(blocks.get(entry).hits));
        hits.filter(|&hits| hits > 0).for_each(|hits| base_hits[hits] += 1);
        if base_hits != self.base_hits || self.hit_in_base != base_hits.iter().sum() {
            return Err("blocks that were hit in Q2 are counted otherwise".into());
        }
        if let Hints::Table(table) = &self.hints {
            table.validate(blocks)?;
        }
        let residents: Vec<Entry> = hot.iter().chain(&base).copied().collect();
        self.expiry.check(blocks, &residents)?;
        self.hottest.as_ref().map_or(Ok(()), |hottest| hottest.heap.check())?;
        self.hot.check(blocks)?;
        self.base.check(blocks)
    }
}
