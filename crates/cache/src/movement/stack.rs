//! The levels of a scheme composed into a hierarchy: what one level puts on a link reaches the
//! other at once. What each decides is its own business (`link.rs`).
//!
//! Invariant (checked by [`Stack::validate`]): `place` names the one cache that holds a block, and
//! no other of the same topology holds it.

use super::link::{Left, LinkedLevel, Pass, Passing, Standing, Upper};
use super::registry::Build;
use super::{Gauges, Move, MoveLog, Scheme, Topology};
use crate::{Entry, Reference};

pub(super) struct Stack<L> {
    topology: Topology,
    levels: Vec<L>,
    /// 1 + the cache that holds each block, 0 of none.
    place: Vec<u8>,
}

/// Where each cache of a topology stands.
pub(super) fn standings(build: &Build<'_>) -> Vec<Standing> {
    let topology = build.topology;
    let blocks = |client: usize| -> u64 {
        topology.path(client).iter().map(|&node| u64::from(topology.capacity(node))).sum()
    };
    let way_blocks = (0..topology.clients()).map(blocks).max().unwrap_or(0);
    let standing = |node: usize| Standing {
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
        Self { topology, levels, place: Vec::new() }
    }

    /// A block is at a cache from now on.
    fn settle(&mut self, one: Move, moves: &mut Vec<Move>) {
        let (entry, place) = match one {
            Move::Filled(entry, node)
            | Move::Copied(entry, node)
            | Move::Promoted(entry, node)
            | Move::Demoted(entry, node)
            | Move::Resent(entry, node) => (entry, node + 1),
            Move::Dropped(entry, _) => (entry, 0),
        };
        self.place[entry as usize] = place as u8;
        moves.push(one);
    }

    /// A block has left a cache: it goes down as far as it goes, and what comes up for it goes up.
    fn leave(&mut self, node: usize, left: Option<Left>, moves: &mut Vec<Move>) {
        let Some(Left { entry, load, exchanges, owner, .. }) = left else { return };
        let (Some(below), Some(load)) = (self.topology.below(node), load) else {
            return self.settle(Move::Dropped(entry, node), moves);
        };
        self.settle(Move::Demoted(entry, below), moves);
        let mut further = None;
        let level = &mut self.levels[below];
        let due = level.demoted(entry, owner, load, exchanges, &mut further);
        self.leave(below, further, moves);
        let Some(heat) = due else { return };
        // It goes back to where it came from, which another client may be above.
        let topology = &self.topology;
        let above = |owner: u16| {
            let path = topology.path(owner.into());
            let i = path.iter().position(|&n| n == below)?;
            Some(path[i.checked_sub(1)?])
        };
        let risen = self.levels[below].exchange(entry, heat, &|owner| above(owner).is_some());
        let Some((risen, above)) = risen.and_then(|risen| Some((risen, above(risen.owner)?)))
        else {
            return;
        };
        self.settle(Move::Promoted(risen.entry, above), moves);
        let mut left = None;
        self.levels[above].exchanged(risen, &mut left);
        self.leave(above, left, moves);
    }

    /// The way of a client down to the first cache that may have a block.
    fn place_of(&self, client: usize, entry: Entry) -> Option<usize> {
        let node = usize::from(self.place[entry as usize]).checked_sub(1)?;
        self.topology.path(client).iter().position(|&n| n == node)
    }
}

impl<L: LinkedLevel> Scheme for Stack<L> {
    fn grow(&mut self, entries: u32) {
        self.levels.iter_mut().for_each(|level| level.grow(entries));
        self.place.resize(self.place.len().max(entries as usize), 0);
    }

    fn reference(
        &mut self,
        client: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        let (entry, is_write) = (reference.entry(), reference.is_write());
        self.levels.iter_mut().for_each(L::open);
        let mut above = self.topology.path(client)[0];
        while let Some(node) = self.topology.below(above) {
            let life = self.levels[above].life();
            self.levels[node].hear_life(above as u16, life);
            above = node;
        }
        let at = self.place_of(client, entry);
        let found = at.map(|i| self.topology.path(client)[i]);
        let mut pass = Pass::Fresh { nearest: 0.0 };
        let mut left = None;
        if let (Some(i), Some(node)) = (at, found) {
            let upper = i.checked_sub(1).map(|i| self.topology.path(client)[i]);
            let upper = upper.map(|up| Upper { number: up as u16, bid: self.levels[up].bid() });
            pass = self.levels[node].serve(entry, is_write, upper, &mut left);
            self.leave(node, left.take(), moves);
        }
        let came = if found.is_some() { Move::Promoted } else { Move::Filled };
        let mut i = at.unwrap_or(self.topology.path(client).len());
        while i > 0 && pass != Pass::Kept {
            i -= 1;
            let path = self.topology.path(client);
            let (node, upper) = (path[i], i.checked_sub(1).map(|i| path[i] as u16));
            let passing = Passing { entry, is_write, upper, owner: client as u16 };
            let (further, stays) = self.levels[node].pass(passing, pass, &mut left);
            pass = further;
            if stays {
                self.settle(came(entry, node), moves);
            }
            self.leave(node, left.take(), moves);
        }
        self.levels.iter_mut().for_each(L::close);
        found
    }

    fn holds(&self, node: usize, entry: Entry) -> bool {
        usize::from(self.place[entry as usize]) == node + 1
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
        self.levels[node].describe()
    }

    fn validate(&self) -> Result<(), String> {
        for (node, level) in self.levels.iter().enumerate() {
            level.validate().map_err(|what| format!("cache {node}: {what}"))?;
            let residents = level.residents();
            let here = |entry: &Entry| usize::from(self.place[*entry as usize]) == node + 1;
            let placed = self.place.iter().filter(|&&p| usize::from(p) == node + 1).count();
            if !residents.iter().all(here) || placed != residents.len() {
                return Err(format!("cache {node}: a block says that it is elsewhere"));
            }
        }
        Ok(())
    }
}
