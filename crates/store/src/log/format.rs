//! The pages of a write log, as bytes: its head, and the header of each batch of changes. Every
//! page has a checksum. The header of a batch has one that covers the batch's data too, and the
//! checksum of the batch before: so a batch counts only behind the one that it was written behind.
//!
//! Not here: where the pages lie (`ring.rs`).

use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Bytes of a page. Batches begin with pages, and consist of whole ones.
pub(super) const PAGE: u64 = 4096;

/// Most bytes of data in a batch, and most changes.
pub(super) const DATA_MAX: u64 = 1 << 20;
pub(super) const ENTRIES_MAX: usize = 1024;

const HEAD: &[u8; 16] = b"undercroft wrlog";
const BATCH: &[u8; 4] = b"uc w";

/// The layout that is written here. Another number is another layout, which is refused.
const VERSION: u64 = 2;

/// No log has so many bytes, or batches, and there is room for more.
const NUMBER_MAX: u64 = 1 << 62;

/// Where the numbers in a head begin, and the checksum of a page that has it at its end.
const NUMBERS_AT: usize = 16;
const CHECK_AT: usize = PAGE as usize - 8;

/// Where the parts of a batch's header lie.
const MAGIC_AT: usize = 8;
const COUNT_AT: usize = 12;
const FIELDS_AT: usize = 16;
const ENTRIES_AT: usize = 64;
const ENTRY_BYTES: usize = 24;

/// What a head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The newer of two heads has the larger one.
    pub(super) number: u64,
    /// Bytes of the ring of batches.
    pub(super) ring_bytes: u64,
    /// Bytes of the store before which the log stands.
    pub(super) store_bytes: u64,
    /// Where the oldest batch that counts begins.
    pub(super) tail: Point,
    /// Who opened the log last.
    pub(super) writer: Writer,
}

/// What the two first pages of a medium say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Log(Head),
    /// They are zeroes.
    Nothing,
    /// They are those of a log, and neither is whole.
    Damaged,
    SomethingElse,
}

/// A place between two batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// Bytes of all batches before.
    pub(super) position: u64,
    /// Number of batches before.
    pub(super) sequence: u64,
    /// Checksum of the batch before.
    pub(super) before: u64,
}

/// What becomes of a range of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It gets the batch's next bytes.
    Data,
    /// It reads as zeroes, and needs no space.
    Hole,
    /// It reads as zeroes, and keeps its space.
    Zeroes,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) what: What,
}

/// What is the same for all batches that a process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    /// The log's identity.
    pub(super) id: u64,
    /// Another one each time that the log is opened.
    pub(super) life: u64,
    /// Number of batches that were found when it was opened.
    pub(super) since: u64,
}

/// The header of a batch that was read, without its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) entries: usize,
    pub(super) data_bytes: u64,
    /// How many batches were known to be durable when it was written.
    pub(super) durable: u64,
    /// Number of batches before it, and the checksum of the last of them.
    sequence: u64,
    before: u64,
    /// Of the process that wrote it.
    life: u64,
}

impl Entry {
    /// Bytes that it has in a batch.
    pub(super) fn data_bytes(&self) -> u64 {
        if self.what == What::Data { self.length } else { 0 }
    }
}

impl Head {
    /// The page.
    pub(super) fn page(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE as usize];
        page[..HEAD.len()].copy_from_slice(HEAD);
        let Point { position, sequence, before } = self.tail;
        let Head { number, ring_bytes, store_bytes, .. } = *self;
        let Writer { id, life, since } = self.writer;
        let of_log = [VERSION, id, number, ring_bytes, store_bytes];
        let numbers = of_log.into_iter().chain([position, sequence, before, life, since]);
        for (index, number) in numbers.enumerate() {
            put(&mut page, NUMBERS_AT + 8 * index, number);
        }
        let check = xxh3_64(&page[..CHECK_AT]);
        put(&mut page, CHECK_AT, check);
        page
    }

    /// What the two first pages of a medium say: the newer head.
    pub(super) fn read(pages: &[u8]) -> Found {
        let each = || pages.chunks_exact(PAGE as usize);
        match each().filter_map(Self::of).max_by_key(|head| head.number) {
            Some(head) => Found::Log(head),
            None if pages.iter().all(|&byte| byte == 0) => Found::Nothing,
            None if each().any(|page| page.starts_with(HEAD)) => Found::Damaged,
            None => Found::SomethingElse,
        }
    }

    fn of(page: &[u8]) -> Option<Head> {
        let is_whole = page.starts_with(HEAD) && xxh3_64(&page[..CHECK_AT]) == get(page, CHECK_AT);
        let number = |index: usize| get(page, NUMBERS_AT + 8 * index);
        let head = Head {
            number: number(2),
            ring_bytes: number(3),
            store_bytes: number(4),
            tail: Point { position: number(5), sequence: number(6), before: number(7) },
            writer: Writer { id: number(1), life: number(8), since: number(9) },
        };
        let is_possible = head.ring_bytes > 0
            && [head.ring_bytes, head.tail.position].iter().all(|bytes| bytes % PAGE == 0)
            && [head.ring_bytes, head.tail.position, head.tail.sequence, head.number]
                .iter()
                .all(|&number| number < NUMBER_MAX);
        (is_whole && number(0) == VERSION && is_possible).then_some(head)
    }
}

/// Bytes of data that changes have together.
pub(super) fn data_bytes(entries: &[Entry]) -> u64 {
    entries.iter().map(Entry::data_bytes).fold(0, u64::saturating_add)
}

/// Bytes of the header of a batch with so many changes.
pub(super) fn header_bytes(entries: usize) -> u64 {
    ((ENTRIES_AT + ENTRY_BYTES * entries) as u64).next_multiple_of(PAGE)
}

/// The header of a batch, and its checksum.
pub(super) fn header(
    writer: Writer,
    at: Point,
    durable: u64,
    entries: &[Entry],
    data: &[Bytes],
) -> (Vec<u8>, u64) {
    let mut bytes = vec![0; header_bytes(entries.len()) as usize];
    bytes[MAGIC_AT..COUNT_AT].copy_from_slice(BATCH);
    bytes[COUNT_AT..FIELDS_AT].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    let data_bytes = data_bytes(entries);
    let Writer { id, life, .. } = writer;
    let fields = [id, life, at.sequence, at.before, data_bytes, durable];
    for (index, field) in fields.into_iter().enumerate() {
        put(&mut bytes, FIELDS_AT + 8 * index, field);
    }
    for (entry, place) in entries.iter().zip(bytes[ENTRIES_AT..].chunks_exact_mut(ENTRY_BYTES)) {
        put(place, 0, entry.offset);
        put(place, 8, entry.length);
        put(place, 16, entry.what as u64);
    }
    let check = sum(&bytes, data.iter().map(|piece| &piece[..]));
    put(&mut bytes, 0, check);
    (bytes, check)
}

impl Header {
    /// What the first page of a batch of this log says, whose data are not looked at yet. None
    /// that an earlier process wrote counts if a later one did not find it: a torn one could
    /// become whole by what was written over a part of it.
    pub(super) fn read(page: &[u8], writer: Writer) -> Option<Header> {
        let count = u32::from_le_bytes(page[COUNT_AT..FIELDS_AT].try_into().ok()?) as usize;
        let field = |index: usize| get(page, FIELDS_AT + 8 * index);
        let is_own = page[MAGIC_AT..COUNT_AT] == *BATCH && field(0) == writer.id;
        let [life, sequence, before, data_bytes, durable] = [1, 2, 3, 4, 5].map(field);
        let fits = (1..=ENTRIES_MAX).contains(&count) && data_bytes <= DATA_MAX;
        let header = Header { entries: count, data_bytes, durable, sequence, before, life };
        let counts = sequence < NUMBER_MAX && (sequence < writer.since || life == writer.life);
        (is_own && fits && counts).then_some(header)
    }

    /// Whether it is that of the batch at this point.
    pub(super) fn is_at(&self, at: Point) -> bool {
        (self.sequence, self.before) == (at.sequence, at.before)
    }

    /// The point that its batch must have been written at, if it begins at this position.
    pub(super) fn point(&self, position: u64) -> Point {
        Point { position, sequence: self.sequence, before: self.before }
    }

    /// Bytes of the batch.
    pub(super) fn batch_bytes(&self) -> u64 {
        header_bytes(self.entries) + self.data_bytes.next_multiple_of(PAGE)
    }

    /// The entries of the batch, all of whose bytes are here, and its checksum. `None`: it is
    /// damaged.
    pub(super) fn entries(&self, batch: &[u8]) -> Option<(Vec<Entry>, u64)> {
        let (header, data) = batch.split_at(header_bytes(self.entries) as usize);
        let check = sum(header, [&data[..self.data_bytes as usize]]);
        let places = header[ENTRIES_AT..].chunks_exact(ENTRY_BYTES).take(self.entries);
        let entries = places.map(|place| {
            let what = match get(place, 16) {
                0 => What::Data,
                1 => What::Hole,
                2 => What::Zeroes,
                _ => return None,
            };
            Some(Entry { offset: get(place, 0), length: get(place, 8), what })
        });
        let entries = entries.collect::<Option<Vec<_>>>()?;
        (check == get(header, 0) && data_bytes(&entries) == self.data_bytes)
            .then_some((entries, check))
    }
}

/// The checksum of a batch, from its header and its data.
fn sum<'a>(header: &[u8], data: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&header[8..]);
    data.into_iter().for_each(|piece| hash.update(piece));
    hash.digest()
}

fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

fn get(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
