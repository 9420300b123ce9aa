//! The blocks of a cache: a row for each, in a table no larger than the cache. What is kept of
//! resident blocks is kept by row, so that it lies close together, however many blocks there are:
//! a block that comes gets the row that was left last, which the processor has at hand.
//!
//! Invariant (checked by [`Blocks::check`]): a row is the row of its block, or free.

use std::ops::{Index, IndexMut};

use super::super::activity::History;
use crate::Entry;

/// Number of a row.
pub(super) type Row = u32;

/// Instead of a row: the block is not here.
const NONE: Row = Row::MAX;

/// What is known of a block while it is here.
#[derive(Clone, Copy, Default)]
pub(super) struct Block {
    pub(super) entry: Entry,
    /// H of the paper, as stored.
    pub(super) hotness: f64,
    /// Hits since it came, at most 65,535.
    pub(super) hits: u16,
    /// When it came, and when its hotness was found last, in references.
    pub(super) loaded: u64,
    pub(super) updated: u64,
    /// Whether it is in Q1, and not in Q2.
    pub(super) in_q1: bool,
    /// Whether it came from another cache.
    pub(super) moved: bool,
    /// Whether it would come into Q1 of the level below for the moves that are remembered there.
    pub(super) may_be_hot_below: bool,
    /// Its last moves, as Hint-K remembers them.
    pub(super) history: History,
    /// Whose it is.
    pub(super) owner: u16,
    /// Its place in Q1, where [`Hottest`](super::queues::Hottest) orders that.
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

    /// The row of a block, if that is here.
    #[inline(always)]
    pub(super) fn find(&self, entry: Entry) -> Option<Row> {
        Some(self.row_of[entry as usize]).filter(|&row| row != NONE)
    }

    /// A block comes.
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

    /// A block leaves.
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
