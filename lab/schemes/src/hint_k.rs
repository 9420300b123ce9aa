//! Hint-K: the last K moves of a block between levels say how active it is (Wu et al., ICPP 2010
//! and IEEE TPDS 2014). A level evicts its least active block, the least recently used among
//! equals. A block found below the first level moves one level up if it is more active than the
//! least active block there. `activity.rs` and `docs/developer/algorithms.md` say which rules are
//! published and which are ours.
//!
//! Invariants: a block is in at most one cache; no cache holds more than its capacity.

use super::activity::{ByActivity, History, MAX_STEPS, Steps};
use super::info::SchemeInfo;
use super::level::{
    Bid, Demoted, Evicted, LevelConfig, Load, Pass, Passing, Promoted, SchemeLevel, Upper,
};
use super::stack::stack;
use undercroft_policy::{Arguments, Entry, Kind, Parameter};

/// The options, which H-HFA has too.
pub(super) const STEPS: Parameter = Parameter {
    name: "steps",
    kind: Kind::Integer(1, MAX_STEPS),
    default: "4",
    help: "moves of a block that are remembered (the K of Hint-K)",
};
pub(super) const ARRIVAL: Parameter = Parameter {
    name: "arrival",
    kind: Kind::Word(&["counts", "nothing"]),
    default: "counts",
    help: "whether a block's arrival from the disk counts as a promotion, or for nothing",
};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "hint-k",
    summary: "blocks that moved between levels lately stay above those that did not",
    source: "Wu et al., ICPP 2010; IEEE TPDS 25(3), 2014",
    policies: &["lru"],
    two_passes: false,
    parameters: &[STEPS, ARRIVAL],
    build: |arguments, build| stack(&build, |_, config| HintK::new(arguments, config)),
};

/// How moves are remembered, and the history of a block that comes from the disk.
pub(super) fn memory(arguments: &Arguments) -> (Steps, History) {
    let steps = Steps::new(arguments.integer("steps"));
    let first = if arguments.word("arrival") == "counts" { steps.push(0, true) } else { 0 };
    (steps, first)
}

/// A cache of Hint-K.
struct HintK {
    capacity: u32,
    has_lower: bool,
    steps: Steps,
    /// The history of a block that comes from the disk.
    first: History,
    blocks: ByActivity<Block>,
}

/// What is known of a resident block: its last moves, and its owner.
#[derive(Clone, Copy, Default)]
struct Block {
    history: History,
    owner: u16,
}

impl HintK {
    fn new(arguments: &Arguments, config: LevelConfig<'_>) -> Self {
        let (steps, first) = memory(arguments);
        let LevelConfig { capacity, has_lower, .. } = config;
        Self { capacity, has_lower, blocks: ByActivity::new(steps.values()), steps, first }
    }

    /// Inserts a block. Returns the least active block if that is evicted for it.
    #[inline]
    fn insert(&mut self, entry: Entry, history: History, owner: u16) -> Option<Evicted> {
        let is_full = self.blocks.len() == self.capacity;
        let victim = if is_full { self.blocks.first() } else { None };
        let evicted = victim.map(|victim| self.evict(victim));
        let history = self.steps.within(history);
        *self.blocks.data_mut(entry) = Block { history, owner };
        self.blocks.push(entry, self.steps.value(history));
        evicted
    }

    #[inline]
    fn evict(&mut self, entry: Entry) -> Evicted {
        let Block { history, owner } = self.take(entry);
        let history = self.steps.push(history, false);
        let load = self.has_lower.then_some(Load { history, ..Load::default() });
        Evicted { entry, owner, load, exchanges: false, awaits: false }
    }

    /// Removes a block.
    #[inline]
    fn take(&mut self, entry: Entry) -> Block {
        let block = self.blocks.data(entry);
        self.blocks.remove(entry, self.steps.value(block.history));
        block
    }
}

impl SchemeLevel for HintK {
    fn grow(&mut self, entries: u32) {
        self.blocks.grow(entries);
    }

    fn bid(&self) -> Bid {
        let has_room = self.blocks.len() < self.capacity;
        Bid { has_room, least: self.blocks.least(), life: 0 }
    }

    fn serve(&mut self, entry: Entry, _: bool, upper: Option<Upper>) -> (Pass, Option<Evicted>) {
        let value = self.steps.value(self.blocks.data(entry).history);
        let rises = upper.is_some_and(|Upper { bid, .. }| {
            bid.has_room || bid.least.is_some_and(|least| value > least)
        });
        if !rises {
            self.blocks.renew(entry, value);
            return (Pass::Kept, None);
        }
        let Block { history, .. } = self.take(entry);
        let history = self.steps.push(history, true);
        (Pass::Moved { load: Load { history, ..Load::default() }, nearest: 0.0 }, None)
    }

    fn pass(&mut self, passing: Passing, pass: Pass) -> (Pass, Option<Evicted>) {
        let history = match (pass, passing.upper) {
            (Pass::Moved { load, .. }, _) => load.history,
            (Pass::Fresh { .. }, None) => self.first,
            (other, _) => return (other, None),
        };
        (Pass::Kept, self.insert(passing.entry, history, passing.owner))
    }

    fn demoted(&mut self, demoted: Demoted) -> (Option<f64>, Option<Evicted>) {
        let Demoted { entry, owner, load, .. } = demoted;
        (None, self.insert(entry, load.history, owner))
    }

    fn exchanged(&mut self, promoted: Promoted) -> Option<Evicted> {
        let Promoted { entry, owner, load } = promoted;
        self.insert(entry, load.history, owner)
    }

    fn discard(&mut self, entry: Entry) {
        self.take(entry);
    }

    fn holds(&self, entry: Entry) -> bool {
        self.blocks.contains(entry)
    }

    fn len(&self) -> u32 {
        self.blocks.len()
    }

    /// One byte of history for each block.
    fn overhead_bytes(&self) -> u64 {
        u64::from(self.capacity)
    }

    fn describe(&self, block: &dyn Fn(Entry) -> u32) -> Vec<(&'static str, String)> {
        let queue: Vec<_> = self.blocks.iter().map(block).collect();
        let value = |entry| (block(entry), self.steps.real(self.blocks.data(entry).history));
        let values: Vec<_> = self.blocks.iter().map(value).collect();
        vec![("queue", format!("{queue:?}")), ("khv", format!("{values:?}"))]
    }

    fn validate(&self) -> Result<(), String> {
        if self.blocks.len() > self.capacity {
            return Err(format!("{} held, capacity {}", self.blocks.len(), self.capacity));
        }
        self.blocks.check()
    }
}
