//! Blocks in the order in which AUTO evicts them. A cell is a class of blocks at an age; each
//! cell has a key, and the block that leaves first is in the filled cell of the least key.
//!
//! Not here: how a block is classed (`block.rs`), and which key a cell has (`evidence.rs`).
//!
//! The blocks of a class are one list, the newest in front, and a cell is a piece of it. So a block
//! that comes into the next cell, since it is older now, stays where it is.
//!
//! Invariants (checked by [`Order::check`]): the blocks in order are those of the lists of the
//! classes, each in that of its class; buckets rise from front to back; `newest`, `lens` and
//! `filled` are those of the lists.

use super::block::{Block, CLASSES, Table};
use super::evidence::{BUCKETS, ENDS};
use crate::Entry;
use crate::containers::lists::Lists;

/// Number of cells.
pub(super) const CELLS: usize = CLASSES * BUCKETS;

/// A number of the order of the cells' values.
pub(super) type Key = u16;

/// The list of blocks that are known, but not in order: ghosts, the oldest in front.
pub(super) const GHOSTS: u32 = CLASSES as u32;

#[derive(Clone, Debug)]
pub(super) struct Order {
    table: Table,
    /// A list for each class, and `GHOSTS`.
    pub(super) blocks: Lists<Block>,
    keys: Box<[Key; CELLS]>,
    /// The cells by key, and those with equal keys by number.
    cells: Box<[u16; CELLS]>,
    /// Where each cell is in `cells`.
    positions: Box<[u16; CELLS]>,
    /// A bit for each position: whether its cell holds blocks.
    filled: [u64; CELLS.div_ceil(64)],
    /// The front of each cell that holds blocks.
    newest: Box<[Entry; CELLS]>,
    /// Blocks in each cell.
    lens: Box<[u32; CELLS]>,
    len: u32,
}

#[inline(always)]
fn class_of(cell: usize) -> u32 {
    (cell / BUCKETS) as u32
}

/// The cells of the same class with older blocks.
#[inline(always)]
fn older(cell: usize) -> std::ops::Range<usize> {
    cell + 1..(cell / BUCKETS + 1) * BUCKETS
}

impl Order {
    pub(super) fn new(table: Table, keys: &[Key; CELLS]) -> Self {
        let mut order = Self {
            table,
            blocks: Lists::new(GHOSTS + 1),
            keys: Box::new([0; CELLS]),
            cells: Box::new(std::array::from_fn(|cell| cell as u16)),
            positions: Box::new([0; CELLS]),
            filled: Default::default(),
            newest: Box::new([0; CELLS]),
            lens: Box::new([0; CELLS]),
            len: 0,
        };
        order.rank(keys);
        order
    }

    /// The table that gives the classes.
    pub(super) fn table(&self) -> Table {
        self.table
    }

    /// Number of blocks in order.
    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    #[inline(always)]
    fn cell(&self, block: Block) -> usize {
        block.class(self.table) * BUCKETS + usize::from(block.bucket)
    }

    /// The filled cell with the next older blocks of the class, from `cell` on.
    #[inline(always)]
    fn filled_from(&self, cell: usize) -> Option<usize> {
        (cell..older(cell).end).find(|&cell| self.lens[cell] > 0)
    }

    /// Updates `filled` for a cell.
    #[inline(always)]
    fn mark(&mut self, cell: usize) {
        let position = self.positions[cell];
        let (word, bit) = (usize::from(position / 64), position % 64);
        let is_filled = u64::from(self.lens[cell] > 0);
        self.filled[word] = self.filled[word] & !(1 << bit) | is_filled << bit;
    }

    /// Puts a block, which is in no list, in front of the cell of its class and bucket.
    #[inline(always)]
    pub(super) fn insert(&mut self, entry: Entry) {
        let cell = self.cell(self.blocks.data(entry));
        match self.filled_from(cell) {
            Some(next) => self.blocks.insert_before(class_of(cell), entry, self.newest[next]),
            None => self.blocks.push_back(class_of(cell), entry),
        }
        self.newest[cell] = entry;
        self.lens[cell] += 1;
        self.len += 1;
        if self.lens[cell] == 1 {
            self.mark(cell);
        }
    }

    /// Takes a block out of the order.
    #[inline(always)]
    pub(super) fn remove(&mut self, entry: Entry) {
        let cell = self.cell(self.blocks.data(entry));
        if self.newest[cell] == entry {
            self.newest[cell] = self.blocks.next(entry).unwrap_or_default();
        }
        self.blocks.remove(class_of(cell), entry);
        self.lens[cell] -= 1;
        self.len -= 1;
        if self.lens[cell] == 0 {
            self.mark(cell);
        }
    }

    /// The back of a filled cell.
    #[inline(always)]
    fn oldest(&self, cell: usize) -> Option<Entry> {
        let behind = older(cell).find(|&cell| self.lens[cell] > 0);
        match behind {
            Some(next) => self.blocks.prev(self.newest[next]),
            None => self.blocks.back(class_of(cell)),
        }
    }

    /// The block that leaves first: the oldest of the filled cell with the least key; or the newest
    /// if the blocks of this cell gain by growing older, as those of a loop do.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<Entry> {
        let word = self.filled.iter().position(|&word| word != 0)?;
        let position = 64 * word + self.filled[word].trailing_zeros() as usize;
        let cell = usize::from(self.cells[position]);
        if !older(cell).is_empty() && self.keys[cell + 1] > self.keys[cell] {
            Some(self.newest[cell])
        } else {
            self.oldest(cell)
        }
    }

    /// The blocks by class, the newest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..GHOSTS).flat_map(|class| self.blocks.iter(class))
    }

    /// Passes blocks that have left the age of their cell into the next one.
    pub(super) fn grow_older(&mut self, tick: u32) {
        for class in 0..self.table.classes() {
            if self.blocks.len(class as u32) > 0 {
                for (bucket, &end) in ENDS.iter().enumerate().rev() {
                    self.pass_on(class * BUCKETS + bucket, tick, end);
                }
            }
        }
    }

    /// Passes blocks from the back of a cell into the next one, up to the first that is younger
    /// than `end`.
    #[inline(always)]
    fn pass_on(&mut self, cell: usize, tick: u32, end: u32) {
        let (mut passed, mut next) = (0, None);
        if self.lens[cell] > 0 {
            next = self.oldest(cell);
        }
        while let Some(entry) = next.filter(|_| passed < self.lens[cell]) {
            let block = self.blocks.data_mut(entry);
            if tick - block.last < end {
                break;
            }
            block.bucket += 1;
            self.newest[cell + 1] = entry;
            passed += 1;
            next = self.blocks.prev(entry);
        }
        if passed > 0 {
            self.lens[cell] -= passed;
            self.lens[cell + 1] += passed;
            self.mark(cell);
            self.mark(cell + 1);
        }
    }

    /// Gives the cells other keys.
    pub(super) fn rank(&mut self, keys: &[Key; CELLS]) {
        *self.keys = *keys;
        self.cells.sort_unstable_by_key(|&cell| (keys[usize::from(cell)], cell));
        for (position, &cell) in (0..).zip(self.cells.iter()) {
            self.positions[usize::from(cell)] = position;
        }
        (0..CELLS).for_each(|cell| self.mark(cell));
    }

    /// Orders the blocks by another table: those of a cell by the tick of their last reference.
    /// Within a tick the order is turned round, which nothing depends on.
    pub(super) fn change_table(&mut self, table: Table, keys: &[Key; CELLS]) {
        let mut all: Vec<_> = self.iter().collect();
        all.iter().for_each(|&entry| self.remove(entry));
        self.table = table;
        self.rank(keys);
        all.sort_by_key(|&entry| self.blocks.data(entry).last);
        all.iter().for_each(|&entry| self.insert(entry));
    }

    /// Takes over blocks that were put into the lists of their classes, for another table.
    pub(super) fn load(&mut self, table: Table, keys: &[Key; CELLS]) {
        self.table = table;
        let cell = |entry| (entry, self.cell(self.blocks.data(entry)));
        let all: Vec<_> = self.iter().map(cell).collect();
        for &(entry, cell) in all.iter().rev() {
            self.newest[cell] = entry;
            self.lens[cell] += 1;
        }
        self.len = all.len() as u32;
        self.rank(keys);
    }

    /// Checks the invariants in the head of this file.
    pub(super) fn check(&self) -> Result<(), String> {
        self.blocks.check()?;
        let mut lens = [0; CELLS];
        for class in 0..GHOSTS {
            let mut before = None;
            for entry in self.blocks.iter(class) {
                let cell = self.cell(self.blocks.data(entry));
                let is_first = before != Some(cell);
                let is_wrong = is_first && self.newest[cell] != entry;
                if class_of(cell) != class || before > Some(cell) || is_wrong {
                    return Err(format!("entry {entry} is in the wrong place of cell {cell}"));
                }
                (lens[cell], before) = (lens[cell] + 1, Some(cell));
            }
        }
        let is_filled = |cell: usize| {
            let position = self.positions[cell];
            self.filled[usize::from(position / 64)] >> (position % 64) & 1 == 1
        };
        match (0..CELLS).find(|&cell| is_filled(cell) != (lens[cell] > 0)) {
            Some(cell) => Err(format!("cell {cell} is marked wrong")),
            None if lens != *self.lens || lens.iter().sum::<u32>() != self.len => {
                Err("the blocks are counted wrong".into())
            }
            None => Ok(()),
        }
    }
}
