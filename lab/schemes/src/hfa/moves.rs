//! What a cache knows of the moves of blocks: T_out, the table of its own moves (HFA, section 3.1),
//! or, for the oracle, the moves that a first pass logged.
//!
//! A record of T_out is (block, slot, number of moves) and takes 24 bytes. The table takes a small
//! share of the cache's bytes. A full table first drops the records of slots that no longer count.
//! After that it drops, from the oldest slot, the record with the fewest moves, and among equals
//! the one inserted first.
//!
//! The frequency F of a block is the sum of its moves in the last k slots. A move counts delta
//! times as much as one in the next slot.
//!
//! Invariants (checked by [`TOut::validate`]): the records of a block are a chain, newest slot
//! first; a record of one move is in `once`, any other in `more`. The oldest record of a chain is
//! dropped before the others, since older slots are dropped first.

use std::collections::{BTreeSet, VecDeque};

use undercroft_policy::Entry;

/// Bytes of a record: block, slot, count and links.
pub(super) const RECORD_BYTES: u64 = 24;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Record {
    entry: Entry,
    slot: u64,
    /// Number of moves; 0 in an unused record.
    count: u32,
    /// Its age: the number of records made before it.
    number: u64,
    /// The block's record of the next older slot.
    earlier: u32,
}

/// T_out of one cache.
pub(super) struct TOut {
    slots: u64,
    /// Weight of a move by its age in slots; older moves have none.
    weights: Vec<f64>,
    max: usize,
    records: Vec<Record>,
    free: Vec<u32>,
    /// The newest record of each block, by entry.
    newest: Vec<u32>,
    /// Records of one move by age, as (number, record). A record that got more moves is removed
    /// only when it reaches the front.
    once: VecDeque<(u64, u32)>,
    /// Records of more moves, as (slot, count, number, record).
    more: BTreeSet<(u64, u32, u64, u32)>,
    made: u64,
}

impl TOut {
    /// At most `max` records; moves count for `slots` slots. If either is 0 the table stays empty.
    pub(super) fn new(max: u32, slots: u64, decay: f64) -> Self {
        Self {
            slots,
            weights: (0..slots).map(|age| decay.powi(age as i32)).collect(),
            max: if slots == 0 { 0 } else { max as usize },
            records: Vec::new(),
            free: Vec::new(),
            newest: Vec::new(),
            once: VecDeque::new(),
            more: BTreeSet::new(),
            made: 0,
        }
    }

    fn grow(&mut self, entries: u32) {
        self.newest.resize(self.newest.len().max(entries as usize), NONE);
    }

    fn len(&self) -> usize {
        self.records.len() - self.free.len()
    }

    #[inline(always)]
    fn newest(&self, entry: Entry) -> Option<&Record> {
        self.records.get(self.newest[entry as usize] as usize)
    }

    /// The records of a block, newest slot first.
    #[inline(always)]
    fn chain(&self, entry: Entry) -> impl Iterator<Item = &Record> {
        let earlier = |record: &&Record| self.records.get(record.earlier as usize);
        std::iter::successors(self.newest(entry), earlier)
    }

    /// F of the paper: the weighted sum of the moves in the last slots.
    #[inline(always)]
    fn frequency(&self, entry: Entry, slot: u64) -> f64 {
        let mut sum = 0.0;
        for record in self.chain(entry) {
            // Older records have no weight.
            let Some(weight) = self.weights.get((slot - record.slot) as usize) else { break };
            sum += weight * f64::from(record.count);
        }
        sum
    }

    /// Whether any recent move of a block is recorded.
    #[inline(always)]
    fn remembers(&self, entry: Entry, slot: u64) -> bool {
        self.newest(entry).is_some_and(|record| slot - record.slot < self.slots)
    }

    /// Records a move of a block. Returns its F, this move included.
    fn count(&mut self, entry: Entry, slot: u64) -> f64 {
        if self.newest(entry).is_some_and(|record| record.slot == slot) {
            self.count_again(self.newest[entry as usize]);
        } else if self.max > 0 {
            self.make_room(slot);
            self.insert(entry, slot);
        }
        self.frequency(entry, slot)
    }

    fn count_again(&mut self, id: u32) {
        let record = &mut self.records[id as usize];
        let Record { slot, count, number, .. } = *record;
        record.count += 1;
        if count > 1 {
            self.more.remove(&(slot, count, number, id));
        }
        self.more.insert((slot, count + 1, number, id));
    }

    fn insert(&mut self, entry: Entry, slot: u64) {
        self.made += 1;
        let (number, earlier) = (self.made, self.newest[entry as usize]);
        let record = Record { entry, slot, count: 1, number, earlier };
        let id = match self.free.pop() {
            Some(id) => {
                self.records[id as usize] = record;
                id
            }
            None => {
                self.records.push(record);
                self.records.len() as u32 - 1
            }
        };
        self.newest[entry as usize] = id;
        self.once.push_back((number, id));
    }

    /// Makes room in a full table: drops a record that no longer counts, or else the next victim.
    fn make_room(&mut self, slot: u64) {
        if self.len() < self.max {
            return;
        }
        while let Some(id) = self.first() {
            let is_old = self.records[id as usize].slot + self.slots <= slot;
            if !is_old && self.len() < self.max {
                return;
            }
            self.drop_record(id);
        }
    }

    /// The record that is dropped next.
    fn first(&mut self) -> Option<u32> {
        while let Some(&(number, id)) = self.once.front() {
            let record = &self.records[id as usize];
            if (record.number, record.count) == (number, 1) {
                break;
            }
            self.once.pop_front();
        }
        let once = self.once.front().map(|&(_, id)| id);
        let more = self.more.first().map(|&(.., id)| id);
        let slot = |id: u32| self.records[id as usize].slot;
        match (once, more) {
            (Some(once), Some(more)) if slot(more) < slot(once) => Some(more),
            _ => once.or(more),
        }
    }

    /// Drops a record, which must be the oldest of its block.
    fn drop_record(&mut self, id: u32) {
        let Record { entry, slot, count, number, .. } = self.records[id as usize];
        if count == 1 {
            self.once.pop_front();
        } else {
            self.more.remove(&(slot, count, number, id));
        }
        self.records[id as usize].count = 0;
        self.free.push(id);
        let mut next = self.newest[entry as usize];
        if next == id {
            self.newest[entry as usize] = NONE;
            return;
        }
        while let Some(record) = self.records.get_mut(next as usize) {
            if record.earlier == id {
                record.earlier = NONE;
                return;
            }
            next = record.earlier;
        }
    }

    /// All records as (block, slot, count), ordered by slot and block.
    fn entries(&self, block: &dyn Fn(Entry) -> u32) -> Vec<(u32, u64, u32)> {
        let used = self.records.iter().filter(|record| record.count > 0);
        let mut all: Vec<_> = used.map(|r| (block(r.entry), r.slot, r.count)).collect();
        all.sort_unstable_by_key(|&(block, slot, _)| (slot, block));
        all
    }

    fn validate(&self) -> Result<(), String> {
        let mut chained = 0;
        for entry in 0..self.newest.len() as Entry {
            let chain: Vec<_> = self.chain(entry).collect();
            if chain.iter().any(|r| r.entry != entry || r.count == 0)
                || !chain.is_sorted_by(|a, b| a.slot > b.slot)
            {
                return Err(format!("T_out: the records of block {entry} are no chain"));
            }
            chained += chain.len();
        }
        let is_once = |&&(number, id): &&(u64, u32)| {
            let record = &self.records[id as usize];
            (record.number, record.count) == (number, 1)
        };
        let listed = self.once.iter().filter(is_once).count() + self.more.len();
        let is_right = |&(slot, count, number, id): &(u64, u32, u64, u32)| {
            let r = &self.records[id as usize];
            count > 1 && (r.slot, r.count, r.number) == (slot, count, number)
        };
        if (chained, listed) != (self.len(), self.len())
            || self.len() > self.max
            || self.once.len() > self.max
            || !self.more.iter().all(is_right)
        {
            return Err(format!("T_out: {chained} in chains, {listed} ordered, of {}", self.len()));
        }
        Ok(())
    }
}

/// The moves that a first pass logged, for all caches.
#[derive(Clone, Debug, Default)]
pub struct MoveLog {
    /// (block, slot) of each move, one list for each cache.
    pub(in super::super) moves: Vec<Vec<(Entry, u64)>>,
}

/// The logged moves of one cache: the oracle uses them in place of T_out.
pub(super) struct Foreseen {
    slots: u64,
    decay: f64,
    /// (slot, count) of each block, by entry.
    moves: Vec<Vec<(u64, u32)>>,
}

impl Foreseen {
    pub(super) fn new(log: &MoveLog, node: usize, slots: u64, decay: f64) -> Self {
        let mut moves: Vec<Vec<(u64, u32)>> = Vec::new();
        // The log is in order of time.
        for &(entry, slot) in log.moves.get(node).into_iter().flatten() {
            if moves.len() <= entry as usize {
                moves.resize(entry as usize + 1, Vec::new());
            }
            match moves[entry as usize].last_mut() {
                Some((last, count)) if *last == slot => *count += 1,
                _ => moves[entry as usize].push((slot, 1)),
            }
        }
        Self { slots, decay, moves }
    }

    /// The weighted sum of the moves in this slot and later ones.
    fn frequency(&self, entry: Entry, slot: u64) -> f64 {
        let Some(moves) = self.moves.get(entry as usize) else { return 0.0 };
        let coming = &moves[moves.partition_point(|&(s, _)| s < slot)..];
        let counted = coming.iter().take_while(|&&(s, _)| s - slot < self.slots);
        counted.map(|&(s, count)| self.decay.powi((s - slot) as i32) * f64::from(count)).sum()
    }
}

/// The source of F.
pub(super) enum Moves {
    Table(TOut),
    Foreseen(Foreseen),
}

impl Moves {
    /// Makes entries below `entries` valid.
    pub(super) fn grow(&mut self, entries: u32) {
        if let Self::Table(table) = self {
            table.grow(entries);
        }
    }

    /// F of the paper.
    #[inline(always)]
    pub(super) fn frequency(&self, entry: Entry, slot: u64) -> f64 {
        match self {
            Self::Table(table) => table.frequency(entry, slot),
            Self::Foreseen(foreseen) => foreseen.frequency(entry, slot),
        }
    }

    /// Records a move of a block. Returns its F, this move included.
    pub(super) fn count(&mut self, entry: Entry, slot: u64) -> f64 {
        match self {
            Self::Table(table) => table.count(entry, slot),
            Self::Foreseen(foreseen) => foreseen.frequency(entry, slot),
        }
    }

    /// Whether any recent move of a block is recorded.
    #[inline(always)]
    pub(super) fn remembers(&self, entry: Entry, slot: u64) -> bool {
        match self {
            Self::Table(table) => table.remembers(entry, slot),
            Self::Foreseen(foreseen) => foreseen.frequency(entry, slot) > 0.0,
        }
    }

    /// Whether a block has any record, old or not.
    pub(super) fn knows(&self, entry: Entry) -> bool {
        match self {
            Self::Table(table) => table.newest(entry).is_some(),
            Self::Foreseen(_) => true,
        }
    }

    /// Most blocks that can have records.
    pub(super) fn max(&self) -> u32 {
        match self {
            Self::Table(table) => table.max as u32,
            Self::Foreseen(_) => u32::MAX,
        }
    }

    /// Bytes that a server needs for it.
    pub(super) fn bytes(&self) -> u64 {
        let records = match self {
            Self::Table(table) => table.max,
            Self::Foreseen(foreseen) => foreseen.moves.iter().map(Vec::len).sum(),
        };
        records as u64 * RECORD_BYTES
    }

    /// The table as (block, slot, count), by slot and block.
    pub(super) fn describe(&self, block: &dyn Fn(Entry) -> u32) -> String {
        match self {
            Self::Table(table) => format!("{:?}", table.entries(block)),
            Self::Foreseen(_) => String::new(),
        }
    }

    /// Checks the invariants in the head of this file.
    pub(super) fn validate(&self) -> Result<(), String> {
        match self {
            Self::Table(table) => table.validate(),
            Self::Foreseen(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TOut;

    fn table(max: u32, slots: u64) -> TOut {
        let mut table = TOut::new(max, slots, 0.5);
        table.grow(9);
        table
    }

    /// `hfa-eq-1` of the specification.
    #[test]
    fn frequency_as_in_the_worked_example() {
        let mut table = table(8, 6);
        let counted = [0, 1, 1, 2].map(|slot| table.count(0, slot));
        let f = table.frequency(0, 2);
        assert_eq!(counted, [1.0, 1.5, 2.5, f]);
        assert_eq!((f, f / 24.0 + 3.0 / 6.0), (2.25, 0.59375));
    }

    #[test]
    fn a_full_table_drops_the_oldest_slot_first_and_there_the_fewest_moves() {
        let mut table = table(3, 2);
        let mut count = |entry, slot| {
            table.count(entry, slot);
            table.validate().unwrap();
            table.entries(&|entry| entry)
        };
        [(0, 0), (0, 0), (1, 0), (2, 1)].into_iter().for_each(|(e, s)| _ = count(e, s));
        assert_eq!(count(3, 1), [(0, 0, 2), (2, 1, 1), (3, 1, 1)], "fewest moves");
        assert_eq!(count(4, 3), [(4, 3, 1)], "older than two slots");
    }

    /// A plain model of the table.
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
            let mut table = table(max, slots);
            let (mut plain, mut slot) = (Plain::default(), 0);
            for step in 0..4000 {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let entry = (x >> 33) as u32 % 9;
                slot += u64::from(x >> 59 == 0) * (1 + (x >> 50 & 3));
                let f = table.count(entry, slot);
                plain.count((max as usize, slots), entry, slot);
                // Sums of halves are exact in any order.
                assert_eq!(f, plain.frequency(slots, entry, slot), "{max} {slots}, step {step}");
                for entry in 0..9 {
                    let f = table.frequency(entry, slot);
                    assert_eq!(f, plain.frequency(slots, entry, slot));
                    assert_eq!(table.remembers(entry, slot), f > 0.0);
                }
                let mut all: Vec<_> = plain.all.iter().map(|r| (r.3, r.0, r.1)).collect();
                all.sort_unstable_by_key(|&(entry, slot, _)| (slot, entry));
                assert_eq!(table.entries(&|entry| entry), all, "{max} {slots}, step {step}");
                table.validate().unwrap();
            }
        }
    }
}
