//! The blocks of a cache: a table with a row for each, no larger than the cache. Data of resident
//! blocks is indexed by row, so that it lies close together. A new block gets the row that was
//! freed last, which is likely still in the processor's cache.
//!
//! Invariant (checked by [`Blocks::check`]): a row is the row of its block, or free.

use std::ops::{Index, IndexMut};

use super::super::activity::History;
use undercroft_policy::Entry;

/// Number of a row.
pub(super) type Row = u32;

/// Marks a block without a row.
const NONE: Row = Row::MAX;

/// What is known of a resident block.
#[derive(Clone, Copy, Default)]
pub(super) struct Block {
    pub(super) entry: Entry,
    /// The hotness H of the paper, as computed last.
    pub(super) hotness: f64,
    /// Hits since it came; saturates at 65,535.
    pub(super) hits: u16,
    /// When it came, and when its hotness was last computed, in references.
    pub(super) loaded: u64,
    pub(super) updated: u64,
    /// Whether it is in Q1, and not in Q2.
    pub(super) in_q1: bool,
    /// Whether it came from another cache.
    pub(super) moved: bool,
    /// Whether the moves remembered at the level below would put the block into Q1 there.
    pub(super) may_be_hot_below: bool,
    /// Its last moves; only H-HFA keeps them.
    pub(super) history: History,
    /// Its owner: the number of a client.
    pub(super) owner: u16,
    /// Its place in the order of Q1; set where [`Hottest`](super::queues::Hottest) is used.
    pub(super) place: u64,
}

impl Block {
    #[inline(always)]
    pub(super) fn is_hot(&self) -> bool {
        self.hotness > 0.0
    }
}

#[derive(Default)]
pub(super) struct Blocks {
    rows: Vec<Block>,
    free: Vec<Row>,
    /// By entry.
    row_of: Vec<Row>,
}

impl Blocks {
    /// Makes entries below `entries` valid.
    pub(super) fn grow(&mut self, entries: u32) {
        self.row_of.resize(self.row_of.len().max(entries as usize), NONE);
    }

    pub(super) fn len(&self) -> u32 {
        (self.rows.len() - self.free.len()) as u32
    }

    pub(super) fn rows(&self) -> &[Block] {
        &self.rows
    }

    /// The row of a block, if it is resident.
    #[inline(always)]
    pub(super) fn find(&self, entry: Entry) -> Option<Row> {
        Some(self.row_of[entry as usize]).filter(|&row| row != NONE)
    }

    /// Adds a block and returns its row.
    #[inline(always)]
    pub(super) fn insert(&mut self, block: Block) -> Row {
        let row = self.free.pop().unwrap_or(self.rows.len() as Row);
        match self.rows.get_mut(row as usize) {
            Some(free) => *free = block,
            None => self.rows.push(block),
        }
        self.row_of[block.entry as usize] = row;
        row
    }

    /// Removes a block and frees its row.
    #[inline(always)]
    pub(super) fn remove(&mut self, row: Row) -> Block {
        let block = self[row];
        self.row_of[block.entry as usize] = NONE;
        self.free.push(row);
        block
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let here =
            (0..self.row_of.len() as Entry).filter_map(|entry| Some((entry, self.find(entry)?)));
        let is_own = |(entry, row): (Entry, Row)| self[row].entry == entry;
        if here.clone().count() as u32 == self.len() && here.clone().all(is_own) {
            return Ok(());
        }
        Err("the rows are not those of the blocks that are here".into())
    }
}

impl Index<Row> for Blocks {
    type Output = Block;

    #[inline(always)]
    fn index(&self, row: Row) -> &Block {
        &self.rows[row as usize]
    }
}

impl IndexMut<Row> for Blocks {
    #[inline(always)]
    fn index_mut(&mut self, row: Row) -> &mut Block {
        &mut self.rows[row as usize]
    }
}
