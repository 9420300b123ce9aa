//! Two small caches without data that try the tables: a sample of the blocks goes through both, and
//! the one that has more read hits says which table the cache uses.
//!
//! Invariants: a block has a number exactly if it is known and in the sample; a miniature holds
//! numbers of such blocks only, and no more than its capacity.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use undercroft_random::hash;

use super::block::{Block, Table};
use super::evidence::BUCKETS;
use super::order::{CELLS, GHOSTS, Key, Order};
use crate::Entry;
use crate::containers::lists::Lists;
use crate::snapshot::{Snapshot, SnapshotError};

/// Read hits by which the fixed table is ahead at the start, while nothing is learned.
const HEAD: f64 = 2.0;

/// Read hits by which a table must be ahead to be used.
const MARGIN: f64 = 2.0;

/// What becomes of a referenced block in a miniature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is resident after this read or write.
    Admit { is_write: bool },
    /// It stays if it is resident: a read that places nothing.
    Keep,
    /// It leaves: the level above has it now.
    Take,
    /// The level above evicted it. It is resident afterwards; this is no reference.
    Place,
}

#[derive(Clone, Debug)]
struct Miniature {
    order: Order,
    /// Read hits, older ones counting less.
    hits: f64,
}

impl Miniature {
    fn new(table: Table, keys: &[Key; CELLS], hits: f64) -> Self {
        Self { order: Order::new(table, keys), hits }
    }

    fn refer(&mut self, number: u32, block: Block, how: Use, capacity: u32) {
        let is_held = self.order.blocks.linked(number);
        if is_held {
            self.order.remove(number);
        }
        let is_read = !matches!(how, Use::Admit { is_write: true } | Use::Place);
        self.hits += f64::from(u8::from(is_held && is_read));
        let stays = match how {
            Use::Admit { .. } | Use::Place => true,
            Use::Keep => is_held,
            Use::Take => false,
        };
        if stays {
            self.shrink(capacity - 1);
            *self.order.blocks.data_mut(number) = block;
            self.order.insert(number);
        }
    }

    fn shrink(&mut self, capacity: u32) {
        while self.order.len() > capacity {
            let Some(first) = self.order.first() else { return };
            self.order.remove(first);
        }
    }
}

/// The two miniatures.
#[derive(Clone, Debug)]
pub(super) struct Miniatures {
    /// The smallest size of a miniature in blocks, if the cache is not smaller still.
    least: u32,
    /// One in so many blocks is in the sample.
    one_in: u32,
    capacity: u32,
    fixed: Miniature,
    learned: Miniature,
    /// The number of each known block of the sample.
    numbers: HashMap<Entry, u32, FixedState>,
    free: Vec<u32>,
    /// Blocks that were drawn or not drawn for the sample so far.
    drawn: u64,
}

/// One in how many blocks is in the sample at most.
const ONE_IN_MAX: u32 = 16;

impl Miniatures {
    pub(super) fn new(
        least: u32,
        capacity: u32,
        fixed: &[Key; CELLS],
        learned: &[Key; CELLS],
    ) -> Self {
        let mut miniatures = Self {
            least,
            one_in: 1,
            capacity: 1,
            fixed: Miniature::new(Table::Fixed, fixed, HEAD),
            learned: Miniature::new(Table::Learned, learned, 0.0),
            numbers: HashMap::default(),
            free: Vec::new(),
            drawn: 0,
        };
        miniatures.resize(capacity);
        miniatures
    }

    fn both(&mut self) -> [&mut Miniature; 2] {
        [&mut self.fixed, &mut self.learned]
    }

    /// Adopts another capacity of the cache. True if the sample has to be drawn anew: nothing is in
    /// it then.
    pub(super) fn resize(&mut self, capacity: u32) -> bool {
        let before = self.one_in;
        self.one_in = (capacity / self.least).clamp(1, ONE_IN_MAX);
        self.capacity = (capacity / self.one_in).max(1);
        let capacity = self.capacity;
        if self.one_in != before {
            let all: Vec<_> = self.numbers.keys().copied().collect();
            all.iter().for_each(|&entry| self.forget(entry));
            return true;
        }
        self.both().into_iter().for_each(|miniature| miniature.shrink(capacity));
        false
    }

    /// Draws whether a block that becomes known is in the sample.
    #[inline(always)]
    pub(super) fn draw(&mut self, entry: Entry) -> bool {
        self.drawn += 1;
        let is_in = (u128::from(hash(self.drawn)) * u128::from(self.one_in)) >> 64 == 0;
        if is_in {
            self.enter(entry);
        }
        is_in
    }

    fn enter(&mut self, entry: Entry) {
        let fresh = self.fixed.order.blocks.entries();
        let number = self.free.pop().unwrap_or(fresh);
        self.both().into_iter().for_each(|miniature| miniature.order.blocks.grow(number + 1));
        self.numbers.insert(entry, number);
    }

    /// Forgets a block of the sample.
    #[inline(never)]
    pub(super) fn forget(&mut self, entry: Entry) {
        let Some(number) = self.numbers.remove(&entry) else { return };
        for miniature in self.both() {
            if miniature.order.blocks.linked(number) {
                miniature.order.remove(number);
            }
        }
        self.free.push(number);
    }

    /// A use of a block of the sample, as it is afterwards.
    #[inline(never)]
    pub(super) fn refer(&mut self, entry: Entry, block: Block, how: Use) {
        let (number, capacity) = (self.numbers[&entry], self.capacity);
        self.both().into_iter().for_each(|miniature| miniature.refer(number, block, how, capacity));
    }

    pub(super) fn grow_older(&mut self, tick: u32) {
        self.both().into_iter().for_each(|miniature| miniature.order.grow_older(tick));
    }

    /// Adopts new keys of the learned table, and lets hits fade. Returns the table that is better,
    /// if it is better by far.
    pub(super) fn review(&mut self, learned: &[Key; CELLS], fade: f64) -> Option<Table> {
        self.learned.order.rank(learned);
        let ahead = self.learned.hits - self.fixed.hits;
        self.both().into_iter().for_each(|miniature| miniature.hits *= fade);
        match ahead {
            _ if ahead > MARGIN => Some(Table::Learned),
            _ if ahead < -MARGIN => Some(Table::Fixed),
            _ => None,
        }
    }

    /// Saves or loads the miniatures. `blocks` are the known blocks of the cache, loaded before;
    /// `keys` those of the two tables.
    pub(super) fn save_load(
        &mut self,
        snapshot: &mut Snapshot<'_>,
        blocks: &Lists<Block>,
        keys: [&[Key; CELLS]; 2],
    ) -> Result<(), SnapshotError> {
        snapshot.clock(&mut self.drawn)?;
        if snapshot.is_loading() {
            let known = (0..blocks.count()).flat_map(|list| blocks.iter(list));
            known.filter(|&entry| blocks.data(entry).is_sampled()).for_each(|e| self.enter(e));
        }
        let mut entries = vec![0; self.fixed.order.blocks.entries() as usize];
        self.numbers.iter().for_each(|(&entry, &number)| entries[number as usize] = entry);
        let Self { fixed, learned, numbers, .. } = self;
        for (miniature, keys) in [fixed, learned].into_iter().zip(keys) {
            snapshot.real(&mut miniature.hits, 0.0..=1e18)?;
            snapshot.list_again();
            let order = &mut miniature.order;
            for class in 0..GHOSTS {
                let held = order
                    .blocks
                    .iter(class)
                    .map(|n| (entries[n as usize], order.blocks.data(n).bucket));
                let held =
                    snapshot.entries_with(order.blocks.len(class), held, |snapshot, bucket| {
                        snapshot.number(bucket, 0..=BUCKETS as u8 - 1)
                    })?;
                for (entry, bucket) in held {
                    let number = numbers.get(&entry).copied().ok_or_else(not_sampled)?;
                    *order.blocks.data_mut(number) = Block { bucket, ..blocks.data(entry) };
                    order.blocks.push_back(class, number);
                }
            }
            if snapshot.is_loading() {
                order.load(order.table(), keys);
            }
        }
        Ok(())
    }

    /// Checks the invariants in the head of this file.
    pub(super) fn check(&self, blocks: &Lists<Block>) -> Result<(), String> {
        let known = (0..blocks.count()).flat_map(|list| blocks.iter(list));
        let sample: Vec<_> = known.filter(|&entry| blocks.data(entry).is_sampled()).collect();
        let is_sample = sample.iter().all(|entry| self.numbers.contains_key(entry));
        if !is_sample || sample.len() != self.numbers.len() {
            return Err("the sample is not that of the known blocks".into());
        }
        for order in [&self.fixed.order, &self.learned.order] {
            order.check()?;
            let numbered = self.numbers.values().filter(|&&number| order.blocks.linked(number));
            if numbered.count() as u32 != order.len() || order.len() > self.capacity {
                return Err("a miniature holds blocks that are not in the sample".into());
            }
        }
        Ok(())
    }
}

fn not_sampled() -> SnapshotError {
    SnapshotError::new("a miniature holds a block that is not in the sample")
}
