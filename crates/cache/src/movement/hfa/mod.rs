//! HFA: blocks that moved between levels lately, or are hit often, get a protected queue (Meng et
//! al., JCST 2017). Here is a cache of it, and what its variants share: receiving a block, hits,
//! what leaves, and the partition between the hot queue Q1 and the base queue Q2. What a cache does
//! about a request, an answer or a block from a neighbour is in `d_hfa.rs`, `p_hfa.rs` and
//! `h_hfa.rs`, over DEMOTE, PROMOTE and Hint-K.
//!
//! The hotness of a block at a cache is H = F/(kT) + hits/t2: F sums its moves there in the last k
//! slots of T references (`t_out.rs`), hits are those since it came t2 references ago. H is found
//! when a block comes and at each hit, and stands until then ("lazy update"), but not longer than
//! the k slots that it speaks of (`partition.rs`). The readings of the paper that are chosen here,
//! and what they are worth, are in `docs/reproduction/hierarchies.md`.
//!
//! Invariants: those of [`Level`].

mod d_hfa;
mod foretold;
mod h_hfa;
mod level;
mod linked;
mod options;
mod p_hfa;
mod partition;
mod queue;
mod t_out;

use std::sync::Arc;

use super::activity::Steps;
use super::link::{Left, Load, Standing};
use crate::Entry;
use crate::policy::Arguments;
use crate::ring::Ring;
use foretold::Foretold;
use level::{Block, Hints, Hottest, Level, Place};
use options::Settings;
use p_hfa::Chances;
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
    /// What came with it.
    load: Load,
    /// Whether it may drive the hottest block of the cache below up.
    exchanges: bool,
    owner: u16,
}

/// A cache.
struct Hfa {
    base: Base,
    settings: Settings,
    steps: Steps,
    blocks: Vec<Block>,
    level: Level,
    /// Over PROMOTE only: with which probability blocks pass.
    chances: Chances,
    has_lower: bool,
    /// References so far, the current one included, and its slot.
    now: u64,
    slot: u64,
    /// Moves of a first pass.
    log: Option<Vec<(Entry, u64)>>,
}

impl Hfa {
    /// `foretold`: the moves of a first pass, and the number of the cache in it. `logs`: whether
    /// this is such a pass.
    fn new(
        base: Base,
        arguments: &Arguments,
        standing: Standing,
        draws: &[f64],
        foretold: Option<(&Arc<MoveLog>, usize)>,
        logs: bool,
    ) -> Self {
        let Standing { capacity, block_bytes, way_blocks, has_lower, .. } = standing;
        let settings = Settings::new(base, arguments, way_blocks);
        let steps = Steps::new(settings.steps);
        let queues = match base {
            Base::Demote => (Queue::recency(), Queue::heat()),
            Base::Promote => (Queue::heat(), Queue::recency()),
            Base::HintK => (Queue::heat(), Queue::activity(steps)),
        };
        let bytes = f64::from(capacity) * f64::from(block_bytes) * settings.table_share;
        let entries = settings.entries.unwrap_or((bytes / ENTRY_BYTES as f64).max(1.0) as u32);
        let hints = match foretold {
            Some((log, node)) => {
                Hints::Foretold(Foretold::new(log, node, settings.k, settings.decay))
            }
            None => Hints::Table(TOut::new(entries, settings.k, settings.decay)),
        };
        let mut level = Level::new(capacity, settings.first_target(capacity), queues, hints);
        // Only blocks with a cache above can be exchanged.
        level.hottest = (base == Base::Demote && standing.has_upper).then(Hottest::new);
        level.warm = settings.expires.then(Ring::new);
        Self {
            base,
            settings,
            steps,
            blocks: Vec::new(),
            level,
            chances: Chances::new(arguments, base, standing, draws),
            has_lower,
            now: 0,
            slot: 0,
            log: logs.then(Vec::new),
        }
    }

    fn key(&self, block: &Block) -> Key {
        Key { heat: block.heat, activity: self.steps.value(block.history) }
    }

    fn push_hot(&mut self, entry: Entry) {
        self.blocks[entry as usize].place = Place::Hot;
        let block = self.blocks[entry as usize];
        let key = self.key(&block);
        self.level.push_hot(entry, &block, key, true);
    }

    fn push_base(&mut self, entry: Entry) {
        self.blocks[entry as usize].place = Place::Base;
        let block = self.blocks[entry as usize];
        let key = self.key(&block);
        self.level.push_base(entry, &block, key);
    }

    /// Takes a block out of its queue; it is in none then.
    fn pull(&mut self, entry: Entry) {
        let block = self.blocks[entry as usize];
        let key = self.key(&block);
        self.level.remove(entry, &block, key);
        self.blocks[entry as usize].place = Place::Nowhere;
    }

    /// Takes out what Q2, or Q1 where Q2 has nothing, gives up.
    fn pull_victim(&mut self) -> Option<Entry> {
        let level = &self.level;
        let victim = level.base.tail().or_else(|| level.hot.tail())?;
        self.pull(victim);
        Some(victim)
    }

    fn frequency(&mut self, entry: Entry) -> f64 {
        self.level.hints.frequency(entry, self.slot)
    }

    /// H at the cache, found anew.
    fn find_heat(&mut self, entry: Entry) {
        self.level.forget_warm(entry);
        let f = self.level.hints.frequency(entry, self.slot);
        let block = &mut self.blocks[entry as usize];
        let stay = (self.now - block.loaded).max(1);
        block.heat = self.settings.heat(f, block.hits, stay);
        block.updated = self.now;
    }

    /// A block comes to the cache.
    fn receive(&mut self, entry: Entry, arrival: Arrival, left: &mut Option<Left>) {
        let Arrival { moved, load, exchanges, owner } = arrival;
        let f = self.level.hints.frequency(entry, self.slot).max(load.frequency);
        let block = &mut self.blocks[entry as usize];
        (block.hits, block.loaded, block.updated) = (0, self.now, self.now);
        (block.moved, block.heat) = (moved, self.settings.heat(f, 0, 1));
        block.history = self.steps.within(load.history);
        (block.owner, block.may_be_hot_below) = (owner, true);
        let is_hot = self.level.target > 0
            && match self.base {
                Base::Demote | Base::Promote => f > self.settings.least,
                Base::HintK => self.level.hints.remembers(entry, self.slot),
            };
        let victim = if is_hot {
            self.insert_hot(entry)
        } else {
            let victim = if self.level.is_full() { self.pull_victim() } else { None };
            self.push_base(entry);
            victim
        };
        self.leave(victim, exchanges, left);
    }

    /// Puts a block, which is in no queue, into Q1: who has to leave the cache for it.
    fn insert_hot(&mut self, entry: Entry) -> Option<Entry> {
        let level = &self.level;
        if level.hot.len() < level.target {
            let victim = if level.is_full() { self.pull_victim() } else { None };
            self.push_hot(entry);
            return victim;
        }
        let tail = level.hot.tail().expect("Q1 has room for a block");
        self.pull(tail);
        self.push_hot(entry);
        let level = &self.level;
        if !level.is_full() {
            self.push_base(tail);
            return None;
        }
        if self.blocks[tail as usize].hits <= level.least_base_hits() {
            return Some(tail);
        }
        let victim = self.pull_victim();
        self.push_base(tail);
        victim
    }

    /// A block, taken out of its queue, leaves the cache downwards, or for good.
    fn leave(&mut self, victim: Option<Entry>, exchanges: bool, left: &mut Option<Left>) {
        let Some(entry) = victim else { return };
        self.level.forget_warm(entry);
        let Block { owner, history, may_be_hot_below, .. } = self.blocks[entry as usize];
        let goes_down = self.has_lower && self.base != Base::Promote;
        let load = goes_down.then(|| {
            let is_hint_k = self.base == Base::HintK;
            let history = if is_hint_k { self.steps.push(history, false) } else { history };
            Load { frequency: self.depart(entry), history }
        });
        let frequency = load.map_or(0.0, |load| load.frequency);
        let may_be_hot = may_be_hot_below || frequency > self.settings.least;
        let exchanges = exchanges && self.base == Base::Demote && load.is_some();
        let awaits = exchanges && may_be_hot;
        self.blocks[entry as usize] = Block::default();
        *left = Some(Left { entry, load, exchanges, awaits, owner });
    }

    /// A block leaves the cache for another one: F, which goes with it. A stay that began with a
    /// move is a move of the slot in which it ends.
    fn depart(&mut self, entry: Entry) -> f64 {
        if self.blocks[entry as usize].moved {
            self.count_move(entry);
        }
        self.level.hints.frequency(entry, self.slot)
    }

    fn count_move(&mut self, entry: Entry) {
        if let Some(log) = &mut self.log {
            log.push((entry, self.slot));
        }
        if let Hints::Table(table) = &mut self.level.hints {
            table.count(entry, self.slot);
        }
    }

    /// The cache gives a block up to one above it: what goes with it.
    fn give_up(&mut self, entry: Entry) -> Load {
        self.pull(entry);
        self.level.forget_warm(entry);
        let frequency = self.depart(entry);
        let block = std::mem::take(&mut self.blocks[entry as usize]);
        Load { frequency, history: block.history }
    }

    /// A hit, after which the block stays.
    fn hit(&mut self, entry: Entry, left: &mut Option<Left>) {
        let was_hot = self.blocks[entry as usize].is_hot();
        self.pull(entry);
        let block = &mut self.blocks[entry as usize];
        block.hits = block.hits.saturating_add(1);
        self.find_heat(entry);
        if was_hot {
            self.push_hot(entry);
        } else if self.level.target > 0 && self.settings.rises_by_hits {
            let victim = self.insert_hot(entry);
            self.leave(victim, true, left);
        } else {
            self.push_base(entry);
        }
    }
}
