//! The records of all blocks of a process, in doubly linked lists: what
//! [`Lists`](crate::lists::Lists) are, but that a record with its two links fills one line of the
//! processor's cache, and that lists do not count what they hold. Every level has some lists of its
//! own there.
//!
//! For the time of a reference they are borrowed ([`Blocks::at_hand`]): where they lie and how many
//! there are is then known to the compiler to stay, and not read again after every change of one.
//!
//! Every list is a ring closed by a record that stands for no block; these come first.
//!
//! Invariants (checked by [`Blocks::check`]): walking a list forward and backward meets the same
//! blocks; a block is in at most one list; one that is in none has `next == UNLINKED`.

use std::ops::{Deref, DerefMut};

use super::activity::History;
use crate::Entry;

/// `next` of a block that is in no list.
const UNLINKED: u32 = u32::MAX;

/// What the level that holds a block knows of it, if there is one. All levels' is `remembered`
/// alone: there each has a bit of its own. HFA's terms are those of `hfa/`.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Block {
    /// The records beside it in its list.
    prev: u32,
    next: u32,
    /// H of HFA, as stored.
    pub(super) heat: f64,
    /// When it came, and when its hotness was found last, in references.
    pub(super) loaded: u64,
    pub(super) updated: u64,
    /// Its turn among equally hot blocks of a queue.
    pub(super) came: u64,
    /// Its place among the blocks whose hotness is to expire, 0 of none.
    pub(super) noted: u32,
    /// A bit for each level that remembers moves of it, whoever holds it.
    pub(super) remembered: u32,
    /// Whose it is.
    pub(super) owner: u16,
    /// Hits since it came, at most 65,535.
    pub(super) hits: u16,
    /// The last moves, as Hint-K remembers them.
    pub(super) history: History,
    /// 1 + the number of the level that holds it; 0: none does, and the rest means nothing.
    pub(super) place: u8,
    /// Whether it is in the hot queue there.
    pub(super) is_hot: bool,
    /// Which list of a queue by hotness it is in, if that has it in a list.
    pub(super) class: u8,
    /// Whether it came from another level.
    pub(super) moved: bool,
    /// Whether the level below may remember so many moves of it that it would be hot there. It
    /// remembers no more of them while the block is here.
    pub(super) may_be_hot_below: bool,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            prev: UNLINKED,
            next: UNLINKED,
            heat: 0.0,
            loaded: 0,
            updated: 0,
            came: 0,
            noted: 0,
            remembered: 0,
            owner: 0,
            hits: 0,
            history: 0,
            place: 0,
            is_hot: false,
            class: 0,
            moved: false,
            may_be_hot_below: false,
        }
    }
}

/// The records, owned or at hand.
pub(super) struct Blocks<R = Vec<Block>> {
    records: R,
    lists: u32,
}

/// The records at hand.
pub(super) type BlocksAtHand<'a> = Blocks<&'a mut [Block]>;

impl Blocks {
    /// So many empty lists over no blocks yet.
    pub(super) fn new(lists: u32) -> Self {
        let end = |i| Block { prev: i, next: i, ..Block::default() };
        Self { records: (0..lists).map(end).collect(), lists }
    }

    /// Makes entries below `entries` valid; new ones are in no list.
    pub(super) fn grow(&mut self, entries: u32) {
        let records = self.lists as usize + entries as usize;
        if records > self.records.len() {
            self.records.resize(records, Block::default());
        }
    }

    /// Borrows the records for the reference at work, with their parts side by side.
    #[inline(always)]
    pub(super) fn at_hand(&mut self) -> BlocksAtHand<'_> {
        Blocks { records: &mut self.records, lists: self.lists }
    }
}

impl BlocksAtHand<'_> {
    /// Borrows the records again, to hand them on to a callee.
    #[inline(always)]
    pub(super) fn again(&mut self) -> BlocksAtHand<'_> {
        Blocks { records: self.records, lists: self.lists }
    }
}

impl<R: Deref<Target = [Block]>> Blocks<R> {
    /// Number of valid entries.
    pub(super) fn entries(&self) -> u32 {
        self.records.len() as u32 - self.lists
    }

    #[inline(always)]
    fn entry_of(&self, record: u32) -> Option<Entry> {
        record.checked_sub(self.lists)
    }

    #[inline(always)]
    pub(super) fn get(&self, entry: Entry) -> &Block {
        &self.records[(entry + self.lists) as usize]
    }

    #[inline(always)]
    pub(super) fn is_empty(&self, list: u32) -> bool {
        self.records[list as usize].next == list
    }

    #[inline(always)]
    pub(super) fn front(&self, list: u32) -> Option<Entry> {
        self.entry_of(self.records[list as usize].next)
    }

    #[inline(always)]
    pub(super) fn back(&self, list: u32) -> Option<Entry> {
        self.entry_of(self.records[list as usize].prev)
    }

    /// The blocks of a list, front to back.
    pub(super) fn iter(&self, list: u32) -> impl Iterator<Item = Entry> + '_ {
        std::iter::successors(self.front(list), |&entry| self.entry_of(self.get(entry).next))
    }

    /// The blocks of a list, back to front.
    pub(super) fn iter_back(&self, list: u32) -> impl Iterator<Item = Entry> + '_ {
        std::iter::successors(self.back(list), |&entry| self.entry_of(self.get(entry).prev))
    }

    /// Checks the invariants in the head of this file.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut is_listed = vec![false; self.records.len()];
        for list in 0..self.lists {
            let (mut at, mut next) = (list, self.records[list as usize].next);
            while next != list {
                if next < self.lists || std::mem::replace(&mut is_listed[next as usize], true) {
                    return Err(format!("list {list} runs into another"));
                }
                if self.records[next as usize].prev != at {
                    return Err(format!("list {list}: prev and next disagree"));
                }
                (at, next) = (next, self.records[next as usize].next);
            }
            if self.records[list as usize].prev != at {
                return Err(format!("list {list}: its end is another's"));
            }
        }
        let says = |record: &Block| record.next != UNLINKED;
        let blocks = self.lists as usize..self.records.len();
        match blocks.clone().find(|&i| says(&self.records[i]) != is_listed[i]) {
            Some(i) => Err(format!("record {i}: whether it is in a list is said otherwise there")),
            None => Ok(()),
        }
    }
}

impl<R: DerefMut<Target = [Block]>> Blocks<R> {
    #[inline(always)]
    pub(super) fn get_mut(&mut self, entry: Entry) -> &mut Block {
        &mut self.records[(entry + self.lists) as usize]
    }

    #[inline(always)]
    fn link(&mut self, record: u32, prev: u32, next: u32) {
        let it = &mut self.records[record as usize];
        debug_assert_eq!(it.next, UNLINKED, "a block is in at most one list");
        (it.prev, it.next) = (prev, next);
        self.records[prev as usize].next = record;
        self.records[next as usize].prev = record;
    }

    #[inline(always)]
    pub(super) fn push_front(&mut self, list: u32, entry: Entry) {
        let first = self.records[list as usize].next;
        self.link(entry + self.lists, list, first);
    }

    #[inline(always)]
    pub(super) fn push_back(&mut self, list: u32, entry: Entry) {
        let last = self.records[list as usize].prev;
        self.link(entry + self.lists, last, list);
    }

    /// Takes a block out of the list that it is in.
    #[inline(always)]
    pub(super) fn remove(&mut self, entry: Entry) {
        let it = self.get_mut(entry);
        let (prev, next) = (it.prev, it.next);
        debug_assert_ne!(next, UNLINKED, "removed from no list");
        it.next = UNLINKED;
        self.records[prev as usize].next = next;
        self.records[next as usize].prev = prev;
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, Blocks};
    use crate::Entry;

    #[test]
    fn a_record_fills_a_line_of_the_cache() {
        assert_eq!((size_of::<Block>(), align_of::<Block>()), (64, 64));
    }

    #[test]
    fn lists_agree_with_arrays() {
        let (lists, entries) = (3, 20);
        let mut ours = Blocks::new(lists);
        ours.grow(entries);
        let mut model: Vec<Vec<Entry>> = vec![Vec::new(); lists as usize];
        let mut x = 3_u64;
        for step in 0..5000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (entry, list) = ((x >> 33) as u32 % entries, (x >> 50) as u32 % lists);
            let held = model.iter_mut().find_map(|m| {
                let at = m.iter().position(|&e| e == entry)?;
                Some(m.remove(at))
            });
            match held {
                Some(entry) => ours.remove(entry),
                None if x >> 63 == 0 => {
                    ours.push_back(list, entry);
                    model[list as usize].push(entry);
                }
                None => {
                    ours.push_front(list, entry);
                    model[list as usize].insert(0, entry);
                }
            }
            for (list, model) in (0..).zip(&model) {
                assert_eq!(ours.iter(list).collect::<Vec<_>>(), *model, "step {step}");
                assert!(ours.iter_back(list).eq(model.iter().rev().copied()));
                let ends = (ours.front(list), ours.back(list), ours.is_empty(list));
                let expected = (model.first().copied(), model.last().copied(), model.is_empty());
                assert_eq!(ends, expected);
            }
            ours.check().unwrap();
        }
    }
}
