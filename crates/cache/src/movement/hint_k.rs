//! Hint-K: the last K moves of a block between levels say how active it is (Wu, He, Xie, Qin & Yang
//! 2010 and 2014). A level gives up its least active block, the one used longest ago among equals;
//! a block found below the first level moves one level up if it is more active than the least
//! active block there. What is confirmed of the published rules, and what is ours, is said in
//! `activity.rs` and in `docs/developer/algorithms.md`.
//!
//! Invariants: a block is in one cache at most; none holds more than its capacity.

use super::activity::{ByActivity, History, MAX_STEPS, Steps};
use super::link::{Bid, Left, LinkedLevel, Load, Pass, Passing, Risen, Standing, Upper};
use super::records::BlocksAtHand;
use super::registry::SchemeInfo;
use super::shared::{AtHand, Shared};
use super::stack::Stack;
use crate::Entry;
use crate::policy::{Arguments, Kind, Parameter};

/// The option `steps`, which H-HFA has too.
pub(super) const STEPS: Parameter = Parameter {
    name: "steps",
    kind: Kind::Integer(1, MAX_STEPS),
    default: "4",
    help: "moves of a block that are remembered (the K of Hint-K)",
};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "hint-k",
    summary: "blocks that moved between levels lately stay above those that did not",
    source: "Wu, He, Xie, Qin & Yang, 2010; ACM Transactions on Storage 2014",
    policies: &["lru"],
    two_passes: false,
    parameters: &[STEPS],
    build: |arguments, build| {
        let level = |(_, standing)| HintK::new(arguments, standing);
        Ok(Box::new(Stack::new(&build, level)))
    },
    level: Some(|arguments, standing| Box::new(HintK::new(arguments, standing))),
};

/// A cache.
struct HintK {
    /// The mark of its blocks.
    place: u8,
    capacity: u32,
    has_lower: bool,
    steps: Steps,
    cache: ByActivity,
}

impl HintK {
    fn new(arguments: &Arguments, standing: Standing) -> Self {
        let steps = Steps::new(arguments.integer("steps"));
        let Standing { number, capacity, has_lower, .. } = standing;
        let cache = ByActivity::new(u32::from(number) * steps.values(), &steps);
        Self { place: number + 1, capacity, has_lower, steps, cache }
    }

    /// Takes a block in; the least active one leaves for it.
    fn insert(
        &mut self,
        blocks: &mut BlocksAtHand<'_>,
        entry: Entry,
        (history, owner): (History, u16),
        left: &mut Option<Left>,
    ) {
        if self.cache.len() == self.capacity {
            if let Some(victim) = self.cache.victim(blocks) {
                let (history, owner) = self.take(blocks, victim);
                let history = self.steps.push(history, false);
                let load = self.has_lower.then_some(Load { history, ..Load::default() });
                let (exchanges, may_be_hot_below) = (false, false);
                *left = Some(Left { entry: victim, load, exchanges, may_be_hot_below, owner });
            }
        }
        let block = blocks.get_mut(entry);
        (block.place, block.owner) = (self.place, owner);
        block.history = self.steps.within(history);
        self.cache.push(blocks, entry);
    }

    /// Takes a block out: its history, and whose it is.
    #[inline(always)]
    fn take(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) -> (History, u16) {
        self.cache.remove(blocks, entry);
        let block = blocks.get_mut(entry);
        block.place = 0;
        (block.history, block.owner)
    }
}

impl LinkedLevel for HintK {
    fn lists(&self) -> u32 {
        self.steps.values()
    }

    fn grow(&mut self, _: u32) {}

    #[inline]
    fn bid(&self) -> Bid {
        let has_room = self.cache.len() < self.capacity;
        Bid { has_room, least: self.cache.least(), life: 0 }
    }

    #[inline]
    fn serve(
        &mut self,
        shared: &mut AtHand<'_>,
        entry: Entry,
        _: bool,
        upper: Option<Upper>,
        _: &mut Option<Left>,
    ) -> Pass {
        let blocks = &mut shared.blocks;
        let value = self.steps.value(blocks.get(entry).history);
        let rises = upper.is_some_and(|Upper { bid, .. }| {
            bid.has_room || bid.least.is_some_and(|least| value > least)
        });
        if !rises {
            self.cache.renew(blocks, entry);
            return Pass::Kept;
        }
        let (history, _) = self.take(blocks, entry);
        let history = self.steps.push(history, true);
        Pass::Moved { load: Load { history, ..Load::default() }, nearest: 0.0 }
    }

    #[inline]
    fn pass(
        &mut self,
        shared: &mut AtHand<'_>,
        passing: Passing,
        pass: Pass,
        left: &mut Option<Left>,
    ) -> (Pass, bool) {
        let history = match (pass, passing.upper) {
            (Pass::Moved { load, .. }, _) => load.history,
            (Pass::Fresh { .. }, None) => 0,
            (other, _) => return (other, false),
        };
        self.insert(&mut shared.blocks, passing.entry, (history, passing.owner), left);
        (Pass::Kept, true)
    }

    #[inline]
    fn demoted(
        &mut self,
        shared: &mut AtHand<'_>,
        entry: Entry,
        owner: u16,
        load: Load,
        _: bool,
        left: &mut Option<Left>,
    ) -> Option<f64> {
        self.insert(&mut shared.blocks, entry, (load.history, owner), left);
        None
    }

    fn exchanged(&mut self, shared: &mut AtHand<'_>, risen: Risen, left: &mut Option<Left>) {
        let Risen { entry, owner, load } = risen;
        self.insert(&mut shared.blocks, entry, (load.history, owner), left);
    }

    fn forget(&mut self, shared: &mut AtHand<'_>, entry: Entry) {
        self.take(&mut shared.blocks, entry);
    }

    fn len(&self) -> u32 {
        self.cache.len()
    }

    fn residents(&self, shared: &Shared) -> Vec<Entry> {
        self.cache.iter(&shared.blocks).collect()
    }

    /// A byte of history a block.
    fn overhead_bytes(&self) -> u64 {
        u64::from(self.capacity)
    }

    fn describe(&self, shared: &Shared) -> Vec<(&'static str, String)> {
        let queue = self.residents(shared);
        let value = |&e: &Entry| (e, self.steps.real(shared.blocks.get(e).history));
        let values: Vec<_> = queue.iter().map(value).collect();
        vec![("queue", format!("{queue:?}")), ("khv", format!("{values:?}"))]
    }

    fn validate(&self, shared: &Shared) -> Result<(), String> {
        if self.cache.len() > self.capacity {
            return Err(format!("{} held, capacity {}", self.cache.len(), self.capacity));
        }
        self.cache.check(&shared.blocks)
    }
}
