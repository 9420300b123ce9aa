//! The journal of a part of a flash device: which copies count after a restart, what of that is not
//! on the device yet, and the pages to be written.
//!
//! A part's metadata are a ring of journal pages and, after it, as many table pages. A table page
//! lists what lies in a run of slots. Commit number `place`, counted from 0, writes the journal
//! page and the table page with the index `place` modulo their number: the first gets the oldest
//! records of what happened, the second what memory knows of its slots now. So in each lap of the
//! ring every table page is written, and a journal page is written over only after the table pages
//! of all its slots. (Where a restart lost an end, such a table page may lack a copy that counts. A
//! restart may lose that copy, which does no harm.) The journal page names the table page's
//! checksum, so that the two are known to be of the same commit.
//!
//! What the caller must keep to, so that a copy that is found after a restart or a power failure
//! is what the store has:
//!
//! 1. The store changes blocks only when no end of a copy of them is pending
//!    ([`awaits`](Journal::awaits)), and none of them is still to be swept
//!    ([`Flash::is_void`](crate::Flash::is_void)).
//! 2. The data in a slot are written over only when the slot does not wait for the end of what lay
//!    there ([`slot_awaits`](Journal::slot_awaits)).
//! 3. A copy is entered when its data are written, and the device was synced after that.
//! 4. A copy is entered when the store has made its block durable. After a start that needs a
//!    flush of the store.
//! 5. One commit is written at a time, and the device synced after it and before
//!    [`committed`](Journal::committed).
//! 6. At a start the device is synced before anything is read: what the process before had written
//!    may not be durable yet.
//!
//! Not here: what the pages look like (`pages.rs`), and how they are read (`recovery.rs`).

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::RangeInclusive;

use crate::directory::{Directory, Slot};
use crate::pages::{ENTRIES, RECORDS, Record, Stamp, journal_page, table_page};
use crate::slots::Slots;
use crate::superblock::PAGE_BYTES;

/// Bytes of the metadata of so many slots.
pub fn metadata_bytes(slots: u32) -> u64 {
    2 * pages_of(slots) * PAGE_BYTES as u64
}

/// Slots of a shard of a part: as many as so many bytes have room for beside their metadata.
pub fn slots_beside_journal(bytes: u64, block_bytes: u32) -> u32 {
    let block = u64::from(block_bytes);
    let mut slots = u32::try_from(bytes / block).unwrap_or(u32::MAX);
    while slots > 0 && metadata_bytes(slots) + u64::from(slots) * block > bytes {
        let over = metadata_bytes(slots) + u64::from(slots) * block - bytes;
        slots -= u32::try_from(over.div_ceil(block + 64)).unwrap_or(slots).min(slots);
    }
    slots
}

/// Journal pages for so many slots; there are as many table pages. At least two, since one may be
/// lost while it is written.
pub(crate) fn pages_of(slots: u32) -> u64 {
    u64::from(slots).div_ceil(ENTRIES as u64).max(2)
}

/// Two pages to be written: each with its first byte in the part's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The journal page.
    pub journal: (u64, Vec<u8>),
    /// The table page.
    pub table: (u64, Vec<u8>),
}

/// The journal.
pub struct Journal {
    id: u64,
    pages: u64,
    /// Of the next commit, or of the one that is being written.
    pub(crate) place: u64,
    /// Whether the copy in each slot counts after a restart: one bit a slot.
    entered: Vec<u64>,
    entered_count: u32,
    /// Records that are not durable, the oldest first.
    records: VecDeque<Record>,
    /// How many of the oldest are being written.
    written: usize,
    /// Number of records that are durable.
    durable: u64,
    /// Ends that are not durable: the number of the last such record of each block, and the slots.
    ending: HashMap<u64, u64>,
    ending_slots: HashSet<Slot>,
}

impl Journal {
    /// The journal of a new part with so many slots. Every part ever made on a device must have
    /// another `id`.
    pub fn new(id: u64, slots: u32) -> Self {
        Self {
            id,
            pages: pages_of(slots),
            place: 0,
            entered: vec![0; slots.div_ceil(u64::BITS) as usize],
            entered_count: 0,
            records: VecDeque::new(),
            written: 0,
            durable: 0,
            ending: HashMap::new(),
            ending_slots: HashSet::new(),
        }
    }

    /// The copy of a block in a slot, whose data have this check, counts after a restart from now
    /// on. See the rules above; it must lie there since the data were written that are durable now.
    pub fn enter(&mut self, slot: Slot, block: u64, check: u16) {
        debug_assert!(!self.slot_awaits(slot), "slot {slot} holds what is not ended yet");
        if !self.is_entered(slot) {
            self.set_entered(slot, true);
            self.records.push_back(Record { block, check, slot, is_end: false });
        }
    }

    /// The copy of a block in a slot counts no more. Nothing, if it was not entered.
    pub fn end(&mut self, slot: Slot, block: u64) {
        if self.is_entered(slot) {
            self.set_entered(slot, false);
            self.records.push_back(Record { block, check: 0, slot, is_end: true });
            self.ending.insert(block, self.recorded());
            self.ending_slots.insert(slot);
        }
    }

    /// Whether the copy in a slot counts after a restart.
    pub fn is_entered(&self, slot: Slot) -> bool {
        self.entered[(slot / u64::BITS) as usize] >> (slot % u64::BITS) & 1 != 0
    }

    /// Number of copies that count after a restart.
    pub fn entered_count(&self) -> u32 {
        self.entered_count
    }

    /// Notes whether the copy in a slot counts, without a record.
    pub(crate) fn set_entered(&mut self, slot: Slot, is_entered: bool) {
        if self.is_entered(slot) != is_entered {
            self.entered[(slot / u64::BITS) as usize] ^= 1 << (slot % u64::BITS);
            self.entered_count =
                if is_entered { self.entered_count + 1 } else { self.entered_count - 1 };
        }
    }

    /// Whether there are records that are not durable, those of a commit among them that was begun
    /// and not ended.
    pub fn has_pending(&self) -> bool {
        !self.records.is_empty()
    }

    /// The store may change none of these blocks before [`durable`](Self::durable) is at least
    /// this; `None`: at once.
    pub fn awaits(&self, blocks: &RangeInclusive<u64>) -> Option<u64> {
        if self.ending.is_empty() || blocks.is_empty() {
            None
        } else if blocks.end() - blocks.start() < self.ending.len() as u64 {
            blocks.clone().filter_map(|block| self.ending.get(&block).copied()).max()
        } else {
            let ending = self.ending.iter().filter(|(block, _)| blocks.contains(block));
            ending.map(|(_, &number)| number).max()
        }
    }

    /// Whether the data in a slot may not be written over yet.
    pub fn slot_awaits(&self, slot: Slot) -> bool {
        self.ending_slots.contains(&slot)
    }

    /// Begins a commit: of the oldest records, or of none, and a stamp. `slots`: what lies on flash
    /// now. If the pages could not be written, call it again.
    pub fn commit(&mut self, slots: &Slots, stamp: Stamp) -> Commit {
        let index = self.place % self.pages;
        let of = (self.id, self.place);
        self.written = self.records.len().min(RECORDS);
        let first = index * ENTRIES as u64;
        let end = (first + ENTRIES as u64).min(slots.capacity().into());
        let copies = (first..end).map(|slot| slot as Slot).map(|slot| {
            let block = slots.block_in(slot).filter(|_| self.is_entered(slot));
            block.map(|block| (block, slots.check_in(slot)))
        });
        let table = table_page(of, copies);
        let journal = journal_page(of, stamp, &table, self.records.range(..self.written));
        let byte_of = |page| page * PAGE_BYTES as u64;
        Commit { journal: (byte_of(index), journal), table: (byte_of(self.pages + index), table) }
    }

    /// The two pages of the commit are durable.
    pub fn committed(&mut self) {
        self.place += 1;
        for Record { block, slot, is_end, .. } in self.records.drain(..self.written) {
            self.durable += 1;
            if is_end {
                self.ending_slots.remove(&slot);
                if self.ending.get(&block) == Some(&self.durable) {
                    self.ending.remove(&block);
                }
            }
        }
        self.written = 0;
    }

    /// Number of records that are durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Number of records so far.
    pub fn recorded(&self) -> u64 {
        self.durable + self.records.len() as u64
    }
}
