//! The medium of a write log: two heads, and a ring of batches. A position counts the bytes of all
//! batches since the log was made, so it only grows; its place in the ring is its remainder.
//!
//! Not here: what the pages say (`format.rs`), and when they are written (`writer.rs`,
//! `destage.rs`).

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::format::{
    ENTRIES_MAX, Entry, Found, Head, Header, PAGE, Point, What, Writer, data_bytes, header,
    header_bytes,
};
use super::overlay::{Place, Run};
use crate::medium::{cut, pieces_bytes};
use crate::open::invalid;
use crate::store::{Buffer, Facts, Store};

/// Pages before the ring.
const HEADS: u64 = 2;

/// Bytes at the beginning of a medium that must be empty if it is to become a log.
const EMPTY_BYTES: u64 = 1 << 20;

/// Bytes that are read at once at a start.
const WINDOW_BYTES: u64 = 4 << 20;

/// Most changes in a ring of so many bytes, which bounds the memory that they need: as many as have
/// a page each.
pub(super) fn entries_max(ring_bytes: u64) -> usize {
    (ring_bytes / PAGE) as usize
}

/// Bytes of the ring of a medium of so many bytes.
pub(super) fn ring_bytes(medium_bytes: u64) -> u64 {
    medium_bytes.saturating_sub(HEADS * PAGE) / PAGE * PAGE
}

/// The ring.
pub(super) struct Ring {
    pub(super) medium: Arc<dyn Store>,
    pub(super) bytes: u64,
}

/// A batch that is in the log.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// Where it begins, and where the next one does.
    pub(super) start: Point,
    pub(super) end: Point,
    /// How many batches were known to be durable when it was written.
    pub(super) durable: u64,
    pub(super) entries: Vec<Entry>,
    /// The position of its first byte of data.
    data_at: u64,
    /// When it came to this process.
    pub(super) since: Instant,
}

impl Batch {
    /// The batch of these entries at a point, and its bytes.
    pub(super) fn new(
        writer: Writer,
        start: Point,
        durable: u64,
        entries: Vec<Entry>,
        mut data: Vec<Bytes>,
    ) -> (Batch, Vec<Bytes>) {
        let (header, check) = header(writer, start, durable, &entries, &data);
        let batch = Batch::at(start, durable, entries, check);
        let data_bytes = data_bytes(&batch.entries);
        data.insert(0, header.into());
        data.push(vec![0; (data_bytes.next_multiple_of(PAGE) - data_bytes) as usize].into());
        (batch, data)
    }

    fn at(start: Point, durable: u64, entries: Vec<Entry>, check: u64) -> Batch {
        let data_bytes = data_bytes(&entries);
        let data_at = start.position + header_bytes(entries.len());
        let end = Point {
            position: data_at + data_bytes.next_multiple_of(PAGE),
            sequence: start.sequence + 1,
            before: check,
        };
        Batch { start, end, durable, entries, data_at, since: Instant::now() }
    }

    fn bytes(&self) -> u64 {
        self.end.position - self.start.position
    }

    /// What it brings of the store, in the order of its changes.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> {
        let batch = self.start.sequence;
        let mut position = self.data_at;
        self.entries.iter().map(move |entry| {
            let Entry { offset, length, what } = *entry;
            let place = match what {
                What::Data => Place::Log(position),
                What::Hole => Place::Zero { allocated: false },
                What::Zeroes => Place::Zero { allocated: true },
            };
            position += entry.data_bytes();
            Run { offset, length, place, batch }
        })
    }
}

impl Ring {
    /// What the heads say. Without any, the beginning of the medium must be empty: a disk may have
    /// its first page further on.
    pub(super) async fn found(medium: &dyn Store) -> io::Result<Found> {
        let found = Head::read(&read(medium, 0, HEADS * PAGE).await?);
        if found == Found::Nothing {
            let more = read(medium, 0, EMPTY_BYTES.min(medium.facts().size)).await?;
            if more.iter().any(|&byte| byte != 0) {
                return Ok(Found::SomethingElse);
            }
        }
        Ok(found)
    }

    /// Writes a head in place of the older one, durably.
    pub(super) async fn write_head(medium: &dyn Store, head: &Head) -> io::Result<()> {
        let at = head.number % HEADS * PAGE;
        medium.write(at, vec![head.page().into()], false).await?;
        medium.flush().await
    }

    /// The byte of a position in the medium, and how many follow without a break.
    fn place(&self, position: u64) -> (u64, u64) {
        let at = position % self.bytes;
        (HEADS * PAGE + at, self.bytes - at)
    }

    /// Writes whole pages from a position on.
    pub(super) async fn write(&self, position: u64, data: Vec<Bytes>) -> io::Result<()> {
        let length = pieces_bytes(&data);
        let (at, run) = self.place(position);
        if length <= run {
            return self.medium.write(at, data, false).await;
        }
        self.medium.write(at, cut(&data, 0, run), false).await?;
        let (start, _) = self.place(position + run);
        self.medium.write(start, cut(&data, run, length - run), false).await
    }

    /// Reads bytes from a position on; whole pages of the medium are read.
    pub(super) async fn read(&self, position: u64, length: u64) -> io::Result<Vec<u8>> {
        let skip = position % PAGE;
        let (first, end) = (position - skip, (position + length).next_multiple_of(PAGE));
        let (at, run) = self.place(first);
        let mut bytes = read(&*self.medium, at, run.min(end - first)).await?;
        if run < end - first {
            let (start, _) = self.place(first + run);
            bytes.extend(read(&*self.medium, start, end - first - run).await?);
        }
        bytes.truncate((skip + length) as usize);
        bytes.drain(..skip as usize);
        Ok(bytes)
    }

    /// The batches from the tail on, in order, up to the first one that is not whole.
    ///
    /// # Errors
    /// The medium cannot be read; that batch was durable, so that the medium has lost or changed
    /// it; a batch changes what the store does not have, or not in its units; or there are more
    /// changes than a log may have.
    pub(super) async fn recover(&self, head: &Head, facts: &Facts) -> io::Result<Vec<Batch>> {
        let unit = u64::from(facts.alignment);
        let is_within = |entry: &Entry| {
            entry.offset.checked_add(entry.length).is_some_and(|end| end <= facts.size)
        };
        let (mut batches, mut count) = (Vec::new(), 0);
        let mut window = Window { ring: self, first: head.tail.position, bytes: Vec::new() };
        let mut at = head.tail;
        while let Some(batch) = window.batch(head, at).await? {
            at = batch.end;
            count += batch.entries.len();
            if !batch.entries.iter().all(is_within) {
                return Err(invalid("it has changes beyond the end of the store"));
            }
            if batch.entries.iter().any(|entry| (entry.offset | entry.length) % unit != 0) {
                return Err(invalid(&format!(
                    "it has changes of parts of {unit} bytes: open its store as it was before"
                )));
            }
            if count > entries_max(self.bytes) + ENTRIES_MAX {
                return Err(invalid("it has more changes than a log may have"));
            }
            batches.push(batch);
        }
        if at.sequence < head.writer.since || window.has_lost(head, at).await? {
            return Err(invalid(
                "it is damaged: changes are gone that were durable; `undercroft flash accept-loss` \
                 lets its store be served without it",
            ));
        }
        Ok(batches)
    }

    /// Whether a batch is in the log as it was written.
    pub(super) async fn is_whole(&self, writer: Writer, batch: &Batch) -> io::Result<bool> {
        let bytes = self.read(batch.start.position, batch.bytes()).await?;
        let header = Header::read(&bytes, writer).filter(|header| header.is_at(batch.start));
        let header = header.filter(|header| header.batch_bytes() == batch.bytes());
        let found = header.and_then(|header| header.entries(&bytes));
        Ok(found.is_some_and(|(_, check)| check == batch.end.before))
    }
}

/// What is read of a ring at once, and looked at batch by batch.
struct Window<'a> {
    ring: &'a Ring,
    first: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    async fn batch(&mut self, head: &Head, start: Point) -> io::Result<Option<Batch>> {
        let left = self.ring.bytes - (start.position - head.tail.position);
        if left < PAGE {
            return Ok(None);
        }
        let page = self.read(start.position, PAGE, left).await?;
        let header = Header::read(page, head.writer).filter(|header| header.is_at(start));
        let Some(header) = header.filter(|header| header.batch_bytes() <= left) else {
            return Ok(None);
        };
        let bytes = self.read(start.position, header.batch_bytes(), left).await?;
        let Some((entries, check)) = header.entries(bytes) else { return Ok(None) };
        Ok(Some(Batch::at(start, header.durable, entries, check)))
    }

    /// Whether a batch further on knew that the one at this point, which is not whole, was durable.
    /// A loss of power takes only what was not.
    async fn has_lost(&mut self, head: &Head, at: Point) -> io::Result<bool> {
        let mut position = at.position + PAGE;
        while position < at.position + WINDOW_BYTES {
            let left = self.ring.bytes.saturating_sub(position - head.tail.position);
            if left < PAGE {
                break;
            }
            let header = Header::read(self.read(position, PAGE, left).await?, head.writer);
            let mut next = position + PAGE;
            if let Some(header) = header {
                let mut start = header.point(position);
                while start.sequence > at.sequence
                    && let Some(batch) = self.batch(head, start).await?
                {
                    if batch.durable > at.sequence {
                        return Ok(true);
                    }
                    (start, next) = (batch.end, batch.end.position);
                }
            }
            position = next;
        }
        Ok(false)
    }

    /// Bytes from a position on, of which `left` are there.
    async fn read(&mut self, position: u64, length: u64, left: u64) -> io::Result<&[u8]> {
        let end = self.first + self.bytes.len() as u64;
        if position < self.first || position + length > end {
            self.bytes = self.ring.read(position, length.max(WINDOW_BYTES).min(left)).await?;
            self.first = position;
        }
        let skip = (position - self.first) as usize;
        Ok(&self.bytes[skip..skip + length as usize])
    }
}

/// The bytes of a store from one on.
pub(super) async fn read(medium: &dyn Store, byte: u64, length: u64) -> io::Result<Vec<u8>> {
    let (mut buffers, result) =
        medium.read(byte, vec![Box::new(vec![0_u8; length as usize]) as Buffer]).await;
    result?;
    Ok(buffers.iter_mut().flat_map(|buffer| (**buffer).as_mut().to_vec()).collect())
}
