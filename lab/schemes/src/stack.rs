//! The levels of a scheme stacked in one process: each message of a level reaches the other at
//! once. How a level decides is in its own file (`level.rs`).
//!
//! Invariants (checked by [`Stack::validate`]): those of the index, which names the only cache that
//! holds a block, and those of the levels.

use std::hint::black_box;

use super::index::Index;
use super::info::{Build, Built};
use super::level::{Demoted, Evicted, LevelConfig, Pass, Passing, SchemeLevel, Upper};
use super::{Gauges, Move, MoveLog, Scheme, Topology};
use undercroft_policy::{Entry, Reference};

/// Marks a cache that is not on a client's way.
const ELSEWHERE: u8 = u8::MAX;

/// Number of entries that the levels make valid in one step.
const GROWTH: u32 = 1 << 10;

pub(super) struct Stack<L> {
    topology: Topology,
    levels: Vec<L>,
    /// The position of each cache on the way of each client, from 0; one row for each client.
    steps: Vec<u8>,
    index: Index,
    /// Most blocks that the levels hold and remember together.
    known_max: usize,
}

/// The arguments for each cache of a topology.
pub(super) fn level_configs<'a>(build: &Build<'a>) -> Vec<LevelConfig<'a>> {
    let topology = build.topology;
    let blocks = |client: usize| -> u64 {
        topology.path(client).iter().map(|&node| u64::from(topology.capacity(node))).sum()
    };
    let way_blocks = (0..topology.clients()).map(blocks).max().unwrap_or(0);
    let config = |node: usize| LevelConfig {
        capacity: topology.capacity(node),
        block_bytes: build.block_bytes,
        has_upper: topology.uppers(node).next().is_some(),
        has_lower: topology.below(node).is_some(),
        way_blocks,
        seed: build.seed.wrapping_add(node as u64),
        draws: build.draws,
    };
    (0..topology.nodes()).map(config).collect()
}

/// Makes a stack of levels; `level` makes each from its number and its arguments.
pub(super) fn stack<'a, L: SchemeLevel + 'static>(
    build: &Build<'a>,
    mut level: impl FnMut(usize, LevelConfig<'a>) -> L,
) -> Built {
    let topology = build.topology.clone();
    let configs = level_configs(build).into_iter().enumerate();
    let mut levels: Vec<L> = configs.map(|(node, config)| level(node, config)).collect();
    for above in 0..topology.nodes() {
        if let Some(node) = topology.below(above) {
            levels[node].introduce(above as u16, topology.capacity_down_to(above));
        }
    }
    let mut steps = vec![ELSEWHERE; topology.clients() * topology.nodes()];
    for (client, row) in steps.chunks_mut(topology.nodes()).enumerate() {
        let path = topology.path(client);
        path.iter().enumerate().for_each(|(step, &node)| row[node] = step as u8);
    }
    let capacities = (0..topology.nodes()).map(|node| topology.capacity(node));
    let remembered = levels.iter().map(L::remembered_max);
    let known_max = capacities.chain(remembered).map(|blocks| blocks as usize).sum();
    Ok(Box::new(Stack { topology, levels, steps, index: Index::default(), known_max }))
}

impl<L: SchemeLevel> Stack<L> {
    /// The entry of a block that is referenced; a new one if it has none.
    fn enter(&mut self, block: u32) -> Entry {
        let Self { index, levels, .. } = self;
        index.sweep(self.known_max, |entry| levels.iter().any(|level| level.remembers(entry)));
        let known = index.len();
        let entry = index.enter(block);
        if entry == known && entry % GROWTH == 0 {
            levels.iter_mut().for_each(|level| level.grow(entry + GROWTH));
        }
        entry
    }

    /// Handles a block that no cache holds any more.
    fn drop_block(&mut self, entry: Entry) {
        self.index.set_home(entry, None);
        if !self.levels.iter().any(|level| level.remembers(entry)) {
            self.index.free(entry);
        }
    }

    /// Handles a block that left a cache: demotes it, with all that follows, and makes the
    /// exchange.
    fn evict(&mut self, mut node: usize, mut evicted: Evicted, moves: &mut Vec<Move>) {
        loop {
            let Evicted { entry, owner, load, exchanges, .. } = evicted;
            let (Some(below), Some(load)) = (self.topology.below(node), load) else {
                moves.push(Move::Dropped(self.index.block(entry), node));
                return self.drop_block(entry);
            };
            moves.push(Move::Demoted(self.index.block(entry), below));
            self.index.set_home(entry, Some(below));
            let demoted = Demoted { entry, owner, load, exchanges };
            let (hotness, next) = self.levels[below].demoted(demoted);
            if let Some(hotness) = hotness {
                if let Some(next) = next {
                    self.evict(below, next, moves);
                }
                return self.exchange(below, entry, hotness, moves);
            }
            let Some(next) = next else { return };
            (node, evicted) = (below, next);
        }
    }

    /// Makes the exchange for a block that came down to a cache with this hotness.
    fn exchange(&mut self, below: usize, entry: Entry, hotness: f64, moves: &mut Vec<Move>) {
        // The promoted block goes to its owner's cache, which may be another client's.
        let topology = &self.topology;
        let above = |owner: u16| {
            let path = topology.path(owner.into());
            let i = path.iter().position(|&n| n == below)?;
            Some(path[i.checked_sub(1)?])
        };
        let rises = |owner| above(owner).is_some();
        let Some(promoted) = self.levels[below].exchange(entry, hotness, &rises) else { return };
        let above = above(promoted.owner).expect("it was asked for");
        moves.push(Move::Promoted(self.index.block(promoted.entry), above));
        self.index.set_home(promoted.entry, Some(above));
        if let Some(evicted) = self.levels[above].exchanged(promoted) {
            self.evict(above, evicted, moves);
        }
    }

    /// Asks the caches on a client's way for a block, from the client's own down to the one at
    /// `place`. Returns that one's answer and what it evicts; `None` without a `place`.
    fn ask(
        &mut self,
        client: usize,
        place: Option<usize>,
        entry: Entry,
        is_write: bool,
    ) -> Option<(Pass, Option<Evicted>)> {
        let path = self.topology.path(client);
        let mut upper = None;
        for (i, &node) in path.iter().enumerate() {
            let level = &mut self.levels[node];
            if let Some(upper) = upper {
                level.hear(upper);
            }
            if place == Some(i) {
                return Some(level.serve(entry, is_write, upper));
            }
            upper = Some(Upper { number: node as u16, bid: level.bid() });
        }
        None
    }
}

impl<L: SchemeLevel> Scheme for Stack<L> {
    fn grow(&mut self, entries: u32) {
        self.index.grow(entries);
    }

    fn reference(
        &mut self,
        client: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        let (block, is_write) = (reference.entry(), reference.is_write());
        let entry = self.enter(block);
        self.levels.iter_mut().for_each(|level| level.begin_references(1));
        let mut found = self.index.home(entry);
        let step = |node: usize| self.steps[client * self.levels.len() + node];
        let mut place = found.map(step);
        if let (Some(node), Some(ELSEWHERE)) = (found, place) {
            // The block is in another client's cache, but is not shared: that cache drops it.
            self.levels[node].discard(entry);
            self.index.set_home(entry, None);
            moves.push(Move::Dropped(block, node));
            (found, place) = (None, None);
        }
        let place = place.map(usize::from);
        let answer = self.ask(client, place, entry, is_write);
        let (mut pass, mut evicted) = answer.unwrap_or((Pass::Fresh { nearest: 0.0 }, None));
        let mut above = place.unwrap_or(self.topology.path(client).len());
        let mut keeper = found.unwrap_or(0);
        while pass != Pass::Kept && above > 0 {
            above -= 1;
            let path = self.topology.path(client);
            keeper = path[above];
            let upper = above.checked_sub(1).map(|i| path[i] as u16);
            let passing = Passing { entry, is_write, upper, owner: client as u16 };
            (pass, evicted) = self.levels[keeper].pass(passing, pass);
        }
        if found != Some(keeper) {
            let came = if found.is_some() { Move::Promoted } else { Move::Filled };
            moves.push(came(block, keeper));
            self.index.set_home(entry, Some(keeper));
        }
        if let Some(evicted) = evicted {
            self.evict(keeper, evicted, moves);
        }
        self.levels.iter_mut().for_each(L::end_reference);
        found
    }

    fn warm(&self, entries: &[Entry]) {
        black_box(entries.iter().fold(0, |x, &block| x ^ self.index.find(block).unwrap_or(0)));
    }

    fn holds(&self, node: usize, entry: Entry) -> bool {
        self.index.find(entry).is_some_and(|entry| self.levels[node].holds(entry))
    }

    fn len(&self, node: usize) -> u32 {
        self.levels[node].len()
    }

    fn gauges(&self, node: usize) -> Option<Gauges> {
        self.levels[node].gauges()
    }

    fn overhead_bytes(&self, node: usize) -> u64 {
        self.levels[node].overhead_bytes()
    }

    fn take_log(&mut self) -> Option<MoveLog> {
        let logs: Option<Vec<_>> = self.levels.iter_mut().map(L::take_log).collect();
        logs.map(|moves| MoveLog { moves })
    }

    fn describe(&self, node: usize) -> Vec<(&'static str, String)> {
        self.levels[node].describe(&|entry| self.index.block(entry))
    }

    fn validate(&self) -> Result<(), String> {
        for (node, level) in self.levels.iter().enumerate() {
            level.validate().map_err(|what| format!("cache {node}: {what}"))?;
            for entry in 0..self.index.len() {
                if level.holds(entry) != (self.index.home(entry) == Some(node)) {
                    return Err(format!("entry {entry} is not where cache {node} says"));
                }
            }
        }
        self.index.validate()
    }
}
