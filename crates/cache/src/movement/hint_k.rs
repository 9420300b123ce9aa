//! Hint-K: the last K moves of a block between levels say how active it is (Wu, He, Xie, Qin & Yang
//! 2010 and 2014). A level gives up its least active block, the one used longest ago among equals;
//! a block found below the first level moves one level up if it is more active than the least
//! active block there. What is confirmed of the published rules, and what is ours, is said in
//! `activity.rs` and in `docs/algorithms.md`.
//!
//! Invariants: a block is in one cache at most; none holds more than its capacity.

use super::activity::{ByActivity, History, MAX_STEPS, Steps};
use super::registry::{Build, SchemeInfo};
use super::{Move, Scheme, Topology};
use crate::policy::{Arguments, Kind, Parameter, SpecError};
use crate::{Entry, Reference};

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
    build: |arguments, build| Ok(Box::new(HintK::new(arguments, &build)?)),
};

struct HintK {
    topology: Topology,
    steps: Steps,
    caches: Vec<ByActivity>,
    history: Vec<History>,
}

impl HintK {
    fn new(arguments: &Arguments, build: &Build<'_>) -> Result<Self, SpecError> {
        let topology = build.topology.clone();
        let steps = Steps::new(arguments.integer("steps"));
        let caches = (0..topology.nodes()).map(|_| ByActivity::new(steps)).collect();
        Ok(Self { topology, steps, caches, history: Vec::new() })
    }

    fn value(&self, entry: Entry) -> u32 {
        self.steps.value(self.history[entry as usize])
    }

    /// Inserts a block into the `i`-th cache of a client; what that drives out goes down.
    fn insert(&mut self, client: usize, i: usize, entry: Entry, came: Move, moves: &mut Vec<Move>) {
        let (mut i, mut entry, mut came) = (i, entry, came);
        loop {
            let node = self.topology.path(client)[i];
            let mut victim = None;
            if self.caches[node].len() == self.topology.capacity(node) {
                victim = self.caches[node].victim();
            }
            if let Some(victim) = victim {
                let value = self.value(victim);
                self.caches[node].remove(victim, value);
            }
            let value = self.value(entry);
            self.caches[node].push(entry, value);
            moves.push(came);
            let Some(victim) = victim else { return };
            let Some(below) = self.topology.below(node) else {
                self.history[victim as usize] = 0;
                moves.push(Move::Dropped(victim, node));
                return;
            };
            let history = &mut self.history[victim as usize];
            *history = self.steps.push(*history, false);
            (i, entry, came) = (i + 1, victim, Move::Demoted(victim, below));
        }
    }
}

impl Scheme for HintK {
    fn grow(&mut self, entries: u32) {
        self.caches.iter_mut().for_each(|cache| cache.grow(entries));
        self.history.resize(self.history.len().max(entries as usize), 0);
    }

    fn reference(
        &mut self,
        client: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        let entry = reference.entry();
        let path = self.topology.path(client);
        let Some(i) = path.iter().position(|&node| self.caches[node].contains(entry)) else {
            self.insert(client, 0, entry, Move::Filled(entry, path[0]), moves);
            return None;
        };
        let (node, value) = (path[i], self.value(entry));
        let rises = i > 0 && {
            let above = path[i - 1];
            let has_room = self.caches[above].len() < self.topology.capacity(above);
            has_room || self.caches[above].least().is_some_and(|least| value > least)
        };
        if rises {
            let came = Move::Promoted(entry, path[i - 1]);
            self.caches[node].remove(entry, value);
            let history = &mut self.history[entry as usize];
            *history = self.steps.push(*history, true);
            self.insert(client, i - 1, entry, came, moves);
        } else {
            self.caches[node].renew(entry, value);
        }
        Some(node)
    }

    fn holds(&self, node: usize, entry: Entry) -> bool {
        self.caches[node].contains(entry)
    }

    fn len(&self, node: usize) -> u32 {
        self.caches[node].len()
    }

    /// A byte of history a block.
    fn overhead_bytes(&self, node: usize) -> u64 {
        u64::from(self.topology.capacity(node))
    }

    fn describe(&self, node: usize) -> Vec<(&'static str, String)> {
        let queue: Vec<_> = self.caches[node].iter().collect();
        let value = |&entry: &Entry| (entry, self.steps.real(self.history[entry as usize]));
        let values: Vec<_> = queue.iter().map(value).collect();
        vec![("queue", format!("{queue:?}")), ("khv", format!("{values:?}"))]
    }

    fn validate(&self) -> Result<(), String> {
        for (node, cache) in self.caches.iter().enumerate() {
            if cache.len() > self.topology.capacity(node) {
                return Err(format!("cache {node} holds {}", cache.len()));
            }
            cache.check()?;
        }
        Ok(())
    }
}
