//! Hint-K: the last K moves of a block between levels say how active it is (Wu, He, Xie, Qin & Yang
//! 2010 and 2014). A level gives up its least active block, the one used longest ago among equals;
//! a block found below the first level moves one level up if it is more active than the least
//! active block there. What is confirmed of the published rules, and what is ours, is said in
//! `activity.rs` and in `docs/algorithms.md`.
//!
//! Invariants: a block is in one cache at most; none holds more than its capacity.

use super::Gauges;
use super::activity::{ByActivity, History, MAX_STEPS, Steps};
use super::link::{Bid, Left, LinkedLevel, Load, Pass, Passing, Risen, Standing, Upper};
use super::registry::SchemeInfo;
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
    capacity: u32,
    has_lower: bool,
    steps: Steps,
    cache: ByActivity,
    /// Of the blocks that are here.
    known: Vec<Known>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    history: History,
    owner: u16,
}

impl HintK {
    fn new(arguments: &Arguments, standing: Standing) -> Self {
        let steps = Steps::new(arguments.integer("steps"));
        let Standing { capacity, has_lower, .. } = standing;
        Self { capacity, has_lower, steps, cache: ByActivity::new(steps), known: Vec::new() }
    }

    fn value(&self, entry: Entry) -> u32 {
        self.steps.value(self.known[entry as usize].history)
    }

    /// Takes a block in; the least active one leaves for it.
    fn insert(&mut self, entry: Entry, known: Known, left: &mut Option<Left>) {
        let known = Known { history: self.steps.within(known.history), ..known };
        if self.cache.len() == self.capacity {
            if let Some(victim) = self.cache.victim() {
                let Known { history, owner } = self.take(victim);
                let history = self.steps.push(history, false);
                let load = self.has_lower.then_some(Load { history, ..Load::default() });
                let (exchanges, awaits) = (false, false);
                *left = Some(Left { entry: victim, load, exchanges, awaits, owner });
            }
        }
        self.known[entry as usize] = known;
        self.cache.push(entry, self.value(entry));
    }

    fn take(&mut self, entry: Entry) -> Known {
        self.cache.remove(entry, self.value(entry));
        std::mem::take(&mut self.known[entry as usize])
    }
}

impl LinkedLevel for HintK {
    fn grow(&mut self, entries: u32) {
        self.cache.grow(entries);
        self.known.resize(self.known.len().max(entries as usize), Known::default());
    }

    fn open(&mut self) {}

    fn close(&mut self) {}

    fn skip(&mut self, _: u64) {}

    fn bid(&self) -> Bid {
        let has_room = self.cache.len() < self.capacity;
        Bid { has_room, least: self.cache.least(), life: 0 }
    }

    fn serve(&mut self, entry: Entry, _: bool, upper: Option<Upper>, _: &mut Option<Left>) -> Pass {
        let value = self.value(entry);
        let rises = upper.is_some_and(|Upper { bid, .. }| {
            bid.has_room || bid.least.is_some_and(|least| value > least)
        });
        if !rises {
            self.cache.renew(entry, value);
            return Pass::Kept;
        }
        let history = self.steps.push(self.take(entry).history, true);
        Pass::Moved { load: Load { history, ..Load::default() }, nearest: 0.0 }
    }

    fn pass(&mut self, passing: Passing, pass: Pass, left: &mut Option<Left>) -> (Pass, bool) {
        let history = match (pass, passing.upper) {
            (Pass::Moved { load, .. }, _) => load.history,
            (Pass::Fresh { .. }, None) => 0,
            (other, _) => return (other, false),
        };
        self.insert(passing.entry, Known { history, owner: passing.owner }, left);
        (Pass::Kept, true)
    }

    fn demoted(
        &mut self,
        entry: Entry,
        owner: u16,
        load: Load,
        _: bool,
        left: &mut Option<Left>,
    ) -> Option<f64> {
        self.insert(entry, Known { history: load.history, owner }, left);
        None
    }

    fn exchanged(&mut self, risen: Risen, left: &mut Option<Left>) {
        let Risen { entry, owner, load } = risen;
        self.insert(entry, Known { history: load.history, owner }, left);
    }

    fn forget(&mut self, entry: Entry) {
        if self.holds(entry) {
            self.take(entry);
        }
    }

    fn holds(&self, entry: Entry) -> bool {
        self.cache.contains(entry)
    }

    fn knows(&self, entry: Entry) -> bool {
        self.holds(entry)
    }

    fn len(&self) -> u32 {
        self.cache.len()
    }

    fn remembered_max(&self) -> u32 {
        0
    }

    fn residents(&self) -> Vec<Entry> {
        self.cache.iter().collect()
    }

    fn gauges(&self) -> Option<Gauges> {
        None
    }

    /// A byte of history a block.
    fn overhead_bytes(&self) -> u64 {
        u64::from(self.capacity)
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let queue: Vec<_> = self.cache.iter().collect();
        let value = |&entry: &Entry| (entry, self.steps.real(self.known[entry as usize].history));
        let values: Vec<_> = queue.iter().map(value).collect();
        vec![("queue", format!("{queue:?}")), ("khv", format!("{values:?}"))]
    }

    fn validate(&self) -> Result<(), String> {
        if self.cache.len() > self.capacity {
            return Err(format!("{} held, capacity {}", self.cache.len(), self.capacity));
        }
        self.cache.check()
    }
}
