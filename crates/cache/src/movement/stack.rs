//! The levels of a scheme composed into a hierarchy: what one level puts on a link reaches the
//! other at once. What each decides is its own business (`link.rs`).
//!
//! Invariant (checked by [`Stack::validate`]): the record of a block names the one cache that
//! holds it, and no other of the same topology holds it.

use std::hint::black_box;

use super::link::{Left, LinkedLevel, Pass, Passing, Standing, Upper};
use super::registry::Build;
use super::shared::{AtHand, Shared};
use super::{Gauges, Move, MoveLog, Scheme, Topology};
use crate::{Entry, Reference};

/// Instead of a place on a client's way: the cache is not on it.
const ELSEWHERE: u8 = u8::MAX;

pub(super) struct Stack<L> {
    /// The caches of each client from its own down.
    ways: Vec<Vec<usize>>,
    /// Where each cache stands on the way of each client, from 0; a row a client.
    steps: Vec<u8>,
    /// Whether any cache wants to know how long blocks live in those above.
    hears_lives: bool,
    caches: Caches<L>,
    shared: Shared,
}

/// The caches, without the clients.
struct Caches<L> {
    topology: Topology,
    levels: Vec<L>,
}

/// Where each cache of a topology stands.
pub(super) fn standings(build: &Build<'_>) -> Vec<Standing> {
    let topology = build.topology;
    let blocks = |client: usize| -> u64 {
        topology.path(client).iter().map(|&node| u64::from(topology.capacity(node))).sum()
    };
    let way_blocks = (0..topology.clients()).map(blocks).max().unwrap_or(0);
    let standing = |node: usize| Standing {
        number: node as u8,
        capacity: topology.capacity(node),
        block_bytes: build.block_bytes,
        has_upper: (0..topology.nodes()).any(|i| topology.below(i) == Some(node)),
        has_lower: topology.below(node).is_some(),
        way_blocks,
        seed: build.seed.wrapping_add(node as u64),
    };
    (0..topology.nodes()).map(standing).collect()
}

impl<L: LinkedLevel> Stack<L> {
    /// The caches of a topology, each made by `level` from its number and where it stands.
    pub(super) fn new(build: &Build<'_>, level: impl FnMut((usize, Standing)) -> L) -> Self {
        let topology = build.topology.clone();
        let mut levels: Vec<L> = standings(build).into_iter().enumerate().map(level).collect();
        for above in 0..topology.nodes() {
            if let Some(node) = topology.below(above) {
                let blocks = topology.capacity_down_to(above);
                // The random numbers are the caches' own, by their place in the topology.
                levels[node].introduce(above as u16, blocks, 0);
            }
        }
        let mut steps = vec![ELSEWHERE; topology.clients() * topology.nodes()];
        for (client, row) in steps.chunks_mut(topology.nodes()).enumerate() {
            let path = topology.path(client);
            path.iter().enumerate().for_each(|(step, &node)| row[node] = step as u8);
        }
        let lists = levels.iter().map(L::lists).sum();
        let period = levels.iter().map(L::period).min().unwrap_or(u64::MAX);
        let ways = (0..topology.clients()).map(|client| topology.path(client).to_vec()).collect();
        let hears_lives = levels.iter().any(L::hears_lives);
        let shared = Shared::new(lists, period);
        Self { ways, steps, hears_lives, caches: Caches { topology, levels }, shared }
    }
}

impl<L: LinkedLevel> Caches<L> {
    /// A block has left a cache: it goes down as far as it goes, and what comes up for it goes up.
    #[inline(always)]
    fn leave(
        &mut self,
        at_hand: &mut AtHand<'_>,
        mut node: usize,
        left: Left,
        moves: &mut Vec<Move>,
    ) {
        let Left { mut entry, mut load, mut exchanges, mut owner, .. } = left;
        while let (Some(below), Some(came)) = (self.topology.below(node), load) {
            moves.push(Move::Demoted(entry, below));
            let mut further = None;
            let level = &mut self.levels[below];
            let due = level.demoted(at_hand, entry, owner, came, exchanges, &mut further);
            if let Some(heat) = due {
                return self.exchange(at_hand.again(), below, (entry, heat), further, moves);
            }
            let Some(further) = further else { return };
            (node, entry, load) = (below, further.entry, further.load);
            (exchanges, owner) = (further.exchanges, further.owner);
        }
        moves.push(Move::Dropped(entry, node));
    }

    /// A block came down to a cache as hot as that, and another one left for it: what goes up.
    #[cold]
    fn exchange(
        &mut self,
        mut at_hand: AtHand<'_>,
        below: usize,
        (entry, heat): (Entry, f64),
        further: Option<Left>,
        moves: &mut Vec<Move>,
    ) {
        if let Some(further) = further {
            self.leave(&mut at_hand, below, further, moves);
        }
        // It goes back to where it came from, which another client may be above.
        let topology = &self.topology;
        let above = |owner: u16| {
            let path = topology.path(owner.into());
            let i = path.iter().position(|&n| n == below)?;
            Some(path[i.checked_sub(1)?])
        };
        let level = &mut self.levels[below];
        let risen = level.exchange(&mut at_hand, entry, heat, &|owner| above(owner).is_some());
        let Some((risen, above)) = risen.and_then(|risen| Some((risen, above(risen.owner)?)))
        else {
            return;
        };
        moves.push(Move::Promoted(risen.entry, above));
        let mut left = None;
        self.levels[above].exchanged(&mut at_hand, risen, &mut left);
        if let Some(left) = left {
            self.leave(&mut at_hand, above, left, moves);
        }
    }

    /// The first reference of a slot begins.
    #[cold]
    fn begin_slot(&mut self, at_hand: &mut AtHand<'_>) {
        self.levels.iter_mut().for_each(|level| level.begin_slot(at_hand));
    }

    /// The last reference of a slot is over.
    #[cold]
    fn end_slot(&mut self, at_hand: &mut AtHand<'_>) {
        self.levels.iter_mut().for_each(|level| level.end_slot(at_hand));
    }

    /// A request goes down through these caches: each says its life to the one below it, where that
    /// wants to know.
    #[inline]
    fn tell_lives(&mut self, shared: &Shared, asked: &[usize]) {
        for pair in asked.windows(2) {
            let (above, node) = (pair[0], pair[1]);
            if self.levels[node].awaits_life(shared, above as u16) {
                let life = self.levels[above].life(shared);
                self.levels[node].hear_life(shared, above as u16, life);
            }
        }
    }
}

impl<L: LinkedLevel> Scheme for Stack<L> {
    fn grow(&mut self, entries: u32) {
        self.caches.levels.iter_mut().for_each(|level| level.grow(entries));
        self.shared.blocks.grow(entries);
    }

    fn reference(
        &mut self,
        client: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        let (entry, is_write) = (reference.entry(), reference.is_write());
        let Self { ways, steps, caches, shared, .. } = self;
        let way = ways[client].as_slice();
        if shared.tick() {
            caches.begin_slot(&mut shared.at_hand());
        }
        let mut found = shared.level_of(entry);
        // Caches from the client's own down that do not have it.
        let mut above = way.len();
        if let Some(node) = found {
            let step = steps[client * caches.levels.len() + node];
            if step == ELSEWHERE {
                // It is another client's, who must not share it: that one loses it.
                caches.levels[node].forget(&mut shared.at_hand(), entry);
                moves.push(Move::Dropped(entry, node));
                found = None;
            } else {
                above = step.into();
            }
        }
        if self.hears_lives {
            caches.tell_lives(shared, &way[..way.len().min(above + 1)]);
        }
        let (levels, mut at_hand) = (&mut caches.levels, shared.at_hand());
        // A block leaves one cache at most, the one that keeps the block: nothing passes then.
        let mut left = None;
        let mut pass = Pass::Fresh { nearest: 0.0 };
        let mut keeper = 0;
        if let Some(node) = found {
            let upper = above.checked_sub(1).map(|i| way[i]);
            let upper = upper.map(|up| Upper { number: up as u16, bid: levels[up].bid() });
            pass = levels[node].serve(&mut at_hand, entry, is_write, upper, &mut left);
            keeper = node;
        }
        while above > 0 && pass != Pass::Kept {
            above -= 1;
            let node = way[above];
            let upper = above.checked_sub(1).map(|i| way[i] as u16);
            let passing = Passing { entry, is_write, upper, owner: client as u16, is_told: false };
            let stays;
            (pass, stays) = levels[node].pass(&mut at_hand, passing, pass, &mut left);
            if stays {
                moves.push(match found {
                    Some(_) => Move::Promoted(entry, node),
                    None => Move::Filled(entry, node),
                });
            }
            keeper = node;
        }
        if let Some(left) = left {
            caches.leave(&mut at_hand, keeper, left, moves);
        }
        if at_hand.ends_slot() {
            caches.end_slot(&mut at_hand.again());
        }
        found
    }

    fn warm(&self, entries: &[Entry]) {
        let blocks = &self.shared.blocks;
        black_box(entries.iter().fold(0, |x, &entry| x ^ blocks.get(entry).place));
    }

    fn holds(&self, node: usize, entry: Entry) -> bool {
        self.shared.level_of(entry) == Some(node)
    }

    fn len(&self, node: usize) -> u32 {
        self.caches.levels[node].len()
    }

    fn gauges(&self, node: usize) -> Option<Gauges> {
        self.caches.levels[node].gauges()
    }

    fn overhead_bytes(&self, node: usize) -> u64 {
        self.caches.levels[node].overhead_bytes()
    }

    fn take_log(&mut self) -> Option<MoveLog> {
        let logs: Option<Vec<_>> = self.caches.levels.iter_mut().map(L::take_log).collect();
        logs.map(|moves| MoveLog { moves })
    }

    fn describe(&self, node: usize) -> Vec<(&'static str, String)> {
        self.caches.levels[node].describe(&self.shared)
    }

    fn validate(&self) -> Result<(), String> {
        let blocks = &self.shared.blocks;
        for (node, level) in self.caches.levels.iter().enumerate() {
            level.validate(&self.shared).map_err(|what| format!("cache {node}: {what}"))?;
            let residents = level.residents(&self.shared);
            let here = |&entry: &Entry| self.holds(node, entry);
            let placed = (0..blocks.entries()).filter(here).count();
            if !residents.iter().all(here) || placed != residents.len() {
                return Err(format!("cache {node}: a block says that it is elsewhere"));
            }
        }
        blocks.check()
    }
}
