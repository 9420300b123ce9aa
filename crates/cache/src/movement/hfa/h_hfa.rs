//! H-HFA: HFA over Hint-K. Q1 goes by hotness, Q2 by the activity of Hint-K. A block found below
//! the first level moves one level up if it is more active than the least active block of the Q2
//! there; a block of which moves are remembered comes into Q1. There is no exchange.

use super::super::registry::Build;
use super::super::{Gauges, Move, Scheme};
use super::{Arrival, Base, Hfa};
use crate::policy::Arguments;
use crate::{Entry, Reference};

pub(super) struct HHfa(Hfa);

impl HHfa {
    pub(super) fn new(arguments: &Arguments, build: &Build<'_>) -> Self {
        Self(Hfa::new(Base::HintK, arguments, build))
    }

    /// Whether a block of the `i`-th cache moves up at a hit.
    fn rises(&self, client: usize, i: usize, entry: Entry) -> bool {
        let hfa = &self.0;
        if i == 0 {
            return false;
        }
        let above = &hfa.levels[hfa.node(client, i - 1)];
        let value = |entry: Entry| hfa.steps.value(hfa.blocks[entry as usize].history);
        let least = above.base.tail().map(value);
        !above.is_full() || least.is_some_and(|least| value(entry) > least)
    }
}

impl Scheme for HHfa {
    fn grow(&mut self, entries: u32) {
        self.0.grow(entries);
    }

    fn reference(
        &mut self,
        client: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        let entry = reference.entry();
        self.0.begin(client, entry);
        let at = self.0.find(client, entry);
        let found = at.map(|i| self.0.node(client, i));
        match at {
            Some(i) if self.rises(client, i, entry) => {
                let hfa = &mut self.0;
                let hint = hfa.give_up(hfa.node(client, i), entry);
                let block = &mut hfa.blocks[entry as usize];
                block.history = hfa.steps.push(block.history, true);
                let came = Move::Promoted(entry, hfa.node(client, i - 1));
                let arrival = Arrival { moved: true, hint, exchanges: false, came };
                hfa.receive(client, i - 1, entry, arrival, moves);
            }
            Some(i) => self.0.hit(client, i, entry, moves),
            None => {
                let came = Move::Filled(entry, self.0.node(client, 0));
                let arrival = Arrival { moved: false, hint: 0.0, exchanges: false, came };
                self.0.receive(client, 0, entry, arrival, moves);
            }
        }
        self.0.end();
        found
    }

    fn holds(&self, node: usize, entry: Entry) -> bool {
        self.0.blocks[entry as usize].node() == Some(node)
    }

    fn len(&self, node: usize) -> u32 {
        self.0.levels[node].len()
    }

    fn gauges(&self, node: usize) -> Option<Gauges> {
        Some(self.0.gauges(node))
    }

    /// A byte of history a block besides.
    fn overhead_bytes(&self, node: usize) -> u64 {
        self.0.overhead_bytes(node) + u64::from(self.0.levels[node].capacity)
    }

    fn describe(&self, node: usize) -> Vec<(&'static str, String)> {
        self.0.describe(node)
    }

    fn validate(&self) -> Result<(), String> {
        self.0.validate()
    }
}
