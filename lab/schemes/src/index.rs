//! The index of a stack of levels: maps the blocks of a trace to the entries that the levels use.
//! Only blocks that some level holds or remembers have an entry. So the tables of the levels grow
//! with their capacities, not with the number of blocks in the trace.
//!
//! Invariants (checked by [`Index::validate`]): a block with an entry is the block of that entry;
//! every entry is in use or free.

use undercroft_policy::Entry;

/// Marks a block without an entry.
const NONE: Entry = Entry::MAX;

/// Marks a block that no cache holds.
const NOWHERE: u8 = u8::MAX;

/// [`Index::sweep`] looks for unused entries when there are this many beyond twice those in use.
const SPARE_ENTRIES: usize = 1 << 10;

#[derive(Default)]
pub(super) struct Index {
    /// The entry of each block.
    entries: Vec<Entry>,
    /// Of each entry: the block, and the cache that holds it.
    slots: Vec<(u32, u8)>,
    free: Vec<Entry>,
}

impl Index {
    /// Makes blocks below `blocks` valid.
    pub(super) fn grow(&mut self, blocks: u32) {
        self.entries.resize(self.entries.len().max(blocks as usize), NONE);
    }

    /// Number of blocks that are valid.
    pub(super) fn blocks(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Number of entries ever made, in use or free.
    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The entry of a block, if it has one.
    #[inline]
    pub(super) fn find(&self, block: u32) -> Option<Entry> {
        Some(self.entries[block as usize]).filter(|&entry| entry != NONE)
    }

    /// The entry of a block; a new one if it has none.
    #[inline]
    pub(super) fn enter(&mut self, block: u32) -> Entry {
        self.find(block).unwrap_or_else(|| {
            let entry = self.free.pop().unwrap_or(self.len());
            match self.slots.get_mut(entry as usize) {
                Some(slot) => *slot = (block, NOWHERE),
                None => self.slots.push((block, NOWHERE)),
            }
            self.entries[block as usize] = entry;
            entry
        })
    }

    /// The block of an entry.
    #[inline]
    pub(super) fn block(&self, entry: Entry) -> u32 {
        self.slots[entry as usize].0
    }

    /// The cache that holds the block of an entry.
    #[inline]
    pub(super) fn home(&self, entry: Entry) -> Option<usize> {
        Some(self.slots[entry as usize].1).filter(|&node| node != NOWHERE).map(usize::from)
    }

    /// Sets the cache that holds the block of an entry; `None`: no cache holds it.
    #[inline]
    pub(super) fn set_home(&mut self, entry: Entry, node: Option<usize>) {
        self.slots[entry as usize].1 = node.map_or(NOWHERE, |node| node as u8);
    }

    /// Frees an entry, since no level knows its block any more.
    pub(super) fn free(&mut self, entry: Entry) {
        let block = self.block(entry);
        self.entries[block as usize] = NONE;
        self.free.push(entry);
    }

    /// Frees the entries of blocks that no level knows any more, when none is free and there are
    /// many more than `used`. Levels drop blocks from their tables without notice.
    pub(super) fn sweep(&mut self, used: usize, is_known: impl Fn(Entry) -> bool) {
        if !self.free.is_empty() || self.slots.len() < used.saturating_mul(2) + SPARE_ENTRIES {
            return;
        }
        for entry in 0..self.len() {
            if self.home(entry).is_none() && !is_known(entry) {
                self.free(entry);
            }
        }
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        let known = (0..self.blocks()).filter_map(|block| Some((block, self.find(block)?)));
        let mut used = 0;
        for (block, entry) in known {
            used += 1;
            if self.block(entry) != block {
                return Err(format!("block {block} has the entry of another one"));
            }
        }
        if used + self.free.len() != self.slots.len() {
            return Err("entries are lost".into());
        }
        Ok(())
    }
}
