//! T_out: what a cache remembers of the moves of blocks that left it, by slots of the time (HFA,
//! section 3.1). An entry is (block, slot, number of moves) and takes 24 bytes; there are as many
//! as fit in a small share of the cache. A full table drops what is older than k slots, and then,
//! of the oldest slot, the entry with the fewest moves, inserted first among equals.
//!
//! The frequency of a block is the sum of its moves in the last k slots, those of each slot worth
//! delta times those of the one after it.
//!
//! Most blocks move once in a slot. The records of one move are a ring, in the order of their
//! insertion; the others are in a heap. A record that becomes one of more moves leaves its place in
//! the ring empty. What was inserted after the oldest record of one move is all still there, since
//! none of it goes before that one: so the ring needs no more places than the table has entries.
//!
//! The records of a block are a chain, newest slot first. Whether there is any is a mark in the
//! record that all levels have of the block (`records.rs`), since of most blocks there is none. The
//! oldest of a chain always goes first, and the one that leads to it is not told: what an earlier
//! record is said to be is believed only if that is still of the block, and older.
//!
//! Invariants: every record is in the ring or in the heap, as its count says, and in the chain of
//! its block; just the blocks with a chain have the mark.

use super::super::records::{Block, Blocks, BlocksAtHand};
use crate::Entry;
use crate::heap::Heap;

/// Bytes of an entry: block, slot, count, and the links that find them.
pub(super) const ENTRY_BYTES: u64 = 24;

/// What says where a record is: a place in the ring, or with this bit a place beside it.
const SEVERAL: u32 = 1 << 31;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Default)]
struct Record {
    slot: u64,
    /// Records made up to it.
    inserted: u64,
    entry: Entry,
    /// Moves; none: there is no record here.
    count: u32,
    /// Where the block's record of an earlier slot is or was.
    earlier: u32,
    /// Whether there is one of a later slot.
    is_followed: bool,
}

/// The table of one cache.
pub(super) struct TOut {
    /// The cache's mark in the records of blocks.
    mark: u32,
    slots: u64,
    /// Worth of a move by its age in slots, as far back as moves count.
    weights: Vec<f64>,
    max: u32,
    /// The records of one move: `ones` of them, the first at `front`, the next one comes to `back`.
    ring: Vec<Record>,
    front: u32,
    back: u32,
    ones: u32,
    /// Those of more, and the places there that are free.
    several: Vec<Record>,
    free: Vec<u32>,
    /// The records by slot, count and age: the first goes first.
    more: Heap<(u64, u32, u64)>,
    /// Where the newest record is of each block that has the mark.
    newest: Vec<u32>,
    inserted: u64,
}

impl TOut {
    /// At most `max` entries; moves count for `slots` slots. With 0 of either it holds nothing.
    /// `mark`: a bit that no other table uses.
    pub(super) fn new(mark: u32, max: u32, slots: u64, decay: f64) -> Self {
        Self {
            mark,
            slots,
            weights: (0..slots).map(|age| decay.powi(age as i32)).collect(),
            max: if slots == 0 { 0 } else { max },
            ring: Vec::new(),
            front: 0,
            back: 0,
            ones: 0,
            several: Vec::new(),
            free: Vec::new(),
            more: Heap::new(),
            newest: Vec::new(),
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
        self.ones + self.more.len()
    }

    /// Whether there is a record of a block, of whatever age.
    #[inline(always)]
    pub(super) fn knows(&self, block: &Block) -> bool {
        block.remembered & self.mark != 0
    }

    #[inline(always)]
    fn at(&self, id: u32) -> &Record {
        if id < SEVERAL { &self.ring[id as usize] } else { &self.several[(id ^ SEVERAL) as usize] }
    }

    fn at_mut(&mut self, id: u32) -> &mut Record {
        if id < SEVERAL {
            &mut self.ring[id as usize]
        } else {
            &mut self.several[(id ^ SEVERAL) as usize]
        }
    }

    /// The record there, if it is one of the block made before `before`.
    #[inline(always)]
    fn record(&self, id: u32, entry: Entry, before: u64) -> Option<&Record> {
        if id == NONE {
            return None;
        }
        let record = self.at(id);
        let is_right = record.entry == entry && record.count > 0 && record.inserted < before;
        is_right.then_some(record)
    }

    /// The newest record of a block.
    #[inline(always)]
    fn newest(&self, block: &Block, entry: Entry) -> Option<&Record> {
        self.knows(block).then(|| self.at(self.newest[entry as usize]))
    }

    /// One more move of a block: F of the paper with it.
    #[inline(always)]
    pub(super) fn count(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry, slot: u64) -> f64 {
        if self.knows(blocks.get(entry)) {
            return self.count_known(blocks, entry, slot);
        }
        if self.max == 0 {
            return 0.0;
        }
        self.insert(blocks, entry, slot, NONE);
        self.weights[0]
    }

    #[inline(never)]
    fn count_known(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry, slot: u64) -> f64 {
        let newest = self.newest[entry as usize];
        if self.at(newest).slot == slot {
            self.count_again(newest, entry);
        } else {
            self.at_mut(newest).is_followed = true;
            self.insert(blocks, entry, slot, newest);
        }
        self.sum(entry, slot)
    }

    #[inline(always)]
    fn insert(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry, slot: u64, earlier: u32) {
        if self.len() == self.max {
            self.make_room(blocks, slot);
        }
        self.inserted += 1;
        let inserted = self.inserted;
        let record = Record { slot, inserted, entry, count: 1, earlier, is_followed: false };
        let id = self.back;
        match self.ring.get_mut(id as usize) {
            Some(place) => *place = record,
            None => self.ring.push(record),
        }
        self.back = self.after(id);
        self.front = if self.ones == 0 { id } else { self.front };
        self.ones += 1;
        self.newest[entry as usize] = id;
        blocks.get_mut(entry).remembered |= self.mark;
    }

    /// The place behind one in the ring.
    #[inline(always)]
    fn after(&self, place: u32) -> u32 {
        if place + 1 == self.max { 0 } else { place + 1 }
    }

    /// Takes a record out of the ring.
    #[inline(always)]
    fn take_one(&mut self, place: u32) -> Record {
        let record = self.ring[place as usize];
        self.ring[place as usize].count = 0;
        self.ones -= 1;
        if place == self.front && self.ones > 0 {
            self.front = self.after(place);
            while self.ring[self.front as usize].count == 0 {
                self.front = self.after(self.front);
            }
        }
        record
    }

    fn count_again(&mut self, id: u32, entry: Entry) {
        if id < SEVERAL {
            let record = Record { count: 2, ..self.take_one(id) };
            let place = self.free.pop().unwrap_or(self.several.len() as u32);
            if place as usize == self.several.len() {
                self.several.push(record);
                self.more.grow(place + 1);
            } else {
                self.several[place as usize] = record;
            }
            self.more.push((record.slot, 2, record.inserted), place);
            self.newest[entry as usize] = SEVERAL | place;
        } else {
            let record = &mut self.several[(id ^ SEVERAL) as usize];
            record.count += 1;
            let key = (record.slot, record.count, record.inserted);
            self.more.update(key, id ^ SEVERAL);
        }
    }

    /// The table is full: drops what is too old to count, or else the record that goes first.
    #[inline(always)]
    fn make_room(&mut self, blocks: &mut BlocksAtHand<'_>, slot: u64) {
        // Nearly always that is one of one move, which still counts.
        if self.ones > 0 {
            let (front, oldest) = (self.front, self.ring[self.front as usize].slot);
            let goes_first = self.more.first().is_none_or(|((more, ..), _)| more >= oldest);
            if goes_first && oldest + self.slots > slot {
                let record = self.take_one(front);
                return self.unmark(blocks, record);
            }
        }
        self.drop_old(blocks, slot);
    }

    #[cold]
    fn drop_old(&mut self, blocks: &mut BlocksAtHand<'_>, slot: u64) {
        while let Some((oldest, id)) = self.first() {
            let is_old = oldest + self.slots <= slot;
            if !is_old && self.len() < self.max {
                return;
            }
            let record = if id < SEVERAL {
                self.take_one(id)
            } else {
                self.more.remove(id ^ SEVERAL);
                self.free.push(id ^ SEVERAL);
                std::mem::take(&mut self.several[(id ^ SEVERAL) as usize])
            };
            self.unmark(blocks, record);
        }
    }

    /// The record that goes first, and its slot.
    fn first(&self) -> Option<(u64, u32)> {
        let more = self.more.first().map(|((slot, ..), place)| (slot, SEVERAL | place));
        if self.ones == 0 {
            return more;
        }
        let one = self.ring[self.front as usize].slot;
        Some(more.filter(|more| more.0 < one).unwrap_or((one, self.front)))
    }

    /// A record of a block has gone. If none follows it, there is none left.
    #[inline(always)]
    fn unmark(&self, blocks: &mut BlocksAtHand<'_>, gone: Record) {
        let mark = if gone.is_followed { 0 } else { self.mark };
        blocks.get_mut(gone.entry).remembered &= !mark;
    }

    /// F of the paper: moves in the last slots, earlier ones less.
    #[inline(always)]
    pub(super) fn frequency(&self, block: &Block, entry: Entry, slot: u64) -> f64 {
        if self.knows(block) { self.sum(entry, slot) } else { 0.0 }
    }

    /// F of the paper of a block that has the mark: the sum over its records.
    fn sum(&self, entry: Entry, slot: u64) -> f64 {
        let mut next = Some(self.at(self.newest[entry as usize]));
        let mut sum = 0.0;
        while let Some(record) = next {
            // Those that are too old to count have no weight.
            let Some(weight) = self.weights.get((slot - record.slot) as usize) else { break };
            sum += weight * f64::from(record.count);
            next = self.record(record.earlier, entry, record.inserted);
        }
        sum
    }

    /// Whether any move of a block counts.
    #[inline(always)]
    pub(super) fn remembers(&self, block: &Block, entry: Entry, slot: u64) -> bool {
        self.newest(block, entry).is_some_and(|record| slot - record.slot < self.slots)
    }

    /// Most entries.
    pub(super) fn max(&self) -> u32 {
        self.max
    }

    /// (block, slot, count), by slot and block.
    pub(super) fn entries(&self) -> Vec<(Entry, u64, u32)> {
        let all = self.ring.iter().chain(&self.several).filter(|record| record.count > 0);
        let mut all: Vec<_> = all.map(|r| (r.entry, r.slot, r.count)).collect();
        all.sort_unstable_by_key(|&(entry, slot, _)| (slot, entry));
        all
    }

    pub(super) fn validate(&self, blocks: &Blocks) -> Result<(), String> {
        let chained = (0..self.newest.len() as u32).map(|entry| {
            let next = |r: &&Record| self.record(r.earlier, entry, r.inserted);
            let chain = std::iter::successors(self.newest(blocks.get(entry), entry), next);
            let chain: Vec<&Record> = chain.collect();
            let is_right = chain.iter().enumerate().all(|(i, r)| r.is_followed == (i > 0));
            (chain.len(), is_right && chain.is_sorted_by(|a, b| a.slot > b.slot))
        });
        let (mut count, mut is_sorted) = (0, true);
        chained.for_each(|(len, sorted)| (count, is_sorted) = (count + len, is_sorted && sorted));
        if !is_sorted || count != self.len() as usize || self.len() > self.max {
            return Err(format!("T_out: {count} chained, {} ordered", self.len()));
        }
        let (behind, ahead) = self.ring.split_at(self.front as usize);
        let ones: Vec<&Record> = ahead.iter().chain(behind).filter(|r| r.count > 0).collect();
        let is_front = ones.is_empty() || self.ring[self.front as usize].count > 0;
        let aged = ones.iter().map(|r| r.inserted).is_sorted();
        let mores = self.more.iter().all(|((slot, count, inserted), place)| {
            let r = self.several[place as usize];
            count > 1 && (r.slot, r.count, r.inserted) == (slot, count, inserted)
        });
        let is_counted = ones.len() == self.ones as usize && ones.iter().all(|r| r.count == 1);
        if !is_front || !aged || !is_counted || !mores {
            return Err("T_out: a record is not where its count and age say".into());
        }
        self.more.check()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::records::Blocks;
    use super::TOut;

    fn table(max: u32, slots: u64) -> (TOut, Blocks) {
        let (mut table, mut blocks) = (TOut::new(4, max, slots, 0.5), Blocks::new(1));
        table.grow(9);
        blocks.grow(9);
        (table, blocks)
    }

    /// `hfa-eq-1` of the specification.
    #[test]
    fn frequency_as_in_the_worked_example() {
        let (mut table, mut blocks) = table(8, 6);
        let counted = [0, 1, 1, 2].map(|slot| table.count(&mut blocks.at_hand(), 0, slot));
        let f = table.frequency(blocks.get(0), 0, 2);
        assert_eq!(counted, [1.0, 1.5, 2.5, f]);
        assert_eq!((f, f / 24.0 + 3.0 / 6.0), (2.25, 0.59375));
    }

    #[test]
    fn a_full_table_drops_the_oldest_slot_first_and_there_the_fewest_moves() {
        let (mut table, mut blocks) = table(3, 2);
        let mut count = |entry, slot| {
            table.count(&mut blocks.at_hand(), entry, slot);
            table.validate(&blocks).unwrap();
            table.entries()
        };
        [(0, 0), (0, 0), (1, 0), (2, 1)].into_iter().for_each(|(e, s)| _ = count(e, s));
        assert_eq!(count(3, 1), [(0, 0, 2), (2, 1, 1), (3, 1, 1)], "fewest moves");
        assert_eq!(count(4, 3), [(4, 3, 1)], "older than two slots");
    }

    /// The table as the head of this file says it, entry by entry.
    #[derive(Default)]
    struct Plain {
        /// (slot, count, when inserted, block).
        all: Vec<(u64, u32, u64, u32)>,
        inserted: u64,
    }

    impl Plain {
        fn count(&mut self, (max, slots): (usize, u64), entry: u32, slot: u64) {
            self.inserted += 1;
            if let Some(known) = self.all.iter_mut().find(|r| (r.0, r.3) == (slot, entry)) {
                known.1 += 1;
                return;
            }
            if self.all.len() == max {
                self.all.retain(|r| r.0 + slots > slot);
            }
            if self.all.len() == max {
                let first = self.all.iter().min().copied();
                self.all.retain(|&r| Some(r) != first);
            }
            self.all.push((slot, 1, self.inserted, entry));
        }

        fn frequency(&self, slots: u64, entry: u32, slot: u64) -> f64 {
            let own = self.all.iter().filter(|r| r.3 == entry && r.0 + slots > slot);
            own.map(|r| 0.5_f64.powi((slot - r.0) as i32) * f64::from(r.1)).sum()
        }
    }

    #[test]
    fn agrees_with_a_plain_table() {
        let mut x = 11_u64;
        for (max, slots) in [(1, 1), (1, 3), (2, 2), (3, 6), (5, 2), (8, 3), (40, 4)] {
            let (mut table, mut blocks) = table(max, slots);
            let (mut plain, mut slot) = (Plain::default(), 0);
            for step in 0..4000 {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let entry = (x >> 33) as u32 % 9;
                slot += u64::from(x >> 59 == 0) * (1 + (x >> 50 & 3));
                let f = table.count(&mut blocks.at_hand(), entry, slot);
                plain.count((max as usize, slots), entry, slot);
                // Sums of halves are exact in any order.
                assert_eq!(f, plain.frequency(slots, entry, slot), "{max} {slots}, step {step}");
                for entry in 0..9 {
                    let f = table.frequency(blocks.get(entry), entry, slot);
                    assert_eq!(f, plain.frequency(slots, entry, slot));
                    assert_eq!(table.remembers(blocks.get(entry), entry, slot), f > 0.0);
                }
                let mut all: Vec<_> = plain.all.iter().map(|r| (r.3, r.0, r.1)).collect();
                all.sort_unstable_by_key(|&(entry, slot, _)| (slot, entry));
                assert_eq!(table.entries(), all, "{max} {slots}, step {step}");
                table.validate(&blocks).unwrap();
            }
        }
    }
}
