//! AUTO: evicts the block that promises the fewest read hits for its stay, as far as blocks like
//! it, resident or evicted, have shown.
//!
//! Blocks are classed by the number of their references, by whether the last one was a write, and
//! by age. The cache counts when blocks of each class are read again, are written again or are
//! forgotten, and reviews now and then what a block of each class and age is worth: the read hits
//! for each unit of time that it stays, for the stay of which these are the most. That is the line
//! of EVA (Beckmann & Sanchez, HPCA 2017) and LHD (Beckmann, Chen & Cidon, NSDI 2018); below a
//! cache that writes back, a block that was just written comes back otherwise than one that was
//! just read.
//!
//! Until enough is learned, and wherever it does better, a fixed table orders the blocks by the
//! distance between their last two references, in the manner of LIRS. Two miniatures try both.
//!
//! | file | |
//! | --- | --- |
//! | `auto/block.rs` | what is known of a block, and its class |
//! | `auto/evidence.rs` | what is counted, and the values that follow from it |
//! | `auto/order.rs` | the blocks by value |
//! | `auto/miniature.rs` | the two miniatures |
//!
//! Invariants: an entry in order is resident, an entry among the ghosts is known and not resident,
//! and no other entry is known; the evidence counts each known block; and those of the parts.

mod block;
mod evidence;
mod miniature;
mod order;

use self::block::{Block, Table};
use self::evidence::{BUCKETS, Evidence, TICKS, bucket, fixed_keys};
use self::miniature::{Miniatures, Use};
use self::order::{CELLS, GHOSTS, Key, Order};
use crate::containers::ghosts::{GHOST, GhostList, Ghosts};
use crate::containers::lists::Lists;
use crate::registry::{Footprint, Kind, Parameter, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "auto",
    aliases: &[],
    summary: "evicts the block that promises the fewest read hits for its stay, by what it learned",
    source: "ours, after Beckmann & Sanchez, HPCA 2017",
    parameters: &[
        GHOST,
        Parameter {
            name: "review",
            kind: Kind::Integer(1, 1 << 31),
            default: "1024",
            help: "fewest references between two reviews of the values",
        },
        Parameter {
            name: "miniature",
            kind: Kind::Integer(1, 1 << 31),
            default: "512",
            help: "fewest blocks of the small caches that try the tables",
        },
    ],
    memory: Footprint { tables: learned, ..Footprint::new(5, 240) },
    build: |arguments, context| {
        let (review, least) = (arguments.integer("review"), arguments.integer("miniature"));
        let ghost = arguments.real("ghost");
        Ok(Box::new(Auto::new(context.capacity, ghost, review as u32, least as u32)))
    },
};

/// Bytes of the tables of the classes, and of what the two miniatures know: some 1,024 blocks, and
/// from 16,384 on one in 16, which the bytes of a block contain.
fn learned(blocks: u32) -> u64 {
    (108 << 10) + 400 * u64::from(blocks.min(1024))
}

/// Fewest references of a tick.
const TICK_MIN: u32 = 16;

/// Above the references of a tick, and the ticks between two reviews.
const COUNT_MAX: u32 = 1 << 28;

/// Fewest ticks between two reviews.
const REVIEW_MIN: u32 = 2;

/// Ticks after which what was counted counts half.
const HALVING: f64 = (12 * TICKS) as f64;

#[derive(Clone, Debug)]
struct Auto {
    capacity: u32,
    /// Fewest references between two reviews.
    review: u32,
    ghosts: Ghosts,
    /// The residents by value, the ghosts by time.
    order: Order,
    evidence: Evidence,
    miniatures: Miniatures,
    fixed: Box<[Key; CELLS]>,
    learned: Box<[Key; CELLS]>,
    /// References of this tick so far.
    in_tick: u32,
    /// Ticks since the last review.
    ticks: u32,
}

impl Auto {
    /// `ghost`: ghosts, of the capacity; `least`: fewest blocks of a miniature.
    fn new(capacity: u32, ghost: f64, review: u32, least: u32) -> Self {
        let evidence = Evidence::new();
        let (learned, fixed) = (Box::new(evidence.keys()), Box::new(fixed_keys()));
        Self {
            capacity,
            review,
            ghosts: Ghosts::new(GHOSTS, ghost, capacity),
            order: Order::new(Table::Fixed, &fixed),
            evidence,
            miniatures: Miniatures::new(least, capacity, &fixed, &learned),
            fixed,
            learned,
            in_tick: 0,
            ticks: 0,
        }
    }

    #[inline(always)]
    fn block(&self, entry: Entry) -> Block {
        self.order.blocks.data(entry)
    }

    /// Counts a reference to an entry that is in no list.
    #[inline(always)]
    fn count(&mut self, entry: Entry, how: Use) {
        let block = self.block(entry);
        let is_write = how == Use::Admit { is_write: true };
        let mut now = block.referenced(self.evidence.tick, is_write);
        if block.is_known() {
            self.evidence.returns(block, is_write);
        } else {
            now.set_sampled(self.miniatures.draw(entry));
        }
        self.evidence.add(now);
        *self.order.blocks.data_mut(entry) = now;
        if now.is_sampled() {
            self.miniatures.refer(entry, now, how);
        }
    }

    /// Takes an entry out of the list that it is in, if any.
    #[inline(always)]
    fn unlink(&mut self, entry: Entry, block: Block) {
        if block.is_resident() {
            self.order.remove(entry);
        } else if block.is_known() {
            self.order.blocks.remove(GHOSTS, entry);
        }
    }

    /// Makes an entry resident that is known and in no list.
    #[inline(always)]
    fn enter(&mut self, entry: Entry) {
        self.order.blocks.data_mut(entry).set_resident(true);
        self.order.insert(entry);
    }

    /// Makes an entry a ghost that is known and in no list.
    fn keep(&mut self, entry: Entry, out: &mut Evictions) {
        self.order.blocks.data_mut(entry).set_resident(false);
        self.ghosts.clone().keep(self, entry, out);
    }

    #[inline(always)]
    fn make_room(&mut self, out: &mut Evictions) {
        if self.order.len() >= self.capacity {
            self.evict(out);
        }
    }

    #[inline(always)]
    fn evict(&mut self, out: &mut Evictions) {
        if let Some(first) = self.order.first() {
            self.order.remove(first);
            self.order.blocks.data_mut(first).set_resident(false);
            self.ghosts.clone().evict(self, first, out);
        }
    }

    /// A reference after which the entry is resident. True on a hit.
    #[inline(always)]
    fn refer(&mut self, entry: Entry, how: Use, out: &mut Evictions) -> bool {
        let block = self.block(entry);
        self.unlink(entry, block);
        if !block.is_resident() {
            self.make_room(out);
        }
        self.count(entry, how);
        self.enter(entry);
        self.end_reference();
        block.is_resident()
    }

    /// A reference after which the entry is a ghost.
    fn pass(&mut self, entry: Entry, out: &mut Evictions) {
        self.unlink(entry, self.block(entry));
        self.count(entry, Use::Take);
        self.keep(entry, out);
        self.end_reference();
    }

    #[inline(always)]
    fn end_reference(&mut self) {
        self.in_tick += 1;
        if self.in_tick >= self.tick_length() {
            self.end_tick();
        }
    }

    /// In references.
    #[inline(always)]
    fn tick_length(&self) -> u32 {
        (self.capacity / TICKS).max(TICK_MIN)
    }

    #[inline(never)]
    fn end_tick(&mut self) {
        self.in_tick = 0;
        self.evidence.end_tick();
        let tick = self.evidence.tick;
        self.order.grow_older(tick);
        self.miniatures.grow_older(tick);
        self.ticks += 1;
        if self.ticks >= self.review.div_ceil(self.tick_length()).max(REVIEW_MIN) {
            self.review();
        }
    }

    /// Values the classes anew, and changes the table if the other one is better.
    fn review(&mut self) {
        *self.learned = self.evidence.keys();
        let fade = HALVING / (HALVING + std::f64::consts::LN_2 * f64::from(self.ticks));
        self.ticks = 0;
        self.evidence.fade(fade);
        match self.miniatures.review(&self.learned, fade) {
            Some(table) if table != self.order.table() => {
                let keys = if table == Table::Fixed { &self.fixed } else { &self.learned };
                self.order.change_table(table, keys);
            }
            _ if self.order.table() == Table::Learned => self.order.rank(&self.learned),
            _ => (),
        }
    }

    /// Known entries: residents by class, then ghosts.
    fn known(&self) -> impl Iterator<Item = Entry> + '_ {
        self.order.iter().chain(self.order.blocks.iter(GHOSTS))
    }
}

impl GhostList for Auto {
    fn len(&self, list: u32) -> u32 {
        self.order.blocks.len(list)
    }

    fn remember(&mut self, list: u32, entry: Entry) {
        self.order.blocks.push_back(list, entry);
    }

    fn pop(&mut self, list: u32) -> Option<Entry> {
        self.order.blocks.pop_front(list)
    }

    fn forget(&mut self, entry: Entry) {
        let block = std::mem::take(self.order.blocks.data_mut(entry));
        self.evidence.forget(block);
        if block.is_sampled() {
            self.miniatures.forget(entry);
        }
    }
}

impl Policy for Auto {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.order.len()
    }

    fn grow(&mut self, entries: u32) {
        self.order.blocks.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.block(entry).is_resident()
    }

    fn remembers(&self, entry: Entry) -> bool {
        self.block(entry).is_known() && !self.contains(entry)
    }

    #[inline(always)]
    fn access(&mut self, entry: Entry, out: &mut Evictions) -> bool {
        self.refer(entry, Use::Admit { is_write: false }, out)
    }

    #[inline(always)]
    fn write(&mut self, entry: Entry, out: &mut Evictions) -> bool {
        self.refer(entry, Use::Admit { is_write: true }, out)
    }

    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        self.refer(entry, Use::Admit { is_write: false }, out);
    }

    /// A hit that places nothing: a miniature that does not hold the block does not admit it.
    fn touch(&mut self, entry: Entry, out: &mut Evictions) {
        self.refer(entry, Use::Keep, out);
    }

    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            self.pass(entry, out);
        }
    }

    fn note(&mut self, entry: Entry, out: &mut Evictions) {
        if !self.contains(entry) {
            self.pass(entry, out);
        }
    }

    /// A known block keeps its class and age; an unknown one counts as just read for the first
    /// time.
    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        let block = self.block(entry);
        self.unlink(entry, block);
        if !block.is_resident() {
            self.make_room(out);
        }
        let mut now = block;
        if block.is_known() {
            now.bucket = bucket(self.evidence.age(block)) as u8;
        } else {
            now = block.referenced(self.evidence.tick, false);
            now.set_sampled(self.miniatures.draw(entry));
            self.evidence.add(now);
        }
        *self.order.blocks.data_mut(entry) = now;
        if now.is_sampled() {
            self.miniatures.refer(entry, now, Use::Place);
        }
        self.enter(entry);
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        let block = self.block(entry);
        self.unlink(entry, block);
        if block.is_known() {
            self.evidence.remove(block);
            *self.order.blocks.data_mut(entry) = Block::default();
        }
        if block.is_sampled() {
            self.miniatures.forget(entry);
        }
    }

    /// A tick has another length from now on. If another share of the blocks is sampled, the sample
    /// is drawn anew, and the miniatures are empty.
    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        let mut ghosts = self.ghosts.clone();
        ghosts.resize(self, capacity, out);
        self.ghosts = ghosts;
        while self.order.len() > capacity {
            self.evict(out);
        }
        if self.miniatures.resize(capacity) {
            for entry in self.known().collect::<Vec<_>>() {
                let is_in = self.miniatures.draw(entry);
                self.order.blocks.data_mut(entry).set_sampled(is_in);
            }
        }
    }

    /// By class, the newest first.
    fn residents(&self) -> Vec<Entry> {
        self.order.iter().collect()
    }

    fn victim(&self) -> Option<Entry> {
        self.order.first().filter(|_| self.order.len() >= self.capacity)
    }

    /// The table that orders the blocks now.
    fn leader(&self) -> Option<&'static str> {
        Some(match self.order.table() {
            Table::Fixed => "fixed",
            Table::Learned => "learned",
        })
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.order.blocks.prefetch(entry)
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        self.evidence.save_load(snapshot)?;
        snapshot.number(&mut self.in_tick, 0..=COUNT_MAX)?;
        snapshot.number(&mut self.ticks, 0..=COUNT_MAX)?;
        let mut is_learned = self.order.table() == Table::Learned;
        snapshot.flag(&mut is_learned)?;
        self.learned.iter_mut().try_for_each(|key| snapshot.number(key, 0..=Key::MAX))?;
        let now = self.evidence.tick;
        for list in 0..=GHOSTS {
            self.order.blocks.save_load(list, snapshot, |snapshot, block| {
                snapshot.number(&mut block.last, 0..=now)?;
                snapshot.number(&mut block.count, 1..=u16::MAX)?;
                snapshot.number(&mut block.bucket, 0..=BUCKETS as u8 - 1)?;
                snapshot.number(&mut block.bits, 0..=Block::BITS_MAX)
            })?;
        }
        if snapshot.is_loading() {
            let (table, keys) = if is_learned {
                (Table::Learned, &self.learned)
            } else {
                (Table::Fixed, &self.fixed)
            };
            self.order.load(table, keys);
            let known: Vec<_> = self.known().map(|entry| self.block(entry)).collect();
            known.into_iter().for_each(|block| self.evidence.add(block));
        }
        self.miniatures.save_load(snapshot, &self.order.blocks, [&self.fixed, &self.learned])
    }

    fn validate(&self) -> Result<(), String> {
        self.order.check()?;
        self.ghosts.check(self)?;
        self.miniatures.check(&self.order.blocks)?;
        self.evidence.check(self.known().map(|entry| self.block(entry)))?;
        crate::check_room(self.order.len(), self.capacity)?;
        let blocks: &Lists<Block> = &self.order.blocks;
        let resident = (0..blocks.entries()).filter(|&e| self.contains(e)).count();
        let known = (0..blocks.entries()).filter(|&e| self.block(e).is_known()).count();
        let mut blocks = self.known().map(|entry| self.block(entry));
        if !blocks.all(Block::is_sound) {
            return Err("a block has a distance that is none".into());
        }
        let is_right = resident == self.order.iter().filter(|&e| self.contains(e)).count()
            && resident == self.order.len() as usize
            && known == self.known().count();
        is_right.then_some(()).ok_or_else(|| "lists and marks of the blocks disagree".into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::evidence::{ticks, value};
    use super::*;

    /// Prints what is learned of a stream: the file UNDERCROFT_STREAM has a line for each
    /// reference, the number of a block and `R` or `W`; UNDERCROFT_BLOCKS is the capacity. A line
    /// for each class and bucket: number of the class, age in capacities, read hits in as many
    /// references as the cache has blocks (of a cache full of such blocks that is the hit ratio).
    #[test]
    #[ignore = "prints what `make auto-picture` draws"]
    fn values_by_age() {
        let given = |name| std::env::var(name).expect(name);
        let capacity = given("UNDERCROFT_BLOCKS").parse().unwrap();
        let stream = std::fs::read_to_string(given("UNDERCROFT_STREAM")).unwrap();
        let (mut auto, mut entries) = (Auto::new(capacity, 4.0, 1024, 512), HashMap::new());
        for line in stream.lines() {
            let (block, kind) = line.split_once(' ').expect("a number and a letter");
            let next = entries.len() as Entry;
            let entry = *entries.entry(block).or_insert(next);
            auto.grow(entries.len() as u32);
            let is_write = kind == "W";
            auto.refer(entry, Use::Admit { is_write }, &mut Evictions::new());
        }
        for (cell, &key) in auto.learned.iter().enumerate() {
            let age = f64::from(ticks(cell % BUCKETS).start) / f64::from(TICKS);
            println!("value {} {age} {}", cell / BUCKETS, value(key) * f64::from(TICKS));
        }
    }
}
