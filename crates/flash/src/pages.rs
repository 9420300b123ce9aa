//! The pages that say what lies on flash after a restart, as bytes: those of the journal and those
//! of the table. Each has a checksum, the part it belongs to, and the number of the commit that
//! wrote it, its place. A copy in a slot is one number: its block, and above that a check of its
//! data.
//!
//! Not here: when a page is written (`journal.rs`), and what is made of the pages after a restart
//! (`recovery.rs`).

use xxhash_rust::xxh3::xxh3_64;

use crate::directory::Slot;
use crate::slots::CHECK_BITS;
use crate::superblock::PAGE_BYTES;

/// Most records of a journal page.
pub(crate) const RECORDS: usize = (PAGE_BYTES - RECORDS_AT) / RECORD_BYTES;

/// Slots of a table page.
pub(crate) const ENTRIES: usize = (PAGE_BYTES - ENTRIES_AT) / 8;

/// The first bytes of both kinds after the checksum. Earlier versions wrote `uc j`: their starts
/// could forget a copy without a record of its end, so those journals are not believed.
const JOURNAL: &[u8; 4] = b"uc J";
const TABLE: &[u8; 4] = b"uc t";

/// Where the parts of a page lie. The number is that of a journal page's records; a table page has
/// none.
const KIND_AT: usize = 8;
const NUMBER_AT: usize = 12;
const ID_AT: usize = 16;
const PLACE_AT: usize = 24;
const ENTRIES_AT: usize = 32;
const STAMP_AT: usize = 32;
const TABLE_AT: usize = 56;
const RECORDS_AT: usize = 64;

const RECORD_BYTES: usize = 12;

/// No part sees so many commits, and a few more can be counted.
const PLACE_MAX: u64 = u64::MAX / 2;

/// Where the check of a copy begins. No block on flash has a larger number.
const CHECK_SHIFT: u32 = 48;

/// The bit that says that there is no copy, or none any more. Without it, 0 is a copy of block 0.
const NONE: u64 = 1 << (CHECK_SHIFT + CHECK_BITS);

/// What the last change of a store may be: which store it is, and the time from which to which the
/// change may have been made, in nanoseconds of the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The store, and all else that must be the same.
    pub identity: u64,
    /// The earliest moment.
    pub since_ns: u64,
    /// The latest moment.
    pub until_ns: u64,
}

impl Stamp {
    /// Whether it can be that of a store whose last change was then.
    pub fn admits(&self, identity: u64, changed_ns: u64) -> bool {
        self.identity == identity && (self.since_ns..=self.until_ns).contains(&changed_ns)
    }
}

/// What happened to the copy in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) block: u64,
    /// That of its data, if it is there.
    pub(crate) check: u16,
    pub(crate) slot: Slot,
    /// Whether the copy ended; otherwise it is there from now on.
    pub(crate) is_end: bool,
}

/// A journal page that was read.
pub(crate) struct JournalPage<'a> {
    pub(crate) place: u64,
    pub(crate) stamp: Stamp,
    /// The checksum of the table page of its commit.
    pub(crate) table: u64,
    records: &'a [u8],
}

impl JournalPage<'_> {
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> {
        self.records.chunks_exact(RECORD_BYTES).map(|bytes| {
            let (slot, copy) = (number(bytes, 0, 4) as Slot, number(bytes, 4, 8));
            let (block, check) = copy_of(copy);
            Record { block, check, slot, is_end: copy & NONE != 0 }
        })
    }
}

/// The bytes of a journal page: at most [`RECORDS`] records, and the checksum of the table page of
/// its commit.
pub(crate) fn journal_page<'a>(
    (id, place): (u64, u64),
    stamp: Stamp,
    table: &[u8],
    records: impl ExactSizeIterator<Item = &'a Record>,
) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    let count = records.len() as u32;
    for (at, value) in [stamp.identity, stamp.since_ns, stamp.until_ns].into_iter().enumerate() {
        page[STAMP_AT + 8 * at..][..8].copy_from_slice(&value.to_le_bytes());
    }
    page[TABLE_AT..RECORDS_AT].copy_from_slice(&table[..KIND_AT]);
    for (record, bytes) in records.zip(page[RECORDS_AT..].chunks_exact_mut(RECORD_BYTES)) {
        let copy = copy_number(record.block, record.check) | if record.is_end { NONE } else { 0 };
        bytes[..4].copy_from_slice(&record.slot.to_le_bytes());
        bytes[4..].copy_from_slice(&copy.to_le_bytes());
    }
    seal(page, JOURNAL, count, (id, place))
}

/// Reads a journal page of this part. `None`: it is none, or damaged.
pub(crate) fn read_journal(page: &[u8], id: u64) -> Option<JournalPage<'_>> {
    let (count, place) = open(page, JOURNAL, id)?;
    let records = page[RECORDS_AT..].get(..count as usize * RECORD_BYTES)?;
    let [identity, since_ns, until_ns] = [0, 8, 16].map(|at| number(page, STAMP_AT + at, 8));
    let (stamp, table) = (Stamp { identity, since_ns, until_ns }, number(page, TABLE_AT, 8));
    Some(JournalPage { place, stamp, table, records })
}

/// The bytes of a table page, of the copies in at most [`ENTRIES`] slots: their blocks and checks.
pub(crate) fn table_page(
    of: (u64, u64),
    copies: impl Iterator<Item = Option<(u64, u16)>>,
) -> Vec<u8> {
    let mut page = vec![0xff; PAGE_BYTES];
    for (copy, bytes) in copies.zip(page[ENTRIES_AT..].chunks_exact_mut(8)) {
        let copy = copy.map_or(NONE, |(block, check)| copy_number(block, check));
        bytes.copy_from_slice(&copy.to_le_bytes());
    }
    seal(page, TABLE, 0, of)
}

/// Reads a table page: the copies in its slots. `None`: it is not the one with this checksum, or
/// damaged.
pub(crate) fn read_table(
    page: &[u8],
    (id, place): (u64, u64),
    table: u64,
) -> Option<impl Iterator<Item = Option<(u64, u16)>>> {
    let is_named = number(page, 0, 8) == table && open(page, TABLE, id)?.1 == place;
    let number_of = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let copies = page[ENTRIES_AT..].chunks_exact(8).map(number_of);
    is_named.then(|| copies.map(|copy| (copy & NONE == 0).then(|| copy_of(copy))))
}

/// A copy as one number, and the block and check of one.
fn copy_number(block: u64, check: u16) -> u64 {
    block | u64::from(check) << CHECK_SHIFT
}

fn copy_of(number: u64) -> (u64, u16) {
    let check = (number & !NONE) >> CHECK_SHIFT;
    (number & ((1 << CHECK_SHIFT) - 1), check as u16)
}

/// Completes a page.
fn seal(mut page: Vec<u8>, kind: &[u8; 4], number: u32, (id, place): (u64, u64)) -> Vec<u8> {
    page[KIND_AT..NUMBER_AT].copy_from_slice(kind);
    page[NUMBER_AT..ID_AT].copy_from_slice(&number.to_le_bytes());
    page[ID_AT..PLACE_AT].copy_from_slice(&id.to_le_bytes());
    page[PLACE_AT..PLACE_AT + 8].copy_from_slice(&place.to_le_bytes());
    let check = xxh3_64(&page[KIND_AT..]);
    page[..KIND_AT].copy_from_slice(&check.to_le_bytes());
    page
}

/// The number and the place of a page that is what it should be.
fn open(page: &[u8], kind: &[u8; 4], id: u64) -> Option<(u32, u64)> {
    let is_good = page.len() == PAGE_BYTES
        && page[KIND_AT..NUMBER_AT] == *kind
        && number(page, ID_AT, 8) == id
        && number(page, PLACE_AT, 8) <= PLACE_MAX
        && number(page, 0, 8) == xxh3_64(&page[KIND_AT..]);
    is_good.then(|| (number(page, NUMBER_AT, 4) as u32, number(page, PLACE_AT, 8)))
}

/// The number of so many bytes that begins at a byte.
pub(crate) fn number(bytes: &[u8], at: usize, count: usize) -> u64 {
    bytes[at..at + count].iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte))
}
