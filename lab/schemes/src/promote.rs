//! PROMOTE: exclusive caching without demotions (Gill, FAST 2008). A reply carries one bit,
//! promoteHint, on its way up. Each cache makes a random choice: it passes the block on, or owns it
//! and clears the bit. Evicted blocks are dropped. The probabilities adapt (`chances.rs`).
//!
//! This file has the LRU levels; `promote_arc.rs` has the ARC levels. A write updates the owner's
//! copy, or the first cache becomes the owner (ours: the paper evaluates reads only).
//!
//! Invariants: a block is in at most one cache; no cache holds more than its capacity.

use super::chances::{CHANCE, Chances, START};
use super::info::{Build, SchemeInfo};
use super::stack::level_configs;
use super::{Gauges, Move, Scheme, Topology, promote_arc};
use crate::list_queues::ListQueues;
use undercroft_policy::{Arguments, Entry, Reference, SpecError};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "promote",
    summary: "a coin at each level decides which one keeps a block on its way up",
    source: "Gill, FAST 2008",
    policies: &["lru", "arc"],
    two_passes: false,
    parameters: &[CHANCE, START],
    build,
};

fn build(arguments: &Arguments, build: Build<'_>) -> Result<Box<dyn Scheme>, SpecError> {
    let topology = build.topology.clone();
    let configs = level_configs(&build);
    let mut chances: Vec<_> = configs.iter().map(|c| Chances::new(arguments, c)).collect();
    for above in 0..topology.nodes() {
        if let Some(node) = topology.below(above) {
            chances[node].introduce(above as u16, topology.capacity_down_to(above));
        }
    }
    if build.policy == "arc" {
        return Ok(Box::new(promote_arc::PromoteArc::new(topology, chances)));
    }
    let queues = ListQueues::new(topology.nodes() as u32);
    Ok(Box::new(Promote { topology, queues, last: Vec::new(), chances, now: 0 }))
}

struct Promote {
    topology: Topology,
    /// One list for each cache. Front: least recently used.
    queues: ListQueues,
    /// The time of the last use of each block.
    last: Vec<u64>,
    /// The probabilities of each cache.
    chances: Vec<Chances>,
    /// References so far.
    now: u64,
}

impl Promote {
    fn use_at(&mut self, node: usize, entry: Entry) {
        self.queues.renew(node as u32, entry);
        self.last[entry as usize] = self.now;
    }

    fn own(&mut self, node: usize, entry: Entry, came: Move, moves: &mut Vec<Move>) {
        if self.queues.len(node as u32) == self.topology.capacity(node) {
            moves.extend(self.queues.pop(node as u32).map(|victim| Move::Dropped(victim, node)));
        }
        self.queues.push(node as u32, entry);
        self.last[entry as usize] = self.now;
        moves.push(came);
    }

    /// References between the last uses of the newest and the oldest block of a cache; 0 while it
    /// is not full.
    fn life(&self, node: usize) -> f64 {
        if self.queues.len(node as u32) < self.topology.capacity(node) {
            return 0.0;
        }
        let used = |entry: Option<Entry>| entry.map_or(0, |entry| self.last[entry as usize]);
        let [newest, oldest] = [self.queues.back(node as u32), self.queues.front(node as u32)];
        (used(newest) - used(oldest)) as f64
    }

    /// Draws whether a block passes from a cache to the cache above.
    fn passes(&mut self, node: usize, above: usize) -> bool {
        self.chances[node].passes(above as u16)
    }

    /// A request goes down through the first `asked` caches on a client's way. Each reports its
    /// life to the next.
    fn tell_lives(&mut self, client: usize, asked: usize) {
        for i in 1..asked {
            let (above, node) = (self.topology.path(client)[i - 1], self.topology.path(client)[i]);
            let lives = [self.life(above), self.life(node)];
            self.chances[node].hear(above as u16, self.now, lives);
        }
    }
}

impl Scheme for Promote {
    fn grow(&mut self, entries: u32) {
        self.queues.grow(entries);
        self.last.resize(self.last.len().max(entries as usize), 0);
    }

    fn reference(
        &mut self,
        client: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        self.now += 1;
        let entry = reference.entry();
        let found = self.queues.list_of(entry).map(|list| list as usize);
        let path = self.topology.path(client);
        let (first, levels) = (path[0], path.len());
        let place = found.map(|node| path.iter().position(|&n| n == node).expect("on its way"));
        self.tell_lives(client, place.map_or(levels, |at| at + 1));
        if reference.is_write() {
            match found {
                Some(node) => self.use_at(node, entry),
                None => self.own(first, entry, Move::Filled(entry, first), moves),
            }
            return found;
        }
        let mut i = place.unwrap_or(levels);
        if let Some(node) = found {
            if i == 0 || !self.passes(node, self.topology.path(client)[i - 1]) {
                self.use_at(node, entry);
                return found;
            }
            self.queues.remove(entry);
        }
        while i > 0 {
            i -= 1;
            let node = self.topology.path(client)[i];
            if i == 0 || !self.passes(node, self.topology.path(client)[i - 1]) {
                let came = if found.is_some() { Move::Promoted } else { Move::Filled };
                self.own(node, entry, came(entry, node), moves);
                break;
            }
        }
        found
    }

    fn holds(&self, node: usize, entry: Entry) -> bool {
        self.queues.is_in(node as u32, entry)
    }

    fn len(&self, node: usize) -> u32 {
        self.queues.len(node as u32)
    }

    fn gauges(&self, node: usize) -> Option<Gauges> {
        self.topology.uppers(node).next()?;
        Some(Gauges { probability: self.chances[node].first(), ..Gauges::default() })
    }

    /// The time of each block's last use, in 4 bytes.
    fn overhead_bytes(&self, node: usize) -> u64 {
        4 * u64::from(self.topology.capacity(node))
    }

    fn describe(&self, node: usize) -> Vec<(&'static str, String)> {
        vec![("queue", self.queues.text(node as u32))]
    }

    fn validate(&self) -> Result<(), String> {
        for node in 0..self.topology.nodes() {
            if self.len(node) > self.topology.capacity(node) {
                return Err(format!("cache {node} holds {}", self.len(node)));
            }
        }
        self.chances.iter().try_for_each(Chances::validate)?;
        self.queues.check()
    }
}
