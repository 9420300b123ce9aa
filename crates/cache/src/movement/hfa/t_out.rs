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
//! Invariants: every record is in the list or in the heap, as its count says, and in the chain of
//! its block, newest slot first.

use crate::Entry;
use crate::heap::Heap;
use crate::lists::Lists;

/// Bytes of an entry: block, slot, count, and the links that find them.
pub(super) const ENTRY_BYTES: u64 = 24;

const NONE: u32 = u32::MAX;
const ONES: u32 = 0;

#[derive(Clone, Copy)]
struct Record {
    slot: u64,
    /// Records made before it.
    inserted: u64,
    entry: Entry,
    count: u32,
    /// The block's record of a later slot, and of an earlier one.
    later: u32,
    earlier: u32,
}

/// The table of one cache.
pub(super) struct TOut {
    slots: u64,
    /// Worth of a move by its age in slots, as far back as moves count.
    weights: Vec<f64>,
    max: u32,
    records: Vec<Record>,
    free: Vec<u32>,
    /// The newest record of each block.
    newest: Vec<u32>,
    /// Records of one move. Front: inserted first, so of the oldest slot.
    ones: Lists,
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
            records: Vec::new(),
            free: Vec::new(),
            newest: Vec::new(),
            ones: Lists::new(1),
            more: Heap::new(),
            inserted: 0,
        }
    }

    pub(super) fn grow(&mut self, entries: u32) {
        self.newest.resize(self.newest.len().max(entries as usize), NONE);
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.max) * ENTRY_BYTES
    }

    fn len(&self) -> u32 {
        self.ones.len(ONES) + self.more.len()
    }

    /// One more move of a block.
    pub(super) fn count(&mut self, entry: Entry, slot: u64) {
        let newest = self.newest[entry as usize];
        if newest != NONE && self.records[newest as usize].slot == slot {
            self.count_again(newest);
            return;
        }
        if self.max == 0 {
            return;
        }
        if self.len() == self.max {
            self.make_room(slot);
        }
        self.inserted += 1;
        // The newest may have gone just now.
        let earlier = self.newest[entry as usize];
        let inserted = self.inserted;
        let record = Record { slot, inserted, entry, count: 1, later: NONE, earlier };
        let id = self.free.pop().unwrap_or(self.records.len() as u32);
        if id as usize == self.records.len() {
            self.records.push(record);
            self.ones.grow(id + 1);
            self.more.grow(id + 1);
        } else {
            self.records[id as usize] = record;
        }
        if earlier != NONE {
            self.records[earlier as usize].later = id;
        }
        self.newest[entry as usize] = id;
        self.ones.push_back(ONES, id);
    }

    fn count_again(&mut self, id: u32) {
        let record = &mut self.records[id as usize];
        record.count += 1;
        let key = (record.slot, record.count, record.inserted);
        if record.count == 2 {
            self.ones.remove(ONES, id);
            self.more.push(key, id);
        } else {
            self.more.update(key, id);
        }
    }

    /// The record that goes first, and its slot.
    fn first(&self) -> Option<(u64, u32)> {
        let one = self.ones.front(ONES).map(|id| (self.records[id as usize].slot, id));
        let more = self.more.first().map(|((slot, ..), id)| (slot, id));
        match (one, more) {
            (Some(one), Some(more)) => Some(if more.0 < one.0 { more } else { one }),
            (one, more) => one.or(more),
        }
    }

    fn make_room(&mut self, slot: u64) {
        while let Some((oldest, id)) = self.first() {
            if oldest + self.slots > slot && self.len() < self.max {
                return;
            }
            self.drop_record(id);
        }
    }

    fn drop_record(&mut self, id: u32) {
        let Record { entry, count, later, earlier, .. } = self.records[id as usize];
        match later {
            NONE => self.newest[entry as usize] = earlier,
            later => self.records[later as usize].earlier = earlier,
        }
        if earlier != NONE {
            self.records[earlier as usize].later = later;
        }
        if count == 1 {
            self.ones.remove(ONES, id);
        } else {
            self.more.remove(id);
        }
        self.free.push(id);
    }

    /// The records of a block that count, newest first.
    fn live(&self, entry: Entry, slot: u64) -> impl Iterator<Item = Record> + '_ {
        let record = |id: u32| self.records.get(id as usize).copied();
        let first = record(self.newest[entry as usize]);
        let all = std::iter::successors(first, move |r| record(r.earlier));
        all.take_while(move |r| slot - r.slot < self.slots)
    }

    /// F of the paper: moves in the last slots, earlier ones less.
    #[inline(always)]
    pub(super) fn frequency(&self, entry: Entry, slot: u64) -> f64 {
        if self.newest[entry as usize] == NONE {
            return 0.0;
        }
        let worth = |r: Record| self.weights[(slot - r.slot) as usize] * f64::from(r.count);
        self.live(entry, slot).map(worth).sum()
    }

    /// Whether there is a record of a block, of whatever age.
    pub(super) fn knows(&self, entry: Entry) -> bool {
        self.newest[entry as usize] != NONE
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
            let r = self.records[id as usize];
            (r.entry, r.slot, r.count)
        };
        let mut all: Vec<_> = self.ones.iter(ONES).chain(more).map(record).collect();
        all.sort_unstable_by_key(|&(entry, slot, _)| (slot, entry));
        all
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        let chained = self.newest.iter().map(|&id| {
            let record = |id: u32| self.records.get(id as usize).copied();
            let chain = std::iter::successors(record(id), |r| record(r.earlier));
            let slots: Vec<u64> = chain.map(|r| r.slot).collect();
            (slots.len(), slots.is_sorted_by(|a, b| a > b))
        });
        let (mut count, mut is_sorted) = (0, true);
        chained.for_each(|(len, sorted)| (count, is_sorted) = (count + len, is_sorted && sorted));
        if !is_sorted || count != self.len() as usize || self.len() > self.max {
            return Err(format!("T_out: {count} chained, {} ordered", self.len()));
        }
        let one = |id: u32| self.records[id as usize];
        let aged = self.ones.iter(ONES).map(|id| one(id).inserted).is_sorted();
        let ones = self.ones.iter(ONES).all(|id| one(id).count == 1);
        let mores = self.more.iter().all(|((slot, count, inserted), id)| {
            let r = one(id);
            count > 1 && (r.slot, r.count, r.inserted) == (slot, count, inserted)
        });
        if !aged || !ones || !mores {
            return Err("T_out: a record is not where its count and age say".into());
        }
        self.ones.check()?;
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
