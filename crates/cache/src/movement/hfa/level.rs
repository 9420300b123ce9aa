//! One cache of HFA: the hot queue Q1 and the base queue Q2, how much of the cache Q1 may take, and
//! what the cache remembers of moves.
//!
//! Invariants (checked by [`Level::validate`]): Q1 and Q2 together hold no more than the capacity,
//! Q1 no more than its target; `cold_in_hot`, `warm_in_base` and the tally of hits agree with the
//! blocks in the queues.

use super::foretold::Foretold;
use super::queue::{Key, Queue};
use super::t_out::TOut;
use crate::Entry;
use crate::heap::{LazyHeap, Words};
use crate::ring::Ring;

/// What is known of a block at the cache that holds it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    pub(super) place: Place,
    /// Whose it is.
    pub(super) owner: u16,
    /// Whether it came from another cache.
    pub(super) moved: bool,
    /// Hits since it came, at most 65,535.
    pub(super) hits: u16,
    /// When it came, and when its hotness was found last, in references.
    pub(super) loaded: u64,
    pub(super) updated: u64,
    /// H of the paper, as stored.
    pub(super) heat: f64,
    /// The history of Hint-K.
    pub(super) history: u8,
    /// Whether the level below may remember so many moves of it that it would be hot there. It
    /// remembers no more of them while the block is here.
    pub(super) may_be_hot_below: bool,
}

/// The queue that a block is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    Nowhere,
    Base,
    Hot,
}

impl Block {
    pub(super) fn is_hot(&self) -> bool {
        self.place == Place::Hot
    }

    pub(super) fn is_here(&self) -> bool {
        self.place != Place::Nowhere
    }
}

/// Where F comes from.
pub(super) enum Hints {
    Table(TOut),
    Foretold(Foretold),
}

impl Hints {
    pub(super) fn frequency(&mut self, entry: Entry, slot: u64) -> f64 {
        match self {
            Self::Table(table) => table.frequency(entry, slot),
            Self::Foretold(foretold) => foretold.frequency(entry, slot),
        }
    }

    /// Whether there is any record of a block, old or not.
    pub(super) fn knows(&self, entry: Entry) -> bool {
        match self {
            Self::Table(table) => table.knows(entry),
            Self::Foretold(_) => true,
        }
    }

    pub(super) fn remembers(&mut self, entry: Entry, slot: u64) -> bool {
        match self {
            Self::Table(table) => table.remembers(entry, slot),
            Self::Foretold(foretold) => foretold.frequency(entry, slot) > 0.0,
        }
    }
}

pub(super) struct Level {
    pub(super) capacity: u32,
    /// Blocks that Q1 may hold: c1 of the paper.
    pub(super) target: u32,
    pub(super) hot: Queue,
    pub(super) base: Queue,
    pub(super) hints: Hints,
    /// The blocks of Q1 by hotness, the hottest first, nearest the head among equals: who is
    /// exchanged. Only where D-HFA exchanges.
    pub(super) hottest: Option<Hottest>,
    /// Blocks with hotness by when it was found, where hotness expires. Front: longest ago.
    pub(super) warm: Option<Ring>,
    /// Blocks without hotness in Q1, and with in Q2; and the sums of both over a period.
    pub(super) cold_in_hot: u32,
    pub(super) warm_in_base: u32,
    pub(super) cold_sum: u64,
    pub(super) warm_sum: u64,
    /// Number of blocks in Q2 by hits.
    base_hits: Vec<u32>,
}

/// The blocks of Q1 by hotness.
pub(super) struct Hottest {
    /// By falling hotness, then from the head on.
    heap: LazyHeap<Words>,
    /// Places given out at each end.
    head: u64,
    tail: u64,
}

/// The place of a block that is neither the newest nor the oldest.
const MIDDLE: u64 = 1 << 63;

/// A word that falls as hotness, which is not negative, rises.
fn falling(heat: f64) -> u64 {
    !heat.to_bits()
}

impl Hottest {
    pub(super) fn new() -> Self {
        Self { heap: LazyHeap::new(), head: MIDDLE, tail: MIDDLE }
    }

    pub(super) fn first(&mut self) -> Option<Entry> {
        self.heap.order();
        self.heap.first().map(|(_, entry)| entry)
    }

    fn push(&mut self, entry: Entry, heat: f64, at_head: bool) {
        let position = if at_head { &mut self.head } else { &mut self.tail };
        *position = if at_head { *position - 1 } else { *position + 1 };
        self.heap.push(Words(falling(heat), *position), entry);
    }

    pub(super) fn change(&mut self, entry: Entry, heat: f64) {
        let Words(_, position) = self.heap.key(entry);
        self.heap.update(Words(falling(heat), position), entry);
    }
}

impl Level {
    pub(super) fn new(capacity: u32, target: u32, queues: (Queue, Queue), hints: Hints) -> Self {
        let (hot, base) = queues;
        Self {
            capacity,
            target,
            hot,
            base,
            hints,
            hottest: None,
            warm: None,
            cold_in_hot: 0,
            warm_in_base: 0,
            cold_sum: 0,
            warm_sum: 0,
            base_hits: Vec::new(),
        }
    }

    pub(super) fn grow(&mut self, entries: u32) {
        self.hot.grow(entries);
        self.base.grow(entries);
        if let Hints::Table(table) = &mut self.hints {
            table.grow(entries);
        }
        if let Some(hottest) = &mut self.hottest {
            hottest.heap.grow(entries);
        }
        if let Some(warm) = &mut self.warm {
            warm.grow(entries);
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.hot.len() + self.base.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    /// Puts a block into Q1, at the head or in the last place for it.
    pub(super) fn push_hot(&mut self, entry: Entry, block: &Block, key: Key, at_head: bool) {
        if at_head {
            self.hot.push(entry, key);
        } else {
            self.hot.push_last(entry, key);
        }
        self.cold_in_hot += u32::from(block.heat == 0.0);
        if let Some(hottest) = &mut self.hottest {
            hottest.push(entry, block.heat, at_head);
        }
        self.note_warm(entry, block);
    }

    /// Puts a block into Q2.
    pub(super) fn push_base(&mut self, entry: Entry, block: &Block, key: Key) {
        self.base.push(entry, key);
        self.warm_in_base += u32::from(block.heat > 0.0);
        let hits = usize::from(block.hits);
        if self.base_hits.len() <= hits {
            self.base_hits.resize(hits + 1, 0);
        }
        self.base_hits[hits] += 1;
        self.note_warm(entry, block);
    }

    /// A block has hotness: it is to expire.
    pub(super) fn note_warm(&mut self, entry: Entry, block: &Block) {
        if let Some(warm) = &mut self.warm {
            if block.heat > 0.0 && !warm.contains(entry) {
                warm.push_back(entry, 1, self.capacity);
            }
        }
    }

    /// Takes a block out of the queue that it is in.
    pub(super) fn remove(&mut self, entry: Entry, block: &Block, key: Key) {
        if block.is_hot() {
            self.hot.remove(entry, key);
            self.cold_in_hot -= u32::from(block.heat == 0.0);
            if let Some(hottest) = &mut self.hottest {
                hottest.heap.remove(entry);
            }
        } else {
            self.base.remove(entry, key);
            self.warm_in_base -= u32::from(block.heat > 0.0);
            self.base_hits[usize::from(block.hits)] -= 1;
        }
    }

    /// A block leaves the cache, or its hotness is found anew.
    pub(super) fn forget_warm(&mut self, entry: Entry) {
        if let Some(warm) = &mut self.warm {
            if warm.contains(entry) {
                warm.remove(entry);
            }
        }
    }

    /// Fewest hits of a block in Q2.
    pub(super) fn least_base_hits(&self) -> u16 {
        self.base_hits.iter().position(|&blocks| blocks > 0).unwrap_or(0) as u16
    }

    pub(super) fn validate(&self, blocks: &[Block]) -> Result<(), String> {
        let (hot, base) = (self.hot.tail_first(), self.base.tail_first());
        for (queue, place) in [(&hot, Place::Hot), (&base, Place::Base)] {
            if queue.iter().any(|&entry| blocks[entry as usize].place != place) {
                return Err("a block says that it is elsewhere".into());
            }
        }
        let here = blocks.iter().filter(|block| block.is_here()).count();
        if here != self.len() as usize {
            return Err(format!("{} held, {here} placed", self.len()));
        }
        if self.hot.len() > self.target || self.len() > self.capacity {
            return Err(format!("{} hot of {}, {} in all", hot.len(), self.target, self.len()));
        }
        let heat = |entry: &&Entry| blocks[**entry as usize].heat > 0.0;
        let cold = hot.iter().filter(|entry| !heat(entry)).count();
        let warm = base.iter().filter(heat).count();
        if (cold, warm) != (self.cold_in_hot as usize, self.warm_in_base as usize) {
            return Err(format!("{cold} cold in Q1 and {warm} warm in Q2 are counted otherwise"));
        }
        for (hits, &count) in self.base_hits.iter().enumerate() {
            let with = |entry: &&Entry| usize::from(blocks[**entry as usize].hits) == hits;
            if base.iter().filter(with).count() != count as usize {
                return Err(format!("blocks of {hits} hits in Q2 are counted otherwise"));
            }
        }
        if let Hints::Table(table) = &self.hints {
            table.validate()?;
        }
        self.hot.check()?;
        self.base.check()
    }
}
