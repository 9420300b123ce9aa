//! T_out: what a cache remembers of the moves of blocks that left it, by slots of the time (HFA,
//! section 3.1). An entry is (block, slot, number of moves) and takes 24 bytes; there are as many
//! as fit in a small share of the cache. A full table drops what is older than k slots, and then,
//! of the oldest slot, the entry with the fewest moves, inserted first among equals.
//!
//! The frequency of a block is the sum of its moves in the last k slots, those of each slot worth
//! delta times those of the one after it.
//!
//! Most blocks move once in a slot, so the records of one move are a list, in the order of their
//! insertion; only the others are in a heap.
//!
//! The records of a block are a chain, newest slot first. The oldest of a chain always goes first,
//! and nobody is told: what leads to a record is believed only if that is still of the block, and
//! older than the one that leads there.
//!
//! Invariants: every record is in the list or in the heap, as its count says, and in the chain of
//! its block.

use crate::Entry;
use crate::heap::Heap;
use crate::lists::Lists;

/// Bytes of an entry: block, slot, count, and the links that find them.
pub(super) const ENTRY_BYTES: u64 = 24;

const NONE: u32 = u32::MAX;
const ONES: u32 = 0;

#[derive(Clone, Copy, Default)]
struct Record {
    slot: u64,
    /// Records made up to it.
    inserted: u64,
    entry: Entry,
    /// Moves; none: the record is free.
    count: u32,
    /// Where the block's record of an earlier slot is or was.
    earlier: u32,
}

/// The table of one cache.
pub(super) struct TOut {
    slots: u64,
    /// Worth of a move by its age in slots, as far back as moves count.
    weights: Vec<f64>,
    max: u32,
    /// All records; those of one move are in a list. Front: inserted first, so of the oldest slot.
    records: Lists<Record>,
    free: Vec<u32>,
    /// Where the newest record of each block is or was.
    newest: Vec<u32>,
    /// Records of more moves by slot, count and age: the first goes first.
    more: Heap<(u64, u32, u64)>,
    inserted: u64,
}

impl TOut {
    /// At most `max` entries; moves count for `slots` slots. With 0 of either it holds nothing.
    pub(super) fn new(max: u32, slots: u64, decay: f64) -> Self {
        Self {
            slots,
            weights: (0..slots).map(|age| decay.powi(age as i32)).collect(),
            max: if slots == 0 { 0 } else { max },
            records: Lists::new(1),
            free: Vec::new(),
            newest: Vec::new(),
            more: Heap::new(),
            inserted: 0,
        }
    }

    pub(super) fn grow(&mut self, entries: u32) {
        self.newest.resize(self.newest.len().max(entries as usize), NONE);
    }

    /// As [`LinkedLevel::warm`](super::super::link::LinkedLevel::warm).
    pub(super) fn warm(&self, entry: Entry) -> u32 {
        self.newest[entry as usize]
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.max) * ENTRY_BYTES
    }

    fn len(&self) -> u32 {
        self.records.len(ONES) + self.more.len()
    }

    /// The record there, if it is one of the block made before `before`.
    #[inline(always)]
    fn record(&self, id: u32, entry: Entry, before: u64) -> Option<Record> {
        if id == NONE {
            return None;
        }
        let record = self.records.data(id);
        let is_right = record.entry == entry && record.count > 0 && record.inserted < before;
        is_right.then_some(record)
    }

    /// The newest record of a block.
    #[inline(always)]
    fn newest(&self, entry: Entry) -> Option<Record> {
        self.record(self.newest[entry as usize], entry, u64::MAX)
    }

    /// One more move of a block.
    #[inline(always)]
    pub(super) fn count(&mut self, entry: Entry, slot: u64) {
        if self.newest(entry).is_some_and(|record| record.slot == slot) {
            self.count_again(self.newest[entry as usize]);
        } else if self.max > 0 {
            self.insert(entry, slot);
        }
    }

    fn insert(&mut self, entry: Entry, slot: u64) {
        let room = if self.len() == self.max { self.make_room(slot) } else { self.free.pop() };
        let id = room.unwrap_or_else(|| {
            let id = self.records.entries();
            self.records.grow(id + 1);
            self.more.grow(id + 1);
            id
        });
        self.inserted += 1;
        let earlier = std::mem::replace(&mut self.newest[entry as usize], id);
        let inserted = self.inserted;
        *self.records.data_mut(id) = Record { slot, inserted, entry, count: 1, earlier };
        self.records.push_back(ONES, id);
    }

    fn count_again(&mut self, id: u32) {
        let record = self.records.data_mut(id);
        record.count += 1;
        let key = (record.slot, record.count, record.inserted);
        if record.count == 2 {
            self.records.remove(ONES, id);
            self.more.push(key, id);
        } else {
            self.more.update(key, id);
        }
    }

    /// The record that goes first, and its slot.
    #[inline(always)]
    fn first(&self) -> Option<(u64, u32)> {
        let one = self.records.front(ONES).map(|id| (self.records.data(id).slot, id));
        let more = self.more.first().map(|((slot, ..), id)| (slot, id));
        match (one, more) {
            (Some(one), Some(more)) => Some(if more.0 < one.0 { more } else { one }),
            (one, more) => one.or(more),
        }
    }

    /// Drops what is too old to count, or else the record that goes first: one that is free then.
    #[inline(always)]
    fn make_room(&mut self, slot: u64) -> Option<u32> {
        let (mut oldest, mut id) = self.first()?;
        loop {
            self.drop_record(id);
            if oldest + self.slots > slot {
                return Some(id);
            }
            match self.first() {
                Some(next) if next.0 + self.slots <= slot => {
                    self.free.push(id);
                    (oldest, id) = next;
                }
                _ => return Some(id),
            }
        }
    }

    #[inline(always)]
    fn drop_record(&mut self, id: u32) {
        let count = std::mem::take(&mut self.records.data_mut(id).count);
        if count == 1 {
            self.records.remove(ONES, id);
        } else {
            self.more.remove(id);
        }
    }

    /// The records of a block that count, newest first.
    #[inline(always)]
    fn live(&self, entry: Entry, slot: u64) -> impl Iterator<Item = Record> + '_ {
        let next = move |r: &Record| self.record(r.earlier, entry, r.inserted);
        let all = std::iter::successors(self.newest(entry), next);
        all.take_while(move |r| slot - r.slot < self.slots)
    }

    /// F of the paper: moves in the last slots, earlier ones less.
    #[inline(always)]
    pub(super) fn frequency(&self, entry: Entry, slot: u64) -> f64 {
        if self.knows(entry) { self.sum(entry, slot) } else { 0.0 }
    }

    fn sum(&self, entry: Entry, slot: u64) -> f64 {
        let worth = |r: Record| self.weights[(slot - r.slot) as usize] * f64::from(r.count);
        self.live(entry, slot).map(worth).sum()
    }

    /// Whether there is a record of a block, of whatever age.
    #[inline(always)]
    pub(super) fn knows(&self, entry: Entry) -> bool {
        self.newest(entry).is_some()
    }

    /// Most entries.
    pub(super) fn max(&self) -> u32 {
        self.max
    }

    /// Whether any move of a block counts.
    pub(super) fn remembers(&self, entry: Entry, slot: u64) -> bool {
        self.live(entry, slot).next().is_some()
    }

    /// (block, slot, count), by slot and block.
    pub(super) fn entries(&self) -> Vec<(Entry, u64, u32)> {
        let more = self.more.iter().map(|(_, id)| id);
        let record = |id: u32| {
            let r = self.records.data(id);
            (r.entry, r.slot, r.count)
        };
        let mut all: Vec<_> = self.records.iter(ONES).chain(more).map(record).collect();
        all.sort_unstable_by_key(|&(entry, slot, _)| (slot, entry));
        all
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        let chained = (0..self.newest.len() as u32).map(|entry| {
            let next = |r: &Record| self.record(r.earlier, entry, r.inserted);
            let chain = std::iter::successors(self.newest(entry), next);
            let slots: Vec<u64> = chain.map(|r| r.slot).collect();
            (slots.len(), slots.is_sorted_by(|a, b| a > b))
        });
        let (mut count, mut is_sorted) = (0, true);
        chained.for_each(|(len, sorted)| (count, is_sorted) = (count + len, is_sorted && sorted));
        if !is_sorted || count != self.len() as usize || self.len() > self.max {
            return Err(format!("T_out: {count} chained, {} ordered", self.len()));
        }
        let ones = || self.records.iter(ONES).map(|id| self.records.data(id));
        let aged = ones().map(|r| r.inserted).is_sorted();
        let mores = self.more.iter().all(|((slot, count, inserted), id)| {
            let r = self.records.data(id);
            count > 1 && (r.slot, r.count, r.inserted) == (slot, count, inserted)
        });
        if !aged || !ones().all(|r| r.count == 1) || !mores {
            return Err("T_out: a record is not where its count and age say".into());
        }
        self.records.check()?;
        self.more.check()
    }
}

#[cfg(test)]
mod tests {
    use super::TOut;

    /// `hfa-eq-1` of the specification.
    #[test]
    fn frequency_as_in_the_worked_example() {
        let mut table = TOut::new(8, 6, 0.5);
        table.grow(1);
        [0, 1, 1, 2].into_iter().for_each(|slot| table.count(0, slot));
        let f = table.frequency(0, 2);
        assert_eq!((f, f / 24.0 + 3.0 / 6.0), (2.25, 0.59375));
    }

    #[test]
    fn a_full_table_drops_the_oldest_slot_first_and_there_the_fewest_moves() {
        let mut table = TOut::new(3, 2, 0.5);
        table.grow(9);
        [(0, 0), (0, 0), (1, 0), (2, 1)].into_iter().for_each(|(e, s)| table.count(e, s));
        table.count(3, 1);
        assert_eq!(table.entries(), [(0, 0, 2), (2, 1, 1), (3, 1, 1)], "fewest moves");
        table.count(4, 3);
        assert_eq!(table.entries(), [(4, 3, 1)], "older than two slots");
        table.validate().unwrap();
    }
}
