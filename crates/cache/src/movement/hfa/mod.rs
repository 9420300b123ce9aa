//! HFA: blocks that moved between levels lately, or are hit often, get a protected queue (Meng et
//! al., JCST 2017). Here is what its variants share: receiving a block, hits, what leaves, and the
//! partition of a cache between the hot queue Q1 and the base queue Q2. Who asks whom for a block
//! is in `d_hfa.rs`, `p_hfa.rs` and `h_hfa.rs`, over DEMOTE, PROMOTE and Hint-K.
//!
//! The hotness of a block at a cache is H = F/(kT) + hits/t2: F sums its moves there in the last k
//! slots of T references (`t_out.rs`), hits are those since it came t2 references ago. H is found
//! when a block comes and at each hit, and stands until then ("lazy update"), but not longer than
//! the k slots that it speaks of (`partition.rs`). The readings of the paper that are chosen here,
//! and what they are worth, are in `docs/reproduction/hierarchies.md`.
//!
//! Invariants: those of each level; a block is in one queue of one cache at most.

mod d_hfa;
mod foretold;
mod h_hfa;
mod level;
mod options;
mod p_hfa;
mod partition;
mod queue;
mod t_out;

use super::activity::Steps;
use super::registry::Build;
use super::{Gauges, Move, Topology};
use crate::Entry;
use crate::policy::Arguments;
use crate::ring::Ring;
use foretold::Foretold;
use level::{Block, Hints, Hottest, Level};
use options::Settings;
use queue::{Key, Queue};
use t_out::{ENTRY_BYTES, TOut};

pub use foretold::MoveLog;
pub(super) use options::{D_HFA, H_HFA, ORACLE, P_HFA};

/// The scheme that a variant stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Demote,
    Promote,
    HintK,
}

/// How a block comes to a cache.
#[derive(Clone, Copy)]
struct Arrival {
    /// From another cache.
    moved: bool,
    /// F at the cache that it comes from.
    hint: f64,
    /// Whether it may drive the hottest block of this cache up.
    exchanges: bool,
    came: Move,
}

/// The state of all caches, and the operations that the variants are made of. The `i`-th cache of a
/// client is the one at that place on its way.
struct Hfa {
    topology: Topology,
    base: Base,
    settings: Settings,
    steps: Steps,
    blocks: Vec<Block>,
    levels: Vec<Level>,
    /// References so far, the current one included, and its slot.
    now: u64,
    slot: u64,
    /// Moves of a first pass.
    log: Option<MoveLog>,
}

impl Hfa {
    fn new(base: Base, arguments: &Arguments, build: &Build<'_>) -> Self {
        let topology = build.topology.clone();
        let settings = Settings::new(base, arguments, &topology);
        let steps = Steps::new(settings.steps);
        let level = |node: usize| {
            let capacity = topology.capacity(node);
            let queues = match base {
                Base::Demote => (Queue::recency(), Queue::heat()),
                Base::Promote => (Queue::heat(), Queue::recency()),
                Base::HintK => (Queue::heat(), Queue::activity(steps)),
            };
            let bytes = f64::from(capacity) * f64::from(build.block_bytes) * settings.table_share;
            let entries = settings.entries.unwrap_or((bytes / ENTRY_BYTES as f64).max(1.0) as u32);
            let hints = match &build.log {
                Some(log) => Hints::Foretold(Foretold::new(log, node, settings.k, settings.decay)),
                None => Hints::Table(TOut::new(entries, settings.k, settings.decay)),
            };
            let mut level = Level::new(capacity, settings.first_target(capacity), queues, hints);
            // Only blocks with a cache above can be exchanged.
            let is_below = (0..topology.nodes()).any(|i| topology.below(i) == Some(node));
            level.hottest = (base == Base::Demote && is_below).then(Hottest::new);
            level.warm = settings.expires.then(Ring::new);
            level
        };
        let levels = (0..topology.nodes()).map(level).collect();
        Self {
            topology,
            base,
            settings,
            steps,
            blocks: Vec::new(),
            levels,
            now: 0,
            slot: 0,
            log: None,
        }
    }

    fn grow(&mut self, entries: u32) {
        self.levels.iter_mut().for_each(|level| level.grow(entries));
        self.blocks.resize(self.blocks.len().max(entries as usize), Block::default());
    }

    fn node(&self, client: usize, i: usize) -> usize {
        self.topology.path(client)[i]
    }

    /// The place on a client's way of the cache that holds a block.
    fn find(&self, client: usize, entry: Entry) -> Option<usize> {
        let node = self.blocks[entry as usize].node()?;
        self.topology.path(client).iter().position(|&n| n == node)
    }

    fn key(&self, block: &Block) -> Key {
        Key { heat: block.heat, activity: self.steps.value(block.history) }
    }

    /// A reference of a client begins.
    fn begin(&mut self, client: usize, entry: Entry) {
        self.blocks[entry as usize].client = client as u16;
        self.now += 1;
        let slot = (self.now - 1) / self.settings.period;
        if slot != self.slot {
            self.slot = slot;
            self.expire();
        }
    }

    /// A reference is over: the partition takes note, and changes once a period.
    fn end(&mut self) {
        let is_over = self.now % self.settings.period == 0;
        for node in 0..self.levels.len() {
            let level = &mut self.levels[node];
            level.cold_sum += u64::from(level.cold_in_hot);
            level.warm_sum += u64::from(level.warm_in_base);
            if is_over {
                self.repartition(node);
            }
        }
    }

    fn push_hot(&mut self, node: usize, entry: Entry) {
        self.blocks[entry as usize].place = (2 * node + 2) as u8;
        let block = self.blocks[entry as usize];
        let key = self.key(&block);
        self.levels[node].push_hot(entry, &block, key, true);
    }

    fn push_base(&mut self, node: usize, entry: Entry) {
        self.blocks[entry as usize].place = (2 * node + 1) as u8;
        let block = self.blocks[entry as usize];
        let key = self.key(&block);
        self.levels[node].push_base(entry, &block, key);
    }

    /// Takes a block out of its queue; it is in none then.
    fn pull(&mut self, node: usize, entry: Entry) {
        let block = self.blocks[entry as usize];
        let key = self.key(&block);
        self.levels[node].remove(entry, &block, key);
        self.blocks[entry as usize].place = 0;
    }

    /// Takes out what Q2, or Q1 where Q2 has nothing, gives up.
    fn pull_victim(&mut self, node: usize) -> Option<Entry> {
        let level = &self.levels[node];
        let victim = level.base.tail().or_else(|| level.hot.tail())?;
        self.pull(node, victim);
        Some(victim)
    }

    /// H at a cache, found anew.
    fn find_heat(&mut self, node: usize, entry: Entry) {
        self.levels[node].forget_warm(entry);
        let f = self.levels[node].hints.frequency(entry, self.slot);
        let block = &mut self.blocks[entry as usize];
        let stay = (self.now - block.loaded).max(1);
        block.heat = self.settings.heat(f, block.hits, stay);
        block.updated = self.now;
    }

    /// A block comes to the `i`-th cache.
    fn receive(
        &mut self,
        client: usize,
        i: usize,
        entry: Entry,
        arrival: Arrival,
        moves: &mut Vec<Move>,
    ) {
        let node = self.node(client, i);
        let f = self.levels[node].hints.frequency(entry, self.slot).max(arrival.hint);
        let block = &mut self.blocks[entry as usize];
        (block.hits, block.loaded, block.updated) = (0, self.now, self.now);
        (block.moved, block.heat) = (arrival.moved, self.settings.heat(f, 0, 1));
        moves.push(arrival.came);
        let is_hot = self.levels[node].target > 0
            && match self.base {
                Base::Demote | Base::Promote => f > self.settings.least,
                Base::HintK => self.levels[node].hints.remembers(entry, self.slot),
            };
        if !is_hot {
            let victim = if self.levels[node].is_full() { self.pull_victim(node) } else { None };
            self.push_base(node, entry);
            self.leave(client, i, victim, arrival.exchanges, moves);
            return;
        }
        let victim = self.insert_hot(node, entry);
        self.leave(client, i, victim, arrival.exchanges, moves);
        if arrival.exchanges && i > 0 && self.base == Base::Demote {
            self.exchange(node, entry, moves);
        }
    }

    /// Puts a block, which is in no queue, into Q1: who has to leave the cache for it.
    fn insert_hot(&mut self, node: usize, entry: Entry) -> Option<Entry> {
        let level = &self.levels[node];
        if level.hot.len() < level.target {
            let victim = if level.is_full() { self.pull_victim(node) } else { None };
            self.push_hot(node, entry);
            return victim;
        }
        let tail = level.hot.tail().expect("Q1 has room for a block");
        self.pull(node, tail);
        self.push_hot(node, entry);
        let level = &self.levels[node];
        if !level.is_full() {
            self.push_base(node, tail);
            return None;
        }
        if self.blocks[tail as usize].hits <= level.least_base_hits() {
            return Some(tail);
        }
        let victim = self.pull_victim(node);
        self.push_base(node, tail);
        victim
    }

    /// A block, taken out of its queue, leaves the `i`-th cache downwards, or for good.
    fn leave(
        &mut self,
        client: usize,
        i: usize,
        victim: Option<Entry>,
        exchanges: bool,
        moves: &mut Vec<Move>,
    ) {
        let Some(entry) = victim else { return };
        let node = self.node(client, i);
        self.levels[node].forget_warm(entry);
        match self.topology.below(node) {
            Some(below) if self.base != Base::Promote => {
                if self.base == Base::HintK {
                    let block = &mut self.blocks[entry as usize];
                    block.history = self.steps.push(block.history, false);
                }
                let hint = self.depart(node, entry);
                let came = Move::Demoted(entry, below);
                let arrival = Arrival { moved: true, hint, exchanges, came };
                self.receive(client, i + 1, entry, arrival, moves);
            }
            _ => {
                self.blocks[entry as usize] = Block::default();
                moves.push(Move::Dropped(entry, node));
            }
        }
    }

    /// A block leaves a cache for another one: F, which goes with it. A stay that began with a move
    /// is a move of the slot in which it ends.
    fn depart(&mut self, node: usize, entry: Entry) -> f64 {
        if self.blocks[entry as usize].moved {
            self.count_move(node, entry);
        }
        self.levels[node].hints.frequency(entry, self.slot)
    }

    fn count_move(&mut self, node: usize, entry: Entry) {
        if let Some(log) = &mut self.log {
            log.moves[node].push((entry, self.slot));
        }
        if let Hints::Table(table) = &mut self.levels[node].hints {
            table.count(entry, self.slot);
        }
    }

    /// The `i`-th cache gives a block up to one above it: F, which goes with it.
    fn give_up(&mut self, node: usize, entry: Entry) -> f64 {
        self.pull(node, entry);
        self.levels[node].forget_warm(entry);
        self.depart(node, entry)
    }

    /// The hottest block of Q1 goes up if it is hotter than the one that came down into Q1.
    fn exchange(&mut self, node: usize, entry: Entry, moves: &mut Vec<Move>) {
        let Some(hottest) = self.levels[node].hottest.as_mut().and_then(Hottest::first) else {
            return;
        };
        if self.now - self.blocks[hottest as usize].updated > self.settings.period {
            self.refresh_hot(node, hottest);
        }
        let heat = |entry: Entry| self.blocks[entry as usize].heat;
        if hottest == entry || heat(hottest) <= heat(entry) {
            return;
        }
        // It goes back to where it came from, which another client may be above.
        let client = usize::from(self.blocks[hottest as usize].client);
        let Some(i) = self.topology.path(client).iter().position(|&n| n == node) else { return };
        if i == 0 {
            return;
        }
        let hint = self.give_up(node, hottest);
        let came = Move::Promoted(hottest, self.node(client, i - 1));
        let arrival = Arrival { moved: true, hint, exchanges: false, came };
        self.receive(client, i - 1, hottest, arrival, moves);
    }

    /// Finds the hotness of a block of a Q1 by recency anew, where it stands.
    fn refresh_hot(&mut self, node: usize, entry: Entry) {
        let before = self.blocks[entry as usize].heat;
        self.find_heat(node, entry);
        let block = self.blocks[entry as usize];
        let level = &mut self.levels[node];
        level.cold_in_hot -= u32::from(before == 0.0);
        level.cold_in_hot += u32::from(block.heat == 0.0);
        if let Some(hottest) = &mut level.hottest {
            hottest.change(entry, block.heat);
        }
        level.note_warm(entry, &block);
    }

    /// A hit at a cache where the block stays.
    fn hit(&mut self, client: usize, i: usize, entry: Entry, moves: &mut Vec<Move>) {
        let node = self.node(client, i);
        let was_hot = self.blocks[entry as usize].is_hot();
        self.pull(node, entry);
        let block = &mut self.blocks[entry as usize];
        block.hits = block.hits.saturating_add(1);
        self.find_heat(node, entry);
        if was_hot {
            self.push_hot(node, entry);
        } else if self.levels[node].target > 0 && self.settings.rises_by_hits {
            let victim = self.insert_hot(node, entry);
            self.leave(client, i, victim, true, moves);
        } else {
            self.push_base(node, entry);
        }
    }

    fn gauges(&self, node: usize) -> Gauges {
        let level = &self.levels[node];
        Gauges { hot_blocks: level.hot.len(), hot_target: level.target, probability: 0.0 }
    }

    /// Per block H, hits, when it came and when it was updated, flags; the table.
    fn overhead_bytes(&self, node: usize) -> u64 {
        let table = match &self.levels[node].hints {
            Hints::Table(table) => table.bytes(),
            Hints::Foretold(foretold) => foretold.bytes(),
        };
        (8 + 2 + 4 + 4 + 2) * u64::from(self.levels[node].capacity) + table
    }

    fn describe(&self, node: usize) -> Vec<(&'static str, String)> {
        let level = &self.levels[node];
        let (hot, base) = (level.hot.tail_first(), level.base.tail_first());
        let khv = |&entry: &Entry| (entry, self.steps.real(self.blocks[entry as usize].history));
        let khv: Vec<_> = hot.iter().chain(&base).map(khv).collect();
        let table = match &level.hints {
            Hints::Table(table) => format!("{:?}", table.entries()),
            Hints::Foretold(_) => String::new(),
        };
        vec![
            ("Q1", format!("{hot:?}")),
            ("Q2", format!("{base:?}")),
            ("T_out", table),
            ("c1", level.target.to_string()),
            ("khv", format!("{khv:?}")),
        ]
    }

    fn validate(&self) -> Result<(), String> {
        for (node, level) in self.levels.iter().enumerate() {
            level.validate(&self.blocks).map_err(|what| format!("cache {node}: {what}"))?;
            let queued = [(&level.hot, 2), (&level.base, 1)];
            for (queue, place) in queued {
                let at = |&entry: &Entry| usize::from(self.blocks[entry as usize].place);
                if queue.tail_first().iter().any(|entry| at(entry) != 2 * node + place) {
                    return Err(format!("cache {node}: a block says that it is elsewhere"));
                }
            }
        }
        let placed = self.blocks.iter().filter(|block| block.place != 0).count();
        let held: u32 = self.levels.iter().map(Level::len).sum();
        if placed == held as usize { Ok(()) } else { Err(format!("{held} held, {placed} placed")) }
    }
}
