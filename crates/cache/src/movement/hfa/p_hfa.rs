//! P-HFA: HFA over PROMOTE. Q1 goes by hotness, Q2 is LRU. A block on its way up is owned by the
//! first cache that remembers enough moves of it, else by the one whose coin says so; a block that
//! a cache passes up counts there as a move. What a cache drives out is gone.
//!
//! Writes are those of PROMOTE: they update the owner's copy, or are owned by the first cache.

use super::super::promote::Chances;
use super::super::registry::Build;
use super::super::{Gauges, Move, Scheme};
use super::{Arrival, Base, Hfa};
use crate::policy::Arguments;
use crate::{Entry, Reference};

pub(super) struct PHfa {
    hfa: Hfa,
    chances: Chances,
}

impl PHfa {
    pub(super) fn new(arguments: &Arguments, build: &Build<'_>) -> Self {
        let chances = Chances::new(arguments, build);
        Self { hfa: Hfa::new(Base::Promote, arguments, build), chances }
    }

    /// References between the last uses of the newest and the oldest block of Q2, which is what
    /// PROMOTE manages.
    fn life(&self, node: usize) -> f64 {
        if !self.hfa.levels[node].is_full() {
            return 0.0;
        }
        let base = &self.hfa.levels[node].base;
        let used =
            |entry: Option<Entry>| entry.map_or(0, |entry| self.hfa.blocks[entry as usize].updated);
        used(base.newest()).saturating_sub(used(base.tail())) as f64
    }

    fn tell_lives(&mut self, client: usize) {
        for i in 1..self.hfa.topology.path(client).len() {
            let (above, node) = (self.hfa.node(client, i - 1), self.hfa.node(client, i));
            let lives = [self.life(above), self.life(node)];
            let capacity = self.hfa.topology.capacity(node);
            self.chances.tell(above, capacity, self.hfa.now, lives);
        }
    }

    /// Whether the `i`-th cache passes a block up that is not hot there.
    fn passes(&mut self, client: usize, i: usize) -> bool {
        i > 0 && self.chances.passes(self.hfa.node(client, i), self.hfa.node(client, i - 1))
    }

    /// A block comes up from below the `i`-th cache, which is not to pass it, or from there on.
    fn rise(
        &mut self,
        client: usize,
        mut i: usize,
        entry: Entry,
        moved: bool,
        moves: &mut Vec<Move>,
    ) {
        while i > 0 {
            i -= 1;
            let node = self.hfa.node(client, i);
            let f = self.hfa.levels[node].hints.frequency(entry, self.hfa.slot);
            if f <= self.hfa.settings.least && self.passes(client, i) {
                self.hfa.count_move(node, entry);
                continue;
            }
            let came = if moved { Move::Promoted } else { Move::Filled };
            let came = came(entry, node);
            let arrival = Arrival { moved, hint: 0.0, exchanges: false, came };
            self.hfa.receive(client, i, entry, arrival, moves);
            return;
        }
    }
}

impl Scheme for PHfa {
    fn grow(&mut self, entries: u32) {
        self.hfa.grow(entries);
    }

    fn reference(
        &mut self,
        client: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        let entry = reference.entry();
        self.hfa.begin(client, entry);
        self.tell_lives(client);
        let at = self.hfa.find(client, entry);
        let found = at.map(|i| self.hfa.node(client, i));
        match (at, found) {
            (Some(i), Some(node)) => {
                if reference.is_write() || !self.passes(client, i) {
                    self.hfa.hit(client, i, entry, moves);
                } else {
                    self.hfa.pull(node, entry);
                    self.hfa.levels[node].forget_warm(entry);
                    self.hfa.count_move(node, entry);
                    self.rise(client, i, entry, true, moves);
                }
            }
            _ => {
                let way =
                    if reference.is_write() { 1 } else { self.hfa.topology.path(client).len() };
                self.rise(client, way, entry, false, moves);
            }
        }
        self.hfa.end();
        found
    }

    fn holds(&self, node: usize, entry: Entry) -> bool {
        self.hfa.blocks[entry as usize].node() == Some(node)
    }

    fn len(&self, node: usize) -> u32 {
        self.hfa.levels[node].len()
    }

    fn gauges(&self, node: usize) -> Option<Gauges> {
        let topology = &self.hfa.topology;
        let above = (0..topology.nodes()).find(|&i| topology.below(i) == Some(node));
        let probability = above.map_or(0.0, |above| self.chances.probability(above));
        Some(Gauges { probability, ..self.hfa.gauges(node) })
    }

    fn overhead_bytes(&self, node: usize) -> u64 {
        self.hfa.overhead_bytes(node)
    }

    fn describe(&self, node: usize) -> Vec<(&'static str, String)> {
        self.hfa.describe(node)
    }

    fn validate(&self) -> Result<(), String> {
        self.chances.validate()?;
        self.hfa.validate()
    }
}
