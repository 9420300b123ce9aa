//! BiDiFilter: a frequency sketch decides which block is demoted and which is promoted (Eytan &
//! Friedman, arXiv 2206.13367, 2022), for two levels. The rules were confirmed by the authors'
//! public simulator.
//!
//! The upper level has two LRU areas: the recent area, where every block enters, and the frequent
//! area. The lower level is a segmented LRU with a probation and a protected part. The oldest
//! recent block moves to the frequent area as long as that has room. After that it is demoted into
//! probation. If the lower level is full, the sketch compares that block with the oldest block of
//! probation, and the one seen less often is dropped. A block hit in the lower level is exchanged
//! with the oldest frequent block if the sketch has seen it more often; otherwise it is served from
//! the lower level.
//!
//! Invariants: a block is in one list; no area holds more than its size; protected and probation
//! together hold no more than the lower level.

use super::info::{Build, SchemeInfo};
use super::{Gauges, Move, Scheme};
use crate::list_queues::ListQueues;
use undercroft_policy::containers::sketch::Sketch;
use undercroft_policy::{Arguments, Entry, Kind, Parameter, Reference, SpecError};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "bidifilter",
    summary: "a frequency sketch filters what goes down and what comes up; two levels",
    source: "Eytan & Friedman, arXiv 2206.13367, 2022",
    policies: &["lru"],
    two_passes: false,
    parameters: &[
        Parameter {
            name: "frequent",
            kind: Kind::Real(0.0, 1.0),
            default: "0.5",
            help: "share of the upper level that is the frequent area",
        },
        Parameter {
            name: "protected",
            kind: Kind::Real(0.0, 1.0),
            default: "0.8",
            help: "share of the lower level that is the protected part",
        },
        Parameter {
            name: "sketch",
            kind: Kind::Word(&["countmin", "exact"]),
            default: "countmin",
            help: "frequencies from a sketch of 8 bytes a block, or exact ones",
        },
    ],
    build,
};

fn build(arguments: &Arguments, build: Build<'_>) -> Result<Box<dyn Scheme>, SpecError> {
    let capacities = build.pair("bidifilter")?;
    let share = |of: u32, name: &str| (f64::from(of) * arguments.real(name)) as u32;
    // Every block enters the recent area first, so that needs at least one place.
    let frequent = share(capacities[0], "frequent").min(capacities[0] - 1);
    let protected = share(capacities[1], "protected").min(capacities[1] - 1);
    let sketch = Sketch::new(arguments.word("sketch") == "exact", capacities[1]);
    Ok(Box::new(BiDiFilter { capacities, frequent, protected, queues: ListQueues::new(4), sketch }))
}

const RECENT: u32 = 0;
const FREQUENT: u32 = 1;
const PROBATION: u32 = 2;
const PROTECTED: u32 = 3;

struct BiDiFilter {
    capacities: [u32; 2],
    /// Most blocks of the frequent area and of the protected part.
    frequent: u32,
    protected: u32,
    /// Front of each list: least recently used.
    queues: ListQueues,
    sketch: Sketch,
}

impl BiDiFilter {
    fn is_more_frequent(&self, entry: Entry, than: Entry) -> bool {
        self.sketch.estimate(entry.into()) > self.sketch.estimate(than.into())
    }

    fn shift(&mut self, entry: Entry, list: u32) {
        self.queues.remove(entry);
        self.queues.push(list, entry);
    }

    fn miss(&mut self, entry: Entry, moves: &mut Vec<Move>) {
        self.queues.push(RECENT, entry);
        moves.push(Move::Filled(entry, 0));
        if self.queues.len(RECENT) <= self.capacities[0] - self.frequent {
            return;
        }
        let Some(oldest) = self.queues.pop(RECENT) else { return };
        if self.queues.len(FREQUENT) < self.frequent {
            self.queues.push(FREQUENT, oldest);
            return;
        }
        if self.len(1) < self.capacities[1] {
            self.queues.push(PROBATION, oldest);
            moves.push(Move::Demoted(oldest, 1));
            return;
        }
        match self.queues.front(PROBATION) {
            Some(victim) if self.is_more_frequent(oldest, victim) => {
                self.queues.remove(victim);
                moves.push(Move::Dropped(victim, 1));
                self.queues.push(PROBATION, oldest);
                moves.push(Move::Demoted(oldest, 1));
            }
            _ => moves.push(Move::Dropped(oldest, 0)),
        }
    }

    fn hit_below(&mut self, entry: Entry, list: u32, moves: &mut Vec<Move>) {
        if let Some(oldest) = self.queues.front(FREQUENT) {
            if self.is_more_frequent(entry, oldest) {
                self.shift(entry, FREQUENT);
                self.shift(oldest, PROBATION);
                moves.push(Move::Promoted(entry, 0));
                moves.push(Move::Demoted(oldest, 1));
                return;
            }
        }
        if list == PROTECTED {
            self.queues.renew(PROTECTED, entry);
            return;
        }
        self.shift(entry, PROTECTED);
        if self.queues.len(PROTECTED) > self.protected {
            let oldest = self.queues.front(PROTECTED).expect("one came just now");
            self.shift(oldest, PROBATION);
        }
    }
}

impl Scheme for BiDiFilter {
    fn grow(&mut self, entries: u32) {
        self.queues.grow(entries);
    }

    fn reference(
        &mut self,
        _: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        let entry = reference.entry();
        self.sketch.increment(entry.into());
        match self.queues.list_of(entry) {
            None => {
                self.miss(entry, moves);
                None
            }
            Some(list @ (RECENT | FREQUENT)) => {
                self.queues.renew(list, entry);
                Some(0)
            }
            Some(list) => {
                self.hit_below(entry, list, moves);
                Some(1)
            }
        }
    }

    fn holds(&self, node: usize, entry: Entry) -> bool {
        self.queues.list_of(entry).is_some_and(|list| list as usize / 2 == node)
    }

    fn len(&self, node: usize) -> u32 {
        self.queues.len(2 * node as u32) + self.queues.len(2 * node as u32 + 1)
    }

    fn gauges(&self, node: usize) -> Option<Gauges> {
        let hot_target = if node == 0 { self.frequent } else { self.protected };
        let hot_blocks = self.queues.len(2 * node as u32 + 1);
        Some(Gauges { hot_blocks, hot_target, probability: 0.0 })
    }

    /// The sketch, which both levels share: 8 bytes a block of the lower level.
    fn overhead_bytes(&self, node: usize) -> u64 {
        if node == 0 { 0 } else { 8 * u64::from(self.capacities[1].next_power_of_two()) }
    }

    fn describe(&self, node: usize) -> Vec<(&'static str, String)> {
        let names = [("recent", RECENT), ("frequent", FREQUENT)];
        let lower = [("probation", PROBATION), ("protected", PROTECTED)];
        let lists = if node == 0 { names } else { lower };
        lists.into_iter().map(|(name, list)| (name, self.queues.text(list))).collect()
    }

    fn validate(&self) -> Result<(), String> {
        let len = |list| self.queues.len(list);
        let right = len(RECENT) <= self.capacities[0] - self.frequent
            && len(FREQUENT) <= self.frequent
            && len(PROTECTED) <= self.protected
            && self.len(1) <= self.capacities[1];
        if !right {
            return Err("an area holds more than its size".into());
        }
        self.queues.check()
    }
}
