//! T_out: what a cache remembers of the moves of blocks that left it, by slots of the time (HFA,
//! section 3.1). An entry is (block, slot, number of moves) and takes 24 bytes; there are as many
//! as fit in a small share of the cache. A full table drops what is older than k slots, and then,
//! of the oldest slot, the entry with the fewest moves, inserted first among equals.
//!
//! The frequency of a block is the sum of its moves in the last k slots, those of each slot worth
//! delta times those of the one after it.
//!
//! Invariants: every entry is in the order and in the chain of its block, newest slot first.

use crate::Entry;
use crate::heap::Heap;

/// Bytes of an entry: block, slot, count, and the links that find them.
pub(super) const ENTRY_BYTES: u64 = 24;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Record {
    entry: Entry,
    slot: u64,
    count: u32,
    /// The block's record of a later slot, and of an earlier one.
    later: u32,
    earlier: u32,
}

/// The table of one cache.
pub(super) struct TOut {
    slots: u64,
    decay: f64,
    max: u32,
    records: Vec<Record>,
    free: Vec<u32>,
    /// The newest record of each block.
    newest: Vec<u32>,
    /// Records by slot, count and age: the first goes first.
    order: Heap<(u64, u32, u64)>,
    inserted: u64,
}

impl TOut {
    /// At most `max` entries; moves count for `slots` slots. With 0 of either it holds nothing.
    pub(super) fn new(max: u32, slots: u64, decay: f64) -> Self {
        Self {
            slots,
            decay,
            max: if slots == 0 { 0 } else { max },
            records: Vec::new(),
            free: Vec::new(),
            newest: Vec::new(),
            order: Heap::new(),
            inserted: 0,
        }
    }

    pub(super) fn grow(&mut self, entries: u32) {
        self.newest.resize(self.newest.len().max(entries as usize), NONE);
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.max) * ENTRY_BYTES
    }

    /// One more move of a block.
    pub(super) fn count(&mut self, entry: Entry, slot: u64) {
        let newest = self.newest[entry as usize];
        if newest != NONE && self.records[newest as usize].slot == slot {
            let record = &mut self.records[newest as usize];
            record.count += 1;
            let inserted = self.order.key(newest).2;
            self.order.update((slot, record.count, inserted), newest);
            return;
        }
        if self.max == 0 {
            return;
        }
        if self.order.len() == self.max {
            self.make_room(slot);
        }
        // The newest may have gone just now.
        let earlier = self.newest[entry as usize];
        let record = Record { entry, slot, count: 1, later: NONE, earlier };
        let id = self.free.pop().unwrap_or(self.records.len() as u32);
        if id as usize == self.records.len() {
            self.records.push(record);
            self.order.grow(id + 1);
        } else {
            self.records[id as usize] = record;
        }
        if earlier != NONE {
            self.records[earlier as usize].later = id;
        }
        self.newest[entry as usize] = id;
        self.inserted += 1;
        self.order.push((slot, 1, self.inserted), id);
    }

    fn make_room(&mut self, slot: u64) {
        while let Some(((oldest, ..), id)) = self.order.first() {
            if oldest + self.slots > slot && self.order.len() < self.max {
                return;
            }
            self.drop_record(id);
        }
    }

    fn drop_record(&mut self, id: u32) {
        let Record { entry, later, earlier, .. } = self.records[id as usize];
        match later {
            NONE => self.newest[entry as usize] = earlier,
            later => self.records[later as usize].earlier = earlier,
        }
        if earlier != NONE {
            self.records[earlier as usize].later = later;
        }
        self.order.remove(id);
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
    pub(super) fn frequency(&self, entry: Entry, slot: u64) -> f64 {
        let weight = |r: &Record| self.decay.powi((slot - r.slot) as i32);
        self.live(entry, slot).map(|r| weight(&r) * f64::from(r.count)).sum()
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
        let record = |(_, id): (_, u32)| {
            let r = self.records[id as usize];
            (r.entry, r.slot, r.count)
        };
        let mut all: Vec<_> = self.order.iter().map(record).collect();
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
        if !is_sorted || count != self.order.len() as usize || self.order.len() > self.max {
            return Err(format!("T_out: {count} chained, {} ordered", self.order.len()));
        }
        self.order.check()
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
