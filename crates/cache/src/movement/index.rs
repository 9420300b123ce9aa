//! The index of a stack of levels: from the blocks of a trace to the entries by which the levels
//! know them. Only blocks that some level holds or remembers have an entry, so what the levels keep
//! by entry grows with their capacities and not with the number of blocks in the trace.
//!
//! Invariants (checked by [`Index::validate`]): a block with an entry is the block of that entry;
//! every entry is in use or free.

use crate::Entry;

/// Instead of an entry: the block is not known.
const NONE: Entry = Entry::MAX;

/// Instead of the number of a cache: none holds the block.
const NOWHERE: u8 = u8::MAX;

/// Entries beyond those in use that are kept before all are looked through.
const SPARE_ENTRIES: usize = 1 << 10;

#[derive(Default)]
pub(super) struct Index {
    /// By block.
    entries: Vec<Entry>,
    /// By entry: the block, and the cache that holds it.
    slots: Vec<(u32, u8)>,
    free: Vec<Entry>,
}

impl Index {
    /// Makes blocks below `blocks` valid.
    pub(super) fn grow(&mut self, blocks: u32) {
        self.entries.resize(self.entries.len().max(blocks as usize), NONE);
    }

    /// Number of blocks that may be asked for.
    pub(super) fn blocks(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Number of entries so far, in use or not.
    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The entry of a block that is known.
    #[inline]
    pub(super) fn find(&self, block: u32) -> Option<Entry> {
        Some(self.entries[block as usize]).filter(|&entry| entry != NONE)
    }

    /// The entry of a block: the one that it has, or a fresh one.
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

    /// The block of an entry has come to a cache, or has left the last one.
    #[inline]
    pub(super) fn set_home(&mut self, entry: Entry, node: Option<usize>) {
        self.slots[entry as usize].1 = node.map_or(NOWHERE, |node| node as u8);
    }

    /// The block of an entry is not known any more.
    pub(super) fn free(&mut self, entry: Entry) {
        let block = self.block(entry);
        self.entries[block as usize] = NONE;
        self.free.push(entry);
    }

    /// Frees the entries of blocks that are not known any more, when there are many beyond those
    /// `used`: tables drop blocks without saying so.
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
