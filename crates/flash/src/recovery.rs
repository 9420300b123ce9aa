//! What lies on flash, read from the pages of a journal and its table after a restart.
//!
//! A power failure can lose or damage the two pages that were being written, and no others. They
//! are those of the newest commit that is seen in the journal, or of the one after it. So the
//! journal page at that next index may be anything; if any other one of the last lap is not there,
//! the device lost what it was told to keep, and nothing is believed.
//!
//! A table page counts if the journal page of the same index names its checksum: both are of the
//! same commit then. Otherwise its slots count as empty: copies are lost, and none is believed that
//! is not there. To what the table says, all records of the journal are applied in their order. The
//! last record of a slot is true by itself, whatever came before; and a table page that counts has
//! what the records of its commit and of those before it changed.
//!
//! A table page may know more than the records of its time: it was made from memory, where more had
//! happened. That is not wrong, since a store does not change before the end of a copy is among the
//! records.
//!
//! Not here: what must be true of the device and the store (the rules in `journal.rs`).

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::task::Poll;

use crate::directory::{Directory, Slot};
use crate::journal::{Journal, pages_of};
use crate::pages::{ENTRIES, Stamp, read_journal, read_table};
use crate::recorded::Recorded;
use crate::slots::Slots;
use crate::superblock::PAGE_BYTES;

/// Pages that are read at once, while those before them are looked at.
const AT_ONCE: u64 = 128;

/// Sets that are looked at for blocks in two slots before others have a turn: some milliseconds.
const SETS_AT_ONCE: u32 = 1 << 12;

/// Why nothing was found after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWarm<E> {
    /// The device could not be read.
    Read(E),
    /// What it says cannot be believed, and why. The part needs another id before it is used.
    Cold(String),
}

impl<E: fmt::Display> fmt::Display for NotWarm<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Cold(why) => f.write_str(why),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for NotWarm<E> {}

/// Reads what lies on flash: from a part's metadata, with `read(byte, length)`, into empty slots.
/// One that reads before it is awaited is ahead by as much as is looked at at once.
/// Sync the device before. The slots must have the seed and the number that they had before, for
/// as long as the part has this `id`. Returns the stamp of the last commit too; `None`: there was
/// none yet.
///
/// # Errors
/// The device could not be read, or what it says cannot be believed.
pub async fn recover<E, F: Future<Output = Result<Vec<u8>, E>>>(
    id: u64,
    slots: Slots,
    read: impl FnMut(u64, usize) -> F,
) -> Result<(Recorded, Option<Stamp>), NotWarm<E>> {
    let pages = pages_of(slots.capacity());
    let mut reader = Reader(read);

    // The place of each journal page, and the table page that it names.
    let mut ring = vec![None; pages as usize];
    let mut newest = None;
    let looked = reader.each(0, 0..pages, |index, page| {
        if let Some(page) = read_journal(page, id).filter(|page| page.place % pages == index) {
            ring[index as usize] = Some((page.place, page.table));
            if newest.is_none_or(|(place, _)| place < page.place) {
                newest = Some((page.place, page.stamp));
            }
        }
        Ok(())
    });
    looked.await?;
    let next = newest.map_or(0, |(place, _)| place + 1);
    for place in next.saturating_sub(pages)..next {
        let page = &mut ring[(place % pages) as usize];
        if page.is_none_or(|(found, _)| found != place) {
            *page = None;
            if place + pages != next {
                return cold(format!("page {place} of {next} of the journal is not there"));
            }
        }
    }

    let mut journal = Journal::new(id, slots.capacity());
    journal.place = next;
    let mut recorded = Recorded { slots, journal: Some(journal) };
    let applied = reader.each(pages, 0..pages, |index, page| {
        let Some((place, named)) = ring[index as usize] else { return Ok(()) };
        let Some(copies) = read_table(page, (id, place), named) else { return Ok(()) };
        for (slot, copy) in (index * ENTRIES as u64..).zip(copies) {
            recorded.set(slot, copy)?;
        }
        Ok(())
    });
    applied.await?;

    // In the order of their places: the ring from the page after the newest one, and its start.
    let oldest = next % pages;
    for range in [oldest..pages, 0..oldest] {
        let applied = reader.each(0, range, |index, page| {
            let Some((place, _)) = ring[index as usize] else { return Ok(()) };
            let Some(page) = read_journal(page, id).filter(|page| page.place == place) else {
                return cold(format!("page {place} of the journal was read in two ways"));
            };
            for record in page.records() {
                let copy = (!record.is_end).then_some((record.block, record.check));
                recorded.set(record.slot.into(), copy)?;
            }
            Ok(())
        });
        applied.await?;
    }

    // A block is in two slots if it went from one to the other, the records say neither, and the
    // table knows of the second. Both have what the store has, or else the first one's end would be
    // durable. One of them ends, with a record, so that it is not found another time.
    let sets = recorded.slots.sets();
    for first in (0..sets).step_by(SETS_AT_ONCE as usize) {
        for slot in recorded.slots.doubles(first..first.saturating_add(SETS_AT_ONCE)) {
            recorded.empty(slot);
        }
        pause().await;
    }
    Ok((recorded, newest.map(|(_, stamp)| stamp)))
}

/// Gives others on this thread a turn.
async fn pause() {
    let mut is_over = false;
    poll_fn(|context| match std::mem::replace(&mut is_over, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

fn cold<T, E>(why: String) -> Result<T, NotWarm<E>> {
    Err(NotWarm::Cold(why))
}

impl Recorded {
    /// Notes what a page says of a slot: the block there, and the check of its data.
    fn set<E>(&mut self, slot: u64, copy: Option<(u64, u16)>) -> Result<(), NotWarm<E>> {
        if slot >= self.slots.capacity().into() {
            return match copy {
                Some(_) => cold(format!("there is no slot {slot}")),
                None => Ok(()),
            };
        }
        let slot = slot as Slot;
        match copy {
            Some((block, check)) if !self.slots.restore(slot, block, check) => {
                return cold(format!("block {block} cannot lie in slot {slot}"));
            }
            Some(_) => {}
            None => self.slots.empty(slot),
        }
        self.journal.iter_mut().for_each(|journal| journal.set_entered(slot, copy.is_some()));
        Ok(())
    }
}

/// Reads pages, many at once.
struct Reader<R>(R);

impl<R> Reader<R> {
    /// Hands over each page of a range, which begins after `first` pages of the metadata.
    async fn each<E, F: Future<Output = Result<Vec<u8>, E>>>(
        &mut self,
        first: u64,
        range: Range<u64>,
        mut page: impl FnMut(u64, &[u8]) -> Result<(), NotWarm<E>>,
    ) -> Result<(), NotWarm<E>>
    where
        R: FnMut(u64, usize) -> F,
    {
        let mut begin = |start: u64| {
            let count = AT_ONCE.min(range.end.saturating_sub(start));
            let byte = (first + start) * PAGE_BYTES as u64;
            (count > 0).then(|| (self.0)(byte, count as usize * PAGE_BYTES))
        };
        let mut next = begin(range.start);
        for start in range.clone().step_by(AT_ONCE as usize) {
            let Some(read) = next.take() else { break };
            let read = read.await.map_err(NotWarm::Read)?;
            next = begin(start + AT_ONCE);
            for (index, bytes) in (start..).zip(read.chunks_exact(PAGE_BYTES)) {
                page(index, bytes)?;
            }
        }
        Ok(())
    }
}
