//! PROMOTE: exclusive caching without demotions (Gill, FAST 2008). A reply carries one bit,
//! promoteHint, on its way up; each cache tosses a coin, passes the block on, or owns it and clears
//! the bit. What a cache drives out is gone. The probabilities adapt until a block's life in a
//! cache is as long as in the cache above (the section "Adapting probPromote").
//!
//! Levels of LRU are here, with `Chances`, the probabilities of all caches; levels of ARC are in
//! `promote_arc.rs`. A write updates the owner's copy, or is owned by the first cache (ours: the
//! paper evaluates reads only).
//!
//! Invariants: a block is in one cache at most; none holds more than its capacity;
//! 0 <= probability <= its bound.

use super::coins::Coins;
use super::registry::{Build, SchemeInfo};
use super::{Gauges, Move, Scheme, Topology, promote_arc};
use crate::list_queues::ListQueues;
use crate::policy::{Arguments, Kind, Parameter, SpecError};
use crate::{Entry, Reference};

/// How a probability is found.
pub(super) const CHANCE: Parameter = Parameter {
    name: "probability",
    kind: Kind::Word(&["adaptive", "fixed"]),
    default: "adaptive",
    help: "whether the probability of passing a block up adapts, or stays where it starts",
};

/// Where a probability starts.
pub(super) const START: Parameter = Parameter {
    name: "start",
    kind: Kind::Real(-1.0, 1.0),
    default: "-1",
    help: "probability at the start, at every level but the first; -1: the sizes above / the sizes \
           down to the level, which is also the most that an adaptive one may become",
};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "promote",
    summary: "a coin at each level decides which one keeps a block on its way up",
    source: "Gill, FAST 2008",
    policies: &["lru", "arc"],
    two_passes: false,
    parameters: &[CHANCE, START],
    build,
    level: None,
};

fn build(arguments: &Arguments, build: Build<'_>) -> Result<Box<dyn Scheme>, SpecError> {
    let chances = Chances::new(arguments, &build);
    let topology = build.topology.clone();
    if build.policy == "arc" {
        return Ok(Box::new(promote_arc::PromoteArc::new(topology, chances)));
    }
    let queues = ListQueues::new(topology.nodes() as u32);
    Ok(Box::new(Promote { topology, queues, last: Vec::new(), chances, now: 0 }))
}

/// The probability with which each cache passes a block to the cache above it, and how it adapts.
pub(super) struct Chances {
    /// By the cache above: a cache with several above it has one probability for each.
    of: Vec<Chance>,
    coins: Coins,
    adaptive: bool,
}

/// What a cache knows of one cache above it.
#[derive(Clone, Copy)]
pub(super) struct Chance {
    probability: f64,
    most: f64,
    /// Ratio of lives at the last receipt; none before the first.
    previous: Option<f64>,
    receipts: u64,
    last_receipt: u64,
    /// The first reference at which there may be another one, whatever the lives are.
    next_receipt: u64,
}

/// Share of a life that passes between two receipts, and by which a ratio must have come closer to
/// its target since the last one for the probability to be left alone.
const SHARE: f64 = 0.05;

impl Chances {
    pub(super) fn new(arguments: &Arguments, build: &Build<'_>) -> Self {
        let topology = build.topology;
        let (start, adaptive) =
            (arguments.real("start"), arguments.word("probability") == "adaptive");
        let chance = |above: usize| {
            let lower = topology.below(above).map(|node| topology.capacity(node));
            Chance::new(start, adaptive, topology.capacity_down_to(above), lower)
        };
        Self {
            of: (0..topology.nodes()).map(chance).collect(),
            coins: Coins::new(build.seed, topology.nodes(), build.draws),
            adaptive,
        }
    }

    /// Whether `node` passes a block to the cache `above` it, as the adapted probability has it.
    pub(super) fn passes(&mut self, node: usize, above: usize) -> bool {
        self.coins.draw(node) < self.of[above].probability
    }

    /// Whether `node` passes a block to the cache `above` it by the bound of sizes, which does not
    /// adapt.
    pub(super) fn passes_by_size(&mut self, node: usize, above: usize) -> bool {
        self.coins.draw(node) < self.of[above].most
    }

    /// The cache `above` may tell the one below its life: `lives` of both in references, 0 of one
    /// that is not full yet. A cache of `capacity` blocks hears it so and so often in its own life.
    ///
    /// Who has no life yet tells nothing (ours). Else a cache above that is empty would be taken
    /// for one whose blocks die young, be sent less, and stay empty for ever.
    pub(super) fn tell(&mut self, above: usize, capacity: u32, now: u64, lives: [f64; 2]) {
        if self.adaptive {
            self.of[above].tell(capacity, now, lives);
        }
    }

    pub(super) fn probability(&self, above: usize) -> f64 {
        self.of[above].probability
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        self.of.iter().try_for_each(|chance| chance.validate(self.adaptive))
    }
}

impl Chance {
    /// For a cache of `lower` blocks (none: there is none) below caches of `upper` blocks.
    pub(super) fn new(start: f64, adaptive: bool, upper: u64, lower: Option<u32>) -> Self {
        let upper = upper as f64;
        let most = lower.map_or(0.0, |lower| upper / (upper + f64::from(lower)));
        let probability = match (start < 0.0, adaptive) {
            (true, _) => most,
            (false, true) => start.min(most),
            (false, false) => start,
        };
        Self { probability, most, previous: None, receipts: 0, last_receipt: 0, next_receipt: 0 }
    }

    pub(super) fn probability(&self) -> f64 {
        self.probability
    }

    /// Whether a life may be heard now, if the own one is long enough. It must be longer than half
    /// the capacity, so that before a share of that has passed nothing comes of it.
    #[inline(always)]
    pub(super) fn may_await(&self, now: u64) -> bool {
        now >= self.next_receipt
    }

    /// Whether a life may be heard now.
    #[inline(always)]
    pub(super) fn awaits(&self, capacity: u32, now: u64, own: f64) -> bool {
        let passed = (now - self.last_receipt) as f64;
        passed >= SHARE * own && own > f64::from(capacity) / 2.0
    }

    /// See [`Chances::tell`].
    pub(super) fn tell(&mut self, capacity: u32, now: u64, lives: [f64; 2]) {
        let [upper, own] = lives;
        if upper == 0.0 || !self.awaits(capacity, now, own) {
            return;
        }
        self.last_receipt = now;
        self.next_receipt = now + (SHARE * (f64::from(capacity) / 2.0)).ceil() as u64;
        self.hear(upper / (upper + own));
    }

    pub(super) fn validate(&self, adaptive: bool) -> Result<(), String> {
        if adaptive && !(0.0..=self.most).contains(&self.probability) {
            return Err(format!("probability {} above {}", self.probability, self.most));
        }
        Ok(())
    }

    /// Takes in a ratio of lives, upper / (upper + own). Every other receipt may change the
    /// probability, unless the last change works already; the first one always does.
    fn hear(&mut self, ratio: f64) -> bool {
        self.receipts += 1;
        let previous = self.previous.replace(ratio);
        let works = |previous: f64| {
            (ratio > 0.5 && previous - ratio >= SHARE * (previous - 0.5))
                || (ratio < 0.5 && ratio - previous >= SHARE * (0.5 - previous))
        };
        let changes = match previous {
            None => true,
            Some(previous) => self.receipts % 2 == 0 && !works(previous),
        };
        if changes {
            let p = self.probability;
            self.probability = (p + p * (1.0 - p) * (2.0 * ratio - 1.0)).clamp(0.0, self.most);
        }
        changes
    }
}

struct Promote {
    topology: Topology,
    /// A list a cache; front: used longest ago.
    queues: ListQueues,
    /// When each block was used last.
    last: Vec<u64>,
    chances: Chances,
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

    /// References between the last uses of the newest and the oldest block of a full cache.
    fn life(&self, node: usize) -> f64 {
        if self.queues.len(node as u32) < self.topology.capacity(node) {
            return 0.0;
        }
        let used = |entry: Option<Entry>| entry.map_or(0, |entry| self.last[entry as usize]);
        let [newest, oldest] = [self.queues.back(node as u32), self.queues.front(node as u32)];
        (used(newest) - used(oldest)) as f64
    }

    /// A request goes down through the first so many caches of a client's way: each says its life
    /// to the next.
    fn tell_lives(&mut self, client: usize, asked: usize) {
        for i in 1..asked {
            let (above, node) = (self.topology.path(client)[i - 1], self.topology.path(client)[i]);
            let lives = [self.life(above), self.life(node)];
            self.chances.tell(above, self.topology.capacity(node), self.now, lives);
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
            if i == 0 || !self.chances.passes(node, self.topology.path(client)[i - 1]) {
                self.use_at(node, entry);
                return found;
            }
            self.queues.remove(entry);
        }
        while i > 0 {
            i -= 1;
            let node = self.topology.path(client)[i];
            if i == 0 || !self.chances.passes(node, self.topology.path(client)[i - 1]) {
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
        let above = (0..self.topology.nodes()).find(|&i| self.topology.below(i) == Some(node))?;
        Some(Gauges { probability: self.chances.probability(above), ..Gauges::default() })
    }

    /// The time of each block's last use, in four bytes.
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
        self.chances.validate()?;
        self.queues.check()
    }
}

#[cfg(test)]
mod tests {
    use super::Chance;

    /// `promote-adapt-1` of the specification.
    #[test]
    fn probabilities_adapt_as_in_the_worked_example() {
        let third = 1.0 / 3.0;
        let mut chance = Chance {
            probability: third,
            most: third,
            previous: None,
            receipts: 0,
            last_receipt: 0,
            next_receipt: 0,
        };
        for (upper, own, changes, probability) in [
            (100.0, 300.0, true, 0.222222),
            (110.0, 290.0, false, 0.222222),
            (180.0, 220.0, false, 0.222222),
            (190.0, 210.0, false, 0.222222),
            (191.0, 209.0, false, 0.222222),
            (300.0, 100.0, true, 0.308642),
        ] {
            assert_eq!(chance.hear(upper / (upper + own)), changes, "{upper}");
            assert!((chance.probability - probability).abs() < 1e-6, "{upper}");
        }
    }
}
