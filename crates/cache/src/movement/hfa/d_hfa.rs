//! D-HFA: HFA over DEMOTE. Q1 goes by recency, Q2 by hotness. A block found below the first level
//! moves there; what a level gives up goes one level down, and a block that comes down into a Q1
//! sends that queue's hottest block one level up, if it is hotter.
//!
//! The oracle is this scheme told the moves to come: a first pass logs them, a second one takes F
//! from the log. No procedure is published; ours is an approximation, not a bound.

use super::super::registry::Build;
use super::super::{Gauges, Move, Scheme};
use super::{Arrival, Base, Hfa, MoveLog};
use crate::policy::Arguments;
use crate::{Entry, Reference};

pub(super) struct DHfa(Hfa);

impl DHfa {
    pub(super) fn new(arguments: &Arguments, build: &Build<'_>, logs: bool) -> Self {
        let mut hfa = Hfa::new(Base::Demote, arguments, build);
        hfa.log = logs.then(|| MoveLog { moves: vec![Vec::new(); build.topology.nodes()] });
        Self(hfa)
    }
}

impl Scheme for DHfa {
    fn grow(&mut self, entries: u32) {
        self.0.grow(entries);
    }

    fn reference(
        &mut self,
        client: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        let hfa = &mut self.0;
        let entry = reference.entry();
        hfa.begin(client, entry);
        let first = hfa.node(client, 0);
        let at = hfa.find(client, entry);
        let found = at.map(|i| hfa.node(client, i));
        match (at, found) {
            (Some(i), Some(node)) if i > 0 => {
                let hint = hfa.give_up(node, entry);
                let came = Move::Promoted(entry, first);
                let arrival = Arrival { moved: true, hint, exchanges: true, came };
                hfa.receive(client, 0, entry, arrival, moves);
            }
            (Some(i), _) => hfa.hit(client, i, entry, moves),
            (None, _) => {
                let came = Move::Filled(entry, first);
                let arrival = Arrival { moved: false, hint: 0.0, exchanges: true, came };
                hfa.receive(client, 0, entry, arrival, moves);
            }
        }
        hfa.end();
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

    fn overhead_bytes(&self, node: usize) -> u64 {
        self.0.overhead_bytes(node)
    }

    fn take_log(&mut self) -> Option<MoveLog> {
        self.0.log.take()
    }

    fn describe(&self, node: usize) -> Vec<(&'static str, String)> {
        self.0.describe(node)
    }

    fn validate(&self) -> Result<(), String> {
        self.0.validate()
    }
}
