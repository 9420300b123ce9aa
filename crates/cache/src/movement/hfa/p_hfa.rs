//! P-HFA: HFA over PROMOTE. Q1 goes by hotness, Q2 is LRU. A block on its way up is owned by the
//! first cache that remembers enough moves of it, else by the one whose coin says so; a block that
//! a cache passes up counts there as a move. What a cache drives out is gone.
//!
//! Writes are those of PROMOTE: they update the owner's copy, or are owned by the first cache.

use super::super::coins::Coins;
use super::super::link::{Load, Passing, Standing, Upper};
use super::super::promote::Chance;
use super::super::shared::{AtHand, Shared};
use super::queue::Queue;
use super::{Base, Hfa, Variant};
use crate::Entry;
use crate::policy::Arguments;

/// With which probabilities a cache passes blocks to those above it.
pub(super) struct Chances {
    /// By the number of the cache above, with the blocks that it was introduced with.
    of: Vec<Option<(u64, Chance)>>,
    coins: Coins,
    seed: u64,
    capacity: u32,
    start: f64,
    pub(super) is_adaptive: bool,
}

impl Chances {
    pub(super) fn new(
        arguments: &Arguments,
        base: Base,
        standing: Standing,
        draws: &[f64],
    ) -> Self {
        let is_promote = base == Base::Promote;
        Self {
            of: Vec::new(),
            coins: Coins::new(standing.seed, 1, draws),
            seed: standing.seed,
            capacity: standing.capacity,
            start: if is_promote { arguments.real("start") } else { 0.0 },
            is_adaptive: is_promote && arguments.word("probability") == "adaptive",
        }
    }

    /// Who stands above. The levels there have streams of random numbers of their own, before that
    /// of this one.
    pub(super) fn introduce(&mut self, upper: u16, blocks: u64, levels: u16) {
        let at = usize::from(upper);
        if self.of.len() <= at {
            self.of.resize(at + 1, None);
        }
        if self.of.iter().all(Option::is_none) && levels > 0 {
            self.coins = Coins::new(self.seed.wrapping_add(levels.into()), 1, &[]);
        }
        if self.of[at].is_none_or(|(known, _)| known != blocks) {
            let lower = Some(self.capacity);
            let chance = Chance::new(self.start, self.is_adaptive, blocks, lower);
            self.of[at] = Some((blocks, chance));
        }
    }

    fn passes(&mut self, upper: u16) -> bool {
        match self.of.get(usize::from(upper)) {
            Some(Some((_, chance))) => self.coins.draw(0) < chance.probability(),
            _ => false,
        }
    }

    /// What is known of the level above of that number, where probabilities adapt.
    #[inline(always)]
    fn adapting(&self, upper: u16) -> Option<&Chance> {
        let chance = self.of.get(usize::from(upper)).filter(|_| self.is_adaptive);
        chance.and_then(Option::as_ref).map(|(_, chance)| chance)
    }

    pub(super) fn tell(&mut self, upper: u16, capacity: u32, now: u64, lives: [f64; 2]) {
        if let Some(Some((_, chance))) = self.of.get_mut(usize::from(upper)) {
            chance.tell(capacity, now, lives);
        }
    }

    /// That of the first cache above, 0 where there is none.
    pub(super) fn first_probability(&self) -> f64 {
        self.of.iter().flatten().next().map_or(0.0, |(_, chance)| chance.probability())
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        self.of.iter().flatten().try_for_each(|(_, chance)| chance.validate(self.is_adaptive))
    }
}

impl<V: Variant> Hfa<V> {
    /// References between the last uses of the newest and the oldest block of Q2, which is what
    /// PROMOTE manages.
    pub(super) fn own_life(&self, shared: &Shared) -> u64 {
        if !self.chances.is_adaptive || !self.level.is_full() {
            return 0;
        }
        let used = |entry: Entry| shared.blocks.get(entry).updated;
        let ends = self.level.base.ends(&shared.blocks);
        ends.map_or(0, |[newest, oldest]| used(newest).saturating_sub(used(oldest)))
    }

    /// Whether the level above of that number may say its life now.
    #[inline(always)]
    pub(super) fn awaits(&self, shared: &Shared, upper: u16) -> bool {
        let Some(chance) = self.chances.adapting(upper) else { return false };
        let (capacity, now) = (self.level.capacity, shared.now());
        chance.may_await(now) && chance.awaits(capacity, now, self.own_life(shared) as f64)
    }

    /// A block that was found here is passed to the level above, if the coin says so.
    pub(super) fn promote(
        &mut self,
        shared: &mut AtHand<'_>,
        entry: Entry,
        is_write: bool,
        upper: Upper,
    ) -> Option<Load> {
        if is_write || !self.chances.passes(upper.number) {
            return None;
        }
        self.level.pull(shared, entry);
        shared.blocks.get_mut(entry).place = 0;
        self.count_move(shared, entry);
        Some(Load::default())
    }

    /// Whether a block that comes up is owned here, and counts as one that moves if not. What is
    /// written is owned by the first cache.
    pub(super) fn owns(&mut self, shared: &mut AtHand<'_>, passing: Passing) -> bool {
        let Passing { entry, is_write, upper, .. } = passing;
        let Some(upper) = upper else { return true };
        if is_write {
            return false;
        }
        let is_rare = self.frequency(shared, entry) <= self.settings.least;
        let is_passed = is_rare && self.chances.passes(upper);
        if is_passed {
            self.count_move(shared, entry);
        }
        !is_passed
    }
}
