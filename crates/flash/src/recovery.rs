//! What lies on flash, read from the pages of a journal and its table after a restart.
//!
//! A power failure can lose or damage the two pages that were being written, and no others. They
//! are those of the newest commit that is seen in the journal, or of the one after it. So the
//! journal page at that next index may be anything; if any other one of the last lap is not there,
//! the device lost what it was told to keep, and nothing is believed.
//!
//! A table page counts if the journal page of the same index names its checksum: both are of the
//! same commit then. Otherwise it is ignored: copies are lost, but no wrong one is found.
//!
//! Everything is read once, commit by commit: first its records, then its table page. A table page
//! is made from memory, which is ahead of the durable records. A copy that it has counts, even if
//! its record was lost: the store and the slot do not change before the end of the copy is durable,
//! and that end would be in a later commit. That it has none in a slot does not count: the end may
//! have been lost, and the record of the copy may still be in the journal, where a later start
//! would find it if this table page were lost. So a copy counts until a durable record ends it, or
//! the pages that tell of it are written over. What a start does not find, and does not itself end,
//! is found by no later one.
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
    let mut reader = Reader { read, id, pages: pages_of(slots.capacity()) };
    let pages = reader.pages;
    let next = reader.next_place().await?;
    let mut journal = Journal::new(id, slots.capacity());
    journal.place = next;
    let (mut recorded, mut newest) = (Recorded { slots, journal: Some(journal) }, None);
    // The ring from the page after the newest one on, and its start.
    let oldest = next % pages;
    for (range, before) in [(oldest..pages, pages), (0..oldest, 0)] {
        let applied = reader.each(range, |index, page, table| {
            let place = (next - oldest + index).checked_sub(before);
            let page = read_journal(page, id);
            if page.as_ref().map(|page| page.place) != place {
                if index == oldest && page.is_none_or(|page| page.place < next) {
                    return Ok(());
                }
                let place = place.unwrap_or(index);
                return cold(format!("page {place} of {next} of the journal is wrong"));
            }
            let Some(page) = page else { return Ok(()) };
            for record in page.records() {
                let copy = (!record.is_end).then_some((record.block, record.check));
                recorded.set(record.slot.into(), copy)?;
            }
            let copies = read_table(table, (id, page.place), page.table).into_iter().flatten();
            let copies = (index * ENTRIES as u64..).zip(copies);
            for (slot, copy) in copies.filter(|(_, copy)| copy.is_some()) {
                recorded.set(slot, copy)?;
            }
            newest = Some(page.stamp);
            Ok(())
        });
        applied.await?;
    }

    // A block is in two slots if it went from one to the other, and neither its end in the first
    // nor its copy in the second is among the records, but a table page has the second. Both have
    // what the store has, or else the first one's end would be durable. One of them ends, with a
    // record, so that it is not found another time.
    for first in (0..recorded.slots.sets()).step_by(SETS_AT_ONCE as usize) {
        for slot in recorded.slots.doubles(first..first.saturating_add(SETS_AT_ONCE)) {
            recorded.empty(slot);
        }
        pause().await;
    }
    Ok((recorded, newest))
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

/// Reads the pages of a part's metadata.
struct Reader<R> {
    read: R,
    id: u64,
    pages: u64,
}

impl<R, F, E> Reader<R>
where
    R: FnMut(u64, usize) -> F,
    F: Future<Output = Result<Vec<u8>, E>>,
{
    /// The place of the next commit, by bisection. It is right if the journal is whole, which
    /// whoever reads all of it checks.
    async fn next_place(&mut self) -> Result<u64, NotWarm<E>> {
        let Some(first) = self.place_at(0).await? else {
            // There is none, or the first page of a lap was being written.
            return Ok(self.place_at(self.pages - 1).await?.map_or(0, |place| place + 1));
        };
        // Pages before `low` are of this lap, those from `high` on are not.
        let (mut low, mut high) = (1, self.pages);
        while low < high {
            let middle = low.midpoint(high);
            let is_of_it = self.place_at(middle).await? == Some(first + middle);
            (low, high) = if is_of_it { (middle + 1, high) } else { (low, middle) };
        }
        Ok(first + low)
    }

    /// The place of the journal page with this index.
    async fn place_at(&mut self, index: u64) -> Result<Option<u64>, NotWarm<E>> {
        let read = (self.read)(index * PAGE_BYTES as u64, PAGE_BYTES).await;
        let place = read_journal(&read.map_err(NotWarm::Read)?, self.id).map(|page| page.place);
        Ok(place.filter(|place| place % self.pages == index))
    }

    /// Hands over each of these journal pages with its table page.
    async fn each(
        &mut self,
        range: Range<u64>,
        mut page: impl FnMut(u64, &[u8], &[u8]) -> Result<(), NotWarm<E>>,
    ) -> Result<(), NotWarm<E>> {
        let mut begin = |start: u64| {
            let count = AT_ONCE.min(range.end.saturating_sub(start));
            let (byte, length) = (start * PAGE_BYTES as u64, count as usize * PAGE_BYTES);
            let table = self.pages * PAGE_BYTES as u64;
            (count > 0).then(|| [byte, table + byte].map(|byte| (self.read)(byte, length)))
        };
        let mut next = begin(range.start);
        for start in range.clone().step_by(AT_ONCE as usize) {
            let Some([journal, table]) = next.take() else { break };
            let journal = journal.await.map_err(NotWarm::Read)?;
            let table = table.await.map_err(NotWarm::Read)?;
            next = begin(start + AT_ONCE);
            let both = journal.chunks_exact(PAGE_BYTES).zip(table.chunks_exact(PAGE_BYTES));
            for (index, (journal, table)) in (start..).zip(both) {
                page(index, journal, table)?;
            }
        }
        Ok(())
    }
}
